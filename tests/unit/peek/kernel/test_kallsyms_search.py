# SPDX-License-Identifier: GPL-2.0-only
"""Tables of symbols in an image are found by their form, whatever surrounds them."""

from __future__ import annotations

import random
import struct

import pytest

from trapless.peek import limits
from trapless.peek.kernel import kallsyms, kallsyms_search

START = 0xFFFF_FFFF_8100_0000
NAMES = [b"T_stext", *(b"tfunction_%d" % number for number in range(700))]


def tables(names: list[bytes]) -> tuple[bytes, dict[str, int]]:
    """Tables as kernels before 6.0 have them, and where each is; every token is one character."""
    count = len(names)
    texts = b"".join(bytes([len(one)]) + one for one in names)
    ends, place = [], 0
    for number, one in enumerate(names):
        if number % 256 == 0:
            ends.append(place)
        place += 1 + len(one)
    tokens = [bytes([value]) if value else b"" for value in range(256)]
    begins = [sum(len(one) + 1 for one in tokens[:number]) for number in range(256)]
    parts = {
        "kallsyms_offsets": struct.pack(f"<{count}i", *(-1 - 16 * n for n in range(count))),
        "kallsyms_relative_base": struct.pack("<Q", START),
        "kallsyms_num_syms": struct.pack("<I", count),
        "kallsyms_names": texts,
        "kallsyms_markers": struct.pack(f"<{len(ends)}I", *ends),
        "kallsyms_token_table": b"".join(one + b"\0" for one in tokens),
        "kallsyms_token_index": struct.pack("<256H", *begins),
    }
    data, places = b"", {}
    for name, part in parts.items():
        places[name] = len(data)
        data += part + bytes(-len(part) % 8)
    return data, places


@pytest.mark.parametrize("digits_before", [False, True])
def test_tables_are_found_and_decoded(digits_before):
    data, places = tables(NAMES)
    front = random.Random(3).randbytes(1 << 20)
    if digits_before:  # as any other list of digits
        front = b"".join(b"%d\0" % digit for digit in range(10)).ljust(4096, b"\1") + front
    image = front[: len(front) & -8] + data + bytes(4096)

    def read(address: int, length: int) -> bytes:
        return image[address - START : address - START + length]

    found = kallsyms_search.find(read, START)
    assert found == {name: START + len(front) // 8 * 8 + at for name, at in places.items()}
    raw = kallsyms.read_tables(read, found)
    symbols = kallsyms.decode(raw, {"_stext": START}, 0)
    assert len(symbols) == len(NAMES) and symbols.address("function_699") == START + 16 * 700


@pytest.mark.parametrize("seed", range(50))
def test_search_in_damaged_tables_ends(seed):
    chance, (data, _) = random.Random(seed), tables(NAMES)
    image = bytearray(bytes(4096) + data * 3)
    for _ in range(chance.randrange(1, 40)):
        at = chance.randrange(len(image) - 64)
        image[at : at + 64] = chance.choice((bytes(64), b"\xff" * 64, chance.randbytes(64)))
    with limits.within(limits.Budget(limits.NOTES)):
        kallsyms_search.find(lambda at, length: bytes(image[at : at + length]), 0)


def test_list_of_digits_without_end_is_not_searched_for_ever():
    image = b"".join(b"%d\0" % digit for digit in range(10)) * 400_000
    with (
        limits.within(limits.Budget(limits.NOTES._replace(steps=100_000))),
        pytest.raises(limits.LimitError),
    ):
        kallsyms_search.find(lambda at, length: image[at : at + length], 0)
