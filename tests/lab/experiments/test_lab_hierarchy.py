# SPDX-License-Identifier: GPL-2.0-only
"""Experiment memory-hierarchy in a VM: the test program, its kernel module, the model, a grid.

One small grid in all four orders on the real kernel; again with its VM killed within a row, and
again with a guest that wakes late before each region.
What is made of counts is the business of test_memory_hierarchy in tests/unit; the experiment itself
is not run here.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from eval.memory_hierarchy import cells, footprint_grid, variants
from eval.memory_hierarchy import part_pairs as pairs
from tests.lab.conftest import shown_progress
from trapless.base.console import TraplessError
from trapless.experiments import collection, experiment
from trapless.experiments.fleet import grid
from trapless.model.model_plan import Plan
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(3600)]

REFUSALS = "".join(
    f"insmod {footprint_grid.GUEST_MODULE} bytes={size} 2>/dev/null && exit 9; "
    for size in ("0", "5", str(16 << 20))
)
TOO_LARGE = (
    f"{footprint_grid.GUEST_PROGRAM} --kernel 0:1024:1024 | "
    "grep -q 'less than 1048576 bytes: insert hierarchy.ko with bytes=1048576' || exit 8; "
)
"""What the module and the program refuse, before and after the module is there."""

CALLS = 512
WAIT_S = 1800.0


@pytest.fixture(scope="module")
def wanted():
    """Footprints of 0, 128 and 256 KB, all orders, by the fast trap, in one VM."""
    mains = tuple(variants.main(name) for name in variants.PROCESSORS)
    return footprint_grid.Sweep("small", cells.Axis(128), pairs.PRODUCT, "fast", mains, 1)


def run_grid(wanted, folder, progress, jitter="0"):
    """The grid into a folder, or what is missing there. `jitter` is one digit, for the length of a
    program's words moves its stack."""
    run = collection.Collection("hierarchy", folder, True, lab.DEFAULT_KERNEL, progress)
    run.part = "pairs"
    made = footprint_grid.grid_of(run, wanted, Plan.of(list(wanted.variants)))
    shell, option, script = made.argv
    insert, exec_, program = script.partition("exec ")
    script = f"{REFUSALS}{insert}true || exit; {TOO_LARGE}{exec_}{program} --jitter {jitter}"
    grid.collect(run, [replace(made, argv=(shell, option, script))], jobs=1)
    run.finish()


@pytest.fixture(scope="module")
def folder(wanted, tmp_path_factory, pytestconfig):
    found = tmp_path_factory.mktemp("hierarchy")
    with shown_progress(pytestconfig) as progress:
        run_grid(wanted, found, progress)
    return found


@pytest.fixture(scope="module")
def found(wanted, folder):
    names: dict[str, dict[str, str]] = {}
    for (variant, role), structure in Plan.of(list(wanted.variants)).names.items():
        names.setdefault(variant, {})[role] = structure
    return cells.load(experiment.Raw([{"grid": "small", "names": names}], {}, folder), "small")


def emulators_below(pid):
    """QEMUs that a process and what it started have started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)] = (name, int(rest.split()[1]))
    below = {pid}
    while more := {one for one, (_, parent) in parents.items() if parent in below} - below:
        below |= more
    return [one for one in below if one != pid and parents[one][0].startswith("qemu")]


def kill_after_first_row(folder, killed):
    """SIGKILL for the VM as soon as a row is kept: the guest is within another one then."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end and not list(folder.rglob("row-00000.parquet")):
        time.sleep(0.02)
    for pid in emulators_below(os.getpid()):
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)


def test_a_vm_killed_within_a_row_loses_that_row_alone_and_counts_are_equal(
    wanted, folder, tmp_path, pytestconfig
):
    killed: list[int] = []
    killer = threading.Thread(target=kill_after_first_row, args=(tmp_path, killed))
    killer.start()
    with shown_progress(pytestconfig) as progress:
        with pytest.raises(TraplessError, match=r"of 3 rows are finished and kept; the same"):
            run_grid(wanted, tmp_path, progress)
        killer.join()
        kept = {path.name: path.read_bytes() for path in tmp_path.rglob("row-*.parquet")}
        assert len(killed) == 1 and 1 <= len(kept) < 3
        run_grid(wanted, tmp_path, progress)  # makes the kept rows again, and compares them
    assert (tmp_path / "small.parquet").read_bytes() == (folder / "small.parquet").read_bytes()


def test_a_guest_that_wakes_late_counts_the_same(wanted, folder, tmp_path, pytestconfig):
    """As it does where QEMU sets the clock too far; here it asks for it, up to 4,095 ns a time."""
    with shown_progress(pytestconfig) as progress:
        run_grid(wanted, tmp_path, progress, jitter="7")
    late, exact = (pq.read_table(where / "small.parquet") for where in (tmp_path, folder))
    assert late.num_rows == 36
    assert late.equals(exact)


def test_every_region_passes_its_checks(found):
    assert found.orders == cells.ORDERS
    checks = footprint_grid.check(found, "small")
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
