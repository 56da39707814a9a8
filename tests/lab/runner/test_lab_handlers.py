# SPDX-License-Identifier: GPL-2.0-only
"""A handler of a tracepoint that has another type than the kernel calls does not compile.

A kernel with control-flow integrity ends at the first call of such a handler, and no other kernel
tells. So each file with handlers is damaged in turn, and built for the kernel.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from trapless.base.console import Silent, TraplessError
from trapless.stock import kbuild, kernels

pytestmark = [pytest.mark.outer_kernels, pytest.mark.lab, pytest.mark.timeout(1800)]

KMOD = Path(__file__).resolve().parents[3] / "kmod"
KBUILD = """\
include $(src)/compat/features.mk
obj-m := trapless.o
trapless-y := {}
ccflags-y += -I$(src) -I$(src)/../include/uapi $(TLK_FEATURES)
"""
TYPE = "BUILD_BUG_ON_ZERO"
DAMAGES = [
    ("ring/request", "*task TLK_EXIT_ARGUMENTS)", "*task TLK_EXIT_ARGUMENTS, int more)", TYPE),
    ("supervisor/hooks", "struct task_struct *parent,", "const struct task_struct *parent,", TYPE),
    ("probe/signal", "void *unused, int number,", "void *unused, long number,", TYPE),
    ("probe/event_tracepoint", "*action, int result)", "*action)", TYPE),
    (
        "ring/request",
        "TLK_HANDLER(sched_process_exit, on_exit)",
        '{ "sched_process_exit", (void (*)(void))on_exit }',
        "incompatible pointer type",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "complaint"), DAMAGES)
def test_a_handler_of_another_type_does_not_compile(
    kernel: str, name: str, old: str, new: str, complaint: str, tmp_path: Path
) -> None:
    shutil.copytree(KMOD, tmp_path / "kmod")
    damaged = tmp_path / "kmod" / f"{name}.c"
    text = damaged.read_text()
    assert text.count(old) == 1
    damaged.write_text(text.replace(old, new))
    (tmp_path / "kmod" / "Kbuild").write_text(KBUILD.format(f"{name}.o"))
    with pytest.raises(TraplessError, match=rf"{name}\.c(?s:.)*{complaint}"):
        kbuild.module_for(kernels.resolve(kernel, Silent()), Silent(), tmp_path)


def test_one_place_gives_handlers_to_the_kernel() -> None:
    files = {str(path.relative_to(KMOD)): path.read_text() for path in KMOD.rglob("*.[ch]")}
    users = [name for name, text in files.items() if re.search(r"tracepoint_probe_register", text)]
    assert users == ["compat/symbols.c"]
