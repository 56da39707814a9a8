# SPDX-License-Identifier: GPL-2.0-only
"""Stacks of the toy kernel, by its unwind tables in each form; also of threads that run."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.peek.toy_kernel import FORMS, UNWINDING, ToyKernel
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.kernel.kernel_stacks import ThreadStack
from trapless.peek.kernel.target import Target
from trapless.peek.kernel.unwinding.frames import CpuRegisters, Ending
from trapless.peek.kernel.unwinding.x86_frames import SAVED

WHOLE = {
    2: ("kthread", Ending.BOTTOM, ("schedule+0xf", "toy_open+0x7 [toy_driver]", "toy_bottom")),
    6: ("server", Ending.BOTTOM, ("schedule+0xf", "schedule_timeout+0xf", "toy_bottom")),
    7: ("worker", Ending.USER, ("schedule+0xf", "toy_entry")),
}


@contextmanager
def opened(kernel: ToyKernel, folder: Path) -> Iterator[Target]:
    with Target.open(kernel.save(folder)) as target:
        yield target


def shown(target: Target, one: ThreadStack) -> tuple[str, Ending, tuple[str, ...]]:
    assert one.stack is not None
    names = tuple(str(target.name_of(address)) for address in one.stack.addresses)
    return str(one.comm), one.stack.ending, names


def stacks(target: Target) -> dict[int, tuple[str, Ending, tuple[str, ...]]]:
    return {one.pid: shown(target, one) for one in target.thread_stacks()}


@pytest.mark.parametrize("form", FORMS)
def test_threads_that_sleep_have_their_stacks(form, tmp_path):
    with opened(ToyKernel(form=form), tmp_path) as target:
        assert stacks(target) == WHOLE
        assert stacks(target) == WHOLE  # none ran: they are not unwound again


@pytest.mark.parametrize("form", FORMS)
def test_cpu_that_stands_still_is_unwound_from_its_registers(form, tmp_path):
    kernel = ToyKernel(form=form)
    sp = kernel.symbols["stack_6"] + 0x300
    kernel.put(kernel.physical(sp), struct.pack("<2Q", kernel.symbols["toy_bottom"] + 1, 0))
    values = {**dict.fromkeys(SAVED, 0), "ip": kernel.symbols["schedule"] + 4, "sp": sp}
    with opened(kernel, tmp_path) as target:
        one, two = target.cpu_stacks(
            [CpuRegisters(0, False, values), CpuRegisters(1, True, values)]
        )
        names = [str(target.name_of(address)) for address in one.stack.addresses]
    assert names == ["schedule+0x4", "toy_bottom"] and one.stack.ending is Ending.BOTTOM
    assert (two.cpu, two.stack.ending, two.stack.addresses) == (1, Ending.USER, ())


def test_thread_on_a_cpu_has_no_stack(tmp_path):
    kernel = ToyKernel()
    kernel.put(kernel.physical(kernel.symbols["toy_server"]) + 136, struct.pack("<I", 1))
    with opened(kernel, tmp_path) as target:
        found = {one.pid: one.stack for one in target.thread_stacks()}
    assert found[6] is None and found[7] is not None


def test_thread_that_runs_while_it_is_read_has_no_stack(tmp_path):
    """Its count of switches is another after the reading, so its stack may be of two moments."""
    kernel = ToyKernel()
    task = kernel.symbols["toy_server"]
    with opened(kernel, tmp_path) as target:
        inactive = target.unwinder._inactive

        def meanwhile(walk, entry, seen):
            stack = inactive(walk, entry, seen)
            if seen.pid == 6:
                with (tmp_path / "ram").open("r+b") as file:
                    file.seek(kernel.physical(task) + 144)
                    file.write(struct.pack("<Q", 999))
            return stack

        target.unwinder._inactive = meanwhile
        found = {one.pid: one.stack for one in target.thread_stacks()}
    assert found[6] is None and found[7] is not None


def test_state_of_a_thread_is_a_word(tmp_path):
    """A recording keeps it as a number of 8 bytes with a sign, whatever size the types claim."""
    kernel = ToyKernel()
    kernel.put(kernel.physical(kernel.symbols["toy_server"]), b"\xff" * 4)
    with opened(kernel, tmp_path) as target:
        found = {one.pid: one for one in target.thread_stacks()}
    assert all(0 <= one.state < 1 << 32 for one in found.values())
    assert 6 not in found  # all bits: one of them says that it has ended


def test_stack_that_leads_to_itself_ends(tmp_path):
    kernel = ToyKernel()
    at = kernel.physical(kernel.symbols["stack_6"]) + 0x300
    for place in range(at, at + 0x100, 8):  # schedule() called by itself, for ever
        kernel.put(place, struct.pack("<Q", kernel.symbols["schedule"] + 0x10))
    rule = kernel.physical(kernel.symbols["__start_orc_unwind"]) + 6
    kernel.put(rule, struct.pack("<hhBB", 0, 0, UNWINDING[kernel.form]["sp"], 0))
    with opened(kernel, tmp_path) as target:
        ending, names = stacks(target)[6][1:]
    assert ending is Ending.LOST and 1 <= len(names) <= limits.FRAMES_MAX


@pytest.mark.parametrize(("at", "value"), [(0, 8), (4, 0xF), (0, 0x7FFF)])
def test_tables_of_an_unknown_form_are_refused(at, value, tmp_path):
    kernel = ToyKernel()
    first = kernel.physical(kernel.symbols["__start_orc_unwind"])
    if (at, value) == (0, 8):  # the rule of a function's beginning is missing
        kernel.put(first, bytes(6))
    else:
        kernel.put(first + at, struct.pack("<H", value))
    with opened(kernel, tmp_path) as target, pytest.raises(PeekError, match="form that is not"):
        target.thread_stacks()


@pytest.mark.parametrize("count", [0x7FFFFFFF, 0xFFFFFFFF])
def test_table_of_a_module_that_claims_too_much_is_not_read(count, tmp_path):
    kernel = ToyKernel()
    kernel.put(0x700480, struct.pack("<I", count))
    with opened(kernel, tmp_path) as target:
        found = stacks(target)
    assert found[6] == WHOLE[6] and found[7] == WHOLE[7]
    assert found[2] == ("kthread", Ending.LOST, WHOLE[2][2][:2])


def without_tables(kernel: ToyKernel) -> ToyKernel:
    kernel.ram = kernel.ram.replace(b"__start_orc", b"__other_orc")
    return kernel


def test_kernel_without_tables_or_frame_pointers_says_so(tmp_path):
    with (
        opened(without_tables(ToyKernel()), tmp_path) as target,
        pytest.raises(PeekError, match=r"neither unwind tables .* nor frame pointers"),
    ):
        target.thread_stacks()


@pytest.mark.parametrize(("cs", "ending"), [(0x33, Ending.USER), (0, Ending.BOTTOM)])
@pytest.mark.parametrize("encoded", [False, True])
def test_kernel_without_tables_is_unwound_by_frame_pointers(cs, ending, encoded, tmp_path):
    """schedule_timeout() calls schedule(); an interrupt of the entry code has met the former."""
    kernel = without_tables(ToyKernel())
    names = kernel.symbols
    kernel.put(kernel.physical(names["schedule"]), bytes.fromhex("f30f1efa 554889e5"))
    frame = names["stack_6"] + 0x300
    saved = frame + 0x100
    outermost = saved + 1 if encoded else 0

    def words(at: int, *values: int) -> None:
        kernel.put(kernel.physical(at), struct.pack(f"<{len(values)}Q", *values))

    words(frame, saved - 16, names["schedule_timeout"] + 0x10)
    words(saved - 16, outermost, names["toy_entry"] + 1)
    words(saved, *[0] * 21)
    with opened(kernel, tmp_path) as target:
        at = {name: target.offset("pt_regs", name) for name in SAVED}
        words(saved + at["cs"], cs)
    with opened(kernel, tmp_path) as target:
        values = {**dict.fromkeys(SAVED, 0), "ip": names["schedule"] + 8, "sp": frame - 8}
        (cpu,) = target.cpu_stacks([CpuRegisters(0, False, {**values, "bp": frame})])
        shown = [str(target.name_of(one)) for one in cpu.stack.addresses]
    assert shown == ["schedule+0x8", "schedule_timeout+0xf", "toy_entry"]
    assert cpu.stack.ending is ending


def test_stack_goes_on_below_where_an_interrupt_has_a_stack_of_its_own(tmp_path):
    """The frame of the thread lies at a lower address than the interrupt's, on another stack."""
    kernel = without_tables(ToyKernel())
    names = kernel.symbols
    kernel.put(kernel.physical(names["schedule"]), bytes.fromhex("554889e5"))
    frame = kernel.image + 0x1A0000
    below = frame - 2 * limits.STACK_BYTES_MAX
    for at, bp, caller in ((frame, below, "schedule_timeout"), (below, 0, "toy_entry")):
        words = struct.pack("<2Q", bp, names[caller] + 1)
        kernel.put(kernel.physical(at), words)
    kernel.put(kernel.physical(below + 16), bytes(8 * 21))
    with opened(kernel, tmp_path) as target:
        values = {**dict.fromkeys(SAVED, 0), "ip": names["schedule"] + 8, "sp": frame - 8}
        (cpu,) = target.cpu_stacks([CpuRegisters(0, False, {**values, "bp": frame})])
        shown = [str(target.name_of(one)) for one in cpu.stack.addresses]
    assert shown == ["schedule+0x8", "schedule_timeout", "toy_entry"]
    assert cpu.stack.ending is Ending.BOTTOM
