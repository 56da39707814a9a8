# SPDX-License-Identifier: GPL-2.0-only
"""Where a grid's VMs run: Dask's workers, on this machine's cores or, by a scheduler, on others'.

Owns all that is Dask: the cluster of this machine, the connection, which workers may take part, and
the task that stands beside a VM. A VM is one task, in a process of its own (grid_vm.py). What it
says goes through a queue of the scheduler as it comes. What is still wanted stands in a variable
there, with a pulse: a task whose VM is not named any more, or that feels no pulse, ends its VM, so
that none outlives the one who asked for it by more than SILENT_S.

Dask is imported where it is used: it takes a third of a second, and no other part needs it.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trapless.console import Progress, TraplessError
from trapless.measure import grid_machine
from trapless.measure.grid_vm import GROWTH, OVER, Outcome, Task

if TYPE_CHECKING:
    from distributed import Client, Future

Ended = tuple[str, Outcome | None]
"""Which run of a VM, and how it ended; without an outcome nobody wanted it any more."""

CONNECT_S = 10.0
"""How long a scheduler may take to answer, seconds."""

PULSE_S = 2.0
"""How often tasks are told that somebody wants their VMs."""

SILENT_S = 30.0
"""How long a VM runs on when nobody says so any more."""

END_S = 5.0
"""How long a VM's process may take to end when asked."""

DRIVER = "trapless.measure.grid_vm"
"""The program beside a VM."""

LOCAL_CONFIG = {
    "distributed.worker.profile.enabled": False,  # the cores are the VMs'
    "distributed.scheduler.http.routes": [],  # servers of pages cannot be left out, only emptied
    "distributed.worker.http.routes": [],
    # The terminal's Ctrl-C is for the one who began the workers.
    "distributed.worker.preload": ["from signal import *; signal(SIGINT, SIG_IGN)"],
    "distributed.admin.large-graph-warning-threshold": "1GB",  # a task's files are in its graph
}

HELP = "docs/grids.md says how workers are started"


@dataclass(frozen=True)
class Growth:
    """More of what a VM's plugin writes. `run`: a VM may be run again where a worker was lost."""

    label: str
    run: str
    data: bytes


@dataclass(frozen=True)
class End:
    """A VM is over. Without an outcome its task was not told in time that it was still wanted: it
    has to be run again."""

    label: str
    run: str
    outcome: Outcome | None


class Engine:
    """Dask, as a grid needs it. Use as a context manager: leaving it ends all VMs.

    `scheduler`: the address of one whose workers are to be used; without it `jobs` processes on
    this machine are. A TraplessError says why that cannot be.
    """

    def __init__(self, scheduler: str | None, jobs: int, progress: Progress) -> None:
        self._progress = progress
        self._scheduler = scheduler or "this machine's own"
        self._admitted: dict[str, bool] = {}  # workers' addresses: whether they may take part
        self._files: dict[str, Future[bytes]] = {}  # by their digest
        self._active: dict[str, Future[Ended]] = {}
        self._pulse, self._pulsed = 0, 0.0
        self._stack = ExitStack()
        with self._stack:
            self._client = self._connect(scheduler, jobs)
            from distributed import Queue, Variable

            run = f"trapless-{uuid.uuid4().hex}"
            self._queue = Queue(f"{run}-said", client=self._client)
            self._wanted = Variable(f"{run}-wanted", client=self._client)
            self._beat()
            self._stack.callback(self._give_up)
            self._admit()
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def slots(self) -> int:
        """How many VMs can run at a time, now."""
        return sum(
            threads
            for address, threads in self._client.nthreads().items()
            if self._admitted.get(address)
        )

    def start(self, task: Task, files: Mapping[str, bytes]) -> None:
        """Have a VM run as soon as a worker is free."""
        sent = {name: self._send(content) for name, content in files.items()}
        self._beat(task.label)
        hosts = {_host(address) for address, admitted in self._admitted.items() if admitted}
        self._active[task.label] = self._client.submit(
            beside_vm,
            task,
            sent,
            (DRIVER, self._queue.name, self._wanted.name, grid_machine.conditions()),
            key=f"trapless-{task.label}-{uuid.uuid4().hex}",
            workers=sorted(hosts),
            pure=False,
        )

    def stop(self, label: str) -> None:
        """Nobody wants this VM any more."""
        future = self._active.pop(label, None)
        self._beat()
        if future is not None:
            future.cancel()

    def look(self, seconds: float) -> Iterator[Growth | End]:
        """What VMs have said, and which ended; waits for an end so long at most."""
        self._beat()
        self._admit()
        with contextlib.suppress(TimeoutError):
            from distributed import wait

            wait(list(self._active.values()), timeout=seconds, return_when="FIRST_COMPLETED")
        over = [label for label, future in self._active.items() if future.done()]
        for label, run, data in self._queue.get(batch=True):  # all that was said before the ends
            yield Growth(label, run, data)
        for label in over:
            future = self._active.pop(label, None)
            if future is not None:
                yield End(label, *_ended(future))

    # ---- Workers ---------------------------------------------------------------------------

    def _connect(self, scheduler: str | None, jobs: int) -> Client:
        try:
            import dask
            from distributed import Client, LocalCluster
        except ImportError as error:
            raise TraplessError(
                f"grids need the Python package {error.name}, which is not installed: "
                "pip install distributed cryptography"
            ) from error
        self._stack.enter_context(dask.config.set(LOCAL_CONFIG))
        if scheduler is None:
            folder = tempfile.TemporaryDirectory(prefix="trapless-grid-")
            cluster = LocalCluster(
                n_workers=jobs,
                threads_per_worker=1,
                host="127.0.0.1",
                security=True,  # other users of this machine can reach the port, but not use it
                dashboard_address="127.0.0.1:0",
                memory_limit=0,
                local_directory=self._stack.enter_context(folder),
                silence_logs=logging.CRITICAL,
            )
            self._stack.enter_context(cluster)
            return self._stack.enter_context(Client(cluster))
        try:
            client = Client(scheduler, timeout=CONNECT_S)
        except (OSError, ValueError, TypeError) as error:
            raise TraplessError(
                f"no scheduler of Dask answers at '{scheduler}' ({error}); give tcp://HOST:PORT of "
                f"one that `dask scheduler` started; {HELP}"
            ) from error
        return self._stack.enter_context(client)

    def _admit(self) -> None:
        """Look at workers that are new. One of the first that would count otherwise is an error;
        one that comes later is left out."""
        new = [address for address in self._client.nthreads() if address not in self._admitted]
        first = not self._admitted
        if not new and first:
            raise TraplessError(f"the scheduler {self._scheduler} has no workers; {HELP}")
        if not new:
            return
        told = self._client.run(grid_machine.conditions, workers=new, on_error="return")
        for address, theirs in told.items():
            wrong = _unfit(address, theirs)
            if wrong and first:
                raise TraplessError(wrong)
            if wrong:
                self._progress.note(f"{wrong}; it is left out")
            self._admitted[address] = not wrong

    # ---- Tasks -----------------------------------------------------------------------------

    def _send(self, content: bytes) -> Future[bytes]:
        """A file as a task that gives it: workers pass it on, and a lost one is sent again."""
        digest = hashlib.sha256(content).hexdigest()
        if digest not in self._files:
            key = f"trapless-file-{digest}-{uuid.uuid4().hex}"
            self._files[digest] = self._client.submit(bytes, content, key=key, pure=False)
        return self._files[digest]

    def _beat(self, *more: str) -> None:
        """Say which VMs are wanted: at once where that changes, else as a pulse."""
        if not more and time.monotonic() - self._pulsed < PULSE_S:
            return
        self._pulse, self._pulsed = self._pulse + 1, time.monotonic()
        self._wanted.set([self._pulse, [*self._active, *more]])

    def _give_up(self) -> None:
        """End all VMs; the connection may be gone already."""
        self._active.clear()
        with contextlib.suppress(Exception):
            self._wanted.set([self._pulse + 1, []], callback_timeout=CONNECT_S)


