# SPDX-License-Identifier: GPL-2.0-only
"""Finding the emulator of a RAM file: a process that looks like one is started, and others."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trapless.peek import emulator

EMULATOR = """
import mmap, sys, threading, time
path, access, *names = sys.argv[1:]
file = open(path, "r+b" if access == "write" else "rb")
view = mmap.mmap(file.fileno(), 0, access=getattr(mmap, "ACCESS_" + access.upper()))
def run(name):
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as comm:
        comm.write(name)
    ready.release()
    time.sleep(1000)
ready = threading.Semaphore(0)
for name in names:
    threading.Thread(target=run, args=(name,), daemon=True).start()
    ready.acquire()
    time.sleep(0.01)
print("ready", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def ram(tmp_path: Path) -> Path:
    path = tmp_path / "ram"
    path.write_bytes(bytes(8192))
    return path


@pytest.fixture
def start(ram: Path) -> Iterator[object]:
    """Starts processes that have the file mapped; they are ended afterwards."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(access: str, *names: str) -> int:
        argv = [sys.executable, "-c", EMULATOR, str(ram), access, *names]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE)
        running.append(process)
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        return process.pid

    yield begin
    for process in running:
        process.kill()
        process.communicate()


def names_of(threads: tuple[int, ...]) -> list[str]:
    return [Path(f"/proc/{thread}/comm").read_text().strip() for thread in threads]


def test_virtual_processors_are_found_by_name(ram, start):
    start("read")
    pid = start("write", "IO mon_iothread", "CPU 10/TCG", "CPU 2/TCG", "worker")
    found = emulator.emulator_of(ram)
    assert found is not None and found.pid == pid
    assert names_of(found.threads) == ["CPU 2/TCG", "CPU 10/TCG"]


def test_one_thread_may_be_all_processors(ram, start):
    pid = start("write", "ALL CPUs/TCG")
    found = emulator.emulator_of(ram)
    assert found is not None and found.pid == pid
    assert names_of(found.threads) == ["ALL CPUs/TCG"]


def test_without_names_it_is_who_writes(ram, start):
    start("read", "reader")
    pid = start("write", "something else")
    assert emulator.emulator_of(ram) == emulator.Emulator(pid, ())


def test_an_image_belongs_to_nobody(ram, start, tmp_path):
    assert emulator.emulator_of(ram) is None
    start("read")
    assert emulator.emulator_of(ram) is None
    assert emulator.emulator_of(tmp_path / "nowhere") is None
    assert emulator.emulator_of(ram, tmp_path / "no-proc") is None


def test_a_process_that_may_not_be_looked_at_is_passed_over(ram, tmp_path):
    (tmp_path / "proc" / "17").mkdir(parents=True)
    (tmp_path / "proc" / str(os.getpid())).mkdir()
    assert emulator.emulator_of(ram, tmp_path / "proc") is None
