# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of user mode in the toy kernel: whole ones, and those that a hostile process made up."""

from __future__ import annotations

import struct
import time
from pathlib import Path

import pytest

from tests.unit.peek.kernel import toy_process
from tests.unit.peek.kernel.toy_process import (
    CODE,
    FILE,
    INNER,
    IP,
    LEAF,
    LEAF_KIND,
    MM,
    NODE,
    OUTER,
    PROGRAM,
    STACK_TOP,
    XARRAY,
    ToyProcess,
    page_of,
)
from tests.unit.peek.toy_kernel import PERCPU_AT, ToyKernel
from trapless.peek import limits
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import CpuRegisters, Ending
from trapless.peek.kernel.unwinding.x86_frames import SAVED
from trapless.peek.kernel.user.user_stacks import NO_USER_STACK, UserStack
from trapless.peek.sandbox.client import open_target

pytestmark = pytest.mark.usefixtures("own_cache")  # kernels are read into it

NAMES = ["inner [program]", "middle [program]", "outer [program]"]
LIMIT_S = 4.0
"""Of processor time: what one walk may take of it, and this test's own part."""


def seen(process: ToyProcess, folder: Path, opening=Target.open) -> UserStack:
    """The stack of user mode of the process's only thread."""
    with opening(process.kernel.save(folder)) as target:
        before = time.process_time()
        (found,) = (one for one in target.thread_stacks() if one.pid == 7)
        assert time.process_time() - before < LIMIT_S
        again = {one.pid: one for one in target.thread_stacks()}
        assert again[6].user == NO_USER_STACK  # it has no memory of its own
    assert found.stack is not None and found.stack.ending is Ending.USER
    assert len(found.user.names) <= limits.USER_FRAMES_MAX
    return found.user


def texts(stack: UserStack) -> list[str]:
    return list(map(str, stack.names))


@pytest.mark.parametrize("levels", [4, 5])
@pytest.mark.parametrize("opening", [Target.open, open_target])
def test_functions_are_named_from_the_innermost_on(tmp_path, levels, opening):
    found = seen(ToyProcess(ToyKernel(levels=levels)), tmp_path, opening)
    assert (texts(found), found.whole, found.earlier) == (NAMES, True, False)


def test_thread_on_a_cpu_has_the_stack_of_its_last_entry(tmp_path):
    process = ToyProcess(ToyKernel())
    kernel = process.kernel
    # Where registers are saved is learned from another thread, which sleeps.
    task = kernel.symbols["toy_server"]
    process.words(kernel.physical(task) + 168, process.virtual(MM))
    process.words(kernel.physical(kernel.symbols["stack_6"]) + 0x300 + 80, IP, 0x33, 0, 0)
    kernel.put(kernel.physical(task) + 136, struct.pack("<I", 1))
    with Target.open(kernel.save(tmp_path)) as target:
        target.thread_stacks()
        found = {one.pid: one for one in target.thread_stacks()}
    assert found[6].stack is None and found[6].user.earlier
    assert texts(found[6].user) == NAMES[:1]


def test_cpu_in_user_mode_has_the_stack_of_its_registers(tmp_path):
    process = ToyProcess(ToyKernel())
    kernel = process.kernel
    kernel.put(PERCPU_AT + 0x68, struct.pack("<Q", kernel.symbols["toy_worker"]))
    registers = {"ip": IP, "sp": STACK_TOP - 0x880, "bp": STACK_TOP - 0x800}
    values = {**dict.fromkeys(SAVED, 0), **registers}
    with Target.open(kernel.save(tmp_path)) as target:
        (one,) = target.cpu_stacks([CpuRegisters(0, True, values)])
    assert (one.pid, one.stack.addresses) == (7, ())
    assert (texts(one.user), one.user.whole) == (NAMES, True)


# ---- What is not in memory -----------------------------------------------------------------------


def test_symbols_of_the_dynamic_linker_do_where_sections_are_not_cached(tmp_path):
    process = ToyProcess(ToyKernel())
    process.cached(2, 0)
    found = seen(process, tmp_path)
    assert texts(found) == ["program+0x1014", NAMES[1], "program+0x1087"]


def test_without_cached_pages_places_in_the_file_are_shown(tmp_path):
    process = ToyProcess(ToyKernel())
    for page in range(3):
        process.cached(page, 0x1234_0001)  # what is left of a page that was written to disk
    assert texts(seen(process, tmp_path)) == [f"program+{at:#x}" for at in (0x1014, 0x1047, 0x1087)]


def test_pages_of_one_allocation_have_one_entry(tmp_path):
    process = ToyProcess(ToyKernel())
    for page in (1, 2):
        process.cached(page, 0 << 2 | 2)  # slot 0 has them
    assert texts(seen(process, tmp_path)) == NAMES


def test_frame_that_is_not_in_memory_ends_the_stack(tmp_path):
    process = ToyProcess(ToyKernel())
    process.chain([(STACK_TOP - 0x800, OUTER + 8)])
    process.words(toy_process.STACK + 0x800, STACK_TOP + 0x100)
    found = seen(process, tmp_path)
    assert (texts(found), found.whole) == ([NAMES[0], NAMES[2]], False)


def test_first_function_may_have_a_frame_without_a_caller(tmp_path):
    """What is where a return address would be is the count of the program's arguments."""
    process = ToyProcess(ToyKernel())
    process.chain([(STACK_TOP - 0x800, toy_process.MIDDLE + 8), (STACK_TOP - 0x700, 1)])
    found = seen(process, tmp_path)
    assert (texts(found), found.whole) == (NAMES[:2], True)


