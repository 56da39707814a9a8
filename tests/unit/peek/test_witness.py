# SPDX-License-Identifier: GPL-2.0-only
"""What stacks say of a CPU, how differences add up, and that wrong memory is found out.

The stacks are as they were seen on stock kernels; tests/lab/peek/test_peek_agrees_with_registers.py
has real ones.
"""

from __future__ import annotations

import doctest
import random
import re
import struct

import pytest

from trapless.peek.check import bounds as bounds_file
from trapless.peek.check.register_stacks import Stack
from trapless.peek.check.witness import Difference, Findings, Verdict, read, tables
from trapless.peek.errors import PeekError
from trapless.peek.sampling.sampling_plan import Base, Field
from trapless.peek.sampling.tier0 import Part

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


@pytest.mark.parametrize(
    ("samples", "wrong", "verdict", "text"),
    [
        (1000, 0, Verdict.RIGHT, "memory is right: 95% sure, no share is wrong by more than 1%"),
        (4000, 12, Verdict.RIGHT, "memory is right"),
        (120, 2, Verdict.OPEN, "120 samples are too few .*; --stops 7680 may do$"),
        (120, 0, Verdict.OPEN, "120 samples are too few .*; --stops 480 may do$"),
        (4000, 40, Verdict.OPEN, "4000 samples are too few to tell .* more than 1%$"),
        (120, 16, Verdict.WRONG, r"memory is wrong: 95% sure, by 1\.4% to 25\.1% about 'user'"),
        (4000, 120, Verdict.WRONG, "memory is wrong"),
        (0, 0, Verdict.OPEN, "0 samples are too few to tell .* more than 1%$"),
    ],
)
def test_verdict_is_as_sure_as_the_samples_make_it(samples, wrong, verdict, text):
    found = findings(samples, wrong, Stack(CALL))
    assert found.verdict() is verdict, found.error_bounds("user")
    assert re.search(text, found.verdict_text()), found.verdict_text()


def test_verdicts_of_chance_are_seldom_wrong():
    """Samples of a memory that is wrong just within, and just beyond, the largest error."""
    chance = random.Random(7)
    for share, untrue in ((0.0099, Verdict.WRONG), (0.0101, Verdict.RIGHT)):
        verdicts = [
            findings(1500, sum(chance.random() < share for _ in range(1500)), Stack(CALL)).verdict()
            for _ in range(200)
        ]
        assert verdicts.count(untrue) <= 0.05 * len(verdicts)


def test_bounds_hold_the_share():
    assert doctest.testmod(bounds_file).failed == 0
    for count, samples in ((0, 10), (3, 10), (10, 10), (5, 4000), (0, 0)):
        low, high = bounds_file.bounds(count, samples, 0.01)
        assert 0 <= low <= (count / samples if samples else 0) <= high <= 1
        assert low == 0 or low < count / samples
    # Clopper and Pearson's for 5 of 100, each end with a doubt of 2.5%: 1.64% and 11.28%.
    low, high = bounds_file.bounds(5, 100, 0.025)
    assert 0.010 < low < 0.0164 and 0.1128 < high < 0.135


def test_differences_elsewhere_are_shown():
    shares, places = tables(findings(400, 5, Stack(CALL)))
    assert "5 differences elsewhere; stop 0, CPU 0: memory says user" in places.caption
    assert shares.rows[0][3] == "1.2%" and shares.rows[0][4].startswith("0.0% to ")


def test_differences_in_entry_code_are_shown_and_no_error():
    found = findings(400, 100, Stack(("entry_SYSCALL_64",), in_section=True))
    assert found.error("user") == 0 and found.verdict(2) is Verdict.RIGHT
    shares, places = tables(found)
    assert shares.rows[0][:4] == ("user", "25.0%", "0.0%", "0.0%")
    assert places.rows == (("entry_SYSCALL_64", "user", "other kernel", "100"),)


def test_nothing_compared_is_not_right():
    assert Findings(0).verdict() is Verdict.OPEN


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
