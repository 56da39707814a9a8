# SPDX-License-Identifier: GPL-2.0-only
"""Waits until there is a kernel to look into: a VM that shares its memory, and has booted.

Owns what "booted" means to an observer. machines.py finds the VMs, and kernel/ reads them.
"""

from __future__ import annotations

import time
from pathlib import Path

from trapless.base.console import ConsoleProgress
from trapless.peek import machines
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox.client import open_target

PAUSE_S = 0.5


def wait_for(ram: Path | None, hole: int | None, limit_s: float) -> Path:
    """The RAM that was named, or that of the only VM, as soon as its kernel has booted."""
    end = time.monotonic() + limit_s
    with ConsoleProgress() as progress:
        progress.step("waiting for a VM whose kernel can be read")
        while reason := _lack(ram, hole):
            if time.monotonic() >= end:
                raise PeekError(f"no kernel could be read within {limit_s:g} s: {reason}")
            time.sleep(PAUSE_S)
    return ram if ram is not None else machines.the_one()


def _lack(ram: Path | None, hole: int | None) -> str:
    """Why a kernel cannot be looked into yet; empty where it can. Of several VMs none is chosen."""
    try:
        several = ram is None and len(machines.observable()) > 1
        path = ram if ram is not None else machines.the_one()
        with open_target(path, hole) as target:
            return "" if _has_booted(target) else f"the kernel in {path} is still booting"
    except PeekError as error:
        if several:
            raise
        return str(error)


def _has_booted(target: Target) -> bool:
    """Whether all CPUs are there and the first program has been started."""
    running = target.types.enumerator("SYSTEM_RUNNING")
    state = target.read(target.symbol("system_state"), 4)
    return running is None or int.from_bytes(state, "little") >= running[1]
