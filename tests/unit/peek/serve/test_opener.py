# SPDX-License-Identifier: GPL-2.0-only
"""The process with root's rights, beside processes that end, that block it, or that only pretend to
be monitors: none ends it or uses up what it has.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests import descriptors
from tests.unit.peek.machines.made_up_monitors import started
from tests.unit.peek.serve.serving import settings, until
from trapless.peek import machines, mappings, qemu_arguments
from trapless.peek.diagnosis import opener as opener_file
from trapless.peek.diagnosis.opener import EndedError, Found, Opener
from trapless.peek.errors import PeekError
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.serve import phases
from trapless.peek.serve.observed_vm import ObservedVm, State

MIB = 1 << 20
NOBODY = 65534
QUICK_S = 15.0
"""Far less than any of these processes would take without a bound."""
CHILD = """
import mmap, sys
kept = mmap.mmap(-1, 48 << 20)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def pretending(*arguments: str) -> Iterator[int]:
    """The pid of a process whose command line is that of a monitor."""
    with started("qemu-system-x86_64", CHILD, *arguments) as running:
        yield running.pid


@pytest.fixture(scope="module")
def opener() -> Iterator[Opener]:
    with Opener() as opener:
        yield opener
        assert opener.runs


def found(opener: Opener, pid: int) -> Found:
    (one,) = (one for one in opener.running() if one.pid == pid)
    return one


@pytest.mark.parametrize(
    "arguments",
    [
        ("-m", "9" * 400),
        ("-name", '{"guest":' + "[" * 50_000),
        ("-numa", "node,memdev=a,nodeid=x"),
        tuple(word for _ in range(200) for word in ("-numa", "node,memdev=a")),
    ],
)
def test_a_command_line_that_is_none_ends_nothing(opener, arguments):
    with pretending(*arguments) as pid:
        one = found(opener, pid)
        with suppress(PeekError):  # as it has no such memory, or none that is understood
            for way in opener.ways(one):
                for memory in way:
                    memory.close()
        assert opener.emulator(one) is not None


# ---- Monitors that do not answer -----------------------------------------------------------------


@contextmanager
def monitor(path: Path, *answers: object) -> Iterator[list[bytes]]:
    """A monitor that gives these answers and is silent from then on; what it was asked."""
    asked: list[bytes] = []

    def serve() -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                clients.append(client)
                with suppress(OSError, ValueError):  # a daemon of another test has given up
                    answer_all(client)

    def answer_all(client: socket.socket) -> None:
        client.sendall(json.dumps(GREETING).encode() + b"\n")
        for answer in answers:
            asked.append(client.recv(1 << 16))
            number = json.loads(asked[-1]).get("id")
            client.sendall(json.dumps({"return": answer, "id": number}).encode() + b"\n")

    clients: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen(64)
        threading.Thread(target=serve, daemon=True).start()
        yield asked
        listener.shutdown(socket.SHUT_RDWR)
    for client in clients:
        client.close()


GREETING = {
    "QMP": {"version": {"qemu": {"micro": 0, "minor": 2, "major": 7}}, "capabilities": []},
}


@pytest.mark.parametrize("told", [5, {}, [5], [{"cpu-index": [], "thread-id": 1}], "x"])
def test_a_monitor_that_tells_nonsense_ends_nothing(opener, tmp_path, told):
    with monitor(tmp_path / "monitor", {}, told) as asked:
        with pretending("-qmp", f"unix:{tmp_path / 'monitor'}") as pid:
            emulator = opener.emulator(found(opener, pid))
        assert emulator is not None and emulator.threads == ()
        assert len(asked) == 2 and b"query-cpus-fast" in asked[1]


@pytest.mark.slow
def test_monitors_that_never_answer_delay_others_once(opener, tmp_path):
    path = f"unix:{tmp_path / 'monitor'}"
    with monitor(tmp_path / "monitor", {}), pretending(*("-qmp", path) * 20) as pid:
        one, began = found(opener, pid), time.monotonic()
        assert opener.emulator(one) is not None
        assert time.monotonic() - began < QUICK_S


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_machine_that_ends_before_it_is_opened_has_ended(opener, is_waited_for):
    """It is not one that cannot be read; nor is a process without memory that nobody waits for."""
    notes: list[str] = []
    with started("qemu-system-x86_64", CHILD, "-m", "48M") as process:
        one = found(opener, process.pid)
        process.kill()
        if is_waited_for:
            process.wait()
        else:
            status = Path(f"/proc/{process.pid}/status")
            until(lambda: "\nState:\tZ" in status.read_text())
        with pytest.raises(EndedError, match=f"process {process.pid} has ended"):
            next(opener.ways(one))
        vm = ObservedVm(one, "web", settings(opener, note=notes.append))
        vm.phase = phases.Away(vm)
        until(lambda: phases.step(vm) or vm.state is not State.WAITING)
        assert vm.state is State.ENDED and vm.failures == 0 and notes == ["web has ended"]


