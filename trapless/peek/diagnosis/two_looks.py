# SPDX-License-Identifier: GPL-2.0-only
"""Diagnoses a machine from outside: two looks at its memory, and what its host knows of it.

A verdict on a machine that lives must be true at both looks. Owns what no memory shows: whether the
clock of the kernel moves, whether the host runs the machine's CPUs, and what those execute, where
somebody has their registers. kernel/health/ reads the guest, in the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.guest_cpus import without_ticks
from trapless.peek.kernel.health.hang_causes import Cause, Look, Verdict
from trapless.peek.kernel.kernel_stacks import CpuStack
from trapless.peek.kernel.target import function_of
from trapless.peek.kernel.unwinding.frames import CpuRegisters
from trapless.peek.sampling.boots import clock
from trapless.peek.sandbox.client import SandboxedTarget
from trapless.peek.stacks.stops import Stops, lack_of_registers
from trapless.vm.qmp import SilentMonitorError

LONGER_S = 10.0
"""How long something has to hang to count, if nobody says otherwise."""
PAUSE_S = 1.0
STILL_S = 6.0
"""An idle kernel wakes up at least every four seconds, for its own watchdog."""
IDLE_STILL_S = 20.0
"""The same where that watchdog may be off."""
STEP_S = 0.1
IDLE_SHARE = 0.02
"""An emulator that takes less of a processor runs no CPU."""
INTERRUPTS_ON = 0x200
RUNS = "running"
STATUSES = {
    "paused": "`virsh resume`, or `cont` in its monitor, continues it",
    "io-error": "its disk on this host failed or is full",
    "prelaunch": "`cont` in its monitor starts it",
    "inmigrate": "it waits for what another host sends",
    "postmigrate": "it has moved to another host",
    "internal-error": "QEMU or KVM failed; QEMU's log has more",
}
"""The states of a machine in QEMU's words, and what they mean."""
SPINS = (
    (
        (
            "native_queued_spin_lock",
            "__pv_queued_spin_lock",
            "queued_spin_lock",
            "queued_read_lock",
            "queued_write_lock",
            "_raw_spin_lock",
            "_raw_read_lock",
            "_raw_write_lock",
        ),
        "a spinlock, whose holder the kernel does not note",
    ),
    (("smp_call_function", "csd_lock_wait"), "another CPU, which does not answer its interrupt"),
)
"""The functions in which a CPU turns in a loop until something happens, and what that is."""
NO_EVENT = (1 << 63) - 1
"""The time at which a timer is due that is off."""
NS = 1e9


@dataclass(frozen=True)
class Diagnosis:
    """What hangs in a machine, and by what it was found."""

    release: str
    look: Look
    verdicts: tuple[Verdict, ...]
    notes: tuple[str, ...]
    looks: int
    machine: str = ""

    @property
    def hangs(self) -> bool:
        return bool(self.verdicts)


def diagnose(
    target: SandboxedTarget,
    emulator: Emulator | None,
    longer_s: float,
    stops: Stops | None = None,
    *,
    lives: bool = True,
) -> Diagnosis:
    """What hangs. `lives` is false of a saved image, where one look shows all."""
    first = target.look(longer_s)
    is_dead = any(one.cause in (Cause.PANIC, Cause.HALTED) for one in first.verdicts)
    lack = lack_of_registers(lives=lives, has_emulator=emulator is not None)
    if not lives or is_dead:
        found = [_with_stacks(target, one, stops, lack) for one in first.verdicts]
        if emulator is not None:
            found = [_dated(one, first, emulator.age_s()) for one in found]
        return Diagnosis(str(target.release), first, tuple(found), first.notes, 1)
    host = _Host(emulator)
    before = clock(target)
    time.sleep(PAUSE_S)
    works = any(one.is_online and not one.is_idle for one in first.processors)
    end_s = time.monotonic() + (STILL_S if works else IDLE_STILL_S) - PAUSE_S
    while clock(target) == before and time.monotonic() < end_s:
        time.sleep(STEP_S)
    second = target.look(longer_s)
    if emulator is not None and emulator.has_ended():
        raise PeekError("the machine has ended while it was looked at")
    seen = {(one.cause, one.subject) for one in first.verdicts}
    found = [one for one in second.verdicts if (one.cause, one.subject) in seen]
    found = [_without_ticks(one, first, second) for one in found]
    if second.jiffies == first.jiffies and clock(target) == before:
        found = [*host.on_still_clock(second, stops), *found]
    found = [_with_stacks(target, host.explained(one), stops, lack) for one in found]
    found.sort(key=lambda one: one.order)
    return Diagnosis(str(target.release), second, tuple(found), second.notes, 2)


