# SPDX-License-Identifier: GPL-2.0-only
"""Finds the map of what the module's probes write into the target's memory.

Owns the layout of that map, `tlk_probe_map` of the module, as kmod/probe/layout.h declares it. The
map is read from outside, without the module's help. sites.py has the patched places, and tier1.py
the meaning of a CPU's record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntFlag

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.target import Target

MODULE = "trapless"
SYMBOL = "tlk_probe_map"
MAGIC = b"TLPROBE1"
MAGIC_NUMBER = int.from_bytes(MAGIC, "little")
MAP = struct.Struct("<8s4I3Q4IQ")  # struct tlk_probe_map
ACTIVE_AT = 12  # the offset of its member `active`
RECORD_BYTES_MIN = 12
"""Every record begins with a state (8 bytes) and an entry (4 bytes)."""


class Mode(IntFlag):
    """The kinds of probes; the module's parameter `probes` is a sum of these numbers."""

    PARTS = 1
    INTERRUPTS = 2
    COUNTS = 4
    EVENTS = 8


@dataclass(frozen=True)
class ProbeMap:
    """struct tlk_probe_map as it was read, and its address."""

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
    """The module's map; None where the target has no module with probes.

    `again` reads the target's list of modules once more.
    """
    address = target.module_symbol(MODULE, SYMBOL, again=again)
    return read(target, address) if address is not None else None


def read(target: Target, address: int) -> ProbeMap | None:
    """The map at a virtual address; None where there is none, or none any more."""
    try:
        magic, *numbers = MAP.unpack(target.read(address, MAP.size))
    except PeekError:
        return None
    size, active, sites, record_bytes, *rest = numbers
    known = magic == MAGIC and size >= MAP.size and record_bytes >= RECORD_BYTES_MIN
    if not known or sites > limits.SITES_MAX:
        return None
    return ProbeMap(address, size, Mode(active & sum(Mode)), sites, record_bytes, *rest)


def mode_text(active: Mode) -> str:
    """The probes that are on, for people.

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
