# SPDX-License-Identifier: GPL-2.0-only
"""Reads BTF: the types that the kernel carries in its own memory.

Owns the format, the search for types by name, and the place of a member in a structure. Opening
finds where each type begins; a type is decoded when it is asked for.
"""

from __future__ import annotations

import array
import itertools
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.limits import TYPE_DEPTH_MAX

MAGIC = 0xEB9F
HEADER = struct.Struct("<HBBIIIII")
TYPE = struct.Struct("<III")
WORD_BYTES = 4
KIND_SHIFT, KIND_MASK, COUNT_MASK, SIZE_MASK = 24, 0x1F, 0xFFFF, 0x1F00FFFF
"""In the second word of a type; its kind and its count decide how long it is."""


class Kind(IntEnum):
    """Kinds of types, as in the kernel's include/uapi/linux/btf.h."""

    VOID = 0
    INT = 1
    PTR = 2
    ARRAY = 3
    STRUCT = 4
    UNION = 5
    ENUM = 6
    FWD = 7
    TYPEDEF = 8
    VOLATILE = 9
    CONST = 10
    RESTRICT = 11
    FUNC = 12
    FUNC_PROTO = 13
    VAR = 14
    DATASEC = 15
    FLOAT = 16
    DECL_TAG = 17
    TYPE_TAG = 18
    ENUM64 = 19


# Bytes that follow the header of a type: once, and for each of its `vlen` elements.
_ONCE = {Kind.INT: 4, Kind.ARRAY: 12, Kind.VAR: 4, Kind.DECL_TAG: 4}
_EACH = {
    Kind.STRUCT: 12,
    Kind.UNION: 12,
    Kind.ENUM: 8,
    Kind.FUNC_PROTO: 8,
    Kind.DATASEC: 12,
    Kind.ENUM64: 12,
}
TRANSPARENT = frozenset(
    {Kind.TYPEDEF, Kind.VOLATILE, Kind.CONST, Kind.RESTRICT, Kind.TYPE_TAG, Kind.DECL_TAG}
)
RECORDS = (Kind.STRUCT, Kind.UNION)
ENUMS = (Kind.ENUM, Kind.ENUM64)
POINTER_BYTES = 8
ROUND = 4096  # types between two looks at the budget
NO_NAME = GuestText(b"")


@dataclass(frozen=True)
class Type:
    """One type. `size` is its size in bytes, or the number of the type that it refers to."""

    id: int
    kind: Kind
    name: GuestText
    size: int
    flag: bool
    count: int  # of elements
    body: int  # where what follows the header begins


@dataclass(frozen=True)
class Member:
    """A member of a structure. `bits` is the width of a bit field, and 0 for any other member."""

    name: GuestText
    type: int
    bit_offset: int
    bits: int


@dataclass(frozen=True)
class Place:
    """Where a path of members leads: `offset` bytes into the structure; `size` is in bytes."""

    offset: int
    type: int
    size: int
    bit: int = 0  # where a bit field begins, counted from the offset
    bits: int = 0


class _Lengths(dict[int, int]):
    """The length of a type in words, by what decides it in its second word."""

    def __missing__(self, info: int) -> int:
        kind, elements = Kind(info >> KIND_SHIFT), info & COUNT_MASK
        size = TYPE.size + _ONCE.get(kind, 0) + _EACH.get(kind, 0) * elements
        self[info] = size // WORD_BYTES
        return self[info]


def _check(count: int) -> None:
    limits.spend(ROUND)
    if count > limits.TYPES_MAX:
        raise limits.LimitError(
            f"the kernel's BTF has more than {limits.TYPES_MAX:,} types: the image is damaged"
        )


