# SPDX-License-Identifier: GPL-2.0-only
"""What stacks say of a CPU, how differences add up, and that wrong memory is found out.

The stacks are as they were seen on stock kernels; tests/lab/peek/test_peek_truth.py has real ones.
"""

from __future__ import annotations

import struct

import pytest

from trapless.peek.errors import PeekError
from trapless.peek.sampling.plan import Base, Field
from trapless.peek.sampling.stacks import Stack
from trapless.peek.sampling.tier0 import Part
from trapless.peek.sampling.witness import Difference, Findings, read, tables

CALL = ("vfs_write", "ksys_write", "do_syscall_64", "entry_SYSCALL_64_after_hwframe")
TIMER = ("hrtimer_interrupt", "sysvec_apic_timer_interrupt", "asm_sysvec_apic_timer_interrupt")
IDLE = ("default_idle", "do_idle", "cpu_startup_entry", "start_secondary")
SOFTIRQ = ("tcp_v4_rcv", "net_rx_action", "handle_softirqs")
PREEMPTED = ("__schedule", "preempt_schedule_irq", "raw_irqentry_exit_cond_resched")


@pytest.mark.parametrize(
    ("names", "part"),
    [
        (CALL, Part.KERNEL),
        (("handle_mm_fault", "exc_page_fault", "asm_exc_page_fault", *CALL), Part.KERNEL),
        ((*TIMER, *CALL), Part.TOP_HALF),
        (TIMER, Part.TOP_HALF),
        ((*TIMER, *IDLE), Part.TOP_HALF),
        (("end_repeat_nmi", "exc_nmi", "asm_exc_nmi", *CALL), Part.TOP_HALF),
        ((*SOFTIRQ, "do_softirq", *CALL), Part.BOTTOM_HALF),
        ((*SOFTIRQ, "__irq_exit_rcu", *TIMER[1:], *CALL), Part.BOTTOM_HALF),
        ((*TIMER, *SOFTIRQ, "__irq_exit_rcu", *TIMER[1:], *CALL), Part.TOP_HALF),
        ((*SOFTIRQ[:2], "__do_softirq", "run_ksoftirqd", "kthread"), Part.BOTTOM_HALF),
        ((*PREEMPTED, *TIMER[1:], *CALL), Part.KERNEL),  # the interrupt is over
        ((*PREEMPTED, *TIMER[1:], *TIMER, *CALL), Part.TOP_HALF),  # but not the one around it
        (IDLE, Part.IDLE),
        (("schedule_idle", "do_idle", "cpu_startup_entry"), Part.IDLE),
    ],
)
def test_stack_says_where_a_cpu_is(names, part):
    assert Stack(names).part is part


@pytest.mark.parametrize(
    ("names", "moving"),
    [
        (CALL, False),
        ((*TIMER, *CALL), False),
        (("syscall_exit_to_user_mode", *CALL[2:]), True),
        (("ct_kernel_exit.constprop.0", *CALL[2:]), True),
        (("read_hpet", "ktime_get", "tick_nohz_irq_exit", *TIMER[1:]), True),
        (("save_fpregs_to_fpstate", "__switch_to", "__schedule"), True),
        (("lapic_next_event", "__hrtimer_rearm_deferred", TIMER[2], *CALL), True),
        (("enqueue_task", "try_to_wake_up", "handle_softirqs", *TIMER[1:]), True),
        (("enqueue_task", "try_to_wake_up", *SOFTIRQ, *TIMER[1:]), False),
        (("tick_nohz_irq_exit", *TIMER[1:]), True),
        # What an interrupt interrupts says nothing of the interrupt.
        ((*TIMER, "tick_nohz_irq_exit", *TIMER[1:]), False),
        (("vfs_write_to_user_mode", *CALL), False),
    ],
)
def test_entry_and_exit_code_is_known(names, moving):
    assert Stack(names).in_transition is moving
    assert Stack(names, in_section=True).in_transition


def test_place_names_who_called():
    assert Stack(("read_hpet", "ktime_get", "irq_exit_rcu", *TIMER[1:])).place == (
        "read_hpet < irq_exit_rcu"
    )
    assert Stack(("syscall_exit_to_user_mode", *CALL)).place == "syscall_exit_to_user_mode"
    assert Stack(()).place == "user mode"


def findings(samples: int, wrong: int, stack: Stack) -> Findings:
    """So many samples, `wrong` of them user mode to memory and kernel to registers."""
    found = Findings(1, stops=samples, samples=samples)
    found.memory.update({"user": wrong, "other kernel": samples - wrong})
    found.registers.update({"other kernel": samples})
    found.differences = [
        Difference(stop, 0, "part", "user", "other kernel", stack) for stop in range(wrong)
    ]
    return found


def test_share_that_is_wrong_by_more_than_a_point_is_found():
    good, bad = findings(400, 4, Stack(CALL)), findings(400, 5, Stack(CALL))
    assert good.error("user") == good.error("other kernel") == 0.01
    assert good.good and not bad.good
    _, places = tables(bad)
    assert "5 differences elsewhere; stop 0, CPU 0: memory says user" in places.caption


def test_differences_in_entry_code_are_shown_and_no_error():
    found = findings(400, 100, Stack(("entry_SYSCALL_64",), in_section=True))
    assert found.error("user") == 0 and found.good
    shares, places = tables(found)
    assert shares.rows[0] == ("user", "25.0%", "0.0%", "0.0%")
    assert places.rows == (("entry_SYSCALL_64", "user", "other kernel", "100"),)


def test_nothing_compared_is_not_good():
    assert not Findings(0).good


class Bytes:
    """A target whose memory is a few bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.memory = data, self

    def read(self, address: int, length: int) -> bytes:
        return self.data[address : address + length]


def test_fields_are_read_as_the_sampler_reads_them():
    base = Base(0xFFFF_8880_0000_0000, 64, 0)
    target = Bytes(struct.pack("<QQQ", base.virtual + 8, 7, base.virtual + 999))
    assert read(target, (base,), Field("word", 4, 8)) == 7
    assert read(target, (base,), Field("end", 8, 0, (0,))) == 7
    with pytest.raises(PeekError, match=r"end: .* is not an address"):
        read(target, (base,), Field("end", 8, 16, (0,)))