def _dated(one: Verdict, look: Look, age_s: float) -> Verdict:
    """A verdict on a panic, with when it was: the guest's own clock may have stood still since."""
    until_s = look.uptime_s - one.seconds
    if one.cause is not Cause.PANIC or age_s < until_s:
        return one
    line = (
        f"at most {age_s - until_s:.0f} s ago: its process has run for {age_s:.0f} s, and its "
        f"kernel for {until_s:.0f} s before the panic"
    )
    return replace(one, evidence=(line, *one.evidence))


def _without_ticks(one: Verdict, first: Look, second: Look) -> Verdict:
    """A verdict on a CPU that is held: its timer tells whether it takes interrupts.

    Other CPUs may set the clock of its run queue, but not the time at which its timer is due.
    """
    if one.cause is not Cause.CPU_HELD:
        return one
    pairs = zip(first.processors, second.processors, strict=True)
    for before, now in pairs:
        stands = before.next_event == now.next_event != NO_EVENT and before.pid == now.pid
        if now.number in one.cpus and stands and second.jiffies > first.jiffies:
            return without_ticks(now, one.seconds)
    return one


def _told_status(stops: Stops | None) -> str:
    """The machine's state in QEMU's words; empty where QEMU does not tell it."""
    with suppress(TraplessError):
        return stops.status() if stops is not None else ""
    return ""


class _Host:
    """What this host knows of a machine from the moment on at which this is made."""

    def __init__(self, emulator: Emulator | None) -> None:
        self._emulator, self._pid = emulator, 0 if emulator is None else emulator.pid
        self._began_s = time.monotonic()
        self._before = self._worked()

    def _worked(self) -> dict[int, tuple[float, float]]:
        """How long each virtual processor has run, and waited for a processor, in seconds."""
        found = {}
        if self._emulator is not None:
            for number, thread in enumerate(self._emulator.threads):
                with suppress(OSError, ValueError, IndexError):
                    words = Path(f"/proc/{thread}/schedstat").read_text().split()
                    found[number] = int(words[0]) / NS, int(words[1]) / NS
        return found

    def _shares(self) -> dict[int, tuple[float, float]]:
        """The same since the beginning, as shares of that time."""
        seconds = max(time.monotonic() - self._began_s, STEP_S)
        now = self._worked()
        return {
            number: tuple((b - a) / seconds for a, b in zip(was, now[number], strict=True))  # type: ignore[misc]
            for number, was in self._before.items()
            if number in now
        }

    def on_still_clock(self, look: Look, stops: Stops | None) -> list[Verdict]:
        """The verdict on a machine whose clock did not move between two looks."""
        seconds = time.monotonic() - self._began_s
        if self._emulator is not None and self._emulator.state() in ("T", "t"):
            text = (
                f"The machine is stopped: its process ({self._pid}) has been stopped by a signal; "
                f"`kill -CONT {self._pid}` continues it."
            )
            return [Verdict(Cause.STOPPED, text, seconds, "process")]
        status = _told_status(stops)
        if status not in ("", RUNS):
            text = (
                f"The machine does not run: QEMU says that it is {status}"
                f"{f' ({STATUSES[status]})' if status in STATUSES else ''}."
            )
            return [Verdict(Cause.STOPPED, text, seconds, "monitor")]
        shares = self._shares()
        if not shares:
            text = (
                f"The machine's clock has stood still for {seconds:.0f} s: it is paused, or takes "
                "no interrupts. This user cannot see whether its host runs it."
            )
            return [Verdict(Cause.STOPPED, text, seconds, "clock")]
        run, waited = (sum(one[part] for one in shares.values()) for part in (0, 1))
        if run >= IDLE_SHARE:  # so the clock would move if ticks came
            return _without_interrupts(look, seconds)
        if waited < IDLE_SHARE:
            text = (
                "The machine is paused: its clock stands still, and its monitor runs none of its "
                f"CPUs, unless all have halted without interrupts ({seconds:.0f} s were watched)."
            )
            return [Verdict(Cause.STOPPED, text, seconds, "monitor")]
        text = (
            f"This host is too busy to run the machine: its CPUs got {run:.0%} of a processor, and "
            f"waited for one {waited:.0%} of the time."
        )
        return [Verdict(Cause.STOPPED, text, seconds, "host")]

    def explained(self, one: Verdict) -> Verdict:
        """A verdict on CPUs, with how much of a processor this host gave them meanwhile."""
        shares = self._shares()
        waits = all(
            cpu in shares and shares[cpu][0] < IDLE_SHARE <= shares[cpu][1] for cpu in one.cpus
        )
        if one.cause is Cause.INTERRUPTS_OFF and waits and len(shares) > 1:
            text = (
                f"This host is too busy to run CPU {one.cpus[0]} of the machine, which has taken "
                f"no timer interrupt for {one.seconds:.0f} s."
            )
            return replace(one, cause=Cause.STOPPED, text=text)
        lines = [
            f"this host ran CPU {cpu} for {shares[cpu][0]:.0%} of the time that was watched"
            for cpu in one.cpus
            if cpu in shares and len(shares) > 1
        ]
        return replace(one, evidence=(*one.evidence, *lines))


