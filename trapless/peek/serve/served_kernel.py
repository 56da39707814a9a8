# SPDX-License-Identifier: GPL-2.0-only
"""A kernel that is observed for long beside many others: keeps all that is needed of it.

Reading a guest's tables takes a process and some ten megabytes. Here that process answers all that
sampling asks, and then rests; it starts again only where the guest's modules change. All that reads
a guest here is work for workers.py, which bounds how many of these processes there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from trapless.peek.emulator import Emulator
from trapless.peek.errors import PeekError
from trapless.peek.kernel.health.last_words import panicked_on
from trapless.peek.kernel.memory import FileMemory
from trapless.peek.kernel.target import Target
from trapless.peek.sampling import probes, tier0
from trapless.peek.sampling.boots import clock, has_booted
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.record import about_target, plan_for, source_of
from trapless.peek.sampling.sampling_plan import Plan
from trapless.peek.sandbox.client import SandboxedTarget
from trapless.peek.serve.kernel_history import Identity


class BootingError(PeekError):
    """The kernel has not booted yet. `identity` is that of the one that is there, if one is."""

    def __init__(self, text: str, identity: Identity | None) -> None:
        super().__init__(text)
        self.identity = identity


class ServedKernel(SandboxedTarget):
    """A kernel whose resolver rests. One that is still booting is an error.

    `booting` is the last one that again() has found booting; the next caller may clear it.
    """

    booting: Identity | None = None
    about: dict[str, Any]
    probe_map: ProbeMap | None
    context_user: int | None
    _plan: Plan
    _modules_at: int

    @classmethod
    def of(cls, layouts: Sequence[FileMemory]) -> Target:
        target = super().of(layouts)
        try:
            assert isinstance(target, ServedKernel)
            target._prepare()
        except BaseException:
            target.close()
            raise
        return target

    def again(self) -> Target:
        try:
            return super().again()
        except BootingError as error:
            self.booting = error.identity
            raise

    def _prepare(self) -> None:
        """Ask for all that sampling needs."""
        source_of(self)
        # One that has panicked before its first program will not boot any more.
        lives = panicked_on(self) is None
        if lives and not has_booted(self):
            text = f"{self.memory.name}: the kernel is still booting"
            raise BootingError(text, self.identity)
        clock(self)
        self.context_user = tier0.context_user(self)
        self._modules_at = self.symbol("modules")
        self._plan_anew()
        self.rest()

    def _plan_anew(self) -> None:
        self.probe_map = probes.find(self, again=True)
        self._plan = plan_for(self, 1, 0, None, None, self.probe_map)
        self.about = about_target(self, self.probe_map, None)

    def plan(self, interval_ns: int, cpu: int | None, emulator: Emulator | None) -> Plan:
        """The plan of the samples. Without a processor of its own, the sampler polls no clock."""
        return replace(
            self._plan,
            interval_ns=interval_ns,
            cpu=cpu,
            spin_ns=0,
            threads=emulator.threads if emulator is not None else (),
            watch=emulator.pid if emulator is not None else None,
        )

    def signs(self) -> bytes:
        """Reads what changes when a module is loaded, or when a CPU comes or goes."""
        return self.read(self._modules_at, 16) + repr(self.cpus_online).encode()

    def plan_has_changed(self) -> bool:
        """Look for the module's probes and the CPUs again; whether the plan is another one."""
        with self.awake():
            before = self._plan
            self._plan_anew()
            return self._plan != before

    @contextmanager
    def awake(self) -> Iterator[None]:
        """Answers questions that were not asked before."""
        try:
            yield
        finally:
            self.rest()
