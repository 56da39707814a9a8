# SPDX-License-Identifier: GPL-2.0-only
"""Starts QEMU and makes sure that it ends.

This file owns QEMU's command line, the choice of the accelerator, and the life of the process: QEMU
dies with the launcher, whatever kills the launcher.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless.base.architecture import AMD64, Architecture
from trapless.base.console import TraplessError
from trapless.base.tools import has_ended, interrupts_deferred, kill, wait

BINARY, PACKAGE = AMD64.qemu, AMD64.qemu_package
VARIABLE = "TRAPLESS_QEMU"
"""The variable that names another QEMU than the one in PATH."""
CLOCK_BASE = "2020-01-01T00:00:00"
"""When a guest begins whose runs repeat: its clock counts instructions from here."""
STOP_S = 60.0
"""How long QEMU may take to end by itself when asked, seconds."""

GUEST_ADDRESS = "10.0.2.15"
"""The address of a guest with a network card; QEMU's own network expects it."""
NETWORK_CARD = "e1000"
"""A network card of real machines, with an interrupt line and registers; also its driver's name."""

LINK_CARD = "virtio_net"
"""The driver of the card by which two guests are linked: it takes large packets."""

NO_TIMER_CHECK = "no_timer_check"
"""A kernel waits for ten ticks of its timer, by a loop of counted length, and panics where they do
not come: on a busy host they come late. Where instructions are counted, the loop itself makes the
time pass."""
QUICK_START = ("cryptomgr.notests",)
"""A kernel tests all its ciphers at each boot, an eighth of an emulated one's time."""
QUICK_START_COUNTED = ("nolapic_timer",)
"""To calibrate this timer a kernel reads the clock again and again, for 0.2 s of it. Where it
counts instructions, QEMU leaves its loop for each reading, for 6 s. The HPET then ticks."""

