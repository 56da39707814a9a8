# SPDX-License-Identifier: GPL-2.0-only
"""Stacks and counters that are read from a running kernel's memory, beside independent witnesses.

Threads that sleep are compared with the guest's own /proc/PID/stack, function by function; CPUs
that stand still with drgn, which unwinds from the emulator's registers; counts with /proc; stacks
of user mode with the source of the programs that have them. One guest of each kernel serves all.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S, ROOT, wait_until
from tests.lab.peek.watched_guest import (
    GUEST_LIMIT_S,
    Guest,
    folder_of_memory,
    guest,
    peek,
    recording,
)
from trapless.base.console import Silent
from trapless.peek.check.register_stacks import NOT_UNWOUND, Unwinder
from trapless.peek.emulator import emulator_with
from trapless.peek.errors import PeekError
from trapless.peek.interop.drgn_program import program
from trapless.peek.kernel.kernel_stacks import ThreadStack
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.sandbox.client import open_target
from trapless.peek.stacks.stops import opened, registers_of
from trapless.stock import kbuild, kernels
from trapless.vm.qmp import Monitor

pytestmark = [
    pytest.mark.outer_kernels,
    pytest.mark.tool,
    pytest.mark.timeout(1.2 * GUEST_LIMIT_S),
]

STALL = ROOT / "tests/lab/modules/stall"
FRAMES = ROOT / "tests/lab/peek/frames"
FRAME_OPTIONS = ["-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-nostdlib"]
WAITING = [f"{name} [frames-sleep]" for name in ("program_inner", "program_outer", "_start")]
SPINNING = [f"{name} [frames-spin]" for name in ("program_inner", "program_outer", "_start")]
"""The functions of the two programs, as their source has them, innermost first."""
SLEEPERS = """
/frames-sleep & sleep 1000 & mkfifo /tmp/pipe; (cat /tmp/pipe) & (read line </tmp/pipe) &
insmod /stall.ko cpu=1 length_us=100 pause_us=20000000
(while :; do find / -xdev >/dev/null; done) & busy=$!
"""
OWN = """
for folder in /proc/[0-9]*; do
    echo "== ${folder#/proc/}"; grep ctxt_switches $folder/status; cat $folder/stack
done 2>/dev/null
"""
FRAME = re.compile(r"\[<0>\] (\S+?)\+0x\w+/0x\w+( \[\w+\])?$")
COMPARED_MIN = 30
STOPS = 150
LATE = 0.8
"""A rate is of the time between two readings, and a recording is a little longer."""
WINDOWS = 6
"""Most times that counts are compared: a second reading comes late on a busy machine."""


def test_stacks_and_counts_are_the_kernels_own(kernel):
    resolved = kernels.resolve(kernel, Silent())
    stall = kbuild.module_for(resolved, Silent(), STALL, "stall.ko")
    with (
        folder_of_memory() as folder,
        guest(folder, (stall, "/stall.ko"), *programs(folder), kernel=kernel, cpus=2) as running,
    ):
        running.say(SLEEPERS)
        sleeping_threads_agree(running)
        stopped_cpus_agree(running)
        counts_agree(running, folder)
        user_stacks_are_the_programs_own(running)
        flame_graphs_have_all_of_it(running, folder)
        machine_behind_a_stub_is_read(running, folder)


def programs(folder: Path) -> list[tuple[Path, str]]:
    """Programs with frame pointers; the library of the first has symbols of its exports only."""

    def build(*words: str | Path) -> None:
        subprocess.run(["cc", *FRAME_OPTIONS, *map(str, words)], check=True, timeout=LIMIT_S)

    library, sleeping, spinning = (
        folder / name for name in ("libframes.so", "frames-sleep", "frames-spin")
    )
    soname = f"-Wl,-soname,{library.name}"
    build("-shared", "-fPIC", "-s", soname, FRAMES / "framed_library.c", "-o", library)
    build(FRAMES / "framed_program.c", library, "-Wl,-rpath,$ORIGIN", "-o", sleeping)
    build("-static", "-DSPIN", FRAMES / "framed_program.c", "-o", spinning)
    return [(one, f"/{one.name}") for one in (library, sleeping, spinning)]


# ---- Monitors ------------------------------------------------------------------------------------


@contextmanager
def emulator(name: str, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """A QEMU whose machine has not begun, and the socket of its monitor."""
    path = folder / name
    options = f"-name {name} -S -m 32 -display none -nodefaults -qmp unix:{path},server=on,wait=off"
    with subprocess.Popen(["qemu-system-x86_64", *options.split()]) as process:
        assert wait_until(path.exists)
        yield process, path
        process.terminate()


def test_monitor_of_another_machine_is_refused(tmp_path):
    with emulator("web", tmp_path) as (web, monitor), emulator("mail", tmp_path) as (mail, other):
        observed = emulator_with(web.pid)
        assert observed is not None
        with opened(monitor, observed) as found:
            assert found is not None and found.status() == "prelaunch"
        said = f"not the monitor of process {web.pid}, which is observed, but that of process "
        with pytest.raises(PeekError, match=rf"{said}{mail.pid} \(mail\)"), opened(other, observed):
            pass
        with pytest.raises(PeekError, match="no process of this user runs"), opened(other, None):
            pass


# ---- Threads that sleep --------------------------------------------------------------------------


def own_stacks(running: Guest) -> dict[int, str]:
    """What the guest says of each thread: how often it was switched, and its stack."""
    parts = re.split(r"^== (\d+)$", running.say(OWN), flags=re.M)[1:]
    return {int(pid): text for pid, text in zip(parts[::2], parts[1::2], strict=True)}


def own_functions(text: str) -> list[str]:
    """The functions of a stack as the guest shows it, innermost first, without the scheduler's."""
    found = (FRAME.match(line.strip()) for line in text.splitlines())
    return ["".join(name or "" for name in match.groups()) for match in found if match]


