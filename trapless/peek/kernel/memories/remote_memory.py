# SPDX-License-Identifier: GPL-2.0-only
"""Reads memory that is reached by messages, whatever carries them.

Owns the places that may be asked for, and the pages that are kept while a kernel is opened: each
message is a round trip. A subclass carries the messages, many at the same time where it can. An
error that ends its connection ends all later reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

from trapless.peek import limits
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, Region

Place = tuple[int, int]
"""A physical address, and how many bytes from there."""
KEPT_BYTES = 4 * PAGE_BYTES
"""Pages are read with their neighbours, which are often wanted next."""


class RemoteMemory(FileMemory):
    """Memory that has no file here: only this object can read it. Others ask its owner."""

    def __init__(self, name: str, regions: Sequence[Region]) -> None:
        super().__init__(name, (), regions)
        self._kept: dict[int, bytes] | None = None

    def transfer(self, places: Sequence[Place]) -> list[bytes]:
        """The bytes of each place, all of which are memory; PeekError where one cannot be read."""
        raise NotImplementedError

    def moment(self, limit_s: float) -> AbstractContextManager[None]:  # noqa: ARG002
        """A context whose reads belong together: of one moment if the machine can be stopped."""
        return nullcontext()

    def read(self, address: int, length: int) -> bytes:
        limits.spend(1, length)
        self._check(address, length)
        block = address - address % KEPT_BYTES
        end = block + KEPT_BYTES
        kept, region = self._kept, self._region(address)
        if kept is None or address + length > end or not region.start <= block < end <= region.end:
            return self.transfer([(address, length)])[0]
        if block not in kept:
            (kept[block],) = self.transfer([(block, KEPT_BYTES)])
        return kept[block][address - block : address - block + length]

    def read_all(self, places: Sequence[Place]) -> list[bytes]:
        for address, length in places:
            limits.spend(1, length)
            self._check(address, length)
        return self.transfer(places)

    @contextmanager
    def keeping_pages(self) -> Iterator[None]:
        """A context in which each page is read once: the tables of a kernel do not change."""
        self._kept = {}
        try:
            yield
        finally:
            self._kept = None

    def _check(self, address: int, length: int) -> None:
        """PeekError where some of the place is no memory."""
        while length > 0:
            inside = self._region(address).end - address
            address += inside
            length -= inside
