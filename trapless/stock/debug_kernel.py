# SPDX-License-Identifier: GPL-2.0-only
"""Builds the debug kernels: one with KASAN, lockdep, kmemleak and fault injection, one that looks
for data races (KCSAN), and one of clang's with control-flow integrity (kCFI).

This file makes a kernel in the cache of Debian's kernel source package and fragments of a
configuration, of which the last that names an option counts. kconfig drops options silently, so
each flavour lists those that must remain, and they are checked before the build.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import cache, tools
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir
from trapless.stock.kbuild import compiler_version
from trapless.stock.kernel import Kernel, load, save
from trapless.stock.packages import opened
from trapless.stock.stores import obtain

LOG = "build.log"
BUILD_BYTES = 3_500_000_000  # source 1.4 GB, objects 0.7 GB, and a margin
OBJECTS = 1800  # compiled files, measured; only the progress line depends on it

TOOLS = {
    "gcc": "gcc",
    "make": "make",
    "ld": "binutils",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "tar": "tar",
    "perl": "perl",
}
TOOLS_OF_LLVM = {"clang": "clang", "ld.lld": "lld", "llvm-nm": "llvm", "llvm-ar": "llvm"}
"""The tools in place of gcc and ld; a suffix tells releases apart."""
HEADERS = {Path("/usr/include/gelf.h"): "libelf-dev"}

REQUIRED = (
    "SLUB", "SLUB_DEBUG", "PROVE_LOCKING", "LOCKDEP", "DEBUG_ATOMIC_SLEEP", "DEBUG_ENTRY",
    "X86_DEBUG_FPU", "DEBUG_PREEMPT", "DEBUG_LIST", "DEBUG_VM", "DETECT_HUNG_TASK",
    "SOFTLOCKUP_DETECTOR", "FAULT_INJECTION", "FAULT_INJECTION_USERCOPY", "FAILSLAB", "VMAP_STACK",
    "KPROBES", "KALLSYMS_ALL", "SECCOMP_FILTER", "AUDITSYSCALL", "FTRACE_SYSCALLS",
    "IA32_EMULATION", "IO_URING", "MODULE_UNLOAD", "OVERLAY_FS", "9P_FS", "VIRTIO_PCI", "PCI_MSI",
    "VIRTIO_CONSOLE", "VIRTIO_BLK", "PREEMPT_NOTIFIERS", "USER_RETURN_NOTIFIER", "X86_MSR",
    "X86_MCE", "X86_VSYSCALL_EMULATION", "UPROBE_EVENTS", "ELF_CORE", "HOTPLUG_CPU", "SUSPEND",
    "PM_SLEEP_DEBUG", "RTC_DRV_CMOS", "MEMCG", "JUMP_LABEL", "CONTEXT_TRACKING_USER",
    "PARAVIRT_XXL", "VIRTIO_NET", "PROC_KCORE", "RDMA_RXE", "INFINIBAND_USER_ACCESS",
    "INFINIBAND_ADDR_TRANS", "MEMORY_HOTREMOVE",
)  # fmt: skip
"""Options that each configuration must still have after kconfig."""

FRAGMENTS = Path(__file__).parent


@dataclass(frozen=True)
class Source:
    """Which of Debian's source packages debug kernels are built from."""

    suites: tuple[str, ...]
    package: str


@dataclass(frozen=True)
class DebugSpec:
    """A debug kernel: its configuration, and what kconfig must not have dropped of it."""

    name: str
    fragments: tuple[Path, ...]
    required: tuple[str, ...]
    llvm: str = ""
    """Where clang compiles it, the suffix of the names of clang and its tools."""

    @property
    def tools(self) -> dict[str, str]:
        """The programs that build it, and Debian's packages that have them."""
        if not self.llvm:
            return TOOLS
        others = {name: package for name, package in TOOLS.items() if name not in ("gcc", "ld")}
        return others | {
            name + self.llvm: package + self.llvm for name, package in TOOLS_OF_LLVM.items()
        }

    @property
    def compiler(self) -> str:
        """The compiler's name."""
        return f"clang{self.llvm}" if self.llvm else "gcc"

    def make(self, *targets: str) -> list[str]:
        """The command that makes targets in its tree."""
        return ["make", *([f"LLVM={self.llvm}"] if self.llvm else []), *targets]


DEBUG = DebugSpec(
    "debug",
    (FRAGMENTS / "debug.config",),
    (*REQUIRED, "KASAN", "KASAN_GENERIC", "KASAN_VMALLOC", "DEBUG_KMEMLEAK", "KCOV"),
)
KCSAN = DebugSpec(
    "kcsan", (FRAGMENTS / "debug.config", FRAGMENTS / "kcsan.config"), (*REQUIRED, "KCSAN")
)
KCFI = DebugSpec(
    "kcfi",
    (FRAGMENTS / "debug.config", FRAGMENTS / "kcfi.config"),
    (*REQUIRED, "CFI_CLANG", "X86_KERNEL_IBT", "FINEIBT"),
    llvm="-16",
)
SPECS = {spec.name: spec for spec in (DEBUG, KCSAN, KCFI)}


def resolve(spec: DebugSpec, source: Source, progress: Progress) -> Kernel:
    """A debug kernel, from the cache or built now (15 minutes; needs no root)."""
    digest = cache.sha256_files(FRAGMENTS, spec.fragments, source.package + spec.llvm)
    folder = cache_dir() / "kernels" / f"{spec.name}-{digest[:12]}"
    return obtain(
        spec.name,
        folder,
        lambda: load(folder, progress),
        lambda part: _build(spec, source, part, progress),
        f"building the {spec.name} kernel",
        progress,
    )


