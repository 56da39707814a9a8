# SPDX-License-Identifier: GPL-2.0-only
"""Names of the code that states point to, looked up while the target is there to be asked.

A module may be unloaded before its recording is reported, and a target ends: so each address that
comes by is named at once, and the names are kept beside the rows. It owns no symbols (target.py).
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.target import Target
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.rows import Rows

NAMES_FILE = "names.parquet"
NAMES_MAX = 1 << 16
"""Rows that probes have not written may hold anything; a kernel has fewer places than this."""
CODE = 1 << 63
"""All code of a kernel is at or above."""


class Names:
    """Names by address, growing with the rows that are seen."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.known: dict[int, str] = {}

    def see(self, rows: Rows) -> None:
        """Name whatever is new in the states of some rows."""
        for column in rows.dtype.names or ():
            if column.endswith(".state"):
                for address in np.unique(rows[column]).tolist():
                    new = address >= CODE and address not in self.known
                    if new and len(self.known) < NAMES_MAX:
                        self.known[address] = self._target.name_of(address)

    def keep(self, recorder: Recorder) -> None:
        """Store the names in the place of those that were stored before."""
        if self.known:
            addresses = pa.array(list(self.known), pa.uint64())
            names = pa.array(list(self.known.values()))
            recorder.keep(NAMES_FILE, pa.table({"address": addresses, "name": names}))


def load(recording: Recording) -> dict[int, str]:
    """The names of a recording: none where no probes were on."""
    table = recording.kept(NAMES_FILE)
    if table is None:
        return {}
    return dict(zip(table["address"].to_pylist(), table["name"].to_pylist(), strict=True))


def from_symbols(recording: Recording, addresses: Iterable[int]) -> dict[int, str]:
    """Names by the kernel's symbols, for what a recorder that was killed had no time to name.

    Symbols are kept as linked; `shift` in the recording's `about` says where they were.
    """
    symbols = recording.symbols()
    linked = [address for address, _ in symbols]
    ends = {name: address for address, name in symbols if name in ("_text", "_end")}
    found = {}
    for address in addresses:
        place = (address - int(recording.meta["about"].get("shift", 0))) & MASK
        if ends.get("_text", MASK) <= place < ends.get("_end", 0):
            found[address] = symbols[bisect.bisect_right(linked, place) - 1][1]
    return found


def name_in(names: Mapping[int, str], address: int) -> str:
    """The function that an address is in."""
    return function_of(names.get(address, f"{address:#x}"))


def function_of(name: str) -> str:
    """The function of a place, with the module that it is of.

    >>> function_of("e1000_intr+0x40 [e1000]"), function_of("schedule")
    ('e1000_intr [e1000]', 'schedule')
    """
    symbol, _, module = name.partition(" ")
    return f"{symbol.split('+')[0]} {module}".strip()
