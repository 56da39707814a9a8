# SPDX-License-Identifier: GPL-2.0-only
"""How the guests of these tests start, whichever process of pytest runs them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def quick_start() -> Iterator[None]:
    """Quickly, counted ones too: what is asserted of counts here holds with either start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAPLESS_QUICK_START", "1")
        yield
