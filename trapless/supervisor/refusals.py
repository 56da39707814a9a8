# SPDX-License-Identifier: GPL-2.0-only
"""Why supervisor mode is refused: one row for each reason of the binary interface.

The rows are those of include/uapi/linux/trapless_refusals.h, the one table that the module and the
library are compiled with; they are read here as text. This file owns how rows are read and
selected. The module decides which reasons apply; trapless/doctor/supervisor_offer.py predicts it
where no module is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from trapless.abi import REFUSALS_MACHINE, Refusal
from trapless.base.console import TraplessError
from trapless.base.paths import header_path

HEADER = "trapless_refusals.h"


@dataclass(frozen=True)
class Row:
    """One reason. `reason` and `remedy` continue a sentence: they have no capital and no full
    stop."""

    code: Refusal
    title: str
    reason: str
    remedy: str

    @property
    def name(self) -> str:
        """The name that programs read, as 'not-capable'."""
        return self.code.name.lower().replace("_", "-")

    @property
    def of_machine(self) -> bool:
        """Whether the reason is about the machine, the kernel or the module, not one process."""
        return self.code < REFUSALS_MACHINE


ROW = re.compile(
    r"TL_REFUSAL\((\w+), (\d+), (STRING),\s*(STRING),\s*(STRING)\)".replace(
        "STRING", r'"(?:[^"\\]|\\.|"\s*")*"'
    )
)


def parse(text: str, where: str = HEADER) -> list[Row]:
    """Every row of the table. A row that does not have the form of a row is an error."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    rows = []
    for row in re.split(r"\n(?=\S)", text.strip()):
        match = ROW.fullmatch(row.strip())
        if match is None:
            raise TraplessError(f"{where}: this is not a row of the table: {row.strip()!r}")
        name, code, *strings = match.groups()
        if name not in Refusal.__members__ or Refusal[name] != int(code):
            raise TraplessError(f"{where}: trapless/abi does not know {name} with code {code}")
        rows.append(Row(Refusal[name], *(_unquote(string) for string in strings)))
    return rows


def _unquote(string: str) -> str:
    """The value of a C string literal that may consist of several pieces."""
    joined = re.sub(r'(?<!\\)"\s*"', "", string)
    return re.sub(r"\\(.)", r"\1", joined[1:-1])


@cache
def table() -> Mapping[Refusal, Row]:
    """The rows of the table that this installation was built with, by code, in their order.

    The header is read at the first call: a worker of a fleet has no headers and needs no row.
    """
    path = header_path(HEADER)
    try:
        rows = parse(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TraplessError(f"{path}: cannot be read: {error}") from error
    missing = set(Refusal) - {Refusal.NONE} - {row.code for row in rows}
    if missing:
        raise TraplessError(f"{path}: the table has no rows for {missing}")
    return {row.code: row for row in rows}


def explain(code: Refusal) -> str:
    """Reason and remedy as one piece of a message.

    >>> explain(Refusal.COMPAT)
    'the process is a 32-bit one; use a 64-bit build of the program'
    """
    row = table()[code]
    return f"{row.reason}; {row.remedy}"


def of_mask(mask: int) -> tuple[Row, ...]:
    """The rows of the reasons in tl_supervisor.refusals.

    >>> [row.name for row in of_mask(1 << Refusal.PTI | 1 << Refusal.LOCKDOWN)]
    ['pti', 'lockdown']
    """
    return tuple(row for row in table().values() if row.of_machine and mask >> row.code & 1)


def unknown_bits(mask: int) -> int:
    """Reasons that a newer module knows and this table does not."""
    bits = sum(1 << row.code for row in table().values() if row.of_machine)
    return mask & ~bits
