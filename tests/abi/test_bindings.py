# SPDX-License-Identifier: GPL-2.0-only
"""The libraries for Python and Rust say what the headers say: numbers, layouts, functions, calls.

It reads them as text, and builds nothing. declarations.py makes what the tables in C have rows for.
"""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.abi import declarations
from tests.abi.test_abi import NUMBERS, STRUCTS

ROOT = Path(__file__).resolve().parents[2]
BINDINGS = ROOT / "lib/bindings"
CRATE = BINDINGS / "rust/src"
C = "".join((ROOT / "include" / name).read_text() for name in ("trapless.h", "trapless_walk.h"))
SYS = (CRATE / "sys.rs").read_text()

PYTHON = BINDINGS / "python/libtrapless"
COUNTS = SimpleNamespace(**runpy.run_path(str(PYTHON / "counts.py")))
ABI = SimpleNamespace(**runpy.run_path(str(PYTHON / "abi.py")))
"""Modules of Python alone: the package loads its extension, and nothing is built here."""

BOUND = ("tl_batch_", "tl_call_get_class", "tl_walk_")
"""What other languages have: batches, programs and walks. Schedulers are asyncio's and futures'
business, a batch in a thread of its own stands for workers, and `trapless switch` switches any
program."""

TYPES = {
    "void": "",
    "int": "c_int",
    "bool": "bool",
    "unsigned int": "c_uint",
    "uint32_t": "u32",
    "uint64_t": "u64",
    "int64_t": "i64",
    "enum tl_backend": "c_int",
    "enum tl_condition": "c_int",
    "struct tl_batch *": "*mut tl_batch",
    "const struct tl_batch *": "*const tl_batch",
    "struct tl_batch **": "*mut *mut tl_batch",
    "struct tl_stats *": "*mut tl_stats",
    "const char **": "*mut *const c_char",
    "const char *": "*const c_char",
    "struct tl_walk *": "*mut tl_walk",
    "const struct tl_walk *": "*const tl_walk",
    "struct tl_walk **": "*mut *mut tl_walk",
    "const struct tl_walk_entry **": "*mut *const tl_walk_entry",
    "struct tl_walk_stats *": "*mut tl_walk_stats",
}
"""What a type of C is in Rust."""


def numbers_of_c() -> dict[str, int]:
    """Constants of both headers, and the macros with an argument as test_abi.py froze them."""
    found = dict(NUMBERS)
    for name, text in re.findall(r"^#define (TL_\w+)\s+\(?([\dxa-f]+u?(?: << \d+)?)\)?\s", C, re.M):
        found[name] = value_of(text)
    found |= {name: int(text) for name, text in re.findall(r"^\t(TL_\w+) = (\d+),", C, re.M)}
    return found


def value_of(text: str) -> int:
    """A number of C or Rust, or a bit of one."""
    base, _, shift = text.replace("u", "").partition(" << ")
    return int(base, 0) << int(shift or 0)


def functions_of_c() -> dict[str, tuple[str, list[str]]]:
    """What each function of trapless.h returns and takes."""
    text = re.sub(r"/\*.*?\*/", "", C, flags=re.S)
    head = r"^(?!\s|typedef)(?:TL_INLINE )?([\w ]+?[ *]+)(tl_\w+)\(([^()]*)\);"
    found = {}
    for returned, name, arguments in re.findall(head, text, flags=re.M):
        taken = [re.sub(r"\w+$", "", one).strip() for one in arguments.split(",")]
        found[name] = (returned.strip(), [re.sub(r"\s+", " ", one) for one in taken])
    return found


def test_numbers_of_python_are_the_headers() -> None:
    own = {
        "TL_STEPS_DEFAULT": ABI.STEPS_DEFAULT,
        **{f"TL_BACKEND_{one.name}": one for one in ABI.Backend},
        **{f"TL_IF_{one.name}": one for one in ABI.Condition},
    }
    wanted = numbers_of_c()
    assert own == {name: wanted[name] for name in own}
    assert {name for name in wanted if name.startswith(("TL_IF_", "TL_BACKEND_"))} <= set(own)


def test_numbers_of_rust_are_the_headers() -> None:
    own = {
        name: value_of(text)
        for name, text in re.findall(r"^pub const (TL_\w+): \w+ = (.*);$", SYS, re.M)
    }
    macro = r"fn tl_(\w+)\(argument: usize\) -> u32 \{\s+(\d) << \(12 \+ 2 \* argument\)"
    shifts = {"result": 5, "word32": 5, "word64": 0}
    for name, kind in re.findall(macro, SYS):
        own[f"TL_{name.upper()}({shifts[name]})"] = int(kind) << (12 + 2 * shifts[name])
    listed = (CRATE / "request.rs").read_text().partition("pub enum Condition {")[2].split("}")[0]
    own |= {f"TL_IF_{name.upper()}": int(n) for name, n in re.findall(r"(\w+) = (\d+)", listed)}
    wanted = numbers_of_c()
    assert own == {name: wanted[name] for name in own}
    assert len(own) == 10 + 3 + 7 + 10
    assert {name for name in wanted if name.startswith(("TL_IF_", "TL_BACKEND_"))} <= set(own)


