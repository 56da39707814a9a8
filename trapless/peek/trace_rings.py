# SPDX-License-Identifier: GPL-2.0-only
"""The rings of events in a target's memory: twin of kmod/probe/layout.h.

Owns finding them, reading what is new in each, and noticing what was lost: a ring is written while
it is read, and an event counts only if the ring's head, read again after, shows that it was not
written over meanwhile. What events mean is trace_events.py's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trapless.peek import probes
from trapless.peek.errors import PeekError
from trapless.peek.probes import Mode, ProbeMap
from trapless.peek.target import Target

VALUES = 6
PLACE_BYTES = 64
PLACES_MAX = 64
RING_BYTES_MAX = 4 << 20
HEAD = struct.Struct("<QQ")  # events written ever, events dropped
HEAD_BYTES = 64
MARGIN = 8
"""Slots before the oldest that are not trusted: the next events are being written there."""

EVENT = np.dtype([("t_ns", "<u8"), ("place", "<u4"), ("pid", "<u4"), ("value", "<u8", (VALUES,))])
TAKEN = np.dtype([*EVENT.descr, ("cpu", "<u4"), ("lost", "<u8")])
"""An event with its CPU; `lost`: how many were lost there directly before it."""

Events = npt.NDArray[np.void]

HOW = (
    "in the target, as root: echo sched_switch,sys_enter,sys_exit "
    ">/sys/module/trapless/parameters/events; echo 8 >/sys/module/trapless/parameters/probes"
)


@dataclass(frozen=True)
class Place:
    """Where events come from, and what their values are called."""

    name: str
    labels: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Place:
        """A place as the module describes it.

        >>> Place.parse("vfs_read:file=di:dx")
        Place(name='vfs_read', labels=('file', 'dx'))
        """
        name, *words = text.split(":")
        return cls(name, tuple(word.partition("=")[0] for word in words))


@dataclass
class Ring:
    """One CPU's ring. `seen`: events that were read or lost already."""

    cpu: int
    address: int  # physical
    slots: int
    seen: int = 0
    lost: int = 0
    dropped: int = 0
    unreported: int = 0  # lost, and not yet told with an event


class Rings:
    """The rings of one target whose events are on."""

    def __init__(self, target: Target, found: ProbeMap) -> None:
        self._target, self._map = target, found
        self.places = _places(target, found)
        self.rings = _rings(target, found)

    @classmethod
    def open(cls, target: Target) -> Rings:
        """PeekError where the target records no events, with what to do there."""
        found = probes.find(target, again=True)
        if found is None:
            raise PeekError(
                f"{target.release} has no module with probes; load trapless there, then {HOW}"
            )
        if not found.active & Mode.EVENTS or not found.rings:
            raise PeekError(f"no events are recorded; {HOW}")
        return cls(target, found)

    @property
    def lost(self) -> int:
        """Events that were written over before they were read, on all CPUs."""
        return sum(ring.lost for ring in self.rings)

    @property
    def dropped(self) -> int:
        """Events that came while another was being written, and were not."""
        return sum(ring.dropped for ring in self.rings)

    def gone(self) -> bool:
        """Whether events were switched off, or on anew, since."""
        now = probes.read(self._target, self._map.address)
        return now is None or (now.rings, now.place) != (self._map.rings, self._map.place)

    def begin(self, *, backlog: bool) -> None:
        """Where reading begins: with the oldest that is there still, or with what comes now."""
        for ring in self.rings:
            head, ring.dropped = self._head(ring)
            ring.seen = max(head - (ring.slots - MARGIN), 0) if backlog else head

    def poll(self) -> list[Events]:
        """What is new, a CPU at a time, each in order of time; [] too where rings are gone."""
        found = [events for ring in self.rings if len(events := self._poll(ring))]
        return [] if self.gone() else found

    def _head(self, ring: Ring) -> tuple[int, int]:
        head, dropped = HEAD.unpack(self._target.memory.read(ring.address, HEAD.size))
        return head, dropped

    def _poll(self, ring: Ring) -> Events:
        head, ring.dropped = self._head(ring)
        first = max(ring.seen, head - (ring.slots - MARGIN))
        data = self._read(ring, first, head) if head > first else b""
        after, _ = self._head(ring)
        whole = min(max(first, after - (ring.slots - MARGIN)), head)
        lost = max(whole - ring.seen, 0)
        ring.seen = max(head, ring.seen)
        ring.lost += lost
        ring.unreported += lost
        events = np.frombuffer(data, EVENT)[whole - first :] if data else np.empty(0, EVENT)
        taken = np.zeros(len(events), TAKEN)
        for name in EVENT.names or ():
            taken[name] = events[name]
        taken["cpu"] = ring.cpu
        if len(taken):
            taken["lost"][0], ring.unreported = ring.unreported, 0
        return taken

    def _read(self, ring: Ring, first: int, end: int) -> bytes:
        """Events first..end-1; the ring may wrap around once between them."""
        memory, size = self._target.memory, EVENT.itemsize
        start = ring.address + HEAD_BYTES
        slot, count = first % ring.slots, end - first
        straight = min(count, ring.slots - slot)
        data = memory.read(start + slot * size, straight * size)
        return data + (memory.read(start, (count - straight) * size) if count > straight else b"")


