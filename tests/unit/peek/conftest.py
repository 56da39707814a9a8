# SPDX-License-Identifier: GPL-2.0-only
"""Fixtures for the tests of peek: a toy kernel of each generation."""

from __future__ import annotations

import pytest

from tests.unit.peek.toy_kernel import FORMS, ToyKernel


@pytest.fixture(params=[(form, levels) for form in FORMS for levels in (4, 5)], ids=str)
def kernel(request: pytest.FixtureRequest) -> ToyKernel:
    form, levels = request.param
    return ToyKernel(form=form, levels=levels)
