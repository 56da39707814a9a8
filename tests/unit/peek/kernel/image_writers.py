# SPDX-License-Identifier: GPL-2.0-only
"""Writes memory as the images of all formats that peek opens, for tests, and damages images.

Owns the formats from the writers' side. The memory is bytes that begin at physical address 0.
"""

from __future__ import annotations

import bz2
import ctypes
import gzip
import lzma
import random
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa

from trapless.peek.kernel.memories.elf_core import REGISTERS
from trapless.peek.kernel.memories.kdump import library_path

PAGE = 4096
REGISTER_VALUES = {name: 0x1000 + at for at, name in enumerate(REGISTERS)}
SPLIT = 2 << 20
"""Where images with ranges have the end of the first one."""


def _padded(data: bytes, unit: int = 4) -> bytes:
    return data + bytes(-len(data) % unit)


def note(name: bytes, kind: int, data: bytes) -> bytes:
    """An ELF note."""
    return struct.pack("<III", len(name), len(data), kind) + _padded(name) + _padded(data)


def notes() -> bytes:
    """A note of QEMU's own, and then the registers of two CPUs."""
    values = b"".join(value.to_bytes(8, "little") for value in REGISTER_VALUES.values())
    status = bytes(112) + values.ljust(27 * 8 + 8, b"\0")
    return note(b"QEMU\0", 0, bytes(440)) + 2 * note(b"CORE\0", 1, status)


def elf(ram: bytes, loads: Sequence[tuple[int, int, int]] = ()) -> bytes:
    """An ELF core with segments (virtual, physical, length) of one copy of the memory."""
    loads = loads or [(0, 0, len(ram))]
    many = len(loads) + 1 >= 0xFFFF
    data_at = 64 + 64 + 56 * (len(loads) + 1)
    said = notes()
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH",
        *(4, 62, 1, 0, 128, 64 * many, 0, 64, 56),
        *(0xFFFF if many else len(loads) + 1, 64 * many, many, 0),
    )
    section = struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, len(loads) + 1, 0, 0)
    rows = [(4, 0, data_at, 0, 0, len(said), len(said), 0)]
    memory_at = data_at + len(said)
    rows += [(1, 7, memory_at + at, virtual, at, size, size, 0) for virtual, at, size in loads]
    table = b"".join(struct.pack("<IIQQQQQQ", *one) for one in rows)
    return head + section + table + said + ram


def vmcore(ram: bytes) -> bytes:
    """The layout of /proc/vmcore: the kernel's image is in two segments."""
    return elf(ram, [(0xFFFF_FFFF_8100_0000, SPLIT, 1 << 20), (0xFFFF_8880 << 32, 0, len(ram))])


def paged(ram: bytes) -> bytes:
    """The layout of dump-guest-memory -p: a segment for each piece of virtual memory."""
    pieces = len(ram) // PAGE
    loads = [(n * PAGE, n % pieces * PAGE, PAGE) for n in range(max(70_000, pieces))]
    return elf(ram, [(0, 0, SPLIT), *loads])


def lime(ram: bytes) -> bytes:
    """LiME's own format, in two ranges."""
    ranges = ((0, SPLIT), (SPLIT, len(ram)))
    heads = [struct.pack("<IIQQ8x", 0x4C694D45, 1, begin, end - 1) for begin, end in ranges]
    return heads[0] + ram[:SPLIT] + heads[1] + ram[SPLIT:]


def avml(ram: bytes) -> bytes:
    """AVML's format: ranges packed as streams of snappy."""
    image = bytearray()
    for begin, end in ((0, SPLIT), (SPLIT, len(ram))):
        stream = bytearray(b"\xff\x06\0\0sNaPpY")
        for at in range(begin, end, 1 << 16):
            chunk = pa.compress(ram[at : min(at + (1 << 16), end)], codec="snappy", asbytes=True)
            stream += b"\0" + (len(chunk) + 4).to_bytes(3, "little") + b"\1\2\3\4" + chunk
        image += struct.pack("<IIQQ8x", 0x4C4D5641, 2, begin, end - 1) + stream
        image += struct.pack("<Q", len(stream))
    return bytes(image)


