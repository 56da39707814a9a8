# SPDX-License-Identifier: GPL-2.0-only
"""The task of a VM, which a worker of Dask runs: it passes on what the VM's process writes.

This file owns the process (vm.py) while the task runs, and decides that nobody wants the VM any
more: the variable of the scheduler does not list it, or gives no pulse. engine.py has compared the
machine's conditions before; the task compares them again.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trapless.base.tools import kill, wait
from trapless.experiments.fleet import fleet_machine
from trapless.experiments.fleet.vm import GROWTH, OVER, Outcome, Task

Ended = tuple[str, Outcome | None]
"""The run of a VM, and how it ended. If there is no outcome, the run was not wanted any more."""

ASK_S = 1.0
"""How often the scheduler is asked which VMs are wanted, seconds."""

ANSWER_S = 60.0
"""How long the scheduler may take to answer, seconds."""

END_S = 60.0
"""How long a VM's process may take to end when asked, seconds."""


@dataclass(frozen=True)
class Order:
    """The parameters of a task: the module that drives the VM, the names of queue and variable, how
    long the pulse may be missing, and the conditions that its machine must have."""

    driver: str
    queue: str
    wanted: str
    silent_s: float
    conditions: Mapping[str, str]


def run_vm(task: Task, files: Mapping[str, bytes], order: Order) -> Ended:
    """Run a VM in a process of its own and pass on its output."""
    from distributed import Queue, Variable, get_worker

    here, address = fleet_machine.conditions(), get_worker().address
    wrong = fleet_machine.difference(order.conditions, here, address)
    if wrong:
        return "", Outcome(failure=wrong)
    queue = Queue(order.queue)
    wanted = _Wanted(Variable(order.wanted), task.label, order.silent_s)
    run = uuid.uuid4().hex
    with _process(order.driver, task, files) as messages:
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

    def __init__(self, variable: Any, label: str, silent_s: float) -> None:
        self._variable, self._label, self._silent_s = variable, label, silent_s
        self._pulse, self._felt, self._asked = -1, time.monotonic(), 0.0

    def still(self) -> bool:
        """Whether it is wanted now; the scheduler is asked at most once in ASK_S."""
        now = time.monotonic()
        if now - self._asked < ASK_S:
            return True
        self._asked = now
        pulse, labels = self._variable.get(timeout=ANSWER_S)
        if pulse != self._pulse:
            self._pulse, self._felt = pulse, now
        return self._label in labels and now - self._felt < self._silent_s


@contextlib.contextmanager
def _process(
    driver: str, task: Task, files: Mapping[str, bytes]
) -> Iterator[Iterator[tuple[str, Any]]]:
    """The process that drives a VM, and its messages; it ends when this context does.

    This process removes the folder; where it is killed, the driving process does.
    """
    folder = tempfile.mkdtemp(prefix="trapless-vm-")
    process = subprocess.Popen(
        (sys.executable, "-c", f"from {driver} import main; main()", folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdin is not None and process.stdout is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it ended at once: no message will come
            pickle.dump((task, dict(files)), process.stdin)
            process.stdin.flush()
        yield _messages(process.stdout)
    finally:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            wait(process, END_S)
        except subprocess.TimeoutExpired:
            kill(process)
        process.stdout.close()
        shutil.rmtree(folder, ignore_errors=True)


def _messages(stream: Any) -> Iterator[tuple[str, Any]]:
    """The messages of the process until it ends."""
    while True:
        try:
            kind, what = pickle.load(stream)
        except (EOFError, pickle.UnpicklingError):
            return
        yield kind, what
