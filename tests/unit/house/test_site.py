# SPDX-License-Identifier: GPL-2.0-only
"""`make site` makes pages of all documents, manual pages and the API, and no link leads nowhere."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = importlib.util.spec_from_file_location("site_maker", ROOT / "scripts/site/generator.py")
SITE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SITE)


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top">A</h1><a href="b.html">1</a> <a href="#top">2</a> <a href="b.html#no">3</a>'
        ' <a href="c.html">4</a> <img src="d.svg"> <a href="https://example.org/none">5</a>'
    )
    (tmp_path / "b.html").write_text("<p>B</p>")
    assert SITE.dead_links(tmp_path) == [
        "a.html: b.html#no",
        "a.html: c.html",
        "a.html: d.svg",
    ]


@pytest.mark.long
@pytest.mark.slow
def test_the_site_has_documents_manual_pages_and_the_api(tmp_path):
    """It installs the generators, which takes a network."""
    done = subprocess.run(
        ["make", "-s", "site"], cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr
    pages = ROOT / "build/site/html"
    for name in (
        "README.html",
        "docs/which.html",
        "man/tl_batch.3.html",
        "api/python/libtrapless.html",
        "api/rust/trapless/struct.Batch.html",
        "searchindex.js",
    ):
        assert (pages / name).stat().st_size > 1000, name
    phone = (pages / "docs/which.html").read_text()
    assert 'name="viewport"' in phone and "tl_files" in phone
