# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek record`: what a running kernel does, sampled from outside into a recording.

Owns the order of things: resolve the kernel once, make a plan of what a stock kernel shows
(tier0.py) and of what the module's probes add where they are (tier1.py), let the sampler follow it,
store what comes. Ends on request, with the target, or when
the target was restarted; what was recorded by then is whole.
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
from trapless.peek.emulator import Emulator, emulator_of
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

CHECK_S = 1.0
"""How often it is looked whether it is still the same kernel."""
SPIN_SHARE = 5
SPIN_NS_MAX = 20_000
"""Before each deadline the sampler looks at the clock for a fifth of the interval, at most this."""


ENDINGS = {
    Ending.DURATION: "the time is over",
    Ending.SIGNAL: "ended on request",
    Ending.TARGET: "the VM has ended",
    Ending.SOURCE: "the VM's memory went away",
    Ending.OUTPUT: "the output failed",
}


NOBODY = "no running machine has this memory mapped: what is sampled may stand still"


def plan_for(
    target: Target,
    interval_ns: int,
    duration_ns: int,
    cpu: int | None,
    emulator: Emulator | None,
    probes: ProbeMap | None = None,
) -> Plan:
    """What to sample of a kernel."""
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
    """The target's memory in the sampler's words; PeekError where it cannot be mapped as it is."""
    memory = target.memory
    hole = memory.hole if isinstance(memory, FileMemory) else None
    if not isinstance(memory, FileMemory) or hole is None:
        raise PeekError(
            f"{memory.name} is not the RAM of a running machine, so there is nothing to sample; "
            "`trapless peek shell` looks into it"
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
    """Record into `folder` and return the counts of the run."""
    if folder.exists():
        raise PeekError(f"{folder} exists already; a recording needs a folder of its own")
    progress.step(f"resolving the kernel in {ram}")
    with Target.open(ram, hole) as target:
        emulator = emulator_of(ram)
        watch = Watch(target, progress.note)
        plan = plan_for(target, interval_ns, duration_ns, cpu, emulator, watch.first)
        user_mode = tier0.tells_user_mode(plan.columns())
        progress.note(tier1.what_is_known(watch.first, user_mode=user_mode))
        if emulator is None:
            progress.note(NOBODY)
        with Sampler(source_of(target), plan) as run, ended_by_signals(run.stop):
            end = _store(target, run, folder, progress, duration_ns, emulator, watch)
    if end is None:
        raise PeekError(f"the sampler was killed; {folder} has what came until then")
    return end


def samples(run: Sampler) -> Iterator[Rows]:
    """All that comes, once the first has; `run.head` is known then."""
    batches = run.batches()
    first = next(batches, None)
    if first is None:
        raise PeekError("sampling ended before the first sample")
    return itertools.chain([first], batches)


def about_target(
    target: Target, probes: ProbeMap | None, emulator: Emulator | None
) -> dict[str, Any]:
    """What a recording says of the kernel that it is of."""
    return {
        "release": target.release,
        "build_id": target.build_id,
        "shift": target.symbols.shift,
        "banner": target.banner,
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
    symbols = zip(target.symbols.addresses, target.symbols.names, strict=True)
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
    """Of a kernel that was restarted, all addresses mean something else."""
    try:
        target.check_same()
    except PeekError as error:
        progress.note(str(error))
        return False
    return True


@contextmanager
def ended_by_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end sampling, not this process: what has come is still to be stored."""

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
