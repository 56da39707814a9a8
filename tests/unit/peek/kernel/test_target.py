# SPDX-License-Identifier: GPL-2.0-only
"""Reading a kernel out of raw memory: names, types and per-CPU data of each generation of kernels,
and what is said of memory that is damaged, foreign, cut short or lying."""

from __future__ import annotations

import hashlib
import os
import random
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.unit.peek import toy_kernel
from tests.unit.peek.toy_kernel import MASK, MODULES_VIRTUAL, RAM_BYTES, ToyKernel
from trapless.base.paths import cache_dir
from trapless.peek.errors import PeekError
from trapless.peek.kernel import symbol_cache
from trapless.peek.kernel.image import _running as choose_running
from trapless.peek.kernel.image import locate
from trapless.peek.kernel.kallsyms import Symbols
from trapless.peek.kernel.memory import Region
from trapless.peek.kernel.target import Target

pytestmark = pytest.mark.usefixtures("own_cache")

MIB = 1 << 20


class BytesMemory:
    """Memory that is a bytearray; what a test changes in it, the target has changed."""

    name = "the test's memory"

    def __init__(self, ram: bytearray) -> None:
        self._ram = ram

    @property
    def size(self) -> int:
        return len(self._ram)

    def regions(self) -> tuple[Region, ...]:
        return (Region(0, len(self._ram), 0),)

    def populated(self) -> Iterator[tuple[int, int]]:
        yield 0, len(self._ram)

    def read(self, address: int, length: int) -> bytes:
        if address < 0 or address + length > len(self._ram):
            raise PeekError(f"no physical address {address:#x}")
        return bytes(self._ram[address : address + length])

    def read_all(self, places: Sequence[tuple[int, int]]) -> list[bytes]:
        return [self.read(*place) for place in places]


def opened(kernel: ToyKernel) -> Target:
    return Target(locate([BytesMemory(kernel.ram)]))


# ---- What is found -------------------------------------------------------------------------------


def test_every_symbol_has_its_address(kernel):
    target = opened(kernel)
    for name, address in kernel.symbols.items():
        assert target.symbol(name) == address, name


def test_kernel_says_who_it_is(kernel):
    target = opened(kernel)
    assert (str(target.release), target.build_id) == (kernel.release, kernel.build_id)
    assert str(target.banner) == f"Linux version {kernel.release} (toy) #1"
    assert target.page_tables.form.levels == kernel.levels


def test_addresses_have_names(kernel):
    target = opened(kernel)
    schedule = target.symbol("schedule")
    assert str(target.name_of(schedule)) == "schedule"
    assert str(target.name_of(schedule + 0x7F)) == "schedule+0x7f"
    assert str(target.name_of(schedule + 0x80)) == "schedule_timeout"
    assert str(target.name_of(0x1234)) == "0x1234"
    assert str(target.name_of(kernel.direct_map)) == f"{kernel.direct_map:#x}"


def test_addresses_in_modules_have_names(kernel):
    target = opened(kernel)
    assert str(target.name_of(MODULES_VIRTUAL + 0x14)) == "toy_open+0x4 [toy_driver]"
    assert str(target.name_of(MODULES_VIRTUAL + 0x80)) == "toy_close [toy_driver]"
    assert [str(module.name) for module in target.modules] == ["toy_driver"]


def test_module_that_is_loaded_later_is_found(kernel):
    head = kernel.physical(kernel.symbols["modules"])
    link = bytes(kernel.ram[head : head + 8])
    kernel.put(head, struct.pack("<Q", kernel.symbols["modules"]))  # none yet
    target = opened(kernel)
    assert str(target.name_of(MODULES_VIRTUAL + 0x14)) == f"{MODULES_VIRTUAL + 0x14:#x}"
    kernel.put(head, link)
    assert str(target.name_of(MODULES_VIRTUAL + 0x14)) == "toy_open+0x4 [toy_driver]"


def test_torn_list_of_modules_ends(kernel):
    target = opened(kernel)
    for link in (0, 0xDEAD_0000_0000_0100, MODULES_VIRTUAL + 0x408):  # the last is a circle
        kernel.put(toy_kernel.MODULE_AT + 0x408, struct.pack("<Q", link))
        target.modules.refresh()
        assert str(target.name_of(0x1234)) == "0x1234"


