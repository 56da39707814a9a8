# SPDX-License-Identifier: GPL-2.0-only
"""The experiments: finds eval/NAME/spec.py, and collects, analyses and draws what it describes.

An experiment is a Spec: what it asks, and parts that collect rows and make figures of them. The
steps are separate: collecting writes raw files, and analysing reads nothing but those. This file
owns the steps. evaluate.py owns their order, eval/ what is measured, collection.py how VMs run.
"""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from trapless.base import built_programs, json_text
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.missing import remedy
from trapless.base.paths import repo_root
from trapless.experiments.collection import Collection, Place, Row, anonymous
from trapless.experiments.raw_files import META_FILE, RAW_FILE, read_rows, saved_bytes
from trapless.report.figures import Figure, Map, Table
from trapless.results import result_file
from trapless.results.result_file import Claim, Metric, Result

OWN_KERNEL = "none"
"""The accelerator of results that a machine's own kernel made, without any VM of ours."""
FAILURE_FILE = "failure.json"
"""The file of an experiment that failed: the reason, and the command that continues it."""


@dataclass(frozen=True)
class Findings:
    """The metrics and claims of one part of an experiment."""

    metrics: Mapping[str, Metric] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()


@dataclass(frozen=True)
class Raw:
    """The saved raw data of one part. Analysing and drawing read nothing else."""

    rows: Sequence[Row]
    meta: Row
    directory: Path = Path()  # has the other files that a part may have saved

    @property
    def timed(self) -> bool:
        """Whether a machine's own kernel made it, where rows are timed and never counted."""
        return self.meta.get("accelerator") == OWN_KERNEL

    @property
    def partial(self) -> bool:
        """Whether parts may be left out: on a machine's own kernel, and on another processor."""
        return self.timed or "architecture" in self.meta


@dataclass(frozen=True)
class Part:
    """One piece of an experiment with its own rows."""

    name: str
    collect: Callable[[Collection], None]
    analyse: Callable[[Raw], Findings]
    figures: Callable[[Raw], tuple[Figure | Map | Table, ...]]
    full_only: bool = False  # takes too long for a quick run
    alone: bool = False
    """It also measures time, for which it waits until nothing else counts: so it is collected after
    the parts that only count, which would otherwise count alone afterwards."""
    foreign: tuple[str, ...] = ()
    """The programs, below build/, that it runs on other processors; where there are none, it runs
    on x86-64 alone."""


def part(
    folder: str,
    name: str,
    *,
    full_only: bool = False,
    alone: bool = False,
    foreign: tuple[str, ...] = (),
) -> Part:
    """The part whose `collect`, `analyse` and `figures` are in eval/FOLDER/part_NAME.py.

    The file is read when the first of them is wanted: it may take packages that a machine lacks
    where other parts run.
    """

    def function(of: str) -> Callable[[Any], Any]:
        def called(argument: Any) -> Any:
            return getattr(_module(f"eval.{folder}.part_{name}", name), of)(argument)

        return called

    collect_, analyse_, figures_ = map(function, ("collect", "analyse", "figures"))
    return Part(name, collect_, analyse_, figures_, full_only, alone, foreign)


@dataclass(frozen=True)
class OwnKernel:
    """The same experiment on a machine's own kernel: how, within which limits, by which parts."""

    method: str
    limits: tuple[str, ...]
    parts: tuple[Part, ...]
    minutes: tuple[float, float]  # on a real processor


@dataclass(frozen=True)
class Spec:
    """An experiment: what it asks, how, and within which limits."""

    name: str
    paper: str
    question: str
    method: str
    limits: tuple[str, ...]
    parts: tuple[Part, ...]
    minutes: tuple[float, float]  # a quick run and a full one, on two idle cores
    own_kernel: OwnKernel | None = None
    needs: str = "nobody has written it for that"
    """Why it is left out on a machine's own kernel, if it cannot run there."""
    quick_by_name: bool = False  # a quick run without names leaves it out: it takes too long
    spread: bool = False  # its VMs may run on other machines (trapless/experiments/fleet/fleet.py)


