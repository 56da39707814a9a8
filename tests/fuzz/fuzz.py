# SPDX-License-Identifier: GPL-2.0-only
"""Fuzzes the module in VMs, guided by what its own counters reach: `make fuzz MINUTES=n`.

Owns the rounds (one VM each), the corpus on this machine, and what a finding is: a complaint of the
guest's kernel, a process that cannot be killed, a module that stays in use, or a guest that dies or
hangs. A finding is repeated, made smaller and saved; the path of its program is the last line.
The guest's part, with the meaning of a program's bytes, is tests/fuzz/fuzz.c.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.make import make
from trapless.base.console import ConsoleProgress, Progress, TraplessError
from trapless.base.files import replace_file
from trapless.stock import kbuild, kernels
from trapless.stock.debug_kernel import SPECS
from trapless.vm import lab
from trapless.vm.splats import splats

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BINARY = ROOT / "build/tests/fuzz/fuzz"
COUNTERS = ROOT / "tests/coverage"
COUNTERS_MODULE = "trapless_counters.ko"
CORPUS = HERE / "corpus.txt"
"""Programs that are run first, one a line in hexadecimal digits."""

WORK = ROOT / "build/fuzz"
GROWN = "corpus.txt"
"""The corpus as it grows on this machine, in WORK."""

ROUND_S = 240
"""One VM fuzzes so long: what dies with a VM is little."""

SPARE_S = 900
"""For what a VM still does once its time is up: replaying, looking for leaks, on a slow machine."""

LIFE_MS = 50
DEBUG_FACTOR = 3
"""A program that does nothing for so long is killed, and later on a KASAN and lockdep kernel."""

RECENT = 8
"""Programs that are kept for a finding: what the last one did may need what came before."""

REPEATS = 20
TRIALS_MAX = 40
"""How often a program is run to see a finding again, and how many VMs make it smaller."""


@dataclass
class Round:
    """What one VM did."""

    recent: list[bytes] = field(default_factory=list)
    new: list[bytes] = field(default_factory=list)
    stat: dict[str, int] = field(default_factory=dict)
    wrong: str = ""  # the finding; nothing if all held
    held: list[str] = field(default_factory=list)  # who is left, where something does not end


class _Reader:
    """Takes the guest's lines as they come."""

    def __init__(self, result: Round, label: str, progress: Progress) -> None:
        self._result, self._label, self._progress = result, label, progress
        self._tail = b""

    def __call__(self, piece: bytes) -> None:
        *lines, self._tail = (self._tail + piece).split(b"\n")
        for line in lines:
            self._take(line.decode(errors="replace"))

    def _take(self, line: str) -> None:
        kind, _, rest = line.partition(" ")
        if kind == "run":
            self._result.recent = [*self._result.recent, bytes.fromhex(rest)][-RECENT:]
        elif kind == "new":
            self._result.new.append(bytes.fromhex(rest))
        elif kind == "stat":
            self._result.stat = {
                name: int(value) for name, value in re.findall(r"(\w+)=(\d+)", rest)
            }
            self._progress.note(f"{self._label}: {rest}")
        elif kind == "held":
            self._result.held.append(rest)
        elif kind == "finding":
            self._result.wrong = "\n".join([rest, *self._result.held])


@dataclass(frozen=True)
class Plan:
    """One VM's work."""

    kernel: str
    seed: int
    seconds: int
    reload: bool = False  # load the module again and again, with probes; CPUs take turns then
    repeats: int = 1  # more: run the corpus so often and nothing else
    tree: Path | None = None  # other sources of the module


