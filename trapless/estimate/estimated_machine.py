# SPDX-License-Identifier: GPL-2.0-only
"""The machine that an estimate is about: processor, kernel, hypervisor, mitigations, frequency.

This file owns what is read of /proc and /sys, which build of the module's loop that means, and what
could not be pinned. It measures nothing.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities"
ASKED = ("spectre_v2", "retbleed", "spec_rstack_overflow", "indirect_target_selection", "meltdown")
"""The mitigations that change a call's way: of indirect calls, returns, page tables."""

INDIRECT = {"direct": "plain indirect calls", "retpoline": "retpolines"}
RETURNS = {"plain": "plain returns", "thunk": "a return thunk", "safe": "Safe RET"}
HOT = "hot_"
"""Of a build's name: it calls hot handlers directly, as the module does on kernels with
retpolines."""
LOOPS = (
    *(f"{indirect}_{returns}" for indirect in INDIRECT for returns in RETURNS),
    f"{HOT}direct_plain",
    *(f"{HOT}retpoline_{returns}" for returns in RETURNS),
)
"""The builds of the loop: those of stat/estimate/loop.h."""


def loop_text(loop: str) -> str:
    """A build of the loop in words."""
    indirect, returns = loop.removeprefix(HOT).split("_")
    hot = ", hot calls directly" if loop.startswith(HOT) else ""
    return f"{INDIRECT[indirect]}, {RETURNS[returns]}{hot}"


def loop_by_table(loop: str) -> str:
    """The build that differs only in that all handlers are called through the table."""
    return loop.removeprefix(HOT)


def loop_directly(loop: str) -> str:
    """The build that differs only in that hot handlers are called directly; where nobody has built
    one, because only returns differ, that with plain returns."""
    name = HOT + loop_by_table(loop)
    return name if name in LOOPS else f"{HOT}direct_plain"


def loop_of(mitigations: Mapping[str, str]) -> str:
    """The build that calls and returns as a kernel does whose mitigations read like this.

    >>> loop_of({"spectre_v2": "Mitigation: Retpolines; ...", "spec_rstack_overflow": "Safe RET"})
    'hot_retpoline_safe'
    """
    indirect = f"{HOT}retpoline" if "Retpolines" in mitigations.get("spectre_v2", "") else "direct"
    if "Safe RET" in mitigations.get("spec_rstack_overflow", ""):
        return f"{indirect}_safe"
    thunk = "untrained return thunk" in mitigations.get("retbleed", "") or (
        "return thunks" in mitigations.get("indirect_target_selection", "")
    )
    return f"{indirect}_thunk" if thunk else f"{indirect}_plain"


@dataclass(frozen=True)
class Machine:
    """The machine, as a report describes it. `cpu` is the CPU that all processes ran on."""

    processor: str
    cpus: int
    cpu: int
    kernel: str
    hypervisor: str
    mitigations: Mapping[str, str]
    governor: str
    not_pinned: tuple[str, ...]
    date: str
    """When it was measured, in UTC."""

    @property
    def loop(self) -> str:
        return loop_of(self.mitigations)


def describe(cpu: int, root: Path = Path("/")) -> Machine:
    """Read all of it; tests put a folder in place of `/`."""
    info = _text(root / "proc/cpuinfo")
    mitigations = {name: _text(root / VULNERABILITIES / name) for name in ASKED}
    governor = _text(root / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor")
    hypervisor = _hypervisor(info, root)
    return Machine(
        processor=_first(r"^model name\s*:\s*(.+)$", info) or "unknown",
        cpus=len(re.findall(r"^processor\s*:", info, re.M)),
        cpu=cpu,
        kernel=_text(root / "proc/sys/kernel/osrelease") or os.uname().release,
        hypervisor=hypervisor,
        mitigations={name: text for name, text in mitigations.items() if text},
        governor=governor,
        not_pinned=tuple(_not_pinned(root, governor, hypervisor, mitigations)),
        date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    )


def _not_pinned(
    root: Path, governor: str, hypervisor: str, mitigations: Mapping[str, str]
) -> list[str]:
    found = []
    if not governor:
        found.append("the frequency: this kernel does not control it")
    elif governor != "performance":
        found.append(f"the frequency: the governor is {governor}, not performance")
    boost = _text(root / "sys/devices/system/cpu/cpufreq/boost")
    no_turbo = _text(root / "sys/devices/system/cpu/intel_pstate/no_turbo")
    if boost == "1" or no_turbo == "0":
        found.append("the frequency: boost is on")
    if _text(root / "sys/devices/system/cpu/smt/active") == "1":
        found.append("the other thread of the core: SMT is on")
    if hypervisor:
        found.append("what else runs on the host of this virtual machine")
    if not mitigations.get("spectre_v2"):
        found.append("mitigations: this kernel does not tell them; none are assumed")
    load = _text(root / "proc/loadavg").split()
    if load and float(load[0]) > 0.5:
        found.append(f"other programs: {load[0]} of them were running on average")
    return found


def _hypervisor(info: str, root: Path) -> str:
    if " hypervisor" not in info:
        return ""
    names = ("sys/hypervisor/type", "sys/class/dmi/id/sys_vendor", "sys/class/dmi/id/product_name")
    return ", ".join(filter(None, (_text(root / name) for name in names))) or "unnamed"


def _first(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.M)
    return match[1].strip() if match else ""


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
