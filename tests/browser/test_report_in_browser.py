# SPDX-License-Identifier: GPL-2.0-only
"""The report in a browser: axe finds nothing serious in it, wide or on a phone, light or dark; no
part of it is wider than a phone; and it is printed on fewer than 30 pages.

`make report-check` runs this. It takes Chromium, and axe-core from npm's registry, which is put
into build/axe. What the page is made of is tested without a browser (tests/unit/report).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import escape, unescape

import pytest

from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.experiments import report_files
from trapless.report import html
from trapless.report.document import Unfinished

SAVED = next(path for path in (repo_root() / "docs" / "results").iterdir() if path.is_dir())
AXE = "axe-core@4.14.1"
AXE_PATH = repo_root() / "build" / "axe" / "node_modules" / "axe-core" / "axe.min.js"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 600
PAGES_MAX = 29
SCHEMES = {"dark": 0, "light": 1}  # as Chromium numbers them
PHONE, WIDE = 390, 1440  # pixels

# Folds are opened, so that all of the page is looked at. The element at the end is read from here.
LOOK = """
for (const fold of document.querySelectorAll("main details")) fold.open = true;
const wider = [...document.querySelectorAll("main *")].filter(part =>
  part.getBoundingClientRect().right > innerWidth + 1 && !part.closest(".wide, pre, svg, .unseen"));
axe.run(document, {resultTypes: ["violations"]}).then(found => {
  const words = document.createElement("pre");
  words.id = "found";
  words.textContent = JSON.stringify({
    dark: matchMedia("(prefers-color-scheme: dark)").matches, width: innerWidth,
    passes: found.passes.length, wider: wider.map(part => part.outerHTML.slice(0, 200)),
    violations: found.violations.map(one => [one.impact, one.id, one.nodes[0].html]),
  });
  parent.document.body.append(words);
});
"""


@pytest.fixture(scope="module")
def browser():
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.fail(f"no browser ({', '.join(BROWSERS)}); on Debian: apt-get install chromium")
    return [found, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]


@pytest.fixture(scope="module")
def axe():
    if not AXE_PATH.exists():
        if shutil.which("npm") is None:
            pytest.fail(f"no npm, which fetches {AXE}; on Debian: apt-get install npm")
        command = ["npm", "install", "--no-save", "--prefix", str(AXE_PATH.parents[2]), AXE]
        AXE_PATH.parents[2].mkdir(parents=True, exist_ok=True)
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
        assert run.returncode == 0, run.stderr
    return AXE_PATH.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page():
    """The saved results' page, and a failure that they do not have."""
    saved = report_files.read(SAVED, Silent())
    failed = Unfinished(
        "made-up", "no reply in 10 s\nwhat it printed: nothing", "trapless evaluate"
    )
    return html.html(replace(saved, unfinished=(failed,)))


def run(browser, path, *options):
    command = [*browser, f"--user-data-dir={path.parent / 'profile'}", *options, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("width", "scheme"), [(WIDE, "light"), (WIDE, "dark"), (PHONE, "dark")])
def test_axe_finds_nothing_serious(browser, axe, page, tmp_path, width, scheme):
    looked_at = escape(f"{page}<script>{axe}</script><script>{LOOK}</script>")
    path = tmp_path / "report.html"
    # In a frame: no window of a desktop is as narrow as a phone.
    path.write_text(
        f'<!doctype html><meta name="color-scheme" content="light dark"><body>'
        f'<iframe style="width: {width}px; height: 900px; border: 0" srcdoc="{looked_at}"></iframe>'
    )
    dom = run(
        browser, path, "--window-size=1600,1000", "--virtual-time-budget=120000",
        f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--dump-dom",
    )  # fmt: skip
    words = re.search(r'<pre id="found">(.*?)</pre>', dom, re.S)
    assert words, "axe came to no end"
    found = json.loads(unescape(words[1]))
    assert (found["dark"], found["width"]) == (scheme == "dark", width)
    assert found["passes"] > 20
    assert [one for one in found["violations"] if one[0] in ("serious", "critical")] == []
    assert found["wider"] == []


def test_it_is_printed_on_fewer_than_30_pages(browser, page, tmp_path):
    (tmp_path / "report.html").write_text(page)
    printed = tmp_path / "report.pdf"
    run(
        browser,
        tmp_path / "report.html",
        f"--print-to-pdf={printed}",
        "--no-pdf-header-footer",
    )
    pages = len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes()))
    assert 5 < pages <= PAGES_MAX