MEMORY_MIN_BYTES = 128 << 20
"""The least memory with which every supported kernel boots."""
_UNITS = {"": 1 << 20, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

# Die with the launcher: setpriv arms the death signal, which survives exec; the shell then makes
# sure that the launcher did not die just before that (PPID would be another process's).
_GUARD = '[ "$PPID" = "$1" ] || exit 1; shift; exec "$@"'


@dataclass(frozen=True)
class Machine:
    """One virtual machine. Paths may be /dev/fd/N of a descriptor that QEMU inherits."""

    kernel: Path
    initrd: str
    kernel_log: str
    channel: str  # file of the shared memory
    channel_bytes: int
    doorbell_fd: int  # connected socket, the guest's second serial port
    cpus: int = 2
    memory_bytes: int = 1 << 30
    icount: bool = False
    quick_start: bool = False
    thread_single: bool = False
    share_root: bool = False
    append: str = ""
    debugger_fd: int | None = None  # connected socket of one who follows the guest
    arch: Architecture = AMD64
    board: str = ""  # another of QEMU's machines than the architecture's, like q35
    nodes: int = 1  # of NUMA, each with memory of its own
    name: str = ""
    shared_memory: Path | None = None  # file that is the guest's RAM
    plugins: tuple[str, ...] = ()  # of the emulator, with their arguments
    forward: tuple[int, int] | None = None  # a TCP port of this machine, and the guest's behind it
    monitor_fd: int | None = None  # listening socket of those who stop and ask it
    link: tuple[Path, Path] | None = None  # its socket, and that of the guest it is linked to


def parse_size(text: str) -> int:
    """'512M', '2G', '1048576K' or a plain number of mebibytes, in bytes."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise TraplessError(f"memory size '{text}' is not like 512M or 2G", status=2)
    size = int(match[1]) * _UNITS[match[2].upper()]
    if size < MEMORY_MIN_BYTES:
        raise TraplessError(
            f"memory size '{text}' is less than the {MEMORY_MIN_BYTES >> 20}M a guest needs",
            status=2,
        )
    return size


def binary(arch: Architecture = AMD64) -> str:
    """The path of the QEMU for an architecture, or an error that names the package."""
    named = os.environ.get(VARIABLE) if arch == AMD64 else None
    path = shutil.which(named or arch.qemu)
    if path is None and named:
        raise TraplessError(f"{VARIABLE} names {named}, which is no program that can be run")
    if path is None:
        raise TraplessError(
            f"{arch.qemu} is not on this machine, and the lab runs its VMs with it; "
            f"on Debian: apt-get install {arch.qemu_package} (Trapless's own package "
            "trapless-lab brings what the lab needs on x86-64)"
        )
    return path


def accelerator(cpuinfo: Path = Path("/proc/cpuinfo"), device: Path = Path("/dev/kvm")) -> str:
    """'kvm' where the processor has virtualisation and we may use it, else 'tcg'.

    /dev/kvm alone proves nothing: some hosts offer one that stock kernels hang in.
    """
    try:
        flags = re.search(r"^flags\s*:(.*)$", cpuinfo.read_text(), re.MULTILINE)
    except OSError:
        return "tcg"
    capable = flags is not None and not {"vmx", "svm"}.isdisjoint(flags[1].split())
    return "kvm" if capable and os.access(device, os.R_OK | os.W_OK) else "tcg"


def command(machine: Machine, accelerator_name: str) -> list[str]:
    """QEMU's command line for `machine`."""
    return [
        binary(machine.arch),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-vga", "none"),
        *(*_network(machine), *_link(machine), *_board(machine)),
        *_processor(machine, accelerator_name),
        *("-m", f"{machine.memory_bytes >> 10}K"),
        *("-kernel", str(machine.kernel), "-initrd", machine.initrd),
        *("-append", kernel_command_line(machine)),
        *("-chardev", f"file,id=log,path={_escaped(machine.kernel_log)}"),
        *("-serial", "chardev:log"),
        *("-chardev", f"socket,id=bell,fd={machine.doorbell_fd}", *machine.arch.doorbell),
        "-object",
        f"memory-backend-file,id=channel,mem-path={_escaped(machine.channel)},"
        f"size={machine.channel_bytes},share=on",
        *("-device", "ivshmem-plain,memdev=channel"),
        *(_share() if machine.share_root else ()),
        *(_debugger(machine.debugger_fd) if machine.debugger_fd is not None else ()),
        *(_monitor(machine.monitor_fd) if machine.monitor_fd is not None else ()),
        *(word for plugin in machine.plugins for word in ("-plugin", plugin)),
    ]


def _network(machine: Machine) -> list[str]:
    """A network card whose only way leads to one port of the guest; normally none."""
    if machine.forward is None:
        return ["-nic", "none"]
    ours, guests = machine.forward
    forward = f"hostfwd=tcp:127.0.0.1:{ours}-{GUEST_ADDRESS}:{guests}"
    return [
        *("-netdev", f"user,id=net,restrict=on,ipv6=off,{forward}"),
        *("-device", f"{NETWORK_CARD},netdev=net"),
    ]


def _link(machine: Machine) -> list[str]:
    """A network card whose packets go to another guest, and nowhere else."""
    if machine.link is None:
        return []
    own, other = (_escaped(str(path)) for path in machine.link)
    sockets = f"local.type=unix,local.path={own},remote.type=unix,remote.path={other}"
    mac = "52:54:00:" + hashlib.sha256(own.encode()).digest()[:3].hex(":")
    return [
        *("-netdev", f"dgram,id=link,{sockets}"),
        *("-device", f"virtio-net-pci,netdev=link,mac={mac},romfile="),
    ]


def _board(machine: Machine) -> list[str]:
    board = f"{machine.board or machine.arch.board},{machine.arch.board_options}"
    # Observers find the threads of the virtual processors by their names ("CPU 0/TCG").
    name = ("-name", f"guest={_escaped(machine.name or 'trapless')},debug-threads=on")
    if machine.shared_memory is None:
        return ["-machine", board, *(name if machine.name else ()), *_nodes(machine)]
    return [
        *("-machine", f"{board},memory-backend=ram", *name),
        "-object",
        f"memory-backend-file,id=ram,mem-path={_escaped(str(machine.shared_memory))},"
        f"size={machine.memory_bytes},share=on",
    ]


def _nodes(machine: Machine) -> list[str]:
    """The nodes of a machine with NUMA; its CPUs are divided among them by QEMU."""
    if machine.nodes == 1:
        return []
    size = machine.memory_bytes // machine.nodes
    return [
        word
        for node in range(machine.nodes)
        for word in (
            *("-object", f"memory-backend-ram,id=node{node},size={size}"),
            *("-numa", f"node,nodeid={node},memdev=node{node}"),
        )
    ]


def _processor(machine: Machine, accelerator_name: str) -> list[str]:
    if machine.icount:
        # The clock, seeds and random instructions would make two runs differ. Beside this machine's
        # files a clock of long ago would make programs do other work: to git every file would be
        # younger than its index, and each run would read all of them again.
        base = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime()) if machine.share_root else CLOCK_BASE
        )
        return [
            *("-accel", "tcg,thread=single", "-icount", "shift=0,sleep=off", "-smp", "1"),
            *("-cpu", machine.arch.cpu_counted, "-seed", "1"),
            *("-rtc", f"base={base},clock=vm"),
        ]
    cpus = ["-smp", str(machine.cpus)]
    if accelerator_name == "kvm" and not machine.thread_single:
        return ["-accel", "kvm", "-cpu", "host", *cpus]
    thread = "single" if machine.thread_single else "multi"
    return ["-accel", f"tcg,thread={thread}", "-cpu", machine.arch.cpu, *cpus]


