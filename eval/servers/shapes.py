# SPDX-License-Identifier: GPL-2.0-only
"""Describes the loads: how many connections, what each of them asks and how, and the words of a
protocol.

This file owns the names of loads, which are part of metrics' names, and the command line of the
load's program (load/load.c). The servers choose the words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

LOAD = "/bin/load"
WORDS = "/words"
"""The guest's folder of the files that are sent and awaited."""

OUTPUT = "/tmp/replies"
STAY, STAYED = "/tmp/stay", "/tmp/stayed"
"""The socket of the process that keeps connections, and the file of what it has to say."""
FEATURES = "/sys/kernel/debug/sched/features"

SMALL, LARGE = 100, 4096
"""Bytes of a reply, without what the protocol adds."""


@dataclass(frozen=True)
class Shape:
    """One load. `idle` connections are open beside those that ask. Kept connections are open before
    the first run and after the last one.

    In lockstep all connections ask at once, and again when all replies are there, while no process
    that is woken takes the processor from another: neither the time of a reply nor the mode decides
    how much a server finds at once. Otherwise (free) each asks again when it has its reply.
    """

    name: str
    connections: int
    requests: int
    close: bool = False  # a connection for each request
    bytes_: int = SMALL
    idle: int = 0
    lockstep: bool = True

    @property
    def words(self) -> str:
        """For people: what the load does."""
        kind = "a connection each request" if self.close else "kept connections"
        more = f", {self.idle} idle ones beside" if self.idle else ""
        order = "in lockstep" if self.lockstep else "free"
        return f"{self.connections} at a time, {kind}, {self.bytes_:,} B, {order}{more}"


def shape(name: str, requests: int) -> Shape:
    """The load of that name: keep8, close64, keep8-4k, keep8-idle, keep8-free.

    >>> shape("close64-4k", 640).connections, shape("close64-4k", 640).bytes_
    (64, 4096)
    """
    kind, _, variant = name.partition("-")
    close = kind.startswith("close")
    connections = int(kind.removeprefix("close" if close else "keep"))
    return Shape(
        name,
        connections,
        max(requests, connections),
        close,
        LARGE if variant == "4k" else SMALL,
        IDLE if variant == "idle" else 0,
        variant != "free",
    )


IDLE = 256
"""Connections that do nothing, beside others."""


@dataclass(frozen=True)
class Talk:
    """The words to a server. `place` are the options that name its socket.

    Of HTTP, `path` is what is asked for and `expect` the body; of other protocols `send` are the
    bytes of a request. `opening`: what each connection sends first, and with which bytes the
    server's answer ends; empty bytes are not sent. `first` is the same of the very first
    connection, which leaves in the server what others ask for.
    """

    place: str
    expect: bytes
    path: str = ""
    send: bytes = b""
    opening: tuple[tuple[bytes, bytes], ...] = ()
    first: tuple[tuple[bytes, bytes], ...] = ()
    files: Mapping[str, bytes] = field(init=False)

    def __post_init__(self) -> None:
        files = {"expect": self.expect, "send": self.send}
        for name, steps in (("opening", self.opening), ("first", self.first)):
            for number, (send, until) in enumerate(steps):
                files |= {f"{name}{number}": send, f"{name}{number}-until": until}
        object.__setattr__(self, "files", {name: data for name, data in files.items() if data})

    def command(self, shape: Shape, *options: str, first: bool = False) -> str:
        """The command of the guest's shell that puts the load on the server; `first`: that asks
        once, after what the server must be told before others ask."""
        words = [LOAD, *self.place.split(), *options]
        if not first:
            words += ["--connections", str(shape.connections), "--requests", str(shape.requests)]
            words += ["--lockstep"] if shape.lockstep else []
            words += ["--idle", str(shape.idle)] if shape.idle else []
        words += ["--close"] if shape.close else []
        words += self._steps("opening", self.opening)
        words += self._steps("first", self.first) if first else []
        return shlex.join(words + self._asked())

    def _asked(self) -> list[str]:
        if self.path:
            return ["--http", self.path, "--body", f"{WORDS}/expect"]
        return ["--send", f"{WORDS}/send", "--expect", f"{WORDS}/expect"]

    def _steps(self, name: str, steps: tuple[tuple[bytes, bytes], ...]) -> list[str]:
        words: list[str] = []
        for number, (send, until) in enumerate(steps):
            words += ["--opening", f"{WORDS}/{name}{number}"] if send else []
            words += ["--until", f"{WORDS}/{name}{number}-until"] if until else []
        return words


def load(talk: Talk, shape: Shape) -> str:
    """The load, as a command of the guest's shell; its output goes to the file of replies. Kept
    connections are those of a process that ready() has left."""
    command = talk.command(shape) if shape.close else f"{LOAD} --again {STAY}"
    command += f" >> {OUTPUT}"
    if not shape.lockstep:
        return command
    begin, end = (f"echo {no}WAKEUP_PREEMPTION > {FEATURES}" for no in ("NO_", ""))
    return f"{begin}; {command}; status=$?; {end}; exit $status"


def ready(talk: Talk, shape: Shape) -> str:
    """A command that succeeds when the server has answered, and kept connections are there."""
    command = f"{talk.command(shape, first=True)} > /tmp/first"
    if shape.close:
        return command
    stays = f"{talk.command(shape, '--stay', STAY)} > {STAYED} 2>&1 &"
    begun = f"until [ -S {STAY} ]; do [ -s {STAYED} ] && exit 1; sleep 0.1; done"
    return f"{command} && {{ {stays} {begun}; }}"


def content(bytes_: int) -> bytes:
    """The content that servers deliver: bytes without white space, of which no part looks like
    another.

    >>> content(8)
    b'AAAABAAC'
    """
    letters = [b"ABCDEFGHIJKLMNOPQRSTUVWXYZ"[place : place + 1] for place in range(26)]
    places = range(bytes_ // 4 + 1)
    groups = (
        b"".join(letters[place // 26**power % 26] for power in (3, 2, 1, 0)) for place in places
    )
    return b"".join(groups)[:bytes_]
