# SPDX-License-Identifier: GPL-2.0-only
"""The process that keeps the rights to open machines, and hands their open files to the daemon.

A daemon opens machines as they come, which takes a debugger's rights over other users' processes
for as long as it runs. The process here has these rights, reads nothing that a guest has written,
and speaks to nobody but the daemon, which gives them up. Owns both ends of their socket.

Any user may start processes that pretend to be machines, and that keep waiting who looks at them.
So each question is answered by a child of its own, which ends after CHILD_S whatever it waits for,
and of the machines that are listed each user has a share.
"""

from __future__ import annotations

import ctypes
import fcntl
import itertools
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from trapless.base.tools import has_ended, kill, wait
from trapless.peek import capabilities, machines
from trapless.peek.emulator import Emulator, emulator_of, emulator_with, user_of
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import visible
from trapless.peek.kernel.memory import FileMemory, MemoryFile, RawFile, Region, open_memory
from trapless.peek.kernel.process_memory import ProcessFile
from trapless.peek.sandbox.messages import receive, send
from trapless.peek.serve import users

PACKAGE = Path(__file__).resolve().parents[3]
PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from trapless.peek.serve.opener import main; main(int(sys.argv[2]))"
)
MACHINES_MAX = 1000
"""More are not watched: of each user those with the lowest pids are, in turns."""
NAME_CHARS_MAX = 64
SILENCE_S = 600.0
"""For so long no monitor is asked of a user whose process had one that did not answer in time."""
CHILD_S = 30
"""The longest life of a child; an answer takes milliseconds."""
ANSWER_S = 2.0 * CHILD_S
PATIENCE_S, LATE_S = 2.0, 6.0
"""How long one process may keep waiting who lists machines, and when the list has to be whole where
some did: that is well within CHILD_S."""
NO_OWNER = -1
NAMESPACES_MAX = 33
"""User namespaces inside each other; Linux allows for 32."""
NS_GET_PARENT, NS_GET_OWNER_UID = 0xB702, 0xB704
PR_SET_PDEATHSIG = 1
FILES_MAX = 250
"""Of one way to read a machine: the kernel passes 253 at a time."""


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
    owner: int = field(default=0, compare=False)  # the user who answers for it

    @property
    def title(self) -> str:
        """The name for people, which is bounded and printable."""
        return self.name or f"pid-{self.pid}"


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
        self._asks_again_s: dict[int, float] = {}  # of a user's monitors

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

    def running(self, files: Sequence[Path] = ()) -> list[Found]:
        """The machines that run on this host, and those of these files that are there."""
        return [Found(*row) for row in self._ask("running", list(map(str, files)))]

    def emulator(self, found: Found) -> Emulator | None:
        """The process that runs a machine, and its virtual processors."""
        asks = self._asks_again_s.get(found.owner, 0.0) <= time.monotonic()
        answer = self._ask("emulator", found.pid, found.path, asks)
        if answer is None:
            return None
        pid, threads, silent = answer
        if silent and not found.path:
            self._asks_again_s[found.owner] = time.monotonic() + SILENCE_S
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
    return FileMemory(name, files, regions, is_core=layout["is_core"])


# ---- The process ---------------------------------------------------------------------------------


