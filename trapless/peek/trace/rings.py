# SPDX-License-Identifier: GPL-2.0-only
"""Reads the rings of events in a target's memory, as kmod/probe/layout.h lays them out.

Owns the search for the rings, the reading of new events, and the count of lost ones. A ring is
written while it is read: the head is read again afterwards, and an event counts only if that shows
that it was not overwritten. event_decoder.py decodes events.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes
from trapless.peek.sampling.probes import Mode, ProbeMap

VALUES = 6
PLACE_BYTES = 64
HEAD = struct.Struct("<QQ")  # events written ever, events dropped
HEAD_BYTES = 64
MARGIN = 8
"""The oldest slots are not trusted: the next events may be written there."""

EVENT = np.dtype([("t_ns", "<u8"), ("place", "<u4"), ("pid", "<u4"), ("value", "<u8", (VALUES,))])
TAKEN = np.dtype([*EVENT.descr, ("cpu", "<u4"), ("lost", "<u8")])
"""An event with its CPU; `lost`: the number of events lost on that CPU directly before it."""

Events = npt.NDArray[np.void]

HOW = (
    "in the target, as root: echo sched_switch,sys_enter,sys_exit "
    ">/sys/module/trapless/parameters/events; echo 8 >/sys/module/trapless/parameters/probes"
)


@dataclass(frozen=True)
class Place:
    """A place that events come from, and the labels of their values."""

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
    """One CPU's ring. `done`: the number of events that were read or lost already."""

    cpu: int
    address: int  # physical
    slots: int
    done: int = 0
    lost: int = 0
    dropped: int = 0
    unreported: int = 0  # lost, and not yet reported with an event


class Rings:
    """The rings of one target whose events are on. One thread at a time."""

    def __init__(self, target: Target, probe_map: ProbeMap) -> None:
        self._target, self._map = target, probe_map
        self.places = _places(target, probe_map)
        self.rings = _rings(target, probe_map)

    @classmethod
    def open(cls, target: Target) -> Rings:
        """The rings of a target; PeekError says what to do where it records no events."""
        probe_map = probes.find(target, again=True)
        if probe_map is None:
            raise PeekError(
                f"{target.release} has no module with probes; load trapless there, then {HOW}"
            )
        if not probe_map.active & Mode.EVENTS or not probe_map.rings:
            raise PeekError(f"no events are recorded; {HOW}")
        return cls(target, probe_map)

    @property
    def lost(self) -> int:
        """The number of events that were overwritten before they were read, on all CPUs."""
        return sum(ring.lost for ring in self.rings)

    @property
    def dropped(self) -> int:
        """The number of events that the target dropped inside the writing of others."""
        return sum(ring.dropped for ring in self.rings)

    def gone(self) -> bool:
        """Whether events were switched off, or off and on again, since these rings were opened."""
        now = probes.read(self._target, self._map.address)
        return now is None or (now.rings, now.place) != (self._map.rings, self._map.place)

    def begin(self, *, backlog: bool) -> None:
        """Begin with the oldest event that the rings have, or with the next one that comes."""
        for ring in self.rings:
            head, ring.dropped = self._head(ring)
            ring.done = max(head - (ring.slots - MARGIN), 0) if backlog else head

    def poll(self) -> list[Events]:
        """The new events: an array of TAKEN for each CPU, by time; [] if rings are gone."""
        batches = [events for ring in self.rings if len(events := self._poll(ring))]
        return [] if self.gone() else batches

    def _head(self, ring: Ring) -> tuple[int, int]:
        head, dropped = HEAD.unpack(self._target.memory.read(ring.address, HEAD.size))
        return head, dropped

    def _poll(self, ring: Ring) -> Events:
        head, ring.dropped = self._head(ring)
        first = max(ring.done, head - (ring.slots - MARGIN))
        data = self._read(ring, first, head) if head > first else b""
        after, _ = self._head(ring)
        whole = min(max(first, after - (ring.slots - MARGIN)), head)
        lost = max(whole - ring.done, 0)
        ring.done = max(head, ring.done)
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


def _places(target: Target, probe_map: ProbeMap) -> tuple[Place, ...]:
    if not 0 < probe_map.places <= limits.PLACES_MAX or probe_map.event_bytes != EVENT.itemsize:
        raise PeekError("the module's events have another layout than is known here")
    data = target.read(probe_map.place, probe_map.places * PLACE_BYTES)
    texts = (data[at : at + PLACE_BYTES] for at in range(0, len(data), PLACE_BYTES))
    return tuple(Place.parse(str(GuestText(text))) for text in texts)


def _rings(target: Target, probe_map: ProbeMap) -> Sequence[Ring]:
    slots = probe_map.ring_events
    if not MARGIN < slots <= limits.RING_BYTES_MAX // EVENT.itemsize:
        raise PeekError(f"the module's rings have {slots} slots: its memory is damaged")
    rings = []
    for cpu in target.cpus_possible:
        address = target.read_u64(probe_map.rings + 8 * cpu) if cpu < probe_map.cpus else 0
        if address:
            rings.append(Ring(cpu, target.physical(address), slots))
    return tuple(rings)


class Merger:
    """Merges the CPUs' events into one order of time. One thread.

    An event may arrive after a younger one of another CPU, because the host stopped its CPU after
    it had read the clock. So events are held back for HOLD_S; one that is later still comes out of
    order.
    """

    HOLD_S = 0.1

    def __init__(self) -> None:
        self._waiting: list[Events] = []
        self._arrivals: list[tuple[float, int]] = []  # (when read, the youngest time by then)
        self.count = 0

    def add(self, batches: Sequence[Events], now_s: float) -> None:
        """Add the events that were read at `now_s`, in seconds of any monotonic clock."""
        if batches:
            self._waiting += batches
            self._arrivals.append((now_s, max(int(one["t_ns"][-1]) for one in batches)))
            self.count += sum(map(len, batches))

    def take(self, now_s: float) -> Events:
        """The events that were held back long enough, in order."""
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
        """All remaining events, in order."""
        everything = self._sorted()
        self._waiting, self._arrivals, self.count = [], [], 0
        return everything

    def _sorted(self) -> Events:
        everything = np.concatenate([np.empty(0, TAKEN), *self._waiting])
        return everything[np.argsort(everything["t_ns"], kind="stable")]
