# SPDX-License-Identifier: GPL-2.0-only
"""Why supervisor mode is refused: one row for each reason of the binary interface.

Owns the words: a title, the reason in one sentence, and what a person can do about it. What
tl_refusal_text() of the library answers are these reasons; a test holds the two equal. Which of
them apply is decided by the module; trapless/doctor/supervisor.py predicts it where no module is.
"""

from __future__ import annotations

from dataclasses import dataclass

from trapless.abi import REFUSALS_MACHINE, Refusal


@dataclass(frozen=True)
class Row:
    """One reason. `reason` and `remedy` go on where a sentence has begun: no capital, no stop."""

    code: Refusal
    title: str
    reason: str
    remedy: str

    @property
    def name(self) -> str:
        """As programs read it: 'not-capable'."""
        return self.code.name.lower().replace("_", "-")

    @property
    def of_machine(self) -> bool:
        """Whether it is about the machine, the kernel or the module, not about one process."""
        return self.code < REFUSALS_MACHINE


LAB = "try it in a VM: trapless run --lab"
OTHER_KERNEL = f"use another kernel, or {LAB}"

_ROWS = (
    Row(
        Refusal.PARAMETER,
        "the module's consent",
        "the module was loaded without supervisor=1",
        "trapless module unload, then trapless module load supervisor=1 (it gives up protection: "
        "a process in supervisor mode can do anything to the machine)",
    ),
    Row(
        Refusal.CONFIG,
        "the kernel's configuration",
        "the kernel was built without something that supervisor mode takes",
        OTHER_KERNEL,
    ),
    Row(
        Refusal.SYMBOL,
        "the kernel's functions",
        "the kernel lacks a function that supervisor mode takes",
        OTHER_KERNEL,
    ),
    Row(
        Refusal.PTI,
        "page-table isolation (PTI)",
        "page-table isolation is on: under a program's own tables the kernel is not mapped",
        "boot with pti=off, which opens a processor that Meltdown affects; or use one that it "
        "does not affect",
    ),
    Row(
        Refusal.FRED,
        "event delivery (FRED)",
        "the processor delivers events by FRED, not through the IDT",
        "boot with fred=off",
    ),
    Row(
        Refusal.LASS,
        "linear address-space separation (LASS)",
        "LASS is on: supervisor mode cannot execute a program's code",
        "boot with clearcpuid=lass",
    ),
    Row(
        Refusal.IBT,
        "indirect-branch tracking (IBT)",
        "the kernel tracks indirect branches (IBT), and a program's code does not bear its marks",
        "boot with ibt=off",
    ),
    Row(
        Refusal.SHSTK,
        "shadow stacks",
        "programs may use shadow stacks, and each privilege level has its own",
        "boot with nousershstk",
    ),
    Row(
        Refusal.IBRS,
        "IBRS at each entry",
        "the kernel sets IBRS at each entry, and a call in supervisor mode makes none",
        "boot with spectre_v2=retpoline, which leaves some of these processors open to Retbleed; "
        "newer processors (enhanced or automatic IBRS) need no such thing",
    ),
    Row(
        Refusal.CALL_DEPTH,
        "call-depth tracking",
        "the kernel accounts call depth from each entry, and a call in supervisor mode makes none",
        "boot without retbleed=stuff, which leaves some of these processors open to Retbleed",
    ),
    Row(
        Refusal.XEN,
        "Xen PV",
        "the kernel is a Xen PV guest: it is not in supervisor mode itself",
        "run it as an HVM or PVH guest",
    ),
    Row(
        Refusal.CONFIDENTIAL,
        "confidential computing (SEV-ES, TDX)",
        "the machine is a confidential guest (SEV-ES, TDX), whose exceptions the entry code of "
        "the kernel handles itself",
        "use a guest whose memory is not encrypted",
    ),
    Row(
        Refusal.CONTEXT,
        "context tracking",
        "context tracking is on (nohz_full): the kernel must see each transition",
        "boot without nohz_full",
    ),
    Row(
        Refusal.IST,
        "an interrupt stack",
        "the interrupt stack that the module needs is in use",
        f"unload the other module that uses it, or {LAB}",
    ),
    Row(
        Refusal.ENTRY,
        "the kernel's entry",
        "MSR_LSTAR or the IDT is not the kernel's own: another module has changed it",
        f"unload the other module, or {LAB}",
    ),
    Row(
        Refusal.LOCKDOWN,
        "lockdown",
        "the kernel is locked down: what supervisor mode is, lockdown forbids",
        "boot without lockdown= on the kernel's command line, and with Secure Boot off",
    ),
    Row(
        Refusal.NOT_CAPABLE,
        "capabilities of the caller",
        "the caller lacks CAP_SYS_RAWIO or CAP_SYS_MODULE",
        "run it as root of the machine itself: a container's root, or that of a user namespace, "
        "is not enough",
    ),
    Row(
        Refusal.OTHER_USER,
        "another user's process",
        "the process is another user's, and the caller lacks CAP_SYS_PTRACE",
        "run it as that user with the other capabilities, or with CAP_SYS_PTRACE",
    ),
    Row(
        Refusal.PRIVILEGED,
        "set-user-ID",
        "the process is set-user-ID: its real, effective and saved IDs differ",
        "have the program started by the user whose rights it takes",
    ),
    Row(
        Refusal.CONFINED,
        "confined by seccomp",
        "the process is confined by seccomp, which a process in supervisor mode could undo",
        "start the program without its sandbox, if you trust it as you trust the kernel",
    ),
    Row(
        Refusal.COMPAT,
        "32-bit",
        "the process is a 32-bit one",
        "use a 64-bit build of the program",
    ),
    Row(
        Refusal.KERNEL_THREAD,
        "a kernel thread",
        "it is a kernel thread, or about to exit",
        "there is nothing to switch: kernel threads are in supervisor mode already",
    ),
    Row(
        Refusal.VCPU,
        "runs a virtual machine",
        "the process runs a virtual machine (KVM), which changes what supervisor mode depends on",
        "switch programs inside of the virtual machine instead",
    ),
)

REFUSALS: dict[Refusal, Row] = {row.code: row for row in _ROWS}
"""By code, in the order of the interface."""

_missing = set(Refusal) - {Refusal.NONE} - REFUSALS.keys()
if _missing:
    raise AssertionError(f"no words for {_missing}")


def explain(code: Refusal) -> str:
    """Reason and remedy as one piece of a message.

    >>> explain(Refusal.COMPAT)
    'the process is a 32-bit one; use a 64-bit build of the program'
    """
    row = REFUSALS[code]
    return f"{row.reason}; {row.remedy}"


def of_mask(mask: int) -> tuple[Row, ...]:
    """The rows of the reasons in tl_supervisor.refusals.

    >>> [row.name for row in of_mask(1 << Refusal.PTI | 1 << Refusal.LOCKDOWN)]
    ['pti', 'lockdown']
    """
    return tuple(row for row in _ROWS if row.of_machine and mask >> row.code & 1)


def unknown_bits(mask: int) -> int:
    """Reasons that a newer module knows and this table does not."""
    known = sum(1 << row.code for row in _ROWS if row.of_machine)
    return mask & ~known
