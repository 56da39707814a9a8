# SPDX-License-Identifier: GPL-2.0-only
"""Finding the emulator of a RAM file: a process that looks like one is started, and others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.unit.peek.machines.made_up_monitors import FORGER, forged, started
from trapless.peek import emulator, machines, mappings
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories import process_memory
from trapless.vm import qmp

RAM_BYTES = 16 << 20
START_LIMIT_S = 60.0

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

    def begin(access: str, *names: str, program: str = "qemu-system-x86_64") -> int:
        argv = [program, "-S", "-c", EMULATOR, str(ram), access, *names]
        environment = {**os.environ, "PYTHONHOME": sys.base_prefix}
        process = subprocess.Popen(
            argv, executable=sys.executable, env=environment, stdout=subprocess.PIPE
        )
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


def test_what_only_looks_like_an_emulator_is_passed_over(ram, start):
    start("write", "CPU 0/TCG", program="notqemu")
    assert emulator.emulator_of(ram) is None
    start("read", "CPU 0/TCG")
    assert emulator.emulator_of(ram) is None, "whoever may read the file can map it so"
    pid = start("write", "CPU 0/TCG")
    found = emulator.emulator_of(ram)
    assert found is not None and found.pid == pid


def test_a_mapping_that_is_only_a_name_makes_no_emulator(ram, tmp_path):
    with started("qemu-system-x86_64", FORGER, forged(ram, 1 << 20, "\f"), "CPU 0/TCG") as running:
        assert str(ram) in Path(f"/proc/{running.pid}/maps").read_text()
        assert emulator.emulator_of(ram) is None


def test_what_is_missing_is_said_truly(ram, start):
    assert "no running machine" in emulator.missing_text(emulator.emulator_of(ram))
    pid = start("write", "qemu-system-x86")
    said = emulator.missing_text(emulator.emulator_of(ram))
    assert f"process {pid}" in said and "debug-threads=on" in said and "no running" not in said
    assert emulator.missing_text(emulator.Emulator(pid, (pid,))) is None


@pytest.fixture
def qemu(ram: Path) -> Iterator[object]:
    """Starts a paused QEMU with `ram` as its memory and no names of threads; gives its pid."""
    running: list[subprocess.Popen[bytes]] = []

    def begin(*options: str, accelerator: str = "tcg,thread=multi", cwd: Path | None = None) -> int:
        with ram.open("r+b") as file:
            file.truncate(RAM_BYTES)
        backend = f"memory-backend-file,id=ram,share=on,mem-path={ram},size={RAM_BYTES}"
        argv = ["qemu-system-x86_64", "-S", "-nodefaults", "-display", "none", "-smp", "3"]
        argv += ["-object", backend, "-m", str(RAM_BYTES >> 20), "-accel", accelerator]
        argv += ["-machine", "q35,memory-backend=ram"]
        running.append(subprocess.Popen([*argv, *options], cwd=cwd))
        return running[-1].pid

    yield begin
    for process in running:
        process.kill()
        process.wait()


def until_found(ram: Path, threads: int) -> emulator.Emulator | None:
    end = time.monotonic() + START_LIMIT_S
    while True:
        found = emulator.emulator_of(ram)
        if (found and len(found.threads) == threads) or time.monotonic() > end:
            return found
        time.sleep(0.05)


@pytest.mark.parametrize(
    "options",
    [
        ("-qmp", "unix:{},server=on,wait=off"),
        ("-chardev", "socket,id=one,path={},server=on,wait=off", "-mon", "one,mode=control"),
    ],
)
def test_unnamed_threads_are_told_by_the_monitor(ram, qemu, tmp_path, options):
    pid = qemu(*(option.format(tmp_path / "monitor") for option in options))
    found = until_found(ram, 3)
    assert found is not None and found.pid == pid
    tasks = {int(name) for name in os.listdir(f"/proc/{pid}/task")}
    assert len(set(found.threads)) == 3 and set(found.threads) < tasks - {pid}
    assert emulator.emulator_of(ram) == found  # the monitor lets the next one in


def test_one_thread_that_is_all_processors_is_told_by_the_monitor(ram, qemu, tmp_path):
    monitor = f"unix:{tmp_path / 'monitor'},server=on,wait=off"
    pid = qemu("-qmp", monitor, accelerator="tcg,thread=single")
    found = until_found(ram, 1)
    assert found is not None and found.pid == pid and len(found.threads) == 1


def test_a_monitor_that_is_in_use_is_not_waited_for(ram, qemu, tmp_path, monkeypatch):
    monkeypatch.setattr(emulator, "MONITOR_LIMIT_S", 0.2)
    pid = qemu("-qmp", f"unix:{tmp_path / 'monitor'},server=on,wait=off")
    assert until_found(ram, 3) is not None
    with qmp.Monitor(tmp_path / "monitor"):
        found = emulator.emulator_of(ram)
        assert found == emulator.Emulator(pid, ())
    said = emulator.missing_text(found)
    assert f"{tmp_path / 'monitor'} does not answer; end the monitor's other client" in said
    assert "-qmp" not in said, "its user did that already"


WITHOUT_RIGHTS = """
import sys
from trapless.peek import machines, rights
machine = machines.by_pid(int(sys.argv[1]))
rights.drop()
print(machine.emulator())
"""


def test_a_monitor_with_a_relative_path_is_found_without_a_debuggers_rights(ram, qemu, tmp_path):
    """They are given up once the memory is open, and a working folder takes them, too."""
    pid = qemu("-qmp", "unix:here,server=on,wait=off", cwd=tmp_path)
    found = until_found(ram, 3)
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_RIGHTS, str(pid)],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[4],
    )
    assert found is not None and done.stdout.strip() == str(found)


def test_a_monitor_that_is_not_there_is_named(ram, qemu, tmp_path):
    pid = qemu("-qmp", "unix:here,server=on,wait=off", cwd=tmp_path)
    assert until_found(ram, 3) is not None
    (tmp_path / "here").unlink()
    said = emulator.missing_text(emulator.emulator_with(pid))
    assert "its monitor here cannot be opened: No such file" in said and "-qmp" not in said


def test_a_qemu_without_names_and_monitor_is_found_as_a_whole(ram, qemu):
    pid = qemu()
    end = time.monotonic() + START_LIMIT_S
    while emulator.emulator_of(ram) is None and time.monotonic() < end:
        time.sleep(0.05)
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


@pytest.mark.parametrize("name", ["maps", "cmdline", "status"])
def test_a_process_that_says_gigabytes_of_itself_is_not_read(ram, tmp_path, name):
    """Whoever calls prctl(PR_SET_MM) chooses the length of its own command line."""
    (tmp_path / "123/task").mkdir(parents=True)
    with (tmp_path / "123" / name).open("wb") as file:
        file.write(b"qemu-system-x86_64\0")
        file.truncate(1 << 40)
    with pytest.raises(OSError, match="longer than any machine's"):
        process_memory.text_of(tmp_path / "123", name)
    assert emulator.emulator_of(ram, tmp_path) is None
    assert emulator.emulator_with(123, tmp_path) == emulator.Emulator(123, ())
    with pytest.raises(PeekError):
        mappings.read(tmp_path / "123")
    with suppress(PeekError):
        list(machines.by_pid(123, tmp_path).memories())