def _without_interrupts(look: Look, seconds: float) -> list[Verdict]:
    """The verdict on a machine whose clock stands still although its host runs it."""
    busy = [one for one in look.processors if one.is_online and not one.is_idle]
    if not busy:
        return []
    names = " and ".join(f"CPU {one.number} ({one.comm}, {one.pid})" for one in busy[:4])
    text = (
        f"The machine's clock stands still while its CPUs work: {names} "
        f"take{'s' * (len(busy) == 1)} no timer interrupts, so interrupts are off."
    )
    cpus = tuple(one.number for one in busy)
    return [Verdict(Cause.INTERRUPTS_OFF, text, seconds, "clock", cpus=cpus)]


def stuck_verdict(target: SandboxedTarget, still_s: float) -> Verdict | None:
    """The likeliest cause, by one look, where the clock has stood still while the host worked."""
    look = target.look(LONGER_S)
    return next(iter([*look.verdicts, *_without_interrupts(look, still_s)]), None)


@contextmanager
def registers_of(target: SandboxedTarget, stops: Stops | None) -> Iterator[list[CpuRegisters]]:
    """A block in which a machine stands still, with its CPUs' registers.

    A dump has those of its moment; there are none where nobody has them.
    """
    if stops is None:
        yield target.saved_registers()
        return
    with stops.stopped() as registers:
        yield registers


def _with_stacks(target: SandboxedTarget, one: Verdict, stops: Stops | None, lack: str) -> Verdict:
    """A verdict on CPUs, with what these execute, or `lack` where nobody has their registers."""
    if not one.cpus:
        return one
    chosen, stacks = list[CpuRegisters](), list[CpuStack]()
    try:
        with registers_of(target, stops) as registers:
            chosen = [each for each in registers if each.cpu in one.cpus]
            stacks = target.cpu_stacks(chosen) if chosen else []
    except SilentMonitorError as error:
        lack = str(error)
    if not chosen:
        numbers = ", ".join(map(str, one.cpus))
        return replace(
            one, evidence=(*one.evidence, f"what CPU {numbers} executes is not known: {lack}")
        )
    flags = {each.cpu: each.values.get("flags", 0) for each in chosen}
    lines, text = [], one.text
    for stack in stacks:
        names = [function_of(str(target.name_of(place))) for place in stack.stack.addresses[:12]]
        for beginnings, what in SPINS:
            if any(name.startswith(beginnings) for name in names[:3]):
                text += f" CPU {stack.cpu} waits for {what}."
        state = "on" if flags.get(stack.cpu, 0) & INTERRUPTS_ON else "off"
        lines.append(
            f"CPU {stack.cpu} has interrupts {state}: {' < '.join(names) or 'in user mode'}"
        )
    return replace(one, text=text, evidence=(*one.evidence, *lines)[: limits.EVIDENCE_MAX])
