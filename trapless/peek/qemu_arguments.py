# SPDX-License-Identifier: GPL-2.0-only
"""Reads what a QEMU's command line says of its machine: its name, its RAM, its monitors.

Owns the forms of QEMU's options. Nothing here looks at a process.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trapless.base import json_text
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memory import GIB, Q35_HOLE, Q35_SPLIT_BYTES

MIB = 1 << 20
DEFAULT_BYTES = 128 * MIB
"""The RAM of a QEMU without the option -m."""
ENCRYPTION = ("sev-guest", "sev-snp-guest", "tdx-guest")
NODES_MAX = 128
"""NUMA nodes of one machine, as in QEMU."""
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": MIB, "g": GIB, "t": GIB << 10, "p": GIB << 20}

Options = Iterator[tuple[str, dict[str, str]]]


@dataclass(frozen=True)
class Backend:
    """A part of a machine's RAM: one backend, or all that -m says where there is none."""

    name: str
    size: int
    path: str = ""  # the file that it is in, or begins with, if it is in one


def options(argv: Sequence[str]) -> Options:
    """Each option that has a value, with the value's keys."""
    for option, value in itertools.pairwise(argv):
        if option.startswith("-"):
            yield option.lstrip("-"), keys(value)


def keys(value: str) -> dict[str, str]:
    """The keys of QEMU's `type,key=value,...`, or of the same as JSON; the type has the key ""."""
    if value.startswith("{"):
        with contextlib.suppress(ValueError):
            return {key: str(one) for key, one in json_text.parse(value).items()}
        return {}
    words = [word.replace("\0", ",") for word in value.replace(",,", "\0").split(",")]
    pairs = (word.partition("=") for word in words)
    return {key if equals else "": text if equals else key for key, equals, text in pairs}


def name(argv: Sequence[str]) -> str:
    """The machine's name; empty without the option -name."""
    for option, value in itertools.pairwise(argv):
        if option in ("-name", "--name"):
            values = keys(value)
            return values.get("guest") or values.get("", "")
    return ""


def ram_file(argv: Sequence[str]) -> str | None:
    """The file that has all of the RAM and is shared; None where there is no such file."""
    backends = _objects(argv)
    names = set(_memory_names(argv))
    if len(names) != 1:  # none, or one for each NUMA node: no file has all of the RAM
        return None
    backend = backends.get(names.pop(), {})
    shared = backend.get("share", "off").lower() in ("on", "true", "yes", "y")
    is_file = "memory-backend-file" in (backend.get(""), backend.get("qom-type"))
    return backend.get("mem-path") if shared and is_file else None


def ram(argv: Sequence[str]) -> list[Backend]:
    """The parts of the RAM in their order; PeekError where outsiders cannot read it."""
    backends = _objects(argv)
    for one in backends.values():
        if (kind := one.get("", one.get("qom-type", ""))) in ENCRYPTION:
            raise PeekError(f"its memory is encrypted ({kind}): nobody outside can read it")
    parts = []
    for label in dict.fromkeys(_memory_names(argv)):
        backend = backends.get(label, {})
        size = size_of(backend.get("size", ""), 1)
        if size is None:
            raise PeekError(f"its memory {visible(label)} has no size that is understood")
        parts.append(Backend(visible(label), size, backend.get("mem-path", "")))
    return parts or [Backend("its RAM", _size(argv))]


def _objects(argv: Sequence[str]) -> dict[str, dict[str, str]]:
    return {values.get("id", ""): values for option, values in options(argv) if option == "object"}


def _memory_names(argv: Sequence[str]) -> list[str]:
    """The names of the backends that are RAM: those of the nodes in order, or the machine's."""
    machine: list[str] = []
    nodes: dict[int, str] = {}
    for option, values in options(argv):
        if option in ("machine", "M") and "memory-backend" in values:
            machine = [values["memory-backend"]]
        elif option == "numa" and "memdev" in values:
            number = values.get("nodeid", str(len(nodes)))
            if not re.fullmatch(r"[0-9]{1,4}", number) or len(nodes) >= NODES_MAX:
                raise PeekError(f"its NUMA nodes are not those of a machine: {number[:20]!r}")
            nodes[int(number)] = values["memdev"]
    return [nodes[number] for number in sorted(nodes)] or machine


def _size(argv: Sequence[str]) -> int:
    for option, values in options(argv):
        if option == "m":
            size = size_of(values.get("size", values.get("", "")), MIB)
            if size is not None:
                return size
    return DEFAULT_BYTES


def size_of(text: str, unit: int) -> int | None:
    """A size as QEMU writes it; `unit` is what a number without a letter counts.

    >>> size_of("6G", MIB) >> 30, size_of("512", MIB) >> 20, size_of("4194304k", 1) >> 30
    (6, 512, 4)
    """
    match = re.fullmatch(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)([bkmgtp]?)", text.strip().lower())
    if match is None:
        return None
    return int(float(match[1]) * (UNITS[match[2]] if match[2] else unit))


def holes(argv: Sequence[str], total: int) -> list[int]:
    """Where RAM below 4 GiB ends, as far as the machine's type tells; likeliest first."""
    kind, limit = "pc", None
    for option, values in options(argv):
        if option in ("machine", "M"):
            kind = values.get("", values.get("type", kind))
            limit = size_of(values.get("max-ram-below-4g", ""), 1) or limit
    low = []
    if ("q35" in kind or "microvm" in kind) and total >= Q35_SPLIT_BYTES:
        low.append(Q35_HOLE)
    return [min(limit, *low) if low else limit, *low] if limit else low


def monitor_sockets(argv: Sequence[str]) -> list[str]:
    """The paths of the sockets at which it offers its QMP monitor."""
    devices: dict[str, str] = {}
    names: list[str] = []
    paths: list[str] = []
    for option, values in options(argv):
        if option in ("qmp", "qmp-pretty") and values.get("", "").startswith("unix:"):
            paths.append(values[""].removeprefix("unix:"))
        elif option == "chardev" and values.get("", values.get("backend")) == "socket":
            devices[values.get("id", "")] = values.get("path", "")
        elif option == "mon" and values.get("mode") == "control":
            names.append(values.get("chardev", values.get("", "")))
    return [path for path in (*paths, *(devices.get(one, "") for one in names)) if path]