class Btf:
    """The types of one kernel. PeekError says which part of them is damaged."""

    def __init__(self, data: bytes) -> None:
        if len(data) < HEADER.size:
            raise PeekError(f"the kernel's BTF has {len(data)} bytes: the image is damaged")
        magic, version, _, header, types, types_bytes, strings, strings_bytes = HEADER.unpack_from(
            data
        )
        if magic != MAGIC or version != 1:
            raise PeekError(
                f"the kernel's BTF begins with {magic:#x}, version {version}, not {MAGIC:#x}, "
                "version 1: the image is damaged"
            )
        if header + types + types_bytes > len(data) or header + strings + strings_bytes > len(data):
            raise PeekError("the kernel's BTF is longer than what memory has of it")
        self._data = data
        self._strings = data[header + strings : header + strings + strings_bytes]
        self._places: dict[tuple[str, str], Place] = {}
        self._begin = header + types
        self._words = self._words_of(types_bytes)
        self._starts = self._type_starts()
        names = array.array("I", [0])
        names.extend(map(self._words.__getitem__, itertools.islice(self._starts, 1, None)))
        self._names = names.tobytes()

    def __len__(self) -> int:
        return len(self._starts)

    def _words_of(self, types_bytes: int) -> memoryview:
        if types_bytes % WORD_BYTES:
            raise PeekError("the kernel's BTF ends inside a type: the image is damaged")
        data = self._data[self._begin : self._begin + types_bytes]
        return memoryview(data).cast("I")

    def _type_starts(self) -> list[int]:
        """The word at which each type begins. Type 0 is void, and in no table."""
        words, end, lengths, starts = self._words, len(self._words), _Lengths(), [0]
        add, place = starts.append, 0
        try:
            while place < end:
                for _ in range(ROUND):
                    add(place)
                    place += lengths[words[place + 1] & SIZE_MASK]
                    if place >= end:
                        break
                _check(len(starts))
        except (ValueError, IndexError):
            raise PeekError(f"the kernel's BTF is damaged at type {len(starts) - 1}") from None
        if place != end:
            raise PeekError("the kernel's BTF ends inside a type: the image is damaged")
        return starts

    def _kind(self, number: int) -> int:
        return self.heading(number)[0]

    def heading(self, number: int) -> tuple[int, int, int]:
        """The kind of a type, the offset of its name among the names, and its `size`: what Type
        has, for a look at all types."""
        start = self._starts[number]
        kind = int(self._words[start + 1] >> KIND_SHIFT & KIND_MASK)
        return kind, self._words[start], self._words[start + 2]

    def string(self, offset: int) -> GuestText:
        """The name at an offset among the names."""
        end = self._strings.find(b"\0", offset)
        if not 0 <= offset < len(self._strings) or end < 0:
            raise PeekError("the kernel's BTF refers to a name outside its names")
        return GuestText(self._strings[offset:end])

    def type(self, number: int) -> Type:
        """The type with that number."""
        limits.spend()
        if number == 0:
            return Type(0, Kind.VOID, GuestText(b"void"), 0, False, 0, 0)
        if not 0 < number < len(self._starts):
            raise PeekError(f"the kernel's BTF refers to type {number}, which it does not have")
        start = self._begin + WORD_BYTES * self._starts[number]
        name, info, size = TYPE.unpack_from(self._data, start)
        return Type(
            number,
            Kind(info >> KIND_SHIFT & KIND_MASK),
            self.string(name) if name else NO_NAME,
            size,
            bool(info >> 31),
            info & COUNT_MASK,
            start + TYPE.size,
        )

    def find(self, kind: Kind, name: str) -> list[int]:
        """All types of that kind and name."""
        place = self._place_of(name)
        return [number for number in self._called(place) if self._kind(number) == kind]

    def _called(self, place: int) -> Iterator[int]:
        """The types whose name is at that place among the names; none has place 0."""
        word = place.to_bytes(WORD_BYTES, "little")
        found = self._names.find(word, WORD_BYTES) if place else -1
        while found >= 0:
            limits.spend()
            number, inside = divmod(found, WORD_BYTES)
            if not inside:
                yield number
            found = self._names.find(word, found + 1)

    def enumerator(self, name: str) -> tuple[int, int] | None:
        """The number of the first enumeration that has such a constant, and its value."""
        return self._enumerators.get(self._place_of(name))

    @cached_property
    def _enumerators(self) -> dict[int, tuple[int, int]]:
        constants: dict[int, tuple[int, int]] = {}
        with limits.within(limits.Budget(limits.TYPES)):
            for number in filter(self._is_enum, range(1, len(self))):
                for place, value in self._values(self.type(number)):
                    constants.setdefault(place, (number, value))
        return constants

    def _is_enum(self, number: int) -> bool:
        return self._kind(number) in ENUMS

    def enumerators(self, one: Type) -> list[tuple[GuestText, int]]:
        """Names and values of an enumeration, in order."""
        return [(self.string(place), value) for place, value in self._values(one)]

    def _values(self, one: Type) -> Iterator[tuple[int, int]]:
        for place, low, *high in self.words(one, "<III" if one.kind is Kind.ENUM64 else "<II"):
            width = 64 if high else 32
            value = low | (high[0] << 32 if high else 0)
            if one.flag and value >> width - 1:
                value -= 1 << width
            yield place, value

    def _place_of(self, name: str) -> int:
        """The offset of a name among the names, which hold each name once; 0 if unknown."""
        return self._strings.find(b"\0" + name.encode() + b"\0") + 1 if name else 0

    def words(self, one: Type, form: str) -> Iterator[tuple[int, ...]]:
        """The elements that follow a type's header; `form` is a format of the module struct."""
        layout = struct.Struct(form)
        count = one.count if one.kind in _EACH else 1
        for index in range(count):
            limits.spend()
            yield layout.unpack_from(self._data, one.body + layout.size * index)

    def members(self, one: Type) -> Iterator[Member]:
        """The members of a structure or union, in order; anonymous ones have no name."""
        for name, kind, place in self.words(one, "<III"):
            bits = place >> 24 if one.flag else 0
            offset = place & 0xFFFFFF if one.flag else place
            yield Member(self.string(name) if name else NO_NAME, kind, offset, bits)

    def plain(self, number: int) -> Type:
        """The type behind typedefs and qualifiers."""
        for _ in range(TYPE_DEPTH_MAX):
            one = self.type(number)
            if one.kind not in TRANSPARENT:
                return one
            number = one.size
        raise PeekError(f"the kernel's BTF has a circle at type {number}")

    def size(self, number: int) -> int:
        """The size in bytes of a value of this type."""
        count = 1
        for _ in range(TYPE_DEPTH_MAX):
            one = self.plain(number)
            if one.kind is Kind.ARRAY:
                ((number, _, elements),) = self.words(one, "<III")
                count *= elements
            elif one.kind is Kind.PTR:
                return count * POINTER_BYTES
            elif one.kind in (Kind.VOID, Kind.FUNC, Kind.FUNC_PROTO, Kind.FWD):
                return 0
            else:
                return count * one.size
        raise PeekError(f"the kernel's BTF has a circle at type {number}")

    def record(self, name: str) -> list[Type]:
        """All structures and unions called `name`; PeekError where there is none.

        One without a name of its own goes by that of its typedef.
        """
        records = [self.type(number) for kind in RECORDS for number in self.find(kind, name)]
        if not records:
            plain = (self.plain(number) for number in self.find(Kind.TYPEDEF, name))
            records = [one for one in plain if one.kind in RECORDS]
        if not records:
            raise PeekError(f"the target's kernel has no structure {name!r}")
        return records

    def sizes(self, record: str) -> set[int]:
        """The sizes in bytes of all structures and unions called `record`."""
        return {one.size for one in self.record(record)}

    def place(self, record: str, path: str) -> Place:
        """Where a member lies. `path` is like "se.exec_start" or "mem[0].base".

        The search looks into anonymous members. PeekError where the kernel has no such member, or
        has several structures of that name that differ in it.
        """
        known = self._places.get((record, path))
        if known is not None:
            return known
        with limits.within(limits.Budget(limits.TYPES)):
            found = self._place_in_any(record, path)
        self._places[record, path] = found
        return found

    def _place_in_any(self, record: str, path: str) -> Place:
        places, failures = set(), []
        for one in self.record(record):
            try:
                places.add(self._place(one, record, path))
            except limits.LimitError:
                raise
            except PeekError as error:
                failures.append(error)
        if not places:
            raise failures[0]
        if len({(place.offset, place.bit, place.bits, place.size) for place in places}) > 1:
            raise PeekError(f"{record}.{path}: several structures {record!r} in this kernel differ")
        return min(places, key=lambda place: place.type)

    def _place(self, one: Type, record: str, path: str) -> Place:
        bit_offset, bits, number = 0, 0, one.id
        for step in path.split("."):
            match = re.fullmatch(r"(\w+)((?:\[\d+\])*)", step)
            if match is None:
                raise PeekError(f"{path!r} is no path of members like 'se.exec_start' or 'a[2].b'")
            here = self.plain(number)
            member = self._member(here, match[1]) if here.kind in RECORDS else None
            if member is None:
                raise PeekError(f"the target's kernel has no {record}.{path}: no member {match[1]}")
            bit_offset += member.bit_offset
            bits, number = member.bits, member.type
            for index in re.findall(r"\d+", match[2]):
                array = self.plain(number)
                if array.kind is not Kind.ARRAY:
                    raise PeekError(f"{record}.{path}: {match[1]} is no array")
                ((number, _, count),) = self.words(array, "<III")
                if int(index) >= count:
                    raise PeekError(f"{record}.{path}: {match[1]} has {count} elements")
                bit_offset += 8 * int(index) * self.size(number)
        return Place(bit_offset // 8, number, self.size(number), bit_offset % 8, bits)

    def _member(
        self, one: Type, name: str, depth: int = 0, without: set[int] | None = None
    ) -> Member | None:
        """The member of that name; `without` are types that are known not to have it."""
        without = set() if without is None else without
        if depth > TYPE_DEPTH_MAX:
            raise PeekError(f"the kernel's BTF has a circle at type {one.id}")
        for member in self.members(one):
            if member.name.says(name):
                return member
            if not member.name:
                record = self.plain(member.type)
                if record.kind not in RECORDS or record.id in without:
                    continue
                inner = self._member(record, name, depth + 1, without)
                if inner is not None:
                    return replace(inner, bit_offset=member.bit_offset + inner.bit_offset)
        without.add(one.id)
        return None
