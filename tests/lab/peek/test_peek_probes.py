# SPDX-License-Identifier: GPL-2.0-only
"""Probes in the kernel's code, seen from outside: where they are, what they tell, and that they go.

One boot for each kernel. Between phases the guest waits for a line of ours, so nothing changes
while we look; its memory is all that is looked at.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.lab.command import LIMIT_S, wait_until
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.sites import Kind, read_table
from trapless.peek.sampling.tier1 import STATE_ENABLED, STATE_USER
from trapless.vm import lab

pytestmark = pytest.mark.timeout(2 * LIMIT_S)

GUEST = r"""
probes=/sys/module/trapless/parameters/probes
phase() { echo "== $1"; read -r line; }
answer() { if "$@" 2>/dev/null; then echo "$1: done"; else echo "$1: refused"; fi; }
set_to() { echo "$1" 2>/dev/null >$probes; }

phase before
set_to 7; phase on
dd if=/dev/zero of=/dev/null bs=1 count=250000 2>/dev/null; phase counted
(while :; do :; done) & busy=$!
(while :; do ls -lR /sys/module >/dev/null; done) & lister=$!
phase busy
answer rmmod trapless
for round in 1 2 3 4 5 6 7 8 9 10; do
	set_to 0; set_to $((1 + round % 3)); echo "round: $(cat $probes)"
	echo $((round % 2)) >/sys/devices/system/cpu/cpu1/online
done
echo 1 >/sys/devices/system/cpu/cpu1/online
kill $busy $lister; wait 2>/dev/null
set_to 3
mount -t tracefs none /sys/kernel/tracing
for offset in 5 9; do  # its cli is behind one NOP, and an endbr64 where there are any
	echo "p:here _raw_spin_lock_irq+$offset" 2>/dev/null >/sys/kernel/tracing/kprobe_events && break
done
echo 1 >/sys/kernel/tracing/events/kprobes/here/enable
answer set_to 0; echo "left: $(cat $probes)"
echo 0 >/sys/kernel/tracing/events/kprobes/here/enable; echo >/sys/kernel/tracing/kprobe_events

# One that is off leaves no trace in the code, but it has a copy of an instruction.
kprobe() { echo "p:here $1" 2>/dev/null >/sys/kernel/tracing/kprobe_events; }
clear() { echo >/sys/kernel/tracing/kprobe_events; }
switch() { echo $1 >/sys/kernel/tracing/events/kprobes/here/enable; ls -lR /sys/module >/dev/null; }
echo 0 >/proc/sys/debug/kprobes-optimization
kprobe _raw_spin_lock_irq+$offset; answer set_to 0; switch 1; switch 0; clear
set_to 0
kprobe _raw_spin_lock_irq+$offset; set_to 3; echo "beside: $(cat $probes)"
switch 1; switch 0; clear
answer kprobe _raw_spin_lock_irqsave+1
answer kprobe tlk_probe_area
set_to 0; set_to 3
answer kprobe _raw_spin_lock_irq+$((offset + 6)); switch 1; switch 0; clear
set_to 0
for at in 5 6 7 8 9 10; do  # the first instruction behind one NOP, and an endbr64
	echo "_raw_spin_lock_irqsave+$at" >/sys/module/trapless/parameters/events
	set_to 11 && break
done
phase armed
set_to 3
answer set_to 16
answer set_to 0
phase after
answer rmmod trapless
"""
ROUNDS = 5
ALONE = rf"""
probes=/sys/module/trapless/parameters/probes
phase() {{ echo "== $1"; read -r line; }}
phase before
(while :; do :; done) & busy=$!
(while :; do ls -lR /sys/module >/dev/null; done) & lister=$!
round=0
while [ $round -lt {ROUNDS} ]; do
	echo 7 >$probes; on=$(cat $probes); echo 0 >$probes
	echo "round $round: $on $(cat $probes)"; round=$((round + 1))
