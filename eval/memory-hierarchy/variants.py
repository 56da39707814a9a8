# SPDX-License-Identifier: GPL-2.0-only
"""The modelled processors of the experiment, and in what they are tried otherwise.

Both Pentium 4s of the paper with the prefetcher that Intel documents; what nobody published
(replacement, where pages lie) is varied one by one.
"""

from __future__ import annotations

from trapless.model.plan import Variant

PROCESSORS = {"pentium-4-1.8": "256 KB L2", "pentium-4-1.8a": "512 KB L2"}
"""The paper's two, and what tells them apart."""

SHORT = {"pentium-4-1.8": "p4-256kb", "pentium-4-1.8a": "p4-512kb"}
"""As in names of metrics and files."""

STREAM = {"l2": "stream"}
COLOURS = (1, 2, 3, 4, 5)
"""Seeds of where pages lie: each moves every page to another place of the L2 cache."""


def main(processor: str) -> Variant:
    """The processor as it is documented."""
    return Variant(processor, prefetch=STREAM)


def built(processor: str) -> dict[str, Variant]:
    """The same with one thing changed, by what that is."""
    return {
        "no prefetcher": Variant(processor),
        "data TLB: true LRU": Variant(processor, policy={"dtlb": "lru"}, prefetch=STREAM),
        "data TLB: random": Variant(processor, policy={"dtlb": "random"}, prefetch=STREAM),
        "L2: true LRU": Variant(processor, policy={"l2": "lru"}, prefetch=STREAM),
        "L2: random": Variant(processor, policy={"l2": "random"}, prefetch=STREAM),
    }


def coloured(processor: str) -> tuple[Variant, ...]:
    """The same with pages elsewhere, a seed each."""
    return tuple(Variant(processor, prefetch=STREAM, colour=seed) for seed in COLOURS)


def others(processor: str) -> tuple[Variant, ...]:
    """All that are not as documented."""
    return (*built(processor).values(), *coloured(processor))
