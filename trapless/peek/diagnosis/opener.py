# SPDX-License-Identifier: GPL-2.0-only
"""The process that keeps the rights to open machines, and hands their open files to the daemon.

A daemon opens machines as they come, which takes a debugger's rights over other users' processes
for as long as it runs. The process here has these rights, reads nothing that a guest has written,
and speaks to nobody but the daemon, which gives them up. Owns both ends of their socket.

A process that hangs may block whoever inspects it. So a child answers each question, and it ends
after CHILD_S whatever it waits for.
"""

from __future__ import annotations

import ctypes
import fnmatch
import itertools
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from trapless.base.tools import has_ended, kill, wait
from trapless.peek import machines, rights
from trapless.peek.emulator import Emulator, emulator_of, emulator_with
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memories.images import open_ram
from trapless.peek.kernel.memories.process_memory import ProcessFile
from trapless.peek.kernel.memory import FileMemory, MemoryFile, RawFile, Region
from trapless.peek.sandbox.messages import receive, send

PACKAGE = Path(__file__).resolve().parents[3]
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from trapless.peek.diagnosis.opener import main; main(int(sys.argv[2]))"
)
NAME_CHARS_MAX = 64
CHILD_S = 30
"""The longest life of a child; an answer takes milliseconds."""
ANSWER_S = 2.0 * CHILD_S
PR_SET_PDEATHSIG = 1
FILES_MAX = 250
"""The most open files of one way to read a machine: the kernel passes 253 at a time."""


class EndedError(PeekError):
    """The machine's process has ended, or its file is gone."""


@dataclass(frozen=True)
class Found:
    """A machine that runs here, or a file that has a machine's memory.

    A pid may be used again, so the machine is also known by when its process began.
    """

    pid: int
    began: int  # in ticks after the host's boot
    kind: str  # the name of its monitor; "file" where `path` is the memory
    name: str
    path: str = ""

    @property
    def title(self) -> str:
        """The name for people, which is bounded and printable."""
        return self.name or f"pid-{self.pid}"

    def free_title(self, taken: Collection[str]) -> str:
        """Its title, then with its pid, then with numbers, until no other machine has it.

        >>> [Found(7, 0, "qemu", "web").free_title(taken) for taken in ((), ("web",))]
        ['web', 'web-7']
        """
        tails = itertools.chain(("", f"-{self.pid}"), (f"-{n}" for n in itertools.count(2)))
        titles = (f"{self.title[: NAME_CHARS_MAX - len(tail)]}{tail}" for tail in tails)
        return next(one for one in titles if one not in taken)

    def age_s(self) -> float:
        """For how long its process has run; a file has no age."""
        if self.path:
            return math.inf
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.began / os.sysconf("SC_CLK_TCK")

    def fits(self, patterns: Sequence[str]) -> bool:
        """Whether one of the patterns has its title; all machines fit where there are none.

        >>> [Found(7, 0, "qemu", "web-1").fits(one) for one in ((), ("web-*",), ("web", "pid-7"))]
        [True, True, False]
        """
        return not patterns or any(fnmatch.fnmatchcase(self.title, one) for one in patterns)


# ---- The daemon's end ----------------------------------------------------------------------------