def run_round(plan: Plan, corpus: Sequence[bytes], progress: Progress) -> Round:
    """Run one VM to its end."""
    result = Round()
    resolved = kernels.resolve(plan.kernel, progress)
    with tempfile.NamedTemporaryFile(suffix=".txt", mode="w") as inputs:
        inputs.write("".join(f"{one.hex()}\n" for one in corpus))
        inputs.flush()
        slow = plan.kernel in SPECS
        config = lab.LabConfig(
            kernel=plan.kernel,
            cpus=2,
            thread_single=plan.reload,
            timeout_s=plan.seconds + SPARE_S,
            module=False,
            files=(
                (kbuild.module_for(resolved, progress, plan.tree, counted=True), "/trapless.ko"),
                (
                    kbuild.module_for(resolved, progress, COUNTERS, COUNTERS_MODULE),
                    f"/{COUNTERS_MODULE}",
                ),
                (Path(inputs.name), "/corpus"),
            ),
        )
        argv = [str(BINARY), "-s", str(plan.seed), "-t", str(plan.seconds)]
        argv += ["-n", str(plan.repeats), "-d", str(LIFE_MS * (DEBUG_FACTOR if slow else 1))]
        argv += [*(["-r"] if plan.reload else []), "/corpus"]
        label = f"{plan.kernel}, seed {plan.seed}{', reloading' if plan.reload else ''}"
        reader = _Reader(result, label, progress)
        try:
            ended = lab.run(config, argv, sink=reader, progress=progress)
        except TraplessError as error:
            result.wrong = result.wrong or f"the guest died or hung: {error}"
            return result
    complaints = splats(ended.kernel_log)
    if complaints:
        result.wrong = "\n".join([result.wrong, *complaints]).strip()
    elif ended.status and not result.wrong:
        said = ended.stderr.decode(errors="replace")
        raise TraplessError(f"the fuzzer ended with status {ended.status}: {said}")
    return result


def smaller(program: bytes) -> Iterator[bytes]:
    """Programs with a piece of this one left out, large pieces first; the first byte stays.

    >>> list(smaller(bytes([0, 1, 2])))
    [b'\\x00\\x02', b'\\x00\\x01']
    """
    size = (len(program) - 1) // 2
    while size:
        for at in range(1, len(program) - size + 1, size):
            yield program[:at] + program[at + size :]
        size //= 2


def minimise(plan: Plan, programs: list[bytes], progress: Progress) -> tuple[list[bytes], bool]:
    """The shortest programs found that show the finding again, and whether any did."""

    def shows(candidates: list[bytes]) -> bool:
        again = Plan(plan.kernel, plan.seed, ROUND_S, plan.reload, REPEATS)
        return bool(run_round(again, candidates, progress).wrong)

    if shows(programs[-1:]):
        best = programs[-1]
    elif shows(programs):
        return programs, True
    else:
        return programs, False
    trials, shrunk = 0, True
    while shrunk and trials < TRIALS_MAX:
        shrunk = False
        for candidate in smaller(best):
            trials += 1
            if trials >= TRIALS_MAX:
                break
            if shows([candidate]):
                best, shrunk = candidate, True
                break
    return [best], True


def read_corpus(path: Path) -> list[bytes]:
    """The programs of a file, in its order; none where there is no file."""
    if not path.exists():
        return []
    lines = [line.strip() for line in path.read_text().splitlines()]
    return [bytes.fromhex(line) for line in lines if line and not line.startswith("#")]


def found_in(plan: Plan) -> str:
    """What a replay needs to know of the round in which something was found."""
    return f"kernel {plan.kernel}, {'reloading' if plan.reload else 'loaded once'}"


def replayed_in(text: str) -> tuple[str, bool]:
    """The kernel that a saved finding names, and whether the module was reloaded."""
    match = re.search(r"\bkernel (\S+), (reloading|loaded once)\b", text)
    return (match[1], match[2] == "reloading") if match else (lab.DEFAULT_KERNEL, False)


def save(plan: Plan, result: Round, programs: Sequence[bytes], note: str) -> Path:
    """Leave a finding's programs and what they did; `--replay FILE` runs them again."""
    WORK.mkdir(parents=True, exist_ok=True)
    path = WORK / f"finding-{plan.kernel}-{int(time.time())}.txt"
    head = [f"{found_in(plan)}, seed {plan.seed}. {note}", result.wrong]
    comment = "".join(f"# {line}\n" for text in head for line in text.splitlines())
    path.write_text(comment + "".join(f"{one.hex()}\n" for one in programs))
    return path


def report(plan: Plan, result: Round, small: bool, progress: Progress) -> int:
    """Save what was found, then again once it is smaller. Returns the exit status."""
    path = save(plan, result, result.recent, "The last programs before it; the last line did it.")
    print(f"{result.wrong}\nprograms: {path}", file=sys.stderr)
    if small and result.recent:
        programs, again = minimise(plan, result.recent, progress)
        note = "Repeated and made smaller." if again else "It did not come again."
        path = save(plan, result, programs, note)
        print(f"{note} Run it by: make fuzz REPLAY={path}", file=sys.stderr)
    return 1


