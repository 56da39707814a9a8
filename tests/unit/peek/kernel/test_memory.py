# SPDX-License-Identifier: GPL-2.0-only
"""Where physical memory lies in a file, and what is said of files that are none or not whole."""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path

import pytest

from trapless.peek.errors import PeekError
from trapless.peek.kernel.guest_processor import (
    NotMappedError,
    PageTables,
    Paging,
    processor_of,
)
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.memory import FOUR_GIB, GIB, OTHER_HOLES, Region, raw_layouts
from trapless.peek.kernel.vmcoreinfo import Vmcoreinfo

MIB = 1 << 20


def sparse(path: Path, size: int, **marks: int) -> Path:
    """A file of that size with each mark's name at its offset."""
    with path.open("wb") as file:
        file.truncate(size)
        for text, offset in marks.items():
            file.seek(offset)
            file.write(text.encode())
    return path


def close(layouts):
    for memory in layouts:
        memory.close()


def test_small_file_has_one_layout_without_hole():
    assert raw_layouts(GIB) == [[Region(0, GIB, 0)]]


@pytest.mark.parametrize(("size", "holes"), [(3 * GIB, [2 * GIB]), (4 * GIB, [3 * GIB, 2 * GIB])])
def test_large_file_is_split_as_qemu_splits(size, holes):
    layouts = raw_layouts(size)
    assert layouts[-1] == [Region(0, size, 0)]
    for regions, hole in zip(layouts, holes, strict=False):
        assert regions == [Region(0, hole, 0), Region(FOUR_GIB, size - hole, hole)]


def test_image_without_its_hole_is_tried_with_the_holes_of_other_monitors():
    size = 6 * GIB
    firsts = [regions[0].length for regions in raw_layouts(size, None, OTHER_HOLES)]
    assert firsts == [3 * GIB, 2 * GIB, 0xD0000000, 0xE0000000, size]


def test_memory_above_hole_is_read_from_4_gib_on(tmp_path):
    path = sparse(tmp_path / "ram", 3 * GIB, low=2 * GIB - 3, high=2 * GIB)
    memory, *_ = open_memory(path, hole=2 * GIB)
    with memory:
        assert memory.read(2 * GIB - 3, 3) == b"low"
        assert memory.read(FOUR_GIB, 4) == b"high"
        assert memory.size == 3 * GIB
        with pytest.raises(PeekError, match=r"no physical address 0x80000000: its memory is"):
            memory.read(2 * GIB, 1)


def test_holes_of_a_sparse_file_are_skipped(tmp_path):
    path = sparse(tmp_path / "ram", 512 * MIB, here=256 * MIB + 8192)
    memory, *_ = open_memory(path)
    with memory:
        parts = list(memory.populated())
        assert sum(length for _, length in parts) < MIB
        assert any(start <= 256 * MIB + 8192 < start + length for start, length in parts)
        assert all(start % 4096 == 0 for start, _ in parts)


@pytest.mark.parametrize("hole", [0, 4095, 5 << 30])
def test_impossible_hole_is_refused(tmp_path, hole):
    with pytest.raises(PeekError, match="cannot end at") as caught:
        open_memory(sparse(tmp_path / "ram", MIB), hole)
    assert caught.value.status == 2


def test_file_that_shrinks_is_an_error_not_a_signal(tmp_path):
    path = sparse(tmp_path / "ram", 16 * MIB)
    memory, *_ = open_memory(path)
    with memory:
        os.truncate(path, MIB)
        with pytest.raises(PeekError, match="truncated, or the machine that it belonged to"):
            memory.read(8 * MIB, 8)
        assert list(memory.populated()) == []


def test_what_is_no_memory_is_refused_by_name(tmp_path):
    for path, said in (
        (tmp_path / "absent", "cannot open .*: No such file or directory$"),
        (Path("web"), "cannot open web: No such file or directory; a VM is named by --vm web"),
        (tmp_path, "not a file of memory"),
        (Path("/dev/null"), "not a file of memory"),
        (sparse(tmp_path / "tiny", 100), "100 bytes, less than one page"),
    ):
        with pytest.raises(PeekError, match=said):
            open_memory(path)


def test_a_file_of_another_user_has_the_remedy(tmp_path, monkeypatch):
    path, real = sparse(tmp_path / "ram", MIB), os.open
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    def refuse(name, flags, *rest, **options):
        if flags & os.O_NONBLOCK:
            raise PermissionError(errno.EACCES, "Permission denied", name)
        return real(name, flags, *rest, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PeekError, match="ram may not be read by this user; look as the user who"):
        open_memory(path)


def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(PeekError, match="not a file of memory"):
        open_memory(tmp_path / "pipe")


def test_memory_needs_no_right_to_write(tmp_path):
    path = sparse(tmp_path / "ram", MIB, text=4096)
    path.chmod(0o400)
    before = path.stat()
    memory, *_ = open_memory(path)
    with memory:
        assert memory.read(4096, 4) == b"text"
        (file,) = memory.files
        flags = (
            os.readlink(f"/proc/self/fd/{file.descriptor}"),
            os.get_inheritable(file.descriptor),
        )
        assert flags == (str(path), False)
    after = path.stat()
    assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)


