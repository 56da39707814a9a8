# SPDX-License-Identifier: GPL-2.0-only
"""A small grid in real VMs: on this machine's cores, and on workers that somebody else started.

The workers have a copy of the package and nothing else of this checkout: no compiler, no kernel, no
cache. Whatever is killed on the way, the file at the end is the same to the byte.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from eval.memory_hierarchy import cells, footprint_grid, variants
from eval.memory_hierarchy import part_pairs as pairs
from tests.lab.conftest import shown_progress
from trapless.base.console import Silent
from trapless.experiments import collection
from trapless.experiments.fleet import grid
from trapless.model.model_plan import Plan
from trapless.vm import lab, qemu

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[3]
NEEDED = (qemu.BINARY, "setpriv", "sh")
"""Programs that a worker's machine must have."""

ITERATIONS = 2048
"""Of each region: the last row takes seconds, in which something can be killed."""

GUEST_S = 1200
"""Longest that a VM takes from its start to its first row on a busy machine, seconds."""


def collected(folder, scheduler=None, progress=None):
    """Three rows of footprints in two VMs, as a Parquet file's bytes."""
    mains = tuple(variants.main(name) for name in variants.PROCESSORS)
    wanted = footprint_grid.Sweep("small", cells.Axis(128), pairs.PAPER, "int", mains, 2)
    folder.mkdir(exist_ok=True)
    run = collection.Collection("grid", folder, True, lab.DEFAULT_KERNEL, progress or Silent())
    run.part, run.scheduler = "pairs", scheduler
    made = footprint_grid.grid_of(run, wanted, Plan.of(list(mains)))
    argv = tuple(
        word.replace(f"--iterations {cells.ITERATIONS}", f"--iterations {ITERATIONS}")
        for word in made.argv
    )
    assert argv != made.argv
    grid.collect(run, [replace(made, argv=argv)])
    return grid.parquet_path(folder, "small").read_bytes()


class Notes(Silent):
    """Progress of which the lasting lines are kept."""

    def __init__(self):
        self.said = []

    def note(self, text):
        self.said.append(text)


def rows_in(folder):
    return sorted(path.stem for path in folder.glob("rows/small/row-*.parquet"))


def wait_until(true, seconds):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()


def vms_of(process):
    """The QEMUs below a process: process ids, and where their plugin writes."""
    found, parents = {}, [process.pid]
    while parents:
        parent = parents.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                parents.append(child)
                words = Path(f"/proc/{child}/cmdline").read_text()
                output = re.search(r",output=([^,\0]+)", words)
                if output and qemu.BINARY in words.partition("\0")[0]:
                    found[child] = Path(output[1])
    return found


def runs_first_row(process):
    """Whether a worker's VM is the one that began with the first row."""
    for output in vms_of(process).values():
        if output.exists():
            lines = output.read_text().splitlines()[1:]
            labels = [json.loads(line)["region"] for line in lines[:1]]
            if any(cells.region(label).user_kb == 0 for label in labels):
                return True
    return False


@pytest.fixture(scope="module")
def here(tmp_path_factory, pytestconfig):
    """The file that this machine's cores make."""
    with shown_progress(pytestconfig) as progress:
        return collected(tmp_path_factory.mktemp("grid") / "here", progress=progress)


class Cluster:
    """A scheduler of Dask and its workers, each a process with few programs and nothing built."""

    def __init__(self, folder):
        self._folder, self._processes = folder, []
        self._dask = (sys.executable, str(Path(sys.executable).with_name("dask")))
        (folder / "bin").mkdir()
        for name in NEEDED:
            (folder / "bin" / name).symlink_to(shutil.which(name))
        shutil.copytree(ROOT / "trapless", folder / "copy" / "trapless")
        told = folder / "scheduler.json"
        words = ("--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file")
        self._start("scheduler", *words, str(told))
        assert wait_until(told.exists, GUEST_S)
        self.address = json.loads(told.read_text())["address"]

    def worker(self):
        """One more, which is not replaced when it dies."""
        words = ("--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard")
        return self._start("worker", self.address, *words)

    def _start(self, *words):
        environment = {
            "PATH": str(self._folder / "bin"),
            "PYTHONPATH": str(self._folder / "copy"),
            "HOME": str(self._folder),
        }
        with (self._folder / f"{words[0]}.log").open("a") as log:
            process = subprocess.Popen(
                [*self._dask, *words], env=environment, cwd=self._folder, stderr=log
            )
        self._processes.append(process)
        return process

    def close(self):
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.close()


def test_a_worker_killed_in_the_middle_changes_nothing(here, cluster, tmp_path):
    """Two workers make what this machine's cores made, and one of them what both should."""
    pid, folder = os.getpid(), tmp_path / "there"
    workers = [cluster.worker(), cluster.worker()]
    killer = os.fork()
    if killer == 0:
        wait_until(lambda: any(map(runs_first_row, workers)) or os.getppid() != pid, GUEST_S)
        for worker in filter(runs_first_row, workers):
            os.kill(worker.pid, signal.SIGKILL)
        os._exit(0)
    notes = Notes()
    found = collected(folder, cluster.address, notes)
    os.waitpid(killer, 0)
    assert found == here
    assert [note for note in notes.said if "a worker was lost; the VM runs once more" in note]
    assert sorted(worker.poll() is None for worker in workers) == [False, True]


def test_vms_end_with_the_one_who_wanted_them_and_rows_stay(here, cluster, tmp_path):
    """Then this machine's cores go on where the workers were."""
    folder = tmp_path / "there"
    worker = cluster.worker()
    program = (
        "import pathlib, sys; from tests.lab.experiments import test_lab_grid as t; "
        "t.collected(pathlib.Path(sys.argv[1]), sys.argv[2])"
    )
    client = subprocess.Popen(
        [sys.executable, "-c", program, str(folder), cluster.address],
        cwd=ROOT,
        stderr=subprocess.PIPE,
    )
    assert wait_until(lambda: rows_in(folder), GUEST_S), client.poll()
    assert wait_until(lambda: vms_of(worker), GUEST_S), (
        "the first VM has ended, and no second began"
    )
    vms = vms_of(worker)
    client.send_signal(signal.SIGINT)
    client.communicate()
    assert rows_in(folder) == ["row-00000"]
    assert wait_until(lambda: not vms_of(worker), GUEST_S)
    assert wait_until(lambda: not any(output.parent.exists() for output in vms.values()), GUEST_S)
    assert worker.poll() is None
    assert collected(folder) == here
