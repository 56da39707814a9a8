# SPDX-License-Identifier: GPL-2.0-only
"""Finds out what this machine and kernel can do for Trapless: one function for each capability.

Each function looks at one thing, changes nothing, and answers yes or no with what it saw. A no
names the remedy, or says what works instead. This file owns the questions and their answers;
diagnosis.py shows them.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import importlib.metadata
import os
import platform
import re
import shutil
import struct
import subprocess
import tomllib
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trapless import abi, module
from trapless.base.architecture import ARCHITECTURES
from trapless.base.console import Silent, TraplessError
from trapless.base.missing import OF_PAGES, remedy
from trapless.base.paths import cache_dir, repo_root
from trapless.base.tools import Unanswered, ask
from trapless.image import disc
from trapless.stock import apt_sources, debug_kernel, kernels
from trapless.stock.kernel import load
from trapless.vm import qemu

MEMORY_BYTES = 2 << 30  # a guest of the default size, and room for QEMU and a build
NETWORK_TIMEOUT_S = 10.0
TOOL_TIMEOUT_S = 60.0
CAP_SYS_MODULE = 16
SYS_PERF_EVENT_OPEN = 298
SYS_IO_URING_SETUP = 425
NEEDED_SYMBOLS = ("register_kprobe", "sys_call_table")
LAB_WORKS = "use the lab: it brings a kernel of its own"
NO_MODULES = "this kernel takes no modules: built without CONFIG_MODULES"


@dataclass(frozen=True)
class Host:
    """The machine that is examined; tests put a folder in place of `/`."""

    root: Path = Path("/")
    uid: int = os.geteuid()
    release: str = os.uname().release
    _texts: dict[str, str] = field(default_factory=dict, repr=False, compare=False)

    def text(self, path: str) -> str:
        """The contents of a file when it was first asked for; empty where it cannot be read."""
        if path not in self._texts:
            try:
                self._texts[path] = (self.root / path).read_text(errors="replace").strip()
            except OSError:
                self._texts[path] = ""
        return self._texts[path]

    def exists(self, path: str) -> bool:
        return (self.root / path).exists()

    def absent_symbols(self, names: Sequence[str]) -> list[str]:
        """The names that the running kernel does not list, neither its own nor those of modules."""
        text = self.text("proc/kallsyms")
        return [name for name in names if not re.search(rf" {name}(?=\s|$)", text)]


@dataclass(frozen=True)
class Capability:
    """One answer. `remedy` is what would turn a no into a yes, or what to do instead."""

    id: str
    title: str
    ok: bool
    found: str
    remedy: str = ""


Question = Callable[[Host], Capability]


# ---- The command itself ---------------------------------------------------------------------


def python_packages(_host: Host) -> Capability:
    """Python, and the packages of pyproject.toml that every command may need."""
    return _packages("python", "Python packages", lambda name: name not in OF_PAGES)


def page_packages(_host: Host) -> Capability:
    """The packages that draw reports; the lab and most commands work without them."""
    return _packages("pages", "Python packages for figures", lambda name: name in OF_PAGES)


def _packages(identity: str, title: str, concerned: Callable[[str], bool]) -> Capability:
    project = tomllib.loads((repo_root() / "pyproject.toml").read_text(encoding="utf-8"))
    missing, absent, present = [], [], [f"Python {platform.python_version()}"]
    for requirement in project["project"]["dependencies"]:
        name, _, bounds = re.sub(r"(?=[<>=])", " ", requirement, count=1).partition(" ")
        version = _installed(name)
        if not concerned(name):
            continue
        if version is None or not satisfies(version, bounds):
            missing.append(f"{requirement} ({version or 'absent'})")
            absent.append(name)
        else:
            present.append(f"{name} {version}")
    found = "lacks " + ", ".join(missing) if missing else ", ".join(present)
    return Capability(identity, title, not missing, found, remedy(*absent) if missing else "")


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def satisfies(version: str, bounds: str) -> bool:
    """Whether a version lies within bounds such as '>=8.1,<9'.

    >>> satisfies("8.1.3", ">=8.1,<9"), satisfies("9.0", ">=8.1,<9")
    (True, False)
    """
    own = _numbers(version)
    for bound in filter(None, bounds.split(",")):
        limit = _numbers(bound.lstrip("<>="))
        if (bound.startswith(">=") and own < limit) or (bound.startswith("<") and own >= limit):
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def build_tools(_host: Host) -> Capability:
    """What builds, tests and experiments need of the system; scripts/setup holds the list."""
    title, script = "tools for builds and tests", repo_root() / "scripts" / "setup"
    if not script.exists():
        compiler = shutil.which("gcc") and shutil.which("make")
        state = "gcc and make" if compiler else "gcc or make is missing"
        return Capability("tools", title, bool(compiler), state, "install gcc and make")
    done = _run([str(script), "--check-only"])
    if isinstance(done, Unanswered):
        return Capability("tools", title, False, *done)
    if done.returncode:
        lines = [line.removeprefix("setup:").strip() for line in done.stderr.splitlines()]
        lacks = "; ".join(lines).replace(":;", ":") or "something is missing"
        return Capability("tools", title, False, lacks, "scripts/setup (make runs it)")
    return Capability("tools", title, True, "all that scripts/setup lists")


# ---- The lab --------------------------------------------------------------------------------


def emulator(_host: Host) -> Capability:
    """QEMU, without which there is no lab."""
    path = shutil.which(qemu.BINARY)
    if path is None:
        remedy = f"apt-get install {qemu.PACKAGE} (scripts/setup does it)"
        return Capability("qemu", "lab VMs", False, f"{qemu.BINARY} is not on PATH", remedy)
    done = _run([path, "--version"])
    if isinstance(done, Unanswered):
        return Capability("qemu", "lab VMs", False, *done)
    version = re.search(r"version ([\d.]+)", done.stdout)
    state = f"QEMU {version[1]}" if version else f"{path} does not say its version"
    return Capability("qemu", "lab VMs", version is not None, state, "reinstall QEMU")


def acceleration(host: Host) -> Capability:
    """KVM, which takes both a device and a processor with virtualisation."""
    device = host.root / "dev/kvm"
    flags = re.search(r"^flags\s*:(.*)$", host.text("proc/cpuinfo"), re.MULTILINE)
    capable = flags is not None and not {"vmx", "svm"}.isdisjoint(flags[1].split())
    title = "lab at full speed (KVM)"
    emulated = "VMs are emulated instead, slower; counted figures are the same"
    if not capable:
        state = "the processor shows no virtualisation (vmx or svm)"
        if device.exists():
            state += "; /dev/kvm alone is not enough"
        remedy = "switch it on in the firmware, or for this VM in its host (nested); " + emulated
        return Capability("kvm", title, False, state, remedy)
    if not device.exists():
        remedy = "load kvm_intel or kvm_amd; " + emulated
        return Capability("kvm", title, False, "there is no /dev/kvm", remedy)
    if not os.access(device, os.R_OK | os.W_OK):
        remedy = f"join its group (usermod -aG kvm USER, log in again); {emulated}"
        return Capability("kvm", title, False, "/dev/kvm may not be opened by you", remedy)
    return Capability("kvm", title, True, "usable /dev/kvm")


def kernel_cache(_host: Host) -> Capability:
    """Which of the supported kernels are fetched already."""
    there, absent = [], []
    for spec in kernels.SUPPORTED:
        kernel = load(cache_dir() / "kernels" / spec.name, Silent())
        if kernel is None:
            absent.append(spec.name)
        else:
            there.append(f"{spec.name} ({kernel.release})")
    title, state = "stock kernels in the cache", ", ".join(there) or "none"
    if not absent:
        return Capability("kernels", title, True, state)
    remedy = f"{', '.join(absent)}: fetched when first used, as in trapless lab --kernel NAME"
    return Capability("kernels", title, bool(there), state, remedy)


def fetching(_host: Host) -> Capability:
    """Tools to fetch kernels, and a mirror in apt's configuration. Nothing is sent to it."""
    title = "fetching kernels"
    missing = [name for name in ("apt-get", "dpkg-deb") if shutil.which(name) is None]
    if missing:
        state = f"{' and '.join(missing)} missing: this is no Debian machine"
        remedy = "give --kernel a kernel image or build tree of your own"
        return Capability("fetch", title, False, state, remedy)
    try:
        apt_sources.machine_mirror()
    except TraplessError as error:
        return Capability("fetch", title, False, "apt names no Debian mirror", str(error))
    return Capability("fetch", title, True, "by apt, from this machine's own mirror")


