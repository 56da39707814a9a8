# SPDX-License-Identifier: GPL-2.0-only
"""The C folders depend on each other in one direction, as docs/architecture.md says.

This test reads the #include lines of each folder. A file and its header of the same name are one
unit. Units may not include each other in a circle, and a part of the module includes only the parts
that ALLOWED gives it. The test does not read calls: a function that no included header declares is
an error of the compiler's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SUFFIXES = {".c", ".h", ".S", ".cc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.M)
# Folders whose files name each other from these places; a name is looked up in their order, after
# the folder of the file itself.
ROOTS = {
    "kmod": ("kmod",),
    "lib": ("lib", "include", "include/uapi"),
    "sampler": ("sampler", "include"),
    "model": ("model", "include"),
}
# What each part of the module may include beside itself. main.c and device.c stand above all parts,
# and limits.h below all.
PARTS = ("probe", "supervisor", "ring", "compat")
ALLOWED = {
    "main": {"device", "limits", *PARTS},
    "device": {"limits", "supervisor", "ring", "compat"},
    "probe": {"limits", "compat"},
    "supervisor": {"limits", "ring", "compat"},
    "ring": {"limits", "compat"},
    "rdma": {"compat"},
    "compat": {"limits"},
    "limits": set(),
}
MADE_BY_THE_BUILD = {"kmod/supervisor/offsets.h": "kmod/supervisor/offsets.c"}


def sources(folder: str) -> list[Path]:
    return sorted(path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def unit(name: str) -> str:
    """A file without its suffix: x.c and x.h are one unit. A file of assembly is one by itself."""
    return name if name.endswith(".S") else name.rpartition(".")[0]


def included(path: Path, folder: str) -> Iterator[str]:
    """The files below `folder` that a file includes."""
    for word in INCLUDE.findall(path.read_text(encoding="utf-8")):
        places = [path.parent, *(ROOT / place for place in ROOTS[folder])]
        for place in places:
            target = (place / word).resolve()
            if not target.is_relative_to(ROOT):
                continue
            name = MADE_BY_THE_BUILD.get(named(target), named(target))
            if (ROOT / name).is_file():
                if name.startswith(f"{folder}/"):
                    yield name
                break


@cache
def arrows(folder: str) -> dict[str, frozenset[str]]:
    """The units that each unit includes, without itself."""
    made: dict[str, set[str]] = {}
    for path in sources(folder):
        own = unit(named(path))
        targets = {unit(name) for name in included(path, folder)}
        made.setdefault(own, set()).update(targets - {own})
    return {name: frozenset(targets) for name, targets in made.items()}


def circle(graph: dict[str, frozenset[str]]) -> list[str]:
    """One circle of the graph, or nothing: takes away what includes nothing, over and over."""
    left = {name: set(targets) for name, targets in graph.items()}
    while True:
        done = {name for name, targets in left.items() if not targets & left.keys()}
        if not done:
            break
        left = {name: targets for name, targets in left.items() if name not in done}
    if not left:
        return []
    way = [min(left)]
    while way[-1] not in way[:-1]:
        way.append(min(left[way[-1]] & left.keys()))
    return way[way.index(way[-1]) :]


def part(name: str) -> str:
    """The part of the module that a file belongs to: its folder, or its own name at the top."""
    words = name.removeprefix("kmod/").split("/")
    return words[0] if len(words) > 1 else unit(words[0])


@pytest.mark.parametrize("folder", sorted(ROOTS))
def test_files_do_not_include_each_other_in_a_circle(folder: str) -> None:
    assert len(arrows(folder)) > 1
    assert any(arrows(folder).values()), f"no include of {folder} was found"
    assert not (found := circle(arrows(folder))), " -> ".join(found)


def test_a_circle_is_found() -> None:
    graph = {"a": frozenset({"b"}), "b": frozenset({"c", "d"}), "c": frozenset({"b"})}
    assert circle({**graph, "d": frozenset()}) == ["b", "c", "b"]
    assert circle({"a": frozenset({"b"}), "b": frozenset()}) == []


def test_parts_of_the_module_include_only_what_is_below_them() -> None:
    faults = [
        f"{named(path)} includes {target}"
        for path in sources("kmod")
        for target in included(path, "kmod")
        if part(target) != part(named(path)) and part(target) not in ALLOWED[part(named(path))]
    ]
    assert not faults, "\n".join(faults)


def test_the_parts_are_those_of_the_document() -> None:
    """docs/architecture.md has the same table."""
    assert {part(named(path)) for path in sources("kmod")} == set(ALLOWED)
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.partition("| part | includes |\n")[2].partition("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)(?:\.[ch]|/)` \| (.*) \|$", table, re.M))
    said = {name: set(re.findall(r"`(\w+)(?:\.[ch]|/)`", row)) for name, row in rows.items()}
    assert said == ALLOWED
