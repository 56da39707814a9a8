# SPDX-License-Identifier: GPL-2.0-only
"""What all test folders share: the options of the lab's tests, and how tests
are distributed where several processes run them (-n).
"""

from __future__ import annotations

import gc
import os
import re
from collections import Counter

import pytest
from xdist.scheduler import LoadScopeScheduling

from trapless.stock import kernels

pytest_plugins = ["tests.once_more"]

# pytest loads readline, which exports the size of a terminal to the processes that -n starts.
for size in ("COLUMNS", "LINES"):
    os.environ.pop(size, None)

DEFAULT_KERNELS = kernels.SUPPORTED[0].name
DEFAULT_RESETS = 3
DEFAULT_FLOOD_S = 60
DEFAULT_PROGRAMS = 10_000
SLOW = (
    "test_evaluate.py", "test_predicted_savings.py", "test_lab_here.py", "test_lab.py",
    "test_lab_programs.py", "test_lab_hierarchy.py", "test_lab_grid.py", "test_readme.py",
    "test_lab_fuzz.py", "test_lab_switch.py", "test_wheel.py", "test_installation.py",
    "test_peek_scale.py", "test_peek_systemd_unit.py", "test_lab_command.py", "test_lab_ends.py",
    "test_fleet.py", "test_walk.py", "test_ci.py", "test_replay.py", "test_foreign_recordings.py",
    "test_programs.py", "test_places.py", "test_threads.py", "test_tidy.py",
)  # fmt: skip
"""Files that take long whatever the number of their tests, the slowest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels",
        default=DEFAULT_KERNELS,
        metavar="NAME[,NAME...]",
        help="kernels for tests/lab: names that `trapless lab --kernel` takes (also a path), 'all' "
        f"for every supported one, 'others' for their flavours (default: {DEFAULT_KERNELS})",
    )
    parser.addoption(
        "--emulator",
        choices=("qemu", "bochs"),
        default="qemu",
        help="what runs the C programs of tests/lab; bochs has IBT, LASS and shadow stacks, is "
        "slow, and runs those of batches and supervisor mode",
    )
    parser.addoption(
        "--tools-once",
        action="store_true",
        help="run lab tests whose subject is a tool of ours, and not the module, and the library's "
        "unit tests on the last of their kernels alone (make test does, make matrix does not)",
    )
    parser.addoption(
        "--resets",
        type=int,
        default=DEFAULT_RESETS,
        metavar="N",
        help=f"how often a guest is reset that peek follows (default: {DEFAULT_RESETS})",
    )
    parser.addoption(
        "--flood-seconds",
        type=int,
        default=DEFAULT_FLOOD_S,
        metavar="N",
        help=f"how long trapless_rdma.ko is flooded by hostile peers (default: {DEFAULT_FLOOD_S})",
    )
    parser.addoption(
        "--programs",
        type=int,
        default=DEFAULT_PROGRAMS,
        metavar="N",
        help=f"how many random programs the module makes (default: {DEFAULT_PROGRAMS})",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that none runs alone at the end, and end with
    those without a VM that have the fewest tests."""
    tests, most = Counter(item.path for item in items), len(items)
    place = {name: number for number, name in enumerate(SLOW)}

    def key(item: pytest.Item) -> tuple[int, int, str]:
        first = place.get(item.path.name, len(SLOW))
        if not item.nodeid.startswith(("tests/unit/", "tests/abi/")):
            return first, -most, ""  # as on the command line
        return first, -tests[item.path], str(item.path)

    items.sort(key=key)


def pytest_collection_finish() -> None:
    """Thousands of tests stay in memory to the end: no later collection of garbage walks them."""
    gc.collect()
    gc.freeze()


class ByFileAndKernel(LoadScopeScheduling):
    """Tests of a file, in the lab those on one kernel, stay together: they share a VM."""

    def _split_scope(self, nodeid: str) -> str:
        first = re.match(r"(tests/lab/[^\[]+\.py)::[^\[]+\[([^-\]]+)", nodeid)  # the kernel, if any
        return " ".join(first.groups()) if first else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """Run files in the order of the command line, on which the slowest folder should be first."""
    config.option.loadscopereorder = False
    return ByFileAndKernel(config, log)
