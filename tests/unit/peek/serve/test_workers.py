# SPDX-License-Identifier: GPL-2.0-only
"""The daemon: its workers' rights, what follows their work, and how many files may be open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest

from tests.unit.peek.serve.serving import until
from tests.unit.peek.toy_kernel import RELEASE, ToyKernel
from trapless.peek.sandbox.client import open_target
from trapless.peek.serve.workers import Workers

DROPPED = """
import time
from trapless.peek import rights
from trapless.peek.serve.workers import Workers
workers = Workers(3)
rights.drop(())
jobs = [workers.submit(lambda: open("/proc/thread-self/status").read()) for _ in range(20)]
while not all(job.done for job in jobs):
    time.sleep(0.01)
print(*(job.value for job in jobs), open("/proc/self/status").read())
workers.submit(lambda: time.sleep(1000))  # which this process does not wait for
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="another user has no capability to give up")
def test_no_worker_keeps_the_daemons_rights():
    """Rights are a thread's own: one that began before they were given up has them still, and the
    processes that read guests are its children."""
    done = subprocess.run(
        [sys.executable, "-c", DROPPED],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
        cwd=Path(__file__).parents[4],
    )
    effective = [line.split()[1] for line in done.stdout.splitlines() if "CapEff" in line]
    assert len(effective) == 21 and {int(one, 16) for one in effective} == {0}


def test_what_follows_work_is_done_once_before_or_after_its_end():
    workers, go, done = Workers(1), threading.Event(), []
    first, second = workers.submit(go.wait), workers.submit(lambda: 1 / 0)
    first.when_done(lambda: done.append("first"))
    assert not done and first.is_alive()
    go.set()
    until(lambda: second.done)
    second.when_done(lambda: done.append("second"))
    assert done == ["first", "second"] and "ZeroDivisionError" in str(second.error)


def test_short_work_does_not_wait_for_machines_that_take_long_to_open():
    workers, go, order = Workers(1), threading.Event(), []
    first = workers.submit(go.wait)
    for name in ("open", "open again"):
        workers.submit(partial(order.append, name))
    last = workers.submit(partial(order.append, "look"), is_short=True)
    go.set()
    until(lambda: len(order) == 3)
    assert order == ["look", "open", "open again"] and first.done and last.done


@pytest.mark.usefixtures("many_open_files")
def test_machine_is_read_where_more_files_are_open_than_select_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    with open_target(ToyKernel().save(tmp_path)) as target:
        assert str(target.release) == RELEASE
