# SPDX-License-Identifier: GPL-2.0-only
"""Other tools on a dump, with what `trapless peek export` and the plug-in for drgn give them in the
place of debug symbols: they find what the guest itself says.

One boot for each kernel. It has page tables of four levels, because volatility3 reads no others.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab.command import LIMIT_S, ROOT
from tests.lab.peek.watched_guest import GUEST_LIMIT_S, folder_of_memory, guest, peek
from trapless.peek.machines import Image
from trapless.stock import kernels
from trapless.vm.qmp import Monitor

pytestmark = [pytest.mark.tool, pytest.mark.timeout(2 * GUEST_LIMIT_S)]

PREPARE = """
ifconfig lo 127.0.0.1 up; mkdir -p /mnt; mount -t tmpfs none /mnt
nc -l -p 7777 </dev/null & sleep 12345 3</etc/passwd & sleep 1
"""
PLUGINS = ["PsList", "PsTree", "Lsmod", "Lsof", "Sockstat", "PsAux", "Kmsg", "MountInfo"]
VOLATILITY = "volatility3>=2.26,<3"
MODULES = {"dummy", "loop"}

OLDEST = kernels.GUESTS[0].name

HELPERS_THAT_FAIL = {
    "kconfig: get_kconfig()": "Debian's kernels lack CONFIG_IKCONFIG",
    "panic: (panic_message(), panic_task())": "the guest has not panicked",
    "timekeeping: (uptime(),": "tk_core has a type without a name, or another form",
    "stack: print_annotated_stack(": "drgn takes numbers on the stack for addresses of objects",
}
"""The beginning of each call of drgn_helpers.py that may fail, and the reason."""
HELPERS_THAT_FAIL_ON_THE_OLDEST = {
    "kallsyms: load_vmlinux_kallsyms": "the note does not say where the symbols are",
    "kthread: kthread_data": "drgn's own limit",
    "mapletree:": "it is newer",
    "mm: ": "drgn does not find vmemmap of such a kernel",
    "slab: ": "as for mm",
    "swap: ": "swapper_spaces has no type",
}


@pytest.mark.long
def test_other_tools_find_what_the_guest_says(kernel, tmp_path):
    find_what_the_guest_says(kernel, tmp_path, HELPERS_THAT_FAIL)


@pytest.mark.nightly
def test_other_tools_find_what_the_guest_with_the_oldest_kernel_says(tmp_path):
    fails = HELPERS_THAT_FAIL | HELPERS_THAT_FAIL_ON_THE_OLDEST
    find_what_the_guest_says(OLDEST, tmp_path, fails)


def find_what_the_guest_says(kernel: str, folder: Path, fails: dict[str, str]) -> None:
    core, table = folder / "core", folder / "tables" / "linux" / "guest.json.xz"
    table.parent.mkdir(parents=True)
    own = dumped(kernel, folder / "dump")
    done = peek("export", "--core", core, "--isf", table, folder / "dump")
    assert done.returncode == 0, done.stderr
    helpers_of_drgn_work(core, own, fails)
    debugger_has_symbols_and_code(core, folder / "symbols")
    (folder / "dump").unlink()
    plugins_of_volatility_agree(core, table.parents[1], own)


def dumped(kernel: str, dump: Path) -> dict[str, str]:
    """Dump a guest that does something; what it says of itself at that time."""
    modules = tuple((name, "") for name in sorted(MODULES))
    with (
        folder_of_memory() as folder,
        guest(folder, kernel=kernel, cpus=2, append="no5lvl", modules=modules) as running,
    ):
        running.say(PREPARE)
        own = {name: running.say(command) for name, command in ASKED.items()}
        with Monitor(running.monitor) as monitor:
            monitor.dump(dump)
    return own


ASKED = {
    "stat": "cat /proc/[0-9]*/stat 2>/dev/null",
    "modules": "cat /proc/modules",
    "mounts": "cat /proc/1/mountinfo",
    "sleep": "pidof sleep",
    "nc": "pidof nc",
    "files": "for fd in /proc/$(pidof sleep)/fd/*; do readlink $fd; done",
    "log": "dmesg",
}


# ---- drgn and gdb --------------------------------------------------------------------------------


def drgn_on(core: Path, *arguments: str) -> str:
    """What drgn prints about a core, with the plug-in as pip would install it."""
    plugin = {"DRGN_PLUGINS": "trapless=trapless.peek.interop.drgn_plugin", "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "drgn", "-q", "-c", str(core), *arguments]
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=LIMIT_S, check=False, env=os.environ | plugin
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def helpers_of_drgn_work(core: Path, own: dict[str, str], fails: dict[str, str]) -> None:
    said = drgn_on(core, str(ROOT / "tests/lab/peek/interop/drgn_helpers.py")).splitlines()[-1]
    errors = json.loads(said)
    assert len(errors) > 80
    unexplained = {
        call: error
        for call, error in errors.items()
        if error and not any(call.startswith(one) for one in fails)
    }
    assert not unexplained
    stack = drgn_on(core, "-e", f"print(prog.stack_trace({own['sleep']}))")
    assert "schedule+" in stack and "entry_SYSCALL_64" in stack


def debugger_has_symbols_and_code(core: Path, symbols: Path) -> None:
    assert peek("export", "--symbols", symbols, core).returncode == 0
    with Image(core).open() as target:
        schedule = target.symbol("schedule")
        module = target.module_symbol("loop", "lo_ioctl")
    commands = ["info address schedule", "x/2i schedule", f"info symbol {module}", "bt"]
    argv = ["gdb", "-batch", "-nx", *(f"-ex={one}" for one in commands), str(symbols), str(core)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False).stdout
    assert f'Symbol "schedule" is at {schedule:#x}' in said
    assert "<schedule>:" in said and "lo_ioctl in section .loop" in said
    symbols.unlink()


# ---- volatility3 ---------------------------------------------------------------------------------


def plugins_of_volatility_agree(core: Path, tables: Path, own: dict[str, str]) -> None:
    rows = dict(run_plugins(core, tables))
    threads = {}
    for line in own["stat"].splitlines():
        pid, name, parent = re.match(r"(\d+) \((.*)\) \S (\d+)", line).groups()
        if name != "cat" and not name.startswith("kworker"):  # these come and go
            threads[int(pid)] = (name[:15], int(parent))
    found = {
        row["PID"]: (row["COMM"], row["PPID"])
        for row in rows["PsList"]
        if not row["COMM"].startswith("kworker")
    }
    assert found == threads
    assert {row["PID"] for row in rows["PsTree"]} == {row["PID"] for row in rows["PsList"]}
    loaded = {line.split()[0] for line in own["modules"].splitlines()}
    assert loaded >= MODULES and {row["Module Name"] for row in rows["Lsmod"]} == loaded
    pid = int(own["sleep"])
    files = [row["Path"] for row in rows["Lsof"] if row["PID"] == pid]
    assert "/etc/passwd" in files and len(files) == len(own["files"].splitlines())
    arguments = {row["PID"]: row["ARGS"] for row in rows["PsAux"]}
    assert arguments[pid] == "sleep 12345"
    listens = [row for row in rows["Sockstat"] if row["State"] == "LISTEN"]
    assert [(row["PID"], int(row["Source Port"])) for row in listens] == [(int(own["nc"]), 7777)]
    lines = {row["line"].strip() for row in rows["Kmsg"]}
    logged = {re.sub(r"^\[ *[\d.]+\] ", "", one).strip() for one in own["log"].splitlines()}
    assert len(logged) > 200 and len(logged - lines) <= len(logged) // 100
    mounts = {line.split()[4] for line in own["mounts"].splitlines()}
    assert "/mnt" in mounts and {row["MOUNT_POINT"] for row in rows["MountInfo"]} >= mounts


def run_plugins(core: Path, tables: Path) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    cache, library = tables.with_name("cache"), tables.with_name("library")
    cache.mkdir()
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", library, VOLATILITY]
    subprocess.run(pip, timeout=GUEST_LIMIT_S, check=True)
    classes = [f"{one.lower()}.{one}" for one in PLUGINS]
    program = [sys.executable, "-m", "tests.lab.peek.interop.volatility_run"]
    done = subprocess.run(
        [*program, *map(str, (core, tables, cache)), *classes],
        capture_output=True,
        text=True,
        timeout=GUEST_LIMIT_S,
        check=False,
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(library)},
    )
    assert done.returncode == 0, done.stderr
    for name, line in zip(PLUGINS, done.stdout.splitlines(), strict=True):
        yield name, json.loads(line)
