# SPDX-License-Identifier: GPL-2.0-only
"""Style as a test: what CONTRIBUTING.md asks of every file, checked on every tracked file.

It owns the mechanical rules only. What needs judgement (names, reasons in comments) is for
readers. A rule that a file must break is an entry in a table here, with its reason.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 500
ROOMS_MAX = 20
COLUMNS_MAX = 100
TAB = 8

C_SUFFIXES = {".c", ".h", ".S", ".cc"}
SCRIPT_FIRST_LINES = ("#!/bin/sh", "#!/usr/bin/env bash", "#!/bin/bash")
# Documents and data: no code, no opening paragraph; licensed by LICENSES/ as a whole.
DOCUMENT_SUFFIXES = {
    ".md", ".txt", ".json", ".jsonl", ".parquet", ".svg", ".png", ".xz",
}  # fmt: skip
# Kernel versions may be named by what depends on them and by the tests of that.
MAY_NAME_KERNELS = (
    "kmod/compat/",
    "trapless/stock/kernels.py",
    "tests/unit/",  # on what was recorded with some kernel or other
)

# Collections that nobody reads as a whole: recorded data, and programs that are named by what they
# prove (docs/lab-tests.md lists them).
MAY_BE_LARGE = ("tests/data", "tests/lab/worker")

LICENCES = {
    "GPL-2.0-only",
    "MIT",
    "GPL-2.0-or-later",
    "(GPL-2.0-only WITH Linux-syscall-note) OR MIT",
}
LICENCE_OF = (
    ("include/", "(GPL-2.0-only WITH Linux-syscall-note) OR MIT"),
    ("lib/", "(GPL-2.0-only WITH Linux-syscall-note) OR MIT"),
    ("examples/", "MIT"),
    ("kmod/", "GPL-2.0-only"),
    ("trapless/", "GPL-2.0-only"),
)


def tracked() -> list[Path]:
    """Files under version control that exist; all files where git knows nothing of this tree."""
    listing = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=False
    )
    if listing.returncode == 0 and listing.stdout:
        names = listing.stdout.decode().split("\0")
        return sorted(path for name in names if name and (path := ROOT / name).is_file())
    skip = {".venv", "build", "results", "__pycache__", ".git"}
    return sorted(
        path
        for path in ROOT.rglob("*")
        if path.is_file() and not skip & set(path.relative_to(ROOT).parts)
    )


FILES = tracked()


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


Scope = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Python:
    """What the rules ask of a Python file. To keep all trees would cost seconds of collection."""

    opening: str
    functions: tuple[tuple[str, int], ...]
    docstrings: frozenset[int]
    """The lines on which they begin."""


@cache
def python_of(path: Path) -> Python:
    tree = ast.parse(text_of(path))
    nodes = list(scopes(tree))
    return Python(
        opening=ast.get_docstring(tree) or "",
        functions=tuple(
            (node.name, (node.end_lineno or node.lineno) - node.lineno + 1)
            for node in nodes
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ),
        docstrings=frozenset(
            node.body[0].lineno
            for node in nodes
            if ast.get_docstring(node, clean=False) is not None
        ),
    )


def scopes(node: ast.AST) -> Iterator[Scope]:
    """A module's, and the classes and functions in it. No expression has any: most of a tree is
    left out."""
    if isinstance(node, Scope):
        yield node
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        for child in getattr(node, block, ()):
            yield from scopes(child)


def is_code(path: Path) -> bool:
    if path.suffix in DOCUMENT_SUFFIXES or name_of(path).startswith("LICENSES/"):
        return False
    return path.name not in {".gitignore", ".gitattributes", "py.typed"} and not is_debians(path)


def is_debians(path: Path) -> bool:
    """Files of Debian's packaging whose forms have no comments."""
    return name_of(path).startswith("scripts/debian/") and path.name.endswith(
        ("copyright", "README.Debian", ".symbols")
    )


CODE = [path for path in FILES if is_code(path)]


def complain(faults: list[str]) -> None:
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_there_are_files_to_check():
    assert len(CODE) > 10


def test_each_file_names_its_licence_first():
    faults = []
    for path in CODE:
        head = "\n".join(text_of(path).splitlines()[:4])
        licence = re.search(r"SPDX-License-Identifier:\s*(.+?)\s*(\*/|-->|#\}|$)", head, re.M)
        if not licence:
            faults.append(f"{name_of(path)}: no SPDX-License-Identifier in its first lines")
            continue
        wanted = next((spdx for top, spdx in LICENCE_OF if name_of(path).startswith(top)), None)
        if licence[1] not in LICENCES or (wanted and licence[1] != wanted):
            faults.append(f"{name_of(path)}: licence '{licence[1]}', want {wanted or LICENCES}")
    complain(faults)


