# SPDX-License-Identifier: GPL-2.0-only
"""Plans what one run of the model simulates: variants of processors, side by side.

This file owns the names of structures in a run's rows, sharing (what two variants have in common is
simulated once) and the text that the plugin reads (model/config.c, which checks every geometry
again).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trapless.base.console import TraplessError
from trapless.model import processors
from trapless.model.processors import Structure
from trapless.model.rows import Row

STRUCTURES_MAX = 56
"""The structures of one run; TLM_STRUCTURES_MAX of model/geometry.h."""

WAYS_MAX, TREE_WAYS_MAX = 4096, 64
PAGE_BYTES = 4096
UNITS_BYTES = (64, PAGE_BYTES)
"""The units of footprints: lines and pages."""
LABELS = 16
"""Regions are told apart by the last four bits of their labels; TLM_LABELS of model/geometry.h."""


@dataclass(frozen=True)
class Variant:
    """A processor, and the differences with which it is tried.

    `policy`: role to replacement; `prefetch`: role to "stream"; `colour`: seed of page colours (0:
    pages lie where the guest has them), of caches that a page does not fill evenly; `seed`: of
    random replacement. `split`: user and kernel have each structure to themselves, so that neither
    evicts what the other brought in: the misses that this avoids are the other's pollution.
    `elsewhere`: the kernel's work is done by another processor, as if system calls were handed to
    it. Each mode has its own caches and TLBs, but both share the last cache, and a line that one
    mode writes leaves the caches of the other's processor.
    """

    processor: str
    policy: Mapping[str, str] = field(default_factory=dict)
    prefetch: Mapping[str, str] = field(default_factory=dict)
    colour: int = 0
    seed: int = 0
    split: bool = False
    elsewhere: bool = False

    @property
    def id(self) -> str:
        """The processor's, and each difference behind a plus.

        >>> Variant("pentium-4-1.8", policy={"dtlb": "random"}, colour=3).id
        'pentium-4-1.8+dtlb=random+colour3'
        """
        words = [self.processor]
        words += [f"{role}={policy}" for role, policy in sorted(self.policy.items())]
        words += [f"{role}={kind}" for role, kind in sorted(self.prefetch.items())]
        words += [f"colour{self.colour}"] if self.colour else []
        words += [f"seed{self.seed}"] if self.seed else []
        words += ["split"] if self.split else []
        words += ["elsewhere"] if self.elsewhere else []
        return "+".join(words)


@dataclass(frozen=True)
class Plan:
    """A run: the plugin's text, and under which name each variant's structures are in the rows.

    Footprints are exact: distinct lines (64 bytes) and pages (4096) of physical memory, code and
    data, by the mode that touched them.
    """

    variants: tuple[Variant, ...]
    names: Mapping[tuple[str, str], str]
    lines: tuple[str, ...]

    @classmethod
    def of(cls, variants: Sequence[Variant], footprint_of: int | None = None) -> Plan:
        """Lay out `variants`; a TraplessError says which geometry or choice cannot be.

        `footprint_of`: with footprints, those over the whole run of regions whose label ends in
        these four bits.
        """
        names: dict[tuple[str, str], str] = {}
        structures: dict[str, str] = {}  # parameters to name
        lines: list[str] = []
        for variant in variants:
            processor = processors.load(variant.processor)
            _check_roles(variant, processor.structures)
            for position, structure in enumerate(processor.structures.values()):
                check(structure)
                parameters = _parameters(variant, structure, position, names)
                name = f"{structure.role}@{variant.id}"
                if parameters not in structures:
                    structures[parameters] = name
                    lines.append(f"{structure.kind} {name} {parameters}")
                names[variant.id, structure.role] = structures[parameters]
        if footprint_of is not None:
            lines += _footprints(footprint_of)
        if len(lines) > STRUCTURES_MAX:
            raise TraplessError(
                f"{len(variants)} variants are {len(lines)} different caches and TLBs, more than "
                f"the {STRUCTURES_MAX} of one run: use several runs",
                status=2,
            )
        return cls(tuple(variants), names, tuple(lines))

    def text(self, memory_bytes: int) -> str:
        """The plugin's configuration for a guest with that much memory."""
        return "\n".join([f"memory {memory_bytes}", *self.lines, ""])

    def write(self, path: Path, memory_bytes: int = 1 << 30) -> None:
        """Write the configuration. The guest needs as much memory as is said here."""
        path.write_text(self.text(memory_bytes), encoding="utf-8")

    def misses(self, row: Row, mode: str, variant: str, role: str) -> int:
        """The misses of all accesses of that mode in one variant's structure."""
        return row.misses(mode, self.names[variant, role])

    def references(self, row: Row, mode: str, variant: str, role: str) -> int:
        """The accesses of that mode that reached the structure."""
        return row.references(mode, self.names[variant, role])

    def footprint_bytes(self, row: Row, mode: str, unit: int) -> int:
        """What these regions touched that no earlier one had; the sum of all regions is that of the
        run."""
        return row.misses(mode, f"run-{unit}") * unit

    def visit_bytes(self, row: Row, mode: str, unit: int) -> float:
        """The footprint of one visit to a mode, from its entry to its exit, on average; nan without
        a visit."""
        visits = row[f"crossings.to_{mode}"]
        return row.misses(mode, f"visit-{unit}") * unit / visits if visits else math.nan