def eval_dir() -> Path:
    """The folder of the experiments: the checkout's eval/."""
    return repo_root() / "eval"


def names() -> tuple[str, ...]:
    """All experiments, in the order of their names."""
    folders = (path.parent.name for path in eval_dir().glob("*/spec.py"))
    return tuple(sorted(folder.replace("_", "-") for folder in folders))


def get(name: str) -> Spec:
    """The experiment called `name`."""
    _check_name(name)
    return load_spec(f"eval.{_folder(name)}.spec", name)


def _check_name(name: str) -> None:
    if name not in names():
        choice = f"there are {', '.join(names()) or 'none: this is not a checkout'}"
        if near := difflib.get_close_matches(name, names(), 1):
            choice = f"did you mean {near[0]}? `trapless evaluate --list` has all"
        raise TraplessError(f"no experiment '{name}'; {choice}", status=2)


def get_here(name: str) -> Spec | None:
    """The same experiment as it runs on a machine's own kernel; None where it needs the lab."""
    spec = get(name)
    own = spec.own_kernel
    if own is None:
        return None
    return replace(
        spec,
        method=own.method,
        limits=own.limits,
        parts=own.parts,
        minutes=own.minutes,
        quick_by_name=False,
        spread=False,
    )


def spec_of(name: str, meta: Row) -> Spec:
    """The experiment as it ran where these results were made."""
    return (get_here(name) if meta.get("accelerator") == OWN_KERNEL else None) or get(name)


@cache
def load_spec(module: str, name: str) -> Spec:
    """The SPEC of a module, by the module's dotted name."""
    spec = _module(module, name).SPEC
    if not isinstance(spec, Spec) or spec.name != name:
        raise TraplessError(f"{module}: SPEC is not the Spec of '{name}'")
    return spec


def _module(path: str, name: str) -> ModuleType:
    """A module of eval/, for the experiment or the part that is called so."""
    if str(repo_root()) not in sys.path:  # where a package carries eval/ along
        sys.path.append(str(repo_root()))
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise TraplessError(
            f"the experiment '{name}' needs the Python package {error.name}, which is not "
            f"installed; {remedy(error.name or name)}"
        ) from error


def _folder(name: str) -> str:
    """The folder below eval/ of an experiment: a Python package, so it has no hyphens."""
    return name.replace("-", "_")