def test_percpu_data_is_each_cpus_own(kernel):
    target = opened(kernel)
    assert target.cpus_online == target.cpus_possible == (0, 1)
    for cpu in target.cpus_online:
        queue = target.percpu("runqueues", cpu)
        at = toy_kernel.PERCPU_AT + cpu * toy_kernel.PERCPU_BYTES + 0x80
        assert target.physical(queue) == at
        running = target.read(queue + target.offset("rq", "nr_running"), 4)
        assert struct.unpack("<I", running) == (3 + cpu,)
    with pytest.raises(PeekError, match="no CPU 2; it has 0, 1"):
        target.percpu("runqueues", 2)


def test_cpu_that_goes_offline_is_seen(kernel):
    target = opened(kernel)
    kernel.put(kernel.physical(kernel.symbols["__cpu_online_mask"]), b"\x01")
    assert target.cpus_online == (0,)


def test_members_are_found_by_path(kernel):
    target = opened(kernel)
    assert target.offset("task_struct", "comm") == 8
    assert target.offset("task_struct", "pid") == 4  # inside an anonymous union, behind a typedef
    assert target.offset("uts_namespace", "name.release") == 8 + 65
    high = target.place("flags", "high")
    assert (high.offset, high.bit, high.bits) == (0, 3, 5)
    assert target.sizeof("rq") == 32
    assert target.has_member("module", "mem[1].base") == (kernel.form != "below-base")
    for path, said in (
        ("nothing", "no member nothing"),
        ("comm.x", "no member x"),
        ("comm[16]", "has 16 elements"),
        ("pid[0]", "pid is no array"),
        ("a b", "no path of members"),
    ):
        with pytest.raises(PeekError, match=said):
            target.place("task_struct", path)
    with pytest.raises(PeekError, match="no structure 'nothing'"):
        target.place("nothing", "x")
    with pytest.raises(PeekError, match="is a bit field"):
        target.offset("flags", "high")


def test_names_that_mean_nothing_or_several_are_said(kernel):
    target = opened(kernel)
    with pytest.raises(PeekError, match="no symbol 'nothing'"):
        target.symbol("nothing")
    with pytest.raises(PeekError, match="'toy_static' stands for 2 places"):
        target.symbol("toy_static")


def test_memory_is_read_across_pages(kernel):
    target = opened(kernel)
    start = kernel.direct_map + (2 << 20) - 4
    assert target.read(start, 8) == bytes(kernel.ram[(2 << 20) - 4 : (2 << 20) + 4])
    with pytest.raises(PeekError, match="no memory is mapped"):
        target.read(kernel.direct_map + RAM_BYTES - 4, 8)


# ---- The cache -----------------------------------------------------------------------------------


def cached(kernel: ToyKernel) -> Path:
    return cache_dir() / "peek" / kernel.build_id


def test_second_opening_takes_symbols_from_the_cache(kernel, monkeypatch):
    first = opened(kernel).symbols
    assert isinstance(first, Symbols)
    assert f"{first.addresses[-1]:016x}" in (cached(kernel) / "System.map").read_text()
    monkeypatch.setattr("trapless.peek.kernel.kallsyms.decode", None)  # is not called
    assert opened(kernel).symbols == first


def test_cached_symbols_of_another_kernel_are_not_believed(kernel):
    opened(kernel)
    other = ToyKernel(form=kernel.form, levels=kernel.levels)
    table = other.physical(other.symbols["kallsyms_names"])
    other.ram[other.ram.index(b"Tlinux_banner", table) + 5] = ord("v")  # says the same build-id
    with pytest.raises(PeekError, match="no symbol 'linux_banner'"):
        opened(other)


@pytest.mark.parametrize("content", ["", "garbage\n", "0000000000000001 T _text\n"])
def test_damaged_cache_is_made_anew(kernel, content):
    opened(kernel)
    good = (cached(kernel) / "System.map").read_text()
    (cached(kernel) / "System.map").write_text(content)
    assert opened(kernel).symbol("schedule") == kernel.symbols["schedule"]
    assert (cached(kernel) / "System.map").read_text() == good


def test_build_id_of_a_target_cannot_lead_out_of_the_cache(tmp_path):
    kernel = ToyKernel(build_id="../../../evil")
    with pytest.raises(PeekError, match=r"BUILD-ID=.* not hexadecimal"):
        opened(kernel)
    assert not list(tmp_path.rglob("*evil*"))


# ---- What changes while it is observed -----------------------------------------------------------


def test_same_target_stays_the_same(kernel):
    opened(kernel).check_same()


