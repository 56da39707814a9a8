# SPDX-License-Identifier: GPL-2.0-only
"""The model against another one: random traces through random geometries, count by count.

The other implementation is below, written for clarity (ordered dictionaries, halves of lists), not
after the C one. The C one is the program that replays traces, under sanitizers.
"""

from __future__ import annotations

import random
import subprocess
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

import pytest

from trapless.model import rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
REPLAY = ROOT / "build" / "sanitized" / "model" / "trapless-model-replay"
MEMORY = 1 << 30
KERNEL = 0xFFFF_8880_0000_0000
WORD = (1 << 64) - 1


class Lru:
    """A set's tags, the latest last."""

    def __init__(self, ways: int, _draw: Iterator[int]) -> None:
        self.ways, self.tags = ways, OrderedDict()

    def touch(self, tag, fill):
        hit = tag in self.tags
        if hit or fill:
            self.tags[tag] = True
            self.tags.move_to_end(tag)
            if len(self.tags) > self.ways:
                self.tags.popitem(last=False)
        return hit

    def keep(self, wanted):
        for tag in [tag for tag in self.tags if not wanted(tag)]:
            del self.tags[tag]


class Slots:
    """A set with fixed places: the first empty one is filled, else the policy's victim."""

    def __init__(self, ways: int, draw: Iterator[int]) -> None:
        self.places, self.draw = [None] * ways, draw

    def touch(self, tag, fill):
        hit = tag in self.places
        if not hit and not fill:
            return False
        if not hit:
            free = None in self.places
            self.places[self.places.index(None) if free else self.victim()] = tag
        self.used(self.places.index(tag))
        return hit

    def keep(self, wanted):
        self.places = [tag if tag is not None and wanted(tag) else None for tag in self.places]

    def victim(self):
        return (next(self.draw) >> 32) * len(self.places) >> 32

    def used(self, place):
        pass


class Tree(Slots):
    """Each half remembers which of its halves was not used last."""

    def __init__(self, ways: int, draw: Iterator[int]) -> None:
        super().__init__(ways, draw)
        self.loser = {}

    def victim(self):
        first, size = 0, len(self.places)
        while size > 1:
            size //= 2
            first += size * self.loser.get((first, 2 * size), 0)
        return first

    def used(self, place):
        first, size = 0, len(self.places)
        while size > 1:
            upper = place >= first + size // 2
            self.loser[first, size] = 0 if upper else 1
            size //= 2
            first += size if upper else 0


SETS = {"lru": Lru, "plru": Tree, "random": Slots}


def splitmix(seed: int) -> Iterator[int]:
    """Steele, Lea, Flood: Fast splittable pseudorandom number generators (2014)."""
    while True:
        seed = (seed + 0x9E3779B97F4A7C15) & WORD
        value = ((seed ^ seed >> 30) * 0xBF58476D1CE4E5B9) & WORD
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & WORD
        yield value ^ value >> 31


def coloured(address: int, seed: int) -> int:
    page = address >> 12 & 0xFFFF_FFFF
    page ^= (seed * 0x9E3779B97F4A7C15 & WORD) >> 32
    page = page * 0x7FEB352D & 0xFFFF_FFFF
    page ^= page >> 15
    page = page * 0x846CA68B & 0xFFFF_FFFF
    page ^= page >> 16
    return page << 12 | address & 0xFFF


