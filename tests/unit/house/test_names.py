# SPDX-License-Identifier: GPL-2.0-only
"""The name of a file says what it holds, and no other file of the house has that name.

The suffix does not count, and files of one folder that differ only in it are one. This file owns
the exceptions, each with its reason.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path, PurePath

from tests.unit.house.test_tidy import FILES, ROOT

SUFFIXES = {".c", ".h", ".S", ".cc", ".py", ".pyi", ".rs", ".js", ".ts", ".go"}
NAMED_BY_OTHERS = {
    "__init__": "Python's name for a package",
    "__main__": "Python's name for what runs by `python -m`",
    "conftest": "pytest's name for what tests share",
    "main": "the beginning of a program in C, beside the parts that it puts together",
    "setup.py": "setuptools' name",
    "spec.py": "the loader of experiments finds it by this name",
    "commands.py": "the subcommands of a part, which cli.py finds by this name",
    "limits": "the bounds of a part stand in its file of this name",
}
"""Names that many folders have, because a tool or a rule of the house gives them."""
FOLDERS = {
    "lib/bindings/": "a library for another language names its files as the C library does",
    "tests/lab/include/": "a header for tests is named after the part that they drive by it",
}
"""Folders whose files may have the names of files elsewhere."""
PAIRS = {
    "absent": "the answer of a part of the module where the kernel lacks what it takes",
    "batch": "kmod/ring and lib are the two ends of a batch",
    "calls": "the table of calls, in C and in Python",
    "channel": "the launcher's and the guest's end of one channel",
    "enter": "kmod/ring and lib are the two ends of an entry",
    "entry": "the first instructions: of a call, of supervisor mode, of the boot loader",
    "frame": "the register frame, on each processor; the header above chooses",
    "event": "an event of a probe, and one of the scheduler",
    "files": "the library's engine for files, and what Python does with files everywhere",
    "hierarchy": "the experiment memory-hierarchy has a kernel module of this name",
    "parallel": "an experiment, and the example of its subject",
    "program": "kmod/ring and lib are the two ends of a program of calls",
    "setup": "of a ring by the module, and of a scheduler by the library",
    "supervisor": "kmod/supervisor and lib are the two ends of a switch",
    "thread": "a thread in supervisor mode, and one of the scheduler",
    "trapless": "the binary interface and the C API, which programs include by these names",
    "walk": "the library's walk through a tree, and the example that prints one",
    "worker": "a worker in the kernel, and one in user space",
}
"""Names that two files share, because they are about one thing or each is its part's own word."""


def may_repeat(path: PurePath) -> bool:
    return (
        path.stem in NAMED_BY_OTHERS
        or path.name in NAMED_BY_OTHERS
        or path.as_posix().startswith(tuple(FOLDERS))
        or (path.match("eval/*/part_*.py"))
    )


def shared() -> dict[str, list[str]]:
    """Names that several files have, and those files without their suffixes."""
    places: dict[str, set[str]] = defaultdict(set)
    for path in (file.relative_to(ROOT) for file in FILES):
        if path.suffix in SUFFIXES and not may_repeat(path):
            places[path.stem].add(path.with_suffix("").as_posix())
    return {name: sorted(found) for name, found in places.items() if len(found) > 1}


def test_no_two_files_have_one_name() -> None:
    unknown = {name: places for name, places in shared().items() if name not in PAIRS}
    assert not unknown, f"rename them, or give the reason in {Path(__file__).name}"


def test_exceptions_are_needed() -> None:
    assert not set(PAIRS) - set(shared())
    assert all(reason for table in (NAMED_BY_OTHERS, FOLDERS, PAIRS) for reason in table.values())
