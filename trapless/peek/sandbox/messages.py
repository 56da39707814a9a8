# SPDX-License-Identifier: GPL-2.0-only
"""Carries questions to the process in the sandbox, and its answers back: frames and their forms.

Owns the frames, which are JSON or bytes behind their length, and the form that each answer must
have. What comes out of the sandbox is as little trusted as the guest itself: an answer that is too
long, or has another form, is an error, and each text in it is a GuestText.
"""

from __future__ import annotations

import json
import os
import select
import struct
from collections.abc import Callable, Mapping
from typing import Any

from trapless.base import json_text
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.guest_processor import KEYS
from trapless.peek.kernel.memories.pieces import CHUNK_BYTES, SilentError, exactly, wait_for

HEADER = struct.Struct("<cI")
JSON, BYTES = b"J", b"B"


class FormError(PeekError):
    """The other side says what no answer can be."""


def send(descriptor: int, message: object, end_s: float | None = None) -> None:
    """Send bytes as they are, and anything else as JSON. SilentError where the other side does not
    take them until a time of time.monotonic(), for which the descriptor does not block."""
    kind, data = (
        (BYTES, message) if isinstance(message, bytes) else (JSON, json.dumps(message).encode())
    )
    left = memoryview(HEADER.pack(kind, len(data)) + data)
    try:
        while left:
            if end_s is not None:
                wait_for(descriptor, select.POLLOUT, end_s)
            left = left[os.write(descriptor, left[:CHUNK_BYTES]) :]
    except OSError as error:
        raise SilentError("the other side has ended") from error


def receive(descriptor: int, end_s: float | None = None) -> object:
    """The next message; SilentError where there is none until a time of time.monotonic()."""
    kind, length = HEADER.unpack(exactly(descriptor, HEADER.size, end_s))
    if kind not in (JSON, BYTES) or length > limits.ANSWER_BYTES_MAX:
        raise FormError(f"a message of {length} bytes, of kind {kind!r}")
    data = exactly(descriptor, length, end_s)
    if kind == BYTES:
        return data
    try:
        return json_text.parse(data)
    except ValueError as error:
        raise FormError("a message that is no JSON") from error


# ---- Forms: each takes what JSON had, and gives it checked ---------------------------------------

Form = Callable[[object], Any]
U32_MAX, U64_MAX = (1 << 32) - 1, (1 << 64) - 1
I64_MIN = -(1 << 63)


