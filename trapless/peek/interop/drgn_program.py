# SPDX-License-Identifier: GPL-2.0-only
"""Makes a target a drgn program, so that the debugger's helpers work without debug symbols.

Owns the translation of what the target carries into what drgn asks for: BTF into types, kallsyms
into symbols. variables.py has the types of variables that only the source has. Local variables of
functions and line numbers need DWARF, which no kernel carries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import drgn

from trapless.peek.errors import PeekError
from trapless.peek.kernel.btf import Btf, Kind, Type
from trapless.peek.kernel.guest_processor import ARM64, X86_64
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox.variables import VARIABLES, with_values

ARCHITECTURES = {X86_64: drgn.Architecture.X86_64, ARM64: drgn.Architecture.AARCH64}
INT_SIGNED, INT_BOOL = 1, 4  # encodings of BTF's INT


def program(target: Target) -> drgn.Program:
    """A drgn program on the target. It must not outlive the target. One thread."""
    if not hasattr(drgn.Program, "set_linux_kernel_custom"):
        raise PeekError(
            f"drgn {drgn.__version__} is too old to read a kernel without its symbols; "
            "install a newer one with: pip install -U drgn"
        )
    text = target.info.data
    platform = drgn.Platform(ARCHITECTURES[target.processor.name])
    prog = drgn.Program(platform, vmcoreinfo=text)
    for region in target.memory.regions():
        prog.add_memory_segment(region.start, region.length, _reader(target), physical=True)
    prog.set_linux_kernel_custom(text, True)
    # Of arm64, drgn reads the first page table by its virtual address.
    start, end = target.symbol("_text"), target.symbol("_end")
    shift = target.image_shift
    prog.add_memory_segment(start, end - start, _reader(target, shift), physical=False)
    finders = Finders(prog, target)
    prog.register_type_finder("trapless", finders.type, enable_index=0)
    prog.register_object_finder("trapless", finders.object, enable_index=0)
    prog.register_symbol_finder("trapless", finders.symbols, enable_index=0)
    return prog


class Finders:
    """Finds for a program what it asks its target for: types, objects and symbols."""

    def __init__(self, prog: drgn.Program, target: Target) -> None:
        types = _Types(prog, target.btf)
        self.type, self.object = types.find, _Objects(target, types).find
        self.symbols = _symbol_finder(target)
        # With it, drgn unwinds stacks by the ORC tables that are in the target's memory.
        kernel = prog.main_module("kernel", create=True)
        kernel.address_range = target.symbol("_text"), target.symbol("_end")


def _reader(target: Target, shift: int = 0) -> Callable[[int, int, int, bool], bytes]:
    """Reads at physical addresses, which are the given ones with `shift` added."""

    def read(address: int, count: int, _offset: int, _physical: bool) -> bytes:
        try:
            return target.memory.read(address + shift, count)
        except PeekError as error:
            raise drgn.FaultError(str(error), address) from error

    return read


class _Types:
    """Makes drgn's types from BTF when they are asked for, each once."""

    def __init__(self, prog: drgn.Program, btf: Btf) -> None:
        self._prog, self._btf = prog, btf
        self._made: dict[int, drgn.Type] = {}

    @property
    def btf(self) -> Btf:
        return self._btf

    def find(
        self, _prog: drgn.Program, kinds: drgn.TypeKindSet, name: str, _file: str | None
    ) -> drgn.Type | None:
        for kind in kinds:
            for one in _KINDS.get(kind, ()):
                for number in self._btf.find(one, name):
                    made = self.make(number)
                    if made.kind == kind:
                        return made
        return None

    def make(self, number: int) -> drgn.Type:
        """The type with that number in BTF."""
        if number not in self._made:
            one = self._btf.type(number)
            self._made[number] = _MAKERS[one.kind](self, one)
        return self._made[number]

    def void(self, _one: Type) -> drgn.Type:
        return self._prog.void_type()

    def integer(self, one: Type) -> drgn.Type:
        ((word,),) = self._btf.words(one, "<I")
        encoding = word >> 24
        if encoding & INT_BOOL:
            return self._prog.bool_type(str(one.name), one.size, "little")
        return self._prog.int_type(str(one.name), one.size, bool(encoding & INT_SIGNED), "little")

    def floating(self, one: Type) -> drgn.Type:
        return self._prog.float_type(str(one.name), one.size, "little")

    def pointer(self, one: Type) -> drgn.Type:
        return self._prog.pointer_type(self.make(one.size))

    def array(self, one: Type) -> drgn.Type:
        ((element, _, count),) = self._btf.words(one, "<III")
        return self._prog.array_type(self.make(element), count)

    def record(self, one: Type) -> drgn.Type:
        members = []
        for member in self._btf.members(one):

            def made(number: int = member.type, bits: int = member.bits) -> Any:
                inner = self.make(number)
                return drgn.Object(self._prog, inner, bit_field_size=bits) if bits else inner

            members.append(drgn.TypeMember(made, str(member.name) or None, member.bit_offset))
        form = self._prog.struct_type if one.kind is Kind.STRUCT else self._prog.union_type
        return form(str(one.name) or None, one.size, members)

    def forward(self, one: Type) -> drgn.Type:
        return (self._prog.union_type if one.flag else self._prog.struct_type)(str(one.name))

    def enumeration(self, one: Type) -> drgn.Type:
        values = [
            drgn.TypeEnumerator(str(name), value) for name, value in self._btf.enumerators(one)
        ]
        whole = {1: "char", 2: "short", 4: "int", 8: "long"}.get(one.size, "int")
        compatible = self._prog.int_type(whole, one.size, one.flag, "little")
        return self._prog.enum_type(str(one.name) or None, compatible, values)

    def alias(self, one: Type) -> drgn.Type:
        return self._prog.typedef_type(str(one.name), self.make(one.size))

    def qualified(self, one: Type) -> drgn.Type:
        inner = self.make(one.size)
        return inner.qualified(inner.qualifiers | _QUALIFIERS[one.kind])

    def tagged(self, one: Type) -> drgn.Type:
        return self.make(one.size)

    def function(self, one: Type) -> drgn.Type:
        words = list(self._btf.words(one, "<II"))
        variadic = bool(words) and words[-1] == (0, 0)
        parameters = [
            drgn.TypeParameter(
                lambda number=number: self.make(number),
                str(self._btf.string(name)) if name else None,
            )
            for name, number in (words[:-1] if variadic else words)
        ]
        return self._prog.function_type(self.make(one.size), parameters, variadic)


