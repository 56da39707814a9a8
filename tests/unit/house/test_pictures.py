# SPDX-License-Identifier: GPL-2.0-only
"""`make pictures` makes the pictures that documents show, from real runs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DRAWN = {"architecture.svg"}
"""Pictures that show no run."""
WORDS = {
    "peek-top.svg": "Where each CPU was",
    "peek-why.svg": "upload",
    "stat-calls.svg": "openat",
}


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("chromium") is None, reason="a browser photographs the pages")
def test_each_picture_is_made_of_a_real_run(tmp_path):
    words = [sys.executable, ROOT / "scripts/pictures.py", tmp_path]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = {path.name for path in (ROOT / "docs/pictures").iterdir()} - DRAWN
    assert {path.name for path in tmp_path.iterdir()} == saved
    for name, word in WORDS.items():
        text = (tmp_path / name).read_text().replace("&#160;", " ")
        assert "<svg" in text and word in text
        addresses = re.findall(r"https?://[^/\s\"]+", text)
        assert set(addresses) <= {"http://www.w3.org", "https://www.textualize.io"}
