# SPDX-License-Identifier: GPL-2.0-only
"""Peek's commands on a target that changes or ends: modules that come and go, memory that is cut or
damaged, a guest that is reset, then one that crashes. One guest serves all.

Each recording must be whole, and each message must say what happened.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from pathlib import Path

import drgn
import pytest

from tests.lab.command import COMMAND, LIMIT_S, ROOT, wait_until
from tests.lab.peek.watched_guest import (
    GUEST_LIMIT_S,
    Guest,
    folder_of_memory,
    guest,
    peek,
    recording,
)
from tests.unit.peek.kernel.image_writers import IMAGES
from trapless.base.console import Silent
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import Ending
from trapless.peek.machines import Image
from trapless.peek.sampling.recording import Recording
from trapless.stock import kbuild, kernels
from trapless.vm import lab
from trapless.vm.qmp import Monitor

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1.2 * GUEST_LIMIT_S)]

STALL = ROOT / "tests/lab/modules/stall"
BOOT = "cat /proc/sys/kernel/random/boot_id"
COUNT = "print(target.release, len(list(for_each_task())))"


def test_what_does_not_last_is_looked_at_to_its_end():
    resolved = kernels.resolve(lab.DEFAULT_KERNEL, Silent())
    stall = kbuild.module_for(resolved, Silent(), STALL, "stall.ko")
    with folder_of_memory() as folder, guest(folder, (stall, "/stall.ko"), cpus=2) as running:
        modules_come_and_go(running, folder / "modules")
        core_of_the_emulator_is_opened(running, folder / "core")
        dumps_of_other_formats_are_opened(running, folder / "dump")
        copies_that_are_cut_or_lie_are_refused(running, folder)
        reset_is_followed(running, folder)
        crash_is_seen_to_its_end(running, folder / "crash")


def is_whole(folder: Path) -> None:
    saved = Recording.open(folder)
    assert saved.problems == () and saved.end is not None
    assert saved.end["rows"] == sum(table.num_rows for table in saved.tables()) > 0
    assert peek("report", folder).returncode == 0


def modules_come_and_go(running: Guest, folder: Path) -> None:
    with Target.open(running.ram) as target, recording(running.way, folder) as process:
        running.say("(until [ -e /tmp/seen ]; do insmod /stall.ko; rmmod stall; done) & turns=$!")
        seen = set()
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline and {True, False} - seen:
            target.modules.refresh()
            seen.add(any(module.name.says("stall") for module in target.modules))
        running.say("touch /tmp/seen; wait $turns; insmod /stall.ko")
        target.modules.refresh()
        (module,) = (one for one in target.modules if one.name.says("stall"))
        assert str(target.name_of(module.spans[0][0])).endswith("[stall]")
        process.terminate()
        assert process.wait(LIMIT_S) == 0
        running.say("rmmod stall")
        target.modules.refresh()
        assert str(target.name_of(module.spans[0][0])) == f"{module.spans[0][0]:#x}"
    assert seen == {True, False}
    is_whole(folder)


def core_of_the_emulator_is_opened(running: Guest, core: Path) -> None:
    with Monitor(running.monitor) as monitor:
        monitor.dump(core)
    done = peek("shell", "--ram", core, "-c", COUNT)
    assert done.returncode == 0, done.stderr
    release, tasks = done.stdout.split()
    assert release == running.say("uname -r").strip() and int(tasks) > 30
    assert "is not the RAM of a running machine" in peek("record", "--ram", core, "no").stderr
    core.unlink()


def dumps_of_other_formats_are_opened(running: Guest, dump: Path) -> None:
    for paging, format_ in ((True, "elf"), (False, "kdump-zlib")):
        with Monitor(running.monitor) as monitor:
            monitor.dump(dump, paging=paging, format_=format_)
        dumped_kernel_is_read(dump, cpus=2)
        exported_core_is_taken_by_drgn(dump, dump.with_name("exported"))
        dump.unlink()
    ram = running.ram.read_bytes()
    for name in ("lime", "avml", "kdump-zstd", "migration", "raw.gz"):
        dump.write_bytes(IMAGES[name](ram))
        dumped_kernel_is_read(dump, cpus=0)
    dump.unlink()


def dumped_kernel_is_read(dump: Path, cpus: int) -> None:
    """The kernel in an image has all its stacks, also those of CPUs where registers are there."""
    with Image(dump).open() as target:
        assert len(target.thread_stacks()) > 30
        bottoms = [one.stack.ending for one in target.cpu_stacks(target.saved_registers())]
        assert len(target.saved_registers()) >= cpus
        assert not cpus or Ending.LOST not in bottoms


def exported_core_is_taken_by_drgn(dump: Path, core: Path) -> None:
    assert peek("export", "--core", core, dump).returncode == 0
    program = drgn.Program()
    program.set_core_dump(core)
    assert program.flags & drgn.ProgramFlags.IS_LINUX_KERNEL
    with Image(dump).open() as target:
        for name in ("linux_banner", "init_task"):  # in the image, and by the note's page tables
            address = target.symbol(name)
            assert program.read(address, 64) == target.read(address, 64)
    core.unlink()


def copies_that_are_cut_or_lie_are_refused(running: Guest, folder: Path) -> None:
    copy = folder / "copy"
    with Monitor(running.monitor) as monitor, monitor.stopped():
        shutil.copyfile(running.ram, copy)
    with Target.open(copy) as target:
        names = target.physical(target.info.symbol("kallsyms_names"))
        release = target.release
    with recording(("--ram", str(copy)), folder / "cut") as process:
        time.sleep(1)
        with copy.open("r+b") as file:
            file.truncate(1 << 20)
        said, noted = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "the VM's memory went away" in said, noted
    is_whole(folder / "cut")
    shutil.copyfile(running.ram, copy)
    with copy.open("r+b") as file:
        file.seek(names + 1000)
        file.write(bytes(range(256)) * 16)
    done = peek("shell", "--ram", copy, "-c", COUNT)
    assert done.returncode == 1 and done.stdout == ""
    assert f"has the VMCOREINFO of {release}, but no such kernel" in done.stderr
    assert "table of symbols" in done.stderr and "Traceback" not in done.stderr
    copy.unlink()


def reset_is_followed(running: Guest, folder: Path) -> None:
    boot = running.say(BOOT)
    log = folder / "top"
    with Target.open(running.ram) as before, log.open("w") as shown:
        running.send("echo 'from before' >/dev/kmsg")
        argv = [COMMAND, "peek", "top", "--json", *running.way]
        with (
            subprocess.Popen(argv, stdout=shown, stderr=subprocess.PIPE, text=True) as top,
            recording(running.way, folder / "reset") as process,
        ):
            assert wait_until(lambda: log.stat().st_size)  # it knows the kernel as well
            with Monitor(running.monitor) as monitor:
                monitor.reset()
            second = folder / "reset/boot-2/meta.json"
            assert wait_until(lambda: second.exists() or process.poll() is not None)
            assert wait_until(lambda: '"boot": 2, "user' in log.read_text())
            for one in (process, top):
                one.terminate()
            said, noted = process.communicate(timeout=LIMIT_S)
            assert "samples of 2 boots" in said and "the machine was restarted" in noted, said
            assert top.wait(LIMIT_S) == 0
        # before.check_same() need not notice it: a kernel placed elsewhere may leave all of it.
        with Target.open(running.ram) as after:
            assert after.identity != before.identity
    seconds = [json.loads(line) for line in log.read_text().splitlines()]
    boots = [one["boot"] for one in seconds]
    assert boots == sorted(boots) and {1, 2} == set(boots)
    assert [one["boot"] for one in seconds if one.get("restarted")] == [1]
    first, later = Recording.open(folder / "reset").boots()
    assert first.end is not None and first.end["ending"] == "restart"
    assert first.problems == later.problems == ()
    assert 0 < sum(table.num_rows for table in first.tables()) < first.end["rows"]
    is_whole(later.folder)
    assert "boot 2 of 2" in peek("report", folder / "reset").stdout
    assert running.say(BOOT) != boot
    done = peek("shell", *running.way, "-c", "print(get_dmesg().decode())")
    assert done.returncode == 0, done.stderr  # whatever notes the old kernel has left
    assert "Linux version" in done.stdout and "from before" not in done.stdout


def crash_is_seen_to_its_end(running: Guest, folder: Path) -> None:
    with Monitor(running.monitor) as monitor:
        monitor.end_at_reboot()
    with recording(running.way, folder) as process:
        time.sleep(1)
        running.send("echo c >/proc/sysrq-trigger")
        said, noted = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0 and "the VM has ended" in said, noted
    is_whole(folder)
    assert "kernel panicked" in running.complaint()
    done = peek("shell", "--ram", running.ram, "-c", "print(get_dmesg().decode())")
    assert done.returncode == 0, done.stderr
    assert "sysrq: Trigger a crash" in done.stdout and "sysrq_handle_crash" in done.stdout
