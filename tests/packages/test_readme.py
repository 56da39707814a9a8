# SPDX-License-Identifier: GPL-2.0-only
"""README.md as newcomers use it: its shell blocks, pasted one after the other into one terminal.

The terminal is bash on a pseudo-terminal, in a copy of the checkout that holds what git does: no
programs, no Python environment. Each block must end without a command that failed, and print what
the text around it promises.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 1800
"""Of a block: for one that hangs. On an idle machine the longest takes a minute."""

NOT_PASTED = {
    "make evaluate": "it takes ten minutes, and tests/evaluate runs it",
    "make test": "it takes long, and this test is a part of it",
}
PROMISED = {
    "Quick start": [
        ".venv is ready",
        "3 calls, one crossing",
        "system calls ended in supervisor mode",
        "mode-switch",
    ],
    "A first program": ["3 calls, one crossing", "3 calls, one by one"],
    "What crossings cost a program": [
        "crossings, counted",
        "would be taken away",
        "counted saving",
        "busybox httpd -f -p 8080",
        "its load ended with status 0",
    ],
    "A look into a kernel": ["Where each CPU was", "find"],
}
"""What is read in the terminal after the blocks of a section."""

SHARED = Path("/dev/shm/ram")
"""The VM's memory in README's example."""

SETTINGS = """
PS1='$ '
bind 'set enable-bracketed-paste on'
trap 'echo "[failed: $BASH_COMMAND]"' ERR
"""
PASTE = "\x1b[200~{}\x1b[201~\r"
"""What a terminal sends for text that is pasted, and Enter: bash takes the lines as one input."""


def blocks() -> list[tuple[str, str]]:
    """Each shell block of README.md with the heading that it stands under."""
    found = []
    for section in re.split(r"^## ", (ROOT / "README.md").read_text(), flags=re.M)[1:]:
        heading = section.partition("\n")[0]
        found += [(heading, code) for code in re.findall(r"```sh\n(.*?)```", section, re.S)]
    return found


def is_pasted(block: str) -> bool:
    commands = [line.partition("#")[0].strip() for line in block.splitlines()]
    return not set(commands) & set(NOT_PASTED)


class Terminal:
    """A shell on a pseudo-terminal."""

    def __init__(self, folder: Path, settings: Path) -> None:
        self._terminal, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 50, 120, 0, 0))
        hidden = ("PYTHON", "VIRTUAL_ENV", "MAKE", "MFLAGS")
        env = {name: text for name, text in os.environ.items() if not name.startswith(hidden)}
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--rcfile", settings, "-i"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=folder,
            env=env | {"TERM": "xterm"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        self._ends = 0
        self.paste("true")  # its settings have been read

    def paste(self, block: str) -> str:
        """Paste a block; all that the terminal shows until its last command has ended."""
        self._ends += 1
        end = f"[block {self._ends} ended]"
        text = f"{block.rstrip()}\nprintf '[block %s ended]\\n' {self._ends}"
        os.write(self._terminal, PASTE.format(text).encode())
        shown, limit = b"", time.monotonic() + LIMIT_S
        while end.encode() not in shown:
            ready, _, _ = select.select([self._terminal], [], [], limit - time.monotonic())
            assert ready, f"hangs:\n{block}\n{shown.decode(errors='replace')}"
            shown += os.read(self._terminal, 1 << 16)
        return shown.decode(errors="replace").replace("\r", "")

    def close(self) -> None:
        """Close it as a window is closed: whatever runs in it is told."""
        if self._shell.poll() is None:
            os.killpg(self._shell.pid, signal.SIGHUP)
        os.close(self._terminal)
        self._shell.wait(timeout=60)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory) -> Iterator[Terminal]:
    folder = tmp_path_factory.mktemp("newcomer")
    names = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    there = b"\0".join(name for name in names.split(b"\0") if (ROOT / os.fsdecode(name)).is_file())
    copying = f"tar -C '{ROOT}' --null -T - -c | tar -x -C '{folder}'"
    subprocess.run(copying, shell=True, input=there, check=True)
    (folder / ".venv").unlink(missing_ok=True)
    settings = folder.with_name("settings")
    settings.write_text(SETTINGS)
    opened = Terminal(folder, settings)
    yield opened
    opened.close()
    shutil.rmtree(folder)


def test_what_is_not_pasted_is_there():
    """An exception for a command that README no longer has would hide another block one day."""
    lines = {line.partition("#")[0].strip() for _, block in blocks() for line in block.splitlines()}
    assert set(NOT_PASTED) <= lines


def test_each_section_with_a_block_promises_something():
    assert {heading for heading, block in blocks() if is_pasted(block)} == set(PROMISED)


def test_the_terminal_shows_what_failed(terminal):
    assert "[failed: " not in terminal.paste("true\nfalse | true\nif false; then true; fi\nwait")
    assert "[failed: test 1 = 2]" in terminal.paste("true\ntest 1 = 2\ntrue")
    assert "[failed: no-such-command -v]" in terminal.paste("no-such-command -v")
    assert "and it reads" in terminal.paste("echo it reads &\nwait; echo and it reads")


@pytest.mark.long
@pytest.mark.timeout(4 * LIMIT_S)
def test_every_block_does_what_it_says(terminal):
    assert not SHARED.exists(), f"remove {SHARED}: README's example makes it"
    for heading, block in blocks():
        if is_pasted(block):
            shown = terminal.paste(block)
            assert "[failed: " not in shown, f"{heading}:\n{shown}"
            assert "Traceback" not in shown, f"{heading}:\n{shown}"
            for words in PROMISED[heading]:
                assert words in shown, f"{heading} lacks {words!r}:\n{shown}"
    assert not SHARED.exists()
