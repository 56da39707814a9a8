# SPDX-License-Identifier: GPL-2.0-only
"""The files inside a lab VM: init, busybox, the command with its libraries, modules.

This file owns the choice of files, the lookup of the command on the host, and the records that tell
the guest's init what to do (trapless/vm/guest/guest_config.h). It starts nothing.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base import built_programs, cache, elf, tools
from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import Progress, TraplessError
from trapless.base.paths import cache_dir, repo_root
from trapless.stock import real_programs
from trapless.vm import guest_modules
from trapless.vm.initramfs import Initramfs

SHARE_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay")
"""What a guest needs to mount the host's root."""

GUEST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
INIT_SOURCES = Path(__file__).parent / "guest"
MOUNTED = ("/dev", "/proc", "/run", "/sys")
"""Where the guest mounts file systems of its own (guest/guest_setup.c): other files there are
hidden."""
USER_ID = 1000
MODULE_FOLDER = "/trapless/modules"
FILES_FOLDER = "/trapless/files"  # overlaid on the host's root; see guest/guest_setup.c
SHEBANG_DEPTH_MAX = 4  # the kernel's own limit on interpreters of interpreters

_ETC = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/sh\n"
    f"user:x:{USER_ID}:{USER_ID}:user:/home/user:/bin/sh\n"
    "nobody:x:65534:65534:nobody:/:/bin/false\n",
    "/etc/group": f"root:x:0:\ntty:x:5:\nuser:x:{USER_ID}:\nnogroup:x:65534:\n",
    "/etc/hosts": "127.0.0.1 localhost lab\n::1 localhost\n",
}


