# SPDX-License-Identifier: GPL-2.0-only
"""Makes tables of batches in free order: when sorting pays, by how much, and what it costs.

This file owns how a region of reorder.c is named, and the judgement; nothing is run here. Clocks
are those of trapless/model/clocks.py, and on top each miss of the instruction cache is a hit in the
L2, the event "code": calls of different kinds are code, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eval.memory_hierarchy import variants
from eval.memory_hierarchy.cells import GRID_BYTES_MAX
from trapless.base import parquet
from trapless.experiments.experiment import Raw
from trapless.model import clocks
from trapless.report.figures import Map, Table
from trapless.results.result_file import Metric

LOADS = ("objects", "mix")
ARRIVALS = ("random", "sorted")
MODES = ("user", "kernel")
READS, CODE, ALL = ("read",), ("fetch",), clocks.ALL
MIX = "reorder-calls"
SHOWN_N = 32
"""The size of batches whose assumptions are shown: the paper's."""


@dataclass(frozen=True)
class Region:
    """The content of a label. `unordered`: with TL_UNORDERED; n calls a batch; D places of K KB."""

    load: str
    arrival: str
    unordered: bool
    n: int
    objects: int
    kernel_kb: int

    @property
    def given(self) -> Region:
        """The same calls in the order in which they arrived."""
        return replace(self, unordered=False)


def region(label: int) -> Region:
    """The region of a label.

    >>> region(1 << 52 | 32 << 40 | 8 << 32 | 64)
    Region(load='objects', arrival='random', unordered=True, n=32, objects=8, kernel_kb=64)
    """
    load, arrival, unordered = label >> 60, label >> 56 & 15, label >> 52 & 15
    if load >= len(LOADS) or arrival >= len(ARRIVALS) or unordered > 1:
        raise ValueError(f"no region is called {label:#x}")
    return Region(
        load=LOADS[load],
        arrival=ARRIVALS[arrival],
        unordered=bool(unordered),
        n=label >> 40 & 0xFFF,
        objects=label >> 32 & 0xFF,
        kernel_kb=label & 0xFFFF,
    )


