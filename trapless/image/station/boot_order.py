# SPDX-License-Identifier: GPL-2.0-only
"""The order that the boot menu gave: words of the kernel's command line that begin "trapless.".

This file owns their names and values. menu.py writes them, and trapless-image(1) lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "trapless."

RUNS = ("ask", "quick", "full", "estimate")
ENDS = ("ask", "poweroff", "restart")
SWITCHES = ("on", "off")
LEAST = tuple(reversed(SWITCHES))


@dataclass(frozen=True)
class Order:
    """The order: what to run, and what to do afterwards. `complaints` are words that were not
    understood."""

    run: str = "ask"
    then: str = "ask"
    supervisor: str = "on"
    least: str = "off"  # a quick run is the least that can be analysed: for tests
    only: tuple[str, ...] = ()  # experiments; empty: all
    mark: str = ""  # of the image, which its medium also carries
    medium: str = "unknown"  # what the boot loader read it from: "cd", "hd"
    complaints: tuple[str, ...] = ()


def parse(command_line: str) -> Order:
    """The order in a kernel's command line.

    >>> parse("quiet trapless.run=quick trapless.only=ls,parallel").only
    ('ls', 'parallel')
    >>> parse("trapless.run=now").complaints
    ("trapless.run=now: not one of ask, quick, full, estimate",)
    """
    words = [word for word in command_line.split() if word.startswith(PREFIX)]
    given = dict(word.removeprefix(PREFIX).partition("=")[::2] for word in words)
    complaints: list[str] = []

    def choice(name: str, values: tuple[str, ...]) -> str:
        value = given.get(name, values[0])
        if value in values:
            return value
        complaints.append(f"{PREFIX}{name}={value}: not one of {', '.join(values)}")
        return values[0]

    return Order(
        run=choice("run", RUNS),
        then=choice("then", ENDS),
        supervisor=choice("supervisor", SWITCHES),
        least=choice("least", LEAST),
        only=_names(given),
        mark=given.get("mark", ""),
        medium=given.get("medium", "unknown") or "unknown",
        complaints=tuple(complaints),
    )


def _names(given: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(name for name in given.get("only", "").split(",") if name)
