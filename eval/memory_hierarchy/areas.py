# SPDX-License-Identifier: GPL-2.0-only
"""Defines the areas of footprints that the paper names, and counts the cells of one within a bound.

U and K are the footprints in user space and in the kernel, in KB.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from eval.memory_hierarchy import cells

Mask = npt.NDArray[np.bool_]

X_MAX_KB = 64
Y_MIN_KB, Y_MAX_KB = 288, 448
REACH_KB = 256
"""The reach of the data TLB (64 entries of 4 KB), and the size of the smaller L2 cache."""

CLEAR_KB = 224
"""Footprints up to it leave room beside them; 256 KB alone fill the TLB, and thrash under LRU."""


ROOM_KB = 192
"""The most that both may be together, so that the kernel's own data and the program's have room
beside them."""


def range_x(grid: cells.Cells) -> Mask:
    """U + K up to 64 KB."""
    return np.asarray(grid.user + grid.kernel <= X_MAX_KB)


def range_y(grid: cells.Cells) -> Mask:
    """U + K of 288 to 448 KB."""
    both = grid.user + grid.kernel
    return np.asarray((both >= Y_MIN_KB) & (both <= Y_MAX_KB))


def fits(grid: cells.Cells) -> Mask:
    """U + K up to 256 KB."""
    return np.asarray(grid.user + grid.kernel <= REACH_KB)


def clear(grid: cells.Cells) -> Mask:
    """U + K up to 192 KB."""
    return np.asarray(grid.user + grid.kernel <= ROOM_KB)


def apart(grid: cells.Cells, most_kb: int) -> Mask:
    """U and K up to so much, together more than 256 KB."""
    small = (grid.user <= most_kb) & (grid.kernel <= most_kb)
    return np.asarray(small & ~fits(grid))


def upper(grid: cells.Cells) -> Mask:
    """K of 192 to 224 KB."""
    return np.asarray((grid.kernel >= 192) & (grid.kernel <= 224))


def below_upper(grid: cells.Cells) -> Mask:
    """K of less than that."""
    return np.asarray(grid.kernel < 192)


def above_upper(grid: cells.Cells) -> Mask:
    """K of more than that."""
    return np.asarray(grid.kernel > 224)


@dataclass(frozen=True)
class Summary:
    """The ratios of one area, from the cells that have one."""

    lowest: float
    median: float
    highest: float
    cells: int  # with a ratio
    of: int  # in the area
    below_half: int
    below_one: int
    above_one: int

    @property
    def half_share(self) -> float:
        return self.below_half / self.cells if self.cells else 0.0

    @property
    def one_share(self) -> float:
        return self.below_one / self.cells if self.cells else 0.0


def summary(ratios: cells.Counts, area: Mask) -> Summary:
    """A summary of an area's ratios; an area without any has zeros."""
    values = ratios[area & ~np.isnan(ratios)]
    if not values.size:
        return Summary(0.0, 0.0, 0.0, 0, int(area.sum()), 0, 0, 0)
    return Summary(
        lowest=float(values.min()),
        median=float(np.median(values)),
        highest=float(values.max()),
        cells=int(values.size),
        of=int(area.sum()),
        below_half=int((values < 0.5).sum()),
        below_one=int((values < 1).sum()),
        above_one=int((values > 1).sum()),
    )
