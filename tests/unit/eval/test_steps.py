# SPDX-License-Identifier: GPL-2.0-only
"""Following calls through the emulator's debugger: what the end of a VM, whenever it comes, means.

A thread of the test's own stands in for the emulator at the other end of the socket.
"""

from __future__ import annotations

import os
import socket
import threading
from types import SimpleNamespace

import pytest

from eval.tools.steps import steps
from trapless.base.console import Silent, TraplessError
from trapless.vm import debugger, lab
from trapless.vm.debugger import Debugger


@pytest.fixture
def followed():
    made = Debugger()
    yield made
    made.close()


def emulator(descriptor, *answers):
    """Answers so many packets, one after the other, and then no more."""
    end = socket.socket(fileno=os.dup(descriptor))

    def serve():
        pending = b""
        for answer in answers:
            while b"#" not in pending and b"\x03" not in pending:
                pending += end.recv(1 << 16)
            pending = b""
            end.sendall(b"+$%s#%02x" % (answer, sum(answer) % 256))
        end.close()

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_a_vm_that_ends_is_one_error_whatever_the_socket_says(followed):
    followed.hang_up()
    for ask in (followed.registers, lambda: followed.run_to(0x1000, 1)):
        with pytest.raises(TraplessError, match=debugger.ENDED):
            ask()
    with pytest.raises(TraplessError, match=debugger.ENDED):
        followed.attach(1)


def test_hanging_up_between_two_requests_ends_following_quietly(followed):
    """The guest's last process may run at the address of a mark when the VM is ended."""
    serving = emulator(followed.guest_end, b"T05", b"OK", b"T05", b"OK")
    trace = steps.Trace()
    hang_up, ask = followed.hang_up, followed.ask

    def ask_until_it_goes_on(request, *limit):
        if request == "c":
            serving.join()
            hang_up()
        return ask(request, *limit)

    followed.ask = ask_until_it_goes_on
    steps.watch(followed, {steps.BEGIN: 0x1000, steps.END: 0x2000}, trace)
    assert str(trace.failure) == debugger.ENDED


PIECES = '{"piece": "a"}\n{"piece": "b"}\n{"complete": true}\n'


@pytest.mark.parametrize(
    ("stdout", "seen", "error"),
    [
        (PIECES, ("a",), "following calls failed at b: no answer"),
        (PIECES, (), "following calls failed at a, b: no answer"),
        ("", (), "following calls failed at the first: no answer"),
    ],
)
def test_what_was_made_must_have_been_followed(monkeypatch, tmp_path, stdout, seen, error):
    def watch(_, __, trace):
        trace.pieces.update({name: [0x1000] for name in seen})
        trace.failure = TraplessError("no answer")

    monkeypatch.setattr(steps, "tool", lambda name: tmp_path)
    monkeypatch.setattr(steps, "program_symbols", lambda program: [])
    monkeypatch.setattr(steps, "watch", watch)
    result = SimpleNamespace(status=0, stdout=stdout.encode())
    monkeypatch.setattr(lab, "run", lambda *_, **__: result)
    with pytest.raises(TraplessError, match=error):
        steps.follow("any", Silent())


def test_a_vm_that_does_not_start_is_followed_anew_from_its_beginning(monkeypatch, tmp_path):
    ends = []

    def watch(_, __, trace):
        trace.pieces.update(a=[], b=[])

    def run(config, *_, **__):
        ends.append(os.readlink(f"/proc/self/fd/{config.debugger}"))
        if ends[1:]:
            return SimpleNamespace(status=0, stdout=PIECES.encode())
        raise lab.LabError("no VM", "", repeatable=True)

    monkeypatch.setattr(steps, "tool", lambda name: tmp_path)
    monkeypatch.setattr(steps, "program_symbols", lambda program: [])
    monkeypatch.setattr(steps, "watch", watch)
    monkeypatch.setattr(lab, "run", run)
    assert steps.follow("any", Silent()) == []
    assert len(set(ends)) == 2  # each with its own debugger
