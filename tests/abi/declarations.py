# SPDX-License-Identifier: GPL-2.0-only
"""Declarations of the binary interface for other languages, made from the tables in C.

`python -m tests.abi.declarations` writes the files of MADE anew from the rows of trapless_fields.h
and trapless_calls.h. test_bindings.py finds them unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from trapless import calls

ROOT = Path(__file__).resolve().parents[2]
TABLES = ROOT / "include/uapi/linux"
CRATE = "lib/bindings/rust/src"
BYTES = {"char": 1, "__u8": 1, "__u16": 2, "__u32": 4, "__s32": 4, "__u64": 8, "__s64": 8}
IN_PYTHON = ("tl_request", "tl_info", "tl_switch", "tl_supervisor", "tl_process", "tl_processes")
"""The structures that the command uses."""


class Field(NamedTuple):
    """A row TL_FIELD, or a row TL_COUNT as the TL_FIELD that it stands for."""

    structure: str
    name: str
    type: str
    offset: int
    size: int
    comment: str = ""

    @property
    def elements(self) -> int:
        """How many it has, if it is an array."""
        return self.size // BYTES[self.type]


def fields() -> list[Field]:
    """The rows in their order."""
    row = re.compile(
        r"^TL_(?:FIELD\((\w+), (\w+), (\w+), (\d+), (\d+)\)|COUNT\((\w+), (\d+)\)\s+/\* (.*) \*/)$"
    )
    found = []
    for line in (TABLES / "trapless_fields.h").read_text().splitlines():
        if not line.startswith(("TL_FIELD", "TL_COUNT")):
            continue
        match = row.match(line)
        assert match, f"not a row: {line}"
        if match[1]:
            found.append(Field(match[1], match[2], match[3], int(match[4]), int(match[5])))
        else:
            found.append(Field("tl_stats", match[6], "__u64", int(match[7]), 8, match[8]))
    return found


def of(structure: str) -> list[Field]:
    """The rows of one structure."""
    return [field for field in fields() if field.structure == structure]


def counts() -> list[Field]:
    """The rows of tl_stats that count."""
    return [field for field in of("tl_stats") if field.comment]


def sentence(comment: str) -> str:
    """A comment of C as the beginning of a sentence."""
    return f"{comment[0].upper()}{comment[1:]}."


def head(kept: str, mark: str) -> str:
    """What stands before the declarations in the file as it is."""
    return (ROOT / kept).read_text().partition(mark)[0]


def ctypes_of(field: Field) -> str:
    """Its type for ctypes."""
    if field.type == "char":
        return f"ctypes.c_char * {field.size}"
    number = f"ctypes.c_{'int' if field.type[2] == 's' else 'uint'}{8 * BYTES[field.type]}"
    return number if field.elements == 1 else f"{number} * {field.elements}"


def for_ctypes(path: str) -> str:
    """The structures that the command uses."""
    text = head(path, "\n\nclass ")
    for structure in IN_PYTHON:
        text += f"\n\nclass {structure[3:].capitalize()}(ctypes.Structure):\n"
        text += f'    """struct {structure}."""\n\n    _fields_ = [\n'
        text += "".join(f'        ("{one.name}", {ctypes_of(one)}),\n' for one in of(structure))
        text += "    ]\n"
    return text


def for_python(path: str) -> str:
    """The counts of a batch, as a tuple with names."""
    text = head(path, "class ")
    text += (
        'class Stats(NamedTuple):\n    """struct tl_stats: counts since a batch was created."""\n'
    )
    for one in counts():
        text += f'\n    {one.name}: int\n    """{sentence(one.comment)}"""\n'
    return text + '\n\ncounted = Stats._make\n"""How the extension makes one."""\n'


def rust_members(members: Iterable[Field]) -> str:
    """Members of a structure with the layout of C."""
    return "".join(
        (f"    /// {sentence(one.comment)}\n" if one.comment else "")
        + f"    pub {one.name}: {one.type.strip('_')},\n"
        for one in members
    )


def for_rust(path: str) -> str:
    """struct tl_stats."""
    text = head(path, "/// Counts of a batch")
    text += "/// Counts of a batch since it was created.\n"
    text += "#[repr(C)]\n#[derive(Clone, Copy, Debug, Default)]\n#[allow(non_camel_case_types)]\n"
    return text + f"pub struct tl_stats {{\n{rust_members(of('tl_stats'))}}}\n"


def numbers_for_rust(path: str) -> str:
    """The number of each system call on the processor that the file is named after."""
    text = head(path, "pub const")
    rows = calls.load(Path(path).stem)
    return text + "".join(f"pub const {row.name.upper()}: u32 = {row.nr};\n" for row in rows)


MADE: dict[str, Callable[[str], str]] = {
    "trapless/abi/structures.py": for_ctypes,
    "lib/bindings/python/libtrapless/counts.py": for_python,
    f"{CRATE}/counts.rs": for_rust,
    f"{CRATE}/number/aarch64.rs": numbers_for_rust,
    f"{CRATE}/number/x86_64.rs": numbers_for_rust,
}
"""Each file that is made, and the function that makes its text."""


if __name__ == "__main__":
    for path, make in MADE.items():
        (ROOT / path).write_text(make(path))