def _build(spec: DebugSpec, source: Source, part: Path, progress: Progress) -> None:
    """Leave image, build folder, System.map and the log in `part`."""
    tools.require_tools(spec.tools, f"building the {spec.name} kernel")
    for header, package in HEADERS.items():
        if not header.exists():
            raise TraplessError(
                f"building the {spec.name} kernel needs {header}; "
                f"on Debian: apt-get install {package}"
            )
    cache.need_space(cache_dir(), BUILD_BYTES)
    tree, provenance = _source(source, part, progress)
    progress.step(f"configuring the {spec.name} kernel")
    configure(tree, spec, part / LOG)
    _compile(tree, spec, part / LOG, progress)
    progress.step("keeping what modules are built from")
    release = (tree / "include" / "config" / "kernel.release").read_text().strip()
    keep_build_files(tree, part / "build")
    shutil.copyfile(tree / "arch" / "x86" / "boot" / "bzImage", part / "vmlinuz")
    shutil.copyfile(tree / "System.map", part / "System.map")
    cache.remove_tree(tree.parent)
    kernel = Kernel(
        name=spec.name,
        release=release,
        image=part / "vmlinuz",
        build_dir=part / "build",
        modules_dir=None,  # all that the lab needs is built in
        debug=True,
        provenance={**provenance, "compiler": compiler_version(spec.compiler)},
    )
    save(kernel, part)


def _source(source: Source, part: Path, progress: Progress) -> tuple[Path, dict[str, str]]:
    """Debian's patched source, unpacked below `part`, and what it was."""
    root = part / "source"
    root.mkdir()
    with opened(source.suites, progress) as archive:
        packages = [p for p in archive.closure([source.package]) if p.name == source.package]
        if not packages:
            raise archive.missing(source.package)
        archive.fetch(packages, root, progress, what=source.package)
    package = packages[0]
    tarball = root / "usr" / "src" / f"{package.name}.tar.xz"
    progress.step(f"unpacking {tarball.name} ({cache.megabytes(tarball.stat().st_size)})")
    log = part / LOG
    if tools.run_tool(["tar", "-xJf", str(tarball), "-C", str(root)], log) != 0:
        raise TraplessError(f"cannot unpack {tarball.name}:\n{tools.last_lines(log)}")
    tarball.unlink()
    return root / package.name, {package.name: f"{package.version} sha256:{package.sha256}"}


def configure(tree: Path, spec: DebugSpec, log: Path) -> None:
    """Configure `tree` as tinyconfig with the options of the fragments."""
    _make(tree, log, spec.make("tinyconfig"))
    with (tree / ".config").open("a") as file:
        for fragment in spec.fragments:
            file.write(fragment.read_text())  # kconfig takes the last value of an option
    _make(tree, log, spec.make("olddefconfig"))
    check_config((tree / ".config").read_text(), spec)


def _compile(tree: Path, spec: DebugSpec, log: Path, progress: Progress) -> None:
    progress.step("building the kernel (with checks for mistakes; once, 15 min on two cores)")
    jobs = f"-j{len(os.sched_getaffinity(0))}"

    def watch() -> None:
        lines = log.read_text(errors="replace").splitlines()
        progress.advance(sum(line.startswith("  CC ") for line in lines), OBJECTS)

    # The modules that the fragment names only for what they select are not built, so this is all.
    _make(tree, log, spec.make(jobs, "bzImage", "modules_prepare"), watch)
    shutil.copyfile(tree / "vmlinux.symvers", tree / "Module.symvers")


def _make(
    tree: Path, log: Path, argv: Sequence[str], watch: Callable[[], None] | None = None
) -> None:
    status = tools.run_tool(argv, log, cwd=tree, watch=watch)
    if status != 0:
        raise TraplessError(
            f"the kernel does not build: {' '.join(argv)} ended with status {status}:\n"
            f"{tools.last_lines(log, 30)}"
        )


def check_config(text: str, spec: DebugSpec) -> None:
    """Raise TraplessError where kconfig has dropped an option that the kernel must have."""
    enabled = set(re.findall(r"^CONFIG_(\w+)=y$", text, re.MULTILINE))
    dropped = [option for option in spec.required if option not in enabled]
    if dropped:
        raise TraplessError(
            f"kconfig dropped {', '.join('CONFIG_' + option for option in dropped)}; a dependency "
            f"is missing in {spec.fragments[-1]}: add what each of them depends on"
        )


def keep_build_files(tree: Path, target: Path) -> None:
    """Copy from a built tree what building a module against it needs (as the kernel's own
    scripts/package/builddeb does for its headers package)."""
    for source in build_files(tree):
        copy = target / source.relative_to(tree)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy, follow_symlinks=False)


def build_files(tree: Path) -> Iterator[Path]:
    """The files of a built tree that a module's build reads."""
    arch = tree / "arch" / "x86"
    yield from (tree / name for name in (".config", "Module.symvers"))
    yield from tree.glob("Makefile*")
    yield from arch.glob("Makefile*")
    yield from _files([tree / "include", tree / "scripts", arch / "include", arch / "scripts"])
    objtool = tree / "tools" / "objtool" / "objtool"
    if objtool.exists():
        yield objtool


def _files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for path in folder.rglob("*"):
            if (path.is_file() or path.is_symlink()) and path.suffix not in (".o", ".cmd"):
                yield path
