# SPDX-License-Identifier: GPL-2.0-only
"""Reads the memory of another machine through an agent there, which ssh starts and which root runs.

Owns the start of the agent, the messages of programs that read memory (sampler/remote/wire.h has
them as well), and the end of the connection, which is the end for all who use it. The agent's file
is removed before it answers, so nothing stays on the machine. What the other machine says is as
little trusted as a guest.
"""

from __future__ import annotations

import copy
import math
import os
import re
import select
import shlex
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Protocol

from trapless.base import built_programs
from trapless.base.tools import kill
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories import kcore
from trapless.peek.kernel.memories.kcore import Access
from trapless.peek.kernel.memories.remote_memory import Place, RemoteMemory
from trapless.peek.kernel.memory import PAGE_BYTES, FileMemory, Region

MESSAGE = struct.Struct("<II")
PLACE = struct.Struct("<QQ")
NUMBER = struct.Struct("<i")
READ_BYTES_MAX = 1 << 20
"""The most that the agent reads at once."""
MESSAGE_BYTES_MAX = 1 << 20
ANSWER_LIMIT_S = 60.0
"""The longest wait for an answer: a machine that says nothing for so long is gone."""
GREETING_LIMIT_S = 300.0
"""Somebody may have to find a password until then."""
LOOK_S, ALIVE_S = 0.5, 5.0
"""The agent ends when it hears nothing for 30 s."""
ERROR_BYTES_MAX = 4096
SSH_OPTIONS = ("-T", "-oServerAliveInterval=5", "-oServerAliveCountMax=6")
"""A machine that is silent for 30 s is gone. A machine that hangs may be silent for a while."""

START = """\
set -f; umask 077; folder=
fail() { echo "trapless: $1" >&2; exit 1; }
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "this machine is no x86-64 Linux"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
for place in /dev/shm /run "${TMPDIR:-/tmp}" /var/tmp "$HOME"; do
    folder=$(mktemp -d "$place/trapless-XXXXXXXX" 2>/dev/null) || continue
    agent=$folder/trapless-agent
    printf '#!/bin/sh\\n' >"$agent" && chmod 700 "$agent" && "$agent" 2>/dev/null && break
    rm -rf "$folder"; folder=
done
[ -n "$folder" ] || fail "in no folder may a program be put and run"
head -c BYTES >"$agent.new" && chmod 700 "$agent.new" && mv "$agent.new" "$agent" ||
    fail "the agent cannot be written to $folder"
[ "$(id -u)" = 0 ] || ! sudo -n true 2>/dev/null || exec sudo -n "$agent" "$folder"
exec "$agent" "$folder"
"""
"""What the other machine's shell does. The first folders are in memory; any may forbid programs."""


class Kind(IntEnum):
    """The kinds of messages, as in sampler/remote/wire.h."""

    HELLO = 1
    DATA = 2
    FAILED = 3
    ROWS = 4
    ENDED = 5
    READ = 16
    SAMPLE = 17
    STOP = 18
    ALIVE = 19


class Listener(Protocol):
    """Hears about the sampling that an agent does, in the agent's thread."""

    def heard(self, kind: Kind, data: bytes) -> None:
        """Rows have come, or sampling has ended."""

    def lost(self, reason: str) -> None:
        """The connection has ended."""


