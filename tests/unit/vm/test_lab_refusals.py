# SPDX-License-Identifier: GPL-2.0-only
"""What a lab run refuses before anything is fetched, built or started, and what errors quote."""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from trapless.base.console import Silent, TraplessError
from trapless.stock import kernels
from trapless.stock.kernel import Kernel
from trapless.vm import lab, lab_session, qemu
from trapless.vm.channel import Channel, Phase
from trapless.vm.initramfs import Initramfs
from trapless.vm.lab_session import Bell, Ending, Session, Sinks
from trapless.vm.qemu import Process

LOGS = Path(__file__).resolve().parents[2] / "data/kernel-logs"


def saved_log(name):
    return lzma.decompress((LOGS / f"{name}.log.xz").read_bytes()).decode()


@pytest.fixture
def kernel_log() -> Iterator[int]:
    descriptor = os.memfd_create("kernel.log", 0)
    yield descriptor
    os.close(descriptor)


@pytest.fixture(autouse=True)
def nothing_is_fetched(monkeypatch):
    def refuse(*_):
        raise AssertionError("went on to look for a kernel")

    monkeypatch.setattr(kernels, "resolve", refuse)


@pytest.mark.parametrize(
    ("config", "argv", "message"),
    [
        (lab.LabConfig(), [], "no command"),
        (lab.LabConfig(), [""], "no command"),
        (lab.LabConfig(timeout_s=float("nan")), ["true"], "number of seconds, not nan"),
        (lab.LabConfig(timeout_s=float("inf")), ["true"], "number of seconds, not inf"),
        (lab.LabConfig(cpus=0), ["true"], "at least one CPU, not 0"),
        (lab.LabConfig(icount=True, cpus=2), ["true"], "it cannot run 2"),
        (lab.LabConfig(debug=True, kernel="newest"), ["true"], "not newest"),
        (lab.LabConfig(module=False, module_parameters="supervisor=1"), ["true"], "without the"),
        (lab.LabConfig(module=False, supervisor=0), ["true"], "no supervisor mode"),
        (lab.LabConfig(memory="2 apples"), ["true"], "'2 apples'"),
    ],
)
def test_wrong_usage_is_refused_first(config, argv, message):
    with pytest.raises(TraplessError, match=message) as caught:
        lab.run(config, argv)
    assert caught.value.status == 2


def test_a_guests_memory_never_goes_into_an_old_file(tmp_path):
    path = tmp_path / "ram"
    lab._make_memory(path, 1 << 30)
    assert path.stat().st_size == 1 << 30 and path.stat().st_mode & 0o777 == 0o600
    for there, message in ((path, "there already"), (tmp_path / "no" / "ram", "No such file")):
        with pytest.raises(TraplessError, match=message):
            lab._make_memory(there, 1 << 30)


@pytest.mark.parametrize(("icount", "cpus"), [(True, 1), (False, 2)])
def test_default_number_of_cpus(icount, cpus):
    assert lab._check(lab.LabConfig(icount=icount), ["true"]) == cpus


def test_default_kernel_is_supported():
    assert lab.LabConfig().kernel in {spec.name for spec in kernels.SUPPORTED}


def test_error_quotes_the_complaint_not_the_boot():
    log = saved_log("oldest.nothing") + saved_log("oldest.bug")
    title, lines = lab._excerpt(log, log)
    assert title == "the guest's kernel said:"
    assert lines[0].startswith("kernel BUG at complain.c")
    assert len(lines) <= lab.LOG_LINES_MAX


def test_error_quotes_the_last_lines_where_nothing_complained():
    log = saved_log("oldest.nothing")
    _, lines = lab._excerpt(log, "only this came\nafter the command began\n")
    assert lines == ["only this came", "after the command began"]


def test_bell_rings_and_is_answered():
    bell = Bell()
    bell.ring()
    bell.answer()
    bell.answer()  # nothing waits: returns at once
    bell.close_guest_end()
    bell.ring()  # nobody is there: no error
    bell.close()


def test_bell_that_nobody_answers_does_not_block():
    bell = Bell()
    for _ in range(100_000):
        bell.ring()
    bell.close()


def test_sink_gets_output_and_memory_gets_errors():
    pieces: list[bytes] = []
    sinks = Sinks.collecting(b"in", pieces.append)
    sinks.take_output(b"a")
    sinks.take_output(b"b")
    sinks.take_errors(b"e")
    assert (pieces, sinks.output, sinks.errors) == ([b"a", b"b"], b"", b"e")


