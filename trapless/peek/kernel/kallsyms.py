# SPDX-License-Identifier: GPL-2.0-only
"""Reads kallsyms, the kernel's own table of symbols, and looks symbols up in it.

Owns the compression of names and the three forms in which kernels have stored addresses. Each form
is tried: the right one gives the addresses that VMCOREINFO has.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText

TABLES = (
    "kallsyms_names",
    "kallsyms_num_syms",
    "kallsyms_markers",
    "kallsyms_token_table",
    "kallsyms_token_index",
    "kallsyms_offsets",
    "kallsyms_relative_base",
    "kallsyms_seqs_of_names",
)
TOKENS = 256
ROUND = 4096  # symbols between two looks at the budget
LONG_NAME = 0x80  # in a name's length: seven more bits follow
KERNEL_HALF = 1 << 63
COMPAT = b"__ia32_sys_"
"""How the names of system calls of 32-bit programs begin."""
MASK = (1 << 64) - 1

Reader = Callable[[int, int], bytes]
Decoder = Callable[[bytes, int, int], list[int]]


@dataclass(frozen=True)
class RawTables:
    """The tables as bytes, unrelocated: equal for each run of a kernel."""

    count: int
    names: bytes
    tokens: bytes
    token_index: bytes
    offsets: bytes
    offsets_at: int  # virtual, in this run
    base: int | None  # kallsyms_relative_base of this run; None where the kernel has none

    def digest(self) -> str:
        """A digest in hexadecimal that identifies these bytes."""
        digest = hashlib.sha256()
        for piece in (self.names, self.tokens, self.token_index, self.offsets):
            digest.update(hashlib.sha256(piece).digest())
        return digest.hexdigest()


@dataclass(frozen=True)
class Symbols:
    """All symbols of a kernel by link-time address; `shift` is what KASLR added in this run.

    Addresses outside the kernel half (per-CPU offsets, absolute values) are not shifted.
    """

    addresses: tuple[int, ...]  # ascending, as linked
    names: tuple[bytes, ...]
    kinds: bytes  # one letter each, as in nm
    shift: int = 0
    _last: dict[bytes, int] = field(default_factory=dict, repr=False, compare=False)
    _first: dict[bytes, int] = field(default_factory=dict, repr=False, compare=False)
    """The places of names that several symbols have."""

    def __len__(self) -> int:
        return len(self.names)

    def __post_init__(self) -> None:
        if not len(self.addresses) == len(self.names) == len(self.kinds):
            raise ValueError("a symbol has an address, a name and a kind")
        places = range(len(self.names))
        self._last.update(zip(self.names, places, strict=True))
        last = map(self._last.__getitem__, self.names)
        earlier = list(itertools.compress(places, map(operator.ne, last, places)))[::-1]
        self._first.update(zip(map(self.names.__getitem__, earlier), earlier, strict=True))

    def has(self, name: str) -> bool:
        """Whether there is a symbol of that name."""
        return name.encode() in self._last

    def address(self, name: str) -> int:
        """The virtual address of the one symbol `name`; a global one wins over local ones."""
        key = name.encode()
        if key not in self._last:
            raise PeekError(f"the target's kernel has no symbol {name!r}")
        last = self._last[key]
        place = self._first.get(key, last)
        places = [place]
        while place < last:
            place = self.names.index(key, place + 1)
            places.append(place)
        if len(places) > 1:
            public = [place for place in places if self._is_global(place)]
            if len(public) != 1:
                raise PeekError(
                    f"{name!r} stands for {len(places)} places in the target's kernel: "
                    "give an address instead"
                )
            places = public
        return self._run_time(self.addresses[places[0]])

    def _run_time(self, linked: int) -> int:
        return (linked + self.shift) & MASK if linked >= KERNEL_HALF else linked

    def _is_global(self, place: int) -> bool:
        return self.kinds[place : place + 1].isupper()

    def rows(self) -> Iterator[tuple[int, GuestText]]:
        """Address as linked, and name, of every symbol."""
        return zip(self.addresses, map(GuestText, self.names), strict=True)

    def at(self, address: int) -> tuple[GuestText, int] | None:
        """The symbol that `address` belongs to and the distance from it; None before the first."""
        linked = (address - self.shift) & MASK
        place = bisect.bisect_right(self.addresses, linked) - 1
        if linked < KERNEL_HALF or place < 0 or self.addresses[place] < KERNEL_HALF:
            return None
        first = bisect.bisect_left(self.addresses, self.addresses[place])
        # If an address has several names, people know it by the global one, and a system call
        # without arguments by that of 64-bit programs.
        known = [*filter(self._is_global, range(first, place + 1)), first]
        best = next((one for one in known if not self.names[one].startswith(COMPAT)), known[0])
        return GuestText(self.names[best]), linked - self.addresses[place]

    def size_at(self, address: int) -> int:
        """Bytes from a symbol's address to the next symbol's."""
        linked = (address - self.shift) & MASK
        place = bisect.bisect_right(self.addresses, linked)
        return self.addresses[place] - linked if place < len(self) else 1

    def kind_at(self, address: int) -> str:
        """The letter of the symbol at an address, a global one's if there are several."""
        linked = (address - self.shift) & MASK
        first = bisect.bisect_left(self.addresses, linked)
        letters = self.kinds[first : bisect.bisect_right(self.addresses, linked)]
        letter = next(filter(range(65, 91).__contains__, letters), (letters or b"?")[0])
        return chr(letter) if chr(letter).isalpha() and letter < 0x80 else "?"