def test_code_in_memory_without_a_file_is_called_so(tmp_path):
    process = ToyProcess(ToyKernel())
    process.words(toy_process.AREAS + 40, 0)
    assert texts(seen(process, tmp_path)) == ["[memory without a file]"] * 3


def test_code_of_32_bits_has_no_frames_that_are_known(tmp_path):
    process = ToyProcess(ToyKernel())
    process.words(process.registers + 8, 0x23)
    found = seen(process, tmp_path)
    assert (texts(found), found.whole) == (NAMES[:1], False)


# ---- What a hostile process makes up -------------------------------------------------------------


def looping_frames(process: ToyProcess) -> None:
    place = STACK_TOP - 0x800
    process.words(toy_process.STACK + 0x800, place, INNER + 8)


def endless_frames(process: ToyProcess) -> None:
    places = range(STACK_TOP - 0x800, STACK_TOP - 0x10, 16)
    process.chain([(place, INNER + 8) for place in places])


def frames_in_the_kernel(process: ToyProcess) -> None:
    process.words(process.registers + 24, process.virtual(PROGRAM))


def code_in_the_kernel(process: ToyProcess) -> None:
    process.words(process.registers, process.kernel.image + 0x100)


def looping_mappings(process: ToyProcess) -> None:
    node = process.virtual(NODE) | toy_process.ARANGE_KIND << 3 | 4
    process.words(NODE + 80, node)


def unknown_node(process: ToyProcess) -> None:
    process.words(NODE + 80, process.virtual(LEAF) | 9 << 3)


def mappings_that_lead_nowhere(process: ToyProcess) -> None:
    process.words(MM + 16, 0xFFFF_8000_DEAD_0006 | LEAF_KIND << 3)


def looping_cache(process: ToyProcess) -> None:
    process.kernel.put(XARRAY, b"\x06")
    process.words(XARRAY + 8, *[process.virtual(XARRAY) + 2] * 64)


def cache_of_strange_pages(process: ToyProcess) -> None:
    process.words(XARRAY + 8, page_of(1 << 60) & (1 << 64) - 1, page_of(0) + 4, 0x102)


def huge_counts(process: ToyProcess) -> None:
    process.kernel.put(PROGRAM + 54, struct.pack("<5H", 56, 0xFFFF, 64, 0xFFFF, 0))


def huge_tables(process: ToyProcess) -> None:
    for number in range(1, 5):
        process.words(PROGRAM + 0x2000 + 64 * number + 24, 0, (1 << 63) + 1)


def huge_dynamic(process: ToyProcess) -> None:
    process.cached(2, 0)
    process.words(PROGRAM + 64 + 56 + 32, 1 << 63)
    process.words(PROGRAM + 0x180, 5, CODE + 0x1FFF, 6, CODE - 0x1000, 10, (1 << 64) - 1)


def no_program(process: ToyProcess) -> None:
    process.kernel.put(PROGRAM, b"\xff" * 0x3000)


def file_that_is_gone(process: ToyProcess) -> None:
    process.words(FILE, *[0xDEAD_0000_0000_0000] * 4)


def tables_of_nothing(process: ToyProcess) -> None:
    process.words(MM, 0xFFFF_FFFF_FFFF_FFF8)


HOSTILE = (
    *(looping_frames, endless_frames, frames_in_the_kernel, code_in_the_kernel),
    *(looping_mappings, unknown_node, mappings_that_lead_nowhere, looping_cache),
    *(cache_of_strange_pages, huge_counts, huge_tables, huge_dynamic, no_program),
    *(file_that_is_gone, tables_of_nothing),
)


@pytest.mark.parametrize("change", HOSTILE, ids=lambda change: change.__name__)
def test_what_is_made_up_gets_a_bounded_answer(tmp_path, change):
    process = ToyProcess(ToyKernel())
    change(process)
    shown = texts(seen(process, tmp_path))
    assert all(text.isprintable() for text in shown)
    if change is endless_frames:
        assert len(shown) == limits.USER_FRAMES_MAX
    if change in (looping_frames, frames_in_the_kernel):
        assert len(shown) <= 2
    if change in (looping_mappings, unknown_node, mappings_that_lead_nowhere, tables_of_nothing):
        assert shown == []


def test_names_that_attack_are_made_visible(tmp_path):
    evil = "a\x1b]0;b\n[/red]"
    process = ToyProcess(ToyKernel(), name=b"\x1b[2J;x\n")
    process.kernel.put(PROGRAM, toy_process.program({evil: INNER, "x" * 600: OUTER}, ()))
    found = texts(seen(process, tmp_path))
    assert found[0] == r"a\x1b]0;b\n[/red] [\x1b[2J;x\n]"
    assert all(text.isprintable() and len(text) <= limits.TEXT_CHARS_MAX for text in found)


def test_a_program_that_takes_too_long_costs_only_its_own_names(tmp_path, monkeypatch):
    slow = limits.USER_FILE._replace(steps=3)
    monkeypatch.setattr(limits, "USER_FILE", slow)
    found = seen(ToyProcess(ToyKernel()), tmp_path)
    assert texts(found) == [f"program+{at:#x}" for at in (0x1014, 0x1047, 0x1087)]


def test_walks_that_take_too_long_leave_the_kernels_stacks(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "USER_STACKS", limits.USER_STACKS._replace(steps=3))
    assert seen(ToyProcess(ToyKernel()), tmp_path) == NO_USER_STACK