def kernel_command_line(machine: Machine) -> str:
    """The guest kernel's parameters. An oops ends the run: `panic=-1` reboots, QEMU then exits."""
    words = [f"console={machine.arch.console}", "rdinit=/init", "oops=panic", "panic=-1"]
    of_a_pc = machine.arch == AMD64
    if machine.icount:
        words += ["nokaslr", "norandmaps"]
    elif of_a_pc:
        words.append(NO_TIMER_CHECK)
    if machine.quick_start:
        words += QUICK_START
        if machine.icount and of_a_pc:
            words += QUICK_START_COUNTED
    return " ".join([*words, machine.append]).strip()


def _share() -> list[str]:
    return [
        *("-fsdev", "local,id=root,path=/,readonly=on,security_model=none,multidevs=remap"),
        *("-device", "virtio-9p-pci,fsdev=root,mount_tag=host"),
    ]


def _debugger(descriptor: int) -> list[str]:
    return ["-chardev", f"socket,id=debugger,fd={descriptor}", "-gdb", "chardev:debugger"]


def _monitor(descriptor: int) -> list[str]:
    return [
        *("-chardev", f"socket,id=monitor,fd={descriptor},server=on,wait=off"),
        *("-mon", "chardev=monitor,mode=control"),
    ]


def _escaped(value: str) -> str:
    """A value inside one of QEMU's comma-separated options."""
    return value.replace(",", ",,")


_TERMINATING = re.compile(r"^.*terminating on signal 15 from pid.*$", re.MULTILINE)


class Process:
    """A running QEMU. `pidfd` becomes readable when it has ended."""

    def __init__(self, argv: Sequence[str], pass_fds: Sequence[int]) -> None:
        guard = shutil.which("setpriv")
        if guard is None:
            raise TraplessError(
                "setpriv is not on this machine, and the lab ties its VMs' life to its own with "
                "it; on Debian: apt-get install util-linux"
            )
        self._stderr = os.memfd_create("trapless-qemu-stderr", os.MFD_CLOEXEC)
        self._process = subprocess.Popen(
            [guard, "--pdeathsig", "KILL", "sh", "-c", _GUARD, "sh", str(os.getpid()), *argv],
            stdin=subprocess.DEVNULL,
            stdout=self._stderr,
            stderr=self._stderr,
            pass_fds=pass_fds,
            process_group=0,  # Ctrl-C is the launcher's to handle
        )
        self._stopped = False  # by us: then its end needs no explanation
        self.pidfd = os.pidfd_open(self._process.pid)

    def ended(self) -> bool:
        """Whether QEMU has ended by itself."""
        return has_ended(self._process)

    def complaint(self) -> str:
        """What QEMU said about itself, and how it ended if that was unusual."""
        complaint = os.pread(self._stderr, 1 << 16, 0).decode(errors="replace").strip()
        if self._stopped:
            complaint = _TERMINATING.sub("", complaint).strip()
        status = self._process.wait() if self.ended() else 0
        if status < 0 and not self._stopped:
            complaint = f"{complaint}\nQEMU was ended by {signal.Signals(-status).name}".strip()
        return complaint

    def stop(self) -> None:
        """End QEMU: by request (plugins then write their results), by force if it must be."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            if has_ended(self._process):
                break
            self._stopped = True
            with interrupts_deferred():
                self._process.send_signal(signal_number)
            try:
                wait(self._process, STOP_S)
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()

    def close(self) -> None:
        """Force the end and give back the descriptors."""
        kill(self._process)
        os.close(self.pidfd)
        os.close(self._stderr)
