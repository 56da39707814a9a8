# SPDX-License-Identifier: GPL-2.0-only
"""`trapless stat --calls` and `strace -fc` of one command in one guest: equal counts, call by call,
on five programs; one of them has threads and children whose calls are known.

strace runs first, by --prepare, after one run alone; so the files are in memory for both. strace
leaves out calls that do not return.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.stat import guest, run_counts
from trapless.stat.by_call import UNSEEN, ByCall
from trapless.stat.guest import Job
from trapless.stat.run_counts import RunCounts
from trapless.stock import program_archive, real_programs
from trapless.vm import lab

# The lab's own limits of time apply.
pytestmark = [
    pytest.mark.lab,
    pytest.mark.outer_kernels,
    pytest.mark.tool,
    pytest.mark.timeout(0),
]

KNOWN = "/stat-calls"
BUILT = repo_root() / "build" / "tests" / "lab" / "stat_calls"
ARCHIVE = "/programs.tar"
MEMORY = "1G"
COMPILER = "usr/lib/gcc/x86_64-linux-gnu/12"
ENDED = UNSEEN | {"pause"}
"""Calls that strace does not see return; in `pause` threads wait until their process ends."""
INTERRUPT = 30_000
"""Instructions that an interrupt takes, at most; five on the newest kernel took 17,400 each."""
THREADS, CHILDREN, CALLS = 3, 2, 100
TOLD = 50
"""A call costs the kernel at least so many instructions, told apart or not."""
APART = 0.02
"""By how much the instructions of all calls may differ from those of a run that tells none apart:
its timer interrupts come elsewhere."""
FILES = (
    "mkdir -p /tmp/tree; for i in $(seq 60); do mkdir /tmp/tree/$i; echo $i > /tmp/tree/$i/f; done"
)
REPOSITORY = f"""\
({FILES}; cd /tmp/tree; export GIT_CONFIG_COUNT=2 GIT_CONFIG_KEY_0=user.name GIT_CONFIG_VALUE_0=x \
GIT_CONFIG_KEY_1=user.email GIT_CONFIG_VALUE_1=x@x; git init -q; git add .; git commit -q -m x)"""
SQL = "create table t(a, b); insert into t values (1, 2), (3, 4); select * from t;"
SOURCE = "int f(int x) { return x + 1; }"

COMMANDS = {
    "find": (FILES, ("find", "/tmp/tree", "-name", "f")),
    "newer": (FILES, ("find", "/tmp/tree", "-newer", "/etc/passwd")),
    "du": (FILES, ("du", "-s", "/tmp/tree")),
    "ls": (FILES, ("ls", "-lR", "/tmp/tree")),
    "sqlite3": ("true", ("sqlite3", ":memory:", SQL)),
    "git": (REPOSITORY, ("git", "-C", "/tmp/tree", "status")),
    "gcc": (f"echo '{SOURCE}' > /tmp/x.i", ("gcc-12", "-c", "-o", "/tmp/x.o", "/tmp/x.i")),
    "known": ("true", (KNOWN, "threads", str(THREADS), str(CHILDREN), str(CALLS))),
}
"""How the files of each are made, and its command."""

SCANS = {"find": (120, 60), "newer": (120, 120), "du": (120, 120), "ls": (120, 120)}
"""The names of FILES, and of how many of them each command asks for the attributes. find asks only
about folders where their number of links does not say how many there are."""
SAVED_MIN, SAVED_MAX = 800, 12_000
"""Instructions that TL_NR_SCANDIR takes away from an entry in memory; more where the kernel clears
the memory of each path, since the emulator counts every byte."""

ROW = re.compile(r"^ *[\d.]+ +[\d.]+ +\d+ +(\d+) +(\d*) +(\w+)$", re.M)
"""A row of strace -c: calls, errors, name."""


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs, out of the stock root, and what they need."""
    root = real_programs.unpacked(Silent()).root
    names = ("strace", "find", "du", "sqlite3", "git", "gcc-12", "as")
    wanted = ["bin/ls", *(f"usr/bin/{name}" for name in names)]
    path = tmp_path_factory.mktemp("calls") / "programs.tar"
    return program_archive.pack(root, path, [*wanted, f"{COMPILER}/cc1"])


