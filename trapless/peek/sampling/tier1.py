# SPDX-License-Identifier: GPL-2.0-only
"""Tier 1: gives the meaning of what probes write: user mode, the reason of the kernel's entry, and
who switched interrupts off.

Owns the fields that are sampled from each CPU's record; probes.py finds the records. A record's
state is one word, so it is never torn. Probes write it where the kernel executes cli and sti, and
where it enters and leaves user mode. The preempt count shows that the processor has switched
interrupts off for an interrupt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from trapless.peek.kernel.target import Target
from trapless.peek.sampling.probes import (
    ACTIVE_AT,
    MAGIC,
    MAGIC_NUMBER,
    MODULE,
    Mode,
    ProbeMap,
    mode_text,
)
from trapless.peek.sampling.sampling_plan import Field, Group, Rule
from trapless.peek.sampling.tier0 import SYSTEM, Part, with_handlers

TURN_ON = f"/sys/module/{MODULE}/parameters/probes"

# States. Any other state is the address of the code that has switched interrupts off: of its cli
# or, for a lock function, of the place in the function's caller.
STATE_ENABLED = 0  # in the kernel
STATE_USER = 1
STATE_ENTERED = 2  # from user mode: the processor has switched interrupts off


class Entry(IntEnum):
    """Why the kernel was last entered from user mode on a CPU."""

    UNKNOWN = 0
    SYSTEM_CALL = 1
    INTERRUPT = 2  # or exception
    SIGNAL = 3  # a signal is being delivered


class Who(IntEnum):
    """Who has switched interrupts off; any other number is the address of the kernel's code."""

    ENABLED = 0  # nobody
    TOP_HALF = 1  # the processor, for an interrupt
    ENTERED = 2  # the processor, as user mode was left
    OTHERS = -1  # in sums only: several places together


WHO_TEXT: dict[int, str] = {
    Who.TOP_HALF: "(top halves)",
    Who.ENTERED: "(entry from user mode)",
    Who.OTHERS: "(others)",
}


def groups(target: Target, probes: ProbeMap, stock: Sequence[Group]) -> tuple[Group, ...]:
    """The groups of a stock kernel with the fields that probes add.

    The system's group gets the map's magic and the active probes, because probes may come and go
    while a plan is followed.
    """
    cpus = []
    for group in stock:
        if group.name != SYSTEM:
            at = target.physical(probes.record(target, int(group.name.removeprefix("cpu"))))
            more = (Field("state", 8, at), Field("entry", 4, at + 8))
            cpus.append(replace(group, fields=(*group.fields, *more)))
    at = target.physical(probes.address)
    active = target.physical(probes.address + ACTIVE_AT)
    system = [field for group in stock if group.name == SYSTEM for field in group.fields]
    system += [Field("probe_magic", len(MAGIC), at), Field("probes", 4, active)]
    return (*cpus, Group(SYSTEM, Rule.ONCE, tuple(system)))


def modes(magic: npt.NDArray[Any], active: npt.NDArray[Any]) -> npt.NDArray[np.uint32]:
    """The probes that were on in each sample, as numbers of Mode.

    >>> modes(np.array([MAGIC_NUMBER, 7], "u8"), np.array([3, 3], "u4")).tolist()
    [3, 0]
    """
    return np.where(magic == MAGIC_NUMBER, active, 0).astype(np.uint32)


def parts(
    preempt_count: npt.NDArray[Any], pid: npt.NDArray[Any], state: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Where a CPU was in each sample, as numbers of Part; needs Mode.PARTS.

    >>> count = np.array([0, 0, 0, 0x100, 0x10000], "u4")
    >>> pid = np.array([7, 7, 0, 7, 0], "u4")
    >>> state = np.array([STATE_USER, STATE_ENTERED, 0, 1 << 63, 0], "u8")
    >>> [Part(part).name for part in parts(count, pid, state)]
    ['USER', 'KERNEL', 'IDLE', 'BOTTOM_HALF', 'TOP_HALF']
    """
    part = np.full(len(state), Part.KERNEL, np.uint8)
    part[state == STATE_USER] = Part.USER
    return with_handlers(part, preempt_count, pid)


def disabled_by(part: npt.NDArray[np.uint8], state: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """Who has switched interrupts off in each sample, as numbers of Who; needs Mode.INTERRUPTS.

    `part` is where the CPU was. Interrupts count as enabled in an idle CPU, because the next one
    ends its hlt or mwait.

    >>> part = np.array([Part.KERNEL, Part.USER, Part.KERNEL, Part.TOP_HALF, Part.IDLE])
    >>> disabled_by(part, np.array([99, 1, 2, 0, 99], "u8")).tolist()
    [99, 0, 2, 1, 0]
    """
    who = state.astype(np.uint64)
    who[state == STATE_USER] = Who.ENABLED
    who[part == Part.IDLE] = Who.ENABLED
    who[part == Part.TOP_HALF] = Who.TOP_HALF
    return who


def knowledge_text(probes: ProbeMap | None, *, user_mode: bool = False) -> str:
    """For people: the tier, what it cannot show, and what a person can do about it.

    `user_mode`: contexts show user mode without probes.
    """
    both = Mode.PARTS | Mode.INTERRUPTS
    active = Mode(0) if probes is None else probes.active
    lacking = {
        Mode.PARTS: "user mode from the kernel",
        Mode.INTERRUPTS: "who switches interrupts off, and for how long",
    }
    unknown = [
        text
        for mode, text in lacking.items()
        if not active & mode and not (mode is Mode.PARTS and user_mode)
    ]
    if not unknown:
        return f"tier 1: the target's probes are on ({mode_text(active)})"
    if probes is None:
        remedy = f"load {MODULE} there with probes={both:d}"
    else:
        remedy = f"there, as root: echo {int(active | both)} >{TURN_ON}"
    tier = 1 if active & both else 0
    return f"tier {tier}; not known: {'; '.join(unknown)}. To know: {remedy}"