@dataclass(frozen=True)
class Regions:
    """The counts of one load. `names`: processor -> role -> structure in the columns."""

    counts: Mapping[Region, Mapping[str, float]]
    calls: int  # of a region, at least: whole batches
    names: Mapping[str, Mapping[str, str]]

    def calls_of(self, one: Region) -> int:
        """The calls that were counted."""
        return -(-self.calls // one.n) * one.n

    def both(self, one: Region, suffix: str) -> float:
        """User space and kernel together: `suffix` is a column without its mode."""
        return sum(self.counts[one][f"{mode}.{suffix}"] for mode in MODES)

    def misses(self, one: Region, variant: str, role: str, kinds: tuple[str, ...]) -> float:
        """Misses of a structure, in both modes; none where the processor has no such structure."""
        name = self.names[variant].get(role)
        if name is None:
            return 0.0
        return sum(self.both(one, f"{name}.{kind}_misses") for kind in kinds)

    def clocks(self, one: Region, processor: str, costs: Mapping[str, float]) -> float:
        """The modelled clocks of one call, with its share of the program's own work."""
        variant = variants.main(processor).id
        events = clocks.misses_by_event(
            processor, lambda role, kinds: self.misses(one, variant, role, kinds)
        )
        events["code"] = self.misses(one, variant, "l1i", CODE)
        events["instruction"] = self.both(one, "instructions")
        events["fast"] = self.counts[one]["crossings.sysret"]
        return clocks.total(events, costs) / self.calls_of(one)

    def ratio(self, one: Region, processor: str, costs: Mapping[str, float]) -> float:
        """Clocks in the library's order over those in the given order: sorting pays below 1."""
        return self.clocks(one, processor, costs) / self.clocks(one.given, processor, costs)

    def unordered(self, arrival: str = "random") -> list[Region]:
        """Regions in the library's order."""
        return [one for one in self.counts if one.unordered and one.arrival == arrival]

    def extra(self, one: Region) -> float:
        """Instructions of a call that the library's order costs."""
        difference = self.both(one, "instructions") - self.both(one.given, "instructions")
        return difference / self.calls_of(one)


def load(raw: Raw, name: str) -> Regions:
    """The regions of a finished grid; ValueError where it is missing."""
    heads = [row for row in raw.rows if row.get("reorder") == name]
    path = raw.directory / f"{name}.parquet"
    if len(heads) != 1 or not path.exists():
        raise ValueError(f"{name} is not described, or {path.name} is missing")
    fields = Region.__dataclass_fields__
    counts = {}
    for row in parquet.read_table(path, bytes_max=GRID_BYTES_MAX).to_pylist():
        one = Region(**{field: row.pop(field) for field in fields})
        counts[one] = row
    return Regions(counts, heads[0]["calls"], heads[0]["names"])


def middle(processor: str) -> Mapping[str, float]:
    """Clocks of an event, at the middle of its range."""
    costs = clocks.middle(clocks.costs_of(processor))
    return {**costs, "code": costs["l2_hit"]}


# ---- Metrics --------------------------------------------------------------------------------


def metrics(loads: Mapping[str, Regions]) -> Mapping[str, Metric]:
    """The cost and the gain of sorting, for each load and processor."""
    metrics: dict[str, Metric] = {}
    for name, regions in loads.items():
        for processor, short in variants.SHORT.items():
            costs = middle(processor)
            if name == MIX:
                for one in regions.unordered():
                    ratio = regions.ratio(one, processor, costs)
                    key = f"clocks.reordered.{short}_mix-n{one.n}.ratio"
                    metrics[key] = _metric(ratio, "modelled", "ratio")
                continue
            n = regions.unordered()[0].n
            ratios = [regions.ratio(one, processor, costs) for one in regions.unordered()]
            key = f"clocks.reordered.{short}_n{n}"
            metrics[f"{key}-lowest.ratio"] = _metric(min(ratios), "modelled", "ratio")
            metrics[f"{key}-highest.ratio"] = _metric(max(ratios), "modelled", "ratio")
            share = 100 * sum(ratio < 1 for ratio in ratios) / len(ratios)
            metrics[f"{key}-paying.percent"] = _metric(share, "modelled", "percent")
    for arrival in ARRIVALS:
        for one in loads[MIX].unordered(arrival):
            key = f"sorting.reordered.{arrival}_n{one.n}.instructions"
            metrics[key] = _metric(loads[MIX].extra(one), "counted", "instructions")
    return metrics


def _metric(value: float, kind: str, unit: str) -> Metric:
    return Metric(round(value, 4), unit, kind, 1, 0.0)


# ---- Figures --------------------------------------------------------------------------------


def maps(loads: Mapping[str, Regions]) -> Iterator[Map]:
    """Where sorting pays, over places and their widths, for each processor and size of batches."""
    for name, regions in loads.items():
        if name == MIX:
            continue
        cells = {(one.objects, one.kernel_kb): one for one in regions.unordered()}
        objects = sorted({places for places, _ in cells})
        widths = sorted({width for _, width in cells})
        n = regions.unordered()[0].n
        for processor, short in variants.SHORT.items():
            costs = middle(processor)
            yield Map(
                id=f"{name}-{short}",
                title=f"Clocks, in the library's order to the order given: N = {n}, "
                f"{_words(processor)}",
                x_label="places in the kernel D",
                y_label="footprint of each K, KB",
                x=tuple(map(float, objects)),
                y=tuple(map(float, widths)),
                cells=tuple(
                    tuple(
                        round(regions.ratio(cells[places, width], processor, costs), 4)
                        for places in objects
                    )
                    for width in widths
                ),
                caption="With what sorting and copying cost. Calls arrive at random; below 1 their "
                "order is worth more than it costs.",
                kind="modelled",
                scale="in the library's order to the order given",
            )


def _words(processor: str) -> str:
    if processor in variants.PROCESSORS:
        return f"Pentium 4, {variants.PROCESSORS[processor]}"
    words: str = variants.CURRENT[processor]
    return words


def tables(loads: Mapping[str, Regions]) -> Iterator[Table]:
    """The mix in numbers, and what sorting costs."""
    yield table_of_mix(loads[MIX])
    yield table_of_assumptions(loads[MIX])
    yield table_of_sorting(loads[MIX])


def table_of_mix(regions: Regions) -> Table:
    """Misses and clocks of a call, in both orders."""
    lines = []
    for processor in variants.SHORT:
        variant, costs = variants.main(processor).id, middle(processor)
        for one in sorted(regions.unordered(), key=lambda each: each.n):
            ratio = f"{regions.ratio(one, processor, costs):.3f}"
            for which, order in ((one.given, "as given"), (one, "the library's")):
                misses = (
                    regions.misses(which, variant, role, kinds) / regions.calls_of(which)
                    for role, kinds in (("l1d", READS), ("l1i", CODE), ("l2", ALL), ("dtlb", ALL))
                )
                cells = (
                    *(f"{each:.1f}" for each in misses),
                    f"{regions.clocks(which, processor, costs):,.0f}",
                    ratio if which == one else "1",
                )
                lines.append((_words(processor), str(one.n), order, *cells))
    return Table(
        id="reorder-mix",
        title="A server's mix of calls, per call, in both orders",
        columns=("processor", "N", "order", "L1 read misses", "L1 code misses", "L2 misses",
                 "data-TLB misses", "clocks", "ratio"),
        rows=tuple(lines),
        caption="Reads of 8 files (4 in 10 calls), stats by name (2) and descriptor, sends and "
        "what receives them, events told and awaited. Misses are counted, clocks modelled.",
        kind="modelled",
    )  # fmt: skip


TRIED = {
    "instruction": "an instruction",
    "l2_hit": "what the L2 takes for what the L1 lacks, data and code",
    "memory": "memory",
    "walk": "a walk of the page table",
}
"""Events whose costs are tried at both ends of their ranges."""

HIDDEN = {
    "data from the L2 is waited for by nobody": ("l2_hit",),
    "nor is code": ("l2_hit", "code"),
}
"""The costs that execution out of order may hide: then sorting saves less."""


def table_of_assumptions(regions: Regions) -> Table:
    """The mix's ratio when a cost is at one end of its range, or is hidden."""
    one = next(each for each in regions.unordered() if each.n == SHOWN_N)
    lines: dict[str, list[str]] = {}

    def add(words: str, processor: str, other: Mapping[str, float]) -> None:
        ratio = regions.ratio(one, processor, {**middle(processor), **other})
        lines.setdefault(words, []).append(f"{ratio:.3f}")

    for processor in variants.SHORT:
        costs = clocks.costs_of(processor)
        add("all at the middle", processor, {})
        for event, words in TRIED.items():
            for end, value in (("low", costs[event].low), ("high", costs[event].high)):
                code = {"code": value} if event == "l2_hit" else {}
                add(f"{words}: {end} end", processor, {event: value, **code})
        for words, events in HIDDEN.items():
            add(words, processor, dict.fromkeys(events, 0.0))
    return Table(
        id="reorder-assumptions",
        title=f"The mix's ratio of clocks, N = {SHOWN_N}, under each assumption",
        columns=("clocks of", *map(_words, variants.SHORT)),
        rows=tuple((words, *cells) for words, cells in lines.items()),
        caption="One at a time, all others at the middle; where the range is a point, both ends "
        "are one.",
        kind="modelled",
    )


def table_of_sorting(regions: Regions) -> Table:
    """Instructions that the library's order costs a call."""
    sizes = sorted({one.n for one in regions.counts})
    lines = []
    for arrival, words in (("random", "at random"), ("sorted", "in order already")):
        each = {one.n: regions.extra(one) for one in regions.unordered(arrival)}
        lines.append((words, *(f"{each[n]:+.1f}" for n in sizes)))
    return Table(
        id="reorder-sorting",
        title="Instructions a call that TL_UNORDERED costs",
        columns=("calls arrive", *(f"N = {n}" for n in sizes)),
        rows=tuple(lines),
        caption="Finding what waits, sorting, copying requests and results, of the mix above; the "
        "kernel's own path may differ by a few instructions with what it finds.",
        kind="counted",
    )
