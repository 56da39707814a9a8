# SPDX-License-Identifier: GPL-2.0-only
"""Compares what a kernel says in two places, before anything else that it says is believed.

Each check is one fact that the kernel states twice, in independent ways: a symbol or an offset that
is wrong makes at least one check fail. A target that fails one is not opened.
"""

from __future__ import annotations

from collections.abc import Callable

from trapless.peek.errors import BootingError, PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import ARM64
from trapless.peek.kernel.memory import PAGE_BYTES
from trapless.peek.kernel.name_resolver import Resolver
from trapless.peek.limits import LimitError

DIRECT_MAP_PROBES = 8


def _uts_release(target: Resolver) -> str:
    """`init_uts_ns`, read by its type, has the release that the note has."""
    where = target.symbol("init_uts_ns") + target.offset("uts_namespace", "name.release")
    text = target.read(where, target.place("uts_namespace", "name.release").size)
    release = GuestText(text)
    return "" if release == target.release else f"init_uts_ns says release {str(release)!r}"


def _first_task(target: Resolver) -> str:
    """`init_task`, read by its type, is the idle task of the first CPU."""
    task = target.symbol("init_task")
    name = GuestText(target.read(task + target.offset("task_struct", "comm"), 16))
    pid = int.from_bytes(target.read(task + target.offset("task_struct", "pid"), 4), "little")
    good = name.starts("swapper") and pid == 0
    return "" if good else f"init_task is called {str(name)!r} and has pid {pid}"


def _direct_map(target: Resolver) -> str:
    """The page tables map all memory to the addresses that arithmetic gives."""
    end = target.memory_end()
    if not PAGE_BYTES <= end <= 1 << 52:
        return f"{target.processor.last_page} says that memory ends at {end:#x}"
    base, wrong, mapped = target.processor.map_base, 0, 0
    for region in target.memory.regions():
        for step in range(DIRECT_MAP_PROBES):
            physical = region.start + region.length // DIRECT_MAP_PROBES * step
            try:
                wrong += target.physical(target.direct_map + physical) != physical
                mapped += 1
            except PeekError:  # holes are normal: memory of firmware, secret memory
                continue
    if mapped == 0:
        return f"nothing is mapped at {base} ({target.direct_map:#x})"
    return f"{base} is wrong for {wrong} of {mapped} addresses" if wrong else ""


def _has_halted(target: Resolver) -> bool:
    """Whether a kernel says that it was halted or switched off: then it has no CPU online."""
    halted = target.types.enumerator("SYSTEM_HALT")
    restart = target.types.enumerator("SYSTEM_RESTART")
    if halted is None or restart is None or not target.has_symbol("system_state"):
        return False
    state = int.from_bytes(target.read(target.symbol("system_state"), 4), "little")
    return halted[1] <= state <= restart[1]


def _percpu_bases(target: Resolver) -> str:
    """Each CPU's own `this_cpu_off` is the base that the table of bases has for it. arm64 keeps it
    in a register of the CPU alone."""
    if target.processor.name == ARM64:
        return ""
    cpus = target.cpus_online or (target.cpus_possible if _has_halted(target) else ())
    if not cpus:
        return "no CPU is online"
    for cpu in cpus:
        base = target.percpu_bases.get(cpu)
        own = target.read_u64(target.percpu("this_cpu_off", cpu))
        if base != own:
            return f"CPU {cpu} has its data at {own:#x}, __per_cpu_offset says {base or 0:#x}"
    return ""


def _run_queues(target: Resolver) -> str:
    """Each CPU's run queue, read by its type, has that CPU's number."""
    offset = target.offset("rq", "cpu")
    for cpu in target.cpus_online:
        data = target.read(target.percpu("runqueues", cpu) + offset, 4)
        if int.from_bytes(data, "little") != cpu:
            return f"the run queue of CPU {cpu} says it is of CPU {int.from_bytes(data, 'little')}"
    return ""


CHECKS: tuple[Callable[[Resolver], str], ...] = (
    _uts_release,
    _first_task,
    _direct_map,
    _percpu_bases,
    _run_queues,
)


def run(target: Resolver) -> None:
    """Raise PeekError with every check that failed."""
    failures = []
    for check in CHECKS:
        try:
            if failure := check(target):
                failures.append(failure)
        except LimitError:
            raise
        except PeekError as error:
            failures.append(f"{check.__name__.strip('_').replace('_', ' ')}: {error}")
    if failures:
        head = (
            f"{target.memory.name} has {target.release}, but what it says of itself does not fit: "
            "it was still booting, or the image is damaged"
        )
        raise BootingError("\n  ".join([head, *failures]))
