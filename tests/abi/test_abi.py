# SPDX-License-Identifier: GPL-2.0-only
"""The binary interface is frozen: the rows of trapless_fields.h, gcc, clang and Python agree with
one table of sizes and offsets.

Owns the table, which is written by hand. A line of it changes only together with TL_ABI_VERSION; a
structure may grow a field at its end.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.abi import declarations
from trapless import abi
from trapless.abi import structures

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
INCLUDES = (f"-I{ROOT / 'include/uapi'}", f"-I{ROOT / 'include'}")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
WARNINGS_OF_CXX = ("-Wold-style-cast", "-Wconversion", "-Wsign-conversion", "-Wshadow")

STRUCTS: dict[str, tuple[int, tuple[tuple[str, int, int], ...]]] = {
    "tl_request": (
        64,
        (
            ("nr", 0, 4),
            ("state", 4, 1),
            ("condition", 5, 1),
            ("target", 6, 2),
            ("args", 8, 48),
            ("result", 56, 8),
        ),
    ),
    "tl_program": (16, (("at", 0, 4), ("stopped", 4, 4), ("steps", 8, 8))),
    "tl_completions": (64, (("armed", 0, 4), ("reserved", 4, 60))),
    "tl_setup": (
        32,
        (
            ("size", 0, 4),
            ("flags", 4, 4),
            ("entries", 8, 4),
            ("spin_us", 12, 4),
            ("reserved", 16, 16),
        ),
    ),
    "tl_info": (
        48,
        (
            ("size", 0, 4),
            ("abi", 4, 4),
            ("entries_max", 8, 4),
            ("calls_allowed", 12, 4),
            ("version", 16, 32),
        ),
    ),
    "tl_stats": (
        72,
        (
            ("size", 0, 4),
            ("reserved", 4, 4),
            ("crossings", 8, 8),
            ("executed", 16, 8),
            ("refused", 24, 8),
            ("interrupted", 32, 8),
            ("bypassed", 40, 8),
            ("sleeps", 48, 8),
            ("wakeups", 56, 8),
            ("dropped", 64, 8),
        ),
    ),
    "tl_scan_entry": (
        160,
        (
            ("size", 0, 2),
            ("name_at", 2, 2),
            ("name_bytes", 4, 2),
            ("error", 6, 2),
            ("d_ino", 8, 8),
            ("d_off", 16, 8),
            ("mask", 24, 4),
            ("blksize", 28, 4),
            ("attributes", 32, 8),
            ("attributes_mask", 40, 8),
            ("nlink", 48, 4),
            ("uid", 52, 4),
            ("gid", 56, 4),
            ("mode", 60, 2),
            ("type", 62, 1),
            ("reserved", 63, 1),
            ("ino", 64, 8),
            ("bytes", 72, 8),
            ("blocks", 80, 8),
            ("atime_sec", 88, 8),
            ("btime_sec", 96, 8),
            ("ctime_sec", 104, 8),
            ("mtime_sec", 112, 8),
            ("atime_nsec", 120, 4),
            ("btime_nsec", 124, 4),
            ("ctime_nsec", 128, 4),
            ("mtime_nsec", 132, 4),
            ("rdev_major", 136, 4),
            ("rdev_minor", 140, 4),
            ("dev_major", 144, 4),
            ("dev_minor", 148, 4),
            ("mnt_id", 152, 8),
        ),
    ),
    "tl_switch": (
        32,
        (
            ("size", 0, 4),
            ("mode", 4, 4),
            ("pid", 8, 4),
            ("flags", 12, 4),
            ("refusal", 16, 4),
            ("reserved", 20, 12),
        ),
    ),
    "tl_supervisor": (
        32,
        (("size", 0, 4), ("processes", 4, 4), ("refusals", 8, 8), ("reserved", 16, 16)),
    ),
    "tl_process": (
        144,
        (
            ("pid", 0, 4),
            ("mode", 4, 4),
            ("flags", 8, 4),
            ("threads", 12, 4),
            ("supervisor", 16, 4),
            ("resident", 20, 4),
            ("comm", 24, 16),
            ("calls_direct", 40, 8),
            ("calls_worked", 48, 8),
            ("calls_left", 56, 8),
            ("calls_kernel", 64, 8),
            ("switches", 72, 8),
            ("demotions", 80, 64),
        ),
    ),
    "tl_processes": (
        32,
        (
            ("size", 0, 4),
            ("entry_size", 4, 4),
            ("count", 8, 4),
            ("total", 12, 4),
            ("entries", 16, 8),
            ("reserved", 24, 8),
        ),
    ),
}

NUMBERS: dict[str, int] = {
    "TL_ABI_VERSION": 2,
    "TL_ENTRIES_MAX": 4096,
    "TL_SPIN_US_MAX": 1000,
    "TL_FREE": 0,
    "TL_SUBMITTED": 1,
    "TL_RUNNING": 2,
    "TL_DONE": 3,
    "TL_CANCELED": 4,
    "TL_SETUP_WORKERS": 1,
    "TL_SETUP_COMPLETIONS": 2,
    "TL_SETUP_FLAGS": 3,
    "TL_IOC_INFO": 0xC030E701,
    "TL_IOC_SETUP": 0x4020E702,
    "TL_IOC_STATS": 0xC048E703,
    "TL_IOC_ENTER": 0xE704,
    "TL_IOC_EXIT": 0xE705,
    "TL_IOC_WAKE": 0xE709,
    "TL_IOC_RING": 0xE70A,
    "TL_ENTER_BATCH": 3,
    "TL_ENTER_NOTIFY": 1,
    "TL_ENTER_WAIT": 2,
    "TL_ENTER_PROGRAM": 0,
    "TL_ENTER_OFFSET": 0x7FFFFFFFFFFFFFFF,
    "TL_ENTER_OTHER": 4,
    "TL_ANSWER": 1 << 62,
    "TL_NR_MASK": 0xFFF,
    "TL_NR_STORE": 0xFFF,
    "TL_NR_INCREASE": 0xFFE,
    "TL_NR_PROGRAM": 0xFFD,
    "TL_NR_SCANDIR": 0xFFC,
    "TL_SCAN_NO_DOTS": 1,
    "TL_SCAN_SYNC_TYPE": 0x6000,
    "TL_SCAN_FLAGS": 0x6001,
    "TL_SCAN_MASK": 0x5FFF,
    "TL_SCAN_ENTRY_MAX": 4256,
    "TL_PROGRAM_CHAIN": 1,
    "TL_RESULT(5)": 1 << 22,
    "TL_WORD32(5)": 2 << 22,
    "TL_WORD64(0)": 3 << 12,
    "TL_JUMPS": 1 << 24,
    "TL_PROGRAM_BITS": 0x01FFF000,
    "TL_IF_ALWAYS": 0,
    "TL_IF_ERROR": 1,
    "TL_IF_SUCCESS": 2,
    "TL_IF_ZERO": 3,
    "TL_IF_POSITIVE": 4,
    "TL_IF_SHORT": 5,
    "TL_IF_FULL": 6,
    "TL_STOPPED_NEVER": 0,
    "TL_STOPPED_END": 1,
    "TL_STOPPED_SIGNAL": 2,
    "TL_STOPPED_STEPS": 3,
    "TL_STOPPED_BUSY": 4,
    "TL_STOPPED_PAUSE": 5,
    "TL_RING_PROGRAM_OFFSET(64)": 4096,
    "TL_RING_SUBMIT_OFFSET(64)": 4096,
    "TL_RING_BYTES(1)": 4096,
    "TL_RING_BYTES(64)": 8192,
    "TL_RING_BYTES(TL_ENTRIES_MAX)": 278528,
    "TL_WAIT(4096, 4095)": 0x0FFF1000,
    "TL_WAIT_US(4096, 4095, TL_WAIT_US_MAX)": 0x7FFFFFFF0FFF1000,
    "TL_RING_COMPLETIONS_OFFSET(64)": 8192,
    "TL_RING_COMPLETIONS_BYTES(1)": 4096,
    "TL_RING_COMPLETIONS_BYTES(TL_ENTRIES_MAX)": 20480,
    "TL_MODE_USER": 0,
    "TL_MODE_SUPERVISOR": 1,
    "TL_SWITCH_CHILDREN": 1,
    "TL_SWITCH_EXEC": 2,
    "TL_SWITCH_RESIDENT": 4,
    "TL_SWITCH_ANY_USER": 8,
    "TL_SWITCH_ALLOW_HLT": 16,
    "TL_SWITCH_FLAGS": 31,
    "TL_REFUSED_PARAMETER": 0,
    "TL_REFUSED_CONFIG": 1,
    "TL_REFUSED_SYMBOL": 2,
    "TL_REFUSED_PTI": 3,
    "TL_REFUSED_FRED": 4,
    "TL_REFUSED_LASS": 5,
    "TL_REFUSED_IBT": 6,
    "TL_REFUSED_SHSTK": 7,
    "TL_REFUSED_IBRS": 8,
    "TL_REFUSED_CALL_DEPTH": 9,
    "TL_REFUSED_XEN": 10,
    "TL_REFUSED_CONFIDENTIAL": 11,
    "TL_REFUSED_CONTEXT": 12,
    "TL_REFUSED_IST": 13,
    "TL_REFUSED_ENTRY": 14,
    "TL_REFUSED_LOCKDOWN": 15,
    "TL_REFUSED_NOT_CAPABLE": 32,
    "TL_REFUSED_OTHER_USER": 33,
    "TL_REFUSED_PRIVILEGED": 34,
    "TL_REFUSED_CONFINED": 35,
    "TL_REFUSED_COMPAT": 36,
    "TL_REFUSED_KERNEL_THREAD": 37,
    "TL_REFUSED_VCPU": 38,
    "TL_REFUSED_NOT_ROOTS": 39,
    "TL_REFUSED_TRACED": 40,
    "TL_REFUSED_HLT": 41,
    "TL_REFUSED_SHADOW_STACK": 42,
    "TL_REFUSED_NONE": 255,
    "TL_REFUSALS_MACHINE": 16,
    "TL_DEMOTED_INTERRUPT": 0,
    "TL_DEMOTED_PAGE_FAULT": 1,
    "TL_DEMOTED_EXCEPTION": 2,
    "TL_DEMOTED_DEBUG": 3,
    "TL_DEMOTED_NMI": 4,
    "TL_DEMOTED_MACHINE_CHECK": 5,
    "TL_DEMOTED_COMPAT_CALL": 6,
    "TL_DEMOTED_EXIT": 7,
    "TL_DEMOTIONS": 8,
    "TL_IOC_SWITCH": 0xC020E706,
    "TL_IOC_SUPERVISOR": 0xC020E707,
    "TL_IOC_PROCESSES": 0xC020E708,
}

PYTHON_NUMBERS: dict[str, int] = {
    "TL_ABI_VERSION": abi.VERSION,
    "TL_IOC_INFO": abi.IOC_INFO,
    "TL_NR_MASK": abi.NR_MASK,
    "TL_NR_STORE": abi.NR_STORE,
    "TL_NR_INCREASE": abi.NR_INCREASE,
    "TL_RESULT(5)": abi.result_argument(5),
    "TL_WORD32(5)": abi.word_argument(5, 32),
    "TL_WORD64(0)": abi.word_argument(0, 64),
    "TL_JUMPS": abi.JUMPS,
    "TL_PROGRAM_BITS": abi.PROGRAM_BITS,
    "TL_SWITCH_CHILDREN": abi.SWITCH_CHILDREN,
    "TL_SWITCH_EXEC": abi.SWITCH_EXEC,
    "TL_SWITCH_RESIDENT": abi.SWITCH_RESIDENT,
    "TL_SWITCH_ANY_USER": abi.SWITCH_ANY_USER,
    "TL_SWITCH_ALLOW_HLT": abi.SWITCH_ALLOW_HLT,
    "TL_SWITCH_FLAGS": abi.SWITCH_FLAGS,
    "TL_REFUSALS_MACHINE": abi.REFUSALS_MACHINE,
    "TL_DEMOTIONS": len(abi.Demotion),
    "TL_IOC_SWITCH": abi.IOC_SWITCH,
    "TL_IOC_SUPERVISOR": abi.IOC_SUPERVISOR,
    "TL_IOC_PROCESSES": abi.IOC_PROCESSES,
    **{f"TL_IF_{condition.name}": condition for condition in abi.Condition},
    **{f"TL_MODE_{mode.name}": mode for mode in abi.Mode},
    **{f"TL_REFUSED_{refusal.name}": refusal for refusal in abi.Refusal},
    **{f"TL_DEMOTED_{demotion.name}": demotion for demotion in abi.Demotion},
}
"""The numbers that Python knows: those that the command and its tests use."""


def test_the_table_names_every_number_of_the_header() -> None:
    """An enumerator or ioctl that is added to the headers and forgotten here is found."""
    header = (ROOT / "include/uapi/linux/trapless.h").read_text(encoding="utf-8")
    header += (ROOT / "include/uapi/linux/trapless_compound.h").read_text(encoding="utf-8")
    rows = (ROOT / "include/uapi/linux/trapless_refusals.h").read_text(encoding="utf-8")
    in_enums = re.findall(r"^\t(TL_[A-Z_]+) = ", header, re.MULTILINE)
    in_enums += [f"TL_REFUSED_{name}" for name in re.findall(r"^TL_REFUSAL\((\w+),", rows, re.M)]
    ioctls = re.findall(r"^#define (TL_(?:IOC|SWITCH|ENTER|SCAN)_[A-Z_]+) ", header, re.MULTILINE)
    assert {*in_enums, *ioctls} - {"TL_IOC_MAGIC"} <= set(NUMBERS)
    assert set(re.findall(r"^struct (\w+) \{", header, re.MULTILINE)) == set(STRUCTS)


def test_the_rows_of_the_layout_are_the_frozen_ones() -> None:
    """They cover each structure without a gap, so that a member without a row is found."""
    for structure, (size, frozen_fields) in STRUCTS.items():
        rows = [(row.name, row.offset, row.size) for row in declarations.of(structure)]
        assert tuple(rows) == frozen_fields
        ends = [offset + length for _, offset, length in rows]
        assert [0, *ends] == [*(offset for _, offset, _ in rows), size]


def frozen() -> dict[str, tuple[int, ...]]:
    """The table as the program of layout_program() prints it."""
    lines: dict[str, tuple[int, ...]] = {name: (value,) for name, value in NUMBERS.items()}
    for struct, (size, fields) in STRUCTS.items():
        lines[struct] = (size,)
        for field, offset, length in fields:
            lines[f"{struct}.{field}"] = (offset, length)
    return lines


def layout_program() -> str:
    """A program that prints sizes, offsets and numbers as the compiler sees them, by name."""
    head = ["#include <stddef.h>", "#include <stdio.h>", "#include <linux/trapless.h>"]
    body = ['\tprintf("TL_DEVICE %s\\n", TL_DEVICE);']
    for name in NUMBERS:
        body.append(f'\tprintf("{name} %lld\\n", (long long)({name}));')
    for struct, (_, fields) in STRUCTS.items():
        body.append(f'\tprintf("{struct} %zu\\n", sizeof(struct {struct}));')
        for field, *_ in fields:
            place = f"offsetof(struct {struct}, {field})"
            size = f"sizeof(((struct {struct} *)NULL)->{field})"
            body.append(f'\tprintf("{struct}.{field} %zu %zu\\n", {place}, {size});')
    return "\n".join([*head, "int main(void)", "{", *body, "\treturn 0;", "}", ""])


def compile_and_run(argv: tuple[str, ...], source: Path, out: Path) -> str:
    """Compile one file, run it, return what it printed."""
    command = [*argv, *WARNINGS, *INCLUDES, "-O1", "-o", str(out), str(source)]
    built = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert built.returncode == 0, f"{' '.join(command)}\n{built.stderr}"
    ran = subprocess.run([str(out)], capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, f"{source} by {argv[0]}: exit status {ran.returncode}"
    return ran.stdout


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("standard", ["gnu11", "gnu17"])
def test_c_layout_is_the_frozen_one(compiler: str, standard: str, tmp_path: Path) -> None:
    source = tmp_path / "layout.c"
    source.write_text(layout_program())
    text = compile_and_run((compiler, f"-std={standard}"), source, tmp_path / "layout")
    seen: dict[str, tuple[int, ...]] = {}
    for line in text.splitlines():
        name, _, values = line.rpartition(" ") if "." not in line else line.partition(" ")
        if name == "TL_DEVICE":
            assert values == abi.DEVICE
            continue
        seen[name] = tuple(int(value) for value in values.split())
    assert seen == frozen()


@pytest.mark.parametrize("name", declarations.IN_PYTHON)
def test_python_layout_is_the_frozen_one(name: str) -> None:
    structure = getattr(structures, name[3:].capitalize())
    size, fields = STRUCTS[name]
    assert ctypes.sizeof(structure) == size
    seen = [
        (field, getattr(structure, field).offset, getattr(structure, field).size)
        for field, *_ in structure._fields_
    ]
    assert tuple(seen) == fields


def test_python_numbers_are_the_frozen_ones() -> None:
    assert {name: NUMBERS[name] for name in PYTHON_NUMBERS} == PYTHON_NUMBERS
    enumerations = ("TL_IF_", "TL_MODE_", "TL_REFUSED_", "TL_DEMOTED_")
    assert {name for name in NUMBERS if name.startswith(enumerations)} <= set(PYTHON_NUMBERS)


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
@pytest.mark.parametrize("standard", ["c++11", "c++17", "c++20"])
def test_headers_serve_cxx(compiler: str, standard: str, tmp_path: Path) -> None:
    words = (compiler, f"-std={standard}", *WARNINGS_OF_CXX)
    compile_and_run(words, HERE / "include_from_cxx.cc", tmp_path / "cxx")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_headers_stand_alone_in_strict_c(compiler: str, tmp_path: Path) -> None:
    compile_and_run((compiler, "-std=c11"), HERE / "include_from_c.c", tmp_path / "c")


@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_typed_calls_are_checked(compiler: str, tmp_path: Path) -> None:
    """A missing argument, one of a wrong type, and a call that batches refuse do not compile."""
    said = {
        "read(batch, 0, text, 4)": "",
        "read(batch, text, 0, 4)": "char",
        "openat(batch, -100, text, 0)": "too few arguments|requires 5 arguments",
        "execve(batch, text)": "replaces the program",
    }
    language = "c++" if compiler.endswith("++") else "c"
    for call, words in said.items():
        body = f"int made(struct tl_batch *batch, char *text) {{ return tl_add_{call}; }}\n"
        source = f"#include <trapless_typed.h>\nextern {body.partition(' {')[0]};\n{body}"
        command = [compiler, "-c", "-o", "/dev/null", *WARNINGS, *INCLUDES, f"-x{language}", "-"]
        done = subprocess.run(command, input=source, capture_output=True, text=True, timeout=600)
        assert (done.returncode == 0) == (not words), done.stderr
        assert not words or re.search(words, done.stderr), done.stderr


def test_uapi_header_needs_no_libc() -> None:
    """Kernel-style users include it without a C library's headers."""
    source = "#include <linux/trapless.h>\nstruct tl_request request;\n"
    command = ["gcc", "-ffreestanding", "-fsyntax-only", *WARNINGS, *INCLUDES, "-xc", "-"]
    done = subprocess.run(
        command, input=source, capture_output=True, text=True, timeout=600, env=os.environ
    )
    assert done.returncode == 0, done.stderr
