# SPDX-License-Identifier: GPL-2.0-only
"""Writes a file for Perfetto's viewer, packet by packet: tracks, slices, instants and counters.

Owns the use of Perfetto's own classes (its `perfetto` package) and the numbers of tracks.
perfetto.py and samples.py choose what is put on which track.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

from trapless.peek import limits
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import ARM64, X86_64

MACHINES = {X86_64: "x86_64", ARM64: "aarch64"}
"""As uname names processors."""
SEQUENCE = 1
CLEARED = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
Value = int | float | str | GuestText
SIGNED_MAX = (1 << 63) - 1
OTHER_THREADS = "threads that are too many for tracks of their own"


def narrow(value: int) -> int:
    """The number in 32 bits, signed: memory of a guest may have any number in its place.

    >>> narrow(7), narrow(-1), narrow(1 << 63 | 5)
    (7, -1, 5)
    """
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


class PerfettoFile:
    """Writes each packet at once, so that a file that was cut is whole up to its last packet. One
    thread. Times are in ns.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._builder = StreamingTraceProtoBuilder(file)
        self._tracks: dict[tuple[Any, ...], int] = {}

    def packet(self) -> Any:
        """A new packet; give it to put()."""
        packet = self._builder.create_packet()
        packet.trusted_packet_sequence_id = SEQUENCE
        return packet

    def put(self, packet: Any) -> None:
        self._builder.write_packet(packet)

    def flush(self) -> None:
        self._file.flush()

    def begin(self, release: str, banner: str, processor: str = X86_64) -> None:
        """Write which machine it is: viewers name system calls and states of tasks by that."""
        packet = self.packet()
        packet.sequence_flags = CLEARED
        name = packet.system_info.utsname
        name.sysname, name.release, name.version = "Linux", release, banner
        name.machine = MACHINES.get(processor, "")
        self.put(packet)

    def group(self, name: str) -> int:
        """The number of a track that holds others."""
        return self._track(("group", name), name, None)

    def track(self, name: str, within: str | None = None) -> int:
        """The number of a track for slices and instants."""
        return self._track(("track", within, name), name, within)

    def counter(self, name: str, within: str | None = None, unit: str = "") -> int:
        """The number of a track for values over time."""
        key = ("counter", within, name)
        if key not in self._tracks:
            descriptor = self._described(key, name, within)
            descriptor.track_descriptor.counter.unit_name = unit
            self.put(descriptor)
        return self._tracks[key]

    def thread(self, process: int, thread: int) -> int:
        """The number of a thread's own track, without a name: other packets have it."""
        key = ("thread", thread, process)
        if key not in self._tracks:
            if len(self._tracks) >= limits.TRACKS_MAX:
                return self.track(OTHER_THREADS)
            descriptor = self._described(key, "", None)
            descriptor.track_descriptor.ClearField("name")
            about = descriptor.track_descriptor.thread
            about.pid, about.tid = narrow(process), narrow(thread)
            self.put(descriptor)
        return self._tracks[key]

    def _track(self, key: tuple[Any, ...], name: str, within: str | None) -> int:
        if key not in self._tracks:
            self.put(self._described(key, name, within))
        return self._tracks[key]

    def _described(self, key: tuple[Any, ...], name: str, within: str | None) -> Any:
        parent = self.group(within) if within is not None else 0
        self._tracks[key] = number = len(self._tracks) + 1
        packet = self.packet()
        packet.track_descriptor.uuid = number
        packet.track_descriptor.name = name
        if parent:
            packet.track_descriptor.parent_uuid = parent
        return packet

    def slice_begin(
        self, track: int, t_ns: int, name: str, values: Mapping[str, Value] | None = None
    ) -> None:
        self._event(track, t_ns, pb.TrackEvent.TYPE_SLICE_BEGIN, name, values)

    def slice_end(self, track: int, t_ns: int) -> None:
        self._event(track, t_ns, pb.TrackEvent.TYPE_SLICE_END, "", None)

    def instant(
        self, track: int, t_ns: int, name: str, values: Mapping[str, Value] | None = None
    ) -> None:
        self._event(track, t_ns, pb.TrackEvent.TYPE_INSTANT, name, values)

    def count(self, track: int, t_ns: int, value: int) -> None:
        packet = self.packet()
        packet.timestamp = t_ns
        event = packet.track_event
        event.type, event.track_uuid = pb.TrackEvent.TYPE_COUNTER, track
        event.counter_value = min(value, SIGNED_MAX)
        self.put(packet)

    def _event(
        self, track: int, t_ns: int, kind: int, name: str, values: Mapping[str, Value] | None
    ) -> None:
        packet = self.packet()
        packet.timestamp = t_ns
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        if name:
            event.name = name
        for label, value in (values or {}).items():
            annotation = event.debug_annotations.add(name=label)
            if isinstance(value, str):
                annotation.string_value = value
            elif isinstance(value, float):
                annotation.double_value = value
            elif isinstance(value, GuestText):
                annotation.string_value = str(value)
            elif value > SIGNED_MAX:
                annotation.pointer_value = value
            else:
                annotation.int_value = value
        self.put(packet)
