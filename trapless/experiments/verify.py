# SPDX-License-Identifier: GPL-2.0-only
"""Checks an archive of results: its raw data give the same results again, and nothing is missing.

It says that figures follow from raw data. It cannot say that the raw data were measured: that is
the sender's word. archive.py owns the archive.
"""

from __future__ import annotations

import json
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.base.damage import is_of_data
from trapless.experiments import archive, experiment
from trapless.results import result_file
from trapless.results.result_file import Result

MEMORY_BYTES = 8 << 30
"""The bound of address space while foreign data are read."""
TEXT_CHARS_MAX = 400
"""The most text of somebody else that is shown in one line."""
LEFT_OUT_MAX = 100
NAMED_MAX = 3
"""Differences that a message names."""


@dataclass(frozen=True)
class Verified:
    """The results of one archive, each the same as its raw data give."""

    folder: str
    results: tuple[Result, ...]
    left_out: Mapping[str, str]

    def text(self) -> str:
        lines = [f"{printable(self.folder)}: {len(self.results)} results, whole and the same again"]
        for one in self.results:
            claims = len(one.claims)
            lines.append(
                f"  {one.experiment}: {len(one.metrics)} metrics, {claims} claims; Linux "
                f"{printable(one.kernel)}, accelerator {printable(one.accelerator)}, "
                f"{printable(one.machine)}"
            )
        lines += [
            printable(f"  left out when it was packed: {name}: {why}")
            for name, why in islice(self.left_out.items(), LEFT_OUT_MAX)
        ]
        lines.append(
            "That figures follow from the raw data is checked; that those were measured is the "
            "sender's word."
        )
        return "\n".join(lines)


def verify(path: Path, progress: Progress) -> Verified:
    """The results in the archive; a TraplessError names the first thing that is wrong."""
    try:
        return _verified(path, progress)
    except TraplessError as error:
        raise TraplessError(printable(str(error))) from error


def _verified(path: Path, progress: Progress) -> Verified:
    with _bounded_memory(), archive.unpacked(path) as folder:
        results = []
        for directory in sorted(one for one in folder.iterdir() if one.is_dir()):
            progress.step(f"making {printable(directory.name)} again")
            results.append(_same(path, directory))
        progress.done()
        if not results:
            raise TraplessError(f"{path}: holds no results")
        return Verified(folder.name, tuple(results), archive.left_out(folder))


def _same(path: Path, directory: Path) -> Result:
    """The result of one experiment, as saved and as its raw data give it."""
    name = directory.name
    if name not in experiment.names():
        raise TraplessError(f"{path}: this version of trapless knows no experiment {name!r}")
    try:
        saved = result_file.load(directory)
        made = experiment.analyse(name, directory)
    except TraplessError as error:
        words = str(error).replace(str(directory.parent), str(path))
        raise TraplessError(words) from error
    except MemoryError as error:
        raise TraplessError(f"{path}: {name} takes more memory than any result does") from error
    except Exception as error:
        if not is_of_data(error):
            raise
        raise TraplessError(
            f"{path}: the raw data of {name} are damaged ({type(error).__name__}: "
            f"{printable(str(error))[:200]})"
        ) from error
    if saved.to_json() != made.to_json():
        raise TraplessError(
            f"{path}: {name}: its raw data give another result: {_unlike(saved, made)}"
        )
    return saved


def _unlike(saved: Result, made: Result) -> str:
    """The first differences in words."""
    ours, theirs = json.loads(made.to_json()), json.loads(saved.to_json())
    found = [key for key in ours if key != "metrics" and ours[key] != theirs[key]]
    metrics = {**saved.metrics, **made.metrics}
    found += [
        f"{name} (saved {_value(saved, name)}, made again {_value(made, name)})"
        for name in metrics
        if saved.metrics.get(name) != made.metrics.get(name)
    ]
    more = f", and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return printable(", ".join(found[:NAMED_MAX]) + more)


def _value(result: Result, name: str) -> str:
    return str(result.metrics[name].value) if name in result.metrics else "nothing"


def printable(text: str) -> str:
    """Text of somebody else for a terminal: a line of no control characters, and not a long one.

    >>> printable("a\\x1b[31mb")
    'a?[31mb'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in text[:TEXT_CHARS_MAX])


@contextmanager
def _bounded_memory() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard not in (resource.RLIM_INFINITY,) and hard < MEMORY_BYTES:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
