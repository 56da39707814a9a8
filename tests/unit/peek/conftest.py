# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures for the tests of peek: a toy kernel of each generation, and many open files."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.unit.peek.toy_kernel import FORMS, ToyKernel


@pytest.fixture(params=[(form, levels) for form in FORMS for levels in (4, 5)], ids=str)
def kernel(request: pytest.FixtureRequest) -> ToyKernel:
    form, levels = request.param
    return ToyKernel(form=form, levels=levels)


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """More open files than select() takes."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, before[1]))
    with ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        for _ in range(1100):
            stack.enter_context(open(os.devnull))
        yield