def count(kernel: str, packed: Path, name: str) -> tuple[RunCounts, dict[str, tuple[int, int]]]:
    """What stat counted, and strace's calls and errors by name."""
    make, argv = COMMANDS[name]
    words = " ".join(f"'{word}'" for word in argv)
    # The same folder and variables: git looks for where it is by both.
    prepare = f"""\
set -e; cd /; tar -x -f {ARCHIVE}; rm {ARCHIVE}; {make}; cd /root
{words} > /dev/null
env -u PWD -u OLDPWD -u SHLVL strace -f -c -o /tmp/traced {words}
echo; echo BEGIN; cat /tmp/traced; echo END
"""
    printed = bytearray()
    config = lab.LabConfig(
        kernel=kernel,
        memory=MEMORY,
        files=((packed, ARCHIVE), (BUILT, KNOWN)),
        env=(),
        quick_start=True,
    )
    job = Job(argv, prepare=prepare, warm=1, calls=True)
    run = guest.run(config, job, (), Silent(), sink=printed.extend)
    table = printed.decode(errors="replace").partition("BEGIN\n")[2].partition("END\n")[0]
    found = {row[3]: (int(row[1]), int(row[2] or 0)) for row in ROW.finditer(table)}
    found.pop("total", None)
    assert found, table
    return run, found


@pytest.mark.parametrize("name", COMMANDS)
def test_counts_are_those_of_strace(kernel: str, packed: Path, name: str) -> None:
    run, traced = count(kernel, packed, name)
    assert run.status == 0
    calls = {one.name: one for one in ByCall(run).calls}
    found = {name: (one.number, one.failed) for name, one in calls.items() if name not in ENDED}
    # How often it is asked depends on the moment at which the guest's kernel has randomness.
    if any(counts.get("getrandom", (0, 0))[1] for counts in (found, traced)):
        del found["getrandom"], traced["getrandom"]
    assert found == traced
    crossings = run.row.crossings()
    assert sum(one.number for one in calls.values()) == crossings["syscall"]
    assert all(one.kernel > TOLD * one.number for one in calls.values())
    assert run.events["shared"] == 0  # all files are the guest's own
    assert RunCounts.of_json(run.as_json()) == run
    if name in SCANS:
        scan = ByCall(run).scan
        assert (scan.names, scan.stats) == SCANS[name]
        # Where the module has no compound call, nothing can be said of it.
        if scan.saved is not None and scan.stats == scan.names:
            assert SAVED_MIN * scan.stats < scan.saved < SAVED_MAX * scan.stats
    if name == "known":
        known = (1 + THREADS) * (1 + CHILDREN) * CALLS
        assert calls["getppid"].number == known


def test_telling_calls_apart_is_taken_off(kernel: str) -> None:
    """A run of getppid beside the same run that tells no calls apart: equal instructions, but for
    interrupts inside of calls: one run may have some that the other has not.
    """
    config = lab.LabConfig(kernel=kernel, files=((BUILT, KNOWN),), quick_start=True)
    argv = (KNOWN, "children", "0", "5000")
    apart = ByCall(guest.run(config, Job(argv, warm=1, calls=True), (), Silent()))
    whole = guest.run(config, Job(argv, warm=1), (), Silent()).row["kernel.instructions"]
    getppid = next(one for one in apart.calls if one.name == "getppid")
    loops = apart.run.loops
    each = (
        loops["calls"]["trap"].features["kernel"] - loops["nothing"]["trap"].features["kernel"]
    ) / 64
    # An interrupt inside a call counts as the call's, with what the kernel does at its end.
    inside = next(one.in_kernel for one in apart.run.calls_made if one.nr == run_counts.GETPPID)
    more = getppid.kernel - each * getppid.number
    counted = apart.run.row["kernel.instructions"]
    print(f"{more:,.0f} instructions more, in {inside} interrupts")
    print(f"whole {whole:,}; told apart {counted:,}, without what that costs {apart.kernel:,.0f}")
    interrupts = inside * INTERRUPT
    assert -APART * getppid.kernel < more < interrupts + APART * getppid.kernel
    assert abs(apart.kernel - whole) < interrupts + APART * whole
    assert counted - whole > 2 * (interrupts + APART * whole), "too little is told apart to show it"
