# SPDX-License-Identifier: GPL-2.0-only
"""What Python asks of the module about supervisor mode, and how it explains the answers.

A function stands in for the ioctl: what the module itself answers is tested in the lab.
"""

from __future__ import annotations

import ctypes
import errno
import os
import subprocess
import sys
import time

import pytest

from trapless import abi
from trapless.abi import Demotion, Mode, Refusal
from trapless.base.console import TraplessError
from trapless.supervisor import control, refusals, sleepers


@pytest.fixture
def module(monkeypatch, tmp_path):
    """A device that can be opened, whose ioctl is `module.answer`; requests are kept."""

    class Module:
        def __init__(self):
            self.requests = []
            self.answer = lambda _code, _argument: 0

    made = Module()
    (tmp_path / "device").touch()
    monkeypatch.setattr(abi, "DEVICE", str(tmp_path / "device"))

    def ioctl(_fd, code, argument):
        made.requests.append((code, argument))
        return made.answer(code, argument)

    monkeypatch.setattr(control, "_ioctl", ioctl)
    return made


def refusing(error, refusal):
    def answer(_code, argument):
        argument.refusal = refusal
        return error

    return answer


def test_a_switch_is_one_request(module):
    control.switch(12, Mode.SUPERVISOR, abi.SWITCH_EXEC)
    ((code, request),) = module.requests
    assert code == abi.IOC_SWITCH
    assert (request.size, request.mode, request.pid, request.flags) == (
        ctypes.sizeof(abi.Switch),
        Mode.SUPERVISOR,
        12,
        abi.SWITCH_EXEC,
    )
    assert list(request.reserved) == [0, 0, 0]


@pytest.mark.parametrize("code", list(refusals.table()), ids=lambda code: code.name)
def test_a_refusal_gives_reason_and_remedy(module, code):
    row = refusals.table()[code]
    module.answer = refusing(errno.EOPNOTSUPP if row.of_machine else errno.EPERM, code)
    with pytest.raises(control.RefusedError) as caught:
        control.switch(os.getpid(), Mode.SUPERVISOR)
    assert caught.value.refusal is code
    assert row.reason in str(caught.value) and row.remedy in str(caught.value)
    assert row.of_machine or f"process {os.getpid()}" in str(caught.value)


@pytest.mark.parametrize("code", [31, 99, int(Refusal.NONE)])
def test_a_reason_that_is_not_known_is_named_by_its_number(module, code):
    module.answer = refusing(errno.EPERM, code)
    with pytest.raises(TraplessError, match=rf"\({code}\).*module is newer"):
        control.switch(0, Mode.SUPERVISOR)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.ESRCH, "there is no process 4194304"),
        (errno.ENOMEM, "memory is short"),
        (errno.EINVAL, "not of this command's version"),
        (errno.ENOTTY, "knows no supervisor mode"),
        (errno.EIO, "does not answer: Input/output error"),
    ],
)
def test_errors_say_what_was_wrong(module, error, words):
    module.answer = lambda *_: error
    with pytest.raises(TraplessError, match=words):
        control.switch(4194304, Mode.USER)


def test_the_id_of_a_thread_names_its_process(module, tmp_path, monkeypatch):
    (tmp_path / "77").mkdir()
    (tmp_path / "77/status").write_text("Name:\tx\nTgid:\t70\nPid:\t77\n")
    monkeypatch.setattr(control, "PROC", tmp_path)
    module.answer = lambda *_: errno.ESRCH
    with pytest.raises(TraplessError, match=r"77 is a thread of process 70.*give 70"):
        control.switch(77, Mode.SUPERVISOR)


def test_a_name_forges_no_lines_of_a_threads_status(module, tmp_path, monkeypatch):
    """The kernel escapes line feeds in names, and no other character that ends a line elsewhere."""
    folder = tmp_path / "77/task/77"
    folder.mkdir(parents=True)
    rest = b"Tgid:\t77\nState:\tS\nvoluntary_ctxt_switches:\t5\nnonvoluntary_ctxt_switches:\t6\n"
    for path in (tmp_path / "77/status", folder / "status"):
        path.write_bytes(b"Name:\ta\x0cTgid:\t1\rState:\tR\xff\n" + rest)
    (tmp_path / "77/comm").write_bytes(b"a\xff\n")
    monkeypatch.setattr(control, "PROC", tmp_path)
    assert sleepers.look(77, tmp_path).switches == {77: (5, 6)}
    module.answer = lambda *_: errno.ESRCH
    with pytest.raises(TraplessError, match="there is no process 77"):
        control.switch(77, Mode.SUPERVISOR)
    module.answer = lambda *_: errno.ENOMEM
    with pytest.raises(TraplessError, match="process 77 \\(a\N{REPLACEMENT CHARACTER}\\)"):
        control.switch(77, Mode.SUPERVISOR)


