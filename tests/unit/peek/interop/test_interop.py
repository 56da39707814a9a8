# SPDX-License-Identifier: GPL-2.0-only
"""Files for other tools: the symbol table for volatility3 and the ELF file with symbols, of a toy
kernel, of damaged ones, and of a sandbox that a guest has taken over."""

from __future__ import annotations

import base64
import json
import lzma
import random
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from tests.unit.peek.toy_kernel import MODULES_VIRTUAL, SHIFT, ToyKernel, Types
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.interop import elf_symbols, symbol_table
from trapless.peek.kernel.btf import Btf
from trapless.peek.kernel.target import Target
from trapless.peek.sandbox import isf, messages
from trapless.peek.sandbox.client import open_target

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.timeout(60)]

ROOT = Path(__file__).resolve().parents[4]
POINTER, ARRAY = 2, 3
TYPEDEF = 8
DAMAGED = 50


@pytest.fixture
def target(kernel, tmp_path):
    with open_target(kernel.save(tmp_path)) as opened:
        yield opened


# ---- The symbol table ----------------------------------------------------------------------------


def written(target, path):
    symbol_table.write(target, path)
    return json.loads((lzma.open if path.suffix == ".xz" else open)(path).read())


def test_table_has_the_types_of_the_kernel(target, tmp_path):
    table = written(target, tmp_path / "table.json")
    task = table["user_types"]["task_struct"]
    assert (task["kind"], task["size"]) == ("struct", target.sizeof("task_struct"))
    for name in ("comm", "stack_canary", "tasks", "signal"):
        assert task["fields"][name]["offset"] == target.offset("task_struct", name)
    char = {"kind": "base", "name": "char"}
    assert task["fields"]["comm"]["type"] == {"kind": "array", "count": 16, "subtype": char}
    assert task["fields"]["tasks"]["type"] == {"kind": "struct", "name": "list_head"}
    anonymous = next(one for one in task["fields"].values() if one.get("anonymous"))
    assert table["user_types"][anonymous["type"]["name"]]["fields"].keys() == {"pid", "other"}
    integer = {"kind": "base", "name": "int"}
    bits = {"kind": "bitfield", "bit_position": 3, "bit_length": 5, "type": integer}
    assert table["user_types"]["flags"]["fields"]["high"] == {"type": bits, "offset": 0}
    states = {"size": 4, "base": "unsigned int", "constants": {"TOY_SLEEPS": 0, "TOY_RUNS": 7}}
    assert table["enums"]["toy_state"] == states
    assert {"size": 4, "base": "int", "constants": {"TOY_LOST": -1}} in table["enums"].values()
    assert table["base_types"]["pointer"]["size"] == 8
    every = [
        field["type"] for one in table["user_types"].values() for field in one["fields"].values()
    ]
    assert all(named(one) in table[section_of(one)] for one in every if section_of(one))


def section_of(described):
    while "subtype" in described or described["kind"] == "bitfield":
        described = described.get("subtype") or described["type"]
    kinds = {"struct": "user_types", "union": "user_types", "enum": "enums", "base": "base_types"}
    return kinds.get(described["kind"])


def named(described):
    while "name" not in described:
        described = described.get("subtype") or described["type"]
    return described["name"]


def test_table_has_symbols_as_linked_and_their_types(target, kernel, tmp_path):
    table = written(target, tmp_path / "table.json")
    assert table["symbols"].keys() >= kernel.symbols.keys() | {"toy_static"}
    assert table["symbols"]["toy_static"]["address"] == kernel.image - SHIFT + 0x300
    init_task = {"kind": "struct", "name": "task_struct"}
    entry = {"address": target.symbol("init_task") - SHIFT, "type": init_task}
    assert table["symbols"]["init_task"] == entry
    elements = {"kind": "array", "count": 3, "subtype": {"kind": "base", "name": "long"}}
    assert table["symbols"]["vm_node_stat"]["type"] == elements
    assert "type" not in table["symbols"]["schedule"]
    banner = base64.b64decode(table["symbols"]["linux_banner"]["constant_data"])
    assert banner == target.read(target.symbol("linux_banner"), len(banner))
    assert banner.endswith(b"#1\n\0")


def test_table_is_packed_by_its_name_and_in_parts_the_same(target, tmp_path, monkeypatch):
    whole = written(target, tmp_path / "table.json")
    assert written(target, tmp_path / "table.json.xz") == whole
    monkeypatch.setattr(isf, "PART_ENTRIES", 7)
    monkeypatch.setattr(isf, "PART_FIELDS", 5)
    with Target.open(Path(target.memory.name)) as again:
        for section in isf.SECTIONS:
            start, entries = 0, []
            while not entries or start:
                start, more = isf.part(again, section, start)
                entries += more
            assert dict(entries) == whole[section]


def test_records_without_a_name_have_that_of_their_typedef_and_namesakes_a_number():
    types = Types()
    integer = types.integer("int", 4)
    unnamed = types.record("", 4, [("value", integer, 0)])
    types.add(TYPEDEF, "kuid_t", unnamed)
    first = types.record("twice", 4, [("value", integer, 0)])
    second = types.record("twice", 8, [("other", integer, 4)])
    described = isf._Types(Btf(types.data()))
    names = {number: described.described(number)["name"] for number in (unnamed, first, second)}
    assert names == {unnamed: "kuid_t", first: "twice", second: f"twice_{second:x}"}
    entries = dict(described.part("user_types", 0)[1])
    assert (entries["twice"]["size"], entries[names[second]]["size"]) == (4, 8)


# ---- The ELF file --------------------------------------------------------------------------------


