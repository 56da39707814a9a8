# SPDX-License-Identifier: GPL-2.0-only
"""How Sphinx makes pages of the documents, which stay as GitHub shows them. generator.py starts it.

Owns the look, the table of contents, and how links to folders become links to their pages.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

ROOT = Path(os.environ["TRAPLESS_SITE_SOURCE"])

project = "Trapless"
author = "the authors of Trapless"
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Trapless"
root_doc = "README"
html_copy_source = False
exclude_patterns = ["tests", "LICENSES"]
myst_heading_anchors = 6
suppress_warnings = ["myst.header"]  # a manual page is one piece of HTML below its title

GROUPS = {
    "Begin": (
        "docs/which",
        "docs/install",
        "examples/cookbook",
        "docs/questions",
        "examples/README",
        "examples/experiment/README",
    ),
    "The library": (
        "docs/library",
        "docs/batches",
        "lib/bindings/*/README",
        "examples/walk/README",
    ),
    "The command": ("docs/lab", "docs/stat", "docs/supervisor-mode", "docs/kernels", "docs/model"),
    "Looking into kernels": (
        "docs/peek",
        "trapless/peek/*/README",
        "docs/probes",
        "sampler/README",
    ),
    "Results and experiments": ("docs/results/*/*", "eval/*", "eval/*/*", "eval/tools/*/*"),
    "Reference": ("api", "man/*", "docs/glossary"),
    "The project": ("docs/architecture", "docs/*", "SECURITY", "CONTRIBUTING", "CHANGELOG"),
}
"""Each document is in the first group that has its pattern; a document in none is a warning."""


def contents() -> str:
    """The hidden tables of contents of the first page, which the sidebar shows."""
    left = sorted(str(path.relative_to(ROOT).with_suffix("")) for path in ROOT.rglob("*.md"))
    left.remove("README")
    tables = []
    for title, patterns in GROUPS.items():
        chosen = []
        for pattern in patterns:
            matching = re.compile(pattern.replace("*", "[^/]+"))
            chosen += [name for name in left if matching.fullmatch(name) and name not in chosen]
        left = [name for name in left if name not in chosen]
        tables.append(
            f"```{{toctree}}\n:hidden:\n:maxdepth: 1\n:caption: {title}\n\n"
            + "\n".join(f"/{name}" for name in chosen)
            + "\n```\n"
        )
    return "\n\n" + "\n".join(tables)


def page_of(folder: Path) -> Path | None:
    """The page that says what a folder of the checkout holds; None where it has none."""
    if (folder / "README.md").is_file():
        return folder / "README.md"
    return ROOT / "man/trapless.1.md" if folder == ROOT / "man" else None


def with_pages_for_folders(name: str, text: str) -> str:
    """A link to a folder leads to the folder's page, or is no link where it has none."""
    here = (ROOT / name).parent

    def linked(match: re.Match[str]) -> str:
        folder = Path(os.path.normpath(here / match["target"]))
        if not folder.is_dir():
            return match[0]
        page = page_of(folder)
        return (
            f"[{match['text']}](/{page.relative_to(ROOT)}{match['place'] or ''})"
            if page
            else match["text"]
        )

    return re.sub(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#: ]+)(?P<place>#[^)]*)?\)", linked, text)


def on_source_read(_app: object, name: str, source: list[str]) -> None:
    text = with_pages_for_folders(name, source[0])
    text = re.sub(r"^```compile_fail\S*$", "```rust", text, flags=re.M)
    source[0] = text + contents() if name == root_doc else text


def setup(app: object) -> None:
    app.connect("source-read", on_source_read)  # type: ignore[attr-defined]