def test_without_the_module_the_remedy_is_to_load_it(monkeypatch, tmp_path):
    monkeypatch.setattr(abi, "DEVICE", str(tmp_path / "none"))
    for ask in (lambda: control.switch(0, Mode.USER), control.processes, control.refusals):
        with pytest.raises(TraplessError, match=r"not loaded.*supervisor=1.*--lab"):
            ask()


def filling(count):
    """A module that knows `count` processes, in no order, and fills in as many as fit."""

    def answer(code, request):
        assert code == abi.IOC_PROCESSES and request.reserved == 0
        assert request.entry_size == ctypes.sizeof(abi.Process)
        entries = (abi.Process * request.count).from_address(request.entries)
        request.total = count
        request.count = min(count, request.count)
        for i in range(request.count):
            entries[i].pid = count - i
            entries[i].mode = Mode.SUPERVISOR
            entries[i].flags = abi.SWITCH_CHILDREN | abi.SWITCH_RESIDENT
            entries[i].comm = b"a b"
            entries[i].calls_direct, entries[i].calls_worked = 90, 5
            entries[i].calls_left, entries[i].calls_kernel = 3, 2
            entries[i].demotions[Demotion.PAGE_FAULT] = 7
        return 0

    return answer


@pytest.mark.parametrize("count", [0, 1, control.ENTRIES_FIRST, 5 * control.ENTRIES_FIRST])
def test_all_processes_are_listed_by_id(module, count):
    module.answer = filling(count)
    processes = control.processes()
    assert [process.pid for process in processes] == list(range(1, count + 1))


def test_a_process_is_described(module):
    module.answer = filling(1)
    (process,) = control.processes()
    assert (process.command, process.mode) == ("a b", Mode.SUPERVISOR)
    assert process.options == ("children", "resident")
    assert (process.calls.total, process.calls.share) == (100, 0.95)
    assert process.demotions[Demotion.PAGE_FAULT] == 7
    assert sum(process.demotions.values()) == 7


def test_without_calls_there_is_no_share():
    assert control.Calls(0, 0, 0, 0).share is None


def test_the_real_ioctl_reports_errno(tmp_path):
    with (tmp_path / "file").open("w") as file:
        assert control._ioctl(file.fileno(), abi.IOC_SWITCH, abi.Switch()) == errno.ENOTTY


class Threads:
    """A module whose one process has threads that change one by one, each time it is asked."""

    def __init__(self, threads, ready, step):
        self.threads, self.ready, self.step = threads, ready, step
        self.mode = Mode.USER

    def answer(self, code, request):
        if code == abi.IOC_SWITCH:
            self.mode = Mode(request.mode)
        elif code == abi.IOC_PROCESSES:
            entries = (abi.Process * request.count).from_address(request.entries)
            entries[0].pid, entries[0].comm, entries[0].mode = 9, b"worker", self.mode
            entries[0].threads, entries[0].supervisor = self.threads, self.ready
            request.total = request.count = 1
            self.ready += self.step
        return 0


@pytest.mark.parametrize(("mode", "ready", "step"), [(Mode.SUPERVISOR, 0, 1), (Mode.USER, 4, -1)])
def test_waiting_ends_when_the_last_thread_has_changed(module, mode, ready, step):
    threads = Threads(4, ready, step)
    module.answer = threads.answer
    control.switch_each([9], mode, wait_s=30)
    asked = [code for code, _ in module.requests]
    assert asked.count(abi.IOC_PROCESSES) == 5


@pytest.fixture
def people(monkeypatch, tmp_path):
    """The threads of process 9 as /proc has them: a state and a count of switches by thread."""
    monkeypatch.setattr(control, "PROC", tmp_path)

    def begin(threads):
        for thread, (state, count) in threads.items():
            folder = tmp_path / "9/task" / str(thread)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "status").write_text(
                f"Name:\tx\nState:\t{state} (words)\nTgid:\t9\n"
                f"voluntary_ctxt_switches:\t{count}\nnonvoluntary_ctxt_switches:\t0\n"
            )

    return begin


