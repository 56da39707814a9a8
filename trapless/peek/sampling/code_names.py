# SPDX-License-Identifier: GPL-2.0-only
"""Collects names for the addresses of code that samples hold, while the target still has them.

Owns the names beside a recording's rows. A module may be unloaded, and the target may end, before
the recording is reported, so every new address is named at once. kernel/target.py has the symbols.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from trapless.peek import limits
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.target import Target, function_of
from trapless.peek.sampling.recording import Recorder, Recording
from trapless.peek.sampling.sample_rows import Rows

NAMES_FILE = "names.parquet"
CODE = 1 << 63
"""The lowest address of a kernel's code."""


class Names:
    """Names by address. Several threads may ask for names at the same time."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.known: dict[int, GuestText] = {}

    def see(self, rows: Rows) -> None:
        """Name the new addresses among the states of some rows."""
        for column in rows.dtype.names or ():
            if column.endswith(".state"):
                for address in np.unique(rows[column]).tolist():
                    self.name(address)

    def name(self, address: int) -> None:
        """Name an address of code, if it is new."""
        new = address >= CODE and address not in self.known
        if new and len(self.known) < limits.NAMES_MAX:
            self.known[address] = self._target.name_of(address)

    def keep(self, recorder: Recorder) -> None:
        """Store the names beside the rows, in the place of those that were stored before."""
        known = list(self.known.items())  # at once: another thread may add some
        if known:
            addresses = pa.array([address for address, _ in known], pa.uint64())
            names = pa.array([str(name) for _, name in known])
            recorder.keep(NAMES_FILE, pa.table({"address": addresses, "name": names}))


def load(recording: Recording) -> dict[int, GuestText]:
    """The names of a recording by address; none where no probes were on."""
    table = recording.kept(NAMES_FILE)
    if table is None:
        return {}
    return dict(
        zip(
            table["address"].to_pylist(),
            map(GuestText.stored, table["name"].to_pylist()),
            strict=True,
        )
    )


def from_symbols(recording: Recording, addresses: Iterable[int]) -> dict[int, GuestText]:
    """Functions by address, from the symbols of a recording whose recorder was killed.

    A recording has symbols as linked; `shift` in its `about` is what KASLR added.
    """
    symbols = recording.symbols()
    linked = [address for address, _ in symbols]
    ends = {name: address for address, name in symbols if name in ("_text", "_end")}
    functions: dict[int, GuestText] = {}
    for address in addresses:
        place = (address - int(recording.meta["about"].get("shift", 0))) & MASK
        if ends.get("_text", MASK) <= place < ends.get("_end", 0):
            functions[address] = GuestText.stored(
                symbols[bisect.bisect_right(linked, place) - 1][1]
            )
    return functions


def name_in(names: Mapping[int, GuestText], address: int) -> str:
    """The function that an address is in, by `names`; the address itself without a name."""
    return function_of(str(names.get(address, f"{address:#x}")))
