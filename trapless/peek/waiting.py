# SPDX-License-Identifier: GPL-2.0-only
"""Waits until there is a kernel to look into: a VM that can be read, and has booted.

machines.py finds the VMs, kernel/ reads them, and boots.py knows what "booted" means.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from trapless.base.console import ConsoleProgress
from trapless.peek import machines
from trapless.peek.emulator import Emulator
from trapless.peek.errors import WAIT, ImageError, PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine
from trapless.peek.sampling.boots import has_booted

PAUSE_S = 0.5
T = TypeVar("T")


def wait_for(choose: Callable[[], Machine], limit_s: float) -> Machine:
    """The machine that `choose` gives, as soon as there is one whose kernel has booted.

    Its own open() goes on waiting, up to the same end: a machine may be restarted meanwhile.
    """
    end_s = time.monotonic() + limit_s
    with ConsoleProgress() as progress:
        progress.step("waiting for a VM whose kernel can be read")

        def chosen_and_opened() -> Machine:
            machine = choose()
            _booted(machine).close()
            return machine

        return Awaited(_repeated(chosen_and_opened, limit_s, end_s), limit_s, end_s)


@dataclass(frozen=True)
class Awaited:
    """A machine that may be restarted while it is opened: that is tried up to a time."""

    machine: Machine
    limit_s: float
    end_s: float  # by time.monotonic()

    def __str__(self) -> str:
        return str(self.machine)

    def open(self, *, sandbox: bool = True) -> Target:
        return _repeated(lambda: _booted(self.machine, sandbox=sandbox), self.limit_s, self.end_s)

    def emulator(self) -> Emulator | None:
        return self.machine.emulator()


def _repeated(work: Callable[[], T], limit_s: float, end_s: float) -> T:
    """The result of `work`, once it has one; its last error if it has none before the end."""
    while True:
        try:
            return work()
        except (machines.ChoiceError, ImageError):
            raise
        except PeekError as error:
            if time.monotonic() >= end_s:
                if not limit_s:
                    raise
                text = str(error).removesuffix(f"\n  {WAIT}")  # which was done
                raise PeekError(f"no kernel could be read within {limit_s:g} s: {text}") from error
        time.sleep(PAUSE_S)


def _booted(machine: Machine, *, sandbox: bool = True) -> Target:
    target = machine.open(sandbox=sandbox)
    try:
        if has_booted(target):
            return target
        raise PeekError(f"the kernel in {machine} is still booting\n  {WAIT}")
    except BaseException:
        target.close()
        raise
