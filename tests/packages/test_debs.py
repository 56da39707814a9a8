# SPDX-License-Identifier: GPL-2.0-only
"""`make deb` builds seven packages, with which lintian finds no fault, and the same bytes in any
folder. CI runs this; test_debian.py installs the packages in clean roots.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packages.conftest import build

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
NAMES = (
    "libtrapless-dev",
    "libtrapless0",
    "python3-libtrapless",
    "trapless",
    "trapless-dkms",
    "trapless-experiments",
    "trapless-lab",
)
BUILT = (".venv", "build", "results")


def test_there_are_seven_packages_and_lintian_finds_no_fault(packages):
    assert sorted(path.name.split("_")[0] for path in packages) == sorted(NAMES)
    words = ["lintian", "--allow-root", "--fail-on", "error,warning", *map(str, packages)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_no_package_brings_rdma_core_along(packages):
    """Only `peek --rdma` takes its libraries, and loads them then."""
    for path in packages:
        fields = ["dpkg-deb", "-f", path, "Pre-Depends", "Depends", "Recommends"]
        said = subprocess.run(fields, capture_output=True, text=True, check=True).stdout
        assert not re.search("rdma|ibverbs", said), said


def test_another_folder_gives_the_same_bytes(packages, tmp_path):
    checkout = tmp_path / "a/longer/path"
    shutil.copytree(
        ROOT, checkout, symlinks=True, ignore=lambda at, _: BUILT if Path(at) == ROOT else ()
    )
    others = build(checkout)
    assert [path.name for path in others] == [path.name for path in packages]
    pairs = zip(packages, others, strict=True)
    assert [one.name for one, other in pairs if not filecmp.cmp(one, other, shallow=False)] == []
