# SPDX-License-Identifier: GPL-2.0-only
"""The processors whose kernels the lab boots, one row each.

This file owns what the lab has to know of a processor: names of packages, of QEMU's parts, and of
the tools that compile for it. It owns no kernel and starts nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from trapless.base.console import TraplessError


@dataclass(frozen=True)
class Architecture:
    """One row."""

    name: str  # as Debian and `--arch` say it
    machine: str  # as uname says it
    elf: str  # e_machine of its programs
    triplet: str  # what the names of its tools begin with on other machines
    qemu: str
    qemu_package: str
    board: str  # QEMU's machine
    board_options: str
    cpu: str  # of the emulator
    cpu_counted: str  # the same without a source of chance
    console: str  # the first serial port, as the kernel calls it
    doorbell: tuple[str, ...]  # options of the second one; guest/channel.c knows its name
    supervisor: str  # why it has no supervisor mode; empty if it has

    @property
    def is_foreign(self) -> bool:
        """Whether this machine's own programs do not run there."""
        return self.machine != os.uname().machine

    def tool(self, name: str) -> str:
        """A compiler or another of the binutils that works for it, by the name it has here."""
        return f"{self.triplet}-{name}" if self.is_foreign else name


AMD64 = Architecture(
    name="amd64",
    machine="x86_64",
    elf="EM_X86_64",
    triplet="x86_64-linux-gnu",
    qemu="qemu-system-x86_64",
    qemu_package="qemu-system-x86",
    board="pc",
    board_options="usb=off,vmport=off",
    cpu="max",
    cpu_counted="max,-rdrand,-rdseed",
    console="ttyS0",
    doorbell=("-serial", "chardev:bell"),
    supervisor="",
)

# QEMU computes signatures of pointers by the architecture's own algorithm unless it is told not to:
# that takes most of a guest's time. The board has one port; the second one is a card. A thread that
# used SVE pays for it at each call until the kernel takes it away again, which is a chance, too.
ARM64 = Architecture(
    name="arm64",
    machine="aarch64",
    elf="EM_AARCH64",
    triplet="aarch64-linux-gnu",
    qemu="qemu-system-aarch64",
    qemu_package="qemu-system-arm",
    board="virt",
    board_options="gic-version=3,dtb-randomness=off",
    cpu="max,pauth-impdef=on",
    cpu_counted="max,pauth-impdef=on,sve=off,sme=off",
    console="ttyAMA0",
    doorbell=("-device", "pci-serial,chardev=bell"),
    supervisor="the kernel marks every page of a program as one that it never executes itself "
    "(PXN), and no bit of the processor lifts that",
)

ARCHITECTURES = {row.name: row for row in (AMD64, ARM64)}


def named(name: str) -> Architecture:
    """The row called `name`."""
    if name not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        raise TraplessError(f"unknown architecture '{name}'; give one of {known}", status=2)
    return ARCHITECTURES[name]
