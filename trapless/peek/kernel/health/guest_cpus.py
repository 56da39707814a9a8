# SPDX-License-Identifier: GPL-2.0-only
"""Reads what each CPU does, and finds CPUs without ticks, held CPUs, and threads that get none.

Owns the run queues, and the grace periods of RCU, which end when all CPUs have passed a point of
rest. What a CPU executes is not in memory; a verdict names the CPUs whose registers would show it.
"""

from __future__ import annotations

from collections.abc import Sequence

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.hang_causes import ROOT, Cause, Processor, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.thread_states import NS, REAL_TIME, Clocks, Thread, Threads
from trapless.peek.kernel.kernel_stacks import preempt_count

TURN_S = 0.02
"""How long one thread keeps a CPU from others that take turns with it, with room to spare."""
WHEN_IDLE = 5
"""SCHED_IDLE, of threads that are to run only where nobody else wants to."""
TIMERS = "hrtimer_cpu_base"
"""The timers of a CPU."""
HARD, SOFT = 0xFF0000, 0x100
"""The bits of a CPU's count that say that it handles an interrupt, or a softirq."""
WATCHDOG_S = 8.0
"""The kernel's watchdog takes a CPU from real-time threads, too, every four seconds."""


class Processors:
    """The CPUs of one moment."""

    def __init__(self, threads: Threads, clocks: Clocks) -> None:
        self._threads, self._clocks = threads, clocks
        self._structures: Structures = threads.structures
        self._target = self._structures.target
        online = set(self._target.cpus_online)
        self._has_timers = self._structures.has(TIMERS, "hres_active")
        self.all = [self._processor(cpu, cpu in online) for cpu in clocks.rqs]

    def _processor(self, cpu: int, is_online: bool) -> Processor:
        number, rq = self._structures.number, self._clocks.rqs[cpu]
        current = number(rq, "rq", "curr")
        is_idle = current == number(rq, "rq", "idle")
        thread = self._threads.all.get(current)
        title = ("", 0) if thread is None else (self._comm(thread), thread.pid)
        arrived = thread.values["arrived"] if thread is not None else self._clocks.ns[cpu]
        timers = self._target.percpu("hrtimer_bases", cpu)
        next_event = number(timers, TIMERS, "expires_next")
        due_ns = 0
        if self._has_timers and next_event and number(timers, TIMERS, "hres_active"):
            due_ns = self._clocks.time_ns - next_event
        return Processor(
            cpu,
            is_online,
            is_idle,
            title[1],
            title[0],
            self._clocks.ns[cpu],
            number(rq, "rq", "nr_running"),
            max(self._clocks.ns[cpu] - arrived, 0) / NS,
            next_event,
            max(due_ns, 0) / NS,
            self._context(cpu),
        )

    def _context(self, cpu: int) -> str:
        """What a CPU handles in place of its thread, by its count of nested contexts."""
        place = preempt_count(self._target)
        if place is None:
            return ""
        symbol, offset = place
        if symbol:
            base = self._target.percpu(symbol, cpu)
        else:
            base = self._structures.number(self._clocks.rqs[cpu], "rq", "curr")
        count = int.from_bytes(self._target.read(base + offset, 4), "little")
        if count & HARD:
            return "an interrupt handler"
        return "a softirq" if count & SOFT else ""

    def _comm(self, thread: Thread) -> str:
        return thread.title.rpartition(" (")[0]

    def current(self, cpu: int) -> Thread | None:
        """The thread that a CPU runs; None where it is idle."""
        rq = self._clocks.rqs[cpu]
        return self._threads.all.get(self._structures.number(rq, "rq", "curr"))

    # ---- Verdicts --------------------------------------------------------------------------------

    def verdicts(self, longer_s: float) -> list[Verdict]:
        """CPUs that take no ticks, that do not schedule, and threads that get no CPU."""
        found = []
        for one in self.all:
            if not one.is_online:
                continue
            still_s = 0.0 if one.is_idle else (self._clocks.now_ns - one.clock_ns) / NS
            still_s = max(still_s, one.due_s)
            if still_s > longer_s:
                found.append(without_ticks(one, still_s))
            elif one.is_idle:
                continue
            elif one.held_s > max(longer_s, self._least_held_s(one)) and one.runnable > 1:
                others = one.runnable - 1
                text = (
                    f"CPU {one.number} has run nothing but {_work(one)} for {one.held_s:.0f} s, "
                    f"without a chance for others; {others} thread{'s' * (others > 1)} wait"
                    f"{'s' * (others == 1)} for it (soft lockup)."
                )
                subject = f"cpu {one.number}"
                cpus = (one.number,)
                found.append(Verdict(Cause.CPU_HELD, text, one.held_s, subject, cpus=cpus))
        return [*found, *self._starved({one.subject for one in found}, longer_s)]

    def _least_held_s(self, one: Processor) -> float:
        """How long a CPU's thread has had it at least where nobody else can have it."""
        current = self.current(one.number)
        is_real_time = current is not None and current.values["policy"] in REAL_TIME
        return WATCHDOG_S if is_real_time else 0.0

    def _starved(self, held: set[str], longer_s: float) -> list[Verdict]:
        waiting: dict[int, list[Thread]] = {}
        patience_s = {one.number: longer_s + TURN_S * one.runnable for one in self.all}
        for thread in self._threads.all.values():
            runs = thread.state or thread.values["on_cpu"] or f"cpu {thread.cpu}" in held
            waits = not runs and thread.values["policy"] != WHEN_IDLE
            waits = waits and self._clocks.waited_s(thread) > patience_s.get(thread.cpu, longer_s)
            if waits and not self._is_throttled(thread):
                waiting.setdefault(thread.cpu, []).append(thread)
        found = []
        for cpu, threads in waiting.items():
            threads.sort(key=self._clocks.waited_s, reverse=True)
            seconds = self._clocks.waited_s(threads[0])
            one = next((one for one in self.all if one.number == cpu), None)
            context = one.context if one is not None and one.is_idle else ""
            wants = f"want{'s' * (len(threads) == 1)} to run and "
            wants += f"{'has' if len(threads) == 1 else 'have'} got no CPU for {seconds:.0f} s"
            if context:
                text = f"CPU {cpu} handles {context} that does not end: {named(threads)} {wants}."
            else:
                text = f"{named(threads)} {wants}: CPU {cpu} {self._instead(cpu)}."
            cause = Cause.CPU_HELD if context else Cause.CPU_STARVED
            subject = f"cpu {cpu}"
            found.append(Verdict(cause, text, seconds, subject, cpus=(cpu,)))
        return found

    def _instead(self, cpu: int) -> str:
        """What a CPU does that does not run the threads which want it."""
        current = self.current(cpu)
        if current is None:
            return "does not leave its idle thread, or its host does not run it"
        is_real_time = current.values["policy"] in REAL_TIME
        more = " instead, which has real-time priority" if is_real_time else ""
        return f"runs {current.title}{more}"

    def _is_throttled(self, thread: Thread) -> bool:
        """Whether a thread's group has used up the CPU time that an administrator gives it."""
        if not self._structures.has("cfs_rq", "throttle_count"):
            return False
        try:
            queue = self._structures.number(thread.address, "task_struct", "se.cfs_rq")
            return bool(queue and self._structures.number(queue, "cfs_rq", "throttle_count"))
        except limits.LimitError:
            raise
        except PeekError:
            return False


