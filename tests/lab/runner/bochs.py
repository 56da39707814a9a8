# SPDX-License-Identifier: GPL-2.0-only
"""Runs the lab's runner in Bochs, whose processor has IBT, LASS and shadow stacks. QEMU's has not.

This file owns the machine: its processor, the CD that it boots from, and the serial line on which
the runner's lines come. suite.py owns the programs, and verdict.py judges them. Bochs finds faults
in its own way, so the kernel complains while it boots (of CPUID's leaves, for one): only what it
says while a program runs is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from trapless.base import tools
from trapless.base.console import Progress, TraplessError
from trapless.stock import kbuild, kernels, real_programs
from trapless.vm import guest_tree
from trapless.vm.lab import LabConfig
from trapless.vm.splats import splats

TOOLS = {
    "grub-mkrescue": "grub-common grub-pc-bin",
    "xorriso": "xorriso",
    "mformat": "mtools",
}

SUITE = "trixie"
PACKAGES = ("bochs", "bochs-term", "bochsbios", "vgabios")
"""Debian 13 has Bochs 3.0. Debian 12's 2.7 has no LASS, and contradicts itself about the size of
the extended state (XSAVE). In Debian sid's 3.1 the 64-bit `idiv` is wrong, as a boot sector
shows that divides 1,000,000,000 by 1: each run prints another result. No kernel comes to its first
program there."""
LIBRARIES = "usr/lib/x86_64-linux-gnu"

CONFIG = """\
megs: 1024
cpu: model=arrow_lake, count={cpus}, ips={ticks_per_s}, reset_on_triple_fault=0, ignore_bad_msrs=1
romimage: file={root}/usr/share/bochs/BIOS-bochs-latest
vgaromimage: file={root}/usr/share/vgabios/vgabios.bin
ata0: enabled=1, ioaddr1=0x1f0, ioaddr2=0x3f0, irq=14
ata0-master: type=cdrom, path={folder}/disc.iso, status=inserted
boot: cdrom
display_library: rfb, options="timeout=0"
com1: enabled=1, mode=file, dev={folder}/serial.txt
clock: sync=none, time0=1767225600
log: {folder}/bochs.log
panic: action=fatal
error: action=report
info: action=ignore
debug: action=ignore
"""
"""The oldest processor of Bochs that has LASS. Its clocks count instructions."""

TICKS_PER_S = 38_400_000
"""The clock rate of the local APIC's timer by this processor's CPUID. So many instructions are a
second, and the kernel's timers are right."""

MENU = """\
set timeout=0
menuentry x {{
	linux /boot/vmlinuz {words}
	initrd /boot/initrd
}}
"""
WORDS = (
    "console=ttyS0 rdinit=/init oops=panic panic=0 loglevel=1"
    f" tsc=unstable clocksource=acpi_pm lapic=notscdeadline lpj={TICKS_PER_S // 250} nowatchdog"
)
"""The runner's lines have the serial line to themselves: it reads the kernel's log in the guest.
The time-stamp counter counts instructions, too, but by CPUID it is 109 times as fast: the kernel
measures no time, sets no timer and makes no delay (lpj, of Debian's 250 ticks a second) by it."""

PROGRAM = "/root/labtests"
SCRIPT = '"$0" "$@"; status=$?; sleep 5; exit $status'
"""The machine is switched off when the serial line has passed on the last line."""
POLL_S = 0.5
LIMIT_S = 12 * 3600
"""For all programs, by this machine's clock: the guest's own runs slower. It is for hangs only."""
STEP_OVER_SYSCALL = re.compile(r"RIP: 0010:(?:entry_SYSCALL_64|tlk_supervisor_call)\+0x0/")
DEATH = re.compile(rb"Kernel panic - not syncing.*(?:\n.*){0,40}")


