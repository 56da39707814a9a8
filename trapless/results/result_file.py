# SPDX-License-Identifier: GPL-2.0-only
"""result.json: the result of an experiment as data, and the checks of its form.

This file owns the format: the names of fields, what each may hold, and the messages for damaged or
foreign files. result.schema.json has the same rules as a JSON schema, for readers in other
languages; a test compares the two.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trapless.base import json_text
from trapless.base.console import TraplessError
from trapless.base.files import replace_file

FILE_NAME = "result.json"
KINDS = ("measured", "counted", "modelled")
# SUBJECT.MECHANISM.PARAMETER.UNIT, or without a parameter
METRIC_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+){2,3}")
EXPERIMENT_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
CLAIM_ID = re.compile(r"[a-z0-9]+(-[a-z0-9]+)+")


@dataclass(frozen=True)
class Metric:
    """One number.

    `spread`, in `unit`, says how far the `n` repeats lie apart: for a counted number the largest
    less the smallest (0: they were equal), for a measured one the interquartile range, since a
    single pause of the host would decide the extremes.
    """

    value: float
    unit: str
    kind: str
    n: int = 1
    spread: float = 0.0

    def check(self, name: str) -> None:
        """Raise ValueError, naming the metric, where a field cannot be what it says."""
        if not METRIC_NAME.fullmatch(name):
            raise ValueError(f"metric name {name!r} is not SUBJECT.MECHANISM[.PARAMETER].UNIT")
        if self.unit != name.rsplit(".", 1)[1]:
            raise ValueError(f"metric {name}: its unit is {self.unit!r}, its name says otherwise")
        if self.kind not in KINDS:
            raise ValueError(f"metric {name}: kind {self.kind!r} is none of {', '.join(KINDS)}")
        for label, number in (("value", self.value), ("spread", self.spread)):
            if isinstance(number, bool) or not isinstance(number, int | float):
                raise ValueError(f"metric {name}: {label} {number!r} is not a number")
            if not math.isfinite(number):
                raise ValueError(f"metric {name}: {label} {number!r} is not finite")
        if self.spread < 0:
            raise ValueError(f"metric {name}: spread {self.spread!r} is negative")
        if isinstance(self.n, bool) or not isinstance(self.n, int) or self.n < 1:
            raise ValueError(f"metric {name}: n {self.n!r} is not a count of repeats")


@dataclass(frozen=True)
class Claim:
    """A claim: what a paper published, and an experiment's result beside it.

    `holds` is None where the experiment cannot decide; `note` then says why, as it gives the
    reason where a claim does not hold.
    """

    id: str
    paper: str
    published: str
    ours: str
    holds: bool | None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`holds` in words."""
        return "open" if self.holds is None else "holds" if self.holds else "does not hold"

    def check(self) -> None:
        """Raise ValueError where a field cannot be what it says."""
        if not isinstance(self.id, str) or not CLAIM_ID.fullmatch(self.id):
            raise ValueError(f"claim id {self.id!r} is not lower-case words joined by '-'")
        for label in ("paper", "published", "ours", "note"):
            if not isinstance(getattr(self, label), str):
                raise ValueError(f"claim {self.id}: {label} is not text")
        if self.holds not in (True, False, None):
            raise ValueError(f"claim {self.id}: holds {self.holds!r} is not true, false or null")
        if self.holds is not True and not self.note:
            raise ValueError(
                f"claim {self.id}: does not hold or is undecided, and no note says why"
            )


@dataclass(frozen=True)
class Result:
    """One result.json."""

    experiment: str
    kernel: str
    accelerator: str
    machine: str
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    def check(self) -> None:
        """Raise ValueError where any part is not well formed."""
        if not isinstance(self.experiment, str) or not EXPERIMENT_NAME.fullmatch(self.experiment):
            raise ValueError(
                f"experiment {self.experiment!r} is not lower-case words joined by '-'"
            )
        for label in ("kernel", "accelerator", "machine"):
            if not isinstance(getattr(self, label), str) or not getattr(self, label):
                raise ValueError(f"{label} is missing or not text")
        if not self.metrics:
            raise ValueError("there are no metrics")
        for name, metric in self.metrics.items():
            metric.check(name)
        ids = set[str]()
        for claim in self.claims:
            claim.check()
            if claim.id in ids:
                raise ValueError(f"claim {claim.id} stands twice")
            ids.add(claim.id)

    def to_json(self) -> str:
        """The file's text: keys in a fixed order, so that equal results are equal files."""
        self.check()
        return json.dumps(asdict(self), indent=2, allow_nan=False) + "\n"


def save(result: Result, directory: Path) -> Path:
    """Write DIRECTORY/result.json; a reader sees the old file or the new one, never half."""
    try:
        text = result.to_json()
    except ValueError as error:
        raise TraplessError(f"result of {result.experiment}: {error}") from error
    path = directory / FILE_NAME
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TraplessError(f"{path}: cannot be written: {error.strerror}") from error
    replace_file(path, text)
    return path


def load(path: Path) -> Result:
    """Read a result.json, or the one in a directory; a TraplessError says what is wrong."""
    if path.is_dir():
        path = path / FILE_NAME
    try:
        data = json_text.parse(path.read_text(encoding="utf-8"), parse_constant=_no_constant)
        result = from_data(data)
        result.check()
    except FileNotFoundError as error:
        raise TraplessError(f"{path}: no such file; `trapless evaluate` writes it") from error
    except OSError as error:
        raise TraplessError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise TraplessError(f"{path}: not text, so not a result of trapless; {REMEDY}") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise TraplessError(f"{path}: not JSON: {error.msg} at {place}; {REMEDY}") from error
    except ValueError as error:
        raise TraplessError(f"{path}: {error}; {REMEDY}") from error
    return result


REMEDY = "remove the folder or run the experiment again"


def from_data(data: Any) -> Result:
    """A Result from parsed JSON; ValueError where fields are missing, unknown or wrong."""
    fields = _fields(data, Result, "result.json")
    metrics = fields["metrics"]
    claims = fields["claims"]
    if not isinstance(metrics, dict):
        raise ValueError("metrics is not an object")
    if not isinstance(claims, list):
        raise ValueError("claims is not a list")
    fields["metrics"] = {
        name: Metric(**_fields(metric, Metric, f"metric {name}"))
        for name, metric in metrics.items()
    }
    fields["claims"] = tuple(
        Claim(**_fields(claim, Claim, f"claim {number}")) for number, claim in enumerate(claims, 1)
    )
    return Result(**fields)


def _fields(data: Any, shape: type, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} is not an object")
    wanted = list(shape.__dataclass_fields__)  # type: ignore[attr-defined]
    lacking = [name for name in wanted if name not in data]
    unknown = [str(name) for name in data if name not in wanted]
    if lacking:
        raise ValueError(f"{where} lacks {', '.join(lacking)}")
    if unknown:
        raise ValueError(f"{where} has unknown fields: {', '.join(unknown)}")
    return dict(data)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON knows")
