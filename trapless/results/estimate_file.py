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
BATCH = "n32"


@dataclass(frozen=True)
class Range:
    """Nanoseconds: a median, and an interval for it."""

    ns: float
    low: float
    high: float


@dataclass(frozen=True)
class Saved:
    """The parts of an estimate that are read: the machine, its trap, a call alone and in a batch of
    32."""

    processor: str
    hypervisor: str
    kernel: str
    trap: Range
    calls: Mapping[str, tuple[str, float, Range]]  # title, plain, what the batch saves

    @property
    def machine(self) -> str:
        """The machine in words."""
        name = "" if self.hypervisor in ("", "unnamed") else f" ({self.hypervisor})"
        where = f", in a virtual machine{name}" if self.hypervisor else ""
        return f"{self.processor}, Linux {self.kernel}{where}"


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
        machine = data["machine"]
        return Saved(
            processor=str(machine["processor"]),
            hypervisor=str(machine["hypervisor"]),
            kernel=str(machine["kernel"]),
            trap=_range(data["trap"]),
            calls={
                name: (str(call["title"]), float(call["plain"]["ns"]), _range(call["saved"][BATCH]))
                for name, call in data["calls"].items()
            },
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


def _processor() -> str:
    with contextlib.suppress(OSError):
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
        found = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
        return found[1].strip() if found else "unknown"
    return "unknown"
