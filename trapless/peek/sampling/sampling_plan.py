# SPDX-License-Identifier: GPL-2.0-only
"""Describes what the sampler reads, and when: plans, and their text for the sampler.

A plan holds numbers only: its maker has turned symbols into physical addresses. sampler/plan.h
defines the form of the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

NAME = re.compile(r"[^\s#]\S{0,62}")


class Rule(StrEnum):
    """How a group's fields are read, which decides how far a sample of them can be trusted."""

    ONCE = "once"  # read once: each field by itself is right
    STABLE = "stable"  # read again until equal, or the sample is marked as torn
    SEQLOCK = "seqlock"  # read until the writer's two counters agree, or marked as torn


@dataclass(frozen=True)
class Field:
    """`bytes` bytes at a physical address, or at the end of a chain of pointers that begins there.

    With `follow`, the 8 bytes at `address` are a pointer, and so are those at each offset but the
    last, which leads to the field.
    """

    name: str
    bytes: int
    address: int
    follow: tuple[int, ...] = ()

    def line(self) -> str:
        return " ".join(
            ["field", self.name, str(self.bytes), hex(self.address), *map(hex, self.follow)]
        )


@dataclass(frozen=True)
class Group:
    """Fields that are read together.

    The writer of a seqlock adds 1 to the 4 bytes at `seq0` before it writes, and to those at `seq1`
    afterwards.
    """

    name: str
    rule: Rule
    fields: tuple[Field, ...]
    seq0: int | None = None
    seq1: int | None = None

    def lines(self) -> Iterator[str]:
        words = ["group", self.name, self.rule.value]
        if self.rule is Rule.SEQLOCK:
            if self.seq0 is None or self.seq1 is None:
                raise ValueError(f"group {self.name}: a seqlock has two counters")
            words += [hex(self.seq1), hex(self.seq0)]
        yield " ".join(words)
        for field in self.fields:
            yield field.line()


@dataclass(frozen=True)
class Base:
    """A range of virtual addresses that lies in one piece in physical memory."""

    virtual: int
    length: int
    physical: int

    def line(self) -> str:
        return f"base {self.virtual:#x} {self.length:#x} {self.physical:#x}"


@dataclass(frozen=True)
class Plan:
    """The groups that are sampled every `interval_ns` nanoseconds."""

    interval_ns: int
    groups: tuple[Group, ...]
    bases: tuple[Base, ...] = ()
    threads: tuple[int, ...] = ()  # threads of this machine whose run time each row has
    duration_ns: int = 0  # 0: until a signal ends it
    cpu: int | None = None  # the CPU that the sampler runs on
    spin_ns: int = 0  # the part of each wait in which the sampler may poll the clock
    watch: int | None = None  # the process with which sampling ends

    def columns(self) -> tuple[str, ...]:
        """The names of the columns that rows have for the fields."""
        return tuple(
            f"{group.name}.{field.name}" for group in self.groups for field in group.fields
        )

    def text(self) -> str:
        """The plan as text for the sampler. ValueError where a name is not a single word."""
        lines = [
            "trapless-plan 1",
            f"interval-ns {self.interval_ns}",
            f"duration-ns {self.duration_ns}",
            f"spin-ns {self.spin_ns}",
        ]
        if self.cpu is not None:
            lines.append(f"cpu {self.cpu}")
        if self.watch is not None:
            lines.append(f"watch {self.watch}")
        lines += [f"thread {thread}" for thread in self.threads]
        lines += [base.line() for base in self.bases]
        for group in self.groups:
            lines += group.lines()
            for name in (group.name, *(field.name for field in group.fields)):
                if NAME.fullmatch(name) is None:
                    raise ValueError(f"'{name}' cannot be a name in a plan")
        return "\n".join(lines) + "\n"
