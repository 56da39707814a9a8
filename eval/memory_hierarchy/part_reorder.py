# SPDX-License-Identifier: GPL-2.0-only
"""Runs batches whose order is free: when does an order of the library's own save more than it
costs?

The paper names it as future work. Two loads arrive in random order, each as it comes and with
TL_UNORDERED: the evaluation function over D places in the kernel of K KB each, and a server's mix
of real calls. This file owns what is run; reorder_tables.py shows the results.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.memory_hierarchy import footprint_grid, reorder_tables, variants
from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.experiments.fleet.grid import MASK, Grid
from trapless.experiments.fleet.grid import collect as collect_grids
from trapless.model.model_plan import Plan
from trapless.report.figures import Figure, Map, Table
from trapless.stock import kbuild, kernels
from trapless.vm.lab import LabConfig

HERE = Path(__file__).parent

PROGRAM = "memory-hierarchy-reorder"
STRIDE = 128
EFFORT_FIXED_KB = 8
"""The cost of a call to the emulator beside the load's reads, expressed as further reads."""


@dataclass(frozen=True)
class Range:
    """Whole numbers from first to last, both included."""

    first: int
    last: int
    step: int

    @property
    def points(self) -> Sequence[int]:
        return range(self.first, self.last + 1, self.step)

    @property
    def text(self) -> str:
        """As the test program takes it."""
        return f"{self.first}:{self.last}:{self.step}"


@dataclass(frozen=True)
class Load:
    """The load of one grid: N calls a batch, the calls of a region, and those before them."""

    name: str
    sizes: tuple[int, ...]
    calls: int
    warm: int
    vms: int
    objects: Range | None = None  # D; None: the mix
    kernel: Range | None = None  # K, KB

    @property
    def rows(self) -> int:
        return len(self.objects.points) if self.objects else len(self.sizes)

    @property
    def regions(self) -> int:
        """Regions per row: the order given and the library's; the mix also arrives sorted."""
        return 2 * len(self.kernel.points) if self.kernel else 4

    def argv(self) -> tuple[str, ...]:
        """The test program's words."""
        words = ["--batch", ",".join(map(str, self.sizes))]
        words += ["--calls", str(self.calls), "--warm", str(self.warm), "--rows", MASK]
        if self.objects and self.kernel:
            return (*words, "--objects", self.objects.text, "--kernel", self.kernel.text)
        return (*words, "--mix")

    def row_of(self, label: int) -> int:
        """The row of a region."""
        region = reorder_tables.region(label)
        if self.objects:
            return self.objects.points.index(region.objects)
        return self.sizes.index(region.n)

    def efforts(self) -> Iterator[float]:
        """The effort of each region."""
        for _ in range(self.rows):
            for kb in self.kernel.points if self.kernel else (0, 0):
                yield from (effort_of(kb) * self.calls,) * 2


def effort_of(kernel_kb: int) -> float:
    """How long a call takes, about."""
    return kernel_kb + EFFORT_FIXED_KB


def loads(quick: bool) -> tuple[Load, ...]:
    """Fewer places, widths and sizes of batches with --quick."""
    if quick:
        return (
            Load("reorder-n32", (32,), 64, 64, 1, Range(4, 16, 4), Range(0, 128, 32)),
            Load("reorder-calls", (32,), 512, 128, 1),
        )
    wide = Range(2, 16, 2)
    return (
        Load("reorder-n32", (32,), 128, 64, 2, wide, Range(0, 128, 8)),
        Load("reorder-n128", (128,), 256, 128, 1, Range(4, 16, 4), Range(0, 128, 16)),
        Load("reorder-calls", (8, 32, 128), 2048, 512, 1),
    )


def collect(run: Collection) -> None:
    """Run all loads, and check what must hold of their counts."""
    plan = Plan.of([variants.main(name) for name in variants.SHORT])
    wanted = loads(run.quick)
    collect_grids(run, [grid_of(run, load, plan) for load in wanted])
    names: dict[str, dict[str, str]] = {}
    for (variant, role), structure in plan.names.items():
        names.setdefault(variant, {})[role] = structure
    for load in wanted:
        head: Row = {"reorder": load.name, "calls": load.calls, "names": names}
        try:
            check(reorder_tables.load(Raw([head], {}, run.directory), load.name), load)
        except ValueError as error:
            raise TraplessError(f"{run.name}, {load.name}: a check failed: {error}") from error
        run.write([head])


def grid_of(run: Collection, load: Load, plan: Plan) -> Grid:
    """The grid as the runner takes it: a row is a number of places or, of the mix, an N."""
    kernel = kernels.resolve(run.kernel, run.progress)
    module = kbuild.module_for(kernel, run.progress, HERE, footprint_grid.MODULE)
    program = workload("memory-hierarchy").with_name(PROGRAM)
    array_kb = load.objects.last * load.kernel.last if load.objects and load.kernel else 4
    guest = f"/bin/{PROGRAM}"
    insert = f"insmod {footprint_grid.GUEST_MODULE} bytes={array_kb << 10}"
    return Grid(
        name=load.name,
        rows=load.rows,
        regions=load.regions,
        vms=min(load.vms, load.rows),
        config=LabConfig(
            kernel=run.kernel,
            cpus=1,
            icount=True,
            quick_start=run.quick,
            memory=footprint_grid.MEMORY,
            append=footprint_grid.KERNEL_WORDS,
            files=((module, footprint_grid.GUEST_MODULE), (program, guest)),
            timeout_s=footprint_grid.TIMEOUT_S,
        ),
        argv=("/bin/sh", "-c", f"{insert} && exec {shlex.join([guest, *load.argv()])}"),
        plan=plan,
        row_of=load.row_of,
        effort=lambda label: effort_of(reorder_tables.region(label).kernel_kb) * load.calls,
        describe=lambda label: vars(reorder_tables.region(label)),
        total=sum(load.efforts()),
    )


def check(regions: reorder_tables.Regions, load: Load) -> None:
    """ValueError where a count cannot be what it should."""
    if len(regions.counts) != load.rows * load.regions:
        raise ValueError(f"{len(regions.counts)} regions of {load.rows * load.regions}")
    for region, counts in regions.counts.items():
        least = footprint_grid.READS_SHARE * regions.calls * region.kernel_kb * 1024 / STRIDE
        if counts["kernel.reads"] < least:
            raise ValueError(f"{region}: too few reads in the kernel: some were not made")
        if counts["crossings.sysret"] < regions.calls / region.n:
            raise ValueError(f"{region}: fewer crossings than batches")


def analyse(raw: Raw) -> Findings:
    return Findings(reorder_tables.metrics(all_of(raw)))


def figures(raw: Raw) -> tuple[Figure | Map | Table, ...]:
    regions = all_of(raw)
    return (*reorder_tables.maps(regions), *reorder_tables.tables(regions))


def all_of(raw: Raw) -> Mapping[str, reorder_tables.Regions]:
    """The regions of each load that was run."""
    names = [row["reorder"] for row in raw.rows if "reorder" in row]
    if reorder_tables.MIX not in names:
        raise ValueError(f"{reorder_tables.MIX} is not described")
    return {name: reorder_tables.load(raw, name) for name in names}
