# SPDX-License-Identifier: GPL-2.0-only
"""Collecting: boots VMs for an experiment and saves what its workloads print, as it comes.

This file owns the raw files of an experiment: raw.jsonl (one JSON object a line, each with the
label of its boot) and meta.json (what ran where, and which checks passed). While an experiment
runs, each boot has a file of its own under boots/; an interrupted experiment goes on after the
last complete boot. It knows no mechanism and no figure.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from trapless import __version__
from trapless.base import json_text
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.files import replace_file
from trapless.base.paths import PACKAGE, cache_dir, repo_root
from trapless.experiments import side_by_side
from trapless.experiments.raw_files import META_FILE, RAW_FILE, json_lines, read_rows
from trapless.stock import kbuild
from trapless.vm import lab

BOOTS = "boots"
QUICK_TIMEOUT_S = 900.0
"""The most that one guest of a quick run takes: twenty times what the longest takes on two idle
processors. Debian 12's QEMU, emulating several processors, can stop a guest for ever while its
kernel patches itself (tests/lab/runner/suite.py), and whoever makes a quick run waits for it."""
BOOT_FACTS = ("icount", "boot_s", "began_s", "wall_s")
"""Fields of a boot that go into meta.json where they exist; only a fleet's boots have the last
two."""
LAB_FOLDERS, LAB_SUFFIXES = ("stock", "vm"), frozenset({".py", ".c", ".h"})
"""Folders of this package that choose a kernel, build the module and the guest, and boot it."""

Row = dict[str, Any]
Choice = TypeVar("Choice")


@dataclass(frozen=True)
class Extent(Generic[Choice]):
    """The rounds, or the sizes, of a full run, of a quick one, and the least that a test takes."""

    full: Choice
    quick: Choice
    least: Choice | None = None  # only on a machine's own kernel; None: those of a quick run


class LeftOutError(TraplessError):
    """An experiment that cannot run where it was begun, for this reason; it has not failed."""


class Place(Protocol):
    """Where commands run instead of the lab: this machine's own kernel (here/place.py)."""

    @property
    def facts(self) -> Row:
        """More about the machine, for meta.json."""

    @property
    def least(self) -> bool:
        """Whether only the fewest rounds and sizes are wanted that can be analysed."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Files on which all runs there depend: a change in one of them makes saved runs stale."""

    def run(
        self,
        config: lab.LabConfig,
        argv: Sequence[str],
        *,
        stdin: int | None,
        sink: Callable[[bytes], None],
        progress: Progress,
    ) -> lab.LabResult:
        """Does what lab.run() does."""