def test_elf_file_has_code_types_and_symbols_where_they_are(target, tmp_path):
    elf_symbols.write(target, tmp_path / "symbols.elf")
    with (tmp_path / "symbols.elf").open("rb") as file:
        elf = ELFFile(file)
        text = elf.get_section_by_name(".text")
        assert text["sh_addr"] == target.symbol("_text") == elf.get_segment(0)["p_vaddr"]
        code = target.read(target.symbol("_text"), 0x400)
        assert text.data() == code == elf.get_segment(0).data()
        assert Btf(elf.get_section_by_name(".BTF").data()).sizes("rq") == {target.sizeof("rq")}
        table = elf.get_section_by_name(".symtab")
        found = {one.name: one for one in table.iter_symbols() if one.name}
        for name, kind, section, size in (
            ("schedule", "STT_FUNC", ".text", 0x80),
            ("init_task", "STT_OBJECT", ".data", None),
        ):
            one = found[name]
            assert one["st_value"] == target.symbol(name) and one["st_info"]["type"] == kind
            assert elf.get_section(one["st_shndx"]).name == section
            assert size is None or one["st_size"] == size
        module = elf.get_section(found["toy_close"]["st_shndx"])
        address = found["toy_close"]["st_value"]
        assert module.name == ".toy_driver" and module["sh_addr"] == MODULES_VIRTUAL
        assert address == target.module_symbol("toy_driver", "toy_close")


# ---- The command ---------------------------------------------------------------------------------


def export(*arguments):
    argv = [ROOT / "bin" / "trapless", "peek", "export", *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.slow
def test_command_writes_each_file_once_and_says_what_to_name(tmp_path):
    ram = ToyKernel().save(tmp_path)
    table, symbols = tmp_path / "table.json", tmp_path / "symbols.elf"
    done = export("--isf", table, "--symbols", symbols, ram)
    assert (done.returncode, done.stdout) == (0, "")
    assert f"symbols: {table}\n" in done.stderr and f"symbols: {symbols}\n" in done.stderr
    assert table.stat().st_mode & 0o777 == 0o600
    before = table.read_bytes()
    for arguments, status, said in (
        (("--isf", table, ram), 1, "name a file that is not there"),
        ((ram,), 2, "name at least one file: --core, --isf or --symbols FILE"),
    ):
        done = export(*arguments)
        assert done.returncode == status and said in done.stderr
    assert table.read_bytes() == before


# ---- Damage and attacks --------------------------------------------------------------------------


def all_parts(target):
    for section in isf.SECTIONS:
        start = 0
        for _ in range(limits.TABLE_PARTS_MAX):
            start, entries = isf.part(target, section, start)
            assert json.dumps(entries).isprintable()
            if not start:
                break


@pytest.mark.slow
@pytest.mark.parametrize("part", ["types", "type names", "symbols"])
def test_damaged_tables_give_a_file_or_an_error(part, tmp_path):
    outcomes = set()
    for seed in range(DAMAGED):
        kernel, chance = ToyKernel(), random.Random(seed)
        start = kernel.symbols["__start_BTF"]
        length = kernel.symbols["__stop_BTF"] - start
        strings = kernel.ram.find(b"\0int\0", kernel.physical(start)) - kernel.physical(start)
        begin, end = {"types": (24, strings), "type names": (strings, length)}.get(part, (0, 0))
        if not end:
            start, begin = kernel.symbols["kallsyms_names"], 0
            end = kernel.symbols["kallsyms_offsets"] - start
        for _ in range(chance.choice((1, 1, 3, 40))):
            at = kernel.physical(start) + chance.randrange(begin, end)
            kernel.ram[at] = chance.choice((0, 0xFF, chance.randrange(256), kernel.ram[at] ^ 1))
        try:
            with Target.open(kernel.save(tmp_path)) as target:
                all_parts(target)
            outcomes.add("file")
        except PeekError:
            outcomes.add("error")
    assert "error" in outcomes


def test_circles_of_types_and_hostile_names_end():
    types = Types()
    types.add(POINTER, "", 1)  # to itself
    with pytest.raises(PeekError, match="circle"):
        isf._Types(Btf(types.data())).described(1)
    types = Types()
    integer = types.integer("int\x1b[2J", 4)
    types.record("a\u202e", 4, [("m\n", integer, 0)])
    entries = isf._Types(Btf(types.data())).part("user_types", 0)[1]
    assert all(one.isprintable() for one in str(entries).splitlines()) and "\x1b" not in str(
        entries
    )


@pytest.mark.slow
def test_structures_as_large_as_they_may_be_come_in_parts_within_the_bound():
    types = Types()
    integer = types.integer("int", 4)
    for number in range(4):
        types.record(f"large{number}", 4, [("m", integer, 0)] * 0xFFFF)
    described = isf._Types(Btf(types.data()))
    starts, start = [], -1
    while start:
        start, entries = described.part("user_types", max(start, 0))
        starts.append(len(entries))
    assert starts == [1, 1, 1, 1]


def test_a_sandbox_that_a_guest_has_taken_over_cannot_fill_the_disk_or_nest_for_ever(
    target, tmp_path, monkeypatch
):
    deep = {"kind": "base"}
    for _ in range(limits.TABLE_DEPTH_MAX + 1):
        deep = {"subtype": deep}
    for answer in ([0, [["name", deep]]], [0, [["name", [1]]]], [0, [["name", 1.5]]], [-1, []]):
        with pytest.raises(messages.FormError):
            messages.ANSWERS["isf"](answer)
    for following in (lambda start: start + 1, lambda start: 1):
        monkeypatch.setattr(
            type(target), "isf", lambda _, section, start, go=following: (go(start), [("a", {})])
        )
        with pytest.raises(PeekError, match="more types than any kernel"):
            symbol_table.write(target, tmp_path / "table.json")
        assert not (tmp_path / "table.json").exists()
