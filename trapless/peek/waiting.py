# SPDX-License-Identifier: GPL-2.0-only
"""Waits until there is a kernel to look into: a VM that can be read, and has booted.

machines.py finds the VMs, kernel/ reads them, and boots.py knows what "booted" means.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trapless.base.console import ConsoleProgress
from trapless.peek import machines
from trapless.peek.errors import PeekError
from trapless.peek.machines import Machine
from trapless.peek.sampling.boots import has_booted

PAUSE_S = 0.5


def wait_for(choose: Callable[[], Machine], limit_s: float) -> Machine:
    """The machine that `choose` gives, as soon as there is one whose kernel has booted."""
    end = time.monotonic() + limit_s
    with ConsoleProgress() as progress:
        progress.step("waiting for a VM whose kernel can be read")
        while True:
            try:
                machine = choose()
                reason = _lack(machine)
                if not reason:
                    return machine
            except machines.ChoiceError:
                raise
            except PeekError as error:
                reason = str(error)
            if time.monotonic() >= end:
                raise PeekError(f"no kernel could be read within {limit_s:g} s: {reason}")
            time.sleep(PAUSE_S)


def _lack(machine: Machine) -> str:
    """Why a kernel cannot be looked into yet; empty where it can."""
    with machine.open() as target:
        return "" if has_booted(target) else f"the kernel in {machine} is still booting"
