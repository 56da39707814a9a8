# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek record`: samples a running kernel from outside into a recording.

Owns the order of the steps: resolve the kernel once, make a plan of what a stock kernel shows
(tier0.py) and of what the module's probes add (tier1.py), let the sampler follow the plan, and
store its rows. When the machine is restarted, the recording goes on with the next kernel, in a
folder of its own (boots.py notices it). A recording ends on request or with the machine; it is
whole in each case.
"""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import pyarrow as pa

from trapless.base.console import Progress
from trapless.peek.emulator import Emulator, missing_text
from trapless.peek.errors import PeekError
from trapless.peek.kernel.counters import Counters
from trapless.peek.kernel.memories.agent_memory import AgentMemory
from trapless.peek.kernel.memories.kcore import OwnMemory
from trapless.peek.kernel.memories.stub_memory import StubMemory
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine
from trapless.peek.sampling import sampler, sites, tier0, tier1
from trapless.peek.sampling.boots import Boots
from trapless.peek.sampling.code_names import Names
from trapless.peek.sampling.probe_watch import Watch
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.recording import COUNTS_FILE, SEGMENT_AGE_S, Recorder, boot_name
from trapless.peek.sampling.sample_rows import End, Ending, Rows
from trapless.peek.sampling.sampler import AnySampler, started
from trapless.peek.sampling.sampling_plan import Plan

CHECK_S = 1.0
"""Seconds from one check that the kernel is the same to the next."""
SPIN_SHARE = 5
SPIN_NS_MAX = 20_000
"""The sampler polls the clock before each deadline for a fifth of the interval, at most this."""
COUNTS_MAX = 4096
"""Readings of the kernel's counters that a recording keeps: when it has more, it leaves out every
second one."""


ENDINGS = {
    Ending.DURATION: "the time is over",
    Ending.SIGNAL: "ended on request",
    Ending.TARGET: "the VM has ended",
    Ending.SOURCE: "the VM's memory went away",
    Ending.OUTPUT: "the output failed",
}


def plan_for(
    target: Target,
    interval_ns: int,
    duration_ns: int,
    cpu: int | None,
    emulator: Emulator | None,
    probes: ProbeMap | None = None,
) -> Plan:
    """The plan for a kernel: tier 0, and tier 1 where `probes` is its map of probes."""
    groups = tier0.groups(target)
    spin_ns = 0 if samples_itself(target) else min(interval_ns // SPIN_SHARE, SPIN_NS_MAX)
    return Plan(
        interval_ns=interval_ns,
        duration_ns=duration_ns,
        groups=groups if probes is None else tier1.groups(target, probes, groups),
        bases=tier0.bases(target),
        cpu=cpu if cpu is not None else sampler.cpu_for(target.memory),
        spin_ns=spin_ns,
        threads=emulator.threads if emulator is not None else (),
        watch=emulator.pid if emulator is not None else None,
    )


def samples_itself(target: Target) -> bool:
    """Whether the sampler runs on the machine that it samples, and takes its processor's time."""
    return isinstance(target.memory, OwnMemory | AgentMemory)


def lack_of(target: Target, emulator: Emulator | None, cpu: int | None = None) -> str | None:
    """What is not known about the running machine, in words; None if all is known."""
    if samples_itself(target):
        own = cpu if cpu is not None else sampler.cpu_for(target.memory)
        return (
            f"the machine samples itself: the sampler runs on its CPU {own} for each sample, so "
            "samples of this CPU show the sampler"
        )
    if isinstance(target.memory, StubMemory):
        return "by a debugger's stub: the machine is stopped for each sample, 20 a second at most"
    return missing_text(emulator)


def ending_text(run: AnySampler) -> str | None:
    """Why sampling has ended, in words; None where the sampler was killed."""
    if run.loss:
        return run.loss
    return ENDINGS[run.end.ending] if run.end is not None else None


def source_of(target: Target) -> FileMemory:
    """The target's memory as the sampler reads it; PeekError where it cannot be sampled."""
    memory = target.memory
    if not isinstance(memory, FileMemory) or memory.is_saved:
        raise PeekError(
            f"{memory.name} is not the RAM of a running machine, so it cannot be sampled; "
            "`trapless peek why`, `ps`, `stacks`, `dmesg` and `shell` take it"
        )
    return memory


