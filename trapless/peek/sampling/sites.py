# SPDX-License-Identifier: GPL-2.0-only
"""Reads the sites: the places in a kernel's code that the module's probes have patched.

Owns their addresses, functions and run counts, as the target's memory has them, and as a recording
keeps them for reports after the target's end.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.target import Target, function_of
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.recording import Recorder, Recording

SITES_FILE = "sites.parquet"
SITE = np.dtype([("address", "<u8"), ("kind", "<u4"), ("count", "<u4")])  # struct tlk_probe_site
COUNT_STEP_MAX = 1 << 31
LOCK_FUNCTION = re.compile(r"_raw_(spin|read|write)_")
"""A state names the caller of such a function, not the function itself."""


class Kind(IntEnum):
    """The instruction at a site, before it was patched."""

    CLI = 0
    STI = 1
    ENTER_USER = 2
    LEAVE_USER = 3


@dataclass(frozen=True)
class Sites:
    """The sites of a kernel. All members have one element for each site, in the order of addresses.

    `runs`: how often each site ran during the observation; 0 where runs were not counted.
    """

    addresses: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint32]
    names: tuple[GuestText, ...]
    runs: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.addresses)

    def runs_by_function(self) -> Counter[str]:
        """How often each function has switched interrupts off by a cli of its own."""
        runs: Counter[str] = Counter()
        for number in np.flatnonzero((self.kinds == Kind.CLI) & (self.runs > 0)).tolist():
            runs[function_of(str(self.names[number]))] += int(self.runs[number])
        return runs

    def runs_of_locks(self) -> int:
        """How often lock functions have switched interrupts off, all of them together."""
        runs = self.runs_by_function()
        return sum(count for name, count in runs.items() if LOCK_FUNCTION.match(name))

    def disabling(self) -> frozenset[int]:
        """Addresses of the sites that switch interrupts off."""
        return frozenset(self.addresses[self.kinds == Kind.CLI].tolist())


NO_SITES = Sites(np.zeros(0, np.uint64), np.zeros(0, np.uint32), (), np.zeros(0, np.uint64))


@dataclass
class Site:
    """One site during an observation."""

    kind: int
    name: GuestText
    count: int  # the last one that was read
    runs: int = 0

    def look(self, count: int) -> None:
        """Add the runs since the last count. Counts wrap at 2^32, and begin again at 0 when
        probes are turned on again: a difference that is too large for one second means the latter.

        >>> site = Site(0, GuestText(b"schedule"), 2**32 - 1)
        >>> site.look(2), site.look(1), site.runs
        (None, None, 4)
        """
        more = (count - self.count) % (1 << 32)
        self.runs += more if more < COUNT_STEP_MAX else count
        self.count = count


class SiteBook:
    """Collects the sites of a target and their runs during an observation. One thread."""

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}

    def look(self, target: Target, probes: ProbeMap) -> None:
        """Read all sites again; PeekError where they cannot be read."""
        for address, kind, count in read_table(target, probes).tolist():
            site = self._sites.get(address)
            if site is None:
                self._sites[address] = Site(kind, target.name_of(address), count)
            else:
                site.look(count)

    def sites(self) -> Sites:
        """The sites and their runs up to now."""
        book = dict(sorted(self._sites.items()))
        return Sites(
            np.array(list(book), np.uint64),
            np.array([site.kind for site in book.values()], np.uint32),
            tuple(site.name for site in book.values()),
            np.array([site.runs for site in book.values()], np.uint64),
        )


def read_table(target: Target, probes: ProbeMap) -> npt.NDArray[np.void]:
    """The target's array of sites at this moment, as rows of SITE."""
    if not probes.site:
        return np.zeros(0, SITE)
    return np.frombuffer(target.read(probes.site, probes.sites * SITE.itemsize), SITE)


def keep(recorder: Recorder, sites: Sites) -> None:
    """Store sites beside the rows, in the place of those that were stored before."""
    if len(sites):
        columns = {
            "address": sites.addresses,
            "kind": sites.kinds,
            "name": list(map(str, sites.names)),
        }
        recorder.keep(SITES_FILE, pa.table({**columns, "runs": sites.runs}))


def load(recording: Recording) -> Sites:
    """The sites of a recording; none where nothing was patched."""
    table = recording.kept(SITES_FILE)
    if table is None:
        return NO_SITES
    return Sites(
        addresses=table["address"].to_numpy(),
        kinds=table["kind"].to_numpy(),
        names=tuple(map(GuestText.stored, table["name"].to_pylist())),
        runs=table["runs"].to_numpy(),
    )
