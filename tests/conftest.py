# SPDX-License-Identifier: GPL-2.0-only
"""What all test folders share: the option that says on which kernels the lab's tests run."""

from __future__ import annotations

import pytest

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
