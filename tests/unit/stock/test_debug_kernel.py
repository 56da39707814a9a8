# SPDX-License-Identifier: GPL-2.0-only
"""The debug kernel looks for mistakes or is not built at all.

It owns the tests of debug_kernel.py that need no compiler: the fragment, the check of what
kconfig made of it, and what is kept of a built tree.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trapless.base.console import TraplessError
from trapless.stock import debug_kernel, kernels

CONFIG = "".join(f"CONFIG_{option}=y\n" for option in debug_kernel.DEBUG.required)
FRAGMENTS = {path for spec in debug_kernel.SPECS.values() for path in spec.fragments}


@pytest.mark.parametrize("fragment", sorted(FRAGMENTS), ids=lambda path: path.stem)
def test_a_fragment_asks_for_each_option_once(fragment: Path) -> None:
    names = re.findall(r"^(?:# )?CONFIG_(\w+)[= ]", fragment.read_text(), re.MULTILINE)
    assert len(names) > 5
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("spec", debug_kernel.SPECS.values(), ids=debug_kernel.SPECS)
def test_what_is_required_is_asked_for_or_follows(spec: debug_kernel.DebugSpec) -> None:
    asked: dict[str, str] = {}
    for fragment in spec.fragments:
        asked |= re.findall(r"^CONFIG_(\w+)=(.)$", fragment.read_text(), re.MULTILINE)
    assert {name for name in spec.required if asked.get(name) != "y"} == {
        "LOCKDEP",  # selected by PROVE_LOCKING
        "PREEMPT_NOTIFIERS",  # by KVM
        "USER_RETURN_NOTIFIER",  # by KVM
        "CONTEXT_TRACKING_USER",  # by NO_HZ_FULL
        "PARAVIRT_XXL",  # by XEN_PV
        "PM_SLEEP_DEBUG",  # follows from PM_DEBUG and SUSPEND
    }


def test_each_is_built_from_a_source() -> None:
    assert kernels.DEBUG_SOURCES.keys() == debug_kernel.SPECS.keys()


def test_a_complete_configuration_passes() -> None:
    debug_kernel.check_config(CONFIG, debug_kernel.DEBUG)


@pytest.mark.parametrize("harm", ["# CONFIG_KASAN is not set\n", "CONFIG_KASAN=m\n", ""])
def test_an_option_that_kconfig_dropped_is_named(harm: str) -> None:
    with pytest.raises(TraplessError, match=r"dropped CONFIG_KASAN;"):
        debug_kernel.check_config(CONFIG.replace("CONFIG_KASAN=y\n", harm), debug_kernel.DEBUG)


def test_what_modules_are_built_from_is_kept(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    kept = [
        ".config",
        "Makefile",
        "Module.symvers",
        "arch/x86/Makefile",
        "arch/x86/include/asm/a.h",
        "include/generated/autoconf.h",
        "scripts/mod/modpost",
        "scripts/module.lds",
        "tools/objtool/objtool",
    ]
    dropped = ["vmlinux", "mm/slub.c", "mm/slub.o", "scripts/mod/modpost.o", "include/.a.h.cmd"]
    for name in kept + dropped:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    (tree / "scripts/dtc").symlink_to("nowhere")
    debug_kernel.keep_build_files(tree, tmp_path / "kept")
    paths = [path for path in (tmp_path / "kept").rglob("*") if not path.is_dir()]
    names = sorted(str(path.relative_to(tmp_path / "kept")) for path in paths)
    assert names == sorted([*kept, "scripts/dtc"])