class _Answer:
    """What a read will have given."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.data: bytes | None = None
        self.error = ""
        self.arrived = threading.Event()


class Connection:
    """A running program that reads the memory of a machine. Several threads may use it."""

    def __init__(self, host: str, argv: Sequence[str], first: bytes = b"") -> None:
        self.host, self.reads = host, 0
        self._lock = threading.Lock()  # of what is written, and so of the order of what is awaited
        self._awaited: deque[_Answer] = deque()
        self._listener: Listener | None = None
        self._lost, self._errors, self._said_s = "", b"", time.monotonic()
        self._stops = False
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._process = subprocess.Popen(
            # Ctrl-C is for the command, which still wants the last rows then.
            ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._input = self._process.stdin.fileno()
        self._output = self._process.stdout.fileno()
        self._error = self._process.stderr.fileno()
        os.set_blocking(self._input, False)
        self._greeting_s = time.monotonic() + GREETING_LIMIT_S
        try:
            self._write(first)
            kind, data = self._message()
            self._greeting_s = math.inf
            if kind is not Kind.HELLO:
                raise PeekError(f"{host} says what no agent says")
            self.greeted(data)
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def greeted(self, data: bytes) -> None:
        """Take the greeting; PeekError where its machine cannot be read."""
        raise NotImplementedError

    def read(self, places: Sequence[Place]) -> list[bytes]:
        """The bytes at each offset, of each length: all are asked for before the first is there."""
        answers = [_Answer(length) for _, length in places]
        text = b"".join(MESSAGE.pack(Kind.READ, PLACE.size) + PLACE.pack(*one) for one in places)
        with self._lock:
            self._check()
            self._awaited.extend(answers)
            self.reads += len(answers)
            self._write(text)
        return [self._arrived(one) for one in answers]

    def sample(self, listener: Listener, text: str) -> None:
        """Begin to sample by a source and a plan; the listener hears of it."""
        with self._lock:
            self._check()
            self._listener, self._stops = listener, False
            data = text.encode()
            self._write(MESSAGE.pack(Kind.SAMPLE, len(data)) + data)

    def stop(self) -> None:
        """Ask it to end sampling, also from a signal handler in the middle of a read: the listening
        thread says it."""
        self._stops = True

    def close(self) -> None:
        """End the connection, and the agent with it; every later read is an error."""
        self._lost = self._lost or "it was closed"
        kill(self._process)
        if self._thread.is_alive():
            self._thread.join()
        with self._lock:  # who writes has looked whether the connection is lost
            for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
                if pipe is not None:
                    pipe.close()

    def _check(self) -> None:
        if self._lost:
            raise PeekError(f"the connection to {self.host} has ended: {self._lost}")

    def _arrived(self, answer: _Answer) -> bytes:
        if not answer.arrived.wait(ANSWER_LIMIT_S):
            self._end(f"it has not answered for {ANSWER_LIMIT_S:g} s")
        if answer.data is not None:
            return answer.data
        if answer.error:
            raise PeekError(f"cannot read the memory of {self.host}: {answer.error}")
        self._check()
        raise AssertionError("an answer without data is an error, or the connection's end")

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                if not _ready([self._input], ANSWER_LIMIT_S, select.POLLOUT):
                    self._lost = f"it has taken nothing for {ANSWER_LIMIT_S:g} s"
                    kill(self._process)
                    return
                left = left[os.write(self._input, left) :]
        except OSError:
            # It has ended with a message, which is read where its output ends.
            return
        self._said_s = time.monotonic()

    def _listen(self) -> None:
        """The thread that hears the agent, until the connection ends."""
        try:
            while True:
                kind, data = self._message()
                if kind in (Kind.DATA, Kind.FAILED):
                    self._give(kind, data)
                elif kind in (Kind.ROWS, Kind.ENDED) and self._listener is not None:
                    self._listener.heard(kind, data)
                else:
                    raise PeekError("it says what no agent says")
        except PeekError as error:
            self._end(str(error))
        except OSError as error:
            self._end(error.strerror or "it cannot be read")

    def _give(self, kind: Kind, data: bytes) -> None:
        # Without the lock: who writes holds it, and waits for the agent, which waits to be heard.
        try:
            answer = self._awaited.popleft()  # another thread may end the connection meanwhile
        except IndexError:
            raise PeekError("it answers what was not asked") from None
        if kind is Kind.DATA and len(data) != answer.length:
            answer.error = "it answers what was not asked"
            answer.arrived.set()
            raise PeekError(answer.error)
        if kind is Kind.DATA:
            answer.data = data
        else:
            answer.error = os.strerror(NUMBER.unpack(data)[0]) if len(data) == 4 else "no reason"
        answer.arrived.set()

    def _end(self, reason: str) -> None:
        self._lost = self._lost or reason
        kill(self._process)  # who writes gets an error now, and gives the lock back
        with self._lock:
            awaited = list(self._awaited)
            self._awaited.clear()
        for one in awaited:
            one.arrived.set()
        if self._listener is not None:
            self._listener.lost(f"the connection to {self.host} has ended: {self._lost}")

    def _message(self) -> tuple[Kind, bytes]:
        kind, length = MESSAGE.unpack(self._exactly(MESSAGE.size))
        if kind not in list(Kind) or length > MESSAGE_BYTES_MAX:
            raise PeekError("it says what no agent says")
        return Kind(kind), self._exactly(length)

    def _exactly(self, length: int) -> bytes:
        pieces = []
        while length:
            files = [self._output, self._error] if self._error >= 0 else [self._output]
            ready = _ready(files, LOOK_S)
            self._speak()
            if time.monotonic() > self._greeting_s:
                raise PeekError(f"{self.host} has not answered for {GREETING_LIMIT_S:g} s")
            if self._error in ready and not self._hear_error():
                self._error = -1
            if self._output not in ready:
                continue
            piece = os.read(self._output, length)
            if not piece:
                raise PeekError(self._last_words())
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _hear_error(self) -> bool:
        data = os.read(self._error, ERROR_BYTES_MAX)
        self._errors = (self._errors + data)[-ERROR_BYTES_MAX:]
        return bool(data)

    def _last_words(self) -> str:
        """What ssh, or the other machine's shell, has said at its end."""
        while self._error >= 0 and _ready([self._error], 1.0):
            if not self._hear_error():
                break
        lines = self._errors.decode(errors="replace").strip().splitlines()[-5:]
        return "\n  ".join(map(visible, lines)) or "the machine, or the line to it, is gone"

    def _speak(self) -> None:
        """Say what is due. Before its greeting, the agent is not yet there to hear."""
        due = self._stops or time.monotonic() - self._said_s >= ALIVE_S
        if due and self._thread.is_alive() and self._lock.acquire(blocking=False):
            try:
                self._write(MESSAGE.pack(Kind.STOP if self._stops else Kind.ALIVE, 0))
                self._stops = False
            finally:
                self._lock.release()