def fuzz(options: argparse.Namespace, progress: Progress) -> int:
    """Rounds until the time is up; the exit status."""
    options.kernel = options.kernel or lab.DEFAULT_KERNEL
    WORK.mkdir(parents=True, exist_ok=True)
    grown = WORK / GROWN
    corpus = [*read_corpus(CORPUS), *read_corpus(grown)]
    left, seed, reached, programs = options.minutes * 60, options.seed, 0, 0
    while left > 0:
        seconds = int(min(left, ROUND_S))
        plan = Plan(options.kernel, seed, seconds, reload=seed % 3 == 0)
        result = run_round(plan, list(dict.fromkeys(corpus)), progress)
        # What a replay brings again in this order is all that is needed of the old ones.
        corpus = result.new if not result.wrong and not plan.reload else [*corpus, *result.new]
        grown.write_text("".join(f"{one.hex()}\n" for one in dict.fromkeys(corpus)))
        programs += result.stat.get("programs", 0)
        reached = max(reached, result.stat.get("reached", 0))
        if result.wrong:
            return report(plan, result, options.minimise, progress)
        left -= seconds
        seed += 1
    total = result.stat.get("of", 0)
    print(
        f"fuzzed {options.kernel} for {options.minutes:g} minutes from seed {options.seed}: "
        f"{programs} programs, {reached} of {total} counters reached, nothing found"
    )
    return 0


def replay(options: argparse.Namespace, progress: Progress) -> int:
    """Run the programs of a file again and again, where they were found, or on the kernel that
    was asked for; 1 if they show a finding. If they show none any more, they may be kept: each run
    begins with them from then on."""
    kernel, reload = replayed_in(options.replay.read_text())
    if options.keep and options.kernel not in (None, kernel):
        raise TraplessError(f"--keep: it was found on {kernel}, so replay it there")
    plan = Plan(options.kernel or kernel, options.seed, ROUND_S, reload, REPEATS)
    result = run_round(plan, read_corpus(options.replay), progress)
    print(result.wrong or f"{options.replay}: ran {REPEATS} times, nothing found")
    if options.keep and not result.wrong:
        keep(options.replay)
    return 1 if result.wrong else 0


def keep(finding: Path) -> None:
    """Add the programs of a finding to the corpus, below what the finding was."""
    known = read_corpus(CORPUS)
    fresh = [one for one in dict.fromkeys(read_corpus(finding)) if one not in known]
    remarks = [line for line in finding.read_text().splitlines() if line.startswith("#")]
    if fresh:
        lines = [CORPUS.read_text().rstrip("\n"), *remarks, *(one.hex() for one in fresh)]
        replace_file(CORPUS, "\n".join(lines) + "\n")
    print(f"{len(fresh)} programs of it are now in {CORPUS.relative_to(ROOT)}")


def build(progress: Progress) -> None:
    """Bring the guest's program up to date."""
    progress.step("building the fuzzer")
    make(BINARY)


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--kernel",
        help=f"6.1, 6.12, newest, debug, kcsan (default: {lab.DEFAULT_KERNEL}; of a replay: where "
        "it was found)",
    )
    parser.add_argument("--minutes", type=float, default=10, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the first round (default: 1)")
    parser.add_argument("--replay", type=Path, help="run this file's programs and nothing else")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="if a replay finds nothing, add its programs to the corpus",
    )
    parser.add_argument(
        "--no-minimise", dest="minimise", action="store_false", help="save a finding as it came"
    )
    options = parser.parse_args(arguments)
    if options.keep and not options.replay:
        parser.error("--keep is about a replay: add --replay FILE")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    with ConsoleProgress() as progress:
        try:
            build(progress)
            return (replay if options.replay else fuzz)(options, progress)
        except (TraplessError, OSError) as error:
            print(error, file=sys.stderr)
            return 2
        except KeyboardInterrupt:
            print(f"interrupted; the corpus so far is in {WORK / GROWN}", file=sys.stderr)
            return 130


if __name__ == "__main__":
    sys.exit(main())
