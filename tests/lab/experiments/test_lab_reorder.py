# SPDX-License-Identifier: GPL-2.0-only
"""Batches in free order, on the real kernel: the same calls, made side by side, miss less.

Both loads of memory-hierarchy's third part in one VM. That results and slots are right is held by
the library's own tests; what is made of counts by test_reorder in tests/unit.
"""

from __future__ import annotations

import pytest

from eval.memory_hierarchy import footprint_grid, variants
from eval.memory_hierarchy import part_reorder as reorder
from eval.memory_hierarchy import reorder_tables as told
from tests.lab.conftest import shown_progress
from trapless.experiments import experiment
from trapless.model import plugin_choice, rows
from trapless.model.model_plan import Plan
from trapless.stock import kbuild, kernels
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]

CORE = "core-i7-9700k"
N, CALLS = 32, 256
RUNS = (
    f"{reorder.PROGRAM} --objects 12:12:1 --kernel 0:32:32 --batch {N} --calls {CALLS}",
    f"{reorder.PROGRAM} --mix --batch {N} --calls {CALLS}",
)


@pytest.fixture(scope="module")
def found(tmp_path_factory, pytestconfig):
    """12 places of 0 and of 32 KB, and a server's calls; counts by region."""
    folder = tmp_path_factory.mktemp("reorder")
    plan = Plan.of([variants.main(CORE)])
    plan.write(folder / "config", 512 << 20)
    with shown_progress(pytestconfig) as progress:
        kernel = kernels.resolve(lab.DEFAULT_KERNEL, progress)
        module = kbuild.module_for(kernel, progress, footprint_grid.HERE, footprint_grid.MODULE)
    program = experiment.workload("memory-hierarchy").with_name(reorder.PROGRAM)
    insert = f"insmod {footprint_grid.GUEST_MODULE} bytes={12 * 32 << 10}"
    done = lab.run(
        lab.LabConfig(
            icount=True,
            memory=footprint_grid.MEMORY,
            append=footprint_grid.KERNEL_WORDS,
            files=((module, footprint_grid.GUEST_MODULE), (program, f"/bin/{reorder.PROGRAM}")),
            plugins=(plugin_choice.argument(folder / "config", folder / "rows"),),
        ),
        ("/bin/sh", "-c", " && ".join((insert, *RUNS))),
    )
    assert done.status == 0, done.stdout.decode()
    recording = rows.read(folder / "rows")
    assert not recording.events
    counts = {
        told.region(row.label): dict(zip(recording.columns, row.counts, strict=True))
        for row in recording.rows
    }
    names = {CORE: {role: name for (_, role), name in plan.names.items()}}
    return told.Regions(counts, CALLS, {variants.main(CORE).id: names[CORE]})


def test_every_region_makes_its_calls_by_as_many_crossings(found):
    assert len(found.counts) == 8
    for counts in found.counts.values():
        assert counts["crossings.sysret"] == CALLS / N


def test_what_is_made_side_by_side_misses_less(found):
    variant, costs = variants.main(CORE).id, told.middle(CORE)
    wide = told.Region("objects", "random", True, N, 12, 32)
    misses = [found.misses(one, variant, "l2", told.ALL) for one in (wide.given, wide)]
    assert misses[1] < 0.75 * misses[0]
    assert found.ratio(wide, CORE, costs) < 0.75
    calls = told.Region("mix", "random", True, N, 0, 0)
    misses = [found.misses(one, variant, "l1i", told.CODE) for one in (calls.given, calls)]
    assert misses[1] < 0.75 * misses[0]


def test_what_shares_nothing_pays_for_the_sorting(found):
    empty = told.Region("objects", "random", True, N, 12, 0)
    assert found.ratio(empty, CORE, told.middle(CORE)) > 1.2
    assert 40 < found.extra(empty) < 150


def test_calls_in_order_are_only_looked_at(found):
    in_order = told.Region("mix", "sorted", True, N, 0, 0)
    assert 10 < found.extra(in_order) < 40
