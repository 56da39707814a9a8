# SPDX-License-Identifier: GPL-2.0-only
"""Devices in memory for workloads on this machine: the RAM disk with ext4, and a slow disk.

This file decides whether the running kernel can make one that nobody else uses; guest_disk.py owns
how the file system is made.
"""

from __future__ import annotations

from trapless.experiments.collection import Collection
from trapless.experiments.here import place
from trapless.vm import guest_disk

Modules = tuple[tuple[str, str], ...]


def of_run(run: Collection) -> tuple[Modules, str]:
    """The modules for the RAM disk, in the lab or on this machine; none, and the reason, where it
    cannot be had."""
    if run.timed:
        return ram_disk()
    return guest_disk.modules(run.kernel, run.progress, run.arch), ""


def ram_disk() -> tuple[Modules, str]:
    """The modules of the kernel for the RAM disk; none, and the reason, where it cannot be had."""
    return usable((*guest_disk.DRIVERS, *_checksums()))


def usable(wanted: Modules) -> tuple[Modules, str]:
    """`wanted`, or none of them and why."""
    for name, parameters in wanted:
        if why := place.in_the_way(name, parameters):
            return (), why
    return wanted, ""


def _checksums() -> Modules:
    return ((guest_disk.CHECKSUMS, ""),) if place.is_at_hand(guest_disk.CHECKSUMS) else ()