def test_each_licence_has_its_text():
    used = {
        word
        for path in CODE
        for line in text_of(path).splitlines()[:4]
        if "SPDX-License-Identifier:" in line
        for word in re.findall(r"GPL-2\.0-only|GPL-2\.0-or-later|MIT|Linux-syscall-note", line)
    }
    texts = {path.stem for path in (ROOT / "LICENSES").iterdir()}
    assert used == texts


def test_each_file_opens_with_a_paragraph():
    faults = []
    for path in CODE:
        text = text_of(path)
        if path.suffix == ".py":
            opening = python_of(path).opening
        else:
            head = "\n".join(text.splitlines()[:14])
            head = re.sub(r"^.*SPDX-License-Identifier.*$|^#!.*$", "", head, flags=re.M)
            words = re.findall(r"^\s*(?:/?\*+|//|#|\.\\\"|\{#|<!--)?\s*(\S.*)$", head, re.M)
            commented = re.search(r"^\s*(/\*|\*|//|#|\.\\\"|\{#|<!--)", head, re.M)
            opening = " ".join(words) if commented else ""
        if len(opening) < 40:
            faults.append(f"{name_of(path)}: no opening paragraph on what it owns")
        elif opening.startswith(f"{path.name} - "):
            faults.append(f"{name_of(path)}: the opening paragraph repeats the file's name")
    complain(faults)


