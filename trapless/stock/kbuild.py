# SPDX-License-Identifier: GPL-2.0-only
"""Builds the module for a kernel: once for each state of the sources, kernel and compiler.

This file runs kbuild for headers that are unpacked and not installed, and for kernels whose build
tools run only in a root of their own. It builds in a copy and changes no file of the checkout.
kmod/Kbuild has the rules of compilation.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from trapless.base import architecture, cache, tools
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir, repo_root
from trapless.stock.kernel import Kernel

MODULE = "trapless.ko"
RDMA_MODULE = "rdma/trapless_rdma.ko"
SOURCES = ("kmod", "include")
TOOLS = {"make": "make", "ld": "binutils"}
SUFFIXES = frozenset({".c", ".h", ".S", ".mk"})
NO_TYPE_INFORMATION = "CONFIG_DEBUG_INFO_BTF_MODULES="
"""Nobody reads the BTF of the module, and making it needs pahole, which machines may lack."""

COUNTED = "TLK_COVERAGE=y"
NOTES = ".gcno"
"""The variable of kmod/Kbuild, and the files that the compiler then writes beside each object."""

LOG = "build.log"
OF_EVERY_MODULE = {"dyndbg", "async_probe"}
"""Parameters that the kernel itself takes for each module."""
BUILDS_KEPT = 16
"""Modules kept in the cache for one kernel release."""


@dataclass(frozen=True)
class Toolbox:
    """How commands run beside the kernel's build tools, and how paths are named there."""

    wrap: Callable[[Sequence[str]], list[str]]
    inside: Callable[[Path], str]


def check_parameters(module: Path, parameters: Sequence[str]) -> None:
    """Raise TraplessError for a parameter that a module does not have: the kernel only logs it."""
    if not parameters:
        return
    listed = re.findall(rb"\0parm=(\w+):", b"\0" + module.read_bytes())
    known = {name.decode() for name in listed}
    for name in (word.partition("=")[0] for word in parameters):
        if name.replace("-", "_") not in known | OF_EVERY_MODULE:
            raise TraplessError(
                f"the module has no parameter '{name}'; it has {', '.join(sorted(known))}", status=2
            )


def module_for(
    kernel: Kernel,
    progress: Progress,
    tree: Path | None = None,
    name: str = MODULE,
    counted: bool = False,
) -> Path:
    """The module for `kernel`, from the cache or built now: trapless.ko of this checkout, or the
    one called `name`, maybe in a folder with a Kbuild of its own, or one of another tree that is
    laid out alike. A `counted` one counts which of its
    lines are reached, and has the compiler's notes about them (NOTES) beside it."""
    if kernel.build_dir is None:
        raise TraplessError(
            f"the module cannot be built for {kernel.image}: no headers of {kernel.release} were "
            f"found around it; give IMAGE:BUILD_DIR, or put linux-headers-{kernel.release} beside "
            f"the image"
        )
    if counted and clang_tools(kernel):
        raise TraplessError(
            f"lines of the module are counted as gcc does it, and clang has compiled "
            f"{kernel.release}: give another kernel",
            status=2,
        )
    for path in (cache_dir(), kernel.build_dir):
        cache.need_plain_path(path)
    sources = read_sources(tree or repo_root())
    traits = (kernel.release, _compiler(kernel), _identity(kernel), name)
    digest = _digest(sources, (*traits, COUNTED) if counted else traits)
    folder = cache_dir() / "modules" / f"{kernel.release}-{digest[:16]}"
    module = folder / Path(name).name
    if not module.exists():
        lock = folder.with_name(f"{kernel.release}.lock")
        with cache.locked(lock, f"building the module for {kernel.release}", progress):
            if not module.exists():
                with cache.assembling(folder, progress) as part:
                    _build(kernel, sources, name, part, counted, progress)
                _forget_old(folder.parent, kernel.release, module.name)
        progress.done()
    return module


def _forget_old(folder: Path, release: str, name: str) -> None:
    """Remove all builds but the last ones: each edit of the module leaves one behind."""
    builds = [path.parent for path in folder.glob(f"{release}-*/{name}")]
    for old in sorted(builds, key=lambda path: path.stat().st_mtime)[:-BUILDS_KEPT]:
        cache.remove_tree(old)


def source_files(root: Path) -> dict[str, Path]:
    """Every file that a module is built from, by its name in the build's copy: those of `root`, and
    the project's headers."""
    folders = [root / name for name in SOURCES]
    if root != repo_root():
        folders.insert(0, repo_root() / "include")
    return {
        str(path.relative_to(folder.parent)): path
        for folder in folders
        for path in folder.rglob("*")
        if (path.suffix in SUFFIXES and not path.name.endswith(".mod.c")) or path.name == "Kbuild"
    }