class Reference:
    """One structure. `spec`: its words of the configuration."""

    def __init__(self, kind: str, name: str, spec: dict) -> None:
        self.kind, self.name, self.spec = kind, name, spec
        self.size = int(spec.get("size", spec.get("entries", 0)))
        unit = int(spec["line"]) if kind == "cache" else 1
        self.line, self.ways = unit, int(spec["ways"])
        self.count = self.size // unit // self.ways
        self.counts = {}
        self.cold()

    def cold(self):
        draw = splitmix(int(self.spec.get("seed", 0)))
        self.apart = self.spec.get("modes") in ("apart", "coherent")
        self.coherent = self.spec.get("modes") == "coherent"
        policy = SETS[self.spec["policy"]]
        self.sets: dict = {
            (mode, number): policy(self.ways, draw)
            for mode in ("user", "kernel")[: 1 + self.apart]
            for number in range(self.count)
        }
        self.streams = {"user": OrderedDict(), "kernel": OrderedDict()}

    def part(self, mode):
        """Whose contents an access of that mode finds."""
        return mode if self.apart else "user"

    def count_one(self, mode, what):
        self.counts[mode, what] = self.counts.get((mode, what), 0) + 1

    def flush(self, everything):
        how = "all" if everything else self.spec.get("flush", "nonglobal")
        if self.kind == "tlb" and how != "none":
            for one in self.sets.values():
                one.keep(lambda tag: how == "nonglobal" and tag[0] >= KERNEL)

    def give_up(self, mode, physical):
        """The other mode has written the line."""
        line = self.place(physical)
        self.sets[mode, line % self.count].keep(lambda tag: tag != line)

    def place(self, physical):
        colour = int(self.spec.get("colour", 0))
        return (coloured(physical, colour) if colour else physical) // self.line

    def access(self, mode, kind, virtual, physical, page):
        """Whether it goes on to the next."""
        if self.kind == "tlb":
            if str(page) not in self.spec["pages"].split(","):
                return False
            tag = (virtual // page * page, physical // page)
            where = virtual // page
        else:
            tag = where = self.place(physical)
        through = kind == "write" and self.spec.get("write") == "through"
        self.count_one(mode, f"{kind}_references")
        hit = self.sets[self.part(mode), where % self.count].touch(tag, fill=not through)
        if not hit:
            self.count_one(mode, f"{kind}_misses")
        if int(self.spec.get("streams", 0)):
            self.prefetch(mode, where, missed=not hit)
        return through or not hit

    def prefetch(self, mode, line, missed):
        lines = 4096 // self.line
        page, place = divmod(line, lines)
        streams = self.streams[self.part(mode)]
        if page not in streams:
            if not missed:
                return
            if len(streams) == int(self.spec["streams"]):
                streams.popitem(last=False)
            streams[page] = place
            return
        streams.move_to_end(page)
        step = place - streams[page]
        streams[page] = place
        if abs(step) != 1:
            return
        for number in range(1, int(self.spec["ahead"]) + 1):
            ahead = place + number * step
            if 0 <= ahead < lines:
                target = page * lines + ahead
                place_in = self.sets[self.part(mode), target % self.count]
                if not place_in.touch(target, fill=True):
                    self.count_one(mode, "prefetches")


class Footprint:
    """The units of memory that were touched, as a set."""

    def __init__(self, name: str, spec: dict) -> None:
        self.name, self.spec, self.unit = name, spec, int(spec["unit"])
        self.counts, self.touched, self.mode = {}, set(), None

    def flush(self, everything):
        pass

    def access(self, mode, kind, physical):
        if self.spec.get("empty") == "crossing" and mode != self.mode:
            self.touched.clear()
        self.mode = mode
        if kind not in self.spec["from"].replace("data", "read,write").split(","):
            return
        whats = [f"{kind}_references"]
        if (mode, physical // self.unit) not in self.touched:
            self.touched.add((mode, physical // self.unit))
            whats.append(f"{kind}_misses")
        for what in whats:
            self.counts[mode, what] = self.counts.get((mode, what), 0) + 1


class Model:
    """All structures of a configuration."""

    def __init__(self, text: str) -> None:
        self.structures = []
        for line in text.splitlines():
            kind, name, *words = line.split()
            if kind in ("cache", "tlb"):
                spec = dict(word.split("=", 1) for word in words)
                self.structures.append(Reference(kind, name, spec))
            elif kind == "footprint":
                spec = dict(word.split("=", 1) for word in words)
                self.structures.append(Footprint(name, spec))

    def access(self, mode, kind, virtual, physical):
        passed = {kind} | ({"data"} if kind in ("read", "write") else set())
        page = 1 << 21 if virtual >= KERNEL else 1 << 12
        for one in self.structures:
            if kind == "write" and getattr(one, "coherent", False):
                one.give_up("user" if mode == "kernel" else "kernel", physical)
        for one in self.structures:
            if isinstance(one, Footprint):
                one.access(mode, kind, physical)
                continue
            fed = passed & set(one.spec["from"].split(","))
            if fed and one.access(mode, kind, virtual, physical, page):
                passed.add(one.name)


CONFIGURATIONS = {
    "lru": """cache 1 size=4096 ways=4 line=64 policy=lru from=data write=through
cache i size=2048 ways=2 line=64 policy=lru from=fetch
cache 2 size=32768 ways=8 line=128 policy=lru from=1,i
tlb d entries=16 ways=16 pages=4096,2097152 policy=lru from=data""",
    "plru": """cache 1 size=4096 ways=8 line=32 policy=plru from=data
cache 2 size=16384 ways=16 line=64 policy=plru from=1,fetch
cache 3 size=65536 ways=1 line=64 policy=plru from=2
tlb d entries=16 ways=4 pages=4096 policy=plru from=data flush=none
tlb e entries=8 ways=8 pages=2097152 policy=plru from=data
tlb s entries=64 ways=64 pages=4096,2097152 policy=plru from=d,e flush=all""",
    "random": """cache 1 size=6144 ways=3 line=64 policy=random seed=9 from=read
cache 2 size=24576 ways=6 line=64 policy=random seed=10 from=1,write,fetch
tlb d entries=12 ways=12 pages=4096,2097152 policy=random seed=11 from=read,write
tlb e entries=48 ways=3 pages=4096,2097152 policy=random seed=12 from=d""",
    "prefetching": """cache 1 size=4096 ways=4 line=64 policy=lru from=data streams=2 ahead=1
cache 2 size=32768 ways=8 line=128 policy=plru from=1,fetch streams=8 ahead=2
cache 3 size=32768 ways=8 line=128 policy=random seed=3 from=1,fetch streams=3 ahead=4""",
    "coloured": """cache 0 size=65536 ways=4 line=128 policy=lru from=data
cache 1 size=65536 ways=4 line=128 policy=lru from=data colour=1
cache 2 size=65536 ways=4 line=128 policy=plru from=data colour=99 streams=4 ahead=2""",
    "apart": """cache 1 size=4096 ways=4 line=64 policy=lru from=data write=through modes=apart
cache 2 size=16384 ways=4 line=64 policy=plru from=1,fetch modes=apart streams=2 ahead=2
cache 3 size=24576 ways=6 line=64 policy=random seed=5 from=2 modes=apart
tlb d entries=16 ways=4 pages=4096,2097152 policy=plru from=data modes=apart
tlb s entries=64 ways=4 pages=4096,2097152 policy=lru from=d modes=apart flush=all""",
    "coherent": """cache 1 size=4096 ways=4 line=64 policy=lru from=data modes=coherent
cache i size=2048 ways=2 line=64 policy=plru from=fetch modes=coherent colour=3
cache 2 size=16384 ways=4 line=64 policy=plru from=1,i modes=coherent
cache 3 size=24576 ways=6 line=64 policy=random seed=5 from=1 modes=coherent
cache 4 size=65536 ways=4 line=64 policy=lru from=2
tlb d entries=16 ways=4 pages=4096,2097152 policy=plru from=data modes=apart""",
    "footprints": """footprint run unit=64 from=data,fetch
footprint visit unit=64 from=read,fetch empty=crossing
footprint pages unit=4096 from=data empty=crossing
footprint mine unit=4096 from=data,fetch label=7 empty=never
footprint another unit=4096 from=data,fetch label=8
cache 1 size=4096 ways=4 line=64 policy=lru from=data""",
    "whole": """cache 1 size=1024 ways=16 line=64 policy=lru from=data
cache 2 size=4096 ways=1 line=4096 policy=lru from=data
tlb d entries=1 ways=1 pages=4096,2097152 policy=lru from=read,write,fetch""",
}


def trace(random_numbers: random.Random, length: int) -> Iterator[tuple]:
    """Walks, repeats and jumps of user and kernel, with a flush now and then."""
    at, step = 0, 64
    for _ in range(length):
        choice = random_numbers.random()
        if choice < 0.004:
            yield (random_numbers.choice(["cr3", "flush"]),)
            continue
        if choice < 0.1:
            at = random_numbers.randrange(1 << 19)
            step = random_numbers.choice([0, 4, 64, -64, 128, 192, 4096])
        at = (at + step) % (1 << 19)
        kernel = random_numbers.random() < 0.3
        kind = random_numbers.choice(["read", "read", "write", "fetch"])
        virtual = at * (8 if kernel else 1) + (KERNEL if kernel else 0)
        physical = (at * 7919 // 4096 * 4096 + at % 4096) % MEMORY  # a page's frame is its own
        yield ("kernel" if kernel else "user", kind, virtual, physical)


def replay(config: Path, lines: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(REPLAY), str(config)], input=lines, capture_output=True, text=True, check=False
    )


LETTERS = {("user", "read"): "r", ("user", "write"): "w", ("user", "fetch"): "f"}
LETTERS |= {("kernel", kind): letter.upper() for (_, kind), letter in LETTERS.items()}


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("seed", range(3))
def test_both_implementations_count_the_same(name: str, seed: int, tmp_path: Path):
    config = tmp_path / "config"
    ranges = f"pages {KERNEL:x} ffffffffffffffff 2097152"
    config.write_text(f"memory {MEMORY}\n{ranges}\n{CONFIGURATIONS[name]}\n")
    model, lines = Model(CONFIGURATIONS[name].replace("label=8", "from=none")), ["begin 23"]
    before, crossed = "", {"crossings.to_user": 0, "crossings.to_kernel": 0}
    for mode, *rest in trace(random.Random(seed), 20_000):
        if rest:
            kind, virtual, physical = rest
            crossed[f"crossings.to_{mode}"] += bool(before) and before != mode
            before = mode
            model.access(mode, kind, virtual, physical)
            lines.append(f"{LETTERS[mode, kind]} {virtual:x} {physical:x}")
        else:
            for one in model.structures:
                one.flush(mode == "flush")
            lines.append(mode)
    run = replay(config, "\n".join([*lines, "end", ""]))
    assert run.returncode == 0, run.stderr
    output = tmp_path / "rows"
    output.write_text(run.stdout)
    recording = rows.read(output)
    row = recording.rows[0]
    assert recording.complete
    assert row.label == 23  # which ends in 7
    assert {column: row[column] for column in crossed} == crossed
    told = {
        column: count
        for column, count in zip(recording.columns, row.counts, strict=True)
        if column.count(".") == 2
    }
    expected = {
        f"{mode}.{one.name}.{what}": one.counts.get((mode, what), 0)
        for mode in ("user", "kernel")
        for one in model.structures
        for what in [f"{kind}_{n}" for kind in rows.KINDS for n in ("references", "misses")]
        + ["prefetches"]
    }
    assert told == expected
    assert any(count for column, count in told.items() if column.endswith("misses"))


def test_cold_structures_give_equal_rows(tmp_path: Path):
    config = tmp_path / "config"
    config.write_text(f"memory {MEMORY}\n{CONFIGURATIONS['random']}\n")
    walk = [f"r {at:x} {at:x}" for at in range(0, 1 << 16, 96)] * 2
    run = replay(config, "\n".join((["cold", "begin 1", *walk, "end"] * 2) + ["cr3", ""]))
    first, second = run.stdout.splitlines()[1:3]
    assert first == second.replace('"number": 1', '"number": 0')


REFUSED = {
    "cache c size=3000 ways=4 line=64 policy=lru from=data": "not ways=4 times line times a power",
    "cache c size=0 ways=4 line=64 policy=lru from=data": "size=0 is not",
    "cache c size=4096 ways=0 line=64 policy=lru from=data": "ways=0, must be 1 to 4096",
    "cache c size=4096 ways=4 line=48 policy=lru from=data": "line=48 bytes, must be a power",
    "cache c size=4096 ways=4 line=8192 policy=lru from=data": "line=8192 bytes",
    "cache c size=2147483648 ways=4 line=64 policy=lru from=data": "more than the machine's memory",
    "cache c size=6144 ways=3 line=64 policy=plru from=data": "plru needs a power of two",
    "cache c size=65536 ways=128 line=64 policy=plru from=data": "at most 64",
    "cache c size=4096 ways=4 line=64 policy=fifo from=data": "policy=fifo: no such choice",
    "cache c size=4096 ways=4 line=64 policy=lru from=l0": "from=l0: neither read",
    "cache c size=4096 ways=4 line=64 policy=lru": "neither read, write",
    "cache c size=4096 ways=4 line=64 policy=lru from=data flush=all": "unknown word|not a whole",
    "cache c size=-1 ways=4 line=64 policy=lru from=data": "not a whole number",
    "cache c size=99999999999999999999 ways=4 line=64 policy=lru from=data": "not a whole number",
    "cache c size=4096 ways=4 line=64 streams=65 ahead=1 policy=lru from=data": "at most 64 str",
    "cache c size=4096 ways=4 line=64 streams=1 policy=lru from=data": "at least 1 line ahead",
    "cache c size=4096 ways": "not of the form KEY=VALUE",
    "tlb t entries=48 ways=5 pages=4096 policy=lru from=data": "not ways=5 times a power of two",
    "tlb t entries=64 ways=64 policy=lru from=data": "names no page size",
    "tlb t entries=64 ways=64 pages=8192 policy=lru from=data": "pages=8192: no such choice",
    "cache c size=4096 ways=4 line=64 policy=lru from=data modes=user": "modes=user: no such",
    "cache c size=4096 ways=4 line=32 policy=lru from=data modes=coherent": "lines of 64 bytes",
    "cache c size=4096 ways=4 line=64 streams=1 ahead=1 policy=lru from=data modes=coherent": (
        "without streams"
    ),
    "tlb t entries=64 ways=64 pages=4096 policy=lru from=data modes=coherent": "only of caches",
    "cache c size=4096 ways=4 line=64 policy=lru from=data empty=crossing": "not a whole|unknown",
    "footprint f unit=48 from=data": "unit=48 bytes, must be a power of two from 16 to 4096",
    "footprint f unit=8192 from=data": "unit=8192 bytes",
    "footprint f from=data": "unit=0 bytes",
    "footprint f unit=64 from=data label=16": "label=16: too large",
    "footprint f unit=64 from=data ways=4": "ways=4: unknown word",
    "footprint f unit=64 from=data policy=lru": "policy=lru: unknown word",
    "pages 2000 1000 4096": "not of the form FIRST LAST SIZE",
    "cores 4": "neither memory, pages, cache, tlb nor footprint",
    "": "no structures",
}


@pytest.mark.parametrize("line", REFUSED)
def test_what_cannot_be_is_refused_with_its_reason(line: str, tmp_path: Path):
    config = tmp_path / "config"
    config.write_text(f"memory {MEMORY}\n# a comment\n{line}\n")
    run = replay(config, "")
    assert run.returncode == 2
    assert any(part in run.stderr for part in REFUSED[line].split("|")), run.stderr
    assert "line 3: " in run.stderr


def test_two_of_one_name_and_more_than_fit_are_refused(tmp_path: Path):
    config = tmp_path / "config"
    line = "cache c{} size=4096 ways=4 line=64 policy=lru from=data\n"
    config.write_text(line.format(1) * 2)
    assert "two of this name" in replay(config, "").stderr
    config.write_text("".join(line.format(number) for number in range(57)))
    assert "more than 56 structures" in replay(config, "").stderr
    config.write_text(line.format(1) + "tlb t entries=4 ways=4 pages=4096 policy=lru from=c1\n")
    assert "nor a TLB before it" in replay(config, "").stderr
    config.write_text(
        f"memory {MEMORY}\nfootprint f unit=64 from=data\nfootprint g unit=64 from=f\n"
    )
    assert "nor a structure (of a footprint) before it" in replay(config, "").stderr
    config.write_text("footprint f unit=64 from=data\n")
    assert "`memory BYTES` must come before it" in replay(config, "").stderr


def test_regions_of_a_label_are_added_up(tmp_path: Path):
    """And a footprint of a label sees no other's regions."""
    config, output = tmp_path / "config", tmp_path / "rows"
    config.write_text(f"memory {MEMORY}\nfootprint f unit=64 from=data label=1\n")
    regions = {0: [0], 1: [0, 64, 0], 17: [64, 128], 2: [192], 33: [0, 192]}
    lines = []
    for label, addresses in regions.items():
        lines += [f"begin {label}", *(f"r {at:x} {at:x}" for at in addresses), "end", "r 100 100"]
    output.write_text(replay(config, "\n".join([*lines, ""])).stdout)
    all_rows, added = rows.read(output), rows.add_up(output, lambda label: label & 15)
    assert [row.label for row in all_rows.rows] == list(regions)
    assert [(row.label, row.number) for row in added.rows] == [(0, 1), (1, 3), (2, 1)]
    assert [row["user.reads"] for row in added.rows] == [1, 7, 1]
    assert [row.misses("user", "f") for row in added.rows] == [0, 4, 0]
    assert (added.columns, added.complete) == (all_rows.columns, True)
    assert rows.add_up(output).rows[-1] == rows.Row(
        33, 1, all_rows.rows[-1].counts, all_rows.rows[-1].places
    )
