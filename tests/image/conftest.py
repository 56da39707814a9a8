# SPDX-License-Identifier: GPL-2.0-only
"""Images for the tests, one a kernel, made by the command; and which machines boot them.

Without an option two; --grid, which `make image-check` gives, boots every combination.
"""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest

from tests.image.booted_machine import Case
from tests.make import ROOT, make
from trapless.stock import kernels

FEW = (("uefi", "usb", 4), ("bios", "cd", 1))
GRID = tuple(itertools.product(("bios", "uefi"), ("usb", "cd"), (1, 4)))
OLDEST = kernels.SUPPORTED[0].name
LIMIT_S = 1200
OF_GRID = "batch-size,peek-overhead"
"""What the grid runs on each machine. The first takes two CPUs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--grid",
        action="store_true",
        help="boot images of every supported kernel by BIOS and UEFI, from a stick and a CD, with "
        "1 and 4 CPUs, with two experiments there (hours; without it two boots with all)",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" not in metafunc.fixturenames:
        return
    grid = metafunc.config.getoption("--grid")
    names = [spec.name for spec in kernels.SUPPORTED] if grid else [OLDEST]
    cases = [Case(*one, kernel) for kernel in names for one in (GRID if grid else FEW)]
    metafunc.parametrize("case", cases, ids=str)


class Images:
    """The images of a session, each made when it is first wanted."""

    def __init__(self, folder: Path, words: str) -> None:
        self._folder, self._words = folder, words

    def of(self, kernel: str, words: str = "") -> Path:
        """The image with this kernel; `words` are added for it."""
        path = self._folder / f"{kernel}-{len(words)}.iso"
        if not path.exists():
            make("workloads")
            command = [
                str(ROOT / "bin/trapless"),
                "image",
                str(path),
                "--kernel",
                kernel,
                "--append",
                f"{self._words} {words}",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
            assert done.returncode == 0, done.stderr
            assert path.name in done.stdout and "Secure Boot must be off" in done.stdout
        return path


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Images:
    only = f" trapless.only={OF_GRID}" if pytestconfig.getoption("--grid") else ""
    return Images(tmp_path_factory.mktemp("images"), f"trapless.least=on{only}")
