# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzes what reads a guest, guided by coverage: the decoders of peek and the sampler in C.

Owns the search for memories that reach new lines of the decoders: a memory is a list of seeds, each
of which changes one structure of the toy kernel (tests/lab/peek/mutations.py), and lists that reach
new lines are changed further. The sampler is fuzzed by libFuzzer meanwhile. A finding is an error
that is none of peek's own, a text that a terminal would obey, or a limit that is met; its seeds are
printed, and `--seeds` repeats it. `make soak` runs this.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from tests.lab.peek import limited_observer, mutations
from tests.unit.peek.toy_kernel import ToyKernel
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.peek.kernel.target import Target

ROOT = Path(__file__).resolve().parents[3]
WATCHED = str(ROOT / "trapless/peek")
WORK = ROOT / "build/fuzz/sampler"
SEEDS_MAX = 6
"""Changes to one memory: with more, nearly all are refused at the first look."""
SPARE_S = 60
SEED_PLAN = (
    "trapless-plan 1\ninterval-ns 1000\nduration-ns 0\nspin-ns 5\ncpu 0\nwatch 1\nthread 7\n"
    "base 0x10 0x100 0x0\ngroup one once\nfield a 8 0x8\nfield b 4 0x10 0x4 0x8\n"
    "group two stable\nfield c 16 0x20\ngroup three seqlock 0x40 0x44\nfield d 2 0x48\n\0"
)


class Reached:
    """The steps from line to line that code under WATCHED has taken. One thread."""

    def __init__(self) -> None:
        self._known: set[tuple[str, int, int]] = set()
        self._now: set[tuple[str, int, int]] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Take down what the work inside reaches."""
        self._now = set()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)

    def news(self) -> int:
        """How many steps were new; they are known from now on."""
        new = self._now - self._known
        self._known |= new
        return len(new)

    def __len__(self) -> int:
        return len(self._known)

    def _enter(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(WATCHED):
            return None
        last = 0

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal last
            if event == "line":
                self._now.add((name, last, frame.f_lineno))
                last = frame.f_lineno
            return line

        return line


def memory_of(seeds: Sequence[int]) -> ToyKernel:
    """The memory that a list of seeds makes; the first chooses the kernel's form."""
    _, kernel = mutations.made_up(0)
    for seed in seeds:
        random = Random(seed)
        mutations.FAMILIES[seed % len(mutations.FAMILIES)](kernel, random)
    return kernel


def finding(seeds: Sequence[int], folder: Path, reached: Reached) -> str:
    """What is wrong with how this memory is looked at; empty where all is well."""
    path = memory_of(seeds).save(folder)
    try:
        with limited_observer.limited(), reached.watching():
            shown = limited_observer.opened(Target.open, path)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return traceback.format_exc()
    wrong = limited_observer.faults(shown)
    return f"a text is not visible, or too long: {wrong[0]!r}" if wrong else ""


def changed(seeds: Sequence[int], random: Random) -> tuple[int, ...]:
    """The list with one seed more, less, or another."""
    rest = list(seeds)
    if rest and random.randrange(3) == 0:
        rest.pop(random.randrange(len(rest)))
    if len(rest) < SEEDS_MAX:
        rest.insert(random.randrange(len(rest) + 1), random.getrandbits(32))
    return tuple(rest)


def fuzz_decoders(minutes: float, seed: int, progress: Progress) -> str:
    """Look at memories for so long; the finding, or nothing."""
    random, reached, began, count = Random(seed), Reached(), time.monotonic(), 0
    corpus: list[tuple[int, ...]] = [()]
    with tempfile.TemporaryDirectory() as folder:
        while (spent := time.monotonic() - began) < 60 * minutes:
            seeds = changed(random.choice([*corpus[-64:], random.choice(corpus)]), random)
            if wrong := finding(seeds, Path(folder), reached):
                return f"{wrong}\nseeds: {','.join(map(str, seeds))}"
            count += 1
            if reached.news():
                corpus.append(seeds)
            progress.advance(spent, 60 * minutes)
    progress.note(f"decoders: {count:,} memories, {len(corpus)} kept, {len(reached):,} steps")
    return ""


def start_sampler(minutes: float, seed: int) -> subprocess.Popen[str]:
    """Build the sampler's fuzzer and start it."""
    WORK.mkdir(parents=True, exist_ok=True)
    clang = shutil.which("clang")
    if clang is None:
        raise TraplessError("clang is not installed, which has libFuzzer: apt-get install clang")
    sources = [Path(__file__).with_name("fuzzed_sampler.c"), *map(ROOT.joinpath, SAMPLER)]
    argv = [clang, "-g", "-O1", "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all"]
    argv += ["-D_GNU_SOURCE", f"-I{ROOT}/sampler", "-o", str(WORK / "fuzz"), *map(str, sources)]
    built = subprocess.run(argv, capture_output=True, text=True, check=False)
    if built.returncode:
        raise TraplessError(
            f"the sampler's fuzzer cannot be built:\n{built.stderr}\nlibFuzzer is in clang's "
            "runtime: apt-get install libclang-rt-14-dev (the number is clang's)"
        )
    corpus = WORK / "corpus"
    corpus.mkdir(exist_ok=True)
    (corpus / "seed").write_bytes(SEED_PLAN.encode() + bytes(range(256)) * 2)
    options = [f"-max_total_time={round(60 * minutes)}", f"-seed={seed}", "-max_len=8192"]
    options += [f"-artifact_prefix={WORK}/", "-rss_limit_mb=500", "-timeout=10"]
    return subprocess.Popen(
        [WORK / "fuzz", *options, corpus],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ASAN_OPTIONS": "abort_on_error=0"},
    )


SAMPLER = ("sampler/plan.c", "sampler/sample.c")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", help="look at this memory only, as a finding prints it")
    options = parser.parse_args()
    os.environ["TRAPLESS_CACHE"] = str(WORK / "cache")
    if options.seeds is not None:
        with tempfile.TemporaryDirectory() as folder:
            seeds = [int(word) for word in options.seeds.split(",")]
            wrong = finding(seeds, Path(folder), Reached())
        print(wrong or "all is well")
        return int(bool(wrong))
    try:
        with ConsoleProgress() as progress:
            return _run(options.minutes, options.seed, progress)
    except TraplessError as error:
        print(error, file=sys.stderr)
        return 1


def _run(minutes: float, seed: int, progress: Progress) -> int:
    progress.step("fuzzing what reads a guest")
    sampler = start_sampler(minutes, seed)
    try:
        wrong = fuzz_decoders(minutes, seed, progress)
        _, said = sampler.communicate(timeout=SPARE_S)
    finally:
        sampler.kill()
        sampler.wait()
    progress.done()
    last = said.rstrip().splitlines()[-1:] or [""]
    print(f"sampler: {last[0]}")
    if sampler.returncode:
        print(said[-4000:])
    if wrong:
        print(wrong)
    return int(bool(wrong or sampler.returncode))


if __name__ == "__main__":
    sys.exit(main())
