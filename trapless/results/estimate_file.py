# SPDX-License-Identifier: GPL-2.0-only
"""The last estimate of a machine (`trapless estimate`), for reports that show it beside their
figures.

The command saves it in the cache. `trapless stat` takes from there what a trap costs on this
machine, and README.md shows the estimate that was saved beside its results.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trapless.base import json_text
from trapless.base.console import TraplessError
from trapless.base.files import replace_file
from trapless.base.paths import cache_dir

NAME = "estimate.json"
AT = 32
"""Calls in a batch, where one N is shown: as in the tables of results."""


@dataclass(frozen=True)
class Range:
    """Nanoseconds: a median, and an interval for it."""

    ns: float
    low: float
    high: float


@dataclass(frozen=True)
class Call:
    """A call alone, in a batch of AT, and what batches of each N save of it."""

    title: str
    plain: Range
    batch: Range
    saved: Mapping[int, Range]
    crossings: int = 1
    """Of the call alone: a pair of calls crosses twice."""


@dataclass(frozen=True)
class Saved:
    """The parts of an estimate that are read."""

    processor: str
    hypervisor: str
    kernel: str
    clock_ghz: float
    trap: Range
    calls: Mapping[str, Call]
    by_int: tuple[Range, Mapping[int, Range]] | None  # getpid by INT, and what batches save of it
    uring: Mapping[str, Range]  # a request among AT
    supervisor_saves: tuple[float, float]
    date: str = ""
    """When it was measured; older files do not say it."""

    @property
    def machine(self) -> str:
        """The machine in words."""
        name = "" if self.hypervisor in ("", "unnamed") else f" ({self.hypervisor})"
        where = f", in a virtual machine{name}" if self.hypervisor else ""
        return f"{self.processor}, Linux {self.kernel}{where}"

    @property
    def when(self) -> str:
        """When it was measured, behind a comma; empty where the file does not say it."""
        return f", measured on {self.date}" if self.date else ""


def save(estimate: Mapping[str, Any]) -> None:
    """Keep the JSON of an estimate as this machine's last one; a cache that cannot be written is
    no reason to fail."""
    with contextlib.suppress(TraplessError, OSError):
        cache_dir().mkdir(parents=True, exist_ok=True)
        replace_file(cache_dir() / NAME, json.dumps(estimate) + "\n")


def load(path: Path) -> Saved | None:
    """The estimate in this file; None where there is none, or none that can be read."""
    try:
        data = json_text.parse(path.read_text(encoding="utf-8"))
        machine, by_int = data["machine"], data.get("int80")
        return Saved(
            processor=str(machine["processor"]),
            hypervisor=str(machine["hypervisor"]),
            kernel=str(machine["kernel"]),
            clock_ghz=float(machine["clock_ghz"]),
            trap=_range(data["trap"]),
            calls={
                name: Call(
                    title=str(call["title"]),
                    plain=_range(call["plain"]),
                    batch=_range(call["batch"][f"n{AT}"]),
                    saved=_by_n(call["saved"]),
                    crossings=int(call.get("crossings", 1)),
                )
                for name, call in data["calls"].items()
            },
            by_int=(_range(by_int["plain"]), _by_n(by_int["saved"])) if by_int else None,
            uring={kind: _range(values[f"n{AT}"]) for kind, values in data["uring"].items()},
            supervisor_saves=(
                float(data["supervisor"]["saved"]["low"]),
                float(data["supervisor"]["saved"]["high"]),
            ),
            date=str(data.get("date", "")),
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def of_this_machine() -> Saved | None:
    """The last one, if it was made by this processor and this kernel: both change its trap."""
    try:
        found = load(cache_dir() / NAME)
    except TraplessError:
        return None
    if found is None or found.kernel != os.uname().release:
        return None
    return found if found.processor == _processor() else None


def _range(value: Mapping[str, float]) -> Range:
    return Range(float(value["ns"]), float(value["low"]), float(value["high"]))


def _by_n(values: Mapping[str, Mapping[str, float]]) -> Mapping[int, Range]:
    return {int(n.removeprefix("n")): _range(value) for n, value in values.items()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        return found[1].strip() if found else "unknown"
    return "unknown"
