# SPDX-License-Identifier: GPL-2.0-only
"""Names the modelled processors of the experiment, and the assumptions that are varied.

Both Pentium 4s of the paper with the prefetcher that Intel documents; the unpublished facts
(replacement, where pages lie) are varied one by one. And two processors of today.
"""

from __future__ import annotations

from trapless.model.model_plan import Variant

SMALL, LARGE = "pentium-4-1.8", "pentium-4-1.8a"

PROCESSORS = {SMALL: "256 KB L2", LARGE: "512 KB L2"}
"""The paper's two processors, and what tells them apart."""

CURRENT = {"core-i7-9700k": "Core i7-9700K", "ryzen-5-3600": "Ryzen 5 3600"}
"""Processors of today."""

SHORT = {
    SMALL: "p4-256kb",
    LARGE: "p4-512kb",
    "core-i7-9700k": "i7-9700k",
    "ryzen-5-3600": "ryzen-3600",
}
"""As in names of metrics and files."""

STREAM = {"l2": "stream"}
POLICIES = {"plru": "tree PLRU", "lru": "true LRU", "random": "random"}
"""Replacement in the data TLB: nobody published it."""

COLOURS = tuple(range(1, 11))
"""Seeds of where pages lie: each moves every page to another place of the L2 cache."""


def main(processor: str) -> Variant:
    """The processor as it is documented."""
    return Variant(processor, prefetch=STREAM)


def tlb(processor: str, policy: str) -> Variant:
    """The same with another replacement in its data TLB; with its own, the same."""
    if policy == "plru":
        return main(processor)
    return Variant(processor, policy={"dtlb": policy}, prefetch=STREAM)


def built(processor: str) -> dict[str, Variant]:
    """The same processor with one assumption changed, by the assumption."""
    return {
        "no prefetcher": Variant(processor),
        "data TLB: true LRU": tlb(processor, "lru"),
        "data TLB: random": tlb(processor, "random"),
        "L2: true LRU": Variant(processor, policy={"l2": "lru"}, prefetch=STREAM),
        "L2: random": Variant(processor, policy={"l2": "random"}, prefetch=STREAM),
    }


def coloured(processor: str) -> tuple[Variant, ...]:
    """The same with pages elsewhere, a seed each."""
    return tuple(Variant(processor, prefetch=STREAM, colour=seed) for seed in COLOURS)