@pytest.mark.parametrize(
    "what", ["another canary", "another place", "no page tables", "wild page tables", "all zeros"]
)
def test_restarted_target_is_noticed(kernel, what):
    target = opened(kernel)
    tables = target.page_tables.root
    if what == "another canary":
        where = kernel.physical(kernel.symbols["init_task"]) + 24
        kernel.put(where, struct.pack("<Q", 1))
    elif what == "another place":
        kernel.put_note("OSRELEASE=6.1.0-toy\nBUILD-ID=" + "f" * 40)
    elif what == "no page tables":
        kernel.put(tables, bytes(4096))
    elif what == "wild page tables":  # which lead out of the memory
        kernel.put(tables, b"\xff" * 4096)
    else:
        kernel.ram[:] = bytes(RAM_BYTES)
    with pytest.raises(PeekError, match="the target was restarted since it was opened"):
        target.check_same()


@pytest.mark.parametrize("left", [0, toy_kernel.NOTE_AT, RAM_BYTES - 4096])
def test_memory_that_went_away_is_no_restart(tmp_path, left):
    kernel = ToyKernel()
    path = kernel.save(tmp_path)
    with Target.open(path) as target:
        kernel.put(target.page_tables.root, bytes(4096))
        path.write_bytes(kernel.ram[:left])
        with pytest.raises(PeekError, match=r"the target is gone: .* was truncated"):
            target.check_same()


def test_note_from_before_a_reboot_is_passed_over(kernel):
    stale = kernel.note().replace(kernel.release, "5.0.0-old")
    kernel.put_note(stale, at=toy_kernel.NOTE_AT - 8192)
    kernel.put_note(kernel.note().replace(f"{kernel.phys_base}", "4096"), at=0x580000)
    assert str(opened(kernel).release) == kernel.release


@pytest.mark.parametrize("at", [toy_kernel.NOTE_AT - 8192, toy_kernel.NOTE_AT + 8192])
def test_copy_of_the_note_is_passed_over(kernel, at):
    kernel.put_note(kernel.note(), at)  # as a core dump in the target's page cache has it
    assert opened(kernel).info.address == toy_kernel.NOTE_AT


def test_of_two_kernels_the_one_whose_clock_moves_is_meant(monkeypatch):
    kernels = [ToyKernel(), ToyKernel(release="6.1.0-before-the-reboot")]
    running, stopped = (locate([BytesMemory(kernel.ram)]) for kernel in kernels)

    def tick(_seconds: float) -> None:
        kernels[0].put(kernels[0].physical(kernels[0].symbols["jiffies_64"]), b"\xff")

    monkeypatch.setattr("time.sleep", tick)
    assert choose_running([stopped, running]) is running
    with pytest.raises(PeekError, match=r"2 kernels, and no clock shows which .*before-the-reboot"):
        choose_running([stopped, running])  # neither moves any more


# ---- Images that are no good ---------------------------------------------------------------------


def test_image_without_kernel_says_why(tmp_path):
    empty, foreign = tmp_path / "empty", tmp_path / "foreign"
    empty.write_bytes(bytes(MIB))
    foreign.write_bytes(random.Random(1).randbytes(MIB))
    with pytest.raises(PeekError, match="all zeros: the machine has not been started"):
        Target.open(empty)
    with pytest.raises(PeekError, match="no VMCOREINFO; either no Linux runs in it"):
        Target.open(foreign)


def test_kernel_without_note_is_named(kernel):
    kernel.put(toy_kernel.NOTE_AT, bytes(4096))
    with pytest.raises(PeekError, match=r'no VMCOREINFO; "Linux version 6\.1\.0-toy" is there'):
        opened(kernel)


def test_kernel_whose_symbols_are_functions_alone_says_so(kernel):
    kernel.ram = kernel.ram.replace(b"init_task", b"other_tsk")
    with pytest.raises(PeekError, match="built without CONFIG_KALLSYMS_ALL"):
        opened(kernel)


def test_truncated_image_is_refused_wherever_it_ends(tmp_path):
    kernel = ToyKernel()
    path = kernel.save(tmp_path)
    for size in (RAM_BYTES - 4096, toy_kernel.PERCPU_AT, toy_kernel.NOTE_AT + 4096, MIB):
        with path.open("r+b") as file:
            file.truncate(size)
        with pytest.raises(PeekError, match=r"truncated|ends before|no VMCOREINFO"):
            Target.open(path)