@dataclass
class Collection:
    """One experiment being collected into `directory`."""

    name: str
    directory: Path
    quick: bool
    kernel: str
    progress: Progress
    part: str = ""
    scheduler: str | None = None  # of Dask, for experiments that spread their work
    place: Place | None = None  # None: the lab
    arch: Architecture = AMD64  # of the lab's guests
    _labels: list[str] = field(default_factory=list)
    _rows: list[Row] = field(default_factory=list)
    resumed: list[str] = field(default_factory=list)

    def boot(
        self,
        label: str,
        config: lab.LabConfig,
        argv: Sequence[str],
        stdin: int | None = None,
    ) -> list[Row]:
        """Run `argv` in one VM; its standard output is JSON lines, the last {"complete": true}.

        `stdin` is a descriptor from which it reads, if any. Returns the rows. A failing check in
        the guest, a status other than 0 or a complaint in the kernel's log is a TraplessError, with
        the guest's words in it. Guests of a quick run start quickly: see lab.prepare(). One that
        takes longer than QUICK_TIMEOUT_S is started once more.
        """
        config = replace(config, quick_start=self.quick, arch=self.arch)
        if self.quick:
            config = replace(config, timeout_s=min(config.timeout_s, QUICK_TIMEOUT_S))
        label = f"{self.part}-{label}"
        if label in self._labels:
            raise ValueError(f"two boots called {label!r}")
        self._labels.append(label)
        folder = self.directory / BOOTS
        folder.mkdir(parents=True, exist_ok=True)
        finished = folder / f"{label}.jsonl"
        key = boot_key(config, argv, self.place.files if self.place else ())
        rows = _finished_boot(finished, key)
        if rows is not None:
            self.progress.note(f"{self.name}: boot {label} is there already; going on after it")
            self.resumed.append(label)
        else:
            try:
                rows = self._run(label, config, argv, finished, key, stdin)
            except lab.LabError as error:
                if not (self.quick and error.timed_out) or stdin is not None:
                    raise
                self.progress.note(f"{self.name}: {error}; starting boot {label} once more")
                rows = self._run(label, config, argv, finished, key, stdin)
        return rows[1:]

    @property
    def timed(self) -> bool:
        """Whether it runs on a machine's own kernel, where all is timed and nothing is counted."""
        return self.place is not None

    def chosen(self, extent: Extent[Choice]) -> Choice:
        """The value of this run."""
        if self.place is not None and self.place.least and extent.least is not None:
            return extent.least
        return extent.quick if self.quick else extent.full

    def turn(self, *, alone: bool) -> AbstractContextManager[None]:
        """For a guest that boot() does not run: see side_by_side.turn()."""
        return side_by_side.turn(self.directory.parent, alone=alone)

    def write(self, rows: Iterable[Row]) -> None:
        """Add rows that no boot has printed."""
        self._rows += [{"part": self.part, **row} for row in rows]

    def forget(self, label: str) -> None:
        """Remove a saved boot, so that it runs again."""
        (self.directory / BOOTS / f"{self.part}-{label}.jsonl").unlink(missing_ok=True)

    def adopt(self, head: Row, rows: Sequence[Row]) -> None:
        """Save a boot that the part has run itself; `head` is its boot_record()."""
        folder = self.directory / BOOTS
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(folder / f"{head['boot']}.jsonl", json_lines([head, *rows]))
        if head["boot"] not in self._labels:
            self._labels.append(head["boot"])

    def adopt_saved(self, key: str) -> list[str]:
        """The labels of boots with this key that an interrupted run has saved; they are kept."""
        paths = sorted((self.directory / BOOTS).glob("*.jsonl"))
        labels = [path.stem for path in paths if _finished_boot(path, key) is not None]
        self.resumed += labels
        self._labels += labels
        return labels

    def _run(
        self,
        label: str,
        config: lab.LabConfig,
        argv: Sequence[str],
        finished: Path,
        key: str,
        stdin: int | None,
    ) -> list[Row]:
        partial = finished.with_suffix(".part")
        with partial.open("w", encoding="utf-8") as file:
            stream = RowStream(file, f"{self.name}: {label}", self.progress)
            file.write(json.dumps({"boot": label, "key": key}) + "\n")
            with self.turn(alone=not config.icount):
                run = self.place.run if self.place else lab.run
                result = run(config, argv, stdin=stdin, sink=stream.feed, progress=self.progress)
            self.progress.done()
            stream.close()
            head = boot_record(self.part, label, key, config, argv, result)
        wrong = fault(stream, result)
        if wrong:
            log = self.directory / f"{label}.log"
            log.write_text(result.kernel_log, encoding="utf-8")
            raise TraplessError(
                f"{self.name}, boot {label}: {wrong}\n"
                f"what it printed: {partial}; the guest's kernel log: {log}"
            )
        lines = [head, *stream.rows]
        replace_file(finished, json_lines(lines))
        partial.unlink()
        return lines

    def finish(self) -> None:
        """Write raw.jsonl and meta.json of all boots, each in one step."""
        heads, rows = [], list(self._rows)
        for label in self._labels:
            lines = read_rows(self.directory / BOOTS / f"{label}.jsonl")
            heads.append(lines[0])
            rows += [{"boot": label, "part": lines[0]["part"], **row} for row in lines[1:]]
        self._check_same_kernel(heads)
        replace_file(self.directory / RAW_FILE, json_lines(rows))
        meta = make_meta(self, heads, rows)
        replace_file(self.directory / META_FILE, json.dumps(meta, indent=2) + "\n")
        shutil.rmtree(self.directory / BOOTS, ignore_errors=True)

    def _check_same_kernel(self, heads: Sequence[Row]) -> None:
        """Raise TraplessError where boots ran on different kernels: the kernel that `newest` names
        may change between an interrupted run and its continuation."""
        kernels = {head["release"]: head["boot"] for head in heads}
        if len(kernels) > 1:
            which = ", ".join(f"{boot} on {release}" for release, boot in sorted(kernels.items()))
            raise TraplessError(
                f"{self.name}: boots ran on different kernels ({which}); remove "
                f"{self.directory / BOOTS} and run `trapless evaluate {self.name}` again"
            )


