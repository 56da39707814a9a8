# SPDX-License-Identifier: GPL-2.0-only
"""The places of a kernel that the module's probes have patched: where, in which function, how often
each ran. As they are in the target's memory, and as a recording keeps them, so that it can be
reported when the target is no more. It owns nothing of what a sample means (tier1.py).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trapless.peek.kernel.target import Target
from trapless.peek.sampling.names import function_of
from trapless.peek.sampling.probes import ProbeMap
from trapless.peek.sampling.recording import Recorder, Recording

SITES_FILE = "sites.parquet"
SITE = np.dtype([("address", "<u8"), ("kind", "<u4"), ("count", "<u4")])  # struct tlk_probe_site
COUNT_STEP_MAX = 1 << 31
LOCK_FUNCTION = re.compile(r"_raw_(spin|read|write)_")
"""What they switch off is their callers': states name those."""


class Kind(IntEnum):
    """What a site was before it was patched."""

    CLI = 0
    STI = 1
    ENTER_USER = 2
    LEAVE_USER = 3


@dataclass(frozen=True)
class Sites:
    """Patched places of a kernel, by address.

    `runs`: how often each ran while it was watched; all 0 where nobody counted.
    """

    addresses: npt.NDArray[np.uint64]
    kinds: npt.NDArray[np.uint32]
    names: tuple[str, ...]
    runs: npt.NDArray[np.uint64]

    def __len__(self) -> int:
        return len(self.addresses)

    def runs_by_function(self) -> Counter[str]:
        """How often each function has switched interrupts off by a cli of its own."""
        found: Counter[str] = Counter()
        for number in np.flatnonzero((self.kinds == Kind.CLI) & (self.runs > 0)).tolist():
            found[function_of(self.names[number])] += int(self.runs[number])
        return found

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
    """One of them, while it is watched."""

    kind: int
    name: str
    count: int  # as it stood in memory when last looked at
    runs: int = 0

    def look(self, count: int) -> None:
        """Take another count. Counts go round at 2^32, and begin anew at 0 when probes are turned
        on again: a difference that no second is long enough for is the second.

        >>> site = Site(0, "schedule", 2**32 - 1)
        >>> site.look(2), site.look(1), site.runs
        (None, None, 4)
        """
        more = (count - self.count) % (1 << 32)
        self.runs += more if more < COUNT_STEP_MAX else count
        self.count = count


class SiteBook:
    """The sites of a target, whatever is patched at the moment, with what was counted so far."""

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}

    def look(self, target: Target, probes: ProbeMap) -> None:
        """Look at them again; PeekError where they cannot be read."""
        for address, kind, count in read_table(target, probes).tolist():
            site = self._sites.get(address)
            if site is None:
                self._sites[address] = Site(kind, target.name_of(address), count)
            else:
                site.look(count)

    def sites(self) -> Sites:
        """As they are by now."""
        found = dict(sorted(self._sites.items()))
        return Sites(
            np.array(list(found), np.uint64),
            np.array([site.kind for site in found.values()], np.uint32),
            tuple(site.name for site in found.values()),
            np.array([site.runs for site in found.values()], np.uint64),
        )


def read_table(target: Target, probes: ProbeMap) -> npt.NDArray[np.void]:
    """The array of sites as it is."""
    if not probes.site:
        return np.zeros(0, SITE)
    return np.frombuffer(target.read(probes.site, probes.sites * SITE.itemsize), SITE)


def keep(recorder: Recorder, sites: Sites) -> None:
    """Store sites, with what was counted so far, in the place of what was stored before."""
    if len(sites):
        columns = {"address": sites.addresses, "kind": sites.kinds, "name": list(sites.names)}
        recorder.keep(SITES_FILE, pa.table({**columns, "runs": sites.runs}))


def load(recording: Recording) -> Sites:
    """The sites of a recording: none where nothing was patched."""
    table = recording.kept(SITES_FILE)
    if table is None:
        return NO_SITES
    return Sites(
        addresses=table["address"].to_numpy(),
        kinds=table["kind"].to_numpy(),
        names=tuple(str(name) for name in table["name"].to_pylist()),
        runs=table["runs"].to_numpy(),
    )
