# SPDX-License-Identifier: GPL-2.0-only
"""The monitor's socket, what QEMU prints of registers, and a monitor that is not what it should be.

What a real QEMU answers is in the lab's tests.
"""

from __future__ import annotations

import json
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trapless.base.console import TraplessError
from trapless.vm import qmp
from trapless.vm.qmp import Listener, Monitor, SilentMonitorError, parse_registers

PRINTED = """
CPU#0\r
RAX=0000000000000000 RBX=ff378a5741408840 RCX=0000000000000000 RDX=ff378a5742050900\r
RSI=0000000000500000 RDI=ff378a5741408840 RBP=ff4c906d0042f998 RSP=ff4c906d0042f920\r
R8 =0000000000000301 R9 =0000000000000040 R10=ffffffff93938a91 R11=0000000000000000\r
R12=ff378a5742050900 R13=ff378a57411d0fe0 R14=ff378a57411d3ac0 R15=0000000000000001\r
RIP=ffffffff8dd88bcc RFL=00000046 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=1\r
CS =0010 0000000000000000 ffffffff 00a09b00 DPL=0 CS64 [-RA]\r
CR0=80050033 CR2=00000000004f02c9 CR3=00000000027c6000 CR4=00751ef0\r

CPU#11
RAX=0000000000000001 RBX=0000000000000002 RCX=0000000000000003 RDX=0000000000000004
RSI=0000000000000005 RDI=0000000000000006 RBP=0000000000000007 RSP=0000000000000008
R8 =0000000000000009 R9 =000000000000000a R10=000000000000000b R11=000000000000000c
R12=000000000000000d R13=000000000000000e R14=000000000000000f R15=0000000000000010
RIP=0000000000401000 RFL=00000246 [---Z-P-] CPL=3 II=0 A20=1 SMM=0 HLT=0
CR0=80050033 CR2=00000000004f02c9 CR3=00000000027c7001 CR4=00751ef0
"""


def test_registers_of_every_cpu_are_read():
    kernel, user = parse_registers(PRINTED)
    assert (kernel.cpu, kernel.user, kernel.interrupts_on, kernel.halted) == (0, False, False, True)
    assert (kernel.rip, kernel.cr3) == (0xFFFFFFFF8DD88BCC, 0x27C6000)
    assert (kernel.general["R8"], kernel.general["R14"]) == (0x301, 0xFF378A57411D3AC0)
    assert (user.cpu, user.user, user.interrupts_on, user.halted) == (11, True, True, False)
    assert list(user.general.values()) == [1, 2, 3, 4, 5, 6, 7, 8, *range(9, 17)]


@pytest.mark.parametrize(
    ("text", "said"),
    [("unknown command", "no registers, but 'unknown"), (PRINTED[:-90], "tell CR3 of CPU 11")],
)
def test_what_is_no_registers_is_said(text, said):
    with pytest.raises(TraplessError, match=said):
        parse_registers(text)


# ---- The socket ----------------------------------------------------------------------------------


