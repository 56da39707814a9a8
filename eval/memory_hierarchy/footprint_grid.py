# SPDX-License-Identifier: GPL-2.0-only
"""Runs one grid of pairs of footprints in the lab, and reports its checks.

This file owns the guest's configuration, the test program's command line and what must hold of
every region's counts. How rows are spread over VMs and kept is trapless/experiments/fleet/grid.py's
business.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval.memory_hierarchy import cells
from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection, Row
from trapless.experiments.experiment import Raw, workload
from trapless.experiments.fleet.grid import MASK, Grid
from trapless.experiments.fleet.grid import collect as collect_grids
from trapless.model import plugin_choice
from trapless.model.model_plan import Plan, Variant
from trapless.results.result_file import Metric
from trapless.stock import kbuild, kernels
from trapless.vm.lab import LabConfig

HERE = Path(__file__).parent

GUEST_PROGRAM = "/bin/memory-hierarchy"
GUEST_MODULE = "/hierarchy.ko"
MODULE = "hierarchy.ko"
MEMORY = "512M"
TIMEOUT_S = 3 * 3600.0

KERNEL_WORDS = f"{plugin_choice.KERNEL_WORDS} randomize_kstack_offset=off"
"""A parameter for the kernel of every grid's guest. By default the kernel puts each call's stack at
an offset that depends on the clock at all earlier calls: if one call came an instruction late, no
later region would be the same."""

STRUCTURES_AS_MUCH = 10
"""The number of modelled caches that take as long as the emulation itself."""

READS_SHARE = 0.999
"""The least share of F * footprint / stride reads in a region: no read may be left out."""


@dataclass(frozen=True)
class Sweep:
    """One grid: which pairs in which orders, on which modelled processors."""

    name: str
    axis: cells.Axis
    orders: tuple[str, ...]
    trap: str
    variants: tuple[Variant, ...]
    vms: int
    warm: int = cells.WARM
    iterations: int = cells.ITERATIONS
    kernel_words: str = ""  # of the guest's kernel, beside those that all have


def collect(run: Collection, sweeps: Sequence[Sweep]) -> None:
    """Run all grids, check their counts, and note how their columns are to be read."""
    plans = [Plan.of(list(sweep.variants)) for sweep in sweeps]
    grids = [grid_of(run, sweep, plan) for sweep, plan in zip(sweeps, plans, strict=True)]
    collect_grids(run, grids)
    for sweep, plan in zip(sweeps, plans, strict=True):
        names: dict[str, dict[str, str]] = {}
        for (variant, role), structure in plan.names.items():
            names.setdefault(variant, {})[role] = structure
        head: Row = {
            "grid": sweep.name,
            "names": names,
            "step_kb": sweep.axis.step_kb,
            "iterations": sweep.iterations,
        }
        try:
            checks = check(cells.load(Raw([head], {}, run.directory), sweep.name), sweep.name)
        except ValueError as error:
            raise TraplessError(f"{run.name}, {sweep.name}: a check failed: {error}") from error
        run.write([head, *checks])


def grid_of(run: Collection, sweep: Sweep, plan: Plan) -> Grid:
    """The grid as the runner takes it: a row is one footprint in user space."""
    kernel = kernels.resolve(run.kernel, run.progress)
    module = kbuild.module_for(kernel, run.progress, HERE, MODULE)
    options = {
        "orders": ",".join(sweep.orders),
        "trap": sweep.trap,
        "user": sweep.axis.text,
        "kernel": sweep.axis.text,
        "stride": str(cells.STRIDE),
        "iterations": str(sweep.iterations),
        "batch": str(cells.BATCH),
        "warm": str(sweep.warm),
        "rows": MASK,
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    share = (sweep.iterations + sweep.warm) / (cells.ITERATIONS + cells.WARM)
    weight = share * (1 + len(plan.lines) / STRUCTURES_AS_MUCH)
    insert = f"insmod {GUEST_MODULE} bytes={sweep.axis.last_kb << 10}"
    return Grid(
        name=sweep.name,
        rows=sweep.axis.points,
        regions=sweep.axis.points * len(sweep.orders),
        vms=min(sweep.vms, sweep.axis.points),
        config=LabConfig(
            kernel=run.kernel,
            cpus=1,
            icount=True,
            quick_start=run.quick,
            memory=MEMORY,
            module_parameters="supervisor=1" if "supervisor" in sweep.orders else "",
            append=f"{KERNEL_WORDS} {sweep.kernel_words}".strip(),
            files=((module, GUEST_MODULE), (workload("memory-hierarchy"), GUEST_PROGRAM)),
            timeout_s=TIMEOUT_S,
        ),
        argv=("/bin/sh", "-c", f"{insert} && exec {shlex.join([GUEST_PROGRAM, *words])}"),
        plan=plan,
        row_of=lambda label: cells.region(label).user_kb // sweep.axis.step_kb,
        effort=lambda label: weight * cells.effort(label),
        describe=cells.describe,
        total=weight * sweep.axis.total_effort(len(sweep.orders)),
    )


def check(grid: cells.Cells, name: str) -> Sequence[Row]:
    """Rows of what was checked; ValueError where a count cannot be what it should."""
    rows: list[Row] = []
    for order in grid.orders:
        for mode, footprint in (("user", grid.user), ("kernel", grid.kernel)):
            if order == "supervisor" and mode == "user":
                continue  # what the handler does is the kernel's code, wherever it runs
            least = READS_SHARE * grid.iterations * footprint * 1024 / cells.STRIDE
            if (grid.count(order, f"{mode}.reads") < least).any():
                raise ValueError(f"{order}: too few reads in {mode} space: some were not made")
        switches = grid.count(order, "crossings.cr3").sum()
        if order != "workers" and switches:
            raise ValueError(f"{order}: {switches:.0f} changes of address space inside of regions")
        reads = grid.both(order, "reads").sum()
        rows.append({"check": f"{name}, {order}: every read made", "made": int(reads)})
    return rows


def metrics_of_time(meta: Row, name: str) -> Mapping[str, Metric]:
    """How long the VMs of a grid ran, from the first's begin to the last's end; time between parts
    of an interrupted run left out. Nothing where it was not noted."""
    spans = sorted(
        (boot["began_s"], boot["began_s"] + boot["wall_s"])
        for label, boot in meta.get("boots", {}).items()
        if label.startswith(f"{name}-vm") and "began_s" in boot and "wall_s" in boot
    )
    if not spans:
        return {}
    wall_s, end = 0.0, spans[0][0]
    for first, last in spans:
        wall_s += max(0.0, last - max(first, end))
        end = max(end, last)
    return {f"grid.wall.{name}.seconds": Metric(round(wall_s, 1), "seconds", "measured")}
