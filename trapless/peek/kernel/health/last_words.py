# SPDX-License-Identifier: GPL-2.0-only
"""Finds in a kernel's log and its state that it has died: a panic, an oops, a halt, a failed boot.

Owns what the messages of the kernel mean, in words. Everything else that it has logged about a hang
is evidence beside what its structures show.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence

from trapless.peek.kernel.health.hang_causes import Cause, Processor, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.printk_ring import Record
from trapless.peek.kernel.health.thread_states import NS, Clocks, Threads
from trapless.peek.kernel.target import Target

PANIC = "Kernel panic - not syncing: "
NO_PANIC = 0xFFFF_FFFF
REASONS = (
    ("Attempted to kill init", "process 1, on which all others rest, has ended"),
    ("VFS: Unable to mount root fs", "it has found no root file system"),
    ("No working init found", "it has found no first program to run"),
    ("Requested init", "it has found no first program to run"),
    ("System is deadlocked on memory", "memory ran out, and there was no process left to kill"),
    ("Out of memory", "memory ran out"),
    ("sysrq triggered crash", "somebody asked for it"),
    ("hung_task", "threads were blocked for too long, and it is set to panic then"),
    ("softlockup", "a CPU did not schedule, and it is set to panic then"),
    ("Hard LOCKUP", "a CPU took no interrupts, and it is set to panic then"),
    ("RCU Stall", "an RCU grace period did not end, and it is set to panic then"),
    ("stack-protector", "a function overwrote its own stack"),
    ("Fatal exception", "its own code failed"),
    ("Fatal hardware error", "the hardware reported an error"),
)
OOPS = re.compile(
    r"BUG: (kernel NULL|unable to handle|stack guard|KASAN)|Oops[: ]|kernel BUG at|"
    r"general protection fault|invalid opcode|double fault|divide error"
)
WHO = re.compile(r"CPU: (\d+).*PID: (\d+).*Comm: (\S+)")
TRACE = re.compile(r"^ ?(<?/?[A-Z]*>?|\? )?[\w.]+\+0x[0-9a-f]+/0x[0-9a-f]+|^RIP: ")
NOTABLE = re.compile(
    r"soft lockup|hard LOCKUP|rcu.*stall|blocked for more than|Out of memory|workqueue lockup|"
    r"I/O error|transmit queue|timed out|NETDEV WATCHDOG|Remounting filesystem|not responding"
)
DEFECTS = "tainted_mask"
DIED = 1 << 7
LOGGED = "oops"
"""The subject of the verdict on an oops in the log."""
HALT, POWER_OFF, RESTART = "SYSTEM_HALT", "SYSTEM_POWER_OFF", "SYSTEM_RESTART"
SUSPEND = "SYSTEM_SUSPEND"
TRACE_LINES = 16
OOPS_LINES = 60


def panicked_on(target: Target) -> int | None:
    """The CPU on which a kernel has panicked; None where it has not."""
    if not target.has_symbol("panic_cpu"):
        return None
    cpu = int.from_bytes(target.read(target.symbol("panic_cpu"), 4), "little")
    return None if cpu == NO_PANIC else cpu


def panic(
    structures: Structures, log: Sequence[Record], clocks: Clocks, processors: Sequence[Processor]
) -> Verdict | None:
    """The verdict on a panic. Its seconds are by the guest's clock, which may stand since then."""
    cpu = panicked_on(structures.target)
    at = next((n for n in reversed(range(len(log))) if log[n].text.startswith(PANIC)), None)
    if cpu is None:  # else anybody could write a panic into the log
        return None
    evidence, seconds = list[str](), 0.0
    message, why = "its message is not in the log any more", ""
    if at is not None:
        message = log[at].text.removeprefix(PANIC)
        seconds = max(clocks.now_ns - log[at].time_ns, 0) / NS
        why = next((words for text, words in REASONS if text in message), "")
        cause = _oops_before(log, at)
        evidence += [log[at].text, *(cause or [])]
        evidence += trace(log[at:])
    who = next((f", in {one.comm} ({one.pid})," for one in processors if one.number == cpu), "")
    head = f"The kernel panicked on CPU {cpu}{who} and stopped"
    text = f"{head}: {why} ({message})." if why else f"{head}: {message}."
    return Verdict(Cause.PANIC, text, seconds, "panic", tuple(evidence))