def functions(target: Target, one: ThreadStack) -> list[str]:
    """The same of a stack that was read from outside."""
    scheduler = range(target.symbol("__sched_text_start"), target.symbol("__sched_text_end"))
    assert one.stack is not None
    names = [
        str(target.name_of(address)) for address in one.stack.addresses if address not in scheduler
    ]
    return [re.sub(r"\+0x\w+", "", name) for name in names]


def sleeping_threads_agree(running: Guest) -> None:
    compared: set[int] = set()
    modules = False
    with open_target(running.ram) as target:
        for _ in range(WINDOWS):
            before = own_stacks(running)
            seen = {one.pid: one for one in target.thread_stacks() if one.stack is not None}
            after = own_stacks(running)
            lasting = {pid for pid in before if before[pid] == after.get(pid)}
            for pid in lasting & set(seen):  # none of them ran meanwhile
                found, wanted = functions(target, seen[pid]), own_functions(before[pid])
                assert wanted and found == wanted, f"{seen[pid].comm}: {found} {wanted}"
                assert seen[pid].stack.ending in (Ending.USER, Ending.BOTTOM), found
                modules |= any(name.endswith("[stall]") for name in found)
                compared.add(pid)
            if len(compared) >= COMPARED_MIN and modules:
                return
    raise AssertionError(f"{len(compared)} threads were compared; of a module: {modules}")


# ---- CPUs that stand still -----------------------------------------------------------------------


def stopped_cpus_agree(running: Guest) -> None:
    """In the kernel, the functions are those that drgn finds, and all stacks are whole."""
    whole = kernel_stacks = 0
    with (
        Target.open(running.ram) as target,
        open_target(running.ram) as sandboxed,
        Monitor(running.monitor) as monitor,
    ):
        unwinder = Unwinder(target, program(target))
        for _ in range(STOPS):
            time.sleep(0.01)
            with monitor.stopped():
                registers = monitor.registers()
                found = sandboxed.cpu_stacks(registers_of(registers))
                witnesses = [unwinder.stack(one) for one in registers]
            for one, witness, said in zip(registers, witnesses, found, strict=True):
                names = [
                    re.sub(r"\+0x\w+", "", str(target.name_of(at))) for at in said.stack.addresses
                ]
                assert bool(names) == (not one.user)
                if one.user or NOT_UNWOUND.match(names[0]):
                    continue
                kernel_stacks += 1
                whole += said.stack.ending in (Ending.USER, Ending.BOTTOM)
                # drgn knows no frames of modules: it ends there, or goes on where no code is.
                theirs = [name.split(" [")[0] for name in witness.names if name[:2] != "0x"]
                ours = [name.split(" [")[0] for name in names]
                assert ours[: len(theirs)] == theirs, f"{ours} {theirs}"
    assert kernel_stacks > STOPS // 2 and whole >= 0.98 * kernel_stacks, (whole, kernel_stacks)


# ---- User mode -----------------------------------------------------------------------------------


def user_stacks_are_the_programs_own(running: Guest) -> None:
    """Of a thread that waits in a library, of one that runs, and of one that a monitor stops."""
    with open_target(running.ram) as target:

        def of(comm: str) -> ThreadStack | None:
            return next((one for one in target.thread_stacks() if one.comm.says(comm)), None)

        waiting = of("frames-sleep")
        assert waiting is not None and waiting.stack is not None
        hidden, exported, *own = map(str, waiting.user.names)
        assert re.fullmatch(r"libframes\.so\+0x\w+", hidden), hidden
        assert (exported, own) == ("library_waits [libframes.so]", WAITING)
        assert waiting.user.whole and not waiting.user.earlier
        running.say("/frames-spin & echo $! >/tmp/spinning")

        def has_been_interrupted() -> bool:
            one = of("frames-spin")
            if one is None or one.stack is not None:
                return False
            return one.user.earlier and list(map(str, one.user.names)) == SPINNING

        assert wait_until(has_been_interrupted), of("frames-spin")


# ---- Counts --------------------------------------------------------------------------------------

KINDS = {"timer": "LOC", "reschedule": "RES", "function call": "CAL"}
ASKED = "cat /proc/interrupts; echo; sed -n 's/^ *//p' /proc/softirqs; grep ^cpu /proc/schedstat"


