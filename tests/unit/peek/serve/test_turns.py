# SPDX-License-Identifier: GPL-2.0-only
"""Users who start many machines, or processes that only pretend to be some and keep waiting who
looks at them: the machines of other users are found, opened and read all the same.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.unit.peek.machines.made_up import started
from tests.unit.peek.serve.test_opener import found, monitor
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.peek import machines
from trapless.peek.errors import PeekError
from trapless.peek.serve import fleet as fleet_file
from trapless.peek.serve import opener as opener_file
from trapless.peek.serve import workers as workers_file
from trapless.peek.serve.fleet import Fleet
from trapless.peek.serve.opener import EndedError, Found, Opener, owner_of
from trapless.peek.serve.vm import Settings, State, Vm
from trapless.peek.serve.workers import Workers

LIMIT_S = 60.0
NOBODY = 65534
FAKES = 8
LOOKS = ("is_monitor", "machine_of")
MACHINE = """
import mmap, os, sys
os.setuid(int(sys.argv.pop()))
kept = [mmap.mmap(-1, 64 << 20)]
if len(sys.argv) > 1 and sys.argv[1] == "-object":
    path = sys.argv[2].partition("mem-path=")[2].partition(",")[0]
    with open(path, "r+b") as file:
        kept.append(mmap.mmap(file.fileno(), 0))
print("ready", flush=True)
sys.stdin.read()
"""


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def machine(*arguments: str, user: int = os.getuid()) -> Iterator[int]:
    """The pid of a process whose command line is that of a monitor, started by a user."""
    with started("qemu-system-x86_64", MACHINE, *arguments, user) as running:
        yield running.pid


# ---- Turns of work -------------------------------------------------------------------------------


def test_work_that_never_ends_keeps_no_other_owner_waiting(monkeypatch):
    monkeypatch.setattr(workers_file, "LONG_S", 0.0)
    workers, over = Workers(2), threading.Event()
    kept = [(owner, workers.submit(owner, over.wait)) for owner in (1, 1, 1, 1, 2, 2, 3)]
    until(lambda: workers.tend() or {1, 2, 3} <= {at for at, job in kept if job.began_s})
    done = [workers.submit(4, lambda: None) for _ in range(20)]
    until(lambda: workers.tend() or all(job.done for job in done))
    assert workers._threads <= 2 + 3 + 1 and not any(job.done for _, job in kept)
    over.set()
    until(lambda: workers.tend() or all(job.done for _, job in kept))
    until(lambda: workers._threads == workers._idle == 2)


def test_who_took_least_is_next():
    workers, go, order = Workers(1), threading.Event(), []
    first = workers.submit(1, lambda: go.wait() and time.sleep(0.05))
    for owner in (1, 1, 2, 2):
        workers.submit(owner, lambda owner=owner: order.append(owner))
    urgent = workers.submit(2, lambda: order.append(0), first=True)
    go.set()
    until(lambda: len(order) == 5 and urgent.done and first.done)
    assert order == [0, 2, 2, 1, 1]


def test_who_has_many_machines_takes_no_round_from_others(monkeypatch):
    steps: list[int] = []
    monkeypatch.setattr(fleet_file, "OWNER_S", -1.0)  # each has time for one
    monkeypatch.setattr(Fleet, "_step", lambda self, vm, now: steps.append(vm.found.pid))
    settings = Settings(None, Workers(1), threading.Lock(), 1, None, 0, None, print)  # type: ignore
    fleet = Fleet(settings)
    all_ = [Found(pid, 0, "qemu", "", owner=1) for pid in range(100)]
    all_.append(Found(500, 0, "qemu", "", owner=2))
    fleet.vms = [Vm(one, str(one.pid), settings) for one in all_]
    for _ in range(3):
        fleet._round(0.0)
    assert steps == [0, 500, 1, 500, 2, 500]


# ---- Processes -----------------------------------------------------------------------------------


def test_a_process_that_keeps_its_opener_waiting_delays_no_other_question(tmp_path):
    path, errors = tmp_path / "monitor", []

    def ask(opener: Opener, one: Found) -> None:
        try:
            opener.emulator(one)
        except PeekError as error:
            errors.append(error)

    with ExitStack() as stack:
        asked = stack.enter_context(monitor(path, {}))
        opener = stack.enter_context(Opener())
        silent = found(opener, stack.enter_context(machine("-qmp", f"unix:{path}")))
        other = found(opener, stack.enter_context(machine("-m", "64M")))
        asking = threading.Thread(target=ask, args=(opener, silent))
        asking.start()
        until(lambda: asked)
        children = Path(f"/proc/{opener.pid}/task/{opener.pid}/children")
        (child,) = map(int, children.read_text().split())
        os.kill(child, signal.SIGSTOP)  # as what reads a file system that does not answer
        for memory in next(opener.ways(other)):
            memory.close()
        assert {one.pid for one in opener.running()} >= {silent.pid, other.pid}
        assert asking.is_alive()
        os.kill(child, signal.SIGKILL)
        asking.join()
        assert errors and opener.runs


def test_a_process_whose_command_line_cannot_be_read_keeps_no_other_from_the_list(monkeypatch):
    """It has locked its own memory until a file system answers that is its user's."""
    monkeypatch.setattr(opener_file, "PATIENCE_S", 0.2)
    over, true = threading.Event(), {name: getattr(machines, name) for name in LOOKS}
    with ExitStack() as stack:
        stack.callback(over.set)
        pids = [stack.enter_context(machine()) for _ in range(4)]
        silent = dict(zip(LOOKS, pids, strict=False))

        def looks(name: str, entry: Path) -> object:
            return over.wait() if int(entry.name) == silent[name] else true[name](entry)

        for name in LOOKS:
            monkeypatch.setattr(machines, name, partial(looks, name))
        began = time.monotonic()
        rows, _ = opener_file._running(())
        assert isinstance(rows, list)
        assert time.monotonic() - began < LIMIT_S / 2
        assert {row[0] for row in rows} & set(pids) == set(pids[2:])