def ending_of(script: str, log: int, silence_limit_s: float) -> Ending:
    """The ending of a session whose VM is a script that may write to the kernel's log."""
    channel, bell = Channel(), Bell()
    process = Process(["sh", "-c", script], [log])
    try:
        sinks = Sinks.collecting(None, None)
        return Session(channel, bell, sinks, log, 1, silence_limit_s).pump(process, Silent())
    finally:
        process.close()
        bell.close()
        channel.close()


@pytest.mark.slow
@pytest.mark.parametrize("first", ["true", "echo Linux >>/dev/fd/$LOG"])
def test_kernel_that_prints_nothing_is_not_waited_for(monkeypatch, kernel_log, first):
    monkeypatch.setenv("LOG", str(kernel_log))
    ending = ending_of(f"{first}; sleep 50", kernel_log, 0.5)
    assert ending.reason == "the guest's kernel printed nothing for 0.5 s before its init ran"
    assert ending.phase is Phase.FIRMWARE and ending.retriable


def test_kernel_that_repeats_its_report_of_a_stall_is_not_waited_for(monkeypatch, kernel_log):
    monkeypatch.setenv("LOG", str(kernel_log))
    report = "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:"
    script = f"while sleep 0.1; do echo '{report}' >>/dev/fd/$LOG; done"
    ending = ending_of(script, kernel_log, 0.5)
    assert ending.reason.startswith("the guest's kernel did not go on after a stall for 0.5 s")
    assert ending.phase is Phase.FIRMWARE and ending.retriable


@pytest.mark.slow
def test_kernel_that_prints_is_waited_for_up_to_the_limit_of_boots(monkeypatch, kernel_log):
    monkeypatch.setenv("LOG", str(kernel_log))
    monkeypatch.setattr(lab_session, "BOOT_LIMIT_S", 2.5)
    ending = ending_of("while sleep 0.1; do echo Linux >>/dev/fd/$LOG; done", kernel_log, 2)
    assert ending.reason == "the VM did not start the command within 2.5 s"
    assert ending.retriable


class ChannelOfTheEnd(Channel):
    """The channel of a guest whose command has ended before the launcher reads it once."""

    def __init__(self) -> None:
        super().__init__()
        self.output.produce(b"text\n")
        self._header.phase = Phase.DONE


@pytest.mark.parametrize(
    ("place", "error"),
    [("/dev/full", "cannot write to standard output: No space left on device"), ("/dev/null", "")],
)
def test_output_that_is_lost_after_the_commands_end_is_an_error(monkeypatch, place, error):
    monkeypatch.setenv(qemu.VARIABLE, "true")
    monkeypatch.setattr(lab, "Channel", ChannelOfTheEnd)
    guest = lab.Guest(Kernel("none", "none", Path("none"), None, None), Initramfs())
    with open(place, "wb") as output:
        monkeypatch.setattr(Sinks, "inherited", lambda: Sinks(output_fd=output.fileno()))
        try:
            result = lab.run(lab.LabConfig(), ["echo", "text"], stream=True, guest=guest)
        except lab.LabError as failure:
            assert error and error in str(failure)
        else:
            assert not error and result.status == 0


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (lab.LabConfig(), ""),
        (lab.LabConfig(supervisor=0), "supervisor=1"),
        (lab.LabConfig(supervisor=0, module_parameters="a=2"), "supervisor=1 a=2"),
    ],
)
def test_supervisor_mode_gives_the_modules_consent(config, parameters):
    assert lab._parameters(config) == parameters


@pytest.mark.parametrize(("debugger", "started"), [(None, 2), (0, 1)])
def test_a_vm_that_does_not_start_is_started_again_unless_it_is_followed(
    monkeypatch, debugger, started
):
    """A debugger would go on with the first VM's conversation, and the second would stand still."""
    monkeypatch.setenv(qemu.VARIABLE, "true")
    channels = []

    class Counted(Channel):
        def __init__(self) -> None:
            super().__init__()
            channels.append(self)

    monkeypatch.setattr(lab, "Channel", Counted)
    guest = lab.Guest(Kernel("none", "none", Path("none"), None, None), Initramfs())
    with pytest.raises(lab.LabError, match="ended before its init ran") as caught:
        lab.run(lab.LabConfig(debugger=debugger), ["true"], guest=guest)
    assert caught.value.repeatable and len(channels) == started