def counted(text: str) -> dict[str, list[int]]:
    """The numbers of each row of /proc's tables, by its first word."""
    rows = (line.split() for line in text.splitlines() if line.strip())
    return {
        words[0].rstrip(":"): [int(word) for word in words[1:] if word.isdigit()] for words in rows
    }


def counts_agree(running: Guest, folder: Path) -> None:
    """Rates lie between what the guest counts in the time inside a recording, and around it."""
    for window in range(WINDOWS):
        into = folder / f"counts-{window}"
        outside = counted(running.say(ASKED))
        with recording(running.way, into, "--seconds", "6") as process:
            time.sleep(1.5)
            inside = counted(running.say(ASKED))
            time.sleep(1.5)
            inside_end = counted(running.say(ASKED))
            assert process.wait() == 0
        outside_end = counted(running.say(ASKED))
        boot = json.loads(peek("report", "--json", into).stdout)["boots"][0]
        wrong = []
        for cpu, said in enumerate(boot["cpus"]):
            rates = {
                **{KINDS[name]: said["interrupts_per_s"][name] for name in KINDS},
                **{name.upper(): rate for name, rate in said["softirqs_per_s"].items()},
            }
            # Of /proc/schedstat's row, the eighth number is the run delay in ns.
            places = {name: (name, cpu) for name in rates} | {"delay": (f"cpu{cpu}", 7)}
            rates["delay"] = said["run_delay"] * 1e9
            for name, rate in rates.items():
                row, at = places[name]
                least = inside_end[row][at] - inside[row][at]
                most = outside_end[row][at] - outside[row][at]
                count = rate * boot["seconds"]
                if not LATE * least <= count <= most / LATE:
                    wrong.append((cpu, name, count, least, most))
        if not wrong:
            assert boot["cpus"][0]["interrupts_per_s"]["timer"] > 1
            return
    raise AssertionError(wrong)


# ---- The commands --------------------------------------------------------------------------------


def flame_graphs_have_all_of_it(running: Guest, folder: Path) -> None:
    for window in range(WINDOWS):
        folded = flame_graphs(running, folder, window)
        # In a window of a busy machine the guest's processors may not come to `find`.
        if any(line.startswith("CPUs;find;") and "do_syscall_64" in line for line in folded):
            break
    else:
        raise AssertionError(folded)
    assert any(
        re.match(r"threads that wait;sleep;\(sleeping\);.*;hrtimer_nanosleep;.* \d+$", line)
        for line in folded
    ), folded
    spinning = f"CPUs;frames-spin;{';'.join(reversed(SPINNING))} "
    assert any(line.startswith(spinning) for line in folded), folded
    waiting = ";".join([*reversed(WAITING), "library_waits [libframes.so]", "libframes.so+0x"])
    in_kernel = ";entry_SYSCALL_64_after_hwframe;do_syscall_64;"
    assert any(
        line.startswith(f"threads that wait;frames-sleep;(sleeping);{waiting}")
        and in_kernel in line
        for line in folded
    ), folded
    running.say("kill $(cat /tmp/spinning)")
    assert wait_until(lambda: running.say("echo alive") == "alive")  # it was let go


def flame_graphs(running: Guest, folder: Path, window: int) -> list[str]:
    """Record stacks for a while; what a flame graph of it is made of, line by line."""
    saved, page, lines = (
        folder / name for name in (f"stacks{window}", f"s{window}.json", f"s{window}.folded")
    )
    options = ("--seconds", "4", "--stacks", "20", "--monitor", str(running.monitor))
    with recording(running.way, saved, *options) as process:
        assert process.wait() == 0 and process.stderr is not None
        assert "samples," in process.stderr.read()
    for path in (page, lines):
        done = peek("report", "--stacks", path, saved)
        assert done.returncode == 0, done.stderr
        assert "What CPUs executed" in done.stdout and "Where threads waited" in done.stdout
    made = json.loads(page.read_text())
    names = [one["name"] for one in made["shared"]["frames"]]
    assert {one["name"] for one in made["profiles"]} == {"CPUs", "threads that wait"}
    for one in made["profiles"]:
        assert one["endValue"] == pytest.approx(sum(one["weights"])) and one["endValue"] > 0
        assert all(0 <= frame < len(names) for sample in one["samples"] for frame in sample)
    return lines.read_text().splitlines()


def machine_behind_a_stub_is_read(running: Guest, folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with Monitor(running.monitor) as monitor:
        monitor.offer_stub(port)
    way = ("--gdb", f"127.0.0.1:{port}")
    done = peek("shell", *way, "-c", "print(target.release, find_task(1).comm.string_())")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [running.say("uname -r"), "b'init'"]
    saved = folder / "behind"
    with recording(way, saved, "--seconds", "6", "--stacks", "2") as process:
        said, noted = process.communicate()
        assert process.returncode == 0, noted
    assert "20 a second at most" in noted and "samples" in said
    shown = peek("report", saved).stdout
    assert "What CPUs executed" in shown and re.search(
        r"^ find .*do_syscall_64|^ \d+ +find", shown, re.M
    )
    assert running.say("echo alive") == "alive"  # it was let go