@dataclass(frozen=True)
class GuestPlan:
    """The part of the lab's configuration on which the guest's files depend."""

    argv: tuple[str, ...]
    host_root: bool = False
    files: tuple[tuple[Path, str], ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    modules_dir: Path | None = None
    modules: tuple[tuple[str, str], ...] = ()  # stock modules and their parameters
    own_module: Path | None = None  # trapless.ko
    own_parameters: str = ""
    supervisor: int | None = None  # run argv in supervisor mode, with these abi.SWITCH_*
    cwd: Path | None = None  # None: this process's, which only some guests need
    alone: bool = False  # no launcher: argv has the console (guest/alone.h)
    arch: Architecture = AMD64


def build(plan: GuestPlan, progress: Progress) -> Initramfs:
    """The tree of a guest that runs `plan`."""
    tree = Initramfs()
    tree.file("/init", init_program(progress, plan.arch), 0o755)
    for folder in ("/proc", "/sys", "/dev", "/run", MODULE_FOLDER, FILES_FOLDER):
        tree.directory(folder)
    modules = add_modules(tree, plan)
    if plan.host_root:
        program = None
        found = find_program(plan.argv[0], plan.cwd)
        if found is None and built_programs.remedy(plan.argv[0], plan.cwd):
            raise _absent(plan)
        for path in (plan.cwd or Path.cwd(), *([found] if found is not None else ())):
            _check_shown(os.path.realpath(path))
        for source, target in plan.files:
            add_file(tree, source, FILES_FOLDER, target)
    else:
        program = add_system(tree, plan, progress)
    tree.file("/trapless/config", records(plan, modules, program), 0o600)
    return tree


def add_system(tree: Initramfs, plan: GuestPlan, progress: Progress) -> str | None:
    """Add a small Linux system, the command and the files brought along; returns the command's
    path, or None where it is one of those files or busybox's."""
    add_busybox(tree, progress, plan.arch)
    program = None
    if plan.argv[0] not in [target for _, target in plan.files]:
        program = _add_command(tree, plan)
    for source, target in plan.files:
        add_file(tree, source, "", target, arch=plan.arch)
    return program


def records(plan: GuestPlan, modules: Sequence[str], program: str | None) -> bytes:
    """The file that init reads: NUL-terminated key=value records."""
    pairs = [("module", text) for text in modules]
    pairs += [("arg", text) for text in plan.argv]
    pairs += [("env", f"{name}={value}") for name, value in environment(plan).items()]
    if program is not None:
        pairs.append(("exec", program))
    if plan.alone:
        pairs.append(("launcher", "none"))
    if plan.supervisor is not None:
        pairs.append(("supervisor", str(plan.supervisor)))
    pairs.append(("root", "host" if plan.host_root else "initramfs"))
    pairs.append(("cwd", str(plan.cwd or Path.cwd()) if plan.host_root else "/root"))
    for _, value in pairs:
        if "\0" in value:
            raise TraplessError(f"a NUL byte in an argument or variable: {value!r}", status=2)
    return b"".join(os.fsencode(f"{key}={value}") + b"\0" for key, value in pairs)


def environment(plan: GuestPlan) -> dict[str, str]:
    """The command's variables. Without the host's root none comes from the host, but the one by
    which its libraries were found: variables lie on the stack, and their length would change
    counts."""
    environment = {"PATH": GUEST_PATH, "HOME": "/root", "USER": "root", "LANG": "C.UTF-8"}
    folders = filter(None, re.split("[:;]", os.environ.get("LD_LIBRARY_PATH", "")))
    if path := ":".join(map(os.path.abspath, folders)):
        environment["LD_LIBRARY_PATH"] = path
    if plan.host_root:
        inherited = ("PATH", "TERM", "LANG")
        environment.update({name: os.environ[name] for name in inherited if name in os.environ})
    environment.update(plan.env)
    return environment


def add_modules(tree: Initramfs, plan: GuestPlan) -> list[str]:
    """Add the kernel modules; returns init's records in the order of loading."""
    parameters = {name.replace("-", "_"): text for name, text in plan.modules}
    wanted = [*(SHARE_MODULES if plan.host_root else ()), *parameters]
    loads = []
    for source in guest_modules.load_order(plan.modules_dir, wanted):
        name = guest_modules.module_name(source.name)
        tree.file(f"{MODULE_FOLDER}/{name}.ko", guest_modules.read_module(source))
        loads.append(f"{MODULE_FOLDER}/{name}.ko {parameters.get(name, '')}".rstrip())
    if plan.own_module is not None:
        tree.file(f"{MODULE_FOLDER}/trapless.ko", plan.own_module)
        loads.append(f"{MODULE_FOLDER}/trapless.ko {plan.own_parameters}".rstrip())
    return loads


def add_busybox(tree: Initramfs, progress: Progress, arch: Architecture = AMD64) -> None:
    """Add a small Linux system: busybox's tools, two users, folders to write to.

    A foreign busybox cannot be asked for its tools: it is Debian's, and has what this one has.
    """
    own = busybox = find_busybox()
    if arch.is_foreign:
        busybox = real_programs.foreign_busybox(arch, progress)
    for applet in _applets(own):
        tree.symlink(f"/{applet}", "/bin/busybox")
    tree.file("/bin/busybox", busybox, 0o755)
    for path, text in _ETC.items():
        tree.file(path, text.encode())
    tree.directory("/root", 0o700)
    tree.directory("/home/user", 0o755, USER_ID)
    for folder in ("/tmp", "/var/tmp"):
        tree.directory(folder, 0o1777)


def find_busybox() -> Path:
    """The busybox of this machine, which must need no library."""
    busybox = shutil.which("busybox", path=tools.tool_path())
    if busybox is None or elf.needs(Path(busybox)).loader is not None:
        raise TraplessError(
            "the lab needs a statically linked busybox for its guests; "
            "on Debian: apt-get install busybox-static"
        )
    return Path(busybox).resolve()


def _applets(busybox: Path) -> list[str]:
    """Paths, without the leading slash, under which busybox wants to be found."""
    listing = subprocess.run(
        [busybox, "--list-full"], capture_output=True, text=True, check=True
    ).stdout
    return [path for path in listing.split() if "/" in path]  # all but /linuxrc


def _add_command(tree: Initramfs, plan: GuestPlan) -> str | None:
    """Add the command; returns its path in the guest, or None where busybox has it."""
    name = plan.argv[0]
    if plan.arch.is_foreign and name in tree:  # this machine's file of that path does not run
        return None
    is_here = "/" in name or not plan.arch.is_foreign
    program = find_program(name, plan.cwd) if is_here else None
    if program is None:
        if "/" not in name and any(f"{folder}/{name}" in tree for folder in GUEST_PATH.split(":")):
            return None
        raise _absent(plan)
    add_file(tree, program, "", str(program), arch=plan.arch)
    return str(program)


def _absent(plan: GuestPlan) -> TraplessError:
    name = plan.argv[0]
    return TraplessError(
        f"there is no program '{name}' on this machine or in the guest"
        f"{built_programs.remedy(name, plan.cwd)}",
        status=127,
    )


def find_program(name: str, cwd: Path | None = None) -> Path | None:
    """The host's executable that `name` means to a shell in `cwd`, or in our own folder; None if
    there is none."""
    if "/" in name:
        path = Path(os.path.abspath(os.path.join(cwd or "", name)))
        if not path.exists():
            return None
        if not path.is_file() or not os.access(path, os.X_OK):
            raise TraplessError(f"{path} is not an executable file", status=126)
        return path
    program = shutil.which(name, path=tools.tool_path())
    return Path(program) if program else None


def add_file(
    tree: Initramfs,
    source: Path,
    prefix: str,
    target: str,
    depth: int = 0,
    arch: Architecture = AMD64,
) -> None:
    """Add the host's file or folder at `target`, and what its programs need at their own paths."""
    if not os.path.isabs(target):
        raise TraplessError(f"the path in the guest must be absolute: '{target}'", status=2)
    if depth == 0:  # a library that is hidden may be found elsewhere in the guest
        _check_shown(target)
    try:
        if source.is_dir():
            for inside in sorted(source.iterdir()):
                add_file(tree, inside, prefix, f"{target}/{inside.name}", depth, arch)
            tree.directory(prefix + target, stat.S_IMODE(source.stat().st_mode))
            return
        mode = stat.S_IMODE(source.stat().st_mode)
        if not source.is_file():
            raise TraplessError(f"{source} is neither a file nor a folder")
        tree.file(prefix + target, source.resolve(), mode)
        for needed in _needed_by(source, mode, arch):
            if prefix + str(needed) not in tree and depth < SHEBANG_DEPTH_MAX:
                add_file(tree, needed, prefix, str(needed), depth + 1, arch)
    except OSError as error:
        raise TraplessError(f"cannot copy {source} into the guest: {error.strerror}") from error


def _check_shown(path: str) -> None:
    hidden = next(
        (one for one in MOUNTED if f"{os.path.normpath(path)}/".startswith(f"{one}/")), ""
    )
    if hidden:
        raise TraplessError(
            f"{path} is hidden in the guest, which has a {hidden} of its own; work in another "
            "folder, such as /tmp",
            status=2,
        )


def _needed_by(path: Path, mode: int, arch: Architecture) -> Iterator[Path]:
    with path.open("rb") as file:
        start = file.read(256)
    if start.startswith(elf.ELF_MAGIC):
        if mode & 0o111 or ".so" in path.name:
            yield from elf.dependencies(path, arch)
    elif start.startswith(b"#!") and mode & 0o111:
        yield from _interpreters(path, start[2:].splitlines()[0].decode(errors="replace"))


def _interpreters(script: Path, line: str) -> Iterator[Path]:
    words = shlex.split(line.strip())
    if not words:
        return
    names = words[:1]
    if Path(words[0]).name == "env":
        names += [word for word in words[1:] if not word.startswith("-") and "=" not in word][:1]
    for name in names:
        program = find_program(name, Path("/"))
        if program is None:
            raise TraplessError(f"{script} wants the interpreter '{name}', which is not there")
        yield program


def init_program(progress: Progress, arch: Architecture = AMD64) -> Path:
    """The program of process 1, compiled once for this source and compiler."""
    sources = sorted(INIT_SOURCES.glob("*.[ch]"))
    command, package = "cc", "gcc libc6-dev"
    if arch.is_foreign:
        command, package = arch.tool("gcc"), f"gcc-{arch.triplet} libc6-dev-{arch.name}-cross"
    tools.require_tools({command: package}, "building the guest's init")
    compiler = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    interface = repo_root() / "include/uapi"
    header = cache.sha256_file(interface / "linux/trapless.h")
    key = cache.sha256_files(INIT_SOURCES, sources, header, compiler.stdout)[:16]
    target = cache_dir() / "guest" / key
    if not (target / "init").exists():
        with cache.locked(target.parent / "lock", "building the guest's init", progress):
            if not (target / "init").exists():
                progress.step("building the guest's init")
                _compile(command, package, sources, interface, target)
    return target / "init"


def _compile(
    command: str, package: str, sources: Sequence[Path], interface: Path, target: Path
) -> None:
    with cache.assembling(target) as folder:
        inputs = [str(path) for path in sources if path.suffix == ".c"]
        flags = ("-static", "-O2", "-Wall", "-Wextra", "-s", f"-I{interface}")
        log = folder / "log"
        if tools.run_tool([command, *flags, "-o", str(folder / "init"), *inputs], log) != 0:
            raise TraplessError(
                "the guest's init does not compile (a static C library is needed; on Debian: "
                f"apt-get install {package}):\n{tools.last_lines(log)}"
            )