class Opener:
    """The process with the rights. Several threads may ask. Use it as a context manager."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            argv = [sys.executable, "-I", "-c", PROGRAM, str(PACKAGE), str(theirs.fileno())]
            self._process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, pass_fds=(theirs.fileno(),), cwd="/"
            )
        self._socket = ours

    def __enter__(self) -> Opener:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()  # by which it ends
        try:
            wait(self._process, 1)
        except subprocess.TimeoutExpired:
            kill(self._process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether the process is there; without it no machine can be opened."""
        return not has_ended(self._process)

    def running(self, files: Sequence[Path] = (), *, of_all_users: bool = False) -> list[Found]:
        """The machines that run on this host, and those of these files that are there.

        Those that this user may not look into are among them with `of_all_users` alone.
        """
        rows = self._ask("running", list(map(str, files)), of_all_users)
        return [Found(*row) for row in rows]

    def emulator(self, found: Found) -> Emulator | None:
        """The process that runs a machine, and its virtual processors."""
        answer = self._ask("emulator", found.pid, found.path)
        if answer is None:
            return None
        pid, threads = answer
        return Emulator(pid, tuple(threads))

    def ways(self, found: Found, first: int = 0) -> Iterator[list[FileMemory]]:
        """The memory of a machine, for each way in which it may be read, once for each layout.

        PeekError says why it cannot be. The caller closes the memories. `first` is the number of
        the first way that is wanted.
        """
        for number in itertools.count(first):
            way = self._way(found, number)
            if way is None:
                return
            yield way

    @contextmanager
    def _asked(self, *question: object) -> Iterator[tuple[socket.socket, Any]]:
        """A socket whose other end a child has, and its answer to a question."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                socket.send_fds(self._socket, [b"Q"], [theirs.fileno()])
            send(ours.fileno(), list(question))
            said = receive(ours.fileno(), time.monotonic() + ANSWER_S)
            if not isinstance(said, dict):
                raise PeekError("the process that opens machines does not answer as it should")
            if "error" in said:
                raise (EndedError if said.get("ended") else PeekError)(str(said["error"]))
            yield ours, said["answer"]

    def _ask(self, *question: object) -> Any:
        with self._asked(*question) as (_, answer):
            return answer

    def _way(self, found: Found, number: int) -> list[FileMemory] | None:
        with self._asked("way", found.pid, found.began, found.path, number) as (child, answer):
            if answer is None:
                return None
            count = answer["files"]
            _, descriptors, _, _ = socket.recv_fds(child, 1, count)
        if len(descriptors) != count:
            for descriptor in descriptors:
                os.close(descriptor)
            raise PeekError(f"{found.title}: this process may open too few files (ulimit -n)")
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        return [_memory(answer["name"], layout, descriptors) for layout in answer["layouts"]]


def _memory(name: str, layout: dict[str, Any], descriptors: Sequence[int]) -> FileMemory:
    files: list[MemoryFile] = []
    for is_process, at, page_map in layout["files"]:
        if is_process:
            map_ = None if page_map is None else descriptors[page_map]
            files.append(ProcessFile(descriptors[at], map_))
        else:
            files.append(RawFile(descriptors[at]))
    regions = [Region(*row) for row in layout["regions"]]
    return FileMemory(name, files, regions, is_saved=layout["is_saved"])


# ---- The process ---------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Start a child for each question until the daemon closes its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)  # the daemon's to handle; children are not waited for
    rights.drop(rights.TO_OPEN)
    libc = ctypes.CDLL(None)
    # The daemon may end in the middle of a question.
    with socket.socket(fileno=descriptor) as daemon, suppress(ConnectionError):
        while True:
            said, descriptors, _, _ = socket.recv_fds(daemon, 1, 1)
            if not said:
                return
            with socket.socket(fileno=descriptors[0]) as question, suppress(OSError):
                if os.fork() == 0:
                    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                    signal.alarm(CHILD_S)
                    _answer(question)


def _answer(daemon: socket.socket) -> NoReturn:
    """Runs in a child, and answers one question."""
    try:
        question = receive(daemon.fileno())
        assert isinstance(question, list)
        answer, files = QUESTIONS[question[0]](*question[1:])
        send(daemon.fileno(), {"answer": answer})
        if files:
            socket.send_fds(daemon, [b"F"], [one for memory in files for one in _open(memory)])
    except PeekError as error:
        with suppress(PeekError):
            ended = isinstance(error, EndedError)
            send(daemon.fileno(), {"error": str(error), "ended": ended})
    except Exception as error:  # of one process, which may be anybody's
        with suppress(PeekError):
            send(daemon.fileno(), {"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _open(memory: FileMemory) -> Iterator[int]:
    for file in memory.files:
        yield file.descriptor
        if isinstance(file, ProcessFile) and file.page_map is not None:
            yield file.page_map


Answer = tuple[object, Sequence[FileMemory]]


def _running(files: Sequence[str], of_all_users: bool) -> Answer:
    rows: list[tuple[object, ...]] = []
    for path in files:
        with suppress(OSError):  # it is not there yet
            name = visible(os.path.basename(path))[:NAME_CHARS_MAX]
            rows.append((0, os.stat(path).st_ino, "file", name, path))
    for one in machines.running():
        with suppress(OSError, ValueError, LookupError):  # ended meanwhile
            if of_all_users or one.is_readable:
                name = visible(one.name)[:NAME_CHARS_MAX]
                rows.append((one.pid, _began(one.pid), one.kind, name, ""))
    return rows, ()


def _began(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of a process's stat from its state on."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


def _has_ended(pid: int, began: int, path: str) -> bool:
    """Whether a machine is gone. A process that is ending has no memory for a while before it has
    ended."""
    if path:
        return not os.path.exists(path)
    try:
        fields = _stat(pid)
        return int(fields[19]) != began or int(fields[20]) == 0
    except (OSError, ValueError, IndexError):
        return True


def _emulator(pid: int, path: str) -> Answer:
    found = emulator_of(Path(path)) if path else emulator_with(pid)
    return None if found is None else (found.pid, found.threads), ()


def _way(pid: int, began: int, path: str, number: int) -> Answer:
    """One of the ways to read a machine; None where there are no more."""
    way: list[FileMemory] | None = None
    ended = EndedError(f"{path or f'process {pid}'} has ended")
    try:
        if path:
            ways = iter([open_ram(Path(path))] if number == 0 else ())
        else:
            ways = machines.by_pid(pid).memories()
        for at, memories in enumerate(ways):
            if at == number:
                way = memories
                break
            for memory in memories:
                memory.close()
        if _has_ended(pid, began, path):
            raise ended
        return (None, ()) if way is None else (_description(way), way)
    except BaseException as error:
        for memory in way or ():
            memory.close()
        if error is not ended and _has_ended(pid, began, path):
            raise ended from error
        raise


def _description(way: Sequence[FileMemory]) -> dict[str, object]:
    """The description of memories for the daemon, without their open files."""
    layouts, count = [], 0
    for memory in way:
        files: list[tuple[bool, int, int | None]] = []
        for file in memory.files:
            is_process = isinstance(file, ProcessFile)
            both = isinstance(file, ProcessFile) and file.page_map is not None
            files.append((is_process, count, count + 1 if both else None))
            count += 1 + both
        regions = [(one.start, one.length, one.offset, one.file) for one in memory.regions()]
        layouts.append({"files": files, "regions": regions, "is_saved": memory.is_saved})
    if count > FILES_MAX:
        raise PeekError(f"its memory is in {count} files; {FILES_MAX} can be handed over")
    return {"name": way[0].name, "layouts": layouts, "files": count}


QUESTIONS: dict[str, Callable[..., Answer]] = {
    "running": _running,
    "emulator": _emulator,
    "way": _way,
}