def mirror(_host: Host) -> Capability:
    """Whether the mirror answers. Only this question uses the network, and only on demand."""
    title = "the mirror answers"
    try:
        address = f"{apt_sources.machine_mirror().archive}/dists/stable/InRelease"
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=NETWORK_TIMEOUT_S) as answer:
            return Capability("mirror", title, True, f"HTTP status {answer.status}")
    except (TraplessError, OSError, ValueError) as error:
        remedy = "check the network and proxy, or name a mirror: TRAPLESS_MIRROR=URI"
        return Capability("mirror", title, False, str(error), remedy)


def newest_kernel(_host: Host) -> Capability:
    """User namespaces: the module for the newest kernel is built in an unpacked root."""
    title = "building for the newest kernel"
    done = _run(["unshare", "-r", "-m", "true"])
    if isinstance(done, Unanswered):
        return Capability("newest", title, False, *done)
    if done.returncode:
        state = "unprivileged user namespaces are switched off: " + done.stderr.strip()
        remedy = "sysctl kernel.unprivileged_userns_clone=1, or run as root"
        return Capability("newest", title, False, state, remedy)
    return Capability("newest", title, True, "user namespaces work")


def debug_tools(_host: Host) -> Capability:
    """What `lab --debug` compiles its kernel with."""
    title = "building the debug kernel"
    needed = [package for tool, package in debug_kernel.TOOLS.items() if shutil.which(tool) is None]
    needed += [package for file, package in debug_kernel.HEADERS.items() if not file.exists()]
    if needed:
        remedy = f"apt-get install {' '.join(needed)}"
        return Capability("debug", title, False, f"lacks {', '.join(needed)}", remedy)
    return Capability("debug", title, True, "compiler and kconfig's tools")