def read_tables(read: Reader, at: Mapping[str, int]) -> RawTables:
    """The tables from memory; `at` has the addresses of TABLES, read by virtual address."""
    (count,) = struct.unpack("<I", read(_needed(at, "kallsyms_num_syms"), 4))
    if not 0 < count <= limits.SYMBOLS_MAX:
        raise PeekError(f"the kernel's table of symbols claims {count} entries: it is damaged")
    names_at = _needed(at, "kallsyms_names")
    # Nothing says how long the names are; another of the tables follows them in every kernel.
    after = [address for address in at.values() if address > names_at]
    length = min([count * limits.SYMBOL_BYTES_MEAN_MAX, *(address - names_at for address in after)])
    index = read(_needed(at, "kallsyms_token_index"), 2 * TOKENS)
    last = struct.unpack(f"<{TOKENS}H", index)[-1]
    base = None
    if "kallsyms_relative_base" in at:
        (base,) = struct.unpack("<Q", read(at["kallsyms_relative_base"], 8))
    return RawTables(
        count,
        read(names_at, length),
        read(_needed(at, "kallsyms_token_table"), last + limits.TOKEN_BYTES_MAX),
        index,
        read(_needed(at, "kallsyms_offsets"), 4 * count),
        at["kallsyms_offsets"],
        base,
    )


def _needed(at: Mapping[str, int], name: str) -> int:
    if name not in at:
        raise PeekError(
            f"the kernel does not tell where its {name} is, and no table of symbols was found in "
            "its image: it was built without CONFIG_KALLSYMS, or the image is not whole"
        )
    return at[name]


def decode(raw: RawTables, anchors: Mapping[str, int], shift: int) -> Symbols:
    """The symbols of `raw`; `anchors` has run-time addresses of some
    symbols, which show in what form addresses are stored."""
    kinds, names = _names(raw)
    wanted = {name.encode(): name for name in anchors}
    places = {wanted[name]: place for place, name in enumerate(names) if name in wanted}
    if not places:
        raise PeekError("the kernel's table of symbols has none of those that it must have")
    for decoder in ADDRESS_FORMS:
        addresses = decoder(raw.offsets, raw.offsets_at, raw.base or 0)
        if all(addresses[place] == anchors[name] for name, place in places.items()):
            break
    else:
        some = sorted(places)[0]
        raise PeekError(
            f"the kernel's table of symbols and its VMCOREINFO disagree on {some} "
            f"({anchors[some]:#x}): one of them is damaged"
        )
    linked = [(a - shift) & MASK if a >= KERNEL_HALF else a for a in addresses]
    order = sorted(range(len(linked)), key=linked.__getitem__)
    return Symbols(
        tuple(linked[i] for i in order),
        tuple(names[i] for i in order),
        bytes(kinds[i] for i in order),
        shift,
    )


def _names(raw: RawTables) -> tuple[list[int], list[bytes]]:
    """Letter and name of each symbol."""
    texts = [_text(raw.tokens, start) for start in struct.unpack(f"<{TOKENS}H", raw.token_index)]
    kinds, names, data, place, total = [], [], raw.names, 0, 0
    token, longest = texts.__getitem__, limits.SYMBOL_CHARS_MAX
    try:
        for _ in range(raw.count):
            length = data[place]
            place += 1
            if length & LONG_NAME:
                length = length & ~LONG_NAME | data[place] << 7
                place += 1
            whole = b"".join(map(token, data[place : place + length])) if length <= longest else b""
            if not 1 < len(whole) <= longest:
                raise PeekError(
                    f"the kernel's table of symbols has a name of {length} tokens and {len(whole)} "
                    "letters: it is damaged"
                )
            place += length
            total += len(whole)
            kinds.append(whole[0])
            names.append(whole[1:])
            if not len(names) % ROUND:
                _check(total)
    except IndexError:
        raise PeekError(
            f"the kernel's table of symbols ends after {len(names)} of {raw.count}: it is damaged"
        ) from None
    return kinds, names


def _check(total: int) -> None:
    """LimitError where the names are too long together, or take too long."""
    limits.spend(ROUND)
    if total > limits.NAMES_CHARS_MAX:
        raise limits.LimitError(
            f"the names of the kernel's symbols take more than {limits.NAMES_CHARS_MAX >> 20} MiB: "
            "its table of symbols is damaged"
        )


def _text(tokens: bytes, start: int) -> bytes:
    end = tokens.find(b"\0", start)
    if end < 0:
        raise PeekError("the kernel's table of symbols has a damaged list of tokens")
    return tokens[start : min(end, start + limits.TOKEN_BYTES_MAX)]


def _signed(offsets: bytes) -> Iterable[int]:
    return struct.unpack(f"<{len(offsets) // 4}i", offsets)


def _below_base(offsets: bytes, _at: int, base: int) -> list[int]:
    """Absolute values are stored as such, addresses negated, less one, from the base."""
    return [offset if offset >= 0 else base - 1 - offset for offset in _signed(offsets)]


def _from_base(offsets: bytes, _at: int, base: int) -> list[int]:
    return [base + offset for offset in struct.unpack(f"<{len(offsets) // 4}I", offsets)]


def _from_place(offsets: bytes, at: int, _base: int) -> list[int]:
    """Each offset counts from where it is itself stored."""
    return [at + 4 * i + offset & MASK for i, offset in enumerate(_signed(offsets))]


ADDRESS_FORMS: tuple[Decoder, ...] = (_below_base, _from_base, _from_place)