def test_a_machine_without_a_kernel_boots_for_two_minutes(opener, monkeypatch):
    """A boot is no failure. Then it is one, and the machine is not called booting any more."""
    notes: list[str] = []
    with started("qemu-system-x86_64", CHILD, "-m", "48M") as process:
        vm = ObservedVm(found(opener, process.pid), "web", settings(opener, note=notes.append))
        vm.phase = phases.Away(vm)
        until(lambda: phases.step(vm) or vm.state is not State.WAITING)
        assert (vm.state, vm.failures) == (State.BOOTING, 0)
        assert notes == ["web is booting: no kernel shows in it yet"]
        monkeypatch.setattr(phases, "BOOT_S", 0.0)
        until(lambda: phases.step(vm) or vm.state is not State.BOOTING)
        assert (vm.state, vm.failures) == (State.NO_KERNEL, 1)
        assert "web shows no kernel: " in notes[1]


def test_a_file_that_is_gone_has_ended(opener, tmp_path):
    path = tmp_path / "ram"
    path.write_bytes(bytes(1 << 20))
    (one,) = (each for each in opener.running([path]) if each.path)
    path.unlink()
    with pytest.raises(EndedError, match="ram has ended"):
        next(opener.ways(one))


def test_a_process_that_blocks_its_opener_delays_no_other_question(opener, tmp_path):
    errors: list[PeekError] = []

    def ask(one: Found) -> None:
        try:
            opener.emulator(one)
        except PeekError as error:
            errors.append(error)

    path = tmp_path / "monitor"
    with (
        monitor(path, {}) as asked,
        pretending("-qmp", f"unix:{path}") as blocking,
        pretending("-m", "48M") as other,
    ):
        asking = threading.Thread(target=ask, args=(found(opener, blocking),))
        asking.start()
        until(lambda: asked)
        children = Path(f"/proc/{opener.pid}/task/{opener.pid}/children")
        (child,) = map(int, children.read_text().split())
        os.kill(child, signal.SIGSTOP)  # as what reads a file system that does not answer
        for memory in next(opener.ways(found(opener, other))):
            memory.close()
        assert asking.is_alive()
        os.kill(child, signal.SIGKILL)
        asking.join()
        assert errors and opener.runs


def running() -> set[int]:
    """The pids of the machines that are listed for the user of this process."""
    rows, _ = opener_file._running((), False)
    assert isinstance(rows, list)
    return {row[0] for row in rows}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_is_shown_the_machines_that_it_may_read():
    """Its own, and those whose memory is in a file that it may read."""
    with ExitStack() as stack:
        ram = stack.enter_context(tempfile.NamedTemporaryFile())
        ram.write(bytes(1 << 20))
        backend = f"memory-backend-file,id=m,size=1M,mem-path={ram.name},share=on"
        roots = stack.enter_context(pretending())
        readable = stack.enter_context(pretending("-object", backend, "-M", "pc,memory-backend=m"))
        for mode, is_shown in ((0o644, True), (0o600, False)):
            os.chmod(ram.name, mode)
            os.setresuid(NOBODY, NOBODY, 0)
            try:
                listed = running()
            finally:
                os.setresuid(0, 0, 0)
            assert roots not in listed and (readable in listed) is is_shown
        assert {roots, readable} <= running()


# ---- What it may use up --------------------------------------------------------------------------


def test_memory_that_is_not_handed_over_is_closed(monkeypatch):
    with pretending("-m", "48M") as pid:
        began = opener_file._began(pid)
        its = rf"/proc/{pid}/.*|/memfd:.*"
        before = descriptors.of(its)  # of other tests
        (answer, way) = opener_file._way(pid, began, "", 0)
        assert answer is not None
        assert len(descriptors.of(its)) > len(before)
        for memory in way:
            memory.close()
        with pytest.raises(PeekError, match="has ended"):
            opener_file._way(pid, began + 1, "", 0)
        monkeypatch.setattr(opener_file, "FILES_MAX", 0)
        with pytest.raises(PeekError, match="can be handed over"):
            opener_file._way(pid, began, "", 0)
        assert descriptors.of(its) == before


