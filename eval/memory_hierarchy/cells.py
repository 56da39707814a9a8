# SPDX-License-Identifier: GPL-2.0-only
"""Describes pairs of footprints: the labels of regions, the axes of grids, and their counts as
arrays.

This file owns what a region's label means (memory_hierarchy.c makes it) and how the counts of a
grid are read from its Parquet file. Judges nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trapless.base import parquet
from trapless.experiments.experiment import Raw
from trapless.model import clocks

ORDERS = ("conventional", "batched", "workers", "supervisor")
TRAPS = ("fast", "int")
MODES = ("user", "kernel")
KINDS = ("read", "write", "fetch")

GRID_BYTES_MAX = 32 << 20
"""The most memory of a grid: the largest has 9 MB."""
ITERATIONS = 512
BATCH = 32
STRIDE = 128
FOOTPRINT_KB = 256
"""F, N, stride in bytes, and the largest footprint, as the paper has them."""

WARM = BATCH
"""Iterations before those that are counted; the paper speaks of none."""

Counts = npt.NDArray[np.float64]
"""Counts of one order: a row per footprint in the kernel, a column per footprint in user space."""


@dataclass(frozen=True)
class Region:
    """The content of a label; footprints are in KB."""

    order: str
    trap: str
    n: int
    user_kb: int
    kernel_kb: int


def region(label: int) -> Region:
    """The region of a label.

    >>> region(1 << 60 | 1 << 56 | 32 << 40 | 256 << 20 | 4)
    Region(order='batched', trap='int', n=32, user_kb=256, kernel_kb=4)
    """
    order, trap = label >> 60, label >> 56 & 15
    if order >= len(ORDERS) or trap >= len(TRAPS):
        raise ValueError(f"no region is called {label:#x}")
    return Region(
        order=ORDERS[order],
        trap=TRAPS[trap],
        n=label >> 40 & 0xFFFF,
        user_kb=label >> 20 & 0xFFFFF,
        kernel_kb=label & 0xFFFFF,
    )


def describe(label: int) -> Mapping[str, str | int]:
    """A label as columns of a table."""
    return vars(region(label))


EFFORT_FIXED_KB = 24
"""The cost of a region beside its reads, expressed as further reads."""


def effort(label: int) -> float:
    """How long a region takes, about."""
    pair = region(label)
    return pair.user_kb + pair.kernel_kb + EFFORT_FIXED_KB


@dataclass(frozen=True)
class Axis:
    """Footprints from 0 to `last_kb`, both ends included."""

    step_kb: int
    last_kb: int = FOOTPRINT_KB

    @property
    def points(self) -> int:
        return self.last_kb // self.step_kb + 1

    @property
    def text(self) -> str:
        """As the test program takes it."""
        return f"0:{self.last_kb}:{self.step_kb}"

    def total_effort(self, orders: int) -> float:
        """The effort of all pairs in so many orders."""
        return orders * self.points**2 * (self.last_kb + EFFORT_FIXED_KB)


@dataclass(frozen=True)
class Cells:
    """The counts of a finished grid. `names`: processor -> role -> structure in the columns."""

    user_kb: tuple[int, ...]
    kernel_kb: tuple[int, ...]
    orders: tuple[str, ...]
    trap: str
    columns: Mapping[str, Mapping[str, Counts]]  # order -> column -> counts
    names: Mapping[str, Mapping[str, str]]
    iterations: int = ITERATIONS

    def count(self, order: str, column: str) -> Counts:
        """One column, as M.instructions."""
        return self.columns[order][column]

    def both(self, order: str, suffix: str) -> Counts:
        """User space and kernel together: `suffix` is a column without its mode."""
        columns = self.columns[order]
        return columns[f"user.{suffix}"] + columns[f"kernel.{suffix}"]

    def each(self, counts: Counts) -> Counts:
        """Counts of a region as those of one iteration."""
        return counts / self.iterations

    def misses(self, order: str, variant: str, role: str, kinds: tuple[str, ...] = KINDS) -> Counts:
        """Misses of a structure, in both modes."""
        name = self.names[variant][role]
        parts = [self.both(order, f"{name}.{kind}_misses") for kind in kinds]
        total: Counts = np.sum(parts, axis=0, dtype=np.float64)
        return total

    def clocks(self, order: str, variant: str, costs: Mapping[str, float]) -> Counts:
        """Modelled clocks of each cell in one order, on a processor with those structures."""
        events = clocks.misses_by_event(
            variant.partition("+")[0],
            lambda role, kinds: self.misses(order, variant, role, kinds),
        )
        traps = {trap: self.count(order, column) for trap, column in clocks.TRAPS.items()}
        counts = {"instruction": self.both(order, "instructions"), **events, **traps}
        return clocks.total(counts, costs)

    def clock_ratios(self, order: str, variant: str, costs: Mapping[str, float]) -> Counts:
        """Clocks of an order over those of conventional calls, cell by cell."""
        conventional = self.clocks("conventional", variant, costs)
        return ratio(self.clocks(order, variant, costs), conventional, 1.0)

    @property
    def user(self) -> Counts:
        """Each cell's footprint in user space, KB."""
        return np.broadcast_to(np.array(self.user_kb, float), self.shape)

    @property
    def kernel(self) -> Counts:
        """Each cell's footprint in the kernel, KB."""
        return np.broadcast_to(np.array(self.kernel_kb, float)[:, None], self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.kernel_kb), len(self.user_kb)