def for_machine(path: Path, machine: str) -> str:
    """A file of Rust without the lines that are for other processors."""
    other = rf' *#\[cfg\(target_arch = "(?!{machine}")\w+"\)\]\n.*\n'
    return re.sub(other, "", path.read_text())


def fields_of_rust(text: str, struct: str) -> list[tuple[str, int, int]]:
    """Name, offset and size of each field of a struct with the layout of C."""
    body = text.partition(f"pub struct {struct} {{")[2].split("\n}")[0]
    fields, offset = [], 0
    for name, sort, count in re.findall(r"(\w+): \[?([ui]\d+)(?:; (\d+)\])?,", body):
        size = int(sort[1:]) // 8
        offset = -(-offset // size) * size
        fields.append((name, offset, size * int(count or 1)))
        offset += fields[-1][2]
    return fields


def test_structures_are_those_of_c() -> None:
    fields = STRUCTS["tl_stats"][1]
    assert tuple(fields_of_rust((CRATE / "counts.rs").read_text(), "tl_stats")) == fields
    counts = [name for name, *_ in fields if name not in ("size", "reserved")]
    assert list(COUNTS.Stats._fields) == counts
    assert tuple(fields_of_rust(SYS, "tl_scan_entry")) == STRUCTS["tl_scan_entry"][1]
    for machine, size in (("x86_64", 144), ("aarch64", 128)):
        in_rust = fields_of_rust(for_machine(CRATE / "stat.rs", machine), "Stat")
        assert sum(in_rust[-1][1:]) == size


@pytest.mark.parametrize("name", sorted(n for n in functions_of_c() if n.startswith(BOUND)))
def test_functions_are_those_of_c(name: str) -> None:
    returned, taken = functions_of_c()[name]
    found = re.search(rf"pub fn {name}\(([^)]*)\)(?: -> ([\w* ]+))?;", SYS)
    assert found, f"sys.rs lacks {name}"
    arguments = [one.partition(":")[2].strip() for one in found[1].split(",") if one.strip()]
    assert arguments == [TYPES[one] for one in taken]
    assert (found[2] or "") == TYPES[returned]


def test_every_function_of_batches_is_there() -> None:
    wanted = {name for name in functions_of_c() if name.startswith(BOUND)}
    assert set(re.findall(r"pub fn (\w+)\(", SYS)) == wanted


@pytest.mark.parametrize("path", declarations.MADE)
def test_declarations_are_those_of_the_tables(path: str) -> None:
    text = (ROOT / path).read_text()
    assert text == declarations.MADE[path](path), "run: python -m tests.abi.declarations"


def test_rust_has_every_call() -> None:
    for name, calls in (("x86_64", 350), ("aarch64", 300)):
        assert (CRATE / f"number/{name}.rs").read_text().count("pub const") > calls


def test_flags_of_open_are_the_kernels() -> None:
    names = {
        "READ": "RDONLY", "WRITE": "WRONLY", "READ_WRITE": "RDWR", "CREATE": "CREAT",
        "EXCLUSIVE": "EXCL", "TRUNCATE": "TRUNC", "APPEND": "APPEND", "NONBLOCKING": "NONBLOCK",
        "FOLDER": "DIRECTORY", "CLOSE_ON_EXEC": "CLOEXEC",
    }  # fmt: skip
    kernels = {name: getattr(os, f"O_{flag}") for name, flag in names.items()}
    for machine, folder in (("x86_64", 0o200000), ("aarch64", 0o40000)):
        text = for_machine(CRATE / "lib.rs", machine).partition("pub mod open {")[2]
        own = {name: int(n, 0) for name, n in re.findall(r"const (\w+): i32 = (\w+);", text)}
        assert own == kernels | {"FOLDER": folder}


def test_versions_are_the_librarys() -> None:
    version = re.search(r"^LIB_VERSION = (.*)$", (ROOT / "lib/Makefile.inc").read_text(), re.M)
    python = tomllib.loads((BINDINGS / "python/pyproject.toml").read_text())["project"]
    rust = tomllib.loads((BINDINGS / "rust/Cargo.toml").read_text())["package"]
    assert version and python["version"] == rust["version"] == version[1]


def test_they_need_nothing_else() -> None:
    manifest = tomllib.loads((BINDINGS / "rust/Cargo.toml").read_text())
    assert not {"dependencies", "dev-dependencies", "build-dependencies"} & set(manifest)
    imported = set()
    for path in (BINDINGS / "python/libtrapless").glob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").split(".")[0])
            elif isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
    assert imported <= {*sys.stdlib_module_names, "libtrapless"}
