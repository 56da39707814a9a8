# SPDX-License-Identifier: GPL-2.0-only
"""Reads what C headers declare, for tests that compare it with Python's side.

The compiler says where the members of structures lie and what constants are; their names are found
in the text. Headers of the kernel are read without those that they include.
"""

from __future__ import annotations

import ast
import re
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600
FIRST = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#define u32 uint32_t
#define u64 uint64_t
#define local_t long
#define ____cacheline_aligned __attribute__((aligned(64)))
#define SIZE(name) printf("%zu\n", sizeof(struct name))
#define MEMBER(of, name) \
    printf("%zu %zu\n", offsetof(struct of, name), sizeof(((struct of *)0)->name))
#define NUMBER(name) printf("%lld\n", (long long)(name))
"""


@dataclass(frozen=True)
class Header:
    """What one header declares, without structures' last members where these have no length."""

    structures: dict[str, tuple[dict[str, tuple[int, int]], int]]
    """The offset and size of each member by name, and the size of all."""
    constants: dict[str, int | bytes]
    """Those that are defined, and those of enumerations."""


def output_of(code: str, *words: str) -> bytes:
    """What a C program prints; `words` are more files, and options of the compiler."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "program"
        command = ["cc", "-Wall", "-Werror", *words, "-o", str(program), "-xc", "-"]
        subprocess.run(command, input=code.encode(), check=True, timeout=LIMIT_S, cwd=ROOT)
        return subprocess.check_output([program], timeout=LIMIT_S)


@cache
def read(path: str) -> Header:
    """What the header at a path of the checkout declares."""
    text = re.sub(r"/\*.*?\*/|^#include.*?$", "", (ROOT / path).read_text(), flags=re.S | re.M)
    structures = {
        name: re.findall(r"(\w+)(?:\[\w+\])?[,;]", body)
        for name, body in re.findall(r"^struct (\w+) \{(.*?)^\}", text, re.S | re.M)
    }
    defined = dict(re.findall(r"^#define (\w+)[ \t]+(\S.*)$", text, re.M))
    words = {name: value for name, value in defined.items() if value.startswith('"')}
    numbers = [name for name in defined if name not in words]
    for body in re.findall(r"^enum \w+ \{(.*?)\}", text, re.S | re.M):
        numbers += re.findall(r"(\w+)[^,]*(?:,|$)", body)
    asked = [f"NUMBER({name})" for name in numbers]
    for of, names in structures.items():
        asked += [*(f"MEMBER({of}, {name})" for name in names), f"SIZE({of})"]
    program = f"{FIRST}{text}\nint main(void)\n{{\n\t{'; '.join(asked)};\n}}\n"
    answers = (tuple(map(int, line.split())) for line in output_of(program).splitlines())
    constants = {name: next(answers)[0] for name in numbers}
    constants |= {name: ast.literal_eval(value).encode() for name, value in words.items()}
    return Header(
        {
            of: ({name: next(answers) for name in names}, next(answers)[0])
            for of, names in structures.items()
        },
        constants,
    )
