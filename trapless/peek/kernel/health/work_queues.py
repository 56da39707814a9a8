# SPDX-License-Identifier: GPL-2.0-only
"""Reads what the kernel's worker threads do, and which queues of work make no progress.

Owns the lists of work: those of a pool, of a queue whose work runs one by one, and of a worker.
"""

from __future__ import annotations

from dataclasses import dataclass

from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.hang_causes import Cause, Verdict
from trapless.peek.kernel.health.kernel_structures import Structures
from trapless.peek.kernel.health.thread_states import Clocks, Thread, Threads
from trapless.peek.limits import LimitError


@dataclass(frozen=True)
class Worker:
    """A worker thread. `function` is the work that it does, and empty where it does none."""

    thread: Thread
    address: int
    function: str
    queue: str
    pool_of_queue: int  # the queue's own entry of the pool, which has the work behind it


class WorkQueues:
    """The queues of work of one moment."""

    def __init__(self, threads: Threads, clocks: Clocks) -> None:
        self._clocks = clocks
        self._structures: Structures = threads.structures
        self.workers: dict[int, Worker] = {}  # by the thread's address
        for thread in threads.all.values():
            if thread.is_worker and thread.values.get("worker"):
                try:
                    self.workers[thread.address] = self._worker(thread)
                except LimitError:
                    raise
                except PeekError:  # it begins or ends
                    continue
        self.pools = self._pools_of_queues()

    def _worker(self, thread: Thread) -> Worker:
        number = self._structures.number
        worker = number(thread.values["worker"], "kthread", "data")
        function, pwq = (number(worker, "worker", name) for name in ("current_func", "current_pwq"))
        if not function or not pwq:
            return Worker(thread, worker, "", "", 0)
        return Worker(thread, worker, self._structures.function(function), self._queue(pwq), pwq)

    def _queue(self, pwq: int) -> str:
        queue = self._structures.number(pwq, "pool_workqueue", "wq")
        return str(self._structures.text(queue, "workqueue_struct", "name"))

    def _pools_of_queues(self) -> list[int]:
        """All pairs of a queue and one of its pools (struct pool_workqueue)."""
        structures, target = self._structures, self._structures.target
        found: list[int] = []
        link, inner = (
            structures.at("workqueue_struct", "list"),
            structures.at("pool_workqueue", "pwqs_node"),
        )
        for place in structures.links(target.symbol("workqueues")):
            head = place - link + structures.at("workqueue_struct", "pwqs")
            found += [one - inner for one in structures.links(head)]
        return found

    def behind(self, pwq: int) -> int:
        """How much work waits for the one that a queue does now."""
        path = self._structures.member("pool_workqueue", "inactive_works", "delayed_works")
        head = pwq + self._structures.at("pool_workqueue", path)
        barrier = self._barrier
        link = self._structures.at("work_struct", "entry")
        function = self._structures.at("work_struct", "func")
        return sum(
            self._structures.target.read_u64(one - link + function) != barrier
            for one in self._structures.links(head)
        )

    @property
    def _barrier(self) -> int:
        target = self._structures.target
        return target.symbol("wq_barrier_func") if target.has_symbol("wq_barrier_func") else 0

    def worker_of(self, entry: int) -> tuple[int, str] | None:
        """The thread that does the work before which a list entry is queued, and a name of it."""
        structures = self._structures
        path = structures.member("pool_workqueue", "inactive_works", "delayed_works")
        scheduled = structures.at("worker", "scheduled")
        heads = {one.address + scheduled: one for one in self.workers.values()}
        inactive = structures.at("pool_workqueue", path)
        behind = {pwq + inactive: pwq for pwq in self.pools}
        for place in structures.links(entry):
            if place in heads:
                worker = heads[place]
                return worker.thread.address, f"{worker.function} of the queue {worker.queue}"
            if place in behind:
                before = structures.target.read_u64(entry + 8) - structures.at(
                    "work_struct", "entry"
                )
                name = structures.function(structures.number(before, "work_struct", "func"))
                text = f"{name} of the queue {self._queue(behind[place])}"
                for worker in self.workers.values():
                    if worker.pool_of_queue == behind[place]:
                        return worker.thread.address, f"{text}, which comes after {worker.function}"
                return 0, text
        return None

    def verdicts(self, longer_s: float) -> list[Verdict]:
        """Pools that have work and have begun none of it for long."""
        structures, age_s = self._structures, self._clocks.ticks_s
        member = structures.member("worker_pool", "watchdog_ts", "last_progress_ts")
        found: dict[int, Verdict] = {}
        for pwq in self.pools:
            pool = structures.number(pwq, "pool_workqueue", "pool")
            if pool in found or not pool:
                continue
            waiting = list(structures.links(pool + structures.at("worker_pool", "worklist")))
            seconds = age_s(structures.number(pool, "worker_pool", member)) if waiting else 0.0
            if seconds < longer_s:
                continue
            names = [
                structures.function(
                    structures.target.read_u64(
                        one
                        - structures.at("work_struct", "entry")
                        + structures.at("work_struct", "func")
                    )
                )
                for one in waiting[:4]
            ]
            cpu = structures.number(pool, "worker_pool", "cpu", signed=True)
            where = f" of CPU {cpu}" if cpu >= 0 else ""
            busy = [one for one in self.workers.values() if one.function and self._is_in(one, pool)]
            evidence = [f"waiting work: {', '.join(names)}"]
            evidence += [f"{one.thread.title} does {one.function}" for one in busy[:4]]
            text = (
                f"The kernel's worker threads{where} have begun no work for {seconds:.0f} s, and "
                f"{len(waiting)} piece{'s' * (len(waiting) > 1)} of it wait"
                f"{'s' * (len(waiting) == 1)}."
            )
            found[pool] = Verdict(Cause.WORK, text, seconds, f"pool {pool:#x}", tuple(evidence))
        return list(found.values())

    def _is_in(self, worker: Worker, pool: int) -> bool:
        return self._structures.number(worker.address, "worker", "pool") == pool