def _work(one: Processor) -> str:
    """What a CPU does, for people."""
    thread = "its idle thread" if one.is_idle else f"{one.comm} ({one.pid})"
    return f"{one.context} on top of {thread}" if one.context else thread


def without_ticks(one: Processor, seconds: float) -> Verdict:
    """The verdict on a CPU whose clock stands still though it has work."""
    text = (
        f"CPU {one.number} has taken no timer interrupt for {seconds:.0f} s: it has interrupts "
        f"off in {_work(one)}, or its host does not run it (hard lockup)."
    )
    subject, cpus = f"cpu {one.number}", (one.number,)
    return Verdict(Cause.INTERRUPTS_OFF, text, seconds, subject, cpus=cpus)


def named(threads: Sequence[Thread]) -> str:
    """Some threads, for people."""
    names = [one.title for one in threads[: limits.NAMED_MAX]]
    rest = len(threads) - len(names)
    if rest:
        return f"{', '.join(names)} and {rest} more"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def stalled_grace_period(threads: Threads, clocks: Clocks, longer_s: float) -> Verdict | None:
    """The verdict on a grace period of RCU that does not end, with who holds it up."""
    structures, target = threads.structures, threads.structures.target
    if not target.has_symbol("rcu_state"):
        return None
    state = target.symbol("rcu_state")
    seconds = clocks.ticks_s(structures.number(state, "rcu_state", "gp_start") & 0xFFFF_FFFF)
    if not structures.number(state, "rcu_state", "gp_seq") & 3 or seconds < longer_s:
        return None
    cpus, readers = _blockers(threads, state)
    evidence = []
    for thread in readers:
        where = " < ".join(threads.functions(thread)[:6]) or "on a CPU, or ran meanwhile"
        evidence.append(f"{thread.title} is inside a read-side critical section: {where}")
    names = [f"CPU {cpu}" for cpu in cpus[: limits.NAMED_MAX]]
    names += [one.title for one in readers[: limits.NAMED_MAX]]
    who = " and ".join(names) or "a reader, which memory does not show,"
    text = (
        f"The kernel has waited for {seconds:.0f} s for {who} to finish reading data that RCU "
        "protects (RCU stall): nothing that replaces or frees such data goes on."
    )
    return Verdict(Cause.RCU, text, seconds, f"{ROOT}grace period", tuple(evidence), tuple(cpus))


def _blockers(threads: Threads, state: int) -> tuple[list[int], list[Thread]]:
    """The CPUs and the threads that a grace period waits for."""
    structures, target = threads.structures, threads.structures.target
    first, size = state + structures.at("rcu_state", "node"), target.sizeof("rcu_node")
    count = min(structures.variable("rcu_num_nodes", 4), limits.CPUS_MAX)
    last = first + size * (count - 1)
    lowest = structures.number(last, "rcu_node", "level")  # of the tree, whose nodes have the CPUs
    cpus: list[int] = []
    readers: list[Thread] = []
    inner = 0
    if structures.has("task_struct", "rcu_node_entry"):
        inner = structures.at("task_struct", "rcu_node_entry")
    for node in range(first, first + size * count, size):
        if structures.number(node, "rcu_node", "level") == lowest:
            mask = structures.number(node, "rcu_node", "qsmask")
            low = structures.number(node, "rcu_node", "grplo")
            cpus += [low + bit for bit in range(64) if mask >> bit & 1]
        if not inner or not structures.number(node, "rcu_node", "gp_tasks"):
            continue
        begin = structures.number(node, "rcu_node", "gp_tasks")
        links = list(structures.links(node + structures.at("rcu_node", "blkd_tasks")))
        for link in links[links.index(begin) :] if begin in links else ():
            thread = threads.all.get(link - inner)
            if thread is not None:
                readers.append(thread)
    return sorted(set(cpus)), readers
