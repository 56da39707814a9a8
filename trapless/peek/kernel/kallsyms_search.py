# SPDX-License-Identifier: GPL-2.0-only
"""Finds the tables of kallsyms in a kernel's image by their form.

The notes of kernels before 6.0 do not say where the tables are. Owns the search: the tokens of the
ten digits stand behind one another in the table of tokens, as every character has its own place,
and the other tables lie around it in the order in which scripts/kallsyms.c has written them up to
6.3. kallsyms.py reads and decodes what is found.
"""

from __future__ import annotations

import itertools
import re
import struct
from collections.abc import Callable, Iterator

from trapless.peek import limits
from trapless.peek.kernel.kallsyms import TOKENS

DIGITS = re.compile(re.escape(b"".join(b"%d\0" % digit for digit in range(10))))
BEFORE_DIGITS = ord("0")
MARKED = 256
"""There is a marker for each so many names: the place of the first of them."""
PADDING_MAX = 64
LAST_NAMES_BYTES_MAX = MARKED * 260
CHUNK_BYTES = 1 << 20


def find(read: Callable[[int, int], bytes], start: int) -> dict[str, int]:
    """The addresses of the tables, by names as in VMCOREINFO, in the image that begins at a virtual
    address; empty where there are none. `read` gives fewer bytes where memory ends."""
    pieces = list[bytes]()
    while sum(map(len, pieces)) < limits.IMAGE_BYTES_MAX:
        pieces.append(read(start + CHUNK_BYTES * len(pieces), CHUNK_BYTES))
        if len(pieces[-1]) < CHUNK_BYTES:
            break
    data = b"".join(pieces)
    for tokens, index in _token_tables(data):
        found = _around(data, tokens)
        if found is not None:
            places = {"kallsyms_token_table": tokens, "kallsyms_token_index": index, **found}
            return {name: start + place for name, place in places.items()}
    return {}


def _u32(data: bytes, at: int) -> int:
    limits.spend()
    return int.from_bytes(data[at : at + 4], "little") if at >= 0 else 0


def _aligned(place: int, to: int = 8) -> int:
    return place + to - 1 & -to


def _token_tables(data: bytes) -> Iterator[tuple[int, int]]:
    """The places of each table of tokens, and of the table that says where each token begins."""
    for digits in DIGITS.finditer(data):
        at = digits.start()
        for _ in range(BEFORE_DIGITS):
            limits.spend()
            at = data.rfind(b"\0", 0, at - 1) + 1 if at > 0 else 0
        # Padding before the table looks like empty tokens.
        for start in sorted({at, _aligned(at)}):
            begins, place = list[int](), start
            while len(begins) < TOKENS and place > 0:
                begins.append(place - start)
                place = data.find(b"\0", place, place + limits.TOKEN_BYTES_MAX) + 1
            if len(begins) == TOKENS and place > 0 and begins[-1] < 1 << 16:
                wanted = struct.pack(f"<{TOKENS}H", *begins)
                index = data.find(wanted, place, place + PADDING_MAX + len(wanted))
                if index >= 0:
                    yield start, index


def _around(data: bytes, tokens: int) -> dict[str, int] | None:
    """The tables before a table of tokens: offsets, base, number, names and markers."""
    end = tokens
    while end > tokens - PADDING_MAX and _u32(data, end - 4) == 0:
        end -= 4
    markers = end - 4
    while 0 < _u32(data, markers - 4) < _u32(data, markers):
        markers -= 4
    markers -= 4  # the first one is 0
    count = (end - markers) // 4
    if markers < 0 or count < 2 or _u32(data, markers):
        return None
    first, last = _u32(data, markers + 4), _u32(data, end - 4)
    # The names after the last marker, of unknown length, lie between.
    for place in range(markers - last & -8, markers - last - LAST_NAMES_BYTES_MAX, -8):
        number = _u32(data, place)
        if MARKED * (count - 1) < number <= MARKED * count and _names_fit(data, place + 8, first):
            base = place - 8
            offsets = base - _aligned(4 * number)
            if offsets < 0:
                return None
            return {
                "kallsyms_num_syms": place,
                "kallsyms_names": place + 8,
                "kallsyms_markers": markers,
                "kallsyms_relative_base": base,
                "kallsyms_offsets": offsets,
            }
    return None


def _names_fit(data: bytes, names: int, first: int) -> bool:
    """Whether the second marker stands where its name begins."""
    place = names
    for _ in itertools.repeat(None, MARKED):
        limits.spend()
        if not 0 <= place < len(data):
            return False
        place += 1 + data[place]
    return place - names == first
