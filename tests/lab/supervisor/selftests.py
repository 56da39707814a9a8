# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's own self-tests for x86, built from Debian's source package of a kernel.

This file fetches tools/testing/selftests of the kernel's own release into the cache, and builds
those of its 64-bit programs for x86 that say something of this machine. It runs none of them.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from trapless.base import tools
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock.kernels import SUPPORTED, resolve
from trapless.stock.packages import opened
from trapless.stock.stores import obtain

TREE = "tools/testing/selftests"
PARTS = (TREE, "tools/include", "arch/x86/include")
"""What of the source is unpacked: the tests, and what they include."""

COMPILER = ("gcc", "-O2", "-std=gnu99", "-pthread", "-w", "-no-pie", "-static", "-DCAN_BUILD_64")
"""As their Makefile calls it, but static: guests have no libraries."""

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "check_initial_reg_state": ("-Wl,-ereal_start",),
    "corrupt_xstate_header": (),
    "fsgsbase": (),
    "fsgsbase_restore": ("clang_helpers_64.S",),
    "ioperm": (),
    "iopl": (),
    "ldt_gdt": (),
    "nx_stack": ("-Wl,-z,noexecstack",),
    "ptrace_syscall": (),
    "sigaltstack": (),
    "sigreturn": (),
    "sigtrap_loop": (),
    "single_step_syscall": (),
    "syscall_arg_fault": (),
    "syscall_nt": (),
    "sysret_rip": ("clang_helpers_64.S",),
    "test_mremap_vdso": (),
    "test_vsyscall": (),
}
"""What each is built with beside its own C file. Left out are 32-bit programs, those for what the
emulator lacks (amx, lam, test_shadow_stack), and three that fail in user mode, too: mov_ss_trap,
syscall_numbering, and sysret_ss_attrs, for whose `lretq` the emulator reads memory with the
kernel's rights."""

SOURCE_BYTES = 400_000_000  # the package and what is unpacked of it, for a while
RECORD = "built"


def built(kernel: str, progress: Progress) -> Path:
    """The folder with the programs of a supported kernel's release."""
    release = resolve(kernel, progress).release
    recipe = hashlib.sha256(repr((COMPILER, PARTS, sorted(PROGRAMS.items()))).encode()).hexdigest()
    folder = cache_dir() / "selftests" / f"{release}-{recipe[:12]}"
    return obtain(
        f"selftests of {release}",
        folder,
        lambda: folder if (folder / RECORD).exists() else None,
        lambda part: _build(kernel, release, part, progress),
        "building the kernel's self-tests",
        progress,
    )


def _build(kernel: str, release: str, part: Path, progress: Progress) -> None:
    tools.require_tools({"gcc": "gcc", "tar": "tar", "xz": "xz-utils"}, "building self-tests")
    tree = _source(kernel, release, part, progress) / TREE / "x86"
    log = part / "build.log"
    for done, (name, more) in enumerate(PROGRAMS.items()):
        argv = [*COMPILER, "-o", str(part / name), f"{name}.c", *more, "-I", "..", "-I",
                "../../../include", "-ldl", "-lrt"]  # fmt: skip
        if tools.run_tool(argv, log, cwd=tree) != 0:
            raise TraplessError(f"{name} does not build:\n{tools.last_lines(log)}")
        progress.advance(done + 1, len(PROGRAMS))
    shutil.rmtree(part / "source")
    (part / RECORD).touch()


def _source(kernel: str, release: str, part: Path, progress: Progress) -> Path:
    """What the programs are built from, unpacked below `part`."""
    series = re.match(r"\d+\.\d+", release)
    package = f"linux-source-{series[0] if series else release}"
    suites = next(spec.suites for spec in SUPPORTED if spec.name == kernel)
    root = part / "source"
    root.mkdir()
    with opened(suites, progress, need_bytes=SOURCE_BYTES) as archive:
        packages = [one for one in archive.closure([package]) if one.name == package]
        if not packages:
            raise archive.missing(package)
        archive.fetch(packages, root, progress, what=package)
    progress.step(f"unpacking the self-tests of {package}")
    tarball = root / "usr" / "src" / f"{package}.tar.xz"
    argv = ["tar", "-xJf", str(tarball), "-C", str(root), *(f"{package}/{one}" for one in PARTS)]
    log = part / "build.log"
    if tools.run_tool(argv, log) != 0:
        raise TraplessError(f"cannot unpack {tarball.name}:\n{tools.last_lines(log)}")
    return root / package
