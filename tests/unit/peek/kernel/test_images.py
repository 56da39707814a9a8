# SPDX-License-Identifier: GPL-2.0-only
"""Images of all formats: their memory is what was saved, and what cannot be read is named."""

from __future__ import annotations

import ctypes.util
import errno
import gzip
import importlib.util
import os
import resource
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.segments import NoteSegment

from tests.unit.peek.kernel import image_writers
from tests.unit.peek.kernel.image_writers import IMAGES, REGISTER_VALUES
from tests.unit.peek.toy_kernel import RELEASE, ToyKernel
from trapless.base import jail
from trapless.base.console import TraplessError
from trapless.peek import limits
from trapless.peek.errors import WAIT, PeekError
from trapless.peek.interop import core_writer
from trapless.peek.kernel.memories import formats, unpacker
from trapless.peek.kernel.memories.formats import Kind
from trapless.peek.kernel.memories.images import open_memory, open_ram
from trapless.peek.kernel.memories.pieces import END, PIECE, Pieces
from trapless.peek.kernel.memory import RawFile
from trapless.peek.machines import Image

SLOW = pytest.mark.slow
RAM = bytes(ToyKernel().ram)
QUICK = {"raw", "elf", "vmcore", "lime", "kdump-zlib", "migration", "raw.gz"}
HAVE_REGISTERS = {name for name in IMAGES if name.startswith(("elf", "vmcore", "paged", "kdump"))}


def written(folder: Path, data: bytes) -> Path:
    path = folder / "image"
    path.write_bytes(data)
    return path


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name", [one if one in QUICK else pytest.param(one, marks=SLOW) for one in IMAGES]
)
def test_memory_of_an_image_is_what_was_saved(name, tmp_path):
    memories = open_memory(written(tmp_path, IMAGES[name](RAM)))
    memory, *_ = memories
    with memory:
        assert memory.regions()[-1].end == len(RAM)
        assert memory.read(0, len(RAM)) == RAM
        assert sum(length for _, length in memory.populated()) <= len(RAM)
        assert memory.is_saved == (name != "raw")
        expected = {key: REGISTER_VALUES[key] for key in ("ip", "sp", "bp", "cs")}
        assert [expected.items() <= one.items() for one in memory.registers] == (
            [True] * 2 if name in HAVE_REGISTERS else []
        )
    left = [path.name for path in (tmp_path / "cache").glob("*") if path.name != "peek"]
    assert left == []


def test_kernel_in_a_packed_image_is_opened(tmp_path):
    with Image(written(tmp_path, IMAGES["kdump.gz"](RAM))).open() as target:
        assert str(target.release) == RELEASE
        assert len(target.threads()) > 1
        assert [one.cpu for one in target.saved_registers()] == [0, 1]


def test_memory_is_exported_as_a_core_with_note_registers_and_virtual_addresses(tmp_path):
    core = tmp_path / "core"
    with Image(written(tmp_path, IMAGES["kdump-zstd"](RAM))).open() as target:
        size = core_writer.write(target, core)
        with pytest.raises(PeekError, match=r"cannot write .*core: File exists"):
            core_writer.write(target, core)
        banner = target.symbol("linux_banner")
    assert size == len(RAM) and core.stat().st_blocks * 512 < len(RAM) // 2
    assert core.stat().st_mode & 0o777 == 0o600  # it has the keys and passwords of the machine
    with Image(core).open() as copy:
        assert copy.memory.read(0, len(RAM)) == RAM
        assert [one.values["ip"] for one in copy.saved_registers()] == [REGISTER_VALUES["ip"]] * 2
    with core.open("rb") as file:
        notes, text, _ = ELFFile(file).iter_segments()
        assert isinstance(notes, NoteSegment)
        assert [one["n_name"] for one in notes.iter_notes()] == ["CORE", "CORE", "VMCOREINFO"]
        file.seek(text["p_offset"] + banner - text["p_vaddr"])
        assert file.read(13) == b"Linux version"


def ctrl_c() -> None:
    raise KeyboardInterrupt


def disk_full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def restarted() -> None:
    raise PeekError("the target was restarted")


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (None, PeekError, "File too large; what was written of it is removed; .*ulimit -f"),
        (disk_full, PeekError, "No space left .*is removed; name a file on a disk with more room"),
        (ctrl_c, KeyboardInterrupt, None),
        (restarted, PeekError, "the target was restarted"),
    ],
)
def test_core_that_does_not_become_whole_is_removed(event, kind, words, tmp_path, monkeypatch):
    """Without an event, its file may not be longer than a megabyte."""
    core, before = tmp_path / "core", resource.getrlimit(resource.RLIMIT_FSIZE)
    with Image(written(tmp_path, RAM)).open() as target, monkeypatch.context() as patch:
        if event is None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, before[1]))
        else:
            patch.setattr(target, "check_same", event)
        try:
            with pytest.raises(kind, match=words):
                core_writer.write(target, core)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not core.exists()
        patch.undo()
        assert core_writer.write(target, core) == len(RAM)


