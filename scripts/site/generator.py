# SPDX-License-Identifier: GPL-2.0-only
"""Makes a static site of all documents, manual pages and the API of Python and Rust: `make site`.

Sphinx makes pages of the documents, mandoc those of the manual, pdoc and cargo those of the API. A
copy of the checkout's files is the source, so that nothing is written beside the documents. What
Sphinx warns of fails, and so does a link that leads nowhere in the finished pages.

    python3 scripts/site/generator.py BUILD     into BUILD/site/html
"""

from __future__ import annotations

import html
import os
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
MANUALS = "https://manpages.debian.org/%N.%S"
"""Where a page of another project is."""
FORWARD = '<meta http-equiv="refresh" content="0; url={}">\n'


def main() -> None:
    build = Path(sys.argv[1]).resolve()
    folder, python = build / "site", build / "site-venv/bin/python"
    install(python)
    shutil.rmtree(folder, ignore_errors=True)
    source, pages = folder / "source", folder / "html"
    copy_checkout(source)
    write_manuals(source / "man")
    write_api(source / "api.md", folder / "extra/api", python, build)
    environment = {**os.environ, "TRAPLESS_SITE_SOURCE": str(source)}
    words = [
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "-c",
        str(ROOT / "scripts/site"),
    ]
    words += ["-d", str(folder / "doctrees"), str(source), str(pages)]
    subprocess.run([python, *words], env=environment, check=True)
    shutil.copytree(folder / "extra", pages, dirs_exist_ok=True)
    (pages / "index.html").write_text(FORWARD.format("README.html"))
    dead = dead_links(pages)
    if dead:
        sys.exit("\n".join(("site: links that lead nowhere:", *dead)))
    print(f"site: {len(list(pages.rglob('*.html')))} pages: {pages / 'index.html'}")


def install(python: Path) -> None:
    """The generators, in an environment of their own: nothing else needs them."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["site"]
    stamp = python.parents[1] / "stamp"
    if stamp.exists() and stamp.read_text() == "\n".join(wanted):
        return
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], check=True)
    stamp.write_text("\n".join(wanted))


def copy_checkout(target: Path) -> None:
    """The files that git does not ignore, without the raw data of results."""
    words = ["git", "-C", str(ROOT), "ls-files", "-co", "--exclude-standard", "-z"]
    for name in subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.split(b"\0"):
        path = Path(os.fsdecode(name))
        raw = path.parts[:2] == ("docs", "results") and len(path.parts) > 4
        if name and (ROOT / path).is_file() and not raw:
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, target / path)


def write_manuals(folder: Path) -> None:
    """A document for each manual page; those that it names are linked."""
    sources = sorted(path for path in folder.iterdir() if path.suffix in (".1", ".3", ".7"))
    for path in sources:
        folder.joinpath(f"{path.name}.html").touch()  # mandoc links to the pages that it sees
    for path in sources:
        words = ["mandoc", "-T", "html", "-O", f"fragment,man=%N.%S.html;{MANUALS}", path.name]
        text = subprocess.run(
            words, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
        ).stdout
        for level in (2, 1):  # the page's title stands above its sections
            text = text.replace(f"<h{level} ", f"<h{level + 1} ").replace(
                f"</h{level}>", f"</h{level + 1}>"
            )
        title = f"{path.stem}({path.suffix[1:]})"
        path.with_name(f"{path.name}.md").write_text(f"# {title}\n\n```{{raw}} html\n{text}\n```\n")
    for path in sources:
        folder.joinpath(f"{path.name}.html").unlink()


def write_api(document: Path, folder: Path, python: Path, build: Path) -> None:
    """The pages that pdoc and cargo make of the sources, and a document that leads to them."""
    library = {"PYTHONPATH": str(ROOT / "lib/bindings/python"), "PYTHONWARNINGS": "ignore"}
    words = [python, "-m", "pdoc", "-o", folder / "python", "libtrapless", "libtrapless.aio"]
    subprocess.run(words, env={**os.environ, **library}, check=True)
    target = build / "site-cargo"
    words = ["cargo", "doc", "--quiet", "--offline", "--no-deps", "--target-dir", str(target)]
    subprocess.run(words, cwd=ROOT / "lib/bindings/rust", check=True)
    shutil.copytree(target / "doc", folder / "rust")
    examples = ROOT / "lib/bindings/rust/examples"
    shutil.copytree(
        examples, folder / "rust/trapless/examples"
    )  # the crate's first page links them
    (folder / "rust/index.html").write_text(FORWARD.format("trapless/index.html"))
    places = {
        "Python: libtrapless": "api/python/libtrapless.html",
        "Python, asyncio: libtrapless.aio": "api/python/libtrapless/aio.html",
        "Rust: trapless": "api/rust/trapless/index.html",
        "C: the manual pages, from trapless(7) on": "man/trapless.7.html",
    }
    items = [f'<li><a href="{at}">{html.escape(name)}</a></li>' for name, at in places.items()]
    listing = "\n".join(("<ul>", *items, "</ul>"))
    document.write_text(f"# API\n\n```{{raw}} html\n{listing}\n```\n")


class Links(HTMLParser):
    """The links of a page, and the places in it that links may name."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.places = {""}
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.places.add(value)
            elif (tag, name) in (("a", "href"), ("img", "src"), ("link", "href")) and value:
                self.targets.append(value)


def dead_links(pages: Path) -> list[str]:
    """Each link within the site that leads to no page, or to no place of its page. The API's pages
    have places that a script makes, so only their files are looked at."""
    links = {path: Links(path) for path in pages.rglob("*.html")}
    dead = []
    for page, found in links.items():
        for target in found.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            path = path / "index.html" if path.is_dir() else path
            place = unquote(parts.fragment)
            known = path in links and "api" not in path.relative_to(pages).parts
            if not path.exists() or (known and place not in links[path].places):
                dead.append(f"{page.relative_to(pages)}: {target}")
    return dead


if __name__ == "__main__":
    main()
