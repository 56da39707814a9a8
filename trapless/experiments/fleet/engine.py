# SPDX-License-Identifier: GPL-2.0-only
"""Runs a fleet's VMs on Dask's workers: on this machine's cores or, by a scheduler, on several.

This file owns the cluster of this machine, the connection, and which workers may take part. A VM is
one task (vm_task.py). Its output comes through a queue of the scheduler. A variable of the
scheduler lists the VMs that are wanted, with a pulse: however this process ends, no VM runs on for
more than SILENT_S.

Dask is imported where it is used: the import takes a third of a second, and no other part needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from trapless.base.console import Progress, TraplessError
from trapless.base.missing import remedy
from trapless.experiments.fleet import fleet_machine
from trapless.experiments.fleet.vm import Outcome, Task
from trapless.experiments.fleet.vm_task import Ended, Order, run_vm

if TYPE_CHECKING:
    from distributed import Client, Future, LocalCluster

T = TypeVar("T")

CONNECT_S = 60.0
"""How long a scheduler may take to answer, seconds."""

WORKERS_S = 60.0
"""How long its first worker may take to come, seconds."""

PULSE_S = 2.0
"""How often the pulse changes, seconds."""

SILENT_S = 120.0
"""How long a VM runs on after the last pulse, seconds."""

STARTS = 6
"""How often Dask may try to start a thread of its own (`patiently`)."""

DRIVER = "trapless.experiments.fleet.vm"
"""The module whose main() drives a VM."""

LOCAL_CONFIG = {
    # The VMs need the cores; the profiler and the monitors took a twelfth of one.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "1 minute",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.scheduler.work-stealing-interval": "1s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.worker.memory.monitor-interval": "10s",
    "distributed.scheduler.http.routes": [],  # the web servers cannot be left out, only their pages
    "distributed.worker.http.routes": [],
    # The terminal's Ctrl-C is meant for the process that started the workers.
    "distributed.worker.preload": ["from signal import *; signal(SIGINT, SIG_IGN)"],
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a task's files are in its graph
}

HELP = "eval/fleets.md says how workers are started"


def patiently(make: Callable[[], T]) -> T:
    """A client or cluster of Dask, which gives up with an assertion where the thread of its event
    loop does not run within 10 s. A busy machine may need longer.
    """
    for _ in range(STARTS - 1):
        with contextlib.suppress(AssertionError):
            return make()
    return make()


@dataclass(frozen=True)
class Growth:
    """More output of a VM's plugin. A VM may run again where a worker was lost: `run` tells
    which."""

    label: str
    run: str
    data: bytes


@dataclass(frozen=True)
class End:
    """The end of a VM. If there is no outcome, its task missed the pulse, and the VM has to run
    again."""

    label: str
    run: str
    outcome: Outcome | None


class Engine:
    """The part of Dask that a fleet needs. Use it as a context manager: leaving it ends all VMs.

    `scheduler` is the address of the scheduler whose workers are used. Without it, `jobs` processes
    on this machine are used, with their files in `folder`. A TraplessError says why that fails.
    """

    def __init__(self, scheduler: str | None, jobs: int, folder: Path, progress: Progress) -> None:
        self._progress = progress
        self._name = scheduler or "of this machine"
        self.slots = 0  # how many VMs can run at a time, when last looked
        self._admitted: dict[str, bool] = {}  # workers' addresses: whether they may take part
        self._files: dict[str, Future[bytes]] = {}  # by their digest
        self._active: dict[str, Future[Ended]] = {}
        self._pulse, self._pulsed = 0, 0.0
        self._news = threading.Event()  # a task is over
        self._stack = ExitStack()
        with self._stack:
            self._client = self._connect(scheduler, jobs, folder)
            from distributed import Queue, Variable

            run = f"trapless-{uuid.uuid4().hex}"
            self._queue = Queue(f"{run}-output", client=self._client)
            self._wanted = Variable(f"{run}-wanted", client=self._client)
            self._tell()
            self._stack.callback(self._give_up)
            with self._reached():
                self._admit()
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, task: Task, files: Mapping[str, bytes]) -> None:
        """Run a VM as soon as a worker is free."""
        from distributed.comm import get_address_host

        hosts = {get_address_host(address) for address, good in self._admitted.items() if good}
        order = Order(
            DRIVER, self._queue.name, self._wanted.name, SILENT_S, fleet_machine.conditions()
        )
        with self._reached():
            sent = {name: self._send(content) for name, content in files.items()}
            self._tell(task.label)
            future = self._client.submit(
                run_vm,
                task,
                sent,
                order,
                key=f"trapless-{task.label}-{uuid.uuid4().hex}",
                workers=sorted(hosts),  # not by address: a worker that is replaced has another
                pure=False,
            )
        future.add_done_callback(lambda _: self._news.set())
        self._active[task.label] = future

    def stop(self, label: str) -> None:
        """End a VM that is not wanted any more."""
        self._active.pop(label, None)
        with self._reached():
            self._tell()

    def look(self, seconds: float) -> Iterator[Growth | End]:
        """New output and ends of VMs; waits at most `seconds` for an end."""
        with self._reached():
            if time.monotonic() - self._pulsed >= PULSE_S:
                self._tell()
            self._admit()
            self._news.wait(seconds)
            self._news.clear()
            over = [label for label, future in self._active.items() if future.done()]
            pieces = self._queue.get(batch=True)  # all that came before those ends
        for label, run, data in pieces:
            yield Growth(label, run, data)
        for label in over:
            future = self._active.pop(label, None)
            if future is not None:
                yield End(label, *_ended(future))

    @contextlib.contextmanager
    def _reached(self) -> Iterator[None]:
        """Report an error of a request to the scheduler: it may be gone."""
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise TraplessError(
                f"the scheduler {self._name} is gone ({error}); finished rows are kept, and the "
                "same command goes on there"
            ) from error

    # ---- Workers ---------------------------------------------------------------------------

    def _connect(self, scheduler: str | None, jobs: int, folder: Path) -> Client:
        try:
            import cryptography  # noqa: F401 - Dask makes keys with it
            import dask
            from distributed import Client
        except ImportError as error:
            raise TraplessError(
                f"fleets of VMs need the Python package {error.name}, which is not installed; "
                + remedy("cryptography", "distributed")
            ) from error
        for logger in ("distributed", "distributed.client"):  # we say what matters
            logging.getLogger(logger).setLevel(logging.CRITICAL)
        self._stack.enter_context(dask.config.set(LOCAL_CONFIG))
        where = self._local_cluster(jobs, folder) if scheduler is None else scheduler
        try:
            client = patiently(lambda: Client(where, timeout=CONNECT_S, set_as_default=False))
        except (OSError, ValueError, TypeError) as error:
            raise TraplessError(
                f"no scheduler of Dask answers at '{scheduler}' ({error}); give tcp://HOST:PORT of "
                f"one that `dask scheduler` started; {HELP}"
            ) from error
        return self._stack.enter_context(client)

    def _local_cluster(self, jobs: int, folder: Path) -> LocalCluster:
        from distributed import LocalCluster

        try:
            cluster = patiently(
                lambda: LocalCluster(
                    n_workers=jobs,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    security=True,  # other users of this machine reach the port, but cannot use it
                    dashboard_address="127.0.0.1:0",
                    memory_limit=0,
                    local_directory=str(folder),
                    silence_logs=logging.CRITICAL,
                )
            )
        except (OSError, RuntimeError) as error:
            raise TraplessError(f"Dask starts no workers on this machine: {error}") from error
        return self._stack.enter_context(cluster)

    def _admit(self) -> None:
        """Check new workers. One of the first that differs is an error; a later one is left out."""
        first = not self._admitted
        if first:
            try:
                self._client.wait_for_workers(1, timeout=WORKERS_S)
            except TimeoutError as error:
                raise TraplessError(f"the scheduler {self._name} has no workers; {HELP}") from error
        threads = self._client.nthreads()
        new = [address for address in threads if address not in self._admitted]
        conditions = self._ask(new) if new else {}
        for address, theirs in conditions.items():
            wrong = _unfit(address, theirs)
            if wrong and first:
                raise TraplessError(wrong)
            if wrong:
                self._progress.note(f"{wrong}; it is left out")
            self._admitted[address] = not wrong
        before = self.slots
        self.slots = sum(threads[address] for address in threads if self._admitted.get(address))
        if before and not self.slots:
            self._progress.note("no worker is left; waiting for others (Ctrl-C: rows are kept)")

    def _ask(self, workers: list[str]) -> dict[str, object]:
        """The conditions of the workers' machines, or the exception that they raised."""
        answers: dict[str, object] = self._client.run(
            fleet_machine.conditions, workers=workers, on_error="return"
        )
        return answers

    # ---- Tasks -----------------------------------------------------------------------------

    def _send(self, content: bytes) -> Future[bytes]:
        """A task whose result is the file: workers pass it on, and Dask sends a lost one again."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._files:
            key = f"trapless-file-{digest}-{uuid.uuid4().hex}"
            self._files[digest] = self._client.submit(bytes, content, key=key, pure=False)
        return self._files[digest]

    def _tell(self, *more: str) -> None:
        """Say which VMs are wanted, and give a pulse."""
        self._pulse, self._pulsed = self._pulse + 1, time.monotonic()
        self._wanted.set([self._pulse, [*self._active, *more]])

    def _give_up(self) -> None:
        """End all VMs; the connection may be gone already."""
        self._active.clear()
        with contextlib.suppress(Exception):
            self._wanted.set([self._pulse + 1, []], callback_timeout=CONNECT_S)


def _ended(future: Future[Ended]) -> Ended:
    """The run and the outcome of a finished task."""
    if future.cancelled():  # by somebody else at the scheduler
        return "", None
    try:
        ended: Ended = future.result()
        return ended
    except TraplessError as error:
        return "", Outcome(failure=str(error))
    except Exception as error:  # whatever happens to workers
        return "", Outcome(
            failure=f"its worker was lost or failed: {type(error).__name__}: {error}"
        )


def _unfit(address: str, theirs: object) -> str:
    """The reason why a worker cannot take part; empty if it can."""
    if isinstance(theirs, BaseException) and "ModuleNotFoundError" in repr(theirs):
        return (  # Dask may pass on only its text
            f"the worker {address} cannot import Trapless ({theirs}): start it with PYTHONPATH "
            f"naming a checkout or installation; {HELP}"
        )
    if isinstance(theirs, BaseException):
        return f"the worker {address} cannot run VMs: {theirs}"
    assert isinstance(theirs, dict)
    return fleet_machine.difference(fleet_machine.conditions(), theirs, address)
