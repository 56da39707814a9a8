# SPDX-License-Identifier: GPL-2.0-only
"""Whether this machine and kernel offer supervisor mode, and for each reason against it what helps.

Where the module is loaded, it is asked: its answer counts. Where it is not, its answer is predicted
from what the kernel shows of itself. Owns the predictions; the reasons are rows of refusals.py,
the decision is kmod/supervisor/refusal.c's.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable

from trapless import abi
from trapless.abi import Refusal
from trapless.base.console import TraplessError
from trapless.doctor.capabilities import (
    LAB_WORKS,
    NO_MODULES,
    Capability,
    Host,
    takes_modules,
)
from trapless.supervisor import control
from trapless.supervisor.refusals import Row, of_mask, table, unknown_bits

TITLE = "Supervisor mode on this machine's own kernel"

NEEDED_CONFIG = ("CONFIG_PREEMPT_NOTIFIERS", "CONFIG_TRACEPOINTS")
NEEDED_SYMBOLS = (
    "entry_SYSCALL_64",
    "swapgs_restore_regs_and_return_to_usermode",
    "ptrace_may_access",
)
ONE_OF_SYMBOLS = ("syscall_exit_to_user_mode", "irqentry_exit")

Prediction = Callable[[Host], str]
"""The reasons for which the module will refuse, as far as they can be seen; empty without any."""

VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities"


def examine(host: Host) -> tuple[Capability, ...]:
    """Whether it is offered, then each reason against it."""
    try:
        mask = control.refusals(str(host.root / abi.DEVICE.lstrip("/")))
    except TraplessError:
        return _predicted(host)
    return _answered(mask)


def _answered(mask: int) -> tuple[Capability, ...]:
    rows, unknown = of_mask(mask), unknown_bits(mask)
    if not mask:
        return (_head(True, "offered by the module"),)
    remedy = "each reason has its own remedy, below"
    if unknown:
        remedy += f"; bits {unknown:#x} are of a newer module: ask the command that came with it"
    head = _head(False, f"the module refuses it: {_reasons(len(rows))}", remedy)
    return (head, *(_row(row, row.reason) for row in rows))


def _predicted(host: Host) -> tuple[Capability, ...]:
    seen = {code: predict(host) for code, predict in PREDICTIONS.items()}
    against = [_row(table()[code], fact) for code, fact in seen.items() if fact]
    rest = ", ".join(table()[code].title for code, fact in seen.items() if not fact)
    fine = Capability("supervisor-fine", "nothing against it in", True, rest)
    if not takes_modules(host):
        head = _head(False, NO_MODULES, "use the lab: trapless run --lab --mode supervisor")
    elif against:
        remedy = f"each reason has its own remedy, below; or {LAB_WORKS}"
        head = _head(False, f"the module would refuse it: {_reasons(len(against))}", remedy)
    else:
        observation = "nothing is seen against it; when it is loaded, the module itself says"
        head = _head(True, observation)
    return (head, *against, fine)


def _head(ok: bool, observation: str, remedy: str = "") -> Capability:
    return Capability("supervisor", "supervisor mode", ok, observation, remedy)


def _row(row: Row, observation: str) -> Capability:
    return Capability(f"supervisor-{row.name}", row.title, False, observation, row.remedy)


def _reasons(count: int) -> str:
    return "one reason" if count == 1 else f"{count} reasons"


# ---- What the kernel shows of itself --------------------------------------------------------


def _flag(name: str, meaning: str) -> Prediction:
    def predict(host: Host) -> str:
        flags = re.search(r"^flags\s*:(.*)$", host.text("proc/cpuinfo"), re.MULTILINE)
        return meaning if flags and name in flags[1].split() else ""

    return predict


def _mitigation(file: str, pattern: str) -> Prediction:
    def predict(host: Host) -> str:
        text = host.text(f"{VULNERABILITIES}/{file}")
        return f"{file}: {text}" if re.search(pattern, text) else ""

    return predict


def _config(host: Host) -> str:
    text = _kernel_config(host)
    absent = [name for name in NEEDED_CONFIG if text and f"{name}=y" not in text.splitlines()]
    return f"built without {' and '.join(absent)}" if absent else ""


def _kernel_config(host: Host) -> str:
    """The running kernel's configuration, where the machine has it."""
    try:
        return gzip.decompress((host.root / "proc/config.gz").read_bytes()).decode(errors="replace")
    except (OSError, EOFError):
        return host.text(f"boot/config-{host.release}")


def _symbol(host: Host) -> str:
    if not host.text("proc/kallsyms"):
        return ""
    absent = host.absent_symbols(NEEDED_SYMBOLS)
    if len(host.absent_symbols(ONE_OF_SYMBOLS)) == len(ONE_OF_SYMBOLS):
        absent.append(" or ".join(ONE_OF_SYMBOLS))
    return f"lacks {', '.join(absent)}" if absent else ""


def _xen(host: Host) -> str:
    kind = host.text("sys/hypervisor/guest_type")
    return "the kernel is a Xen PV guest" if kind == "PV" else ""


def _confidential(host: Host) -> str:
    if host.exists("dev/sev-guest"):
        return "there is /dev/sev-guest: a guest with encrypted registers"
    return _flag("tdx_guest", "the kernel is a TDX guest")(host)


def _context(host: Host) -> str:
    processors = host.text("sys/devices/system/cpu/nohz_full")
    if processors in ("", "(null)"):
        return ""
    return f"nohz_full is on for processors {processors}"


def _lockdown(host: Host) -> str:
    level = re.search(r"\[(\w+)\]", host.text("sys/kernel/security/lockdown"))
    return f"the kernel is locked down ({level[1]})" if level and level[1] != "none" else ""


PREDICTIONS: dict[Refusal, Prediction] = {
    Refusal.CONFIG: _config,
    Refusal.SYMBOL: _symbol,
    Refusal.PTI: _flag("pti", "page-table isolation is on (pti in /proc/cpuinfo)"),
    Refusal.FRED: _flag("fred", "FRED is on (fred in /proc/cpuinfo)"),
    Refusal.IBRS: _mitigation("spectre_v2", r"Mitigation: IBRS\b"),
    Refusal.CALL_DEPTH: _mitigation("retbleed", r"Mitigation: Stuffing\b"),
    Refusal.XEN: _xen,
    Refusal.CONFIDENTIAL: _confidential,
    Refusal.CONTEXT: _context,
    Refusal.LOCKDOWN: _lockdown,
}
"""The others (its parameters, interrupt stack, entry, shadow stacks of the kernel itself) are the
module's alone to see."""