def test_threads_that_run_without_a_call_are_late(module, people):
    people({9: ("R", 5), 10: ("R", 5), 11: ("R", 5), 12: ("S", 7)})
    module.answer = Threads(4, 1, 0).answer  # 12 has changed or not: nobody can tell
    with pytest.raises(TraplessError, match=r"9 \(worker\): 2 of 4 threads ran.* within 0\.1 s"):
        control.switch_each([9], Mode.SUPERVISOR, wait_s=0.1)


@pytest.mark.parametrize(("mode", "changed"), [(Mode.SUPERVISOR, 2), (Mode.USER, 6)])
def test_threads_that_sleep_are_counted_and_no_failure(module, people, mode, changed):
    """As redis: two threads serve, six sleep in a futex."""
    people(dict.fromkeys(range(11, 17), ("S", 3)) | {9: ("R", 5), 10: ("D", 5)})
    module.answer = Threads(8, changed, 0).answer
    (line,) = control.switch_each([9], mode, wait_s=0.1)
    assert line.startswith("process 9 (worker): 6 of 8 threads are asleep in a system call")


def test_a_thread_that_sleeps_again_in_its_call_is_asleep(module, people):
    people({9: ("S", 1)})
    module.answer = Threads(1, 0, 0).answer
    answer = module.answer

    def waking(code, request):
        if code == abi.IOC_SWITCH:
            people({9: ("S", 2)})
        return answer(code, request)

    module.answer = waking
    assert len(control.switch_each([9], Mode.SUPERVISOR, wait_s=0.1)) == 1


def test_one_that_runs_is_late_beside_sleepers(module, people):
    people({9: ("S", 1), 10: ("T", 1), 11: ("R", 1), 12: ("Z", 1)})
    module.answer = Threads(3, 0, 0).answer
    with pytest.raises(TraplessError, match=r"1 of 3 threads ran"):
        control.switch_each([9], Mode.SUPERVISOR, wait_s=0.1)


def test_states_are_those_of_real_threads():
    """A process with a thread in a futex, one in poll(2), one that spins, looked at twice."""
    code = (
        "import select, threading\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "threading.Thread(target=select.select, args=([], [], [])).start()\n"
        "print(flush=True)\n"
        "while True: pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        try:
            end = time.monotonic() + 60
            before = sleepers.look(process.pid, control.PROC)
            while len(before.switches) != 2 and time.monotonic() < end:
                time.sleep(0.01)
                before = sleepers.look(process.pid, control.PROC)
            time.sleep(0.1)
            after = sleepers.look(process.pid, control.PROC)
        finally:
            process.kill()
    assert after.running == {process.pid} and process.pid not in after.switches
    assert after.asleep_since(before) == 2
    assert after.running_at_most(before, 3) == 1 and after.running_at_most(before, 2) == 0
    assert sleepers.look(process.pid, control.PROC) == sleepers.Threads({}, frozenset())


def test_without_waiting_nobody_is_listed(module):
    module.answer = Threads(4, 0, 0).answer
    control.switch_each([9], Mode.SUPERVISOR)
    assert abi.IOC_PROCESSES not in [code for code, _ in module.requests]


def test_a_reason_of_the_machine_is_said_once_for_all(module):
    def answer(code, argument):
        if code != abi.IOC_SWITCH:
            return 0
        return refusing(errno.EOPNOTSUPP, Refusal.PTI)(code, argument)

    module.answer = answer
    with pytest.raises(control.RefusedError):
        control.switch_each([1, 2, 3], Mode.SUPERVISOR)
    assert [code for code, _ in module.requests].count(abi.IOC_SWITCH) == 1


def test_all_that_fail_are_named_and_others_are_switched(module):
    def answer(code, request):
        return errno.ESRCH if code == abi.IOC_SWITCH and request.pid != 4194301 else 0

    module.answer = answer
    with pytest.raises(TraplessError) as caught:
        control.switch_each([4194300, 4194301, 4194302], Mode.USER)
    assert [line.split()[4].rstrip(";") for line in str(caught.value).splitlines()] == [
        "4194300",
        "4194302",
    ]
