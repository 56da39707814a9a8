# SPDX-License-Identifier: GPL-2.0-only
"""Reads the memory of another machine by RDMA, on which trapless_rdma.ko is loaded.

Owns the start of the sampler, which has the connection (sampler/remote/rdma.c) and answers for it,
and the words in which it fails. What the other machine says is as little trusted as a guest.
"""

from __future__ import annotations

import re
from pathlib import Path

from trapless.base import built_programs
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.agent_memory import ConnectedMemory, Connection
from trapless.peek.kernel.memory import Region

LINE = re.compile(r"(note|region) (0x[0-9a-f]{1,16}|0)(?: (0x[0-9a-f]{1,16}))?")
PREFIX = "trapless-sampler: "
NOT_BUILT = (
    "the sampler was built without rdma-core's headers; on Debian: apt-get install librdmacm-dev, "
    "then `make all`"
)


class Reader(Connection):
    """A running sampler that answers for a connection by RDMA."""

    def __init__(self, host: str, source: str) -> None:
        self.source, self.note, self.regions = source, 0, list[Region]()
        program = built_programs.find("sampler/trapless-sampler")
        super().__init__(host, [str(program), "--source", source, "--answer"])

    def greeted(self, data: bytes) -> None:
        for line in data.decode(errors="replace").splitlines():
            found = LINE.fullmatch(line)
            if found is None:
                raise PeekError(f"the sampler says of {self.host}: {line!r}")
            if found[1] == "note":
                self.note = int(found[2], 16)
            else:
                self._add(int(found[2], 16), int(found[3] or "0", 16))

    def _add(self, start: int, length: int) -> None:
        """One more region, which may continue the last one."""
        if self.regions and self.regions[-1].end == start:
            start, length = self.regions[-1].start, self.regions.pop().length + length
        self.regions.append(Region(start, length, start))


def by_rdma(host: str, port: int, key: Path) -> Reader:
    """A connection to a machine; PeekError says why there is none."""
    try:
        return Reader(host, f"rdma:{host},{port},{key}")
    except PeekError as error:
        text = str(error).removeprefix(PREFIX)
        raise PeekError(NOT_BUILT if "is not a source of memory" in text else text) from error


class RdmaMemory(ConnectedMemory):
    """The memory of a machine that is read by RDMA."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader, reader.regions, reader.note)
        self.source = reader.source
