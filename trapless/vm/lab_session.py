# SPDX-License-Identifier: GPL-2.0-only
"""Moves bytes between a running VM and this process until the VM's work is over.

This file owns the event loop of a run: doorbells, the three streams, the limits of time and of the
log, and the decision how a run ended. It runs in one thread. The guest works for it only when bytes
have to move.
"""

from __future__ import annotations

import errno
import math
import os
import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from trapless.abi import Refusal
from trapless.base.console import Progress
from trapless.vm.channel import Channel, Phase, Ring
from trapless.vm.qemu import Process

BOOT_LIMIT_S = 1200.0
"""From QEMU's start to the command's, seconds: two hundred times what an idle machine needs."""

SILENCE_LIMIT_S = 300.0
"""The longest silence of a starting kernel, seconds: a kernel that hangs is not waited for. After a
report of a stalled CPU nothing that it prints counts: most such kernels repeat the report.
"""

STALLED = re.compile(rb"detected stalls? on CPU|self-detected stall|BUG: soft lockup")

TICK_S = 0.25
"""How often limits are looked at when nothing happens, seconds."""

PIPE_WRITE_BYTES = select.PIPE_BUF  # what poll() promises to take without blocking
READ_BYTES = 1 << 16
COLLECT_BYTES_MAX = 1 << 30
"""Most output that is collected in memory for a caller; streams have no limit."""

LOG_BYTES_MAX = 64 << 20
"""Longest kernel log: a guest that prints more is stuck in a loop of complaints."""


@dataclass(frozen=True)
class Ending:
    """How a VM's run ended. `reason` is empty if, and only if, the command came to its end and all
    its output was taken. The phase only says how far the guest came."""

    phase: Phase
    status: int = 0
    boot_s: float = 0.0
    reason: str = ""
    complaint: str = ""
    retriable: bool = False
    timed_out: bool = False  # the command ran into its time limit
    log_before: int = 0  # bytes of the kernel's log that cannot explain the end
    switch_error: int = 0  # errno: the command was not switched to supervisor mode ...
    refusal: int = Refusal.NONE  # ... for this reason
    calls: tuple[int, ...] = ()  # made in supervisor mode: fields of control.Calls


class Bell:
    """The doorbell: a socket pair whose other end is the guest's second serial port."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        self._ours: socket.socket = ours
        self._theirs: socket.socket | None = theirs
        self.guest_end = theirs.fileno()

    def fileno(self) -> int:
        return self._ours.fileno()

    def ring(self) -> None:
        """Tell the guest that something changed; a full or closed line needs no more rings."""
        try:
            self._ours.send(b"!")
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE, errno.ECONNRESET):
                raise

    def answer(self) -> None:
        """Read the bytes by which the guest rang."""
        try:
            while self._ours.recv(READ_BYTES):
                pass
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.ECONNRESET):
                raise

    def close_guest_end(self) -> None:
        """QEMU has its copy now."""
        if self._theirs is not None:
            self._theirs.close()
            self._theirs = None

    def close(self) -> None:
        self.close_guest_end()
        self._ours.close()


@dataclass
class Sinks:
    """The other ends of a command's streams: descriptors, or memory and callbacks."""

    input_fd: int | None = None
    output_fd: int | None = None
    errors_fd: int | None = None
    pending: bytes = b""  # input not yet in the ring
    on_output: Callable[[bytes], None] | None = None
    _output: list[bytes] = field(default_factory=list)
    _errors: list[bytes] = field(default_factory=list)
    collected: int = 0

    @classmethod
    def inherited(cls) -> Sinks:
        """This process's own standard streams."""
        return cls(input_fd=0, output_fd=1, errors_fd=2)

    @classmethod
    def collecting(
        cls, stdin: bytes | int | None, on_output: Callable[[bytes], None] | None
    ) -> Sinks:
        """Input from memory or a descriptor; output to memory, or that of stdout to a callback."""
        if isinstance(stdin, int):
            return cls(input_fd=stdin, on_output=on_output)
        return cls(pending=stdin or b"", on_output=on_output)

    @property
    def output(self) -> bytes:
        return b"".join(self._output)

    @property
    def errors(self) -> bytes:
        return b"".join(self._errors)

    def take_output(self, data: bytes) -> None:
        if self.on_output is not None:
            self.on_output(data)
        else:
            self._output.append(data)
            self.collected += len(data)

    def take_errors(self, data: bytes) -> None:
        self._errors.append(data)
        self.collected += len(data)


class _FailedError(Exception):
    """The run cannot go on, for the reason in the message."""


class _TimedOutError(_FailedError):
    """The command ran into its time limit."""