class Agent(Connection):
    """A running agent."""

    def __init__(self, host: str, argv: Sequence[str], program: Path) -> None:
        super().__init__(host, argv, program.read_bytes())

    def greeted(self, data: bytes) -> None:
        self.access, self.last_cpu = _access(self.host, data)
        self.access.check()


def _ready(files: Sequence[int], limit_s: float, event: int = select.POLLIN) -> list[int]:
    """Those that have data, or room, or have ended; none where that takes longer."""
    poll = select.poll()  # select() takes no descriptor from 1024 on
    for one in files:
        poll.register(one, event)
    return [descriptor for descriptor, _ in poll.poll(1000 * limit_s)]


def by_ssh(host: str) -> Agent:
    """The agent on a machine, as ssh names it; PeekError says why there is none."""
    program = built_programs.find("sampler/trapless-agent")
    script = START.replace("BYTES", str(program.stat().st_size))
    argv = ["ssh", *SSH_OPTIONS, "--", host, f"exec sh -c {shlex.quote(script)}"]
    try:
        return Agent(host, argv, program)
    except FileNotFoundError as error:
        raise PeekError(f"{error.filename} is not on this machine") from error


def _access(host: str, data: bytes) -> tuple[Access, int]:
    """What an agent says of its machine: how its memory can be read, and its last processor."""
    words: dict[str, str] = {}
    for line in data.decode(errors="replace").splitlines():
        key, _, value = line.partition(" ")
        words[key] = visible(value)
    numbers = [words.get(key, "") for key in ("error", "user", "cpu")]
    if not all(re.fullmatch("[0-9]{1,9}", one) for one in numbers):
        raise PeekError(f"{host} says what no agent says")
    error, user, cpu = map(int, numbers)
    return Access(host, error, user, words.get("lockdown", ""), words.get("note", "")), cpu


class ConnectedMemory(RemoteMemory):
    """Memory behind a connection. The last duplicate ends it. `note` is VMCOREINFO's address."""

    def __init__(
        self,
        connection: Connection,
        regions: Sequence[Region],
        note: int,
    ) -> None:
        super().__init__(connection.host, regions)
        self.connection, self._note = connection, note
        self._users = [self]

    def duplicate(self) -> FileMemory:
        twin = copy.copy(self)
        self._users.append(twin)
        return twin

    def close(self) -> None:
        self._users[:] = [one for one in self._users if one is not self]
        if not self._users:
            self.connection.close()

    def populated(self) -> Iterator[tuple[int, int]]:
        yield self._note, PAGE_BYTES

    def transfer(self, places: Sequence[Place]) -> list[bytes]:
        pieces, counts = list[Place](), []
        for address, length in places:
            before = len(pieces)
            pieces += self._pieces(address, length)
            counts.append(len(pieces) - before)
        answers = iter(self.connection.read(pieces))
        return [b"".join(next(answers) for _ in range(count)) for count in counts]

    def _pieces(self, address: int, length: int) -> Iterator[Place]:
        while length > 0:
            region = self._region(address)
            take = min(length, region.end - address, READ_BYTES_MAX)
            yield address - region.start + region.offset, take
            address += take
            length -= take


class AgentMemory(ConnectedMemory):
    """The memory of the machine that an agent runs on."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        super().__init__(agent, _regions(agent), agent.access.note_address())


def _regions(agent: Agent) -> list[Region]:
    def read(offset: int, length: int) -> bytes:
        return agent.read([(offset, length)])[0]

    return kcore.regions(f"{kcore.KCORE} of {agent.host}", read)
