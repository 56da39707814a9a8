# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek check --rdma`: compares what RDMA reads of a machine with what it says of itself.

Owns the comparison, and the file to send. The machine says of itself what its own kernel reads of
its memory, which ssh brings here. It is asked before and after RDMA reads: what is the same both
times must be the same in between. Times are the sampler's, and are not judged.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trapless import __version__
from trapless.peek.kernel.counters import Counters, Reading, interrupts, softirqs
from trapless.peek.kernel.memories.rdma_memory import RdmaMemory
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Host, Machine
from trapless.peek.sampling import sampler
from trapless.peek.sampling.boots import clock
from trapless.peek.sandbox.client import SandboxedTarget

NAMES = ("init_task", "schedule", "jiffies_64", "__per_cpu_offset", "modules")
"""Symbols of the kernel's image whose physical addresses are compared."""
TEXT_BYTES = 2 << 20
KINDS = ("threads", "stacks")
LOG_RECORDS = 50
ROUNDS = 3
"""A thread may run between two looks, and code may be patched: what differs each time counts."""
WORKER = "kworker/"
"""The names of threads that are not compared: they do what is due, for the observer as well."""
SIZES = (4, 8, 2048, 4096)
"""Bytes of the reads that are timed. The first and the third are the paper's."""
QUIET_S = 3.0
DEVICES = Path("/sys/class/infiniband")
DEVICE_FILES = ("fw_ver", "board_id", "hca_type", "node_desc", "ports/1/rate", "ports/1/link_layer")
FILE_BYTES_MAX = 4096


@dataclass(frozen=True)
class Look:
    """What one way shows of a machine, in JSON's forms."""

    release: str
    build_id: str
    places: Mapping[str, int]
    text: str
    clock: int
    threads: Mapping[str, str]
    log: list[str]
    stacks: Mapping[str, list[str]]


def look(target: Target) -> Look:
    """All that is compared."""
    assert isinstance(target, SandboxedTarget)
    began = clock(target)
    return Look(
        release=str(target.release),
        build_id=str(target.build_id),
        places={name: target.physical(target.symbol(name)) for name in NAMES},
        text=hashlib.sha256(target.read(target.symbol("_stext"), TEXT_BYTES)).hexdigest(),
        clock=began,
        threads={
            str(one.pid): str(one.comm)
            for one in target.threads().values()
            if not str(one.comm).startswith(WORKER)
        },
        log=[str(one.text) for one in target.log(-1).records[:LOG_RECORDS]],
        stacks={
            str(one.pid): [str(target.name_of(at)) for at in one.stack.addresses]
            for one in target.thread_stacks()
            if one.stack is not None and not str(one.comm).startswith(WORKER)
        },
    )


def differences(before: Look, far: Look, after: Look) -> dict[str, list[Any]]:
    """What differs in the middle and is the same, or in order, before and after: before, and in
    the middle."""
    found: dict[str, list[Any]] = {
        name: [getattr(before, name), getattr(far, name)]
        for name in ("release", "build_id", "places", "text", "log")
        if getattr(far, name) not in (getattr(before, name), getattr(after, name))
    }
    if not before.clock <= far.clock <= after.clock:
        found["clock"] = [before.clock, far.clock]
    for kind in KINDS:
        first, middle, last = (getattr(one, kind) for one in (before, far, after))
        for pid in steady(first, last):
            if middle.get(pid) != first[pid]:
                found[f"{kind}: {pid}"] = [first[pid], middle.get(pid)]
    return found


