# SPDX-License-Identifier: GPL-2.0-only
"""What all test folders share: the options of the lab's tests, and how tests
are distributed where several processes run them (-n).
"""

from __future__ import annotations

import gc
import re
from collections import Counter

import pytest
from xdist.scheduler import LoadScopeScheduling

from trapless.stock import kernels

pytest_plugins = ["tests.once_more"]

DEFAULT_KERNELS = kernels.SUPPORTED[0].name
DEFAULT_RESETS = 3
DEFAULT_PROGRAMS = 10_000
SLOW = (
    "test_fleet.py", "test_walk.py", "test_ci.py", "test_replay.py", "test_foreign_recordings.py",
    "test_programs.py", "test_places.py", "test_lab.py", "test_threads.py", "test_tidy.py",
)  # fmt: skip
"""Files that take long although they have few tests, the slowest first."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels",
        default=DEFAULT_KERNELS,
        metavar="NAME[,NAME...]",
        help="kernels for tests/lab: names that `trapless lab --kernel` takes (also a path), 'all' "
        f"for every supported one, 'others' for their flavours (default: {DEFAULT_KERNELS})",
    )
    parser.addoption(
        "--tools-once",
        action="store_true",
        help="run lab tests whose subject is a tool of ours, and not the module, on the last of "
        "their kernels alone (make test does, make matrix does not)",
    )
    parser.addoption(
        "--resets",
        type=int,
        default=DEFAULT_RESETS,
        metavar="N",
        help=f"how often a guest is reset that peek follows (default: {DEFAULT_RESETS})",
    )
    parser.addoption(
        "--programs",
        type=int,
        default=DEFAULT_PROGRAMS,
        metavar="N",
        help=f"how many random programs the module makes (default: {DEFAULT_PROGRAMS})",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the files that take longest, so that none runs alone at the end."""
    if all(item.nodeid.startswith(("tests/unit/", "tests/abi/")) for item in items):
        tests = Counter(item.path for item in items)
        place = {name: number for number, name in enumerate(SLOW)}
        last = len(SLOW)
        items.sort(key=lambda i: (place.get(i.path.name, last), -tests[i.path], i.path))


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