def read_sources(root: Path) -> dict[str, bytes]:
    """The content of source_files(). They are read once, so that an edit during the build cannot
    make the hash wrong."""
    sources = {name: path.read_bytes() for name, path in source_files(root).items()}
    if "kmod/Kbuild" not in sources:
        raise TraplessError(f"{root / 'kmod' / 'Kbuild'} is missing: the checkout is incomplete")
    return sources


def _digest(sources: Mapping[str, bytes], more: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for name, content in sorted(sources.items()):
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    for text in more:
        digest.update(f"{text}\0".encode())
    return digest.hexdigest()


def _identity(kernel: Kernel) -> str:
    """A hash by which two builds of the same release differ: of configuration and exported
    symbols."""
    assert kernel.build_dir is not None
    names = (".config", "Module.symvers", "include/generated/autoconf.h")
    files = [kernel.build_dir / name for name in names]
    return cache.sha256_files(kernel.build_dir, [path for path in files if path.exists()])


def _build(
    kernel: Kernel,
    sources: Mapping[str, bytes],
    name: str,
    part: Path,
    counted: bool,
    progress: Progress,
) -> None:
    """Build in a copy of the sources and leave the module, the log and any notes in `part`."""
    if kernel.build_root is None:
        tools.require_tools(TOOLS, "building the module")
    progress.step(f"building the module for {kernel.release}")
    log = part / LOG
    with _workplace(kernel, part) as work:
        for path, content in sources.items():
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_bytes(content)
        box = _toolbox(kernel)
        built = work / "kmod" / name
        make = _make(kernel, box, built.parent) + ([COUNTED] if counted else [])
        status = tools.run_tool(box.wrap(make), log)
        if status != 0 or not built.exists():
            raise TraplessError(_explain(kernel, log, box.inside(work)))
        shutil.copyfile(built, part / built.name)
        for note in (work / "kmod").rglob(f"*{NOTES}") if counted else ():
            shutil.copyfile(note, part / note.name)


@contextmanager
def _workplace(kernel: Kernel, part: Path) -> Iterator[Path]:
    """A temporary folder for the copy, in the root that has the kernel's build tools."""
    parent = part if kernel.build_root is None else kernel.build_root / "tmp"
    work = Path(tempfile.mkdtemp(prefix="trapless.", dir=parent))
    try:
        yield work
    finally:
        with tools.interrupts_deferred():
            cache.remove_tree(work)


def _make(kernel: Kernel, box: Toolbox, source: Path) -> list[str]:
    """The kbuild command line.

    Debian's headers packages are two trees: linux-headers-RELEASE has a Makefile of one line that
    includes linux-headers-VERSION-common/Makefile by its absolute name once installed. Naming the
    latter with -f is the same, and works from wherever both were unpacked side by side.
    """
    assert kernel.build_dir is not None
    jobs = f"-j{len(os.sched_getaffinity(0))}"
    argv = ["make", jobs, "-C", box.inside(kernel.build_dir)]
    common = common_makefile(kernel.build_dir)
    if common is not None:
        argv += ["-f", box.inside(common), f"KBUILD_OUTPUT={box.inside(kernel.build_dir)}"]
    argv += [f"{variable}={name}" for variable, name in clang_tools(kernel).items()]
    arch = architecture.named(kernel.arch)
    if arch.is_foreign:
        argv += [f"ARCH={arch.name}", f"CROSS_COMPILE={arch.triplet}-"]
    return [*argv, f"M={box.inside(source)}", NO_TYPE_INFORMATION, "modules"]


def common_makefile(build_dir: Path) -> Path | None:
    """The Makefile that Debian's headers include, found beside them; None for other trees."""
    text = (build_dir / "Makefile").read_text(errors="replace")
    match = re.search(r"^include /usr/src/([^/\s]+)/Makefile$", text, re.MULTILINE)
    if match is None:
        return None
    common = build_dir.resolve().parent / match.group(1) / "Makefile"
    return common if common.exists() else None


def clang_tools(kernel: Kernel) -> dict[str, str]:
    """For a kernel that clang has compiled, kbuild's variables for the compiler and the linker:
    those of the kernel's release, or the machine's own if they are not older. Empty for other
    kernels."""
    assert kernel.build_dir is not None
    config = kernel.build_dir / ".config"
    text = config.read_text(errors="replace") if config.exists() else ""
    if "CONFIG_CC_IS_CLANG=y" not in text:
        return {}
    version = re.search(r"^CONFIG_CLANG_VERSION=(\d+)\d{4}$", text, re.MULTILINE)
    suffix = f"-{version[1]}" if version and not _own_clang_will_do(kernel, version[1]) else ""
    names = {"CC": f"clang{suffix}"}
    if "CONFIG_LD_IS_LLD=y" in text:
        names["LD"] = f"ld.lld{suffix}"
    return names


def _own_clang_will_do(kernel: Kernel, release: str) -> bool:
    """Whether a release of clang is not there by its number, and `clang` is as new."""
    if kernel.build_root is not None:
        return not (kernel.build_root / "usr/bin" / f"clang-{release}").exists()
    if shutil.which(f"clang-{release}", path=tools.tool_path()):
        return False
    if not shutil.which("clang", path=tools.tool_path()):
        return False
    own = re.search(r"version (\d+)", compiler_version("clang"))
    return own is not None and int(own[1]) >= int(release)


def compiler_name(kernel: Kernel) -> str:
    """The compiler that kbuild will call for this tree: clang for a kernel of clang's, what
    Debian's headers name, else gcc."""
    if clang := clang_tools(kernel).get("CC"):
        return clang
    assert kernel.build_dir is not None
    build_dir = kernel.build_dir
    variables = build_dir / ".kernelvariables"
    if variables.exists():
        match = re.search(r"\b(gcc-\d+|clang-\d+)\b", variables.read_text())
        if match:
            return architecture.named(kernel.arch).tool(match.group(1))
    return architecture.named(kernel.arch).tool("gcc")


def _compiler(kernel: Kernel) -> str:
    """The name and version of the kernel's compiler, which must be there."""
    name = compiler_name(kernel)
    if kernel.build_root is None:
        names = [name, *clang_tools(kernel).values()]
        needed = {tool: _package(tool) for tool in names}
        tools.require_tools(needed, f"building a module for {kernel.release}")
        return "; ".join(compiler_version(tool) for tool in needed)
    return " ".join([name, *(f"{k}={v}" for k, v in sorted(kernel.provenance.items()))])


def _package(tool: str) -> str:
    """Debian's package of a compiler or linker, whose name it has, save for its prefix.

    >>> _package("aarch64-linux-gnu-gcc-12")
    'gcc-12-aarch64-linux-gnu'
    """
    for arch in architecture.ARCHITECTURES.values():
        if tool.startswith(f"{arch.triplet}-"):
            return f"{tool.removeprefix(f'{arch.triplet}-')}-{arch.triplet}"
    return tool.removeprefix("ld.")


@functools.cache
def compiler_version(name: str) -> str:
    """The version of a compiler of this machine, in its own words."""
    answer = subprocess.run([name, "--version"], capture_output=True, text=True)
    return answer.stdout.partition("\n")[0]


def _toolbox(kernel: Kernel) -> Toolbox:
    root = kernel.build_root
    if root is None:
        return Toolbox(list, str)
    return Toolbox(
        lambda argv: [*root_entry(root), *argv],
        lambda path: f"/{path.relative_to(root)}",
    )


@functools.cache
def root_entry(root: Path) -> tuple[str, ...]:
    """The words that run a command inside `root`: in a user namespace, or as the superuser where
    user namespaces are switched off. The command sees /proc, which objtool of newer kernels
    reads."""
    clean = "env -i PATH=/usr/bin:/usr/sbin:/bin HOME=/tmp LC_ALL=C"
    enter = f"exec {clean} chroot {shlex.quote(str(root))}"
    mounts = " && ".join(
        f"mount --rbind /{name} {shlex.quote(str(root / name))}" for name in ("dev", "proc")
    )
    shell = ("sh", "-c", f'{mounts} && {enter} "$@"', "trapless")
    ways: list[tuple[str, ...]] = [("unshare", "--user", "--map-root-user", "--mount", *shell)]
    if os.geteuid() == 0:
        ways.append(("unshare", "--mount", *shell))
    environment = {**os.environ, "PATH": tools.tool_path()}
    probe = ("make", "--version")
    failure = ""
    for way in ways:
        answer = subprocess.run([*way, *probe], capture_output=True, text=True, env=environment)
        if answer.returncode == 0:
            return way
        failure = answer.stderr.strip()
    raise TraplessError(
        f"cannot run the build tools unpacked in {root}: {failure}. This needs unprivileged user "
        f"namespaces (sysctl user.max_user_namespaces above 0, kernel.unprivileged_userns_clone=1 "
        f"where it exists, no AppArmor restriction, no container without them) or a root that may "
        f"mount"
    )


def _explain(kernel: Kernel, log: Path, work: str) -> str:
    """The compiler's own lines, with the paths of the checkout in place of the copy's."""
    text = log.read_text(errors="replace").replace(f"{work}/", "")
    # kbuild compiles in the module's folder since 6.13, and names its files from there
    text = re.sub(r"^(?!/|kmod/|include/)(\S+\.[chS]:\d)", r"kmod/\1", text, flags=re.MULTILINE)
    lines = text.splitlines()
    wanted = [i for i, line in enumerate(lines) if re.search(r"error|undefined!|not found", line)]
    context = sorted({j for i in wanted for j in range(i - 1, i + 4) if 0 <= j < len(lines)})
    body = [lines[i] for i in context][:60] or lines[-30:]
    return f"the module does not build for {kernel.release}:\n" + "\n".join(
        f"    {line}" for line in body
    )