def steady(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The threads of which both say the same."""
    return [pid for pid, value in before.items() if after.get(pid) == value]


@dataclass(frozen=True)
class Comparison:
    """What was compared, and what differs: before, and in the middle."""

    different: Mapping[str, list[Any]]
    rounds: int
    last: Look
    steady: Mapping[str, list[str]]
    """The threads that are compared."""


def compare(near: Callable[[], Look], far: Callable[[], Look]) -> Comparison:
    """Look in turns until nothing differs, or something does each time."""
    before, different = near(), dict[str, list[Any]]()
    rounds = 0
    while True:
        middle, after, rounds = far(), near(), rounds + 1
        found = differences(before, middle, after)
        different = {
            name: values for name, values in found.items() if rounds == 1 or name in different
        }
        if not different or rounds == ROUNDS:
            kept = {
                kind: steady(*(getattr(one, kind) for one in (before, after))) for kind in KINDS
            }
            return Comparison(different, rounds, after, kept)
        before = after


def check(machine: Machine, witness: str, reads: int) -> dict[str, Any]:
    """All that was compared, counted and timed, as it is written into the file."""
    began_s = time.monotonic()
    with machine.open() as far:
        assert isinstance(far.memory, RdmaMemory)
        opened = {"reads": far.memory.connection.reads, "seconds": time.monotonic() - began_s}
        with Host(witness).open() as near:
            found = compare(lambda: look(near), lambda: look(far))
        return {
            "trapless": __version__,
            "different": found.different,
            "compared": {
                **{kind: len(found.steady[kind]) for kind in KINDS},
                "log": len(found.last.log),
                "text_bytes": TEXT_BYTES,
            },
            "rounds": found.rounds,
            "opening": opened,
            "target": {"release": found.last.release, "build_id": found.last.build_id},
            "observer": {"release": os.uname().release, "devices": dict(_devices())},
            **_timed(far, far.memory.source, reads),
        }


def _timed(far: Target, source: str, reads: int) -> dict[str, Any]:
    """How closely reads follow one another, and what the target's processors do meanwhile."""
    counters = Counters(far)
    began = counters.read()
    time.sleep(QUIET_S)
    quiet = counters.read()
    place = far.physical(far.symbol("jiffies_64")) & ~0xFFF
    intervals = sampler.intervals(source, place, SIZES, reads)
    return {
        "intervals": intervals,
        "interrupts_per_s": {
            "quiet": _handled(counters, began, quiet),
            "read": _handled(counters, quiet, counters.read()),
        },
    }


def _handled(counters: Counters, first: Reading, last: Reading) -> dict[str, float]:
    """Interrupts and softirqs per second, of all CPUs."""
    rates = counters.rates(first, last).values()
    return {
        "interrupts": sum(sum(interrupts(one).values()) for one in rates),
        "softirqs": sum(sum(softirqs(one).values()) for one in rates),
    }


def _devices() -> Iterator[tuple[str, dict[str, str]]]:
    """This machine's devices for RDMA, as the kernel describes them."""
    for device in sorted(DEVICES.glob("*")):
        said = {"driver": os.path.basename(os.path.realpath(device / "device/driver"))}
        for name in DEVICE_FILES:
            try:
                with (device / name).open(errors="replace") as file:
                    said[name] = file.read(FILE_BYTES_MAX).strip()
            except OSError:  # not each device has each
                continue
        yield device.name, said


def lines(found: Mapping[str, Any]) -> Iterator[str]:
    """What a person reads of it."""
    compared, opening = found["compared"], found["opening"]
    yield (
        f"compared: release, addresses, {compared['text_bytes'] >> 20} MiB of code, clock, "
        f"{compared['log']} records of the log, {compared['threads']} threads, "
        f"{compared['stacks']} stacks"
    )
    yield "different: " + (", ".join(found["different"]) or "nothing")
    yield (
        f"opened by {opening['reads']} reads, one after the other, in {opening['seconds']:.3f} s"
    )
    for row in found["intervals"]:
        median = dict(map(tuple, row["quantiles"]))[0.5]
        yield f"reads of {row['bytes']} B: one each {median / 1e3:.3g} µs (median)"
    for when, text in (("quiet", "before"), ("read", "during the reads")):
        rates = found["interrupts_per_s"][when]
        yield (
            f"the target's CPUs {text}: {rates['interrupts']:.0f} interrupts and "
            f"{rates['softirqs']:.0f} softirqs a second"
        )


def write(found: Mapping[str, Any], path: Path) -> None:
    """Write the file to send. Of the target's memory it has only what differs."""
    with path.open("x") as file:
        json.dump(found, file, indent=1)
        file.write("\n")