class Session:
    """One run of one VM over its channel."""

    def __init__(
        self,
        channel: Channel,
        bell: Bell,
        sinks: Sinks,
        log_fd: int,
        timeout_s: float,
        silence_limit_s: float,
        output_limit_s: float = math.inf,
    ) -> None:
        self._channel, self._bell, self._sinks = channel, bell, sinks
        self._log_fd, self._timeout_s = log_fd, timeout_s
        self._silence_limit_s, self._output_limit_s = silence_limit_s, output_limit_s
        self._phase = Phase.FIRMWARE
        self._input_open = True
        self._began = self._running_since = self._heard_at = self._moved_at = time.monotonic()
        self._log_before = self._log_heard = 0
        self._stalled = False

    def prepare(self) -> None:
        """Put the input that is there already into the ring, before the guest starts.

        No doorbell then interrupts a run whose input is short or empty: under icount two such runs
        are the same to the instruction.
        """
        if self._sinks.input_fd is not None and _ready(self._sinks.input_fd, select.POLLIN):
            self._read_input()
        self._feed()

    def _take_back(self) -> None:
        """Take the input back that the guest did not read, for another attempt."""
        ring = self._channel.input
        self._sinks.pending = ring.peek(ring.waiting()) + self._sinks.pending

    def pump(self, process: Process, progress: Progress) -> Ending:
        """Serve the guest until it has finished, failed, or met a limit."""
        self._began = self._heard_at = time.monotonic()
        try:
            while self._step(process, progress):
                pass
        except _FailedError as failure:
            process.stop()
            ending = self._ending(str(failure), process, retriable=self._phase is Phase.FIRMWARE)
            return replace(ending, timed_out=isinstance(failure, _TimedOutError))
        if self._phase is Phase.DONE:
            process.stop()
            boot_s = self._running_since - self._began
            return Ending(Phase.DONE, self._channel.status, boot_s, calls=self._channel.calls)
        return self._ending(self._why_it_ended(), process, retriable=not process.complaint())

    def _ending(self, reason: str, process: Process, *, retriable: bool) -> Ending:
        if self._phase < Phase.RUNNING:
            self._take_back()
        return Ending(
            self._phase,
            reason=reason,
            complaint=process.complaint(),
            retriable=retriable,
            log_before=self._log_before,
            switch_error=self._channel.switch_error,
            refusal=self._channel.refusal,
        )

    def _why_it_ended(self) -> str:
        log = os.pread(self._log_fd, LOG_BYTES_MAX, 0)
        when = {
            Phase.FIRMWARE: "before its init ran",
            Phase.INIT: "while its init prepared the guest",
        }.get(self._phase, "before the command finished")
        if panic := re.search(rb"Kernel panic - not syncing: ([^\r\n]*)", log):
            said = panic[1].decode(errors="replace").strip()
            return f"the guest's kernel panicked {when}: {said}"
        return f"the VM ended {when}"

    def _step(self, process: Process, progress: Progress) -> bool:
        """Wait for something to happen and handle it; False when the run is over."""
        ended = process.ended()  # read before the phase: its last words are then seen
        self._note_phase(progress)
        moved = self._move()
        if moved:
            self._moved_at = time.monotonic()
        if self._phase is Phase.DONE and not self._unread():
            return False
        if ended and not moved and not self._unread():
            return False
        self._check_limits()
        self._wait(process, ended)
        return True

    def _unread(self) -> bool:
        return bool(self._channel.output.waiting() or self._channel.errors.waiting())

    def _note_phase(self, progress: Progress) -> None:
        phase = self._channel.phase
        if phase is self._phase:
            return
        if phase is Phase.FAILED:
            self._phase = phase
            raise _FailedError(f"the guest could not be prepared: {self._channel.error}")
        if self._phase < Phase.RUNNING <= phase:
            self._running_since = self._moved_at = time.monotonic()
            self._log_before = self._log_bytes()
            progress.done()
        self._phase = phase

    def _check_limits(self) -> None:
        now = time.monotonic()
        if self._phase < Phase.RUNNING and now - self._began > BOOT_LIMIT_S:
            raise _FailedError(f"the VM did not start the command within {BOOT_LIMIT_S:g} s")
        if self._phase is Phase.FIRMWARE:
            self._check_silence(now)
        if self._phase is Phase.RUNNING and now - self._running_since > self._timeout_s:
            raise _TimedOutError(
                f"the command ran into the time limit of {self._timeout_s:g} s (--timeout); "
                "the VM was ended"
            )
        if self._phase is Phase.RUNNING and now - self._moved_at > self._output_limit_s:
            raise _TimedOutError(
                f"the command wrote nothing for {self._output_limit_s:g} s; the VM was ended"
            )
        if self._log_bytes() > LOG_BYTES_MAX:
            raise _FailedError(f"the guest's kernel printed more than {LOG_BYTES_MAX >> 20} MB")
        if self._sinks.collected > COLLECT_BYTES_MAX:
            raise _FailedError(f"the command wrote more than {COLLECT_BYTES_MAX >> 30} GiB")

    def _check_silence(self, now: float) -> None:
        if (heard := self._log_bytes()) != self._log_heard and not self._stalled:
            log = os.pread(self._log_fd, heard, 0)
            self._stalled = STALLED.search(log) is not None
            self._log_heard, self._heard_at = heard, now
        elif now - self._heard_at > self._silence_limit_s:
            what = "did not go on after a stall" if self._stalled else "printed nothing"
            raise _FailedError(
                f"the guest's kernel {what} for {self._silence_limit_s:g} s before its init ran"
            )

    def _log_bytes(self) -> int:
        return os.fstat(self._log_fd).st_size

    def _wait(self, process: Process, ended: bool) -> None:
        poller = select.poll()
        poller.register(self._bell.fileno(), select.POLLIN)
        if not ended:
            poller.register(process.pidfd, select.POLLIN)
        if self._wants_input():
            poller.register(self._sinks.input_fd or 0, select.POLLIN)
        for ring, fd in self._outputs():
            if fd is not None and ring.waiting():
                poller.register(fd, select.POLLOUT)
        poller.poll(TICK_S * 1000)
        self._bell.answer()

    def _outputs(self) -> tuple[tuple[Ring, int | None], tuple[Ring, int | None]]:
        return (
            (self._channel.output, self._sinks.output_fd),
            (self._channel.errors, self._sinks.errors_fd),
        )

    # ---- Moving bytes ----------------------------------------------------------------------

    def _move(self) -> bool:
        moved = self._move_to_caller()
        if self._wants_input() and _ready(self._sinks.input_fd or 0, select.POLLIN):
            self._read_input()
        if self._feed() and self._phase >= Phase.RUNNING:
            self._bell.ring()
        return moved

    def _move_to_caller(self) -> bool:
        moved = False
        for ring, fd in self._outputs():
            while ring.waiting():
                if fd is None:
                    self._collect(ring)
                elif not _ready(fd, select.POLLOUT) or not self._write(ring, fd):
                    break
                moved = True
        return moved

    def _collect(self, ring: Ring) -> None:
        data = ring.peek(ring.waiting())
        if ring is self._channel.output:
            self._sinks.take_output(data)
        else:
            self._sinks.take_errors(data)
        self._consume(ring, len(data))

    def _write(self, ring: Ring, fd: int) -> bool:
        data = ring.peek(PIPE_WRITE_BYTES)
        try:
            written = os.write(fd, data)
        except BlockingIOError:
            return False
        except BrokenPipeError:
            # Nobody reads any more: the command gets SIGPIPE, as it would outside the VM.
            ring.close_consumer()
            self._bell.ring()
            return True
        except OSError as error:
            name = "output" if ring is self._channel.output else "error"
            raise _FailedError(f"cannot write to standard {name}: {error.strerror}") from error
        self._consume(ring, written)
        return True

    def _consume(self, ring: Ring, count: int) -> None:
        """Give space back, and wake the guest if it may have seen the ring full.

        It sleeps after it saw head - tail = size. Head is read again after the new tail is
        stored: either the guest saw the new tail, or we see the head that filled the ring.
        """
        before = ring.waiting()
        ring.consume(count)
        if max(before, ring.waiting() + count) >= ring.size:
            self._bell.ring()

    def _wants_input(self) -> bool:
        return self._sinks.input_fd is not None and self._input_open and not self._sinks.pending

    def _read_input(self) -> None:
        try:
            data = os.read(self._sinks.input_fd or 0, READ_BYTES)
        except BlockingIOError:  # somebody else has read the input
            return
        except OSError:  # closed, or a terminal that we do not own: counts as its end
            data = b""
        self._sinks.pending = data
        if not data:
            self._sinks.input_fd = None

    def _feed(self) -> bool:
        """Put input in the ring, and its end; whether the guest has news."""
        if not self._input_open:
            return False
        ring, fed = self._channel.input, False
        while self._sinks.pending:
            count = ring.produce(self._sinks.pending)
            if count == 0:
                return fed
            self._sinks.pending = self._sinks.pending[count:]
            fed = True
        if self._sinks.input_fd is None:
            ring.close_producer()
            self._input_open = False
            fed = True
        return fed


def _ready(fd: int, events: int) -> bool:
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(0))