@pytest.mark.parametrize("is_waited_for", [True, False])
def test_a_machine_that_ends_before_it_is_opened_has_ended(is_waited_for):
    """It is not one that cannot be read; nor is a process without memory that nobody waits for."""
    notes: list[str] = []
    with ExitStack() as stack:
        opener = stack.enter_context(Opener())
        process = stack.enter_context(started("qemu-system-x86_64", MACHINE, "-m", "64M", 0))
        one = found(opener, process.pid)
        process.kill()
        if is_waited_for:
            process.wait()
        else:
            status = Path(f"/proc/{process.pid}/status")
            until(lambda: "\nState:\tZ" in status.read_text())
        with pytest.raises(EndedError, match=f"process {process.pid} has ended"):
            next(opener.ways(one))
        settings = Settings(
            opener, Workers(1), threading.Lock(), 10_000_000, None, 0, None, notes.append
        )
        vm = Vm(one, "web", settings)
        until(lambda: vm.tick(time.monotonic()) or vm.state is not State.WAITING)
        assert vm.state is State.ENDED and vm.failures == 0 and notes == ["web: ended"]


def test_a_file_that_is_gone_has_ended(tmp_path):
    path = tmp_path / "ram"
    path.write_bytes(bytes(1 << 20))
    with Opener() as opener:
        (one,) = (each for each in opener.running([path]) if each.path)
        path.unlink()
        with pytest.raises(EndedError, match="ram has ended"):
            next(opener.ways(one))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of others")
def test_each_user_has_a_share_of_the_machines_that_are_listed(monkeypatch):
    monkeypatch.setattr(opener_file, "MACHINES_MAX", 4)
    with ExitStack() as stack:
        mine = [stack.enter_context(machine()) for _ in range(6)]
        theirs = stack.enter_context(machine(user=NOBODY))
        entries = [Path(f"/proc/{pid}") for pid in (*mine, theirs)]
        assert set(entries) <= set(machines.monitors())
        listed = list(opener_file._in_turns(entries))
    assert listed == [
        (entries[0], os.getuid()),
        (entries[6], NOBODY),
        (entries[1], os.getuid()),
        (entries[2], os.getuid()),
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of others")
def test_a_user_in_a_namespace_of_its_own_is_that_user():
    unshare = shutil.which("unshare")
    assert unshare is not None
    command = [unshare, "-Ur", unshare, "-Ur", "sh", "-c", "echo ready; read line"]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, user=NOBODY, cwd="/"
    ) as inside:
        assert inside.stdout is not None
        if inside.stdout.readline() != "ready\n":
            pytest.skip("users may make no namespaces here")
        assert owner_of(inside.pid) == NOBODY
        assert Path(f"/proc/{inside.pid}/uid_map").read_text().split()[0] == "0"
        inside.kill()
    assert owner_of(os.getpid()) == os.getuid()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start processes of others")
def test_machines_are_opened_beside_many_that_another_user_pretends_to_have(tmp_path, monkeypatch):
    """The others come first by their pids, and each has many ways to be read, none of which leads
    to a kernel."""
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    ram = ToyKernel().save(tmp_path)
    backend = f"memory-backend-file,id=m,size={ram.stat().st_size},mem-path={ram},share=on"
    with ExitStack() as stack:
        opener = stack.enter_context(Opener())
        fakes = {
            stack.enter_context(machine("-m", "16M", "-name", "x-fake", user=NOBODY))
            for _ in range(FAKES)
        }
        true = stack.enter_context(
            machine("-object", backend, "-M", "pc,memory-backend=m", "-name", "x-true")
        )
        settings = Settings(
            opener, Workers(2), threading.Lock(), 10_000_000, None, 0, None, lambda _: None
        )
        fleet, over = Fleet(settings, ["x-*"]), threading.Event()
        loop = threading.Thread(target=fleet.run, args=(over.is_set,))
        loop.start()
        try:
            until(lambda: {*fakes, true} <= {vm.found.pid for vm in fleet.vms})
            vms = {vm.found.pid: vm for vm in fleet.vms}
            until(lambda: vms[true].state is State.SAMPLED)
            assert not all(vms[pid].failures for pid in fakes)
            until(lambda: all(vms[pid].failures for pid in fakes))
            assert vms[true].state is State.SAMPLED and vms[true].failures == 0
        finally:
            sampler = vms[true]._run
            over.set()
            loop.join()
        assert sampler is not None and sampler._running.returncode is not None
