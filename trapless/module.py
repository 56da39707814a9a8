# SPDX-License-Identifier: GPL-2.0-only
"""Builds, loads and unloads the module on this machine's own kernel.

This file owns the explanations: why a kernel takes no modules, which processes still use the
device, what an error of the kernel means. `evaluate --here` loads it for its time, too.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

from trapless.base import tools
from trapless.base.console import Progress, TraplessError
from trapless.stock import kbuild
from trapless.stock.kernel import Kernel
from trapless.supervisor import control, refusals

ROOT = Path("/")
"""The root of this machine; tests put a folder in its place."""

MODULE = "trapless"
CONSENTS = {"supervisor=1", "supervisor=Y", "supervisor=y", "supervisor=on"}
DEVICE = Path("/dev/trapless")
LAB_INSTEAD = "the lab runs it on a kernel of its own, without root: trapless lab -- CMD"


def build(progress: Progress) -> Path:
    """Build the module for the running kernel; its path."""
    return kbuild.module_for(host_kernel(), progress)


def load(progress: Progress, parameters: Sequence[str] = (), module: Path | None = None) -> None:
    """Load a module's file into the running kernel; where none is given, what build() makes."""
    if is_loaded():
        raise TraplessError("the module is loaded already; unload it first: trapless module unload")
    _need_root("loading the module")
    if _read(ROOT / "proc/sys/kernel/modules_disabled") == "1":
        raise TraplessError(
            "this machine has switched off the loading of modules until it is booted again "
            f"(sysctl kernel.modules_disabled=1); {LAB_INSTEAD}"
        )
    if module is None:
        module = build(progress)
    kbuild.check_parameters(module, parameters)
    tools.require_tools({"insmod": "kmod"}, "loading the module")
    message = _run(["insmod", str(module), *parameters])
    if message is not None:
        raise TraplessError(
            f"the kernel {os.uname().release} refused the module: {message}{_refusal(message)}"
        )
    if CONSENTS & set(parameters):
        _say_what_is_refused(progress)


def check_release(module: Path) -> None:
    """Raise TraplessError where a file is no module, or one of another kernel's."""
    try:
        release = re.search(rb"\0?vermagic=(\S+)", module.read_bytes())
    except OSError as error:
        raise TraplessError(f"{module}: {error.strerror}", status=2) from error
    if release is None:
        raise TraplessError(f"{module} is no kernel module: it names no kernel", status=2)
    if (built := release[1].decode(errors="replace")) != os.uname().release:
        raise TraplessError(
            f"{module} was built for kernel {built}, and this is {os.uname().release}", status=2
        )


def unload(_progress: Progress) -> None:
    """Unload the module from the running kernel; refused while a process uses it."""
    if not is_loaded():
        raise TraplessError("the module is not loaded; nothing to unload")
    _need_root("unloading the module")
    tools.require_tools({"rmmod": "kmod"}, "unloading the module")
    message = _run(["rmmod", MODULE])
    if message is not None:
        users = ", ".join(f"{pid} ({name})" for pid, name in device_users(ROOT / "proc"))
        held = f"; these processes have {DEVICE} open: {users}" if users else ""
        raise TraplessError(f"the kernel did not unload the module: {message}{held}{_switched()}")


def _switched() -> str:
    """The words on processes in supervisor mode, which also hold the module."""
    try:
        pids = [str(process.pid) for process in control.processes() if process.pid]
    except TraplessError:  # the process is about to end
        return ""
    return f"; in supervisor mode: trapless switch --user {' '.join(pids)}" if pids else ""


def is_loaded() -> bool:
    """Whether the running kernel has the module."""
    return (ROOT / "sys" / "module" / MODULE).is_dir()


def host_kernel() -> Kernel:
    """The running kernel, as something a module can be built for."""
    release = os.uname().release
    if not (ROOT / "proc" / "modules").exists():
        raise TraplessError(
            f"this machine's kernel ({release}) takes no modules: it was built without "
            f"CONFIG_MODULES; {LAB_INSTEAD}"
        )
    build_dir = ROOT / "lib" / "modules" / release / "build"
    if not (build_dir / "Makefile").exists():
        raise TraplessError(
            f"there are no headers for this machine's kernel ({build_dir} is missing); on Debian: "
            f"apt-get install linux-headers-{release}. Or {LAB_INSTEAD}"
        )
    image = ROOT / "boot" / f"vmlinuz-{release}"
    return Kernel("host", release, image, build_dir, build_dir.parent)


def device_users(proc: Path) -> list[tuple[int, str]]:
    """(pid, name) of the processes that have the device open, as far as this user can see them."""
    users = []
    for process in sorted(proc.glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            targets = {os.readlink(link) for link in (process / "fd").iterdir()}
            name = (process / "comm").read_text(errors="replace").strip()
        except OSError:  # gone, or not ours to see
            continue
        if str(DEVICE) in targets:
            users.append((int(process.name), name))
    return users


def _need_root(doing: str) -> None:
    if os.geteuid() != 0:
        raise TraplessError(f"{doing} needs root: run it with sudo. Or {LAB_INSTEAD}")


def _refusal(message: str) -> str:
    """The meaning of a kernel's error message, and the remedy."""
    if "Key was rejected" in message or "Required key" in message:
        return (
            f". Secure Boot wants modules that are signed with a key this machine trusts; "
            f"sign it (see kmodsign(1), mokutil(1)) or {LAB_INSTEAD}"
        )
    if "Operation not permitted" in message:
        return f". The kernel is locked down, or this is a container; {LAB_INSTEAD}"
    if "Invalid module format" in message or "disagrees about version" in message:
        return ". The headers do not belong to the running kernel: reboot into the installed one"
    return "; the reason is in the kernel's log: dmesg | tail"


def _run(argv: Sequence[str]) -> str | None:
    """Run a tool. None if it succeeded, else its error message."""
    environment = {**os.environ, "LC_ALL": "C", "PATH": tools.tool_path()}
    answer = subprocess.run(argv, capture_output=True, text=True, env=environment)
    return None if answer.returncode == 0 else answer.stderr.strip() or f"{argv[0]} failed"


def _say_what_is_refused(progress: Progress) -> None:
    """Say why supervisor mode is not offered; batches and workers do not need it."""
    for row in refusals.of_mask(control.refusals(str(ROOT / DEVICE.relative_to("/")))):
        progress.note(f"loaded, but supervisor mode is refused: {refusals.explain(row.code)}")


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
