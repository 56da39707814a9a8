# SPDX-License-Identifier: GPL-2.0-only
"""Complaints found in saved logs of real kernels, and none in those of healthy ones.

tests/data/kernel-logs/KERNEL.KIND.log.xz: the log of KERNEL while tests/lab/modules/complain made
it complain by KIND; from the start of init on, except for the healthy KIND `nothing`.
"""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from trapless.vm.splats import CONTEXT_LINES_MAX, splats

LOGS = Path(__file__).resolve().parents[2] / "data/kernel-logs"

# (log, first lines of its complaints, something that must be in the first one's context)
COMPLAINTS = [
    ("*.warn", ["WARNING: "], "complain"),
    ("*.bug", ["kernel BUG at complain.c", "Kernel panic - not syncing"], "RIP: "),
    ("*.null-pointer", ["", "Kernel panic - not syncing: Fatal"], "null_pointer"),
    ("*.sleep-in-atomic", ["BUG: scheduling while atomic: insmod", "WARNING: "], "sleep_in_atomic"),
    ("oldest.list-corruption", ["list_del corruption", "Kernel panic"], "list_corruption"),
    ("debug.list-corruption", ["list_del corruption"], "list_corruption"),
    ("debug.use-after-free", ["BUG: KASAN: use-after-free in"], "Freed by task"),
    ("debug.out-of-bounds", ["BUG: KASAN: slab-out-of-bounds in"], "Memory state around"),
    (
        "debug.lock-inversion",
        ["WARNING: possible circular locking dependency detected"],
        "stack backtrace",
    ),
    ("debug.lock-held", ["WARNING: lock held when returning to user space"], "lock_held"),
    ("debug.leak", ["kmemleak: 10 new suspected memory leaks"], ""),
    ("*.hung-task", ["INFO: task insmod:"], "schedule_timeout"),
    ("*.soft-lockup", ["watchdog: BUG: soft lockup"], "soft_lockup"),
]


def read(name: str) -> str:
    return lzma.decompress((LOGS / f"{name}.log.xz").read_bytes()).decode()


def name_of(path: Path) -> str:
    return path.name.removesuffix(".log.xz")


def cases() -> list[tuple[str, list[str], str]]:
    return [
        (name_of(path), firsts, context)
        for pattern, firsts, context in COMPLAINTS
        for path in sorted(LOGS.glob(f"{pattern}.log.xz"))
    ]


def test_each_saved_log_is_used():
    used = {name for name, _, _ in cases()}
    every = set(map(name_of, LOGS.iterdir()))
    healthy = {name for name in every if name.endswith(".nothing")}
    assert used | healthy == every
    assert len(healthy) == 4


@pytest.mark.parametrize(("name", "firsts", "context"), cases(), ids=[c[0] for c in cases()])
def test_complaint_is_found_with_its_context(name, firsts, context):
    complaints = splats(read(name))
    assert len(complaints) >= len(firsts)
    for complaint, first in zip(complaints, firsts, strict=False):
        assert complaint.startswith(first)
    assert context in complaints[0]


@pytest.mark.parametrize("name", ["oldest", "middle", "newest", "debug"])
def test_healthy_kernel_has_no_complaints(name):
    assert splats(read(f"{name}.nothing")) == []


@pytest.mark.parametrize("kind", ["warn", "sleep-in-atomic", "hung-task", "use-after-free"])
def test_what_follows_a_complaint_is_not_part_of_it(kind):
    log = read(f"debug.{kind}" if kind == "use-after-free" else f"oldest.{kind}")
    complaints = splats(log + "\n[    9.000000] ordinary life goes on\n")
    assert not any("ordinary life" in complaint for complaint in complaints)


def test_stall_of_rcu_is_found():
    assert any("self-detected stall" in text for text in splats(read("oldest.soft-lockup")))


