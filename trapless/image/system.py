# SPDX-License-Identifier: GPL-2.0-only
"""The system that the image boots: one initramfs with everything, so that nothing is read later.

The lab's init and busybox, drivers of the stick and of keyboards, Python, this package, the built
programs and the module. A stick may be pulled once that is in memory. This file chooses the files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from trapless.base.console import Progress, TraplessError
from trapless.base.paths import PACKAGE, build_dir, repo_root
from trapless.image import drivers, runtime
from trapless.stock.kernel import Kernel
from trapless.vm import guest_tree
from trapless.vm.guest_tree import GuestPlan
from trapless.vm.initramfs import Initramfs

HOME = "/opt/trapless"
START = "import sys; sys.path[0] = '{}'; from {} import main; sys.exit(main())"
STATION = START.format(HOME, "trapless.image.station.__main__")
COMMAND = f"""\
#!/bin/sh
exec python3 -c "{START.format(HOME, "trapless.__main__")}" "$@"
"""
PROFILE = "export PS1='trapless# ' LANG=C.UTF-8; cd /results\n"

SOURCES = ("eval", "include/uapi")
"""The files that the package reads from the tree around it."""
BUILT = ("eval", "examples", "stat")
"""Programs that `make workloads` builds and that run on the machine."""
SKIPPED = frozenset(("__pycache__", "tree", ".git"))
SUFFIXES_SKIPPED = frozenset((".o", ".d", ".a", ".pyc", ".svg", ".png", ".md"))


def make(
    kernel: Kernel, modules: Sequence[Path], python: Path, scratch: Path, progress: Progress
) -> Initramfs:
    """The tree to be written: for `kernel`, with our `modules`, and Python of the root `python`."""
    if kernel.modules_dir is None:
        raise TraplessError(f"the kernel {kernel.name} comes without modules, as of USB", status=2)
    progress.step("collecting the files of the image")
    tree = Initramfs()
    tree.file("/init", guest_tree.init_program(progress), 0o755)
    for folder in ("/proc", "/sys", "/dev", "/run", "/results"):
        tree.directory(folder)
    guest_tree.add_busybox(tree, progress)
    runtime.add(tree, python)
    drivers.add_at_hand(tree, kernel.modules_dir)
    tree.file(f"{HOME}/pyproject.toml", repo_root() / "pyproject.toml")
    _add_folder(tree, PACKAGE, f"{HOME}/trapless")
    for name in SOURCES:
        _add_folder(tree, repo_root() / name, f"{HOME}/{name}")
    for name in BUILT:
        _add_programs(tree, build_dir() / name, f"{HOME}/build/{name}")
    tree.file("/usr/bin/trapless", COMMAND.encode(), 0o755)
    tree.file("/etc/profile", PROFILE.encode())
    for module in modules:
        tree.file(f"{guest_tree.MODULE_FOLDER}/{module.name}", module)
    plan = GuestPlan(
        argv=("python3", "-c", STATION),
        env=(("HOME", "/root"), ("TERM", "linux")),
        modules_dir=kernel.modules_dir,
        modules=tuple((name, "") for name in drivers.available(kernel.modules_dir, drivers.BOOT)),
        alone=True,
    )
    loads = guest_tree.add_modules(tree, plan)
    tree.file("/trapless/config", guest_tree.records(plan, loads, None), 0o600)
    runtime.add_compiled(tree, python, scratch, progress)
    return tree


def _add_folder(tree: Initramfs, source: Path, target: str) -> None:
    for at, folders, names in os.walk(source):
        folders[:] = sorted(set(folders) - SKIPPED)
        for path in (Path(at) / name for name in sorted(names)):
            if path.suffix not in SUFFIXES_SKIPPED:
                tree.file(f"{target}/{path.relative_to(source)}", path, 0o644)


def _add_programs(tree: Initramfs, source: Path, target: str) -> None:
    """The executables below `source`; the other files of a build have no use on the machine."""
    found = False
    for at, folders, names in os.walk(source):
        folders.sort()
        for path in (Path(at) / name for name in sorted(names)):
            mode = path.stat().st_mode
            if mode & stat.S_IXUSR and path.suffix != ".so":
                found = True
                tree.file(f"{target}/{path.relative_to(source)}", path, 0o755)
    if not found:
        raise TraplessError(f"{source} has no programs; `make workloads` builds them")