def image_tools(_host: Host) -> Capability:
    """What `trapless image` makes an image with, for machines that cannot be measured otherwise."""
    title, (names, packages) = "making images that boot", disc.absent()
    if names:
        remedy = f"apt-get install {' '.join(packages)}"
        return Capability("image", title, False, f"lacks {', '.join(names)}", remedy)
    return Capability("image", title, True, "GRUB for BIOS and UEFI, xorriso, mtools")


def disk_space(_host: Host) -> Capability:
    """Space on the disk for the kernels that the cache lacks."""
    folder = cache_dir()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    absent = [s for s in kernels.SUPPORTED if not (cache_dir() / "kernels" / s.name).exists()]
    needed = len(absent) * kernels.OWN_TOOLS_BYTES + debug_kernel.BUILD_BYTES
    state = f"{gigabytes(free)} free for {cache_dir()}, {gigabytes(needed)} may be wanted"
    remedy = "free some, or put the cache elsewhere: TRAPLESS_CACHE=FOLDER"
    return Capability("disk", "disk space", free >= needed, state, remedy)


def memory(host: Host) -> Capability:
    """Memory for a guest of the default size."""
    match = re.search(r"^MemAvailable:\s*(\d+) kB", host.text("proc/meminfo"), re.MULTILINE)
    available = int(match[1]) << 10 if match else 0
    state = f"{gigabytes(available)} available"
    remedy = "give the guest less: trapless lab --memory 512M"
    return Capability("memory", "memory", available >= MEMORY_BYTES, state, remedy)


def gigabytes(count_bytes: int) -> str:
    return f"{count_bytes / 1e9:.1f} GB"


# ---- The module on this machine's own kernel ------------------------------------------------


def processor(_host: Host) -> Capability:
    """The architecture: the module supports x86-64 only."""
    machine = platform.machine()
    remedy = "an x86-64 machine; programs with libtrapless run here with plain calls"
    reason = next((row.supervisor for row in ARCHITECTURES.values() if row.machine == machine), "")
    if reason:
        remedy += f". Supervisor mode is impossible here: {reason}"
    return Capability("x86-64", "x86-64", machine == "x86_64", machine, remedy)


