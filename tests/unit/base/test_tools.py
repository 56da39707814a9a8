# SPDX-License-Identifier: GPL-2.0-only
"""A tool's words are kept, and it ends with whoever started it.

It owns the tests of tools.py.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trapless.base import tools
from trapless.base.console import TraplessError
from trapless.base.paths import repo_root

pytestmark = pytest.mark.slow  # builds that are interrupted


def test_a_tools_output_and_status_are_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert tools.run_tool(["sh", "-c", "echo out; echo err >&2; exit 3"], log) == 3
    assert log.read_text() == "out\nerr\n"
    assert tools.last_lines(log, 1) == "    err"


INTERRUPTED = """
import sys, pathlib
from trapless.base import tools
tools.run_tool(["sh", "-c", "sleep 60 & echo $! > pid; wait"], pathlib.Path("log"))
"""


def test_a_tool_does_not_outlive_an_interrupted_caller(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(repo_root())}
    caller = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
    )
    pid_file = tmp_path / "pid"
    deadline = time.monotonic() + 600
    while not (pid_file.exists() and pid_file.read_text().strip()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    caller.send_signal(signal.SIGINT)
    assert caller.wait(600) != 0
    assert caller.stderr is not None
    caller.stderr.close()
    while not has_ended(int(pid_file.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.02)


STUBBORN = """
import signal, sys, pathlib
from trapless import cli
from trapless.base import cache, tools
from trapless.base.console import ConsoleProgress
wait_for_pid = 'until [ -s pid ]; do :; done'
stubborn = f'trap : TERM; {wait_for_pid}; echo up > up; while :; do echo x > "$0/x"; done'
script = 'sh -c "$1" "$0" & echo $! > pid; wait'
def work(prog_name, standalone_mode):
    with ConsoleProgress() as progress, cache.locked(pathlib.Path("c/lock"), "x", progress):
        with cache.assembling(pathlib.Path("c/made"), progress) as part:
            (part / "one").write_text("half")
            tools.run_tool(["sh", "-c", script, str(part), stubborn], pathlib.Path("log"))
cli.cli.main = work
cli.main()
"""


@pytest.mark.parametrize(
    ("signals", "status"),
    [
        ((signal.SIGTERM,), 128 + signal.SIGTERM),
        ((signal.SIGINT,), 128 + signal.SIGINT),
        ((signal.SIGINT, signal.SIGTERM), 128 + signal.SIGINT),
    ],
)
def test_an_interrupted_build_leaves_nothing(tmp_path: Path, signals, status) -> None:
    """Its tool's children ignore SIGTERM, and write into the folder until they are gone."""
    environment = {**os.environ, "PYTHONPATH": str(repo_root())}
    caller = subprocess.Popen(
        [sys.executable, "-c", STUBBORN],
        cwd=tmp_path,
        env=environment,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 600
    while not (tmp_path / "up").exists():
        assert time.monotonic() < deadline and caller.poll() is None
        time.sleep(0.02)
    for number in signals:
        caller.send_signal(number)
        time.sleep(0.1)
    _, errors = caller.communicate(timeout=600)
    assert has_ended(int((tmp_path / "pid").read_text()))
    assert os.listdir(tmp_path / "c") == ["lock"]
    with (tmp_path / "c/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it
    assert caller.returncode in (status, 128 + signals[-1]), errors
    assert b"Traceback" not in errors


class InterruptedLock:
    """The lock of a process, at whose every taking without a wait Ctrl-C comes."""

    def __init__(self, lock) -> None:
        self.lock = lock

    def acquire(self, blocking=True) -> bool:
        taken = self.lock.acquire(blocking)
        signal.raise_signal(signal.SIGINT)
        return taken

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> None:
        assert self.lock.acquire(timeout=60), "nobody will ever give it back"

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class InterruptedProcess(subprocess.Popen):
    def __init__(self, *words, **options) -> None:
        super().__init__(*words, **options)
        self._waitpid_lock = InterruptedLock(self._waitpid_lock)  # type: ignore[has-type]


def test_an_interrupt_that_comes_while_a_process_is_reaped_locks_nobody_out(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", InterruptedProcess)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert tools.run_tool(["sh", "-c", "sleep 1; exit 3"], tmp_path / "log") == 3
        with InterruptedProcess(["sleep", "600"]) as process:
            assert not tools.has_ended(process)
            with pytest.raises(subprocess.TimeoutExpired, match=r"after 0\.05 seconds"):
                tools.wait(process, 0.05)
            os.kill(process.pid, signal.SIGKILL)
            assert tools.wait(process, 600) == -signal.SIGKILL
            assert tools.has_ended(process)
    finally:
        signal.signal(signal.SIGINT, before)


def has_ended(pid: int) -> bool:
    """Gone, or a zombie that nobody has reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_missing_tools_are_named_with_their_packages() -> None:
    with pytest.raises(TraplessError, match=r"fishing needs no-such-rod.*apt-get install rods"):
        tools.require_tools({"sh": "dash", "no-such-rod": "rods"}, "fishing")


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), tools.interrupts_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("the block went on")
    assert done == ["the block went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