def test_file_with_a_kernel_is_opened(tmp_path):
    kernel = ToyKernel()
    with Target.open(kernel.save(tmp_path)) as target:
        assert target.symbol("schedule") == kernel.symbols["schedule"]


def lie(kernel: ToyKernel, name: str, data: bytes, distance: int = 0) -> None:
    kernel.put(kernel.physical(kernel.symbols[name]) + distance, data)


LIES = {
    "banner of another kernel": (
        lambda kernel: lie(kernel, "linux_banner", b"Linux version 9.9"),
        "says of itself 'Linux version 9.9",
    ),
    "build-id of another kernel": (
        lambda kernel: lie(kernel, "__start_notes", bytes(20), 16),
        "has build-id 0000",
    ),
    "release of another kernel": (
        lambda kernel: lie(kernel, "init_uts_ns", b"9.9-other\0", 8 + 65),
        "init_uts_ns says release '9.9-other'",
    ),
    "offsets of another kernel": (
        lambda kernel: lie(kernel, "init_task", b"kworker/1:0", 8),
        "init_task is called 'kworker",
    ),
    "base of the direct map": (
        lambda kernel: lie(kernel, "page_offset_base", struct.pack("<Q", kernel.direct_map + 4096)),
        "page_offset_base is wrong for",
    ),
    "bases of per-CPU data": (
        lambda kernel: lie(kernel, "__per_cpu_offset", struct.pack("<Q", kernel.direct_map)),
        "CPU 0 has its data at|percpu bases",
    ),
    "run queues": (
        lambda kernel: kernel.put(toy_kernel.PERCPU_AT + 0x88, b"\x07"),
        "run queue of CPU 0 says it is of CPU 7",
    ),
    "number of symbols": (
        lambda kernel: lie(kernel, "kallsyms_num_syms", b"\xff\xff\xff\x7f"),
        "table of symbols claims 2147483647",
    ),
    "addresses of symbols": (
        lambda kernel: lie(kernel, "kallsyms_offsets", bytes(200)),
        "table of symbols and its VMCOREINFO disagree",
    ),
    "page tables": (
        lambda kernel: lie(kernel, "init_top_pgt", bytes(4096)),
        "no memory is mapped",
    ),
    "types": (
        lambda kernel: lie(kernel, "__start_BTF", b"\0\0"),
        "BTF begins with 0x0",
    ),
    "memory": (
        lambda kernel: lie(kernel, "max_pfn_mapped", struct.pack("<Q", 1 << 30)),
        "memory up to 0x40000000000: the file was truncated",
    ),
    "no CPU": (
        lambda kernel: lie(kernel, "__cpu_online_mask", bytes(8)),
        "no CPU is online",
    ),
    "note": (
        lambda kernel: kernel.put_note(kernel.note().replace("phys_base)=", "phys_base)=x")),
        "phys_base.*no number",
    ),
    "short note": (
        lambda kernel: kernel.put_note("OSRELEASE=6.1.0-toy"),
        r"VMCOREINFO of 6.1.0-toy has neither NUMBER\(phys_base\)",
    ),
}


@pytest.mark.parametrize("what", LIES)
def test_symbols_that_lie_are_found_out(kernel, what):
    tell, said = LIES[what]
    tell(kernel)
    with pytest.raises(PeekError, match=said):
        opened(kernel)


def test_addresses_wrap_as_in_c():
    target = opened(ToyKernel(form="from-place"))
    assert 0 <= target.percpu("runqueues", 0) <= MASK


def test_kernels_that_guests_make_up_do_not_fill_the_disk(tmp_path, monkeypatch):
    """A guest may have another build-id after each restart."""
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path))
    monkeypatch.setattr(symbol_cache, "KEPT_BYTES_MAX", 10_000)
    store, text = symbol_cache.FileStore(), 1000 * b"x"
    digest = f"tables {hashlib.sha256(text).hexdigest()}\n".encode()
    for number in range(30):
        store.save(f"{number:016x}", digest, text)
        os.utime(tmp_path / f"peek/{number:016x}", (number, number))
    kept = sorted(path.name for path in (tmp_path / "peek").iterdir() if path.is_dir())
    assert kept == [f"{number:016x}" for number in range(21, 30)]
    assert store.load(kept[-1]) == (digest, text)
    store.save("f" * 16, b"", 20_000 * b"x")
    assert len(list((tmp_path / "peek").rglob("*"))) == 4  # a lock, and one kernel