def _footprints(label: int) -> list[str]:
    if not 0 <= label < LABELS:
        raise TraplessError(f"footprints of {label}: a label's four bits are 0 to 15", status=2)
    lines = []
    for unit in UNITS_BYTES:
        lines += [f"footprint run-{unit} unit={unit} from=data,fetch label={label}"]
        lines += [f"footprint visit-{unit} unit={unit} from=data,fetch empty=crossing"]
    return lines


def check(structure: Structure) -> None:
    """Raise a TraplessError for a geometry that cannot be."""
    unit = structure.line_bytes if structure.kind == "cache" else 1
    what = f"{structure.role}: {structure.size} {'bytes' if structure.line_bytes else 'entries'}"
    if structure.kind == "cache" and (not _power_of_two(unit) or not 16 <= unit <= PAGE_BYTES):
        raise TraplessError(
            f"{structure.role}: lines of {unit} bytes: must be a power of two from 16 to 4096"
        )
    if not 0 < structure.ways <= WAYS_MAX:
        raise TraplessError(f"{structure.role}: {structure.ways} ways: must be 1 to {WAYS_MAX}")
    way = structure.ways * unit
    if structure.size % way or not _power_of_two(structure.size // way):
        raise TraplessError(
            f"{what} are not {structure.ways} ways{' of lines' if unit > 1 else ''} times a power "
            "of two"
        )
    tree = structure.policy == "plru"
    if tree and (not _power_of_two(structure.ways) or structure.ways > TREE_WAYS_MAX):
        raise TraplessError(
            f"{structure.role}: plru needs a power of two of ways, at most {TREE_WAYS_MAX}"
        )


def _power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _check_roles(variant: Variant, structures: Mapping[str, Structure]) -> None:
    for role, policy in variant.policy.items():
        if role not in structures or policy not in processors.POLICIES:
            raise TraplessError(f"{variant.id}: no policy '{policy}' of a '{role}'", status=2)
    for role, kind in variant.prefetch.items():
        if role not in structures or not structures[role].streams or kind != "stream":
            raise TraplessError(f"{variant.id}: no prefetcher '{kind}' of a '{role}'", status=2)
    if variant.elsewhere and (variant.split or variant.prefetch):
        raise TraplessError(f"{variant.id}: neither split nor prefetched", status=2)
    if variant.colour < 0 or variant.seed < 0:
        raise TraplessError(f"{variant.id}: a seed is not negative", status=2)


def _parameters(
    variant: Variant, structure: Structure, position: int, names: Mapping[tuple[str, str], str]
) -> str:
    """The parameters of a structure, in the plugin's words."""
    policy = variant.policy.get(structure.role, structure.policy)
    cached = structure.kind == "cache"
    words = [f"{'size' if cached else 'entries'}={structure.size}", f"ways={structure.ways}"]
    if cached:
        words += [f"line={structure.line_bytes}"]
        words += ["write=through"] if structure.through else []
        if structure.role in variant.prefetch:
            words += [f"streams={structure.streams}", f"ahead={structure.ahead}"]
        if variant.colour and structure.way_bytes > PAGE_BYTES:
            words += [f"colour={variant.colour}"]
    else:
        words += [f"pages={','.join(map(str, structure.pages_bytes))}", f"flush={structure.flush}"]
    words += [f"policy={policy}"]
    words += _modes(variant, structure)
    if policy == "random":
        words += [f"seed={(variant.seed << 8) + position}"]
    sources = [names.get((variant.id, feed), feed) for feed in structure.feeds]
    return " ".join([*words, f"from={','.join(sources)}"])


def _modes(variant: Variant, structure: Structure) -> list[str]:
    """The structures that user and kernel each have to themselves."""
    if variant.split or (variant.elsewhere and structure.kind == "tlb"):
        return ["modes=apart"]
    roles = processors.load(variant.processor).structures.values()
    caches = [one.role for one in roles if one.kind == "cache"]
    private = variant.elsewhere and structure.role != caches[-1]
    return ["modes=coherent"] if private else []