def test_memory_in_many_ranges_is_gone_through_once_for_a_core(tmp_path, monkeypatch):
    seen, core = list[int](), tmp_path / "core"
    populated = RawFile.populated
    monkeypatch.setattr(
        RawFile, "populated", lambda *all_: seen.append(all_[1]) or populated(*all_)
    )
    with Image(written(tmp_path, IMAGES["lime"](RAM))).open() as target:
        regions = target.memory.regions()
        seen.clear()
        core_writer.write(target, core)
    assert len(regions) > 1 and seen == [one.offset for one in regions]
    with Image(core).open() as copy:
        assert copy.memory.read(0, len(RAM)) == RAM


def test_addresses_that_no_kernel_has_are_exported_as_they_are(tmp_path, monkeypatch):
    core, path = tmp_path / "core", written(tmp_path, RAM)
    with Image(path).open() as target, path.open("r+b") as ram:
        ram.seek(target.physical(target.symbol("page_offset_base")))
        ram.write(b"\xff" * 8)
        ram.flush()
        assert target.direct_map == (1 << 64) - 1
        address = target.symbols.address
        monkeypatch.setattr(
            *(target.symbols, "address"), lambda name: 0 if name == "_end" else address(name)
        )
        monkeypatch.setattr(target, "check_same", lambda: None)  # it sees what was changed here
        core_writer.write(target, core)
    with core.open("rb") as file:
        assert [one["p_type"] for one in ELFFile(file).iter_segments()] == ["PT_NOTE", "PT_LOAD"]


@pytest.mark.parametrize("one", [f for f in formats.FORMATS if f.kind is Kind.OTHER], ids=str)
def test_format_that_is_not_read_is_named_with_a_remedy(one, tmp_path):
    path = written(tmp_path, bytes(one.at) + one.magic + bytes(8192))
    with pytest.raises(PeekError) as raised:
        Image(path).open()
    assert one.name in str(raised.value) and one.remedy in str(raised.value)
    assert WAIT not in str(raised.value)


@pytest.mark.parametrize("text", ["# Notes\n", "Überschrift\r\n" * 9000, "\x1b[1mlog\x1b[0m"])
def test_a_text_is_named_as_such(tmp_path, text):
    with pytest.raises(PeekError, match=r"image is a text file; name a dump, or the file"):
        Image(written(tmp_path, text.encode())).open()


def test_waiting_is_advised_only_where_a_machine_runs(tmp_path, monkeypatch):
    path = written(tmp_path, b"\1" * (1 << 20))
    with pytest.raises(PeekError) as raised:
        Image(path).open()
    assert "of no known format" in str(raised.value) and WAIT not in str(raised.value)
    monkeypatch.setattr("trapless.peek.machines.is_mapped", lambda path: True)
    with pytest.raises(PeekError, match=WAIT):
        Image(path).open()


def test_guest_cannot_pass_its_running_memory_off_as_an_image(tmp_path):
    path = written(tmp_path, b"KDUMP   ".ljust(1 << 20, b"\1"))
    memory, *_ = open_ram(path)
    with memory:
        assert (memory.read(0, 5), memory.is_saved) == (b"KDUMP", False)


@SLOW
def test_image_that_unpacks_without_end_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "UNPACK_S", 1.0)
    bomb = image_writers.IMAGES["raw.xz"](bytes(1 << 20))
    with pytest.raises(PeekError, match=r"unpacking it took more than \d+ s of processor time"):
        open_memory(written(tmp_path, bomb * 8000))


def test_full_disk_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("trapless.peek.kernel.memories.unpacking.FREE_BYTES_MIN", 1 << 60)
    with pytest.raises(PeekError, match=r"more room unpacked than there is in .*TRAPLESS_CACHE"):
        open_memory(written(tmp_path, IMAGES["raw.gz"](RAM)))


def test_cache_that_may_not_be_made_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAPLESS_CACHE", "/sys/cache")  # where not even root makes a folder
    with pytest.raises(TraplessError, match=r"cannot write to the cache: /sys/cache.*CACHE=DIR"):
        open_memory(written(tmp_path, IMAGES["raw.gz"](RAM)))


def test_disk_that_takes_a_part_at_a_time_gets_all(tmp_path, monkeypatch):
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: whole(file, data[:5000], at))
    memory, *_ = open_memory(written(tmp_path, IMAGES["raw.gz"](RAM)))
    with memory:
        is_whole = memory.read(0, len(RAM)) == RAM  # pytest would compare them for minutes
    assert is_whole


@pytest.mark.skipif(
    ctypes.util.find_library("kdumpfile") is None, reason="no libkdumpfile10 of the system"
)
@pytest.mark.parametrize("name", ["kdump-zlib", "kdump-flat"])
def test_dump_is_read_by_the_systems_own_library(tmp_path, monkeypatch, name):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)  # no wheel of drgn
    memory, *_ = open_memory(written(tmp_path, IMAGES[name](RAM)))
    with memory:
        is_whole = memory.read(0, len(RAM)) == RAM
    assert is_whole