def kernel_symbols(host: Host) -> Capability:
    """The symbols that the module looks up in the running kernel."""
    title, text = "symbols the module needs", host.text("proc/kallsyms")
    if not text:
        remedy = f"a kernel with CONFIG_KALLSYMS; {LAB_WORKS}"
        return Capability("symbols", title, False, "there is no /proc/kallsyms", remedy)
    absent = host.absent_symbols(NEEDED_SYMBOLS)
    if absent:
        remedy = f"a kernel with CONFIG_KPROBES and CONFIG_KALLSYMS_ALL; {LAB_WORKS}"
        return Capability("symbols", title, False, f"lacks {', '.join(absent)}", remedy)
    return Capability("symbols", title, True, ", ".join(NEEDED_SYMBOLS))


def takes_modules(host: Host) -> bool:
    """Whether the running kernel can load modules at all."""
    return host.exists("proc/modules")


def headers(host: Host) -> Capability:
    """Headers to build the module for the running kernel."""
    title, place = "headers of this kernel", f"lib/modules/{host.release}/build"
    if host.exists(f"{place}/Makefile"):
        return Capability("headers", title, True, f"/{place}")
    if not takes_modules(host):
        return Capability("headers", title, False, "none: it takes no modules", LAB_WORKS)
    remedy = f"apt-get install linux-headers-{host.release}; or {LAB_WORKS}"
    return Capability("headers", title, False, f"/{place} is missing", remedy)


def loading(host: Host) -> Capability:
    """Whether this kernel, and this user, may load a module at all."""
    title = "loading modules"

    def no(state: str, remedy: str) -> Capability:
        return Capability("loading", title, False, state, remedy)

    if not takes_modules(host):
        return no(NO_MODULES, LAB_WORKS)
    if host.text("proc/sys/kernel/modules_disabled") == "1":
        return no("switched off until the next boot (kernel.modules_disabled)", LAB_WORKS)
    if host.uid != 0:
        return no("only root may", f"sudo trapless module load; or {LAB_WORKS}")
    effective = re.search(r"^CapEff:\s*([0-9a-f]+)", host.text("proc/self/status"), re.MULTILINE)
    if effective and not int(effective[1], 16) & 1 << CAP_SYS_MODULE:
        return no("root, but without CAP_SYS_MODULE: a container", f"its host may; or {LAB_WORKS}")
    return Capability("loading", title, True, "by trapless module load, never by itself")


def signatures(host: Host) -> Capability:
    """Lockdown, Secure Boot and enforced signatures: all refuse a module that you built."""
    title = "modules without a trusted signature"
    lockdown = re.search(r"\[(\w+)\]", host.text("sys/kernel/security/lockdown"))
    if lockdown and lockdown[1] != "none":
        state = f"the kernel is locked down ({lockdown[1]})"
    elif host.text("sys/module/module/parameters/sig_enforce") == "Y":
        state = "the kernel enforces signatures (module.sig_enforce)"
    elif not takes_modules(host):
        return Capability("unsigned", title, False, "no modules at all", LAB_WORKS)
    else:
        secure = "Secure Boot is on, and does not forbid it" if secure_boot(host) else "accepted"
        return Capability("unsigned", title, True, secure)
    remedy = f"sign the module with a key of yours (kmodsign, mokutil), or {LAB_WORKS}"
    return Capability("unsigned", title, False, state, remedy)


def secure_boot(host: Host) -> bool:
    """Whether Secure Boot is on: a variable of the firmware, with its value after four bytes."""
    for variable in (host.root / "sys/firmware/efi/efivars").glob("SecureBoot-*"):
        try:
            return variable.read_bytes()[4:5] == b"\x01"
        except OSError:
            return False
    return False