def mapping(number: int, length: int = MIB) -> mappings.Mapping:
    start = 0x7F0000000000 + number * 0x10000000
    return mappings.Mapping(start, start + length, "rw-p", 0, "00:00", 0, "")


@pytest.mark.parametrize("count", [9, 16, 128])
def test_as_many_nodes_of_one_size_as_there_may_be_are_found(count):
    found = [mapping(number) for number in range(count)]
    backends = [qemu_arguments.Backend(f"m{number}", MIB) for number in range(count)]
    first = next(mappings.qemu_ways(found, backends, []))[0]
    assert [one.offset for one in first] == [one.start for one in reversed(found)]


def test_ram_that_cannot_be_chosen_is_not_looked_for_for_ever():
    """Each part fits many mappings, and all of them together fit none."""
    found = [mapping(number, 64 * MIB) for number in range(20)]
    backends = [qemu_arguments.Backend(f"m{number}", (64 << 20) - number) for number in range(40)]
    began = time.monotonic()
    with pytest.raises(PeekError, match="not the 40 parts"):
        list(mappings.qemu_ways(found, backends, []))
    assert time.monotonic() - began < QUICK_S


def test_what_is_no_plain_file_is_not_opened(tmp_path):
    """To open a device of another user may wait for ever, or do anything."""
    (tmp_path / "fd").mkdir()
    os.mkfifo(tmp_path / "fd" / "3")
    status = (tmp_path / "fd" / "3").stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    one = mappings.Mapping(0, MIB, "rw-s", 0, device, status.st_ino, "")
    writer = os.open(tmp_path / "fd" / "3", os.O_RDWR)
    try:
        assert mappings._shared(tmp_path, one) is None
    finally:
        os.close(writer)


def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is opened from now on for more than to be looked at."""
    plain, paths = os.open, []

    def noted(path: object, flags: int, *more: object, **others: object) -> int:
        if not flags & os.O_PATH:
            paths.append(os.path.realpath(str(path)))
        return plain(path, flags, *more, **others)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", noted)
    return paths


@pytest.mark.parametrize("kind", ["fifo", "device"])
def test_what_a_command_line_names_is_opened_only_where_it_may_be_memory(
    kind, tmp_path, monkeypatch
):
    """Only to open a watchdog's device may restart this host."""
    path = Path("/dev/null") if kind == "device" else tmp_path / "ram"
    if kind == "fifo":
        os.mkfifo(path)
    memory = f"memory-backend-file,id=m,size=48M,mem-path={path},share=on"
    paths = opened(monkeypatch)
    with pretending("-object", memory, "-M", "pc,memory-backend=m") as pid:
        assert machines.by_pid(pid).shared is None
        with pytest.raises(PeekError, match="is not a file of memory"):
            open_memory(path)
        with suppress(PeekError):
            for way in machines.by_pid(pid).memories():
                for one in way:
                    one.close()
    assert str(path) not in paths


def test_a_file_that_is_exchanged_while_it_is_opened_is_not_the_other_one(tmp_path, monkeypatch):
    path, other = tmp_path / "ram", tmp_path / "secret"
    path.write_bytes(b"ram")
    other.write_bytes(b"secret")
    plain = os.fstat

    def exchanged(descriptor: int) -> os.stat_result:
        status = plain(descriptor)
        with suppress(FileExistsError):
            path.rename(tmp_path / "before")
            path.symlink_to(other)
        return status

    status = path.stat()
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}"
    one = mappings.Mapping(0, MIB, "rw-s", 0, device, status.st_ino, str(path))
    (tmp_path / "root").symlink_to("/")
    monkeypatch.setattr(os, "fstat", exchanged)
    descriptor = mappings._shared(tmp_path, one)
    monkeypatch.undo()
    assert descriptor is not None and os.readlink(path) == str(other)
    assert os.read(descriptor, 9) == b"ram"
    os.close(descriptor)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_a_socket_of_another_user_is_no_monitor(tmp_path):
    told = [{"cpu-index": 0, "thread-id": 1}]
    with monitor(tmp_path / "monitor", {}, told) as asked, Opener() as opener:
        os.chown(tmp_path / "monitor", 65534, 65534)
        with pretending("-qmp", f"unix:{tmp_path / 'monitor'}") as pid:
            emulator = opener.emulator(found(opener, pid))
            assert emulator is not None and emulator.threads == () and not asked
            os.chown(tmp_path / "monitor", 0, 0)
            assert opener.emulator(found(opener, pid)) is not None and asked
