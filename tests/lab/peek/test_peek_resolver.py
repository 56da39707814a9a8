# SPDX-License-Identifier: GPL-2.0-only
"""A running kernel, read from outside, beside what it says of itself in /proc and /sys.

One boot for each kernel and way of booting; the observer looks while the guest sleeps.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import drgn
import pytest
from drgn.helpers.linux.cpumask import for_each_online_cpu
from drgn.helpers.linux.percpu import per_cpu
from drgn.helpers.linux.pid import find_task, for_each_task
from drgn.helpers.linux.printk import get_dmesg

from tests.lab.command import COMMAND, LIMIT_S, wait_until
from tests.lab.peek.watched_guest import folder_of_memory, peek, started_by
from trapless.peek.interop.drgn_program import program
from trapless.peek.machines import Image, Machine
from trapless.peek.sandbox.variables import VARIABLES
from trapless.vm import lab

pytestmark = pytest.mark.timeout(2 * LIMIT_S)

OPEN_S_MAX = 5.0
"""The limit is processor time, so that a busy machine does not decide."""

MOVES_S_MAX = 60.0
"""For a tick: the virtual CPUs of a busy machine may stand still for long."""

MODULE = "loop"
GUEST = """
uname -r; cat /proc/version; cat /sys/devices/system/cpu/online
echo == btf; sha256sum < /sys/kernel/btf/vmlinux
echo == symbols; awk 'NR % 41 == 0 && NF == 3' /proc/kallsyms
echo == module; grep '\\[loop\\]$' /proc/kallsyms
echo == modules; cat /proc/modules
echo == memory; cat /proc/iomem
echo == tasks; for f in /proc/[0-9]*/stat; do cat $f; done 2>/dev/null
echo == ready
sleep 600
"""

AS_IT_COMES = {"memory": "512M"}
OTHER_WAYS: dict[str, dict[str, Any]] = {
    "4 levels, no KASLR, above 4 GiB": {"memory": "4G", "append": "no5lvl nokaslr"},
    "in a process, q35, of two nodes": {
        "memory": "6G",
        "board": "q35",
        "nodes": 2,
        "shared_memory": None,
    },
}


class SeenEnoughError(Exception):
    """Ends a guest that has nothing more to do."""


@dataclass
class Seen:
    """What the guest printed, and what was read while it slept."""

    said: dict[str, list[str]] = field(default_factory=dict)
    found: dict[str, Any] = field(default_factory=dict)


def sections(text: str) -> dict[str, list[str]]:
    """The guest's output by its headings."""
    parts = re.split(r"^== (\w+)\n", "== head\n" + text, flags=re.M)
    return {name: body.splitlines() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def observe(machine: Machine, said: dict[str, list[str]]) -> dict[str, object]:
    """All that needs the target to be there."""
    began = time.process_time()
    with machine.open(sandbox=False) as target:
        seconds = time.process_time() - began
        prog = program(target)
        start = target.symbol("__start_BTF")
        types = target.read(start, target.symbol("__stop_BTF") - start)
        addresses = [int(line.split()[0], 16) for line in said["symbols"] + said["module"]]
        text, end = target.symbol("_text"), target.symbol("_end")
        running = target.offset("rq", "nr_running")
        found: dict[str, Any] = {
            "seconds": seconds,
            "release": str(target.release),
            "banner": str(target.banner),
            "cpus": target.cpus_online,
            "levels": target.page_tables.form.levels,
            "btf": hashlib.sha256(types).hexdigest(),
            "names": {one: str(target.name_of(one)) for one in addresses},
            "symbols": {name: target.symbols.address(name) for name in ("_text", "init_task")},
            "image": (target.physical(text), target.physical(end - 1)),
            "image length": end - text,
            "memory end": target.memory_end(),
            "modules": {
                str(module.name): sum(length for _, length in module.spans)
                for module in target.modules
            },
            "tasks": {int(task.pid): task.comm.string_() for task in for_each_task(prog)},
            "drgn's CPUs": tuple(for_each_online_cpu(prog)),
            "drgn's run queues": [
                int(per_cpu(prog["runqueues"], cpu).nr_running.address_)
                for cpu in target.cpus_online
            ],
            "run queues": [target.percpu("runqueues", cpu) + running for cpu in target.cpus_online],
            "kernel's log": get_dmesg(prog).decode(),
            "variables": [str(prog[name].type_) for name in VARIABLES if name in prog],
            "init's stack": str(prog.stack_trace(find_task(prog, 1))),
            "offsets": [
                (
                    drgn.offsetof(prog.type(f"struct {record}"), member),
                    target.offset(record, member),
                )
                for record, member in (
                    ("task_struct", "pid"),
                    ("task_struct", "se.exec_start"),
                    ("rq", "curr"),
                    ("mm_struct", "pgd"),
                )
            ],
        }
        jiffies = target.symbol("jiffies_64")
        before = target.read_u64(jiffies)
        found["moves"] = wait_until(lambda: target.read_u64(jiffies) > before, MOVES_S_MAX)
        target.check_same()
    return found


@pytest.fixture
def memory() -> Iterator[Path]:
    with folder_of_memory() as folder:
        yield folder / "ram"


def test_kernel_is_what_it_says_of_itself(kernel, memory):
    agree(boot(kernel, memory, AS_IT_COMES), four_levels=False)


@pytest.mark.tool
@pytest.mark.parametrize("way", OTHER_WAYS)
def test_kernel_is_what_it_says_of_itself_on_other_machines(kernel, way, memory):
    how = OTHER_WAYS[way]
    agree(boot(kernel, memory, how), four_levels="no5lvl" in how.get("append", ""))


def boot(kernel: str, memory: Path, how: dict[str, Any]) -> Seen:
    """Start a guest in one of the ways, and look at it while it sleeps."""
    seen, output = Seen(), b""

    def look(data: bytes) -> None:
        nonlocal output
        output += data
        if b"== ready\n" in output:
            seen.said = sections(output.decode())
            (process,) = started_by(os.getpid())
            machine = Image(memory) if memory.exists() else process
            seen.found = observe(machine, seen.said)
            raise SeenEnoughError

    config = lab.LabConfig(
        kernel=kernel,
        module=False,
        modules=((MODULE, ""),),
        **{"shared_memory": memory, **how},
    )
    with pytest.raises(SeenEnoughError):
        lab.run(config, ["sh", "-c", GUEST], sink=look)
    return seen


def agree(seen: Seen, four_levels: bool) -> None:
    said, found = seen.said, seen.found
    release, version, online = said["head"][:3]
    assert (found["release"], found["banner"]) == (release, version)
    assert online == "0-1" and found["cpus"] == found["drgn's CPUs"] == (0, 1)
    assert not four_levels or found["levels"] == 4
    assert said["btf"][0].split()[0] == found["btf"]
    symbols_agree(said, found)
    tasks_agree(said, found)
    memory_agrees(said, found)
    assert found["run queues"] == found["drgn's run queues"]
    assert all(theirs == ours for theirs, ours in found["offsets"])
    assert "loop: module loaded" in found["kernel's log"]
    assert len(found["variables"]) > 40
    assert found["moves"]  # it is alive, and we see it live
    assert found["seconds"] < OPEN_S_MAX


def symbols_agree(said, found):
    lines = [line.split() for line in said["symbols"]]
    image = [line for line in lines if int(line[0], 16) >= found["symbols"]["_text"]]
    assert len(image) > 1000
    names: dict[int, set[str]] = {}
    for address, _, name in image:
        names.setdefault(int(address, 16), set()).add(name)
    # Several names may share an address: then any of them is right, but it must be that place.
    wrong = {
        hex(address): (found["names"][address], wanted)
        for address, wanted in names.items()
        if "+" in found["names"][address]
    }
    assert not wrong
    exact = sum(found["names"][address] in wanted for address, wanted in names.items())
    assert exact > 0.8 * len(names)
    for line in said["module"]:
        address, _, name, _ = line.split()
        assert found["names"][int(address, 16)].endswith(f" [{MODULE}]"), name
    modules = {line.split()[0]: int(line.split()[1]) for line in said["modules"]}
    assert found["modules"] == modules
    assert MODULE in modules


def tasks_agree(said, found):
    tasks = dict(re.match(r"(\d+) \((.*)\)", line).groups() for line in said["tasks"])
    assert len(tasks) > 40
    lasting = {int(pid): name.encode() for pid, name in tasks.items() if name != "cat"}
    for pid, name in lasting.items():
        assert pid in found["tasks"], name
        # /proc has the longer names of kernel threads, and of workers what they worked on last.
        assert name.startswith(b"kworker") or found["tasks"][pid] == name[:15]
    assert "do_syscall_64" in found["init's stack"]


def memory_agrees(said, found):
    spans = re.findall(r"^\s*(\w+)-(\w+) : (.*)$", "\n".join(said["memory"]), re.M)
    ram = [int(end, 16) + 1 for _, end, what in spans if what == "System RAM"]
    (code,) = [int(start, 16) for start, _, what in spans if what == "Kernel code"]
    assert found["memory end"] == ram[-1]
    first, last = found["image"]
    assert first == code
    assert last - first == found["image length"] - 1


def test_shell_opens_on_the_running_lab(memory):
    argv = [COMMAND, "lab", "--no-module", "--shared-memory", str(memory)]
    with subprocess.Popen(
        [*argv, "--", "sh", "-c", "echo ready; exec sleep 1000"], stdout=subprocess.PIPE
    ) as guest:
        try:
            assert guest.stdout is not None and guest.stdout.readline() == b"ready\n"
            code = "print(find_task(1).comm.string_().decode(), len(list(for_each_task())))"
            done = peek("shell", "--ram", memory, "-c", code)
            assert done.returncode == 0, done.stderr
            assert re.fullmatch(r"init \d\d+\n", done.stdout)
        finally:
            guest.terminate()
