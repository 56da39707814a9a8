# SPDX-License-Identifier: GPL-2.0-only
"""What tests of the ways to find machines share: a kernel in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.peek.toy_kernel import ToyKernel


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ToyKernel().save(tmp_path_factory.mktemp("toy"))