def collect(
    spec: Spec,
    directory: Path,
    *,
    quick: bool,
    kernel: str,
    progress: Progress,
    scheduler: str | None = None,
    place: Place | None = None,
    arch: Architecture = AMD64,
) -> None:
    """Run every part of an experiment; afterwards raw.jsonl and meta.json are whole.

    Files of a finished earlier run are replaced; an interrupted run goes on where it stopped.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # An old result must not stand beside a run that fails.
    for stale in (RAW_FILE, META_FILE, FAILURE_FILE, result_file.FILE_NAME):
        (directory / stale).unlink(missing_ok=True)
    collection = Collection(spec.name, directory, quick, kernel, progress)
    collection.scheduler, collection.place, collection.arch = scheduler, place, arch
    for part in sorted(spec.parts, key=lambda part: part.alone):
        if (quick and part.full_only) or (arch != AMD64 and not part.foreign):
            continue
        collection.part = part.name
        part.collect(collection)
    collection.part = ""
    collection.finish()


def note_failure(directory: Path, reason: str, command: str) -> None:
    """Write the reason of a failure for the report, in place of a result, and the command that
    continues; no reason where the run was interrupted."""
    words = {"reason": anonymous(reason), "command": command}
    with suppress(OSError):  # the disk itself may have failed, which was already reported
        directory.mkdir(parents=True, exist_ok=True)
        (directory / FAILURE_FILE).write_text(json.dumps(words, indent=2) + "\n", encoding="utf-8")


def load_failure(directory: Path) -> tuple[str, str] | None:
    """What was noted of an experiment that failed or was interrupted; None where it was not."""
    try:
        words = json_text.parse((directory / FAILURE_FILE).read_text(encoding="utf-8"))
        return str(words["reason"]), str(words["command"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, LookupError, TypeError) as error:
        return f"{directory / FAILURE_FILE} cannot be read: {error}", ""


def load_meta(directory: Path) -> Row:
    """meta.json of an experiment."""
    path = directory / META_FILE
    try:
        meta = json_text.parse(saved_bytes(path).decode("utf-8"))
    except ValueError as error:
        raise TraplessError(f"{path}: damaged ({error}); run the experiment again") from error
    if not isinstance(meta, dict):
        raise TraplessError(f"{path}: not an object; run the experiment again")
    return meta


def load_raw(directory: Path) -> Raw:
    """raw.jsonl and meta.json of an experiment."""
    meta = load_meta(directory)
    return Raw(read_rows(directory / RAW_FILE), meta, directory)


def _raw_of_parts(spec: Spec, raw: Raw) -> Iterator[tuple[Part, Raw]]:
    """Each part that was run, with its own rows."""
    for part in spec.parts:
        rows = [row for row in raw.rows if row.get("part") == part.name]
        if rows or not (raw.partial or (part.full_only and raw.meta.get("quick"))):
            yield part, Raw(rows, raw.meta, raw.directory)


def analyse(name: str, directory: Path) -> Result:
    """The result of an experiment from its raw files alone."""
    raw = load_raw(directory)
    spec = spec_of(name, raw.meta)
    metrics: dict[str, Metric] = {}
    claims: list[Claim] = []
    for part, own in _raw_of_parts(spec, raw):
        with _damage_reported(name, f"'{part.name}'", directory):
            findings = part.analyse(own)
        doubled = metrics.keys() & findings.metrics.keys()
        if doubled:
            raise TraplessError(f"{name}: two parts report {', '.join(sorted(doubled))}")
        metrics |= findings.metrics
        claims += findings.claims
    result = Result(
        experiment=name,
        kernel=str(raw.meta.get("kernel", "unknown")),
        accelerator=str(raw.meta.get("accelerator", "unknown")),
        machine=_machine_text(raw.meta.get("machine", {})),
        metrics=metrics,
        claims=tuple(claims),
    )
    with _damage_reported(name, "all parts", directory):
        result.check()
    return result


@contextmanager
def _damage_reported(name: str, of_what: str, directory: Path) -> Iterator[None]:
    """Report an error in what raw data give as damage of the data, which come from files."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise TraplessError(
            f"{directory}: the raw data of {of_what} is incomplete or damaged "
            f"({type(error).__name__}: {error}); run `trapless evaluate {name}` again"
        ) from error


def _machine_text(machine: object) -> str:
    if not isinstance(machine, dict) or not {"processor", "cpus", "kernel"} <= machine.keys():
        return "unknown"
    words = f"{machine['processor']}, {machine['cpus']} CPUs"
    if "hypervisor" not in machine:
        return f"{words}, host Linux {machine['kernel']}"
    return (
        f"{words}, in a virtual machine ({machine['hypervisor']})"
        if machine["hypervisor"]
        else words
    )


def figures(name: str, directory: Path) -> tuple[Figure | Map | Table, ...]:
    """Figures and tables of an experiment from its raw files alone."""
    raw = load_raw(directory)
    spec = spec_of(name, raw.meta)
    drawn: list[Figure | Map | Table] = []
    for part, own in _raw_of_parts(spec, raw):
        with _damage_reported(name, f"'{part.name}'", directory):
            drawn += part.figures(own)
    return tuple(drawn)


def workload(name: str, arch: Architecture = AMD64) -> Path:
    """The program of an experiment, as make builds it."""
    return program(f"{_folder(name)}/{name}", arch)


def tool(name: str) -> Path:
    """A program of eval/tools, as make builds it."""
    return program(f"tools/{name}")


def program(path: str, arch: Architecture = AMD64) -> Path:
    """A program of eval/ by its path there, as make builds it."""
    return built_programs.find(f"eval/{path}", arch)
