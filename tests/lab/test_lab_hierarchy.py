# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy in a VM: the test program, its kernel module, the model, a grid.

One small grid in all four orders on the real kernel; what is made of counts is the business of
test_memory_hierarchy in tests/unit. The experiment itself is not run here.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.conftest import shown_progress
from trapless.measure import collect, experiments, grid
from trapless.model.plan import Plan
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

HERE = experiments.eval_dir() / "memory-hierarchy"
cells, pairs, sweep, variants = (
    experiments.load_module(HERE / f"{name}.py") for name in ("cells", "pairs", "sweep", "variants")
)
REFUSALS = "".join(
    f"insmod {sweep.GUEST_MODULE} bytes={size} 2>/dev/null && exit 9; "
    for size in ("0", "5", str(16 << 20))
)
CALLS = 512


@pytest.fixture(scope="module")
def found(tmp_path_factory, pytestconfig):
    """Footprints of 0, 128 and 256 KB, all orders, by the fast trap, in one VM."""
    folder = tmp_path_factory.mktemp("hierarchy")
    mains = tuple(variants.main(name) for name in variants.PROCESSORS)
    wanted = sweep.Sweep("small", cells.Axis(128), pairs.PRODUCT, "fast", mains, 1)
    plan = Plan.of(list(mains))
    with shown_progress(pytestconfig) as progress:
        run = collect.Collection("hierarchy", folder, True, lab.DEFAULT_KERNEL, progress)
        run.part = "pairs"
        made = sweep.grid_of(run, wanted, plan)
        shell, option, script = made.argv
        grid.collect(run, [replace(made, argv=(shell, option, REFUSALS + script))])
        run.finish()
    names: dict[str, dict[str, str]] = {}
    for (variant, role), structure in plan.names.items():
        names.setdefault(variant, {})[role] = structure
    raw = experiments.Raw([{"grid": "small", "names": names}], {}, folder)
    return cells.load(raw, "small")


def test_every_region_passes_its_checks(found):
    assert found.orders == cells.ORDERS
    checks = sweep.check(found, "small")
    assert len(checks) == 4 and all(row["made"] > 0 for row in checks)


def test_each_order_crosses_as_it_should(found):
    assert (found.count("conventional", "crossings.sysret") == CALLS).all()
    assert (found.count("batched", "crossings.sysret") == CALLS / cells.BATCH).all()
    assert (found.count("supervisor", "crossings.sysret") <= CALLS / 20).all()
    assert (found.count("supervisor", "crossings.syscall") >= CALLS).all()
    assert (found.count("batched", "crossings.int") == 0).all()


def test_wrapping_frees_the_tlb_and_supervisor_mode_does_not(found):
    variant = variants.main("pentium-4-1.8").id
    misses = {order: found.misses(order, variant, "dtlb") for order in found.orders}
    middle = (1, 1)  # 128 KB on both sides: with anything else they do not fit
    assert misses["conventional"][middle] > 10 * CALLS
    assert misses["batched"][middle] < misses["conventional"][middle] / 2
    assert misses["supervisor"][middle] > misses["conventional"][middle] / 2
    assert misses["conventional"][0, 0] < CALLS
    alone = (0, 2)  # 256 KB in user space: 64 pages of 4 KB, and the rest of the program
    assert misses["batched"][alone] > 10 * CALLS
