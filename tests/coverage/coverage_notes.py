# SPDX-License-Identifier: GPL-2.0-only
"""Makes gcov's data files from the counters of a module that ran in a guest.

Owns the formats: which counter of trapless.ko belongs to which function (the order of its symbols),
what gcc's notes say about that function, and how gcov wants both. These are the formats of the
compiler that built the default kernel (gcc 12); any other is refused. gcov itself finds the lines.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from trapless.base.console import TraplessError

PREFIX = "__gcov0."
NOTE_MAGIC, DATA_MAGIC = 0x67636E6F, 0x67636461
VERSION = b"*22B"
"""gcc 12, as it stands in the files."""

TAG_FUNCTION, TAG_ARCS = 0x01000000, 0x01A10000
WORD, HEADER_WORDS = 4, 4


@dataclass(frozen=True)
class Slot:
    """One function's counters: where they stand among all of the module's."""

    source: str  # name of its object's source, as in "queue.c"
    function: str
    first: int
    count: int


@dataclass(frozen=True)
class Function:
    """One function in the compiler's notes."""

    ident: int
    lineno_checksum: int
    cfg_checksum: int
    name: str


def slots(module: Path) -> list[Slot]:
    """The counters of a module, in the order in which trapless_counters.ko gives them."""
    found: list[Slot] = []
    source, first = "", 0
    with module.open("rb") as stream:
        table = ELFFile(stream).get_section_by_name(".symtab")
        if not isinstance(table, SymbolTableSection):
            raise TraplessError(f"{module} has no table of symbols")
        for symbol in table.iter_symbols():
            if symbol["st_info"]["type"] == "STT_FILE":
                source = Path(symbol.name).name
            elif symbol.name.startswith(PREFIX):
                count = symbol["st_size"] // 8
                found.append(Slot(source, symbol.name.removeprefix(PREFIX), first, count))
                first += count
    return found


def functions(note: bytes) -> Iterator[Function]:
    """The functions that a file of notes describes."""
    magic, version, _stamp, _checksum = struct.unpack_from("<I4sII", note)
    if magic != NOTE_MAGIC or version != VERSION:
        raise TraplessError(f"notes of version {version!r}; only those of gcc 12 are known here")
    at = HEADER_WORDS * WORD
    at += WORD + struct.unpack_from("<I", note, at)[0]  # the folder of the compilation
    at += WORD  # whether blocks may be unexecuted
    while at + 2 * WORD <= len(note):
        tag, length = struct.unpack_from("<II", note, at)
        at += 2 * WORD
        if tag == TAG_FUNCTION:
            ident, lines, graph, size = struct.unpack_from("<IIII", note, at)
            name = note[at + 4 * WORD : at + 4 * WORD + size].split(b"\0")[0].decode()
            yield Function(ident, lines, graph, name)
        at += length


def data_file(note: bytes, counts: Mapping[str, Sequence[int]]) -> bytes:
    """What gcc's runtime would have written: the counts of each function of these notes."""
    stamp = struct.unpack_from("<I", note, 2 * WORD)[0]
    parts = [struct.pack("<I4sII", DATA_MAGIC, VERSION, stamp, 0)]
    for one in functions(note):
        values = counts.get(one.name)
        if values is None:
            continue
        head = (TAG_FUNCTION, 3 * WORD, one.ident, one.lineno_checksum, one.cfg_checksum)
        parts.append(struct.pack("<IIIII", *head))
        parts.append(struct.pack("<II", TAG_ARCS, len(values) * 8))
        parts.append(struct.pack(f"<{len(values)}Q", *values))
    return b"".join(parts)


def write_data(module: Path, counters: Mapping[int, int], folder: Path) -> list[Path]:
    """Put notes and data of each object into `folder`; returns the notes."""
    by_source: dict[str, dict[str, list[int]]] = {}
    for slot in slots(module):
        values = [counters.get(slot.first + i, 0) for i in range(slot.count)]
        by_source.setdefault(slot.source, {})[slot.function] = values
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for source, counts in by_source.items():
        stem = Path(source).stem
        note = module.parent / f"{stem}.gcno"
        if not note.exists():
            raise TraplessError(f"{note} is missing, with the notes about {source}")
        content = note.read_bytes()
        (folder / note.name).write_bytes(content)
        (folder / f"{stem}.gcda").write_bytes(data_file(content, counts))
        written.append(folder / note.name)
    return sorted(written)