def test_socket_is_its_owners_alone_and_goes(tmp_path):
    path = tmp_path / "monitor"
    listener = Listener(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    listener.close()
    assert not path.exists()


def test_socket_of_a_dead_launcher_is_replaced(tmp_path):
    path = tmp_path / "monitor"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    Listener(path).close()


@pytest.mark.parametrize("what", ["a file", "a live socket", "a dangling link"])
def test_what_is_there_already_stays(tmp_path, what):
    path = tmp_path / "monitor"
    with socket.socket(socket.AF_UNIX) as live:
        if what == "a live socket":
            live.bind(str(path))
            live.listen()
        elif what == "a file":
            path.write_text("mine")
        else:
            path.symlink_to("nowhere")
        with pytest.raises(TraplessError, match="there already"):
            Listener(path)
        assert path.is_symlink() or path.exists()


def test_socket_that_cannot_be_says_why(tmp_path):
    with pytest.raises(TraplessError, match="No such file"):
        Listener(tmp_path / "absent/monitor")
    with pytest.raises(TraplessError, match="too long for a socket"):
        Listener(tmp_path / ("x" * 108))


# ---- Others who answer ---------------------------------------------------------------------------


@contextmanager
def answering(path: Path, *answers: dict) -> Iterator[list[dict]]:
    """Someone at `path` who greets, gives an answer to each line that comes, then hangs up."""
    heard: list[dict] = []

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            send(connection, GREETING)
            for answer in answers:
                heard.append(json.loads(connection.recv(1 << 16)))  # without an end of line
                same = {"id": heard[-1]["id"]} if "id" in heard[-1] else {}
                send(connection, {**answer, **same})

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield heard
        thread.join(5)


def send(connection: socket.socket, message: dict) -> None:
    connection.sendall(json.dumps(message).encode() + b"\n")


GREETING = {"QMP": {"version": {"qemu": {}}, "capabilities": []}}
DONE: dict = {"return": {}}
RUNNING: dict = {"return": {"status": "running"}}
REFUSED = {"error": {"class": "GenericError", "desc": "no room for a core"}}


def test_error_of_the_emulator_is_told(tmp_path):
    path = tmp_path / "monitor"
    with (
        answering(path, DONE, REFUSED) as heard,
        Monitor(path) as monitor,
        pytest.raises(TraplessError, match="no room for a core"),
    ):
        monitor.dump(tmp_path / "core")
    assert heard[1]["arguments"]["protocol"] == f"file:{tmp_path}/core"


def test_monitor_that_hangs_up_or_never_was_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    for name, why in (("absent", "cannot be opened: No such file"), ("file", "is no socket")):
        with pytest.raises(TraplessError, match=rf"/{name} {why}.*; name the socket of QEMU's"):
            Monitor(tmp_path / name)
    path = tmp_path / "gone"
    with (
        answering(path, DONE),
        pytest.raises(TraplessError, match=r"monitor at .*/gone: \S+"),
        Monitor(path) as monitor,
    ):
        monitor.stop()


def test_silent_monitor_is_not_waited_for_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(qmp, "ANSWER_LIMIT_S", 0.2)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "m"))
        server.listen()
        with pytest.raises(TraplessError, match="does not answer"):
            Monitor(tmp_path / "m", limit_s=0.2)


def test_stopped_vm_goes_on_whatever_happens(tmp_path):
    path = tmp_path / "monitor"
    with (
        answering(path, DONE, RUNNING, DONE, DONE) as heard,
        Monitor(path) as monitor,
        pytest.raises(ZeroDivisionError),
        monitor.stopped(),
    ):
        raise ZeroDivisionError
    assert [message["execute"] for message in heard][1:] == ["query-status", "stop", "cont"]


def test_vm_that_stood_still_before_does_not_go_on(tmp_path):
    """Whoever paused it wants it so."""
    path = tmp_path / "monitor"
    with (
        answering(path, DONE, {"return": {"status": "paused"}}) as heard,
        Monitor(path) as monitor,
        monitor.stopped(),
    ):
        pass
    assert [message["execute"] for message in heard][1:] == ["query-status"]


def test_vm_that_is_stopped_too_late_goes_on(tmp_path):
    """QEMU may obey "stop" long after nobody waits for its answer any more."""
    path = tmp_path / "monitor"
    with (
        answering(path, DONE, RUNNING, {"event": "NONE"}, DONE) as heard,
        Monitor(path, answer_limit_s=0.5) as monitor,
        pytest.raises(SilentMonitorError),
        monitor.stopped(),
    ):
        pass
    assert [message["execute"] for message in heard][1:] == ["query-status", "stop", "cont"]


def test_registers_of_arm64_are_parsed():
    text = (
        "\r\nCPU#0\r\n PC=ffffa27daf010480 X00=0000000000000000 X01=000000000000000a\r\n"
        "X29=ffff800083b2be40 X30=ffffa27db0123456  SP=ffff800083b2be30\r\n"
        "PSTATE=614000c5 -ZC- NS EL1h     FPCR=00000000 FPSR=00000000\r\n"
        "\r\nCPU#1\r\n PC=0000000000403abc X29=0000fffff0000010  SP=0000fffff0000000\r\n"
        "PSTATE=60001000 -ZC- NS EL0t\r\n"
    )
    kernel, user = parse_registers(text)
    assert (kernel.rip, kernel.general["SP"]) == (0xFFFFA27DAF010480, 0xFFFF800083B2BE30)
    assert kernel.general["X29"] == 0xFFFF800083B2BE40
    assert (kernel.user, kernel.interrupts_on) == (False, False)
    assert (user.cpu, user.user, user.interrupts_on) == (1, True, True)