def braced_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Functions of C in kernel style: a '{' and a '}' in the first column, head above."""
    began, head = 0, ""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if re.match(r"[A-Za-z_].*\(", line) and not line.startswith(("static const", "struct ")):
            head = line
        if line == "{":
            began = number
        elif line == "}" and began:
            yield head.split("(")[0].split()[-1] if head else "?", number - began + 1
            began = 0


def rust_functions(path: Path) -> Iterator[tuple[str, int]]:
    """From `fn` to a '}' that stands as far to the right."""
    lines = text_of(path).splitlines()
    for number, line in enumerate(lines):
        if line.endswith(";"):
            continue  # a function of C is declared
        if match := re.match(r"( *)(?:pub(?:\(\w+\))? |unsafe |async |const )*fn (\w+)", line):
            ends = (i for i, end in enumerate(lines[number:], 1) if end == f"{match[1]}}}")
            yield match[2], next(ends, 1)


def shell_functions(path: Path) -> Iterator[tuple[str, int]]:
    began, name = 0, ""
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if match := re.match(r"([a-z_]+)\(\) \{$", line):
            began, name = number, match[1]
        elif line == "}" and began:
            yield name, number - began + 1
            began = 0


def functions(path: Path) -> Iterator[tuple[str, int]]:
    if path.suffix == ".py":
        return iter(python_of(path).functions)
    if path.suffix in C_SUFFIXES:
        return braced_functions(path)
    if path.suffix == ".rs":
        return rust_functions(path)
    if text_of(path).startswith(SCRIPT_FIRST_LINES):
        return shell_functions(path)
    return iter(())


def test_functions_are_short():
    complain(
        [
            f"{name_of(path)}: {name} has {lines} lines, at most {FUNCTION_LINES_MAX}"
            for path in CODE
            for name, lines in functions(path)
            if lines > FUNCTION_LINES_MAX
        ]
    )


def test_files_are_short():
    complain(
        [
            f"{name_of(path)}: {lines} lines, at most {FILE_LINES_MAX}"
            for path in CODE
            if (lines := text_of(path).count("\n")) > FILE_LINES_MAX
        ]
    )


def test_folders_are_small():
    """A room is a file or a folder; the source and the header of one name are one room.
    Files whose names begin with a dot are none, nor is SECURITY.md, which sites look for."""
    rooms: dict[Path, set[str]] = {}
    for path in FILES:
        inside = path.relative_to(ROOT)
        if inside.parts[0].startswith(".") or inside == Path("SECURITY.md"):
            continue
        name = path.stem if path.suffix in {".c", ".h"} else path.name
        rooms.setdefault(inside.parent, set()).add(name)
        for parent in inside.parents[:-1]:
            rooms.setdefault(parent.parent, set()).add(parent.name)
    complain(
        [
            f"{folder}: {len(names)} files and folders, at most {ROOMS_MAX}"
            for folder, names in rooms.items()
            if len(names) > ROOMS_MAX and not folder.as_posix().startswith(MAY_BE_LARGE)
        ]
    )


def test_lines_are_short_and_end_clean():
    faults = []
    for path in CODE:
        text = text_of(path)
        if not text.endswith("\n") or text.endswith("\n\n"):
            faults.append(f"{name_of(path)}: must end with one newline")
        for number, line in enumerate(text.splitlines(), 1):
            if line != line.rstrip():
                faults.append(f"{name_of(path)}:{number}: trailing white space")
            if path.suffix in C_SUFFIXES | {".rs"} and len(line.expandtabs(TAB)) > COLUMNS_MAX:
                faults.append(f"{name_of(path)}:{number}: wider than {COLUMNS_MAX} columns")
    complain(faults)


def test_nothing_is_left_for_later():
    marker = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    complain(
        [
            f"{name_of(path)}:{number}: {match[0]}"
            for path in FILES
            if path.suffix not in {".xz", ".png"}
            for number, line in enumerate(text_of(path).splitlines(), 1)
            if (match := marker.search(line))
        ]
    )


def code_only(path: Path) -> str:
    """What the machine acts on: comments may cite releases, code and its strings may not.

    Of Python only the strings, less the docstrings: a number there is a number.
    """
    text = text_of(path)
    if path.suffix != ".py":
        return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))
    docstrings = python_of(path).docstrings
    return "\n".join(
        token.string
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.STRING and token.start[0] not in docstrings
    )


def test_only_kernel_code_names_kernel_versions():
    version = re.compile(
        r"(?<![\w.])(5\.10|6\.1|6\.12|7\.[0-9])(?=[\"'\s.)\]-]|$)"
        r"|LINUX_VERSION_CODE|KERNEL_VERSION\("
    )
    complain(
        [
            f"{name_of(path)}: names kernel version {match[0]!r}; ask trapless/stock/kernels.py"
            for path in CODE
            if path.suffix in C_SUFFIXES | {".py"}
            and not name_of(path).startswith(MAY_NAME_KERNELS)
            if version.search(text_of(path))
            for match in [version.search(code_only(path))]
            if match
        ]
    )


# Code that is compiled for a kernel: modules, each built for many.
KERNEL_CODE = re.compile(r"kmod/|(?:model|stat|eval/[^/]+)/kmod/")
MAY_ASK_THE_KERNEL = "kmod/compat/"
# Whether a header is read for C or for assembly, for a kernel or for a program.
HARMLESS_CONDITIONS = {"#ifndef __ASSEMBLER__", "#ifdef __KERNEL__", "#ifndef noinline"}


def conditions(path: Path) -> Iterator[tuple[int, str]]:
    """Each line that compiles by a condition, except a header's guard and the harmless ones."""
    guard = re.search(r"^#ifndef (\w+_H)\n#define \1$", text_of(path), re.M)
    mine = {f"#ifndef {guard[1]}"} if guard else set()
    for number, line in enumerate(text_of(path).splitlines(), 1):
        if not re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b|.*\bIS_ENABLED\(", line):
            continue
        if line not in mine | HARMLESS_CONDITIONS:
            yield number, line.strip()


def test_only_compat_asks_how_the_kernel_was_built():
    complain(
        [
            f"{name_of(path)}:{number}: '{line}' belongs into {MAY_ASK_THE_KERNEL}"
            for path in CODE
            if path.suffix in C_SUFFIXES and KERNEL_CODE.match(name_of(path))
            and not name_of(path).startswith(MAY_ASK_THE_KERNEL)
            for number, line in conditions(path)
        ]
    )  # fmt: skip
    kbuild = text_of(ROOT / "kmod/Kbuild")
    assert not re.search(r"^\s*if|CONFIG_|\bgrep\b|\bwildcard\b", kbuild, re.M)


def machine_words() -> list[re.Pattern[str]]:
    """What belongs to the machine at hand: the path of the tree, and its mirrors' hosts."""
    # A folder at the top, like /build, may stand in any file; a longer path is somebody's own.
    common = {"/var/tmp", "/usr/src", "/usr/local/src"}
    paths = {
        path for path in (ROOT, ROOT.parent) if len(path.parts) > 2 and str(path) not in common
    }
    sources = [Path("/etc/apt/sources.list")]
    sources += sorted(Path("/etc/apt/sources.list.d").glob("*"))
    sources += [Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf"]
    hosts = {
        host
        for path in sources
        if path.is_file()
        for host in re.findall(r"https?://(?:[^@/\s]*@)?([^/\s]+)", text_of(path))
    }
    # A whole path, not the end of a longer one.
    words = [rf"(?<![\w.}})\]-]){re.escape(str(path))}/" for path in sorted(paths)]
    return [re.compile(word) for word in words + [re.escape(host) for host in sorted(hosts)]]


def test_nothing_belongs_to_one_machine():
    words = machine_words()
    complain(
        [
            f"{name_of(path)}: names {match[0]!r}"
            for path in FILES
            for match in (word.search(text_of(path)) for word in words)
            if match
        ]
    )