def _ended(future: Future[Ended]) -> Ended:
    """What a task that is over has to say."""
    try:
        ended: Ended = future.result()
        return ended
    except TraplessError as error:
        return "", Outcome(failure=str(error))
    except Exception as error:  # whatever happens to workers
        return "", Outcome(failure=f"the VM's worker was lost: {type(error).__name__}: {error}")


def _host(address: str) -> str:
    """What Dask takes as the name of a worker's machine."""
    return address.partition("://")[2].rpartition(":")[0] or address


def _unfit(address: str, theirs: object) -> str:
    """Why the worker cannot take part; empty if it can."""
    if isinstance(theirs, ImportError):
        return (
            f"the worker {address} cannot import Trapless ({theirs}): start it where this checkout "
            f"or installation is; {HELP}"
        )
    if isinstance(theirs, BaseException):
        return f"the worker {address} cannot run VMs: {theirs}"
    assert isinstance(theirs, dict)
    return grid_machine.difference(grid_machine.conditions(), theirs, address)


# ---- On a worker -------------------------------------------------------------------------------


def beside_vm(
    task: Task, files: Mapping[str, bytes], how: tuple[str, str, str, Mapping[str, str]]
) -> Ended:
    """Run a VM in a process of its own and pass on what it says."""
    from distributed import Queue, Variable, get_worker

    driver, queue_name, wanted_name, conditions = how
    wrong = grid_machine.difference(conditions, grid_machine.conditions(), get_worker().address)
    if wrong:
        return "", Outcome(failure=wrong)
    queue, wanted = Queue(queue_name), _Wanted(Variable(wanted_name), task.label)
    run = uuid.uuid4().hex
    with _process(driver, task, files) as messages:
        for kind, what in messages:
            if kind == OVER:
                assert isinstance(what, Outcome)
                return run, what
            if kind == GROWTH and what:
                queue.put([task.label, run, what])
            if not wanted.still():
                return run, None
    return run, Outcome(failure="the process that drove the VM was killed")


class _Wanted:
    """Whether somebody still wants a VM."""

    def __init__(self, variable: Any, label: str) -> None:
        self._variable, self._label = variable, label
        self._pulse, self._felt = -1, time.monotonic()

    def still(self) -> bool:
        pulse, labels = self._variable.get(timeout=CONNECT_S)
        if pulse != self._pulse:
            self._pulse, self._felt = pulse, time.monotonic()
        return self._label in labels and time.monotonic() - self._felt < SILENT_S


@contextlib.contextmanager
def _process(
    driver: str, task: Task, files: Mapping[str, bytes]
) -> Iterator[Iterator[tuple[str, Any]]]:
    """The process that drives a VM, and its messages; it ends when this context does.

    Its folder is removed by us, or by it where we were killed.
    """
    folder = tempfile.mkdtemp(prefix="trapless-vm-")
    process = subprocess.Popen(
        (sys.executable, "-c", f"from {driver} import main; main()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it ended at once: no message will come
            pickle.dump((task, dict(files), folder), process.stdin)
            process.stdin.flush()
        yield _messages(process.stdout)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _messages(mouth: Any) -> Iterator[tuple[str, Any]]:
    """What the process says until it ends."""
    while True:
        try:
            kind, what = pickle.load(mouth)
        except (EOFError, pickle.UnpicklingError):
            return
        yield kind, what
