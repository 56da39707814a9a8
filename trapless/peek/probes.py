# SPDX-License-Identifier: GPL-2.0-only
"""What the module's probes leave in the target's memory, and where: twin of kmod/probe/layout.h.

Owns the map of it (`tlk_probe_map` of the module) and finding that. Everything is read from memory;
the module does not know. The sites that were patched are sites.py's, what a record's values mean
for a sample is tier1.py's.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag

from trapless.peek.errors import PeekError
from trapless.peek.target import MASK, Target

MODULE = "trapless"
SYMBOL = "tlk_probe_map"
MAGIC = b"TLPROBE1"
MAGIC_NUMBER = int.from_bytes(MAGIC, "little")
MAP = struct.Struct("<8s4I3Q4IQ")  # struct tlk_probe_map
ACTIVE_AT = 12  # of its member `active`
SITES_MAX = 1 << 16
RECORD_BYTES_MIN = 12
"""State (8 bytes) and entry (4): what a record begins with, however long it becomes."""


class Mode(IntFlag):
    """What the module's parameter `probes` is a sum of."""

    PARTS = 1
    INTERRUPTS = 2
    COUNTS = 4
    EVENTS = 8


@dataclass(frozen=True)
class ProbeMap:
    """struct tlk_probe_map as it was read, and where it is."""

    address: int  # virtual
    size: int
    active: Mode
    sites: int
    record_bytes: int
    records: int  # per-CPU address
    site: int  # virtual, as all that follow
    rings: int
    cpus: int
    ring_events: int
    event_bytes: int
    places: int
    place: int

    def record(self, target: Target, cpu: int) -> int:
        """The virtual address of a CPU's record."""
        return (self.records + target.percpu_bases[cpu]) & MASK


def find(target: Target, *, again: bool = False) -> ProbeMap | None:
    """The module's map, or None where the target has no module with probes.

    `again` looks at the target's list of modules once more.
    """
    if again:
        target.modules.refresh()
    for module in target.modules:
        if module.name == MODULE and SYMBOL in module.names:
            return read(target, module.addresses[module.names.index(SYMBOL)])
    return None


def read(target: Target, address: int) -> ProbeMap | None:
    """The map at a virtual address; None where there is none (any more)."""
    try:
        magic, *numbers = MAP.unpack(target.read(address, MAP.size))
    except PeekError:
        return None
    size, active, sites, record_bytes, *rest = numbers
    if magic != MAGIC or size < MAP.size or record_bytes < RECORD_BYTES_MIN or sites > SITES_MAX:
        return None
    return ProbeMap(address, size, Mode(active & 0xF), sites, record_bytes, *rest)


def mode_text(active: Mode) -> str:
    """What is on, for people.

    >>> mode_text(Mode.PARTS | Mode.COUNTS)
    'user and kernel, counts'
    """
    names = {
        Mode.PARTS: "user and kernel",
        Mode.INTERRUPTS: "interrupts",
        Mode.COUNTS: "counts",
        Mode.EVENTS: "events",
    }
    return ", ".join(text for mode, text in names.items() if mode & active) or "off"
