# SPDX-License-Identifier: GPL-2.0-only
"""An image is unpacked as the kernel's own decompressor would do it, and only where that is sure.

The images here hold a small program in place of a kernel; tests/lab/vm boots real ones.
"""

from __future__ import annotations

import dataclasses
import io
import lzma
import struct
import subprocess
import zlib

import pytest
from elftools.elf.elffile import ELFFile

from trapless.base.console import Silent
from trapless.stock.kernel import Kernel
from trapless.vm import unpacked_image

ADDRESS = 0x1000000
CODE = bytes(range(1, 100))
PERCPU = b"per cpu"
LISTS = ((0x81000010, 0x81000020), (0x81000030,), (0x81000040, 0x81000050, 0x81000060))


def gzip(program: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(program) + compressor.flush() + struct.pack("<I", len(program))


def xz(program: bytes) -> bytes:
    return lzma.compress(program, check=lzma.CHECK_CRC32) + struct.pack("<I", len(program))


def zstd(program: bytes) -> bytes:
    tool = subprocess.run(["zstd", "-c"], input=program, capture_output=True, check=True)
    return tool.stdout + struct.pack("<I", len(program))


def table(lists) -> bytes:
    """Relocations as the kernel's build appends them."""
    return b"".join(struct.pack(f"<{len(words) + 1}I", 0, *words) for words in lists)


def program(lists=LISTS) -> bytes:
    """An ELF file of two segments, the second one with a hole before it and zeros behind it."""
    header, row = 64, 56
    first = header + 2 * row
    second = first + len(CODE)
    end = second + len(PERCPU)
    elf = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 2, 62, 1, ADDRESS + 0x10, header, end, 0, header, row, 2, 64, 0, 0
    )
    for offset, start, size, memory in (
        (first, ADDRESS, len(CODE), len(CODE)),
        (second, ADDRESS + 0x1000, len(PERCPU), 0x3000),
    ):
        elf += struct.pack("<IIQQQQQQ", 1, 5, offset, 0, start, size, memory, 0x1000)
    return elf + CODE + PERCPU + table(lists)


def image(payload: bytes, protocol: int = 0x20F) -> bytes:
    sectors, before = 3, 100
    setup = bytearray((sectors + 1) * 512)
    setup[0x1F1] = sectors
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", setup, 0x206, protocol)
    struct.pack_into("<I", setup, 0x230, 0x200000)
    struct.pack_into("<II", setup, 0x248, before, len(payload))
    struct.pack_into("<Q", setup, 0x258, ADDRESS)
    return bytes(setup) + b"\xcc" * before + payload + b"\xcc" * 50


@pytest.mark.parametrize("pack", [gzip, xz, zstd])
def test_kernel_is_as_the_decompressor_leaves_it(pack):
    kernel = unpacked_image.unpack(image(pack(program())))
    assert kernel.address == ADDRESS
    assert kernel.data.rstrip(b"\0") == CODE.ljust(0x1000, b"\0") + PERCPU
    assert len(kernel.data) % unpacked_image.COPY_BYTES == 0
    assert kernel.memory_bytes == 0x4000
    assert kernel.entry == 0x10
    assert kernel.relocations == tuple(struct.pack(f"<{len(w)}I", *w) for w in LISTS)


@pytest.mark.parametrize(
    ("lists", "counts"),
    [(LISTS, [2, 1, 3]), (LISTS[::2], [2, 0, 3]), (((), (), ()), [0, 0, 0]), ((), [0, 0, 0])],
)
def test_relocations_of_older_newer_and_fixed_kernels_are_told_apart(lists, counts):
    whole = program(lists)
    words = unpacked_image.relocations(whole, ELFFile(io.BytesIO(whole)))
    assert [len(part) // 4 for part in words] == counts


@pytest.mark.parametrize(
    "source",
    [
        b"",
        b"\0" * 4096,
        image(gzip(program()), protocol=0x20B),
        image(b"LZO!" + bytes(100)),
        image(gzip(program())[:-4] + struct.pack("<I", 5)),
        image(xz(program())[:100] + bytes(40)),
        image(gzip(program(((1,),)))),
        image(gzip(program() + b"odd")),
        image(gzip(b"no ELF file")),
        image(gzip(program()[:70])),
    ],
)
def test_image_of_unknown_form_is_used_as_it_is(tmp_path, monkeypatch, source):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "vmlinuz"
    path.write_bytes(source)
    with pytest.raises(unpacked_image.UnknownFormError):
        unpacked_image.unpack(source)
    kernel = Kernel("own", "1.0", path, None, None)
    for _ in range(2):  # the second time from the cache
        assert unpacked_image.image_for(kernel, Silent()) == path


def test_image_keeps_the_real_mode_code_and_puts_the_kernel_at_its_address(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "vmlinuz"
    source = image(gzip(program()))
    path.write_bytes(source)
    made = unpacked_image.image_for(Kernel("own", "1.0", path, None, None), Silent())
    written = made.read_bytes()
    changed = [i for i in range(4 * 512) if written[i] != source[i]]
    assert set(changed) <= {*range(0x1F4, 0x1F8), *range(0x248, 0x250)}
    behind = written[4 * 512 + ADDRESS - unpacked_image.CODE_ADDRESS :]
    kernel = unpacked_image.unpack(source)
    assert behind == kernel.data + b"".join(kernel.relocations)
    wide = dataclasses.replace(kernel, address=unpacked_image.CODE_ADDRESS)
    assert unpacked_image.parameters(wide, 1)[:4] == struct.pack("<I", unpacked_image.CODE_ADDRESS)
