# SPDX-License-Identifier: GPL-2.0-only
"""Turns a kernel's types and symbols into entries of a symbol table for volatility3.

Owns the entries of its Intermediate Symbol Format (ISF, schema 6.2.0): base types, structures and
unions, enumerations, and symbols with their types, as far as these are known. It decodes what a
guest has written, so it runs in the sandbox. symbol_table.py writes the file.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText
from trapless.peek.kernel.btf import ENUMS, RECORDS, Btf, Kind, Type
from trapless.peek.kernel.kallsyms import MASK
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox.variables import VARIABLES, with_values

Entry = dict[str, Any]
SECTIONS = ("base_types", "enums", "user_types", "symbols")
PART_ENTRIES, PART_FIELDS = 1 << 15, 1 << 15
"""One part has no more entries, and ends after so many fields and constants."""
BOOL, CHAR_BYTES = 4, 1
BANNER_BYTES_MAX = limits.TEXT_CHARS_MAX // 4 * 3 - 3
"""In base64, it is a text of the longest length."""
_INTEGERS = {
    1: ("char", "signed char", "unsigned char"),
    2: ("short int", "short", "short unsigned int", "unsigned short"),
    4: ("int", "unsigned int"),
    8: (
        *("long int", "long", "long unsigned int", "unsigned long"),
        *("long long int", "long long", "long long unsigned int", "unsigned long long"),
    ),
}
"""The names that gcc and clang give to the integers of C: plug-ins use those of gcc."""
_BASES = {1: ("char", "unsigned char"), 2: ("short int", "short unsigned int")}
_BASES |= {4: ("int", "unsigned int"), 8: ("long int", "long unsigned int")}
"""The base type of an enumeration by its size: with a sign, and without."""
_ARRAY = re.compile(r"(.*?)\s*\[(\d+)\]")


def part(target: Target, section: str, start: int) -> tuple[int, list[tuple[str, Entry]]]:
    """The entries of a section from a place on, by name, and the place of the next part; 0 is its
    end. A name may be there twice among base types; the last one counts."""
    with limits.within(limits.Budget(limits.TABLE)):
        if section == "symbols":
            return _Symbols(target, _types(target.btf)).part(start)
        return _types(target.btf).part(section, start)


@lru_cache(maxsize=1)
def _types(btf: Btf) -> _Types:
    return _Types(btf)


class _Types:
    """Describes the types of BTF in ISF."""

    def __init__(self, btf: Btf) -> None:
        self.btf = btf
        headings = [btf.heading(number) for number in range(1, len(btf))]
        self._first = dict[tuple[bool, int], int]()
        """The first record, or enumeration, of each name: others of the name have a number."""
        self._aliases = dict[int, int]()
        """The place of the name of the first typedef of each type."""
        self.variables = dict[int, int]()
        """The type of each variable, by the place of its name."""
        for number, (kind, place, of) in enumerate(headings, 1):
            if place and (kind in RECORDS or kind in ENUMS):
                self._first.setdefault((kind in ENUMS, place), number)
            elif kind == Kind.TYPEDEF:
                self._aliases.setdefault(of, place)
            elif kind == Kind.VAR:
                self.variables.setdefault(place, of)

    def part(self, section: str, start: int) -> tuple[int, list[tuple[str, Entry]]]:
        make, kinds = _MAKERS[section]
        entries, fields = list[tuple[str, Entry]](), 0
        if section == "base_types" and start == 0:
            entries.extend(_common())
        for number in range(max(start, 1), len(self.btf)):
            if self.btf.heading(number)[0] not in kinds:
                continue
            if len(entries) >= PART_ENTRIES or fields >= PART_FIELDS:
                return number, entries
            one = self.btf.type(number)
            entries.append((self.name(one), make(self, one)))
            fields += one.count
        return 0, entries

    def name(self, one: Type) -> str:
        """The name in the table: that of a typedef, where the type has none of its own."""
        if one.kind not in (*RECORDS, *ENUMS):
            return str(one.name)
        place = self.btf.heading(one.id)[1] or self._aliases.get(one.id, 0)
        if not place:
            return f"unnamed_{one.id:x}"
        name = self.btf.string(place)
        is_first = self._first.setdefault((one.kind in ENUMS, place), one.id) == one.id
        return str(name) if is_first else f"{name}_{one.id:x}"

    def base(self, one: Type) -> Entry:
        if one.kind is Kind.FLOAT:
            return _base("float", one.size, signed=True)
        ((word,),) = self.btf.words(one, "<I")
        kind = "bool" if word >> 24 & BOOL else "char" if one.size == CHAR_BYTES else "int"
        return _base(kind, one.size, signed=bool(word >> 24 & 1))

    def enumeration(self, one: Type) -> Entry:
        signed, unsigned = _BASES.get(one.size, _BASES[4])
        constants = {str(name): value for name, value in self.btf.enumerators(one)}
        base = signed if one.flag else unsigned
        return {"size": one.size, "base": base, "constants": constants}

    def record(self, one: Type) -> Entry:
        fields = dict[str, Entry]()
        for index, member in enumerate(self.btf.members(one)):
            described, offset = self.described(member.type), member.bit_offset // 8
            if member.bits:
                unit = max(self.btf.size(member.type), 1)
                offset = offset // unit * unit
                bits = {"bit_position": member.bit_offset - 8 * offset, "bit_length": member.bits}
                described = {"kind": "bitfield", **bits, "type": described}
            field: Entry = {"type": described, "offset": offset}
            if not member.name:
                field["anonymous"] = True
            fields[str(member.name) or f"unnamed_field_{index:x}"] = field
        kind = "struct" if one.kind is Kind.STRUCT else "union"
        return {"kind": kind, "size": one.size, "fields": fields}

    def described(self, number: int) -> Entry:
        """The descriptor of the type with that number in BTF."""
        outer, innermost = list[Entry](), dict[str, Any]()
        for _ in range(limits.TYPE_DEPTH_MAX):
            one = self.btf.plain(number)
            if one.kind is Kind.PTR:
                outer.append({"kind": "pointer"})
                number = one.size
            elif one.kind is Kind.ARRAY:
                ((number, _, count),) = self.btf.words(one, "<III")
                outer.append({"kind": "array", "count": count})
            else:
                innermost = self._innermost(one)
                break
        else:
            raise PeekError(f"the kernel's BTF has a circle at type {number}")
        for wrapping in reversed(outer):
            innermost = {**wrapping, "subtype": innermost}
        return innermost

    def _innermost(self, one: Type) -> Entry:
        if one.kind in RECORDS or one.kind is Kind.FWD:
            is_union = one.kind is Kind.UNION or (one.kind is Kind.FWD and one.flag)
            name = str(one.name) if one.kind is Kind.FWD else self.name(one)
            return {"kind": "union" if is_union else "struct", "name": name}
        if one.kind in ENUMS:
            return {"kind": "enum", "name": self.name(one)}
        if one.kind in (Kind.INT, Kind.FLOAT):
            return {"kind": "base", "name": str(one.name)}
        if one.kind in (Kind.FUNC, Kind.FUNC_PROTO):
            return {"kind": "function"}
        return {"kind": "base", "name": "void"}

    def spelled(self, text: str) -> Entry:
        """The descriptor of a type that variables.py spells; LookupError if there is none."""
        if match := _ARRAY.fullmatch(text):
            return {"kind": "array", "count": int(match[2]), "subtype": self.spelled(match[1])}
        if text.endswith("*"):
            return {"kind": "pointer", "subtype": self.spelled(text[:-1].strip())}
        if text.startswith("struct "):
            for number in self.btf.find(Kind.STRUCT, text.removeprefix("struct ")):
                return self.described(number)
        for number in self.btf.find(Kind.TYPEDEF, text):
            return self.described(number)
        if any(text in names for names in _INTEGERS.values()):
            return {"kind": "base", "name": text}
        raise LookupError(text)


def _base(kind: str, size: int, *, signed: bool) -> Entry:
    return {"size": size, "signed": signed, "kind": kind, "endian": "little"}


def _common() -> Iterator[tuple[str, Entry]]:
    """Base types that every table has: BTF knows no pointer by name."""
    yield "void", _base("void", 0, signed=False)
    yield "pointer", _base("int", 8, signed=False)
    for size, names in _INTEGERS.items():
        for name in names:
            kind = "char" if size == CHAR_BYTES else "int"
            yield name, _base(kind, size, signed="unsigned" not in name)


class _Symbols:
    """Describes the symbols in ISF: one for each name, at the address that it was linked to."""

    def __init__(self, target: Target, types: _Types) -> None:
        self._target, self._types = target, types
        variables = types.variables.items()
        self._variables = {types.btf.string(place): number for place, number in variables}

    def part(self, start: int) -> tuple[int, list[tuple[str, Entry]]]:
        rows = list(self._target.symbols.rows())
        chosen = dict[GuestText, int]()
        for at, (_, name) in enumerate(rows):
            earlier = chosen.setdefault(name, at)
            if earlier != at and self._is_global(rows[at]) and not self._is_global(rows[earlier]):
                chosen[name] = at
        entries, end = list[tuple[str, Entry]](), start + PART_ENTRIES
        for at, (address, name) in islice(enumerate(rows), start, end):
            if chosen[name] == at and not self._is_left_out(name):
                entries.append((str(name), self._entry(name, address)))
        return (end if end < len(rows) else 0), entries

    def _is_left_out(self, name: GuestText) -> bool:
        """volatility3 wants a member of taint_flags that newer kernels do not have; without the
        symbol it knows the letters by itself."""
        if not name.says("taint_flags"):
            return False
        flags = self._types.btf.find(Kind.STRUCT, "taint_flag")
        members = (
            one for flag in flags for one in self._types.btf.members(self._types.btf.type(flag))
        )
        return not any(one.name.says("module") for one in members)

    def _is_global(self, row: tuple[int, GuestText]) -> bool:
        limits.spend()
        symbols = self._target.symbols
        return symbols.kind_at(row[0] + symbols.shift & MASK).isupper()

    def _entry(self, name: GuestText, address: int) -> Entry:
        limits.spend()
        entry: Entry = {"address": address}
        described = self._type(name)
        if name.says("linux_banner"):  # volatility3 finds the kernel by its bytes
            at = self._target.symbol("linux_banner")
            data = self._target.read(at, BANNER_BYTES_MAX).split(b"\0")[0] + b"\0"
            entry["constant_data"] = base64.b64encode(data).decode()
            described = {"kind": "array", "count": len(data), "subtype": _CHAR}
        if described is not None:
            entry["type"] = described
        return entry

    def _type(self, name: GuestText) -> Entry | None:
        number = self._variables.get(name)
        if number is not None:
            return self._types.described(number)
        text = VARIABLES.get(str(name))
        try:
            return self._types.spelled(with_values(text, self._types.btf)) if text else None
        except LookupError:
            return None


_CHAR = {"kind": "base", "name": "char"}
_MAKERS: dict[str, tuple[Callable[[_Types, Type], Entry], tuple[Kind, ...]]] = {
    "base_types": (_Types.base, (Kind.INT, Kind.FLOAT)),
    "enums": (_Types.enumeration, ENUMS),
    "user_types": (_Types.record, RECORDS),
}