def _oops_before(log: Sequence[Record], end: int) -> list[str]:
    oops = [n for n in range(max(end - OOPS_LINES * 2, 0), end) if OOPS.search(log[n].text)]
    return [] if not oops else [log[oops[0]].text, *trace(log[oops[0] : end])]


def oops(structures: Structures, log: Sequence[Record], clocks: Clocks) -> Verdict | None:
    """The verdict on code of the kernel that failed, after which the kernel went on."""
    target = structures.target
    died = target.has_symbol(DEFECTS) and structures.variable(DEFECTS) & DIED
    if not died:
        return None
    at = next((n for n in range(len(log)) if OOPS.search(log[n].text)), None)
    if at is None:
        text = "A bug in the kernel itself has ended a thread (oops); its log has lost which."
        return Verdict(Cause.OOPS, text, clocks.uptime_s, LOGGED)
    seconds = max(clocks.now_ns - log[at].time_ns, 0) / NS
    who = next((m for one in log[at : at + OOPS_LINES] if (m := WHO.search(one.text))), None)
    victim = f"{who[3]} ({who[2]})" if who else "a thread"
    text = (
        f"A bug in the kernel itself ended {victim} {seconds:.0f} s ago in the middle of its work, "
        f"so that locks which it held stay locked (oops: {log[at].text})."
    )
    evidence = trace(log[at : at + OOPS_LINES])
    return Verdict(Cause.OOPS, text, seconds, LOGGED, tuple(evidence))


def trace(log: Sequence[Record]) -> list[str]:
    """The lines of a stack in a log."""
    texts = itertools.takewhile(lambda text: "[ end trace" not in text, (one.text for one in log))
    lines = [text.strip() for text in texts if TRACE.search(text)]
    return [line for line in lines if not line.startswith("? ")][:TRACE_LINES]


def state(structures: Structures, threads: Threads, clocks: Clocks) -> Verdict | None:
    """The verdict on a machine that was halted, or has not booted."""
    types = structures.target.types
    value = structures.variable("system_state", 4)
    names = {
        HALT: "The machine was halted: its kernel has stopped on request, and waits for nothing.",
        POWER_OFF: "The machine was switched off, but its monitor still runs it.",
        SUSPEND: "The machine sleeps (suspend to RAM), until its monitor wakes it up.",
        RESTART: "The kernel was told to restart the machine, which has not happened yet.",
    }
    for name, text in names.items():
        known = types.enumerator(name)
        if known is not None and known[1] == value:
            return Verdict(Cause.HALTED, text, 0.0, name)
    first = next((one for one in threads.all.values() if one.pid == 1), None)
    if not boots(structures) or first is None:
        return None
    functions = threads.functions(first)
    if any(one.startswith(("prepare_namespace", "wait_for_root")) for one in functions):
        text = (
            f"The boot has not reached the first program: the kernel waits for its root device, "
            f"{clocks.uptime_s:.0f} s after its start."
        )
    elif clocks.uptime_s > BOOT_S:
        text = (
            f"The boot has not reached the first program, {clocks.uptime_s:.0f} s after its start."
        )
    else:
        return None
    where = " < ".join(functions[:8]) or "it runs, or wants to"
    evidence = (f"process 1: {where}",)
    return Verdict(Cause.BOOT, text, clocks.uptime_s, "boot", evidence)


def boots(structures: Structures) -> bool:
    """Whether the kernel has not begun its first program yet."""
    running = structures.target.types.enumerator("SYSTEM_RUNNING")
    return running is not None and structures.variable("system_state", 4) < running[1]


BOOT_S = 120.0
"""A boot that takes longer has stopped somewhere."""


def notable(log: Sequence[Record], clocks: Clocks) -> list[str]:
    """What the kernel itself has logged about a hang, the last line of each kind."""
    lines: dict[str, str] = {}
    for one in log:
        match = NOTABLE.search(one.text)
        if match:
            ago = max(clocks.now_ns - one.time_ns, 0) / NS
            lines[re.sub(r"\d+", "", match[0])] = f"the log, {ago:.0f} s ago: {one.text.strip()}"
    return list(lines.values())