class RowStream:
    """Turns pieces of a workload's output into rows, saves each row at once, and shows progress."""

    def __init__(self, file: Any, title: str, progress: Progress) -> None:
        self._file, self._title, self._progress = file, title, progress
        self._rest = b""
        self._begun = False
        self.rows: list[Row] = []
        self.failure = ""
        self.noise: list[str] = []
        self.complete = False

    def feed(self, piece: bytes) -> None:
        """Take the next piece, which may end anywhere in a line."""
        if not self._begun:
            self._begun = True
            self._progress.step(self._title)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._line(line)

    def close(self) -> None:
        """End the stream: an unfinished line counts as noise."""
        if self._rest:
            self._line(self._rest)
            self._rest = b""

    def _line(self, line: bytes) -> None:
        try:
            row = json_text.parse(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            self.noise.append(line.decode(errors="replace"))
            return
        if "progress" in row:
            self._progress.advance(row["progress"], row["total"])
            self._file.flush()
            return
        if "failure" in row:
            self.failure = str(row["failure"])
        if row.get("complete") is True:
            self.complete = True
            return
        self.rows.append(row)
        self._file.write(json.dumps(row) + "\n")


def fault(stream: RowStream, result: lab.LabResult) -> str:
    """The fault of a run that came to its end: a failed check, an exit status, a complaint of the
    guest's kernel, or a missing last line. Empty where there is none."""
    complaints = lab.splats(result.kernel_log)
    errors = result.stderr.decode(errors="replace").strip()
    if stream.failure:
        return f"a check failed: {stream.failure}"
    if complaints:
        return "the guest's kernel complained:\n" + "\n".join(complaints[:10])
    if result.status:
        output = errors or "\n".join(line[:200] for line in stream.noise[-5:]) or "nothing"
        return f"the workload ended with status {result.status}; it printed: {output}"
    if stream.complete:
        return ""
    return f"the workload ended without its last line; it printed: {errors or 'nothing'}"


@contextmanager
def guest_folder(directory: Path) -> Iterator[Path]:
    """The folder in which an experiment makes files for its guests. Its path is always the same,
    because the path is part of the key by which an interrupted run recognises its boots."""
    with own_folder(directory, "guest") as folder:
        yield folder


@contextmanager
def own_folder(directory: Path, name: str) -> Iterator[Path]:
    """A folder beside the data, for the time of a run. It is removed at the end; if a run is
    killed, the next run removes it."""
    folder = directory / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def boot_key(config: lab.LabConfig, argv: Sequence[str], more: Sequence[Path] = ()) -> str:
    """A hash of what a boot depends on: its configuration, its command, its files, and the sources
    of the module, of the guest's init and of the lab that builds and starts the guest."""
    digest = hashlib.sha256(repr((config, tuple(argv), __version__)).encode())
    module = [path for _, path in sorted(kbuild.source_files(repo_root()).items())]
    lab_files = (path for folder in LAB_FOLDERS for path in (PACKAGE / folder).rglob("*.*"))
    guest = sorted(path for path in lab_files if path.suffix in LAB_SUFFIXES)
    for path in (*(source for source, _ in config.files), *more, *module, *guest):
        content = path.read_bytes()
        digest.update(f"{len(content)}\0".encode() + content)
    return digest.hexdigest()[:16]


def _finished_boot(path: Path, key: str) -> list[Row] | None:
    if not path.exists():
        return None
    lines = read_rows(path)
    return lines if lines and lines[0].get("key") == key else None


def boot_record(
    part: str,
    label: str,
    key: str,
    config: lab.LabConfig,
    argv: Sequence[str],
    result: lab.LabResult,
) -> Row:
    """The first line of a boot's file: what ran, and on what."""
    return {
        "boot": label,
        "part": part,
        "key": key,
        "date": now(),
        "argv": list(argv),
        "icount": config.icount,
        "release": result.release,
        "provenance": dict(result.provenance),
        "accelerator": result.accelerator,
        "boot_s": round(result.boot_s, 1),
        "qemu": [anonymous(word) for word in result.qemu_argv],
    }


def make_meta(collection: Collection, heads: Sequence[Row], rows: Sequence[Row]) -> Row:
    """The content of meta.json: how the raw data was made, and which checks prove it."""
    first = heads[0] if heads else {}
    command = ["trapless", "evaluate", collection.name]
    command += ["--here"] if collection.place else ["--kernel", collection.kernel]
    command += ["--arch", collection.arch.name] if collection.arch != AMD64 else []
    command += ["--least"] if collection.place and collection.place.least else []
    return {
        "experiment": collection.name,
        "date": now(),
        "command": [*command, "--quick"] if collection.quick else command,
        "quick": collection.quick,
        "trapless": trapless_version(),
        "kernel": first.get("release", "unknown"),
        **({"architecture": collection.arch.name} if collection.arch != AMD64 else {}),
        "provenance": first.get("provenance", {}),
        "accelerator": first.get("accelerator", "unknown"),
        "machine": machine() | (collection.place.facts if collection.place else {}),
        "qemu": first.get("qemu", []),
        "boots": {
            head["boot"]: {
                "argv": [anonymous(word) for word in head["argv"]],
                **{key: head[key] for key in BOOT_FACTS if key in head},
            }
            for head in heads
        },
        "checks": make_checks(rows),
    }


def make_checks(rows: Sequence[Row]) -> list[Row]:
    """The checks of the workloads, one line each. All have passed: one that fails ends the run."""
    checks: list[Row] = []
    for row in rows:
        where = row.get("boot", row.get("part", "all"))
        if "calibration" in row:
            detail = f"two readings cost {row['overhead']} {row['calibration']}"
            if "nops" in row:
                detail += (
                    f"; {row['nops']} nops read as {row['nops_counted']}, a loop of "
                    f"{row['loop']} instructions as {row['loop_counted']}"
                )
            counter = {"name": f"{where}: the counter", "ok": True, "detail": detail}
            # The same check may come from many programs of a boot, with slightly different clocks.
            same = {check["name"] if "clocks_per_ns" in row else str(check) for check in checks}
            if (counter["name"] if "clocks_per_ns" in row else str(counter)) not in same:
                checks.append(counter)
        elif "check" in row:
            counts = {
                key: row[key]
                for key in ("made", "executed", "batches", "crossings", "lines")
                if row.get(key)
            }
            detail = ", ".join(f"{value} {key}" for key, value in counts.items())
            checks.append({"name": f"{where}: {row['check']}", "ok": True, "detail": detail})
        elif "skipped" in row and row["reason"] != "not asked for":
            name = f"{where}: {row['skipped']} left out"
            checks.append({"name": name, "ok": True, "left_out": True, "detail": row["reason"]})
    return checks


def machine() -> dict[str, str]:
    """This machine in a few words that do not reveal its owner."""
    cpu = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    return {
        "processor": cpu,
        "cpus": str(os.cpu_count() or 0),
        "architecture": platform.machine(),
        "kernel": platform.release(),
    }


@cache
def trapless_version() -> str:
    """The version, and in a checkout also the commit: with `-dirty` where files differ from it that
    may change what is measured, so not for documents and saved results."""
    git = ["git", "-C", str(repo_root())]
    code = [".", ":(exclude)docs", ":(exclude,glob)**/*.md"]
    commit = _output([*git, "rev-parse", "--short=12", "HEAD"])
    if not commit:
        return __version__
    changed = _output([*git, "status", "--porcelain", "--untracked-files=no", "--", *code])
    return f"{__version__} ({commit}{'-dirty' if changed else ''})"


def _output(command: Sequence[str]) -> str:
    """What a command prints; empty where it fails or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def anonymous(word: str) -> str:
    """A word of a command line without the paths of this user."""
    for place, name in ((cache_dir(), "CACHE"), (repo_root(), "REPO"), (Path.home(), "~")):
        word = re.sub(rf"(?<![\w./~-]){re.escape(str(place))}(?=/|,|$)", name, word)
    return word


def option_words(options: Mapping[str, object]) -> list[str]:
    """Options of a program as words of its command line.

    >>> option_words({"seed": 3, "sizes": (1, 2)})
    ['--seed', '3', '--sizes', '1,2']
    """
    words = []
    for name, value in options.items():
        several = value if isinstance(value, tuple) else (value,)
        words += [f"--{name}", ",".join(map(str, several))]
    return words


def now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
