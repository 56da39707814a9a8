# SPDX-License-Identifier: GPL-2.0-only
"""Processors as data: one file each, data/NAME.json, and the only reader of these files.

A file holds what is published about a processor: the geometry of its caches and TLBs
(`structures`), what an access takes that is served by one of them (`latencies`), what an
instruction and a trap cost (`costs`), and system calls as somebody measured them (`traps`). It
leaves out what nobody published. `like` names a file whose fields hold wherever this one has none.

Each figure has a `source`, or `assumed` with the reason where nobody published it; the reader
refuses a file whose figures have neither. What one run simulates is in model_plan.py, the
arithmetic on these figures in clocks.py and trap_clocks.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from trapless.base.console import TraplessError

POLICIES = ("lru", "plru", "random")
FLUSHES = ("nonglobal", "all", "none")
ACCESSES = ("read", "write", "fetch")
PAGES_BYTES = (1 << 12, 1 << 21, 1 << 30)
COSTS = {"instruction", "fast"}
"""Events that every processor with caches has a cost of; others, as a trap by INT, are extra."""


@dataclass(frozen=True)
class Range:
    """A published figure, from `low` to `high`."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The value that is used where no other one is asked for."""
        return (self.low + self.high) / 2


@dataclass(frozen=True)
class Cost(Range):
    """The clocks of one event. `text` describes the event in tables."""

    source: str
    text: str = ""


@dataclass(frozen=True)
class Structure:
    """One cache or TLB. `size`: bytes of a cache, entries of a TLB.

    `feeds`: the accesses it sees: "read", "write", "fetch", or roles whose misses come to it.
    `streams` and `ahead`: how many streams its prefetcher follows, and how many lines it fetches
    ahead; a variant turns the prefetcher on. `assumed`: parameters that nobody published, each with
    the reason for its value.
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
class Case:
    """A processor as it was set up when somebody measured its system calls.

    Either `saved` is what a call without a trap took less, or `trap` is what one `call` by trap
    took. `pti`: page tables were isolated then; supervisor mode is refused on such a kernel.
    """

    id: str
    text: str
    source: str
    note: str
    saved: Range | None = None
    trap: Range | None = None
    call: str = ""
    pti: bool = False


@dataclass(frozen=True)
class Processor:
    """One file. `latencies`, by role: "memory" is what a miss in the last cache costs. `costs`, by
    event. `cpi`: the clocks per instruction that the cases are tried with."""

    id: str
    name: str
    note: str = ""
    structures: Mapping[str, Structure] = field(default_factory=dict)
    latencies: Mapping[str, Cost] = field(default_factory=dict)
    costs: Mapping[str, Cost] = field(default_factory=dict)
    cpi: tuple[float, ...] = ()
    cases: tuple[Case, ...] = ()


def folder() -> Path:
    """Where the files are."""
    return Path(__file__).resolve().parent / "data"


@cache
def processors() -> Mapping[str, Processor]:
    """All processors by id."""
    return {path.stem: read(path) for path in sorted(folder().glob("*.json"))}


def with_caches() -> Mapping[str, Processor]:
    """Those whose caches and TLBs the model can simulate."""
    return {name: one for name, one in processors().items() if one.structures}


def with_traps() -> Mapping[str, Processor]:
    """Those whose system calls somebody measured."""
    return {name: one for name, one in processors().items() if one.cases}


def load(name: str) -> Processor:
    """A processor whose caches can be simulated; the error names those there are."""
    try:
        return with_caches()[name]
    except KeyError:
        names = ", ".join(with_caches())
        raise TraplessError(f"no processor '{name}'; there are: {names}", status=2) from None


def read(path: Path) -> Processor:
    """The processor of one file; a TraplessError says what is wrong in it."""
    try:
        data = _fields(path)
        structures: dict[str, Structure] = {}
        for role, fields in data.get("structures", {}).items():
            structures[role] = _structure(role, fields, structures)
        costs = {event: _cost(event, fields) for event, fields in data.get("costs", {}).items()}
        if structures and COSTS - costs.keys():
            raise ValueError(f"costs: {', '.join(sorted(COSTS - costs.keys()))} missing")
        traps = data.get("traps", {"cpi": (), "cases": ()})
        return Processor(
            id=path.stem,
            name=data["name"],
            note=data.get("note", ""),
            structures=structures,
            latencies={role: _cost(role, each) for role, each in data.get("latencies", {}).items()},
            costs=costs,
            cpi=tuple(map(float, traps["cpi"])),
            cases=tuple(map(_case, traps["cases"])),
        )
    except KeyError as error:
        raise TraplessError(f"{path}: not a processor: {error} is missing") from error
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise TraplessError(f"{path}: not a processor: {error}") from error


def _fields(path: Path) -> dict[str, Any]:
    """The file's fields over those of the file that `like` names."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    like = data.pop("like", None)
    return _over(_fields(path.with_name(f"{like}.json")), data) if like else data


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Both objects as one; `above` wins."""
    both = dict(below)
    for name, value in above.items():
        nested = isinstance(value, dict) and isinstance(below.get(name), dict)
        both[name] = _over(below[name], value) if nested else value
    return both


def _structure(role: str, fields: Mapping[str, Any], before: Mapping[str, Structure]) -> Structure:
    is_cache = fields["kind"] == "cache"
    if not is_cache and fields["kind"] != "tlb":
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
    if is_cache:
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


def _cost(event: str, fields: Mapping[str, Any]) -> Cost:
    low, high = map(float, fields["clocks"])
    if ("source" in fields) == ("assumed" in fields) or not 0 < low <= high:
        raise ValueError(f"clocks of {event}: a range, and either source or assumed, are needed")
    return Cost(low, high, str(fields.get("source") or fields["assumed"]), fields.get("text", ""))


def _case(fields: Mapping[str, Any]) -> Case:
    def clocks(key: str) -> Range | None:
        return Range(*map(float, fields[key])) if key in fields else None

    saved, trap = clocks("saved_clocks"), clocks("call_clocks")
    if (saved is None) == (trap is None) or (trap is not None) != ("call" in fields):
        raise ValueError(
            f"case {fields.get('id')}: either saved_clocks, or call and call_clocks, are needed"
        )
    return Case(
        id=str(fields["id"]),
        text=str(fields["text"]),
        source=str(fields["source"]),
        note=str(fields["note"]),
        saved=saved,
        trap=trap,
        call=str(fields.get("call", "")),
        pti=bool(fields.get("pti", False)),
    )