def device(host: Host) -> Capability:
    """The loaded module: its version, and whether its ABI is that of this command."""
    title, path = "the module, loaded", host.root / abi.DEVICE.lstrip("/")
    plain = "programs with libtrapless make plain calls meanwhile"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        loaded = host.exists(f"sys/module/{module.MODULE}")
        state = f"{abi.DEVICE} is missing" + (", though the module is loaded" if loaded else "")
        remedy = f"trapless module load; {plain}" if takes_modules(host) else plain
        return Capability("device", title, False, state, remedy)
    except OSError as error:
        remedy = f"permissions of {abi.DEVICE} are the administrator's; {plain}"
        return Capability("device", title, False, os.strerror(error.errno or 0), remedy)
    try:
        info = abi.Info(size=ctypes.sizeof(abi.Info))
        fcntl.ioctl(fd, abi.IOC_INFO, info)
    except OSError as error:
        state = f"{abi.DEVICE} does not answer: {os.strerror(error.errno or 0)}"
        return Capability("device", title, False, state, "is it another program's device?")
    finally:
        os.close(fd)
    state = f"version {info.version.decode(errors='replace')}, ABI {info.abi}"
    remedy = f"it is not this command's (ABI {abi.VERSION}): unload it, load this one's"
    return Capability("device", title, info.abi == abi.VERSION, state, remedy)


# ---- Measuring and comparing here -----------------------------------------------------------


def counters(host: Host) -> Capability:
    """Hardware performance counters, tried by counting instructions of this process."""
    title = "hardware performance counters"
    instead = (
        "instructions are counted in the lab (--icount), misses of caches and TLBs by its model "
        "(docs/model.md), on any machine"
    )
    attributes = struct.pack("<IIQ", 0, 128, 1) + bytes(24) + struct.pack("<Q", 0b1100000)
    fd = _system_call(SYS_PERF_EVENT_OPEN, attributes.ljust(128, b"\0"), 0, -1, -1, 0)
    if fd >= 0:
        os.close(fd)
        return Capability("counters", title, True, "instructions can be counted")
    level = host.text("proc/sys/kernel/perf_event_paranoid")
    if -fd in (errno.EPERM, errno.EACCES):
        remedy = f"sysctl kernel.perf_event_paranoid=1; {instead}"
        return Capability("counters", title, False, f"perf_event_paranoid is {level}", remedy)
    if -fd in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return Capability("counters", title, False, "the processor shows this kernel none", instead)
    return Capability("counters", title, False, os.strerror(-fd), instead)


def io_uring(host: Host) -> Capability:
    """io_uring on the running kernel, which experiments compare with (the lab has its own)."""
    title = "io_uring on this kernel"
    fd = _system_call(SYS_IO_URING_SETUP, 1, bytearray(120))
    if fd >= 0:
        os.close(fd)
        return Capability("io_uring", title, True, "can be set up")
    disabled = host.text("proc/sys/kernel/io_uring_disabled")
    remedy = "experiments run in the lab, whose kernels have it"
    if disabled not in ("", "0"):
        remedy = f"sysctl kernel.io_uring_disabled=0 (it is {disabled}); {remedy}"
    return Capability("io_uring", title, False, os.strerror(-fd), remedy)


def _system_call(number: int, *arguments: int | bytes | bytearray) -> int:
    """A raw system call; its result or -errno."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [
        ctypes.c_long(word)
        if isinstance(word, int)
        else (ctypes.c_char * len(word)).from_buffer_copy(word)
        for word in arguments
    ]
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(number), *words))
    return result if result >= 0 else -ctypes.get_errno()


def _run(argv: Sequence[str]) -> subprocess.CompletedProcess[str] | Unanswered:
    return ask(argv, TOOL_TIMEOUT_S)


GROUPS: tuple[tuple[str, tuple[Question, ...]], ...] = (
    ("The command", (python_packages, page_packages, build_tools)),
    (
        "The lab: a stock kernel in a VM",
        (
            emulator,
            acceleration,
            kernel_cache,
            fetching,
            newest_kernel,
            debug_tools,
            image_tools,
            disk_space,
            memory,
        ),
    ),
    (
        "The module on this machine's own kernel",
        (processor, kernel_symbols, headers, loading, signatures, device),
    ),
    ("Measuring on this machine", (counters, io_uring)),
)
