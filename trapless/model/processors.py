# SPDX-License-Identifier: GPL-2.0-only
"""Processors as data: the geometry of their caches and TLBs, and what their latencies are.

Owns reading and checking data/NAME.json. Each structure and each latency there says where it comes
from (`source`) or that nobody published it (`assumed`, with the reason); a file that does neither
is refused. It owns nothing of what is simulated in one run (plan.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from trapless.base.console import TraplessError

POLICIES = ("lru", "plru", "random")
FLUSHES = ("nonglobal", "all", "none")
ACCESSES = ("read", "write", "fetch")
PAGES_BYTES = (1 << 12, 1 << 21, 1 << 30)


@dataclass(frozen=True)
class Structure:
    """One cache or TLB. `size`: bytes of a cache, entries of a TLB.

    `feeds`: the accesses it sees: "read", "write", "fetch", or roles whose misses come to it.
    `streams` and `ahead`: what its prefetcher follows and fetches, where it has one; a variant
    turns it on. `assumed`: parameters that no source gives, and why they are as they are.
    """

    role: str
    kind: str
    size: int
    ways: int
    policy: str
    feeds: tuple[str, ...]
    source: str
    assumed: Mapping[str, str]
    line_bytes: int = 0
    through: bool = False
    streams: int = 0
    ahead: int = 0
    pages_bytes: tuple[int, ...] = ()
    flush: str = "nonglobal"

    @property
    def way_bytes(self) -> int:
        """Bytes of a cache that lie one after another before a set comes round again."""
        return self.size // self.ways


@dataclass(frozen=True)
class Clocks:
    """What an access costs that goes as far as this, from `low` to `high`, and who says so."""

    low: float
    high: float
    source: str
    assumed: bool


@dataclass(frozen=True)
class Processor:
    """One file. `clocks`: by role; "memory" is what a miss in the last cache costs."""

    id: str
    name: str
    note: str
    structures: Mapping[str, Structure]
    clocks: Mapping[str, Clocks]


def folder() -> Path:
    """Where the files are."""
    return Path(__file__).resolve().parent / "data"


@cache
def processors() -> Mapping[str, Processor]:
    """All of them by id."""
    return {path.stem: read(path) for path in sorted(folder().glob("*.json"))}


def load(name: str) -> Processor:
    """One by id; the error names those there are."""
    try:
        return processors()[name]
    except KeyError:
        known = ", ".join(processors())
        raise TraplessError(f"no processor '{name}'; there are: {known}", status=2) from None


def read(path: Path) -> Processor:
    """One file; a TraplessError says what is wrong in it."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        structures: dict[str, Structure] = {}
        for role, fields in data["structures"].items():
            structures[role] = _structure(role, fields, structures)
        clocks = {role: _clocks(role, fields) for role, fields in data["clocks"].items()}
        return Processor(path.stem, data["name"], data["note"], structures, clocks)
    except KeyError as error:
        raise TraplessError(f"{path}: not a processor: {error} is missing") from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise TraplessError(f"{path}: not a processor: {error}") from error


def _structure(role: str, fields: Mapping[str, Any], before: Mapping[str, Structure]) -> Structure:
    cached = fields["kind"] == "cache"
    if not cached and fields["kind"] != "tlb":
        raise ValueError(f"{role}: kind '{fields['kind']}' is neither cache nor tlb")
    feeds = tuple(fields["from"])
    unknown = [one for one in feeds if one not in ACCESSES and one not in before]
    if unknown or not feeds:
        raise ValueError(f"{role}: from: {unknown or 'nothing'} stands not before it")
    if fields["policy"] not in POLICIES:
        raise ValueError(f"{role}: policy '{fields['policy']}' is none of {', '.join(POLICIES)}")
    if not fields["source"]:
        raise ValueError(f"{role}: no source")
    common = {
        "role": role,
        "kind": fields["kind"],
        "ways": int(fields["ways"]),
        "policy": fields["policy"],
        "feeds": feeds,
        "source": fields["source"],
        "assumed": dict(fields.get("assumed", {})),
    }
    if cached:
        prefetcher = fields.get("prefetcher", {"streams": 0, "ahead": 0})
        return Structure(
            **common,
            size=int(fields["bytes"]),
            line_bytes=int(fields["line_bytes"]),
            through={"through": True, "back": False}[fields["write"]],
            streams=int(prefetcher["streams"]),
            ahead=int(prefetcher["ahead"]),
        )
    if fields["flush"] not in FLUSHES or not set(fields["page_bytes"]) <= set(PAGES_BYTES):
        raise ValueError(f"{role}: flush or page_bytes is none that the model knows")
    return Structure(
        **common,
        size=int(fields["entries"]),
        pages_bytes=tuple(fields["page_bytes"]),
        flush=fields["flush"],
    )


def _clocks(role: str, fields: Mapping[str, Any]) -> Clocks:
    low, high = map(float, fields["clocks"])
    if ("source" in fields) == ("assumed" in fields) or not 0 < low <= high:
        raise ValueError(f"clocks of {role}: a range, and either source or assumed, are needed")
    reason = str(fields.get("source") or fields["assumed"])
    return Clocks(low, high, reason, "assumed" in fields)
