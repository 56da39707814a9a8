# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's image, decompressed once here and not by the guest at each boot.

An emulated processor takes seconds to decompress a kernel. This file owns the image that guests are
started with instead: the real-mode code of the kernel's own image, loader/ in place of the
decompressor, the kernel, byte for byte as the decompressor would leave it, and its relocations. The
guest's KASLR stays. Where an image has a form that is not known here, it is used as it is.
"""

from __future__ import annotations

import io
import lzma
import struct
import subprocess
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from trapless.base import cache, tools
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock.kernel import Kernel

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

LOADER = Path(__file__).parent / "loader"
CODE_ADDRESS = 0x100000
"""Where QEMU puts what follows the real-mode code."""
SECTOR_BYTES = 512
COPY_BYTES = 64
"""The loader moves this many at a time."""
PROTOCOL_MIN = 0x20C  # xloadflags

# The header of the image (Documentation/arch/x86/boot.rst), by offset.
SETUP_SECTORS = 0x1F1
CODE_SIZE = 0x1F4  # in units of 16 bytes
MAGIC = 0x202
PROTOCOL = 0x206
ALIGNMENT = 0x230
PAYLOAD = 0x248  # offset in what follows the real-mode code, and bytes
ADDRESS = 0x258

FLAGS = (
    *("-m32", "-march=i686", "-O2", "-Wall", "-Wextra", "-ffreestanding", "-nostdlib", "-no-pie"),
    *("-fno-pie", "-fno-stack-protector", "-fcf-protection=none"),
    *("-Wl,--build-id=none", "-Wl,--oformat=binary"),
)


class UnknownFormError(Exception):
    """The image is not made as this file expects."""


@dataclass(frozen=True)
class Unpacked:
    """A kernel as the decompressor leaves it, before it is given an address."""

    address: int
    data: bytes  # from `address` on, without zeros at the end
    memory_bytes: int
    entry: int  # offset in data
    relocations: tuple[bytes, bytes, bytes]  # of 64 bits, of 32 bits subtracted, of 32 bits


def image_for(kernel: Kernel, progress: Progress) -> Path:
    """The image that starts this kernel fastest."""
    sources = sorted(LOADER.iterdir())
    own = cache.sha256_files(LOADER, sources, cache.sha256_file(Path(__file__)))
    key = cache.sha256_files(LOADER, (), own, cache.sha256_file(kernel.image))[:16]
    target = cache_dir() / "images" / key
    if not target.exists():
        with cache.locked(target.parent / "lock", "unpacking a kernel's image", progress):
            if not target.exists():
                progress.step(f"unpacking the image of {kernel.release}")
                with cache.assembling(target) as folder:
                    _make(kernel.image, folder)
    image = target / "image"
    return image if image.exists() else kernel.image


def _make(source: Path, folder: Path) -> None:
    """Write the image into `folder`, or a file that says why there is none."""
    image = source.read_bytes()
    try:
        kernel = unpack(image)
        loader = build_loader(folder)
    except UnknownFormError as error:
        (folder / "none").write_text(f"{error}\n")
        return
    with (folder / "image").open("wb") as file:
        setup_bytes = (image[SETUP_SECTORS] + 1) * SECTOR_BYTES
        setup = bytearray(image[:setup_bytes])
        words = b"".join(kernel.relocations)
        code_bytes = kernel.address - CODE_ADDRESS + len(kernel.data) + len(words)
        struct.pack_into("<I", setup, CODE_SIZE, -(-code_bytes // 16))
        struct.pack_into("<II", setup, PAYLOAD, 0, 0)
        file.write(setup)
        file.write(loader + parameters(kernel, struct.unpack_from("<I", image, ALIGNMENT)[0]))
        if file.tell() - setup_bytes > kernel.address - CODE_ADDRESS:
            raise TraplessError(f"the kernel's address {kernel.address:#x} is in its loader")
        file.seek(setup_bytes + kernel.address - CODE_ADDRESS)
        file.write(kernel.data + words)


def parameters(kernel: Unpacked, align: int) -> bytes:
    """The loader's description of the kernel, `struct kernel` there."""
    return struct.pack(
        "<8I",
        *(kernel.address, len(kernel.data), kernel.memory_bytes, kernel.entry, align),
        *(len(words) // 4 for words in kernel.relocations),
    )


def build_loader(folder: Path) -> bytes:
    """The code that goes before the kernel."""
    log, program = folder / "log", folder / "loader"
    script = LOADER / "loader.lds"
    inputs = [str(path) for path in sorted(LOADER.iterdir()) if path.suffix in (".c", ".S")]
    if tools.run_tool(["cc", *FLAGS, f"-Wl,-T,{script}", "-o", str(program), *inputs], log) != 0:
        raise UnknownFormError(f"the loader does not compile:\n{tools.last_lines(log)}")
    return program.read_bytes()


def unpack(image: bytes) -> Unpacked:
    """The kernel in a compressed image."""
    from elftools.common.exceptions import ELFError  # only here: most commands boot no guest
    from elftools.elf.elffile import ELFFile

    if len(image) < ADDRESS + 8 or image[MAGIC : MAGIC + 4] != b"HdrS":
        raise UnknownFormError("no image of an x86 kernel")
    (protocol,) = struct.unpack_from("<H", image, PROTOCOL)
    offset, size = struct.unpack_from("<II", image, PAYLOAD)
    (address,) = struct.unpack_from("<Q", image, ADDRESS)
    if protocol < PROTOCOL_MIN or size < 4:
        raise UnknownFormError(f"protocol {protocol:#x}, payload of {size} bytes")
    begin = (image[SETUP_SECTORS] + 1) * SECTOR_BYTES + offset
    program = decompress(image[begin : begin + size])
    try:
        return loaded(program, ELFFile(io.BytesIO(program)), address)
    except ELFError as error:
        raise UnknownFormError(f"{error}") from error


def loaded(program: bytes, elf: ELFFile, address: int) -> Unpacked:
    """The segments of a kernel's ELF file as they are in memory."""
    data = bytearray()
    end = address
    for segment in elf.iter_segments("PT_LOAD"):
        start = segment["p_paddr"] - address
        if start < len(data):
            raise UnknownFormError(f"a segment at {segment['p_paddr']:#x}, out of order")
        data += bytes(start - len(data)) + segment.data()
        end = max(end, segment["p_paddr"] + segment["p_memsz"])
    data = data.rstrip(b"\0")
    data += bytes(-len(data) % COPY_BYTES)
    return Unpacked(
        address, bytes(data), end - address, elf["e_entry"] - address, relocations(program, elf)
    )


def relocations(program: bytes, elf: ELFFile) -> tuple[bytes, bytes, bytes]:
    """The addresses that KASLR changes, from the kernel's own table behind the ELF file.

    The table (arch/x86/tools/relocs.c) is read from its end: words of 32 bits, before them those
    that are subtracted (until release 6.15), before them words of 64 bits, each list behind a zero.
    """
    end = elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]
    table = program[end:]
    if len(table) % 4:
        raise UnknownFormError(f"relocations of {len(table)} bytes")
    lists: list[bytes] = []
    if table:
        words = memoryview(table).cast("I").tolist()
        zeros = [number for number, word in enumerate(words) if word == 0]
        if len(zeros) not in (2, 3) or zeros[0] != 0:
            raise UnknownFormError(f"{len(zeros)} lists of relocations")
        bounds = [*zeros, len(words)]
        lists = [table[4 * a + 4 : 4 * b] for a, b in pairwise(bounds)]
    if len(lists) == 3:
        return lists[0], lists[1], lists[2]
    return (lists[0], b"", lists[1]) if lists else (b"", b"", b"")


def decompress(payload: bytes) -> bytes:
    """The payload without its compression; the last word is the size that must come out."""
    (size,) = struct.unpack("<I", payload[-4:])
    try:
        if payload.startswith(b"\xfd7zXZ"):
            program = lzma.LZMADecompressor().decompress(payload)
        elif payload.startswith(b"\x1f\x8b"):
            program = zlib.decompressobj(wbits=31).decompress(payload)
        elif payload.startswith(b"\x28\xb5\x2f\xfd"):
            tool = subprocess.run(
                ["zstd", "-dc"], input=payload[:-4], capture_output=True, check=True
            )
            program = tool.stdout
        else:
            raise UnknownFormError(f"compression that begins {payload[:4].hex()}")
    except (lzma.LZMAError, zlib.error, subprocess.CalledProcessError, FileNotFoundError) as error:
        raise UnknownFormError(f"{error}") from error
    if len(program) != size:
        raise UnknownFormError(f"{len(program)} bytes came out, not {size}")
    return program
