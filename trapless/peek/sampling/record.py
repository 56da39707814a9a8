# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek record`: samples a running kernel from outside into a recording.

Owns the order of the steps: resolve the kernel once, make a plan of what a stock kernel shows
(tier0.py) and of what the module's probes add (tier1.py), let the sampler follow the plan, and
store its rows. A recording ends on request, with the target, or when the target was restarted; it
is whole in each case.
"""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from trapless.base.console import Progress
from trapless.peek.emulator import Emulator, emulator_of, missing_text
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import sampler, sites, tier0, tier1
from trapless.peek.sampling.names import Names
from trapless.peek.sampling.plan import Plan
from trapless.peek.sampling.probe_watch import Watch
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.recording import SEGMENT_AGE_S, Recorder
from trapless.peek.sampling.rows import End, Ending, Rows
from trapless.peek.sampling.sampler import Sampler
from trapless.peek.sandbox.client import open_target

CHECK_S = 1.0
"""Seconds from one check that the kernel is the same to the next."""
SPIN_SHARE = 5
SPIN_NS_MAX = 20_000
"""The sampler polls the clock before each deadline for a fifth of the interval, at most this."""


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
    return Plan(
        interval_ns=interval_ns,
        duration_ns=duration_ns,
        groups=groups if probes is None else tier1.groups(target, probes, groups),
        bases=tier0.bases(target),
        cpu=cpu if cpu is not None else sampler.own_cpu(),
        spin_ns=min(interval_ns // SPIN_SHARE, SPIN_NS_MAX),
        threads=emulator.threads if emulator is not None else (),
        watch=emulator.pid if emulator is not None else None,
    )


def source_of(target: Target) -> str:
    """The sampler's argument for the target's memory; PeekError where it cannot be sampled."""
    memory = target.memory
    hole = memory.hole if isinstance(memory, FileMemory) else None
    if not isinstance(memory, FileMemory) or hole is None:
        raise PeekError(
            f"{memory.name} is not the RAM of a running machine, so it cannot be sampled; "
            "`trapless peek shell` opens it"
        )
    return sampler.ram(memory.path.resolve(), hole)


def record(
    ram: Path,
    hole: int | None,
    folder: Path,
    *,
    interval_ns: int,
    duration_ns: int,
    cpu: int | None,
    progress: Progress,
) -> End:
    """Record into the new folder `folder` and return the counts of the run.

    `hole` is in bytes, as in Target.open(); a duration of 0 has no end. PeekError says why there is
    no recording, or that the sampler was killed.
    """
    if folder.exists():
        raise PeekError(f"{folder} exists already; a recording needs a folder of its own")
    progress.step(f"resolving the kernel in {ram}")
    with open_target(ram, hole) as target:
        emulator = emulator_of(ram)
        watch = Watch(target, progress.note)
        plan = plan_for(target, interval_ns, duration_ns, cpu, emulator, watch.first)
        user_mode = tier0.tells_user_mode(plan.columns())
        progress.note(tier1.knowledge_text(watch.first, user_mode=user_mode))
        missing = missing_text(emulator)
        if missing is not None:
            progress.note(missing)
        with Sampler(source_of(target), plan) as run, ended_by_signals(run.stop):
            end = _store(target, run, folder, progress, duration_ns, emulator, watch)
    if end is None:
        raise PeekError(f"the sampler was killed; {folder} has the samples until then")
    return end


def samples(run: Sampler) -> Iterator[Rows]:
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
        "cpus": target.cpus_online,
        "context_user": tier0.context_user(target),
        "probes": int(probes.active) if probes is not None else None,
        "vcpus": emulator.threads if emulator is not None else (),
    }


def _store(
    target: Target,
    run: Sampler,
    folder: Path,
    progress: Progress,
    duration_ns: int,
    emulator: Emulator | None,
    watch: Watch,
) -> End | None:
    batches = samples(run)
    about = about_target(target, watch.first, emulator)
    symbols = ((address, str(name)) for address, name in target.symbols.rows())
    with Recorder(folder, run.head, about, symbols) as recorder:
        progress.step(f"recording {target.release} into {folder}")
        sites.keep(recorder, watch.sites())
        names = Names(target)
        checked = kept = began = time.monotonic()
        for rows in batches:
            recorder.add(rows)
            names.see(rows)
            now = time.monotonic()
            if now - checked >= CHECK_S:
                checked = now
                progress.advance(now - began, duration_ns / 1e9)
                if is_same(target, progress):
                    watch.look()
                else:
                    run.stop()
            if now - kept >= SEGMENT_AGE_S:
                kept = now
                names.keep(recorder)
                sites.keep(recorder, watch.sites())
        watch.look_last()
        names.keep(recorder)
        sites.keep(recorder, watch.sites())
        recorder.close(run.end)
    progress.done()
    return run.end


def is_same(target: Target, progress: Progress) -> bool:
    """Whether the target still runs the kernel that was opened; a note says why not."""
    try:
        target.check_same()
    except PeekError as error:
        progress.note(str(error))
        return False
    return True


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
