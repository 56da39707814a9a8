# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek --wait` where no kernel comes: it ends in time, and says what it waited for.

A kernel that comes is waited for by README's own example (tests/packages).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.peek.toy_kernel import RELEASE, ToyKernel
from trapless.base.console import TraplessError
from trapless.cli import cli
from trapless.peek import machines, waiting
from trapless.peek.errors import WAIT, ImageError, PeekError
from trapless.peek.kernel.target import Target

pytestmark = pytest.mark.slow  # time limits that run out


def test_a_file_that_nobody_makes_ends_the_wait(tmp_path: Path) -> None:
    with pytest.raises(TraplessError, match=r"within 0\.2 s: cannot open .*/ram: No such file"):
        waiting.wait_for(lambda: machines.Image(tmp_path / "ram"), 0.2)


def test_memory_in_which_no_kernel_boots_ends_the_wait(tmp_path: Path) -> None:
    """The file comes later; then it holds no kernel."""
    ram = tmp_path / "ram"
    made = threading.Timer(0.3, lambda: ram.write_bytes(bytes(1 << 20)))
    made.start()
    began = time.monotonic()
    with pytest.raises(TraplessError, match=r"no kernel could be read within 1\.5 s: .*ram"):
        waiting.wait_for(lambda: machines.Image(ram), 1.5)
    made.join()
    assert time.monotonic() - began >= 1.5


def test_a_kernel_that_is_gone_when_it_is_opened_is_waited_for(own_cache, tmp_path: Path) -> None:
    """The machine is restarted between the wait and the opening."""
    ram = ToyKernel().save(tmp_path)
    whole = ram.read_bytes()
    machine = waiting.wait_for(lambda: machines.Image(ram), 3600)
    ram.write_bytes(bytes(len(whole)))
    with pytest.raises(TraplessError, match="all zeros"):
        machines.Image(ram).open()
    threading.Timer(1.0, lambda: ram.write_bytes(whole)).start()
    with machine.open() as target:
        assert str(target.release) == RELEASE


@pytest.mark.parametrize(
    ("limit_s", "message"),
    [(0.1, "no kernel could be read within 0.1 s: it boots"), (0, f"it boots\n  {WAIT}")],
)
def test_wait_that_has_failed_does_not_advise_to_wait(limit_s: float, message: str) -> None:
    class Boots:
        def open(self, *, sandbox: bool = True) -> Target:
            raise PeekError(f"it boots\n  {WAIT}")

    with pytest.raises(PeekError) as caught:
        waiting.wait_for(Boots, limit_s)  # type: ignore[arg-type]
    assert str(caught.value) == message


@pytest.mark.parametrize("data", [b"QFI\xfb", b"QEVM", b"\x7fELF"])
def test_a_saved_image_is_no_reason_to_wait(tmp_path: Path, data: bytes) -> None:
    image = tmp_path / "image"
    image.write_bytes(data.ljust(8192, b"\0"))
    with pytest.raises(ImageError):
        waiting.wait_for(lambda: machines.Image(image), 3600)


def test_several_machines_are_no_reason_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    two = [machines.Process(Path(f"/proc/{pid}"), "qemu", ("qemu",)) for pid in (1, os.getpid())]
    monkeypatch.setattr(machines, "running", lambda: two)
    with pytest.raises(TraplessError, match=r"choose one with --pid, .*\n  process 1: qemu"):
        waiting.wait_for(machines.the_one, 3600)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--pid", "4194305"), "there is no process 4194305"),
        (("--gdb", "nowhere"), "'nowhere' is not HOST:PORT"),
        (("--vm", ""), "--vm names no machine"),
    ],
)
def test_what_never_comes_is_not_waited_for(options: tuple[str, str], message: str) -> None:
    done = CliRunner().invoke(cli, ["peek", "top", *options, "--wait", "3600"])
    assert message in str(done.exception) + done.output


def test_a_stub_that_does_not_answer_yet_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(TraplessError, match=rf"within 0\.2 s: no debugger's stub .*:{port}"):
        waiting.wait_for(lambda: machines.Remote("127.0.0.1", port), 0.2)


@pytest.mark.parametrize("command", ["shell", "top", "record", "trace", "check"])
def test_every_command_that_reads_a_machine_waits(tmp_path: Path, command: str) -> None:
    words = ["peek", command, "--ram", str(tmp_path / "ram"), "--wait", "0.1"]
    words += {"record": [str(tmp_path / "new")], "check": ["--monitor", "/nowhere"]}.get(
        command, []
    )
    done = CliRunner().invoke(cli, words)
    assert isinstance(done.exception, TraplessError)
    assert "no kernel could be read within 0.1 s" in str(done.exception)