def main(descriptor: int) -> None:
    """Start a child for each question until the daemon closes its end."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)  # the daemon's to handle; children are not waited for
    capabilities.drop(capabilities.TO_OPEN)
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
    """In a child: answer one question."""
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


def _running(files: Sequence[str]) -> Answer:
    rows: list[tuple[object, ...]] = []
    for path in files:
        with suppress(OSError):  # it is not there yet
            name = visible(os.path.basename(path))[:NAME_CHARS_MAX]
            rows.append((0, os.stat(path).st_ino, "file", name, path, os.geteuid()))
    owners = dict(_in_turns(_patiently(machines.processes(), _monitor)))
    rows += _patiently(owners, lambda entry: _row(entry, owners[entry]))
    return rows, ()


def _monitor(entry: Path) -> Path | None:
    return entry if machines.is_monitor(entry) else None


def _row(entry: Path, owner: int) -> tuple[object, ...] | None:
    with suppress(OSError, ValueError, LookupError):  # ended meanwhile
        one = machines.machine_of(entry)
        if one is not None and _may_read(one, owner):
            name = visible(one.name)[:NAME_CHARS_MAX]
            return one.pid, _began(one.pid), one.kind, name, "", owner
    return None


def _may_read(one: machines.Process, owner: int) -> bool:
    """Whether a machine is this user's to observe, or everybody's are; else it may be shared."""
    if os.geteuid() in (0, owner):
        return True
    with suppress(OSError):
        os.close(os.open(one.folder / "maps", os.O_RDONLY | os.O_CLOEXEC))
        return True
    return one.shared is not None


T = TypeVar("T")


class _Hand(Generic[T]):
    """A thread that does one thing for one process after the other, and may have to wait."""

    def __init__(self, work: Callable[[Path], T | None]) -> None:
        self._work = work
        self._asked: queue.SimpleQueue[Path] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            entry, answer = self._asked.get(), None
            with suppress(Exception):  # of a process that may be anybody's
                answer = self._work(entry)
            self._answers.put(answer)

    def ask(self, entry: Path) -> T | None:
        """What it gives for a process; queue.Empty where that takes too long."""
        self._asked.put(entry)
        return self._answers.get(timeout=PATIENCE_S)


def _patiently(entries: Iterable[Path], work: Callable[[Path], T | None]) -> Iterator[T]:
    """What `work` gives for each process, but for those that keep it waiting.

    A process may lock its own memory while a file system of its user does not answer, and then even
    its command line is waited for. Once one did so, all others of its owner come last.
    """
    hand, slow, late = _Hand(work), set[int](), list[Path]()
    end_s = time.monotonic() + LATE_S

    def asked(entry: Path) -> T | None:
        nonlocal hand
        try:
            return hand.ask(entry)
        except queue.Empty:
            slow.add(_owner_or_none(entry))
            hand = _Hand(work)
            return None

    for entry in entries:
        if slow and _owner_or_none(entry) in slow:
            late.append(entry)
        elif (found := asked(entry)) is not None:
            yield found
    for entry in late:
        if time.monotonic() < end_s and (found := asked(entry)) is not None:
            yield found


def _owner_or_none(entry: Path) -> int:
    with suppress(OSError, ValueError, LookupError):
        return owner_of(int(entry.name))
    return NO_OWNER


def _in_turns(entries: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Those processes that are looked at, and their owners, who take turns."""
    queues: dict[int, list[Path]] = {}
    for entry in entries:
        with suppress(OSError, ValueError, LookupError):
            queues.setdefault(owner_of(int(entry.name)), []).append(entry)
    rounds = itertools.zip_longest(
        *([(one, owner) for one in queue] for owner, queue in queues.items())
    )
    turns = itertools.chain.from_iterable(rounds)
    return itertools.islice((turn for turn in turns if turn is not None), MACHINES_MAX)


def owner_of(pid: int) -> int:
    """The user who answers for a process: who started it, or made its user namespace.

    In a namespace of its own a user may be as many users as it likes.
    """
    owner = users.owner(user_of(Path(f"/proc/{pid}")))
    with ExitStack() as stack, suppress(OSError):  # not everybody may look
        ours = os.stat("/proc/self/ns/user").st_ino
        space = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        for _ in range(NAMESPACES_MAX):
            stack.callback(os.close, space)
            if os.fstat(space).st_ino == ours:
                break
            buffer = array("I", [0])
            fcntl.ioctl(space, NS_GET_OWNER_UID, buffer)
            owner = users.owner(buffer[0])
            space = fcntl.ioctl(space, NS_GET_PARENT)
    return owner


def _began(pid: int) -> int:
    return int(_stat(pid)[19])


def _stat(pid: int) -> list[str]:
    """The fields of a process's stat from its state on."""
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


def _has_ended(pid: int, began: int, path: str) -> bool:
    """Whether a machine is gone. A process that ends has no memory for a while before it is."""
    if path:
        return not os.path.exists(path)
    try:
        fields = _stat(pid)
        return int(fields[19]) != began or int(fields[20]) == 0
    except (OSError, ValueError, IndexError):
        return True


def _emulator(pid: int, path: str, asks: bool) -> Answer:
    found = emulator_of(Path(path)) if path else emulator_with(pid, asks=asks)
    return None if found is None else (found.pid, found.threads, found.silent), ()


def _way(pid: int, began: int, path: str, number: int) -> Answer:
    """One of the ways to read a machine; None where there are no more."""
    way: list[FileMemory] | None = None
    ended = EndedError(f"{path or f'process {pid}'} has ended")
    try:
        if path:
            ways = iter([open_memory(Path(path))] if number == 0 else ())
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
    """What the daemon must know of memories, but for their open files."""
    layouts, count = [], 0
    for memory in way:
        files: list[tuple[bool, int, int | None]] = []
        for file in memory.files:
            is_process = isinstance(file, ProcessFile)
            both = isinstance(file, ProcessFile) and file.page_map is not None
            files.append((is_process, count, count + 1 if both else None))
            count += 1 + both
        regions = [(one.start, one.length, one.offset, one.file) for one in memory.regions()]
        layouts.append({"files": files, "regions": regions, "is_core": memory.is_core})
    if count > FILES_MAX:
        raise PeekError(f"its memory is in {count} files; {FILES_MAX} can be handed over")
    return {"name": way[0].name, "layouts": layouts, "files": count}


QUESTIONS: dict[str, Callable[..., Answer]] = {
    "running": _running,
    "emulator": _emulator,
    "way": _way,
}