@pytest.mark.parametrize(
    "line",
    [
        "BUG: sleeping function called from invalid context at mm/slab.h:411",
        "BUG: unable to handle page fault for address: ffffffffffffffd8",
        "BUG: workqueue leaked lock or atomic: kworker/0:1/0x00000001/12",
        "BUG: Bad page state in process insmod  pfn:0a5b2",
        "BUG kmalloc-64 (Tainted: G    B      OE     ): Redzone overwritten",
        "kernel BUG at mm/slub.c:383!",
        "general protection fault, probably for non-canonical address 0xdead: 0000 [#1] SMP",
        "invalid opcode: 0000 [#1] PREEMPT SMP",
        "traps: Missing ENDBR: tlk_batch_run+0x0/0x10 [trapless]",
        "WARNING: suspicious RCU usage",
        "WARNING: inconsistent lock state",
        "WARNING: bad unlock balance detected!",
        "refcount_t: underflow; use-after-free.",
        "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        "INFO: task trapless:93 blocked for more than 120 seconds.",
        "watchdog: Watchdog detected hard LOCKUP on cpu 1",
        "unchecked MSR access error: WRMSR to 0x174 (tried to write 0x0)",
        "UBSAN: array-index-out-of-bounds in kmod/ring.c:10:3",
        "kmem_cache_destroy tl_ring: Slab cache still has objects when called from x",
        "unreferenced object 0xff11000007f06000 (size 128):",
        "note: insmod[87] exited with preempt_count 1",
        "sysfs: cannot create duplicate filename '/devices/virtual/misc/trapless'",
    ],
)
@pytest.mark.parametrize("stamp", ["", "[   12.345678] ", "<4>[    1.000000][  T87] "])
def test_opening_line_is_recognised(stamp, line):
    assert splats(f"[    1.0] before\n{stamp}{line}\n") == [line]


@pytest.mark.parametrize(
    "line",
    [
        "MDS: Mitigation: Clear CPU buffers",
        "trapless: loading out-of-tree module taints kernel.",
        "trapless: module verification failed: signature and/or required key missing",
        "Spectre V2 : WARNING: Unprivileged eBPF is enabled with eIBRS on",
        "lockdep: NR_CPUS=8",
        "kasan: KernelAddressSanitizer initialized (generic)",
        "kmemleak: Kernel memory leak detector initialized (mem pool available: 15867)",
        "process 'oops' started with executable stack",
        "systemd[1]: BUG: is not the kernel's",
    ],
)
def test_ordinary_line_is_no_complaint(line):
    assert splats(f"[    1.000000] {line}\n") == []


def test_context_is_bounded():
    flood = "WARNING: CPU: 0 PID: 1 at x.c:1 f+0x1/0x2\n" + " more\n" * (3 * CONTEXT_LINES_MAX)
    assert all(text.count("\n") < CONTEXT_LINES_MAX for text in splats(flood))


def test_carriage_returns_of_a_serial_line_are_dropped():
    text = "[    1.0] WARNING: CPU: 0\r\n[    1.0] ---[ end trace 0 ]---\r\n"
    assert splats(text) == ["WARNING: CPU: 0\n---[ end trace 0 ]---"]


def test_a_data_race_counts_only_where_the_module_has_a_part_in_it() -> None:
    frame = "=" * 66
    ours, other = "tlk_queue_take+0x5c/0x120 [trapless]", "tick_do_update_jiffies64+0x1c/0x140"
    race = "{frame}\nBUG: KCSAN: data-race in a / b\n\nread to 0x1 by task 7:\n {at}\n{frame}\n"
    log = race.format(frame=frame, at=other) + race.format(frame=frame, at=ours)
    assert [ours in text for text in splats(log)] == [True]
    interrupt = f"{other}\n asm_sysvec_apic_timer_interrupt+0x1b/0x20\n {ours}"
    locks = f"{other}\n\n1 lock held by fuzz/1:\n #0: ff11 (&lock){{+.+.}}-{{2:2}}, at: {ours}"
    leaving = f"{other}\n do_exit+0x5e8/0x1320\n exit_to_user_mode_prepare+0x1f0/0x270\n {ours}"
    call = f"{other}\n __x64_sys_getpgid+0x10/0x20\n {ours}"
    for at in (
        interrupt,
        f"{interrupt}\n",
        leaving,
        call,
        locks,
        locks.replace("1 lock", "2 locks"),
    ):
        assert splats(race.format(frame=frame, at=at)) == []
    assert len(splats(race.format(frame=frame, at=f"{ours}\n __x64_sys_ioctl+0x1/0x2"))) == 1
    own = f"{ours}\n asm_sysvec_apic_timer_interrupt+0x1b/0x20\n {other}"
    assert len(splats(race.format(frame=frame, at=own))) == 1
