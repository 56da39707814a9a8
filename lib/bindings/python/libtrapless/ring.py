# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""The library's ring, and what must live as long as calls wait in it.

It owns the memory that queued calls point to, and gives each call its result. An exception may end
any function here between two lines, as a signal handler raises it: so memory is kept before a call
enters the ring, and what the ring says is the truth. queue.py owns what the arguments are.
"""

from __future__ import annotations

import ctypes
import errno
import os
from typing import TYPE_CHECKING

from libtrapless import abi

if TYPE_CHECKING:
    from libtrapless.abi import Condition
    from libtrapless.call import Call


class Ring:
    """Slots of the library, given back when nothing uses them any more: a flush uses them, too."""

    def __init__(self, entries: int, flags: int) -> None:
        self.handle = ctypes.c_void_p()
        self.library = abi.library()
        self.entries = entries
        self.unordered = bool(flags & abi.UNORDERED)
        self.ends: dict[int, Condition] = {}
        """The slots that jump to the end of the program, which a flush alone knows."""
        self.held: list[tuple[Call, list[object]]] = []
        """Calls that were not given their results yet, and their memory."""
        self.pid = os.getpid()
        made = self.library.tl_batch_create(ctypes.byref(self.handle), entries, flags)
        check(made, f"a batch of {entries} calls")

    def __del__(self) -> None:
        if self.handle:
            self.library.tl_batch_destroy(self.handle)

    @property
    def queued(self) -> int:
        """The number of calls that wait for a flush."""
        return int(self.library.tl_batch_queued(self.handle))

    def settle(self) -> None:
        """Give calls their results if a flush is over. It may be interrupted, and repeated."""
        if not self.held or self.queued or self.pid != os.getpid():
            return
        held = self.held
        for call, _ in held:
            if call.slot is not None:
                # Read first: whoever settles in between leaves the slot to other calls.
                value = self.library.tl_batch_result(self.handle, call.slot)
                call.complete(value)
        self.ends = {}
        if self.held is held:
            self.held = []

    def add(self, nr: int, words: list[int], call: Call, memory: list[object]) -> None:
        """Store a call in the ring. Its memory is kept first."""
        self.settle()
        held = self.held
        held.append((call, memory))
        slot = self.library.tl_batch_add(self.handle, nr, *words)
        if self.held is not held:
            # A signal handler has flushed the batch just before.
            self.held.append((call, memory))
        if slot < 0:
            self.held = [one for one in self.held if one[0] is not call]
        check(slot, f"{self.entries} calls are queued: flush them before {call.name}")
        call.slot = slot

    def jump(self, slot: int, condition: Condition, target: int | None) -> None:
        """After the call in `slot` goes on with `target`, or with the end of the program."""
        if self.unordered:
            check(-errno.EINVAL, "a batch whose calls may be made in any order knows no jumps")
        # First where the next flush looks for it: without it the jump would lead elsewhere.
        if target is None:
            self.ends[slot] = condition
        aim = self.library.tl_batch_next(self.handle) if target is None else target
        found = self.library.tl_batch_jump(self.handle, slot, condition, aim)
        if target is not None or found < 0:
            self.ends.pop(slot, None)
        check(found, "jump")

    def flush(self, steps: int) -> int:
        """Make all queued calls. A signal handler of Python runs between two parts of them; if it
        raises, the calls that are not complete stay queued."""
        self.settle()
        library, handle = self.library, self.handle
        queued = self.queued
        for slot, condition in list(self.ends.items()):
            library.tl_batch_jump(handle, slot, condition, library.tl_batch_next(handle))
        while True:
            made = library.tl_batch_flush_steps(handle, steps)
            if made == -errno.ETIME:
                text = f"the program has made {steps} steps and stands at {self.at!r}"
                raise OSError(errno.ETIME, f"{text}; another flush goes on")
            if made != -errno.EINTR:
                check(made, "flush")
            if not self.queued:
                break
        self.settle()
        return queued

    @property
    def at(self) -> Call | None:
        """The call with which the next flush begins; None where nothing is queued."""
        self.settle()
        slot = self.library.tl_batch_at(self.handle)
        return next((call for call, _ in self.held if call.slot == slot), None)


def check(result: int, what: str) -> None:
    """Raise the OSError of a result that is an error."""
    if result < 0:
        raise OSError(-result, f"{os.strerror(-result)} ({what})")
