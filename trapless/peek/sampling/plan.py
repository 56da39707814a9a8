# SPDX-License-Identifier: GPL-2.0-only
"""What the sampler is to read, and when: plans, and the text in which the sampler takes them.

A plan holds numbers only: whoever makes it has turned symbols into physical addresses. The form of
the text is sampler/plan.h's; this file owns nothing of what fields mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

NAME = re.compile(r"[^\s#]\S{0,62}")


class Rule(StrEnum):
    """How a group's fields are read, and so what is known about one sample of them."""

    ONCE = "once"  # nothing: each field by itself is right
    STABLE = "stable"  # they were the same when read again, or the sample is marked as torn
    SEQLOCK = "seqlock"  # the writer's two counters say that it was not writing, or torn


@dataclass(frozen=True)
class Field:
    """`bytes` at a physical address; with `follow`, at the end of a chain of pointers from there.

    The 8 bytes at `address` are then a pointer, and so is what is at each offset but the last.
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
    """Fields that belong together. For a seqlock, the writer adds 1 to the 4 bytes at `seq0`
    before it writes and to those at `seq1` afterwards."""

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
    """What is sampled every `interval_ns`."""

    interval_ns: int
    groups: tuple[Group, ...]
    bases: tuple[Base, ...] = ()
    threads: tuple[int, ...] = ()  # of this machine, whose run time is recorded beside
    duration_ns: int = 0  # 0: until it is told to end
    cpu: int | None = None  # that the sampler runs on
    spin_ns: int = 0  # of each wait that may be spent looking at the clock
    watch: int | None = None  # process with which sampling ends

    def columns(self) -> tuple[str, ...]:
        """The fields as rows name them."""
        return tuple(
            f"{group.name}.{field.name}" for group in self.groups for field in group.fields
        )

    def text(self) -> str:
        """The plan as the sampler takes it."""
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
