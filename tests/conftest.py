# SPDX-License-Identifier: GPL-2.0-only
"""What all test folders share: the option that says on which kernels the lab's tests run, and how
tests are dealt out where several processes run them (-n).
"""

from __future__ import annotations

import re

import pytest
from xdist.scheduler import LoadScopeScheduling

from trapless.stock import kernels

DEFAULT_KERNELS = kernels.SUPPORTED[0].name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kernels",
        default=DEFAULT_KERNELS,
        metavar="NAME[,NAME...]|all",
        help="kernels for tests/lab: names that `trapless lab --kernel` takes (also a path), or "
        f"'all' for every supported one (default: {DEFAULT_KERNELS})",
    )


class ByFileAndKernel(LoadScopeScheduling):
    """Tests of a file, in the lab those on one kernel, stay together: they share a VM."""

    def _split_scope(self, nodeid: str) -> str:
        first = re.match(r"(tests/lab/[^\[]+\.py)::[^\[]+\[([^-\]]+)", nodeid)  # the kernel, if any
        return " ".join(first.groups()) if first else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    """With VMs among the tests, what is named first on the command line begins first: it should be
    what takes longest. Otherwise files with many tests do, so that none is left alone at the end.
    """
    config.option.loadscopereorder = not any("tests/lab" in name for name in config.args)
    return ByFileAndKernel(config, log)
