# SPDX-License-Identifier: GPL-2.0-only
"""`peek why` names the cause of each planted hang first, and is silent about healthy machines.

A module of the tests (tests/lab/modules/hang) makes most hangs, one after the other in one guest,
and lets them go again: in between nothing hangs. Hangs that no guest survives have one of their
own. `make test` has some of each kind on the newest kernel, and `make matrix` all of them on all.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.batch.scandir.test_lab_places import NFS
from tests.lab.command import LIMIT_S, ROOT, wait_until
from tests.lab.peek.test_peek_serve import daemon
from tests.lab.peek.watched_guest import GUEST_LIMIT_S, Guest, folder_of_memory, guest, peek
from tests.unit.peek.machines.made_up_monitors import started
from trapless.base.console import Silent
from trapless.peek.emulator import emulator_of
from trapless.stock import kbuild, kernels
from trapless.vm.qmp import Monitor

pytestmark = [pytest.mark.tool, pytest.mark.oldest, pytest.mark.timeout(2 * GUEST_LIMIT_S)]

MODULE = ROOT / "tests/lab/modules/hang"
PREPARE = """
insmod /hang.ko; mount -t debugfs none /sys/kernel/debug 2>/dev/null
echo 0 >/proc/sys/kernel/panic_on_oops; echo -1 >/proc/sys/kernel/sched_rt_runtime_us
for one in /sys/kernel/debug/sched/fair_server/*/runtime; do echo 0 >$one; done 2>/dev/null
"""
SEED = "/sys/module/hang/parameters/seed"
STAY = "echo 0 >/proc/sys/kernel/panic"
"""A guest that panics while it boots ends, and the lab starts it again; from here on it stays."""
LONG_S = 3
"""The least time of a hang here: tests wait for it again and again."""
STILL_S = 120


@dataclass(frozen=True)
class Hang:
    """A hang that is planted, and what the first line says of it."""

    name: str
    cause: str
    words: tuple[str, ...]
    needs: str = ""  # a thread of kernels that can hang so
    program: str = ""  # what hangs, where that is not the module's business

    @property
    def seed(self) -> str:
        begun = f"{self.program} & echo $! >/tmp/jobs"
        return begun if self.program else f"echo {self.name} >{SEED}"

    @property
    def end(self) -> str:
        return END_JOBS if self.program else f"echo end >{SEED}"


HANGS = (
    Hang(
        "vfork",
        "blocked",
        ("its child", "(vfork): sleeping_thread", "pause"),
        program="/sleeping_threads vfork",
    ),
    Hang("chain", "lock", ("hang_root", "holds a lock", "hang_leaf")),
    Hang("rwsem_shared", "lock", ("hang_writer", "to write it", "1 reader has it")),
    Hang("abba", "deadlock", ("hang_ab", "hang_ba", "each other")),
    Hang("spin", "cpu_held", ("CPU 1", "hang_spinner")),
    Hang("interrupts", "interrupts_off", ("CPU 1", "hang_spinner", "interrupt")),
    Hang("rcu", "rcu", ("s for hang_reader",), needs="rcu_preempt"),
    Hang("work", "work", ("wait_in_work", "hang_ordered")),
    Hang("oops", "oops", ("hang_victim", "NULL pointer")),
)
"""Those of `make test`, the last ones such as leave something behind."""
MORE = (
    Hang("mutex", "lock", ("hang_holder", "holds a lock", "hang_waiter1", "hang_waiter2")),
    Hang("abbcca", "deadlock", ("hang_ab", "hang_bc", "hang_ca")),
    Hang("itself", "deadlock", ("hang_itself", "itself")),
    Hang("rwsem_written", "lock", ("hang_writer", "holds a lock", "hang_reader")),
    Hang("rwsem_read", "lock", ("hang_writer", "others read", "hang_reader")),
    Hang("rt_mutex", "lock", ("hang_holder", "holds a lock", "hang_waiter")),
    Hang("semaphore", "lock", ("hang_waiter", "semaphore")),
    Hang("lost_wakeup", "lost_wakeup", ("hang_waiter", "nobody holds", "lost")),
    Hang("event", "blocked", ("hang_waiter", "event")),
    Hang("page", "storage", ("hang_waiter", "page")),
    Hang("starve", "cpu_starved", ("hang_starved", "CPU 1", "hang_occupier", "real-time")),
    Hang("softirq", "cpu_held", ("CPU 1", "a softirq")),
    Hang("interrupt", "interrupts_off", ("CPU 1", "an interrupt handler")),
    Hang("spinlock", "cpu_held", ("CPU 1", "hang_spinner", "a spinlock")),
    Hang("asleep_for_ever", "blocked", ("hang_waiter", "sleep_for_ever", "nothing shows")),
    Hang("stop", "blocked", ("hang_stopper", "another kernel thread to end")),
    *HANGS[:-1],
    Hang("bug", "oops", ("hang_victim",)),
    Hang("flush", "deadlock", ("do_nothing", "hang_ordered", "itself")),
)
MANY_CPUS = "pc,smp.maxcpus=24"
"""With more than 16 CPUs, RCU has a tree of groups of them, also where most are not plugged in."""
VIRTIO = ("virtio_pci", "virtio_blk", "virtio_net")
EXT4 = ("crc32c_generic", "loop", "ext4")
NFS_MODULES = ("nfsd", "nfsv4")
FREEZE = "mkdir -p /mnt; mount -t ext4 -o loop /ext4 /mnt && fsfreeze --freeze /mnt || echo failed"
HEALTHY = {
    "idle": "true",
    "asleep for long in a driver": f"echo asleep >{SEED}",
    "counting": "(while :; do :; done) & echo $! >/tmp/jobs",
    "on all CPUs": "for i in 1 2 3 4 5 6; do (while :; do :; done) & echo $! >>/tmp/jobs; done",
    "system calls": "(while :; do cat /proc/self/stat; done >/dev/null) & echo $! >/tmp/jobs",
    "files": "(while :; do find / -xdev -type f | xargs cat; done >/dev/null 2>&1) & "
    "echo $! >/tmp/jobs",
    "starts of programs": "(while :; do /bin/busybox true; done) & echo $! >/tmp/jobs",
    "compression": "(while :; do dd if=/dev/urandom bs=64k count=64 2>/dev/null | gzip; done "
    ">/dev/null) & echo $! >/tmp/jobs",
    "pipes": "(while :; do seq 10000 | sort -r | tail -1; done >/dev/null) & echo $! >/tmp/jobs",
    "writes": "(while :; do dd if=/dev/zero of=/tmp/x bs=64k count=200 conv=fsync; sync; done "
    "2>/dev/null) & echo $! >/tmp/jobs",
    "a network": "ifconfig lo 127.0.0.1 up; (while :; do (sleep 0.2; echo x) | nc 127.0.0.1 7 & "
    "ping -c 20 -i 0.01 127.0.0.1; wait; done >/dev/null 2>&1) & echo $! >/tmp/jobs",
    "stopped processes": "for i in 1 2 3; do sleep 1000 & kill -STOP $!; echo $! >>/tmp/jobs; done",
    "zombies": "sh -c 'sleep 0 & exec sleep 1000' & echo $! >/tmp/jobs",
    "thousands of threads": "/sleeping_threads 3000 >/tmp/made & echo $! >/tmp/jobs",
    "lowest priority": "(nice -n 19 sh -c 'while :; do :; done') & echo $! >/tmp/jobs",
    "real-time in turns": "(chrt -r 1 sh -c 'while :; do usleep 1000; done') & echo $! >/tmp/jobs",
    "memory nearly full": "mkdir -p /full; mount -t tmpfs -o size=200m none /full; "
    "free=$(awk '/MemAvailable/{print $2}' /proc/meminfo); "
    "dd if=/dev/zero of=/full/x bs=1M count=$((free / 1024 - 24)) 2>/dev/null; true",
    "memory free again": "umount /full",
    "a driver that waits for events": f"echo events >{SEED}",
    "a killed process whose parent does not ask": "mkdir -p /cg; mount -t cgroup2 none /cg; "
    "echo +memory >/cg/cgroup.subtree_control; mkdir /cg/dead; echo 8M >/cg/dead/memory.max; "
    "sh -c '(echo 0 >/cg/dead/cgroup.procs; exec tail /dev/zero) & exec sleep 1000' & "
    "echo $! >/tmp/jobs",
    "a core dump that takes long": "printf '#!/bin/sh\\nsleep 60\\n' >/slow; chmod +x /slow; "
    "echo '|/slow' >/proc/sys/kernel/core_pattern; /sleeping_threads 20 >/tmp/made & "
    "echo $! >/tmp/jobs; sleep 1; kill -ABRT $(cat /tmp/jobs)",
    "a frozen file system": FREEZE,
    "a file system again": "fsfreeze --unfreeze /mnt; dd if=/dev/zero of=/mnt/x bs=4k count=100 "
    "conv=fsync 2>/dev/null",
    "a disk that is busy": "losetup /dev/loop0 /ext4 2>/dev/null; for i in 1 2 3 4; do "
    "(while :; do dd if=/dev/loop0 of=/dev/null bs=4k iflag=direct; done 2>/dev/null) & "
    "echo $! >>/tmp/jobs; done",
}
SLOW_CLOCK = "adjtimex -t 9000 >/dev/null || echo failed"
"""The clock of time loses a second in ten, as one that NTP adjusts loses one in days. By the end of
the test it is far behind the scheduler's, which the emulator's TSC drives."""
SILENT_DISK = {"driver": "null-co", "node-name": "silent", "size": 1 << 20, "latency-ns": 10**12}
"""What is below a disk of the emulator: it answers after a quarter of an hour."""
SILENT_CARD = {"driver": "virtio-blk-pci", "drive": "silent", "cyls": 2, "heads": 16, "secs": 63}
"""The disk. The emulator would read its geometry, and stand still meanwhile."""
FLOOD = """
until [ -e /sys/class/net/eth0 ]; do usleep 100000; done
ifconfig eth0 10.9.9.1 up; arp -s 10.9.9.2 52:54:00:12:34:99
for i in 1 2 3 4 5 6 7 8; do ping -q -s 60000 -i 0.01 10.9.9.2 >/dev/null & done; true
"""
"""Sends packets to a peer that takes none."""
SILENT_FUSE = """
mkdir -p /silent; /silent_fuse /silent & echo $! >/tmp/jobs
until grep -q /silent /proc/mounts; do usleep 100000; done; ls /silent & true
"""
SILENT_SERVER = f"""
mkdir -p /disk; mount --bind /mnt /disk
{NFS}
ifconfig lo down; touch /nfs/x & echo $! >/tmp/jobs
"""
"""A file server, and a network that fails."""
FULL_MEMORY = "(while :; do tail /dev/zero; sleep 2; done) & echo $! >/tmp/jobs"
"""Processes are killed one after the other until it ends: a busy host is slow to look twice."""
FULL_GROUP = """
mkdir -p /cg; mount -t cgroup2 none /cg; echo +memory >/cg/cgroup.subtree_control; mkdir /cg/web
echo 8M >/cg/web/memory.max
(echo 0 >/cg/web/cgroup.procs; while :; do tail /dev/zero; done) & echo $! >/tmp/jobs
"""
END_JOBS = (
    f"kill -9 $(cat /tmp/jobs 2>/dev/null) 2>/dev/null; rm -f /tmp/jobs /tmp/x; echo end >{SEED}"
)


# ---- Asking --------------------------------------------------------------------------------------


def asked(running: Guest, *options: str) -> dict[str, Any]:
    """The answer of `peek why`, which must have the status that fits it."""
    done = peek("why", str(running.ram), "--json", "--longer-than", str(LONG_S), *options)
    assert done.returncode in (0, 3), done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["hangs"] == (done.returncode == 3) == bool(answer["verdicts"])
    return answer


def until(running: Guest, fits: Callable[[dict[str, Any]], bool], *options: str) -> dict[str, Any]:
    """The first answer that fits, or the last one."""
    end = time.monotonic() + STILL_S
    while True:
        answer = asked(running, *options)
        if fits(answer) or time.monotonic() > end:
            return answer


def named_first(running: Guest, hang: Hang, *options: str) -> str:
    """The first line about a hang, which must name its cause from the first answer on.

    On a busy host, the last thread of a chain may begin to wait seconds after the first.
    """
    answer = until(running, lambda one: bool(one["hangs"]), *options)
    assert answer["hangs"], hang.name
    causes = [one["cause"] for one in answer["verdicts"]]
    assert causes[0] == hang.cause, (hang.name, answer)

    def is_whole(one: dict[str, Any]) -> bool:
        return bool(one["hangs"]) and all(word in first_of(one) for word in hang.words)

    whole = answer if is_whole(answer) else until(running, is_whole, *options)
    print(f"{hang.name}: {first_of(whole)}")
    assert is_whole(whole), (hang.name, whole)
    return first_of(whole)


def first_of(answer: dict[str, Any]) -> str:
    """The first line of an answer."""
    return str(answer["verdicts"][0]["text"])


@contextmanager
def hanging(kernel: str, *, cpus: int = 2, **options: Any) -> Iterator[Guest]:
    """A guest with the module that makes hangs."""
    module = kbuild.module_for(kernels.resolve(kernel, Silent()), Silent(), MODULE, "hang.ko")
    with (
        folder_of_memory() as folder,
        guest(
            folder, (module, "/hang.ko"), *files(folder), kernel=kernel, cpus=cpus, **options
        ) as running,
    ):
        running.say(PREPARE)
        yield running


def files(folder: Path) -> list[tuple[Path, str]]:
    """A small ext4, and programs: one that starts threads, and a file system that is silent."""
    image = folder / "ext4"
    image.write_bytes(bytes(4 << 20))
    argv = ["/sbin/mke2fs", "-q", "-t", "ext4", "-F", str(image)]
    subprocess.run(argv, check=True, timeout=LIMIT_S)
    found = [(image, "/ext4")]
    for name in ("sleeping_threads", "silent_fuse"):
        source = ROOT / f"tests/lab/peek/frames/{name}.c"
        argv = ["cc", "-O1", "-static", "-pthread", str(source), "-o", str(folder / name)]
        subprocess.run(argv, check=True, timeout=LIMIT_S)
        found.append((folder / name, f"/{name}"))
    return found


def stock(kernel: str, *names: str) -> tuple[tuple[str, str], ...]:
    """The stock modules of some names, without those that a kernel has built in."""
    folder = kernels.resolve(kernel, Silent()).modules_dir
    assert folder is not None
    return tuple((name, "") for name in names if any(folder.rglob(f"{name}.ko*")))


# ---- Tests ---------------------------------------------------------------------------------------


def test_causes_of_hangs_are_named_first(kernel):
    hangs_in_a_row(kernel, HANGS)


@pytest.mark.nightly
def test_causes_of_all_hangs_are_named_first(kernel):
    hangs_in_a_row(kernel, MORE)


def hangs_in_a_row(kernel: str, hangs: Sequence[Hang]) -> None:
    with hanging(kernel, board=MANY_CPUS) as running:
        one_after_the_other(running, hangs)


def one_after_the_other(running: Guest, hangs: Sequence[Hang]) -> None:
    """Each hang, and nothing in between but for what an oops leaves."""
    threads = {one["name"] for one in json.loads(peek("ps", running.ram, "--json").stdout)}
    for hang in hangs:
        if hang.needs and hang.needs not in threads:
            continue
        running.send(hang.seed)
        if hang.name == "flush":  # what the oops before it has left is told meanwhile
            until(running, lambda one: one["verdicts"][0]["cause"] == "deadlock")
        is_on_cpu = hang.cause in ("cpu_held", "cpu_starved", "interrupts_off")
        options = ("--monitor", str(running.monitor)) if is_on_cpu else ()
        named_first(running, hang, *options)
        if hang.name == "vfork":
            text = peek("why", running.ram, "--longer-than", "3000").stdout
            assert "Note: 1 thread has been blocked for up to" in text
            one_of_all_hangs(running, hang)
        running.say(hang.end)
        if hang.cause != "oops" and hang.name != "flush":
            answer = until(running, lambda one: not one["hangs"])
            assert not answer["hangs"], (hang.name, answer)


def one_of_all_hangs(running: Guest, hang: Hang) -> None:
    """With --all it is found beside a machine that cannot be read."""
    emulator = emulator_of(running.ram)
    assert emulator is not None
    child = "print('ready', flush=True); input()"
    with started("qemu-system-x86_64", child, "-name", "trapless") as other:
        words = ("--all", "--vm", "trap*", "--json", "--longer-than", str(LONG_S))
        done = peek("why", *words)
    answers = {one["machine"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 3, done.stderr
    assert answers[f"trapless (process {emulator.pid})"]["verdicts"][0]["cause"] == hang.cause
    assert "none of its mappings has" in answers[f"trapless (process {other.pid})"]["error"]


def test_healthy_machine_hangs_in_nothing(kernel):
    more = ("asleep for long", "on all CPUs", "zombies", "events", "killed", "core dump", "is busy")
    names = [name for name in HEALTHY if any(one in name for one in ("idle", *more))]
    assert len(names) == 1 + len(more)
    healthy_states(kernel, names)


@pytest.mark.nightly
def test_healthy_machines_hang_in_nothing(kernel):
    assert len(HEALTHY) == 24
    healthy_states(kernel, list(HEALTHY))


def healthy_states(kernel: str, names: Sequence[str]) -> None:
    with hanging(kernel, modules=stock(kernel, *EXT4), append="tsc=reliable") as running:
        assert not asked(running)["hangs"], "just booted"
        assert "failed" not in running.say(SLOW_CLOCK)
        for name in names:
            assert "failed" not in running.say(HEALTHY[name])
            time.sleep(2 * LONG_S)
            answer = asked(running)
            assert not answer["hangs"], (name, answer)
            running.say(END_JOBS)


def test_panic_is_named_with_its_reason(kernel):
    with hanging(kernel) as running:
        running.say(STAY)
        running.send("echo c >/proc/sysrq-trigger")
        named_first(running, Hang("panic", "panic", ("panicked on CPU", ", in sh (", "sysrq")))
        assert " at most " in peek("why", running.ram).stdout
        log = peek("dmesg", running.ram).stdout
        assert "Kernel panic - not syncing: sysrq triggered crash" in log


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("commands", "words"),
    [
        (f"echo 1 >/proc/sys/kernel/panic_on_oops; echo oops >{SEED}", ("Fatal exception",)),
        ("echo 2 >/proc/sys/vm/panic_on_oom; tail /dev/zero", ("memory ran out",)),
        (
            "cd /proc/sys/kernel; echo 1 >hung_task_panic; echo 1 >hung_task_check_interval_secs; "
            f"echo 5 >hung_task_timeout_secs; echo mutex >{SEED}",
            ("threads were blocked",),
        ),
        (
            "cd /proc/sys/kernel; echo 1 >softlockup_panic; echo 5 >watchdog_thresh; "
            f"echo spin >{SEED}",
            ("a CPU did not schedule",),
        ),
    ],
    ids=["oops", "memory", "hung-task", "soft-lockup"],
)
def test_panics_of_all_kinds_are_named(kernel, commands, words):
    with hanging(kernel) as running:
        running.say(STAY)
        running.send(f"({commands}) &")

        def panicked(answer: dict[str, Any]) -> bool:
            return any(one["cause"] == "panic" for one in answer["verdicts"])

        until(running, panicked)
        named_first(running, Hang("panic", "panic", ("panicked", *words)))


def test_stopped_machine_is_told_from_one_that_hangs(kernel, tmp_path):
    """Paused by its monitor, stopped as a process, and its only CPU without interrupts."""
    with hanging(kernel, cpus=1) as running:
        running.say("(while :; do :; done) & true")
        with Monitor(running.monitor) as monitor, monitor.stopped():
            named_first(running, Hang("paused", "stopped", ("paused", "monitor")))
        emulator = emulator_of(running.ram)
        assert emulator is not None
        os.kill(emulator.pid, signal.SIGSTOP)
        try:
            named_first(running, Hang("process", "stopped", ("process", f"-CONT {emulator.pid}")))
            done = peek("why", running.ram, "--monitor", running.monitor)
            assert f"monitor at {running.monitor} does not answer; what the CPUs" in done.stdout
            assert f"-CONT {emulator.pid}" in done.stdout and done.returncode == 3
            assert f"(process {emulator.pid}), " in done.stdout.splitlines()[-1]
        finally:
            os.kill(emulator.pid, signal.SIGCONT)
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        running.send(f"echo interrupts_all >{SEED}")
        text = named_first(
            running, Hang("interrupts_all", "interrupts_off", ("clock stands still", "CPU 0"))
        )
        assert "interrupts are off" in text
        with daemon(tmp_path, "--vm", "trapless*") as served:
            cause = {"cause": "interrupts_off"}
            assert wait_until(lambda: served.value("trapless_vm_stuck_cause", **cause) >= 1)
            assert "no timer interrupts" in served.said() + served.get("")


@pytest.mark.nightly
def test_halted_machine_is_named(kernel):
    with hanging(kernel) as running:
        running.send("halt -n -f")
        named_first(running, Hang("halt", "halted", ("halted", "on request")))


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("append", "cause", "words"),
    [
        ("rdinit=/none root=/dev/none rootwait panic=0", "boot", ("root device",)),
        ("rdinit=/none root=/dev/none panic=0", "panic", ("no root file system",)),
    ],
    ids=["waits", "panics"],
)
def test_boot_that_ended_before_the_first_program_is_named(kernel, append, cause, words):
    with (
        folder_of_memory() as folder,
        guest(folder, kernel=kernel, append=append, boots=False) as running,
    ):
        deadline = time.monotonic() + STILL_S
        while peek("why", running.ram).returncode != 3 and time.monotonic() < deadline:
            time.sleep(1)
        named_first(running, Hang("boot", cause, words))


@pytest.mark.nightly
def test_disks_and_file_systems_that_do_not_answer_are_named(kernel):
    with hanging(kernel, modules=stock(kernel, *EXT4, "fuse", *NFS_MODULES, *VIRTIO)) as running:
        assert "failed" not in running.say(f"{FREEZE}; touch /mnt/x & true")
        named_first(running, Hang("frozen", "frozen", ("ext4", "loop0", "fsfreeze", "touch")))
        running.say("fsfreeze --unfreeze /mnt")
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        running.say(SILENT_FUSE)
        named_first(running, Hang("fuse", "server", ("ls", "FUSE")))
        running.say(END_JOBS)
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        running.say(SILENT_SERVER)
        named_first(running, Hang("nfs", "server", ("touch", "file server")))
        running.say(f"ifconfig lo up; {END_JOBS}")
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        running.say(FULL_MEMORY)
        named_first(running, Hang("memory", "memory", ("machine is out of memory", "killed")))
        running.say(END_JOBS)
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        running.say(FULL_GROUP)
        named_first(running, Hang("group", "memory", ("control group /web", "killed")))
        running.say(END_JOBS)
        assert not until(running, lambda one: not one["hangs"])["hangs"]
        with socket.create_server(("127.0.0.1", 0)) as deaf, Monitor(running.monitor) as monitor:
            where = f"127.0.0.1:{deaf.getsockname()[1]}"
            monitor._ask("netdev_add", {"type": "socket", "id": "deaf", "connect": where})
            monitor._ask("device_add", {"driver": "virtio-net-pci", "netdev": "deaf"})
            running.say(FLOOD)
            named_first(running, Hang("card", "network", ("network card eth0", "sent nothing")))
            monitor._ask("blockdev-add", dict(SILENT_DISK))
            monitor._ask("device_add", dict(SILENT_CARD))
            # What the card lacks is told until the disk has not answered for as long.
            until(running, lambda one: one["verdicts"][0]["cause"] == "storage")
            named_first(running, Hang("disk", "storage", ("The disk vda", "not answered")))