def run(
    config: LabConfig,
    argv: Sequence[str],
    folder: Path,
    sink: Callable[[bytes], None],
    progress: Progress,
) -> str:
    """Boot the kernel of `config`, run `argv` there and give `sink` its lines as they come.

    `argv` begins with the runner's path on this machine. `folder` is for the machine's files.
    Returns the last lines that Bochs printed; they say why it ended."""
    tools.require_tools(TOOLS, "Bochs")
    root = real_programs.unpacked(progress, PACKAGES, (), "bochs", suites=(SUITE,)).root
    _make_disc(config, argv, folder, progress)
    words = CONFIG.format(root=root, cpus=config.cpus, ticks_per_s=TICKS_PER_S, folder=folder)
    (folder / "bochsrc").write_text(words)
    (folder / "serial.txt").touch()
    libraries = root / LIBRARIES
    argv = [
        *(str(libraries / "ld-linux-x86-64.so.2"), "--library-path", str(libraries)),
        *(str(root / "usr/bin/bochs-bin"), "-q", "-f", str(folder / "bochsrc")),
    ]
    plugins = {"LTDL_LIBRARY_PATH": str(libraries / "bochs/plugins")}
    progress.step("Bochs runs the lab's programs")
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
            env=os.environ | plugins,
        )
        try:
            _follow(process, folder / "serial.txt", sink, time.monotonic() + LIMIT_S)
        finally:
            tools.kill(process)
    return tools.last_lines(folder / "output.txt")


def without_its_own(kernel_log: str) -> str:
    """The log without the warning that Bochs causes where a program steps over `syscall`.

    The processor masks the trap flag there (MSR_SYSCALL_MASK), so no trap comes in the kernel.
    Bochs has decided on the trap before, and delivers it at the first instruction of the entry, the
    kernel's or the module's. It does so in user mode and without the module, too. The kernel warns
    once a boot, and continues."""
    for text in splats(kernel_log):
        if "exc_debug_kernel" in text and STEP_OVER_SYSCALL.search(text):
            kernel_log = kernel_log.replace(text, "")
    return kernel_log


def _follow(
    process: subprocess.Popen[bytes], serial: Path, sink: Callable[[bytes], None], end: float
) -> None:
    tail = b""
    with serial.open("rb") as line:
        running = True
        while running:
            running = process.poll() is None  # asked first: what came before its end is read
            *lines, tail = (tail + line.read()).split(b"\n")
            for text in lines:
                if text.startswith(b'{"'):
                    sink(text + b"\n")
            if found := DEATH.search(serial.read_bytes()):
                raise TraplessError(found[0].decode(errors="replace"))
            if time.monotonic() > end:
                raise TraplessError("the machine has not come to its end in time")
            time.sleep(POLL_S)


def _make_disc(config: LabConfig, argv: Sequence[str], folder: Path, progress: Progress) -> None:
    kernel = kernels.resolve(config.kernel, progress)
    plan = guest_tree.GuestPlan(
        argv=("sh", "-c", SCRIPT, PROGRAM, *argv[1:]),
        files=(*config.files, (Path(argv[0]), PROGRAM)),
        env=config.env,
        modules_dir=kernel.modules_dir,
        modules=config.modules,
        own_module=kbuild.module_for(kernel, progress),
        own_parameters=config.module_parameters,
        alone=True,
    )
    progress.step("making a CD for Bochs")
    tree = folder / "tree"
    (tree / "boot/grub").mkdir(parents=True)
    (tree / "boot/vmlinuz").write_bytes(kernel.image.read_bytes())
    with (tree / "boot/initrd").open("wb") as archive:
        guest_tree.build(plan, progress).write(archive)
    (tree / "boot/grub/grub.cfg").write_text(MENU.format(words=f"{WORDS} {config.append}"))
    log = folder / "disc.log"
    if tools.run_tool(["grub-mkrescue", "-o", str(folder / "disc.iso"), str(tree)], log) != 0:
        raise TraplessError(f"grub-mkrescue failed:\n{tools.last_lines(log)}")