# ---- ELF cores -----------------------------------------------------------------------------------


def core(path: Path, segments, kind: int = 4, machine: int = 62, count: int | None = None) -> Path:
    """An ELF core with (physical address, bytes) as its memory."""
    number = len(segments) if count is None else count
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHH", kind, machine, 1, 0, 64, 0, 0, 64, 56, number)
    place, table, data = 64 + 56 * (len(segments) + 1), b"", b""
    for start, content in segments:
        table += struct.pack("<IIQQQQQQ", 1, 7, place, 0, start, len(content), len(content), 0)
        place += len(content)
        data += content
    path.write_bytes(head.ljust(64, b"\0") + table + bytes(56) + data)
    return path


def test_elf_core_is_read_by_its_segments(tmp_path):
    path = core(tmp_path / "core", [(0, b"a" * 5000), (FOUR_GIB, b"b" * 4096)])
    memory, *_ = open_memory(path)
    with memory:
        assert memory.read(4999, 1) == b"a"
        assert memory.read(FOUR_GIB + 4000, 96) == b"b" * 96
        assert (memory.size, memory.is_saved) == (9096, True)
        with pytest.raises(PeekError, match="no physical address 0x1388"):
            memory.read(4990, 20)


def test_elf_core_needs_no_hole(tmp_path):
    with pytest.raises(PeekError, match="describes its own layout"):
        open_memory(core(tmp_path / "core", [(0, bytes(4096))]), hole=GIB)


def test_damaged_elf_cores_are_refused(tmp_path):
    segment = [(0, bytes(8192))]
    whole = core(tmp_path / "whole", segment).read_bytes()
    (tmp_path / "cut").write_bytes(whole[:6000])
    (tmp_path / "big-endian").write_bytes(whole[:5] + b"\x02" + whole[6:])
    for name, path in {
        f"cut off .* 6000 bytes, and a whole one {len(whole)}; copy it again": tmp_path / "cut",
        "64-bit little-endian": tmp_path / "big-endian",
        "not the memory of an x86-64": core(tmp_path / "riscv", segment, machine=243),
        "x86-64 or arm64 machine": core(tmp_path / "program", segment, kind=2),
        "damaged table of segments": core(tmp_path / "none", segment, count=0),
        "inside its table|without memory|truncated": core(tmp_path / "many", segment, count=999),
    }.items():
        with pytest.raises(PeekError, match=name):
            open_memory(path)


# ---- Page tables ---------------------------------------------------------------------------------


FOUR, FIVE = Paging(4, 48), Paging(5, 57)


def tables(entries: dict[int, int], form: Paging = FOUR, root: int = 0x1000) -> PageTables:
    """Page tables whose entries stand at the given physical addresses; all others are 0."""

    def read(address: int, length: int) -> bytes:
        assert length == 8
        return struct.pack("<Q", entries.get(address, 0))

    return PageTables(read, root, form)


VIRTUAL = (1 << 39 | 2 << 30 | 3 << 21 | 4 << 12) + 0x567
FOUR_LEVELS = {0x1008: 0x2003, 0x2010: 0x3003, 0x3018: 0x4003, 0x4020: 0x8000_0000_0009_9063}


def test_four_levels_are_walked():
    assert tables(FOUR_LEVELS).physical(VIRTUAL) == (0x99567, 0x1000 - 0x567)


def test_five_levels_are_walked():
    five = {0x1028: 0x5003} | {k + 0x4000 if k < 0x2000 else k: v for k, v in FOUR_LEVELS.items()}
    found = tables(five, FIVE).physical(5 << 48 | VIRTUAL)
    assert found == (0x99567, 0x1000 - 0x567)


def test_large_pages_end_the_walk():
    inside = VIRTUAL & (1 << 21) - 1
    two = FOUR_LEVELS | {0x3018: 0x4020_0083}
    assert tables(two).physical(VIRTUAL) == (0x4020_0000 + inside, (1 << 21) - inside)
    inside = VIRTUAL & (1 << 30) - 1
    one = FOUR_LEVELS | {0x2010: 0x8000_0083}
    assert tables(one).physical(VIRTUAL) == (0x8000_0000 + inside, (1 << 30) - inside)


def test_bit_of_an_encrypting_machine_is_no_address():
    marked = {place: entry | 1 << 47 for place, entry in FOUR_LEVELS.items()}
    assert tables(marked, Paging(4, 48, encryption=1 << 47)).physical(VIRTUAL)[0] == 0x99567


@pytest.mark.parametrize("missing", FOUR_LEVELS)
def test_what_is_not_mapped_is_said(missing):
    with pytest.raises(NotMappedError, match=f"no memory is mapped at {VIRTUAL:#x}"):
        tables({k: v & ~1 if k == missing else v for k, v in FOUR_LEVELS.items()}).physical(VIRTUAL)


