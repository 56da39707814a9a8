# SPDX-License-Identifier: GPL-2.0-only
"""What unit tests of several files use: an empty cache, and a Debian mirror of the machine's own,
which is a folder.

What a mirror is made of is debian_repository.py's; each file's `mirror` fills it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stock.debian_repository import Repository, Signer
from trapless.stock import packages


@pytest.fixture(scope="session")
def signer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Signer]:
    """A key for all; making it takes longest."""
    made = Signer(tmp_path_factory.mktemp("signer"))
    yield made
    made.close()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty cache, of this test alone."""
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def repository(
    tmp_path: Path, signer: Signer, own_cache: None, monkeypatch: pytest.MonkeyPatch
) -> Repository:
    """The machine's only mirror, empty, beside a cache that is empty, too."""
    monkeypatch.delenv("TRAPLESS_REFRESH", raising=False)
    made = Repository(tmp_path / "mirror", "teststable", signer)
    monkeypatch.setattr(packages, "machine_mirror", lambda: made.mirror)
    return made
