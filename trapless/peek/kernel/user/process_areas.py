# SPDX-License-Identifier: GPL-2.0-only
"""Finds what a process has mapped at an address, by the tree of its mappings (the maple tree).

Owns the form of the tree's nodes (include/linux/maple_tree.h in the kernel) and the members of a
mapping that are needed here. A path from the root has a bounded number of nodes, so a tree whose
nodes lead to themselves ends like any other.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.name_resolver import Resolver

WORD = 8
PAGE_SHIFT = 12
EXECUTABLE = 0x4
"""The bit of vm_flags (VM_EXEC in include/linux/mm.h)."""
NODE_BYTES = 256
ROOT = 0x2
"""The lowest two bits of a root that is a node; a mapping's address has neither of them."""
KIND_SHIFT, KIND_MASK = 3, 0xF
"""Where the address of a node has its kind: nodes are aligned to their size."""
MEMBERS = ("vm_start", "vm_end", "vm_pgoff", "vm_flags", "vm_file", "vm_mm")
AREA_BYTES_MAX = 512


@dataclass(frozen=True, slots=True)
class Area:
    """Addresses from `start` to `end` of one process. `file` is a `struct file`'s address, or 0."""

    start: int
    end: int
    offset: int  # in the file, of the first byte
    executable: bool
    file: int


@dataclass(frozen=True, slots=True)
class _Node:
    """The form of one kind of node: where it has its pivots and slots, and how many pivots."""

    pivots: int
    count: int
    slots: int


class Areas:
    """The mappings of one kernel's processes. One thread uses it."""

    def __init__(self, target: Resolver) -> None:
        self._target = target
        self._root = target.offset("mm_struct", "mm_mt.ma_root")
        self._at = {name: target.offset("vm_area_struct", name) for name in MEMBERS}
        self._length = max(self._at.values()) + WORD
        if self._length > AREA_BYTES_MAX:
            raise PeekError("a vm_area_struct is too long: the kernel's types are damaged")
        leaf = self._number("maple_leaf_64")
        ranges = self._form("maple_range_64")
        self._leaf = leaf
        self._forms = {
            leaf: ranges,
            self._number("maple_range_64"): ranges,
            self._number("maple_arange_64"): self._form("maple_arange_64"),
        }

    def _number(self, name: str) -> int:
        found = self._target.types.enumerator(name)
        if found is None:
            raise PeekError(f"the target's kernel has no maple trees ({name})")
        return found[1]

    def _form(self, record: str) -> _Node:
        pivots = self._target.place(record, "pivot")
        slots = self._target.offset(record, "slot")
        form = _Node(pivots.offset, pivots.size // WORD, slots)
        end = max(pivots.offset + pivots.size, slots + WORD * (form.count + 1))
        if not form.count or end > NODE_BYTES:
            raise PeekError(f"a {record} is too long: the kernel's types are damaged")
        return form

    def at(self, mm: int, address: int) -> Area | None:
        """The mapping of a process at an address; None without one."""
        entry = self._target.read_u64(mm + self._root)
        if entry & 0x3 != ROOT:
            return None
        for _ in range(limits.TREE_DEPTH_MAX):
            limits.spend()
            kind = entry >> KIND_SHIFT & KIND_MASK
            form = self._forms.get(kind)
            if form is None:
                raise PeekError(f"a node of kind {kind} among mappings: the tree is damaged")
            node = self._target.read(entry & -NODE_BYTES, NODE_BYTES)
            pivots = struct.unpack_from(f"<{form.count}Q", node, form.pivots)
            # A pivot is the last address of its slot; after the last one that is used, it is 0.
            slot = next(
                (
                    number
                    for number, pivot in enumerate(pivots)
                    if address <= pivot or (number and not pivot)
                ),
                form.count,
            )
            (entry,) = struct.unpack_from("<Q", node, form.slots + WORD * slot)
            if kind == self._leaf:
                return self._area(mm, entry, address)
            if not entry:
                return None
        raise PeekError("the tree of mappings is deeper than any: it is damaged")

    def _area(self, mm: int, entry: int, address: int) -> Area | None:
        if entry & 0x3 or not entry:  # a gap, or an entry that is being made
            return None
        data = self._target.read(entry, self._length)
        values = {name: struct.unpack_from("<Q", data, at)[0] for name, at in self._at.items()}
        if values["vm_mm"] != mm or not values["vm_start"] <= address < values["vm_end"]:
            return None  # the tree has changed while it was read
        return Area(
            values["vm_start"],
            values["vm_end"],
            values["vm_pgoff"] << PAGE_SHIFT,
            bool(values["vm_flags"] & EXECUTABLE),
            values["vm_file"],
        )