@dataclass
class Ends:
    """How a recording ended, and the sums over its boots."""

    ending: Ending
    rows: int = 0
    lost: int = 0
    boots: int = 0


class Companion(Protocol):
    """Observes more of a boot while its samples are recorded; a context manager."""

    def __enter__(self) -> object: ...

    def __exit__(self, *_: object) -> None: ...

    def keep(self, recorder: Recorder) -> None:
        """Store what was observed until now beside the rows."""

    def tell(self, progress: Progress) -> None:
        """Say how it went, at the end."""


class Request:
    """A request to end, by Ctrl-C or SIGTERM, whichever boot is being recorded."""

    def __init__(self) -> None:
        self.asked = False
        self.run: AnySampler | None = None

    def __call__(self) -> None:
        self.asked = True
        if self.run is not None:
            self.run.stop()


def record(
    machine: Machine,
    folder: Path,
    *,
    interval_ns: int,
    duration_ns: int,
    cpu: int | None,
    progress: Progress,
    companion: Callable[[Target, Names], Companion] | None = None,
) -> Ends:
    """Record into the new folder `folder` and return the counts of the run.

    `companion` makes what else is observed of each boot. A duration of 0 has no end. PeekError says
    why there is no recording, or that the sampler was killed.
    """
    if os.path.exists(folder):
        raise PeekError(f"{folder} exists already; a recording needs a folder of its own")
    if not os.path.isdir(folder.parent):
        raise PeekError(f"{folder} cannot be made: there is no folder {folder.parent}")
    progress.step(f"resolving the kernel in {machine}")
    ends, request = Ends(Ending.DURATION), Request()
    over_ns = 0  # the end, from the first sample on; 0: none

    def is_over() -> bool:
        return request.asked or bool(over_ns and time.monotonic_ns() >= over_ns)

    target: Target | None = machine.open()
    with ended_by_signals(request):
        while target is not None:
            left_ns = max(over_ns - time.monotonic_ns(), interval_ns) if over_ns else duration_ns
            over_ns = over_ns or (duration_ns and time.monotonic_ns() + duration_ns)
            with target:
                boot = _Boot(target, machine.emulator(), request, progress, companion)
                target = None
                into = folder if not ends.boots else folder / boot_name(ends.boots + 1)
                end = boot.store(into, interval_ns, left_ns, cpu)
                if end is None:
                    raise PeekError(f"the sampler was killed; {folder} has the samples until then")
                ends.ending, ends.boots = end.ending, ends.boots + 1
                ends.rows, ends.lost = ends.rows + end.rows, ends.lost + end.lost
                if boot.restarted and not request.asked:
                    progress.step("waiting for the next kernel")
                    target = boot.boots.next(is_over)
                    ends.ending = Ending.DURATION if is_over() else Ending.TARGET
        if request.asked:
            ends.ending = Ending.SIGNAL
    return ends


def samples(run: AnySampler) -> Iterator[Rows]:
    """The batches of a run, from when the first has arrived: `run.head` is set then."""
    batches = run.batches()
    first = next(batches, None)
    if first is None:
        raise PeekError("sampling ended before the first sample")
    return itertools.chain([first], batches)


def about_target(
    target: Target, probes: ProbeMap | None, emulator: Emulator | None
) -> dict[str, Any]:
    """The description of the kernel that a recording has in its meta.json."""
    return {
        "release": str(target.release),
        "build_id": target.build_id,
        "shift": target.symbols.shift,
        "banner": str(target.banner),
        "processor": target.processor.name,
        "cpus": target.cpus_online,
        "context_user": tier0.context_user(target),
        "differences": tier0.differences(target),
        "probes": int(probes.active) if probes is not None else None,
        "vcpus": emulator.threads if emulator is not None else (),
    }