_QUALIFIERS = {
    Kind.VOLATILE: drgn.Qualifiers.VOLATILE,
    Kind.CONST: drgn.Qualifiers.CONST,
    Kind.RESTRICT: drgn.Qualifiers.RESTRICT,
}
_KINDS = {
    drgn.TypeKind.STRUCT: (Kind.STRUCT,),
    drgn.TypeKind.UNION: (Kind.UNION,),
    drgn.TypeKind.ENUM: (Kind.ENUM, Kind.ENUM64),
    drgn.TypeKind.TYPEDEF: (Kind.TYPEDEF,),
    drgn.TypeKind.INT: (Kind.INT,),
    drgn.TypeKind.BOOL: (Kind.INT,),
    drgn.TypeKind.FLOAT: (Kind.FLOAT,),
}
_MAKERS: dict[Kind, Callable[[_Types, Type], drgn.Type]] = {
    Kind.VOID: _Types.void,
    Kind.INT: _Types.integer,
    Kind.PTR: _Types.pointer,
    Kind.ARRAY: _Types.array,
    Kind.STRUCT: _Types.record,
    Kind.UNION: _Types.record,
    Kind.ENUM: _Types.enumeration,
    Kind.FWD: _Types.forward,
    Kind.TYPEDEF: _Types.alias,
    Kind.VOLATILE: _Types.qualified,
    Kind.CONST: _Types.qualified,
    Kind.RESTRICT: _Types.qualified,
    Kind.FUNC: _Types.tagged,  # refers to its FUNC_PROTO
    Kind.FUNC_PROTO: _Types.function,
    Kind.VAR: _Types.tagged,
    Kind.DATASEC: _Types.void,
    Kind.FLOAT: _Types.floating,
    Kind.DECL_TAG: _Types.tagged,
    Kind.TYPE_TAG: _Types.tagged,
    Kind.ENUM64: _Types.enumeration,
}


class _Objects:
    """Finds variables, functions and enumerators by name."""

    def __init__(self, target: Target, types: _Types) -> None:
        self._target, self._types = target, types

    def find(
        self, prog: drgn.Program, name: str, flags: drgn.FindObjectFlags, _file: str | None
    ) -> drgn.Object | None:
        constant = self._types.btf.enumerator(name)
        if flags & drgn.FindObjectFlags.CONSTANT and constant is not None:
            return drgn.Object(prog, self._types.make(constant[0]), value=constant[1])
        if not self._target.has_symbol(name):
            return None
        address = self._target.symbol(name)
        if flags & drgn.FindObjectFlags.VARIABLE:
            for number in self._types.btf.find(Kind.VAR, name):
                return drgn.Object(prog, self._types.make(number), address=address)
            if name in VARIABLES:
                try:
                    text = with_values(VARIABLES[name], self._types.btf)
                    return drgn.Object(prog, text, address=address)
                except LookupError:  # this kernel has another type for it
                    return None
        if flags & drgn.FindObjectFlags.FUNCTION:
            for number in self._types.btf.find(Kind.FUNC, name):
                return drgn.Object(prog, self._types.make(number), address=address)
        return None


def _symbol_finder(target: Target) -> Callable[..., Sequence[drgn.Symbol]]:
    def symbol(name: str, address: int, size: int, kind: str) -> drgn.Symbol:
        binding = drgn.SymbolBinding.GLOBAL if kind.isupper() else drgn.SymbolBinding.LOCAL
        what = drgn.SymbolKind.FUNC if kind in "tTwW" else drgn.SymbolKind.OBJECT
        return drgn.Symbol(name, address, max(size, 1), binding, what)

    def find(
        _prog: drgn.Program, name: str | None, address: int | None, _one: bool
    ) -> Sequence[drgn.Symbol]:
        if name is not None:
            if not target.has_symbol(name):
                return []
            address = target.symbol(name)
        if address is None:
            return []
        if target.in_image(address):
            nearest = target.symbols.at(address)
            if nearest is None:
                return []
            start = address - nearest[1]
            size = target.symbols.size_at(start)
            kind = target.symbols.kind_at(start)
            return [symbol(name or str(nearest[0]), start, size, kind)]
        module = target.modules.at(address)
        if module is None:
            return []
        text, distance = module.at(address)
        return [symbol(str(text), address - distance, distance + 1, "t")]

    return find
