# SPDX-License-Identifier: GPL-2.0-only
"""Reads a guest's files as far as its kernel has them in memory: names, and pages of the cache.

Owns the way from a `struct file` to its name and to its pages: the tree of cached pages (the
XArray, include/linux/xarray.h in the kernel), and the number of a page by the place of its `struct
page`. No disk is read: a page that is not cached is missing.
"""

from __future__ import annotations

from typing import NamedTuple

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.name_resolver import Resolver

WORD = 8
SLOT_BITS = 6
SLOTS = 1 << SLOT_BITS
INTERNAL = 0x2
"""The lowest two bits of an entry that is no page: up to NODE_MIN a mark or the number of a slot,
above it a node."""
NODE_MIN = 4096
INDEX_BITS = 64


class FileIdentity(NamedTuple):
    """Numbers that differ between two files, and mostly between two versions of one."""

    mapping: int  # the address of its `struct address_space`
    inode: int
    size: int


class CachedFiles:
    """The files of one kernel. One thread uses it."""

    def __init__(self, target: Resolver) -> None:
        self._target = target
        self._of_file = {
            name: target.offset("file", path)
            for name, path in (
                ("dentry", "f_path.dentry"),
                ("mapping", "f_mapping"),
                ("inode", "f_inode"),
            )
        }
        self._of_inode = {name: target.offset("inode", name) for name in ("i_ino", "i_size")}
        self._name = target.offset("dentry", "d_name.name")
        self._pages = target.offset("address_space", "i_pages.xa_head")
        self._shift = target.offset("xa_node", "shift")
        self._slots = target.offset("xa_node", "slots")
        self._struct_bytes = target.sizeof("page")
        if self._struct_bytes <= 0:
            raise PeekError("a struct page of no bytes: the kernel's types are damaged")
        # The struct page of physical address 0: arm64's note has it.
        self._first_page = (
            target.info.symbol("vmemmap")
            if target.info.has_symbol("vmemmap")
            else target.read_u64(target.symbol("vmemmap_base"))
        )
        self._page_bytes = target.processor.page_bytes

    def name(self, file: int) -> GuestText:
        """The last part of a file's path."""
        dentry = self._target.read_u64(file + self._of_file["dentry"])
        place = self._target.read_u64(dentry + self._name)
        return self._target.read_string(place, limits.USER_FILE_NAME_BYTES_MAX)

    def identity(self, file: int) -> FileIdentity:
        """Which file it is."""
        target = self._target
        inode = target.read_u64(file + self._of_file["inode"])
        return FileIdentity(
            target.read_u64(file + self._of_file["mapping"]),
            target.read_u64(inode + self._of_inode["i_ino"]),
            target.read_u64(inode + self._of_inode["i_size"]),
        )

    def read(self, mapping: int, offset: int, length: int) -> bytes:
        """Bytes of a file, with zeros where its pages are not in memory."""
        pieces = []
        while length > 0:
            index, inside = divmod(offset, self._page_bytes)
            take = min(length, self._page_bytes - inside)
            try:
                page = self._page(mapping, index)
                piece = None if page is None else self._target.memory.read(page + inside, take)
            except limits.LimitError:
                raise
            except PeekError:
                piece = None
            pieces.append(bytes(take) if piece is None else piece)
            offset += take
            length -= take
        return b"".join(pieces)

    def _page(self, mapping: int, index: int) -> int | None:
        """The physical address of a page of a file; None where it is not in memory."""
        entry, base, above = self._target.read_u64(mapping + self._pages), 0, INDEX_BITS
        for depth in range(limits.TREE_DEPTH_MAX):
            if not _is_node(entry):
                break
            limits.spend()
            node = entry - INTERNAL
            shift = self._target.read(node + self._shift, 1)[0]
            if shift >= above:
                raise PeekError("the tree of a file's pages leads to itself: it is damaged")
            if not depth and index >> shift >= SLOTS:
                return None  # behind the last page that is cached
            above, slot = shift, (index >> shift) % SLOTS
            entry = self._slot(node, slot)
            if entry & 0x3 == INTERNAL and entry >> 2 < SLOTS:
                slot = entry >> 2  # the page is a part of a larger one, which that slot has
                entry = self._slot(node, slot)
            base = (index >> shift) - (index >> shift) % SLOTS + slot << shift
        # An odd entry is what is left of a page that was written to disk.
        if not entry or entry & 0x3 or (above == INDEX_BITS and index):
            return None
        number, rest = divmod(entry - self._first_page, self._struct_bytes)
        if rest or number < 0 or index < base:
            return None
        return (number + index - base) * self._page_bytes

    def _slot(self, node: int, slot: int) -> int:
        return self._target.read_u64(node + self._slots + WORD * slot)


def _is_node(entry: int) -> bool:
    return entry & 0x3 == INTERNAL and entry > NODE_MIN