class _Boot:
    """The recording of one boot. `restarted`: it ended because the machine was restarted."""

    def __init__(
        self,
        target: Target,
        emulator: Emulator | None,
        request: Request,
        progress: Progress,
        companion: Callable[[Target, Names], Companion] | None,
    ) -> None:
        self._source = source_of(target)  # its error before anything is said of the target
        self._target, self._emulator, self._companion = target, emulator, companion
        self._request, self._progress = request, progress
        self._watch = Watch(target, progress.note)
        self.boots = Boots(target, emulator)
        self._counts = Counts(target)
        self.restarted = False

    def store(
        self, folder: Path, interval_ns: int, duration_ns: int, cpu: int | None
    ) -> End | None:
        """Record into a folder; the counts, or None where the sampler was killed."""
        target, progress, watch = self._target, self._progress, self._watch
        plan = plan_for(target, interval_ns, duration_ns, cpu, self._emulator, watch.first)
        user_mode = tier0.tells_user_mode(plan.columns())
        progress.note(tier1.knowledge_text(watch.first, user_mode=user_mode))
        missing = lack_of(target, self._emulator, cpu)
        if missing is not None:
            progress.note(missing)
        about = about_target(target, watch.first, self._emulator)
        # Before sampling begins: rows would be lost while these are read.
        symbols = [(address, str(name)) for address, name in target.symbols.rows()]
        with started(self._source, plan) as run:
            self._request.run = run
            batches = samples(run)
            with Recorder(folder, run.head, about, symbols) as recorder:
                progress.step(f"recording {target.release} into {folder}")
                names = Names(target)
                companion = None if self._companion is None else self._companion(target, names)
                with companion or nullcontext():
                    self._follow(run, batches, recorder, duration_ns, names, companion)
                if companion is not None:
                    companion.keep(recorder)
                    companion.tell(progress)
                names.keep(recorder)
                alive_ns = self.boots.alive_ns if self.restarted else None
                self._counts.keep(recorder, alive_ns)
                recorder.close(run.end, alive_ns)
            self._request.run = None
        if run.loss:
            progress.note(run.loss)
        progress.done()
        return run.end

    def _follow(
        self,
        run: AnySampler,
        batches: Iterator[Rows],
        recorder: Recorder,
        duration_ns: int,
        names: Names,
        companion: Companion | None,
    ) -> None:
        sites.keep(recorder, self._watch.sites())
        checked = kept = began = time.monotonic()
        for rows in batches:
            recorder.add(rows)
            with self.boots.passing_errors():
                names.see(rows)
            now = time.monotonic()
            if now - checked >= CHECK_S:
                checked = now
                self._progress.advance(now - began, duration_ns / 1e9)
                self._look(run)
            if now - kept >= SEGMENT_AGE_S:
                kept = now
                if companion is not None:
                    companion.keep(recorder)
                names.keep(recorder)
                self._counts.keep(recorder)
                sites.keep(recorder, self._watch.sites())
        self._watch.look_last()
        sites.keep(recorder, self._watch.sites())

    def _look(self, run: AnySampler) -> None:
        if self.restarted:
            return
        if self.boots.look():
            with suppress(PeekError):  # the memory is going: the sampler notices that
                self._counts.look()
            with self.boots.passing_errors():
                self._watch.look()
        else:
            self.restarted = True
            self._progress.note("the machine was restarted; its next boot is waited for")
            run.stop()


@contextmanager
def ended_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Make Ctrl-C and SIGTERM call `stop` instead of ending this process. Main thread only."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        stop()

    before: dict[int, Any] = {
        number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Counts:
    """Reads a kernel's own counters once a second, and keeps them beside the rows. One thread."""

    def __init__(self, target: Target) -> None:
        self._counters = Counters(target)
        self._readings = [self._counters.read()]

    def look(self) -> None:
        """Read the counters."""
        if len(self._readings) >= COUNTS_MAX:
            self._readings = self._readings[::2]
        self._readings.append(self._counters.read())

    def keep(self, recorder: Recorder, alive_ns: int | None = None) -> None:
        """Store the readings, without those after the kernel was last known to run."""
        rows = [one for one in self._readings if alive_ns is None or one.time_ns <= alive_ns]
        if not rows or not self._counters.all:
            return
        columns = {"time_ns": pa.array([one.time_ns for one in rows], pa.int64())}
        for number, counter in enumerate(self._counters.all):
            name = f"{counter.cpu} {counter.name}"
            kind = pa.uint32() if counter.size == 4 else pa.uint64()
            columns[name] = pa.array([one.values[number] for one in rows], kind)
        recorder.keep(COUNTS_FILE, pa.table(columns))