def test_image_larger_than_a_file_may_be_is_said(tmp_path):
    path = written(tmp_path, IMAGES["raw.gz"](b"x" + bytes(8 << 20)))
    limits_before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits_before[1]))
    try:
        with pytest.raises(PeekError, match=r"TRAPLESS_CACHE=FOLDER .*\(File too large\)"):
            open_memory(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits_before)


@pytest.mark.parametrize(
    "said",
    [
        b"[" * 20_000,
        b"\xff",
        b"5",
        b'{"size": 4096, "ram": 4096, "registers": [1]}',
        b'{"size": 4096, "ram": 4096, "registers": {}}',
        b'{"size": 4096, "regions": [[0, 1e300, 0]]}',
    ],
)
def test_unpacker_that_says_what_it_must_not_is_ended(said, tmp_path, monkeypatch):
    last = PIECE.pack(END, len(said)) + said
    program = f"import os, time; os.write(1, {last!r}); time.sleep(600)"
    monkeypatch.setattr(jail, "PROGRAM", program)
    with pytest.raises(PeekError, match="the process that unpacks it says what it must not"):
        open_memory(written(tmp_path, IMAGES["raw.gz"](RAM)))


def test_unpacker_that_sleeps_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(jail, "PROGRAM", "import time; time.sleep(600)")
    monkeypatch.setattr(limits, "UNPACK_S", 0.1)
    monkeypatch.setattr(limits, "BUSY_FACTOR", 1)
    with pytest.raises(PeekError, match="unpacking it took more than 0 s"):
        open_memory(written(tmp_path, IMAGES["raw.gz"](RAM)))


def test_missing_library_is_said(tmp_path, monkeypatch):
    library = "trapless.peek.kernel.memories.kdump"
    monkeypatch.setattr(f"{library}.importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(f"{library}.ctypes.util.find_library", lambda name: None)
    with pytest.raises(PeekError, match=r"pip install drgn .* libkdumpfile10; or `makedumpfile -E"):
        open_memory(written(tmp_path, IMAGES["kdump-zlib"](RAM)))


# ---- Damaged images ------------------------------------------------------------------------------


class KeptPieces(Pieces):
    """Pieces that nobody reads; those that would make a file without bounds are counted."""

    def flush(self) -> None:
        assert self._place + len(self._data) <= limits.UNPACKED_BYTES_MAX
        self._data = bytearray()


@SLOW
@pytest.mark.parametrize("name", ["elf", "vmcore", "paged", "lime"])
def test_damaged_descriptions_are_errors(name, tmp_path):
    image = IMAGES[name](RAM)
    for seed in range(50):
        path = written(tmp_path, image_writers.damaged(image, seed))
        try:
            memories = open_memory(path)
        except PeekError as error:
            assert str(path) in str(error)
            continue
        for memory in memories:
            assert len(memory.regions()) <= limits.REGIONS_MAX
            memory.close()


IN_PROCESS = {
    "raw.gz": Kind.GZIP,
    "raw.bz2": Kind.BZIP2,
    "raw.xz": Kind.XZ,
    "raw.zst": Kind.ZSTD,
    "raw.lz4": Kind.LZ4,
    "avml": Kind.AVML,
    "kdump-flat": Kind.FLAT,
    "migration": Kind.MIGRATION,
    "saved": Kind.SAVED,
}


@SLOW
@pytest.mark.parametrize("name", IN_PROCESS)
def test_damaged_streams_end_in_an_error_that_is_the_images(name, tmp_path):
    image, kind, failures = IMAGES[name](RAM), IN_PROCESS[name], 0
    for seed in range(50):
        descriptor = os.open(written(tmp_path, image_writers.damaged(image, seed)), os.O_RDONLY)
        try:
            unpacker.READERS[kind](descriptor, kind, KeptPieces())
        except PeekError:
            failures += 1
        except Exception as error:
            assert unpacker.is_of_image(error), f"seed {seed}: {error!r}"
            failures += 1
        finally:
            os.close(descriptor)
    assert failures > 0


@SLOW
@pytest.mark.parametrize(
    "name", ["kdump-zlib", "kdump-lzo", "kdump-snappy", "kdump-zstd", "kdump-flat"]
)
def test_damaged_dumps_end_in_an_error_whatever_the_library_does(name, tmp_path):
    image = IMAGES[name](RAM)
    for seed in range(50):
        path = written(tmp_path, image_writers.damaged(image, seed))
        try:
            for memory in open_memory(path):
                memory.close()
        except PeekError as error:
            assert "please report" not in str(error), f"seed {seed}: {error}"


def test_packed_image_that_is_cut_off_is_to_be_copied_again(tmp_path, own_cache):
    path = written(tmp_path, gzip.compress(bytes(1 << 20))[:-9])
    with pytest.raises(PeekError, match=r": it is cut off or damaged \(.*\); copy it again$"):
        open_memory(path)