def load(raw: Raw, name: str) -> Cells:
    """The cells of a grid; ValueError where some are missing."""
    heads = [row for row in raw.rows if row.get("grid") == name]
    if len(heads) != 1:
        raise ValueError(f"grid {name} is not described")
    path = raw.directory / f"{name}.parquet"
    if not path.exists():
        raise ValueError(f"{path.name} is missing")
    grid = of_table(
        parquet.read_table(path, bytes_max=GRID_BYTES_MAX).to_pydict(), heads[0]["names"], path
    )
    return replace(grid, iterations=heads[0].get("iterations", ITERATIONS))


def of_table(
    table: Mapping[str, list[Any]], names: Mapping[str, Mapping[str, str]], path: Path
) -> Cells:
    """Columns of numbers as arrays over both footprints."""
    users = tuple(sorted(set(table["user_kb"])))
    kernels = tuple(sorted(set(table["kernel_kb"])))
    orders = tuple(order for order in ORDERS if order in set(table["order"]))
    traps = set(table["trap"])
    size = len(users) * len(kernels)
    if len(traps) != 1 or len(table["order"]) != size * len(orders):
        raise ValueError(f"{path.name} has {len(table['order'])} regions of {size * len(orders)}")
    column_of = {kb: place for place, kb in enumerate(users)}
    row_of = {kb: place for place, kb in enumerate(kernels)}
    at = (
        np.array([row_of[kb] for kb in table["kernel_kb"]]),
        np.array([column_of[kb] for kb in table["user_kb"]]),
    )
    columns: dict[str, dict[str, Counts]] = {}
    for order in orders:
        own = np.array([each == order for each in table["order"]])
        columns[order] = {}
        for column, values in table.items():
            if "." in column:
                cells = np.full((len(kernels), len(users)), np.nan)
                cells[at[0][own], at[1][own]] = np.array(values, float)[own]
                columns[order][column] = cells
        if any(np.isnan(cells).any() for cells in columns[order].values()):
            raise ValueError(f"{path.name}: pairs of order {order} are missing")
    return Cells(users, kernels, orders, traps.pop(), columns, names)


def ratio(above: Counts, below: Counts, least: float) -> Counts:
    """above / below; not a number where `below` is less than `least`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(below >= least, above / below, np.nan)