done
echo 7 >$probes; phase on
echo 0 >$probes
kill $busy $lister; wait 2>/dev/null
phase after
"""
STI, NOP5 = b"\xfb", bytes.fromhex("0f1f440000")
JMP_PREFIX, JMP, SHORT_JMP, NOP = b"\x3e", b"\xe9", b"\xeb", b"\x90"
KERNEL, USER = STATE_ENABLED, STATE_USER
SITE_BYTES_MAX = 6
DETOUR_BYTES = 5
"""The bytes of code that never runs, behind places of two bytes."""
TRACEPOINT_BYTES = 64
"""That the kernel changes itself meanwhile: for the tracepoint of signals, and its static keys."""
SITES_MIN = 400
CALLS = 500_000
"""The calls of dd: a read and a write for each of its blocks."""
LOOK_S_MAX = 60.0


class Observer:
    """Reads the target's memory at each phase that the guest announces, and lets it go on."""

    def __init__(self, memory: Path) -> None:
        self.memory = memory
        self.target: Target | None = None
        self.text: dict[str, bytes] = {}
        self.start = 0
        self.sites: list[tuple[int, int, int]] = []
        self.names: list[str] = []
        self.armed: list[str] = []
        self.counts: dict[str, int] = {}
        self.states: set[int | str] = set()
        self.lines: list[str] = []
        self._rest = b""
        self._go_on = -1

    def run(self, script: str, **options: Any) -> None:
        """Run the script in a guest until its end."""
        config = lab.LabConfig(shared_memory=self.memory, **options)
        waits, self._go_on = os.pipe()
        try:
            result = lab.run(config, ["sh", "-c", script], stdin=waits, sink=self.hear)
        finally:
            os.close(waits)
            os.close(self._go_on)
        assert result.status == 0

    def hear(self, piece: bytes) -> None:
        self._rest += piece
        *lines, self._rest = self._rest.split(b"\n")
        for line in lines:
            text = line.strip().decode()
            if text.startswith("== "):
                self.look(text.removeprefix("== "))
                os.write(self._go_on, b"\n")
            elif text:
                self.lines.append(text)

    def look(self, phase: str) -> None:
        if self.target is None:
            self.target = Target.open(self.memory)
        target = self.target
        self.start, end = target.symbol("_stext"), target.symbol("_etext")
        if phase in ("on", "counted"):
            self.sites, self.names = named_places(target)
            self.counts[phase] = calls_ended(self.sites, self.names)
        if phase == "armed":
            _, self.armed = named_places(target)
        if phase in ("before", "on", "after"):
            self.text[phase] = target.read(self.start, end - self.start)
        if phase == "busy":
            wait_until(lambda: self.see(target), LOOK_S_MAX)

    def see(self, target: Target) -> bool:
        """Look at what CPUs say; has everything been seen once?"""
        self.states |= states(target)
        names = {state for state in self.states if isinstance(state, str)}
        return {KERNEL, USER} <= self.states and len(names) > 1


def probe_map(target: Target) -> ProbeMap:
    of_module = probes.find(target)
    assert of_module is not None
    return of_module


def named_places(target: Target) -> tuple[list[tuple[int, int, int]], list[str]]:
    """The module's table of places, and what each address is called."""
    places = read_table(target, probe_map(target)).tolist()
    return places, [str(target.name_of(address)) for address, _, _ in places]


def calls_ended(places: list[tuple[int, int, int]], names: list[str]) -> int:
    """How often interrupts were disabled at the end of a system call."""
    functions = ("syscall_exit_to_user_mode+", "do_syscall_64+")
    return sum(
        count
        for (_, kind, count), name in zip(places, names, strict=True)
        if kind == Kind.CLI and name.startswith(functions)
    )


def states(target: Target) -> set[int | str]:
    """What CPUs say that they do: numbers, and functions that disabled interrupts."""
    probed = probe_map(target)
    places = [target.physical(probed.record(target, cpu)) for cpu in target.cpus_online]
    values = {
        int.from_bytes(target.memory.read(place, 8), "little")
        for _ in range(1000)
        for place in places
    }
    return {state if state < 3 else str(target.name_of(state)).split("+")[0] for state in values}


@pytest.fixture(scope="module")
def observers() -> dict[str, Observer]:
    return {}


@pytest.fixture
def observer(kernel, observers, tmp_path) -> Observer:
    """What was seen of one kernel; the first test of it waits for its VM.

    Of a VM that came to no good end nothing is kept: the next test starts another.
    """
    if kernel not in observers:
        fresh = Observer(tmp_path / "ram")
        # The emulator's CPUs take turns, because some run code that others patch (docs/lab.md).
        fresh.run(GUEST, kernel=kernel, cpus=2, thread_single=True)
        observers[kernel] = fresh
    return observers[kernel]


def changed(observer: Observer, phase: str) -> set[int]:
    """Addresses of bytes of the kernel's code that are not as they were before."""
    pairs = zip(observer.text["before"], observer.text[phase], strict=True)
    return {observer.start + at for at, (before, now) in enumerate(pairs) if before != now}