def _lzo(data: bytes) -> bytes:
    ctypes.CDLL(library_path())
    maps = Path("/proc/self/maps").read_text()
    (path,) = {one.split()[-1] for one in maps.splitlines() if "liblzo2" in one}
    out, length = ctypes.create_string_buffer(2 * len(data) + 64), ctypes.c_size_t(0)
    ctypes.CDLL(path).lzo1x_1_compress(
        data, ctypes.c_size_t(len(data)), out, ctypes.byref(length), bytes(16384 * 8)
    )
    return out.raw[: length.value]


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "zlib": (0x1, zlib.compress),
    "lzo": (0x2, _lzo),
    "snappy": (0x4, lambda data: bytes(pa.compress(data, codec="snappy", asbytes=True))),
    "zstd": (0x20, lambda data: bytes(pa.compress(data, codec="zstd", asbytes=True))),
}


def kdump(ram: bytes, codec: str = "zlib", *, flat: bool = False) -> bytes:
    """A kdump-compressed dump, in which pages of zeros are left out."""
    flag, compress = CODECS[codec]
    pages = [ram[at : at + PAGE] for at in range(0, len(ram), PAGE)]
    there = [page != bytes(PAGE) for page in pages]
    starts = range(0, len(there), 8)
    bits = [sum(one << bit for bit, one in enumerate(there[n : n + 8])) for n in starts]
    blocks = 2 * ((len(bits) + PAGE - 1) // PAGE)
    half = PAGE * blocks // 2
    bitmap = _padded(b"\xff" * len(bits), half) + _padded(bytes(bits), half)
    said = notes()
    sub_blocks = 1 + (len(said) + PAGE - 1) // PAGE
    head = (
        b"KDUMP   "
        + struct.pack("<i", 6)
        + b"".join(
            one.ljust(65, b"\0") for one in (b"Linux", b"toy", b"6.1.0-toy", b"#1", b"x86_64", b"")
        )
    )
    head = head.ljust(424, b"\0") + struct.pack(
        "<iiiIIIIIIii", flag, PAGE, sub_blocks, blocks, len(pages), 0, 0, 0, 0, 2, 0
    )
    numbers = (0, 1, 0, 0, 0, 0, 0, 2 * PAGE, len(said), 0, 0, 0, 0, len(pages))
    sub = struct.pack("<QIIQQQQQQQQQQQ", *numbers)
    front = _padded(head, PAGE) + _padded(sub, PAGE)
    front += said.ljust((sub_blocks - 1) * PAGE, b"\0") + bitmap
    kept = [page for page, one in zip(pages, there, strict=True) if one]
    table, data, place = bytearray(), bytearray(), len(front) + 24 * len(kept)
    for page in kept:
        packed = compress(page)
        whole = len(packed) >= PAGE
        packed = page if whole else packed
        table += struct.pack("<QIIQ", place + len(data), len(packed), 0 if whole else flag, 0)
        data += packed
    image = front + table + data
    return _flat(image) if flat else image


def _flat(image: bytes) -> bytes:
    """makedumpfile's form for pipes: parts with their places, here in another order."""
    parts = [(at, image[at : at + 50_000]) for at in range(0, len(image), 50_000)]
    parts = parts[1:] + parts[:1]
    head = b"makedumpfile".ljust(16, b"\0") + struct.pack(">qq", 1, 1)
    body = b"".join(struct.pack(">qq", at, len(part)) + part for at, part in parts)
    return head.ljust(PAGE, b"\0") + body + struct.pack(">qq", -1, -1)


def migration(ram: bytes, nodes: int = 1) -> bytes:
    """QEMU's migration stream: a page comes twice, and the video memory is no RAM.

    The first NUMA nodes have a page each, and the last one the rest.
    """

    def text(word: bytes) -> bytes:
        return bytes([len(word)]) + word

    starts = {at * PAGE: b"ram-node%d" % at for at in range(nodes)} if nodes > 1 else {0: b"pc.ram"}
    ends = [*list(starts)[1:], len(ram)]
    blocks = {name: end - at for (at, name), end in zip(starts.items(), ends, strict=True)}
    blocks |= {b"vga.vram": 1 << 16, b"0000:00:02.0/e1000.rom": PAGE}
    stream = bytearray(b"QEVM")
    stream += struct.pack(">I", 3) + b"\x07" + struct.pack(">I", 11) + b"pc-i440fx-7"
    stream += b"\x05" + text(b"configuration/capabilities") + struct.pack(">II", 1, 1) + text(b"x")
    stream += b"\x01" + struct.pack(">I", 2) + text(b"ram") + struct.pack(">II", 0, 4)
    stream += struct.pack(">Q", sum(blocks.values()) | 4)
    stream += b"".join(text(name) + struct.pack(">Q", length) for name, length in blocks.items())
    stream += struct.pack(">Q", 0x10) + b"\x7e" + struct.pack(">I", 2)
    stream += b"\x02" + struct.pack(">I", 2)
    empty = next(at for at in range(0, len(ram), PAGE) if ram[at : at + PAGE] == bytes(PAGE))
    start = max(at for at in starts if at <= empty)  # the page comes again as zeros
    stream += struct.pack(">Q", empty - start | 8) + text(starts[start]) + b"x" * PAGE
    stream += struct.pack(">Q", 8) + text(b"vga.vram") + b"v" * PAGE
    for at in range(0, len(ram), PAGE):
        page, first = ram[at : at + PAGE], text(starts[at]) if at in starts else b""
        start = at if first else start
        is_zero = page == bytes(PAGE)
        flags = (2 if is_zero else 8) | (0 if first else 0x20)
        stream += struct.pack(">Q", at - start | flags) + first + (b"\0" if is_zero else page)
    stream += struct.pack(">Q", 0x10) + b"\x7e" + struct.pack(">I", 2)
    return bytes(stream) + b"\x03" + struct.pack(">IQ", 2, 0x10) + b"\x04 and the devices"


def saved(ram: bytes, packed: int = 0) -> bytes:
    """libvirt's saved state: its description, and then QEMU's stream."""
    text = b"<domain/>\0".ljust(1000, b"\0")
    stream = gzip.compress(migration(ram), 1) if packed == 1 else migration(ram)
    head = b"LibvirtQemudSave" + struct.pack("<IIIII", 2, len(text), 1, packed, 0)
    return head.ljust(92, b"\0") + text + stream


def _lz4(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(data)
    return bytes(sink.getvalue())


IMAGES: dict[str, Callable[[bytes], bytes]] = {
    "raw": bytes,
    "elf": elf,
    "vmcore": vmcore,
    "paged": paged,
    "lime": lime,
    "avml": avml,
    **{f"kdump-{codec}": lambda ram, codec=codec: kdump(ram, codec) for codec in CODECS},
    "kdump-flat": lambda ram: kdump(ram, flat=True),
    "migration": migration,
    "migration-nodes": lambda ram: migration(ram, 12),
    "saved": saved,
    "saved-gzip": lambda ram: saved(ram, 1),
    "raw.gz": lambda ram: gzip.compress(ram, 1),
    "raw.bz2": lambda ram: bz2.compress(ram, 1),
    "raw.xz": lambda ram: lzma.compress(ram, preset=0),
    "raw.zst": lambda ram: bytes(pa.compress(ram, codec="zstd", asbytes=True)),
    "raw.lz4": _lz4,
    "kdump.gz": lambda ram: gzip.compress(kdump(ram), 1),
}


def damaged(image: bytes, seed: int) -> bytes:
    """The image with a fault that the seed chooses: cut, or with wild bytes or numbers in it."""
    chance, data = random.Random(seed), bytearray(image)
    first = min(len(data), chance.choice((256, 4096, 1 << 16, len(data))))
    for _ in range(chance.randrange(1, 9)):
        at = chance.randrange(16, first)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = chance.randbytes(1)
            case 1:
                data[at : at + 8] = chance.choice((bytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f"))
            case 2:
                data[at : at + 64] = chance.randbytes(64)
            case 3:
                del data[at : at + chance.randrange(1, 64)]
    return bytes(
        data[: chance.randrange(len(data) // 2, len(data))] if chance.random() < 0.3 else data
    )