def test_addresses_that_no_machine_has_are_refused():
    assert FOUR.canonical(0xFFFF_8000_0000_0000)
    assert FOUR.canonical(0x0000_7FFF_FFFF_FFFF)
    assert FIVE.canonical(0xFF11_0000_0000_0000)
    for virtual in (0x0000_8000_0000_0000, 0xFF11_0000_0000_0000, 1 << 64, -1):
        assert not FOUR.canonical(virtual)
        with pytest.raises(NotMappedError, match="not an address of a machine with 4 levels"):
            tables({}).physical(virtual)


LPA2 = {"PAGESIZE": 4096, "VA_BITS": 52, "TCR_EL1_T1SZ": 12}
ARM64 = {
    "4 KiB, 48 bits": ({"PAGESIZE": 4096, "VA_BITS": 48}, 4, 9),
    "4 KiB, 52 bits": (LPA2, 5, 4),
    "4 KiB, 52 bits on a processor of 48": (LPA2 | {"TCR_EL1_T1SZ": 16}, 4, 9),
    "16 KiB, 47 bits": ({"PAGESIZE": 1 << 14, "VA_BITS": 52, "TCR_EL1_T1SZ": 17}, 3, 11),
    "16 KiB, 52 bits": ({"PAGESIZE": 1 << 14, "VA_BITS": 52}, 4, 5),
    "64 KiB, 48 bits": ({"PAGESIZE": 1 << 16, "VA_BITS": 48}, 3, 6),
    # The processor begins in the middle of the table, which is that of longer addresses.
    "64 KiB, 52 bits on a processor of 48": (
        {"PAGESIZE": 1 << 16, "VA_BITS": 52, "TCR_EL1_T1SZ": 16},
        *(3, 10),
    ),
}


def arm64_note(values: dict[str, int]) -> Vmcoreinfo:
    lines = [f"PAGESIZE={values['PAGESIZE']}", "OSRELEASE=6.x", "NUMBER(kimage_voffset)=0x1000"]
    lines += [f"NUMBER({name})={values[name]:#x}" for name in values if name != "PAGESIZE"]
    return Vmcoreinfo.of("\n".join([*lines, "NUMBER(PHYS_OFFSET)=0x40000000"]).encode())


@pytest.mark.parametrize("name", ARM64)
def test_page_tables_of_arm64_are_walked(name):
    values, levels, top_bits = ARM64[name]
    form = processor_of(arm64_note(values)).paging
    assert (form.levels, form.top_bits) == (levels, top_bits)
    virtual = -(1 << form.address_bits) & (1 << 64) - 1 | 0x123  # one of the kernel's
    for level in range(levels, 0, -1):
        virtual |= level << form.page_shift + form.index_bits * (level - 1)
    entries, table, places = {}, 0x10000, []
    for level in range(levels, 0, -1):
        bits = top_bits if level == levels else form.index_bits
        index = virtual >> form.page_shift + form.index_bits * (level - 1) & (1 << bits) - 1
        following = table + 0x10000 if level > 1 else 0x7ABC_0000
        places.append(table + 8 * index)
        entries[places[-1]] = following | 3 | 1 << 54
        table = following
    walk = tables(entries, form, 0x10000)
    assert walk.physical(virtual) == (0x7ABC_0123, (1 << form.page_shift) - 0x123)
    with pytest.raises(NotMappedError):
        walk.physical(virtual - (1 << form.page_shift))
    block, last = places[-2:]
    size = 1 << form.page_shift + form.index_bits
    entries[block] = 5 * size | 1
    assert walk.physical(virtual) == (
        5 * size + virtual % size,
        size - virtual % size,
    )
    entries[block] = 0x10000 * levels | 3
    entries[last] = 0x7ABC_0000 | 1
    with pytest.raises(NotMappedError, match="last page table"):
        walk.physical(virtual)


@pytest.mark.parametrize(
    ("values", "entry", "physical"),
    [
        ({"PAGESIZE": 1 << 16, "VA_BITS": 48}, 0xA0_0000_5003, 0x5_00A0_0000_0000),
        (LPA2, 0x0002_00A0_0000_1303, 0xE_00A0_0000_1000),
        # Without it, these bits say how the page is shared.
        (LPA2 | {"TCR_EL1_T1SZ": 16}, 0x00A0_0000_1303, 0xA0_0000_1000),
    ],
)
def test_long_physical_addresses_of_arm64_are_put_together(values, entry, physical):
    assert processor_of(arm64_note(values)).paging.decoded(entry, 1) == (physical, True)


def test_arm64_maps_memory_from_its_beginning():
    found = processor_of(arm64_note(LPA2))
    assert found.direct_map == 0xFFEF_FFFF_C000_0000
    assert found.image_shift == -0x1000


@pytest.mark.parametrize(
    "values",
    [{"PAGESIZE": 8192, "VA_BITS": 48}, LPA2 | {"TCR_EL1_T1SZ": 60}, LPA2 | {"VA_BITS": 60}],
)
def test_a_note_of_no_arm64_is_refused(values):
    with pytest.raises(PeekError, match="no arm64 has such"):
        processor_of(arm64_note(values))


def test_a_kernel_of_another_processor_is_named():
    with pytest.raises(PeekError, match=r"of 6.x has neither .*: kernels of other processors"):
        processor_of(Vmcoreinfo.of(b"OSRELEASE=6.x\nPAGESIZE=4096"))
