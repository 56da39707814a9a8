# SPDX-License-Identifier: GPL-2.0-only
"""trapless run, switch and ps in a guest whose module offers supervisor mode."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest

from tests.lab.supervisor.inside.people import (
    CALLS_FOREVER,
    command_line,
    end,
    fork,
    listed,
    process,
    running,
    shell,
    threads_asleep_in,
    threads_calling,
    trapless,
    until,
)
from trapless.supervisor import control
from trapless.supervisor.commands import switch

pytestmark = pytest.mark.timeout(1200)

READ, FUTEX = 0, 202
"""System calls, by number."""


def calls(pid):
    return listed()[pid]["calls"]["total"]


# ---- switch --------------------------------------------------------------------------------------


def test_a_running_process_is_switched_and_back():
    with process(shell()) as pid:
        done = trapless("switch", "--supervisor", str(pid))
        assert (done.status, done.out, done.err) == (0, "", "")
        until(lambda: listed()[pid]["threads_in_supervisor_mode"] == 1)
        before = calls(pid)
        until(lambda: calls(pid) > before + 1000)
        one = listed()[pid]
        assert (one["command"], one["mode"], one["threads"]) == ("sh", "supervisor", 1)
        assert (one["options"], one["switches"]) == ([], 1)
        assert one["share"] > 0.95
        assert trapless("switch", "--user", str(pid)).status == 0
        until(lambda: pid not in listed() or not listed()[pid]["threads_in_supervisor_mode"])
        with open(f"/proc/{pid}/stat") as file:
            assert file.read().split()[2] in "RS"


def test_all_threads_of_a_process_are_switched():
    with process(lambda: threads_calling(4)) as pid:
        until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 4)
        assert trapless("switch", "--supervisor", "--wait", "60", str(pid)).status == 0
        one = listed()[pid]
        assert (one["threads_in_supervisor_mode"], one["threads"]) == (4, 4)
        assert trapless("switch", "--user", "--wait", "60", str(pid)).status == 0
        assert not listed().get(pid, {}).get("threads_in_supervisor_mode")


def test_a_sleeper_changes_when_its_call_returns():
    reading, writing = os.pipe()
    with process(shell(f"read line; {CALLS_FOREVER}"), stdin=reading) as pid:
        until(lambda: threads_asleep_in(pid, READ) == 1)
        done = trapless("switch", "--supervisor", "--wait", "0.5", str(pid))
        assert done.status == 0
        assert f"process {pid} (sh): 1 of 1 threads are asleep in a system call" in done.err
        assert listed()[pid]["threads_in_supervisor_mode"] == 0
        os.write(writing, b"go on\n")
        until(lambda: listed()[pid]["threads_in_supervisor_mode"] == 1)
    os.close(reading)
    os.close(writing)


def test_threads_asleep_in_a_futex_do_not_fail_a_switch():
    def serve():
        """As redis: one thread makes calls, the others wait for work."""
        work = threading.Event()
        for _ in range(6):
            threading.Thread(target=work.wait, daemon=True).start()
        threads_calling(2)

    with process(serve) as pid:
        until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 8)
        until(lambda: threads_asleep_in(pid, FUTEX) == 6)
        done = trapless("switch", "--supervisor", "--wait", "3", str(pid))
        assert (done.status, done.out) == (0, ""), done.err
        assert "6 of 8 threads are asleep in a system call; they change when they wake" in done.err
        one = listed()[pid]
        assert (one["threads_in_supervisor_mode"], one["threads"]) == (2, 8)
        back = trapless("switch", "--user", "--wait", "60", str(pid))
        assert (back.status, back.err) == (0, "")


def test_the_example_of_a_stock_redis_works_as_it_stands():
    """As `trapless switch --help` has it. Redis has threads that sleep until there is work."""
    root = os.environ["PROGRAMS"]
    server = "/tmp/redis-server"
    os.makedirs(f"{root}/tmp", exist_ok=True)
    os.symlink("/usr/bin/redis-check-rdb", root + server)  # the server too, under its name

    def serve():
        os.chroot(root)
        os.chdir("/")
        os.execv(server, [server, "--save", "", "--daemonize", "no"])

    example = re.search(r"trapless switch .*redis-server\) && trapless ps", switch.help)
    with process(serve) as pid:
        until(lambda: running(pid) == "redis-server")
        until(lambda: threads_asleep_in(pid, FUTEX) >= 3)
        done = subprocess.run(
            ["sh", "-c", example[0]],
            env=os.environ | {"PATH": f"{os.getcwd()}/bin:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "threads are asleep in a system call; they change when they wake" in done.stderr
        assert f"{pid}" in done.stdout and "redis-server" in done.stdout


def test_a_thread_that_stays_in_a_call_without_sleep_fails_a_switch():
    def compute():
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        source, buffer = os.open("/dev/urandom", os.O_RDONLY), bytearray(1 << 20)
        while True:
            os.readv(source, [buffer] * 1024)  # a GiB, many seconds of an emulated processor

    with process(compute) as pid:
        until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 2)
        time.sleep(0.5)
        done = trapless("switch", "--supervisor", "--wait", "1", str(pid))
        assert done.status == 1
        assert "1 of 2 threads ran, and finished no system call within 1 s" in done.err


def test_options_of_a_switch_are_shown_and_replaced_by_a_later_one():
    with process(shell()) as pid:
        options = ("--children", "--exec", "--resident")
        assert trapless("switch", "--supervisor", *options, str(pid)).status == 0
        assert listed()[pid]["options"] == ["children", "exec", "resident"]
        until(lambda: listed()[pid]["memory_locked"])
        with open(f"/proc/{pid}/status") as file:
            assert not re.search(r"VmLck:\s+0 kB", file.read())
        assert trapless("switch", "--supervisor", str(pid)).status == 0
        assert (listed()[pid]["options"], listed()[pid]["switches"]) == ([], 2)


def test_one_that_is_not_there_does_not_keep_others_from_being_switched():
    with process(shell()) as pid:
        gone = fork(lambda: None)
        os.waitpid(gone, 0)
        done = trapless("switch", "--supervisor", str(gone), str(pid))
        assert (done.status, done.err) == (1, f"trapless: there is no process {gone}; see ps -e\n")
        assert pid in listed()


def test_a_thread_is_not_a_process():
    with process(lambda: threads_calling(2)) as pid:
        until(lambda: len(os.listdir(f"/proc/{pid}/task")) == 2)
        (thread,) = (name for name in os.listdir(f"/proc/{pid}/task") if name != str(pid))
        done = trapless("switch", "--supervisor", thread)
        assert done.status == 1
        assert f"{thread} is a thread of process {pid}" in done.err and f"give {pid}" in done.err


def test_what_has_ended_leaves_the_list_and_stays_in_the_sum():
    with process(shell()) as pid:
        assert trapless("switch", "--supervisor", str(pid)).status == 0
        until(lambda: calls(pid) > 500)
        (before,) = (one.calls.total for one in control.processes() if not one.pid)
        end(pid)
        until(lambda: pid not in listed())
    (after,) = (one.calls.total for one in control.processes() if not one.pid)
    assert after - before > 500


# ---- run -----------------------------------------------------------------------------------------


def test_run_starts_a_command_in_supervisor_mode_as_itself():
    pid = fork(lambda: os.execvp("bin/trapless", COMMAND_LINE))
    try:
        until(lambda: running(pid) == "sh")
        until(lambda: listed()[pid]["threads_in_supervisor_mode"] == 1)
        assert listed()[pid]["options"] == ["exec"]
        os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        assert os.WTERMSIG(status) == signal.SIGTERM
        assert pid not in listed()
    finally:
        end(pid)


COMMAND_LINE = ["bin/trapless", "run", "--mode", "supervisor", "--", *shell()]


@pytest.mark.parametrize("status", [0, 1, 77])
def test_status_and_streams_are_the_commands(status):
    script = f"echo out; echo err >&2; exit {status}"
    done = trapless("run", "--mode", "supervisor", "--", *shell(script))
    assert (done.status, done.out, done.err) == (status, "out\n", "err\n")


@pytest.mark.parametrize(("option", "stays"), [("--exec", True), ("--no-exec", False)])
def test_another_program_stays_in_supervisor_mode_only_as_asked(tmp_path, option, stays):
    script = f"until [ -e {tmp_path}/go ]; do kill -0 $$; done; exec sh -c '{CALLS_FOREVER}'"
    line = ("run", "--mode", "supervisor", option, "--", *shell(script))
    pid = fork(lambda: trapless(*line) and None)
    (child,) = children_of(pid)
    try:
        until(lambda: listed().get(child, {}).get("threads_in_supervisor_mode") == 1)
        (tmp_path / "go").touch()
        until(lambda: "go" not in command_line(child))
        if stays:
            until(lambda: child in listed())
        time.sleep(0.5)
        assert (child in listed()) is stays
    finally:
        end(child)
        end(pid)


def children_of(pid):
    """The process's children, when the first of them runs a shell."""

    def children():
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]

    until(lambda: children() and running(children()[0]) == "sh")
    return children()