def at_places(observer: Observer) -> set[int]:
    """Addresses of the bytes of all places, and of the detours that short jumps there lead to.
    Elsewhere the kernel may change itself at any time, as it does where it finds that the clock of
    a busy machine is not stable.
    """
    code = observer.text["on"]
    spans = [(address, SITE_BYTES_MAX) for address, _, _ in observer.sites]
    for address, kind, _ in observer.sites:
        jump = code[address - observer.start :][:2]
        if kind in (Kind.ENTER_USER, Kind.LEAVE_USER) and jump[:1] == SHORT_JMP:
            distance = int.from_bytes(jump[1:], "little", signed=True)
            spans.append((address + 2 + distance, DETOUR_BYTES))
    return {first + at for first, length in spans for at in range(length)}


def test_probes_change_only_their_places(observer):
    assert len(observer.sites) >= SITES_MIN
    assert len(changed(observer, "on") - at_places(observer)) <= TRACEPOINT_BYTES


def test_enabling_is_never_in_the_middle_of_an_instruction(observer):
    """An NMI behind a sti lets interrupts in there: some CPU may go on at the NOP behind it."""
    enabling = [address for address, kind, _ in observer.sites if kind == Kind.STI]
    assert enabling
    for address in enabling:
        at = address - observer.start
        assert observer.text["before"][at : at + SITE_BYTES_MAX] == STI + NOP5
        now = observer.text["on"][at : at + SITE_BYTES_MAX]
        assert now[:2] == JMP_PREFIX + JMP, f"{observer.target.name_of(address)}: {now.hex()}"


def test_no_byte_is_left_that_leads_a_decoder_astray(observer):
    """The kernel decodes a function from its start before it takes a kprobe."""
    disabling = [address for address, kind, _ in observer.sites if kind == Kind.CLI]
    assert disabling
    for address in disabling:
        at = address - observer.start
        now = observer.text["on"][at : at + SITE_BYTES_MAX]
        assert now[:1] + now[-1:] == JMP + NOP, f"{observer.target.name_of(address)}: {now.hex()}"


def test_a_function_with_a_breakpoint_is_left_out(observer):
    """What stands there is not what is executed: a push would be missed, or a pushf."""
    assert any(name.startswith("_raw_spin_lock_irqsave+") for name in observer.names)
    assert observer.armed
    assert not any(name.startswith("_raw_spin_lock_irqsave+") for name in observer.armed)


def test_probes_come_and_go_while_one_cpu_runs(kernel, tmp_path):
    """With one CPU the kernel's own way of changing running code is taken, in the emulator, too."""
    observer = Observer(tmp_path / "ram")
    observer.run(ALONE, kernel=kernel, cpus=1)
    assert observer.lines == [f"round {n}: 7 0" for n in range(ROUNDS)]
    assert len(changed(observer, "on")) >= SITES_MIN
    assert not changed(observer, "after") & at_places(observer)


def test_probes_leave_the_code_as_it_was(observer):
    assert len(changed(observer, "on")) >= SITES_MIN
    assert not changed(observer, "after") & at_places(observer)


def test_places_are_of_every_kind(observer):
    kinds = {kind for _, kind, _ in observer.sites}
    assert {Kind.CLI, Kind.STI, Kind.ENTER_USER} <= kinds
    assert any(name.startswith("__schedule+") for name in observer.names)


def test_every_end_of_a_call_is_counted(observer):
    assert observer.counts["counted"] - observer.counts["on"] >= CALLS  # and those of waiting


def test_states_tell_modes_and_who_disabled_interrupts(observer):
    assert {KERNEL, USER} <= observer.states
    functions = {state for state in observer.states if isinstance(state, str)}
    assert not any(name.startswith("_raw_") for name in functions)


def test_refusals(observer):
    answers = [line for line in observer.lines if ": " in line]
    assert answers == [
        "rmmod: refused",  # thunks are the module's code
        *(f"round: {(1, 3, 7)[0] if n % 3 == 0 else 3}" for n in range(1, 11)),
        "set_to: refused",  # a kprobe sits on one of the places: its restoring would undo us
        "left: 3",
        "set_to: refused",  # nor beside one that is off, which would bring our jump back
        "beside: 3",  # its place is left out
        "kprobe: refused",  # in the middle of an instruction
        "kprobe: refused",  # a thunk's
        "kprobe: done",  # right behind a place
        "set_to: refused",  # no such bit
        "set_to: done",
        "rmmod: done",
    ]
