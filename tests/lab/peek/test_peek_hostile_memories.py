# SPDX-License-Identifier: GPL-2.0-only
"""Memories that attack their observer: each gives a clear error, or an answer that is bounded.

Each of some hundred memories made up from seeds is opened and looked at by all ways there are, once
in the sandbox, as the commands do it, and once in this process, where an unforeseen error shows.
The sandbox itself is attacked from inside. No VM runs here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from mypy import api as mypy

from tests.lab.command import ROOT
from tests.lab.peek.limited_observer import LIMIT_S, faults, limited, opened
from tests.lab.peek.mutations import FREE_AT, made_up
from tests.unit.peek.toy_kernel import RELEASE
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox.client import SandboxedTarget, open_target

MEMORIES = 220
SHARES = 4
SLOW_S = 30
"""For what takes under a second on an idle machine."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))


# ---- The corpus ----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", range(SHARES))
def test_made_up_memories_give_errors_or_bounded_answers(share, tmp_path):
    outcomes: Counter[str] = Counter()
    for seed in range(share, MEMORIES, SHARES):
        family, kernel = made_up(seed)
        path = kernel.save(tmp_path)
        with limited():
            shown = opened(Target.open, path)
        began = time.process_time()
        sandboxed = opened(open_target, path)
        assert time.process_time() - began < LIMIT_S, f"seed {seed}: {family}"
        wrong = faults(f"{shown}\n{sandboxed}")
        assert not wrong, f"seed {seed}, {family}: {wrong[0]!r}"
        assert "cannot be read: " not in sandboxed, f"seed {seed}, {family}: {sandboxed}"
        assert sandboxed == shown, f"seed {seed}: {family}"
        outcomes["error" if shown.startswith("error: ") else "answer"] += 1
    assert outcomes["error"] and outcomes["answer"] > 5, outcomes


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("PAGESIZE=4096", "it is damaged"),  # all name the same table
        ("SYMBOL(kallsyms_names)=", "name more than 32 tables of symbols: a program of the guest"),
    ],
)
def test_many_notes_get_one_answer_with_the_sandbox_and_without(change, answer, tmp_path):
    """Each needs symbols, for which the sandbox asks its parent, who allows a few questions."""
    kernel = made_up(0)[1]
    place = kernel.physical(kernel.symbols["kallsyms_token_index"])
    kernel.put(place, b"\xff" * 512)
    for number in range(100):
        text = kernel.note().replace(change, f"{change}{number:x}")
        assert text != kernel.note()
        kernel.put_note(text, FREE_AT + 4096 * number)
    path = kernel.save(tmp_path)
    shown = opened(Target.open, path)
    assert shown.startswith("error: ") and answer in shown
    assert opened(open_target, path) == shown


def test_memory_without_a_change_is_shown_whole(tmp_path):
    shown = opened(open_target, made_up(0)[1].save(tmp_path))
    for part in (
        RELEASE,
        "schedule+0x40",
        "toy_close [toy_driver]",
        "server",
        "outer [program]",
        "comm=cat",
    ):
        assert part in shown


# ---- The sandbox ---------------------------------------------------------------------------------


def jailed(code: str) -> subprocess.CompletedProcess[str]:
    """Code in a process that has entered the sandbox."""
    head = "import mmap, os, signal, socket, sys, time\nfrom trapless.base import jail\n"
    return subprocess.run(
        [
            sys.executable,
            "-c",
            f"{head}jail.enter({limits.RESOLVER_MEMORY_BYTES})\n{textwrap.dedent(code)}",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=SLOW_S,
        check=False,
    )


@pytest.mark.parametrize(
    "code",
    [
        "socket.socket()",
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.kill(os.getppid(), 0)",
        "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_EXEC)",
        "os.write(2, b'x')",
        "os.unlink('/tmp/absent')",
        "os.pipe()",
        "os.sched_setaffinity(0, {0})",
        "os.memfd_create('x')",
    ],
)
def test_what_is_no_reading_ends_the_sandbox(code):
    done = jailed(f"{code}\nos.write(1, b'done')")
    assert done.returncode == -signal.SIGSYS and not done.stdout, done.stdout


def test_sandbox_opens_no_file_and_has_little_memory():
    done = jailed(
        """
        for path in ('/etc/passwd', '/proc/self/mem', 'new'):
            try:
                open(path, 'w' if path == 'new' else 'r')
            except PermissionError:
                os.write(1, b'refused ')
        try:
            bytes(600 << 20)
        except MemoryError:
            os.write(1, b'full')
        os._exit(0)
        """
    )
    assert done.stdout == "refused refused refused full" and done.returncode == 0


@pytest.fixture
def target(tmp_path: Path) -> Iterator[SandboxedTarget]:
    with open_target(made_up(0)[1].save(tmp_path)) as opened_:
        assert isinstance(opened_, SandboxedTarget)
        yield opened_


def test_signals_of_the_terminal_do_not_reach_the_sandbox(target):
    assert os.getpgid(target._resolver._process.pid) != os.getpgid(0)
    assert str(target.name_of(target.symbol("schedule"))) == "schedule"


def test_sandbox_that_takes_long_is_ended(target, monkeypatch):
    process = target._resolver._process
    monkeypatch.setattr(limits, "ANSWER_S", 1)
    monkeypatch.setattr(limits, "BUSY_FACTOR", 1)
    process.send_signal(signal.SIGSTOP)  # as a walk without an end
    with pytest.raises(PeekError, match="took more than 1 s"):
        target.name_of(1)
    assert process.returncode == -signal.SIGKILL
    with pytest.raises(PeekError, match="took more than 1 s"):
        target.threads()


@pytest.mark.parametrize(
    "answer",
    ["-1", "1e400", '"x"', "[]", "{}", "null", "true", "1" * 5000, "[" * 100_000, "\xff", ""],
)
def test_answer_of_another_form_ends_the_sandbox(target, answer, monkeypatch):
    data = b'{"answer": ' + answer.encode("latin-1") + b"}"
    read, write = os.pipe()
    os.write(write, b"J" + len(data).to_bytes(4, "little") + data[:60_000])
    os.write(write, data[60_000:]) if len(data) < 65_000 else os.close(write)
    with os.fdopen(read, "rb") as stream:
        monkeypatch.setattr(target._resolver, "_output", stream)
        with pytest.raises(PeekError, match=r"the guest attacks its observer|ended|too long|took"):
            target.symbols.address("anything")


# ---- Types ---------------------------------------------------------------------------------------

BYPASSES = """
import sys
from rich.text import Text
from trapless.peek.guest_text import GuestText
def bypass(name: GuestText, data: bytes) -> str:
    sys.stdout.write(name)
    Text(name)
    "".join([name])
    open(name)
    name.decode()
    name + "x"
    return name
"""


def test_mypy_finds_every_way_around():
    options = ["--strict", "--explicit-package-bases", "--config-file", os.devnull]
    text, problems, status = mypy.run([*options, "-c", BYPASSES])
    lines = {int(line.split(":")[1]) for line in text.splitlines() if "error:" in line}
    assert status == 1 and lines >= set(range(6, 13)), text + problems