@pytest.mark.parametrize(("options", "expected"), [((), 1), (("--children",), 2)])
def test_children_are_in_supervisor_mode_only_as_asked(options, expected):
    line = ("run", "--mode", "supervisor", *options, "--")
    pid = fork(lambda: trapless(*line, *shell(f"({CALLS_FOREVER}) & {CALLS_FOREVER}")) and None)
    (child,) = children_of(pid)
    (grandchild,) = children_of(child)
    try:
        until(lambda: len({child, grandchild} & listed().keys()) >= expected)
        time.sleep(0.5)
        assert len({child, grandchild} & listed().keys()) == expected
    finally:
        for each in (grandchild, child, pid):
            end(each)
        until(lambda: not listed())


# ---- ps ------------------------------------------------------------------------------------------


def test_the_kernel_says_once_that_protection_is_given_up():
    trapless("run", "--mode", "supervisor", "--", "/bin/true")
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert log.count("is the first process in supervisor mode") == 1
    with open("/proc/sys/kernel/tainted") as file:
        assert int(file.read()) & 1 << 6  # TAINT_USER


def test_columns_and_json_agree():
    with process(["sleep", "100"]) as pid:
        assert trapless("switch", "--supervisor", str(pid)).status == 0
        titles, *lines = trapless("ps").out.splitlines()
        rows = [dict(zip(titles.split(), line.split(), strict=True)) for line in lines]
        (row,) = (row for row in rows if row["PID"] == str(pid))
        one = listed()[pid]
        assert (row["MODE"], row["COMMAND"], row["OPTIONS"]) == (one["mode"], "sleep", "-")
        assert int(row["THREADS"]) == one["threads"] == 1


# ---- doctor --------------------------------------------------------------------------------------


def test_doctor_asks_the_module():
    """It finds no compiler to try: that takes an emulated machine as long as all else it asks."""
    done = trapless("doctor", "--json", before=lambda: os.environ.update(PATH="/nowhere"))
    assert done.status == 0, done.err
    found = {one["id"]: one for one in json.loads(done.out)["capabilities"]}
    assert found["device"]["ok"] and found["supervisor"]["ok"]
    assert "offered by the module" in found["supervisor"]["found"]
    assert found["supervisor"]["group"].startswith("Supervisor mode")