def number(low: int, high: int) -> Form:
    """A whole number between two others."""

    def check(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise FormError(f"no number from {low} to {high}")
        return value

    return check


def text(value: object) -> GuestText:
    """A text of bounded length."""
    if not isinstance(value, str) or len(value) > 2 * limits.TEXT_CHARS_MAX:
        raise FormError("no text")
    return GuestText.stored(value)


def truth(value: object) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise FormError("neither true nor false")
    return value


def perhaps(form: Form) -> Form:
    """None, or what has a form."""
    return lambda value: None if value is None else form(value)


def several(form: Form, most: int) -> Form:
    """A list with elements of a form."""

    def check(value: object) -> list[Any]:
        if not isinstance(value, list) or len(value) > most:
            raise FormError(f"no list of {most} at most")
        return [form(one) for one in value]

    return check


def row(*forms: Form) -> Form:
    """A list with an element for each form."""

    def check(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) != len(forms):
            raise FormError(f"no row of {len(forms)}")
        return tuple(form(one) for form, one in zip(forms, value, strict=True))

    return check


def described(value: object, depth: int = limits.TABLE_DEPTH_MAX) -> Any:
    """An object of JSON whose names and texts are visible, not nested too deeply: an entry of a
    table for other tools."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return number(I64_MIN, U64_MAX)(value)
    if isinstance(value, dict) and depth:
        return {str(text(key)): described(one, depth - 1) for key, one in value.items()}
    return str(text(value))


ADDRESS = number(0, U64_MAX)
PID = number(-(1 << 31), (1 << 31) - 1)

OPENED = row(
    number(0, 15),  # the layout
    ADDRESS,  # of the note
    text,  # release
    number(0, U64_MAX),  # KERNELOFFSET
    # What its note says of its processor: the numbers of lines, and their values
    several(row(number(0, len(KEYS) - 1), number(I64_MIN, U64_MAX)), len(KEYS)),
    ADDRESS,  # of the first page table
    number(1, limits.SYMBOLS_MAX),
    several(number(0, 255), 64),  # build-id, byte by byte
)

PLACE = row(ADDRESS, number(0, limits.ANSWER_BYTES_MAX))
"""Physical memory that the other side asks for: where, and how many bytes."""

STACK = (number(0, 3), several(ADDRESS, limits.FRAMES_MAX))
"""How it ended (stacks.Ending), and its code."""

NAMES = several(text, limits.USER_NAMES_MAX)
USER_STACK = row(
    truth, truth, several(number(0, limits.USER_NAMES_MAX - 1), limits.USER_FRAMES_MAX)
)
"""Whether it is whole, whether it is of an earlier moment, and the numbers of its names."""
USER_STACKS = several(USER_STACK, limits.STACKS_MAX + 1)

U63 = number(0, (1 << 63) - 1)
LINES = several(text, limits.EVIDENCE_MAX)
LOOK = row(
    *(U63, ADDRESS, U63),  # uptime in ms, the clock of ticks, how many threads
    several(
        row(
            *(number(0, limits.CPUS_MAX), truth, truth, PID, text),
            *(
                ADDRESS,
                number(0, U32_MAX),
                U63,
                ADDRESS,
            ),  # clock, run queue, held in ms, next event
        ),
        limits.CPUS_MAX,
    ),
    several(
        # The cause, the sentence, how long in ms, the subject, the evidence, and the CPUs.
        row(text, text, U63, text, LINES, several(number(0, limits.CPUS_MAX), limits.CPUS_MAX)),
        limits.VERDICTS_MAX,
    ),
    LINES,
)

ANSWERS: Mapping[str, Form] = {
    "open": OPENED,
    "address": ADDRESS,
    "has": truth,
    "at": perhaps(row(text, ADDRESS)),
    "size_at": number(0, U64_MAX),
    "kind_at": text,
    "symbols": several(row(ADDRESS, text), limits.SYMBOLS_MAX),
    "place": row(
        number(0, U64_MAX),
        number(0, limits.TYPES_MAX),
        number(0, U64_MAX),
        number(0, 7),
        number(0, 255),
    ),
    "sizes": several(number(0, U64_MAX), 64),
    "enumerator": perhaps(row(number(0, limits.TYPES_MAX), number(I64_MIN, U64_MAX))),
    "name_of": text,
    "module_symbol": perhaps(ADDRESS),
    "thread_stacks": row(
        NAMES,
        USER_STACKS,
        several(row(*STACK), limits.STACKS_MAX),
        several(
            row(
                *(PID, PID, text, number(0, U32_MAX)),
                *(number(-1, limits.STACKS_MAX), number(0, limits.STACKS_MAX)),
            ),
            limits.THREADS_MAX,
        ),
    ),
    "cpu_stacks": row(
        NAMES,
        USER_STACKS,
        several(
            row(
                *(number(0, limits.CPUS_MAX), PID, PID, text),
                *(*STACK, number(0, limits.STACKS_MAX)),
            ),
            limits.CPUS_MAX,
        ),
    ),
    "threads": several(row(PID, PID, text, PID, truth), limits.THREADS_MAX),
    "log": row(
        number(0, 1 << limits.LOG_RECORDS_BITS),
        several(
            row(ADDRESS, ADDRESS, number(0, 7), several(text, limits.LOG_LINES_MAX)),
            limits.LOG_LINES_MAX,
        ),
    ),
    "isf": row(number(0, limits.SYMBOLS_MAX), several(row(text, described), 1 << 17)),
    "module_symbols": several(
        row(
            text,
            several(row(ADDRESS, ADDRESS), limits.MODULE_SECTIONS_MAX),
            several(row(ADDRESS, text), limits.MODULE_SYMBOLS_TOTAL_MAX),
        ),
        limits.MODULES_MAX,
    ),
    "processes": several(
        row(*(PID, PID, text, U63, number(0, limits.CPUS_MAX)), *(text, text, text)),
        limits.THREADS_MAX,
    ),
    "look": LOOK,
}
"""The form of the answer to each question."""