def _places(target: Target, found: ProbeMap) -> tuple[Place, ...]:
    if not 0 < found.places <= PLACES_MAX or found.event_bytes != EVENT.itemsize:
        raise PeekError("the module's events have another layout than is known here")
    data = target.read(found.place, found.places * PLACE_BYTES)
    texts = (data[at : at + PLACE_BYTES] for at in range(0, len(data), PLACE_BYTES))
    return tuple(Place.parse(text.split(b"\0")[0].decode("utf-8", "replace")) for text in texts)


def _rings(target: Target, found: ProbeMap) -> Sequence[Ring]:
    slots = found.ring_events
    if not MARGIN < slots <= RING_BYTES_MAX // EVENT.itemsize:
        raise PeekError(f"the module's rings have {slots} slots: its memory is damaged")
    rings = []
    for cpu in target.cpus_possible:
        address = target.read_u64(found.rings + 8 * cpu) if cpu < found.cpus else 0
        if address:
            rings.append(Ring(cpu, target.physical(address), slots))
    return tuple(rings)


class Merger:
    """Puts the CPUs' events into one order of time, as far as they have come.

    An event may be read later than one of another CPU that is younger: its CPU was stopped by the
    host after it had looked at the clock. So events are held back for HOLD_S before they are given
    out; one that comes later still comes out of order.
    """

    HOLD_S = 0.1

    def __init__(self) -> None:
        self._waiting: list[Events] = []
        self._arrivals: list[tuple[float, int]] = []  # (when read, the youngest time by then)
        self.count = 0

    def add(self, batches: Sequence[Events], now_s: float) -> None:
        """Take what was read at `now_s`, of any clock that goes on."""
        if batches:
            self._waiting += batches
            self._arrivals.append((now_s, max(int(one["t_ns"][-1]) for one in batches)))
            self.count += sum(map(len, batches))

    def take(self, now_s: float) -> Events:
        """What need not wait any more, in order."""
        ripe = [t_ns for when, t_ns in self._arrivals if when <= now_s - self.HOLD_S]
        if not ripe:
            return np.empty(0, TAKEN)
        self._arrivals = self._arrivals[len(ripe) :]
        everything = self._sorted()
        cut = int(np.searchsorted(everything["t_ns"], max(ripe), side="right"))
        self._waiting = [everything[cut:]]
        self.count -= cut
        return everything[:cut]

    def rest(self) -> Events:
        """All that is left, in order."""
        everything = self._sorted()
        self._waiting, self._arrivals, self.count = [], [], 0
        return everything

    def _sorted(self) -> Events:
        everything = np.concatenate([np.empty(0, TAKEN), *self._waiting])
        return everything[np.argsort(everything["t_ns"], kind="stable")]
