# SPDX-License-Identifier: GPL-2.0-only
"""A machine that is booted from an image: QEMU with real firmware, and a dialogue over its console.

The stick is a copy of the image on a file. The machine has disks of its own, on each kind of
controller, which nobody may write to. This file owns the machine and its dialogue; test_image.py
says what has to be so.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from trapless.image import disc
from trapless.vm import qemu
from trapless.vm.qmp import Listener, Monitor

FIRMWARE = Path("/usr/share/OVMF")
LIMIT_S = 900
"""For a machine that hangs, seconds: a boot takes less than a minute on an idle host."""
DISK_BYTES = 4 << 20
OWN_DISKS = ("ide-hd,bus=ide.1", "nvme,serial=own", "virtio-blk-pci")
STICK = {"driver": "usb-storage", "bus": "usb.0", "drive": "image", "id": "stick"}


@dataclass(frozen=True)
class Case:
    """What kind of machine, and which kernel the image has."""

    firmware: str  # "bios" or "uefi"
    medium: str  # "usb" or "cd"
    cpus: int
    kernel: str

    def __str__(self) -> str:
        return f"{self.kernel}-{self.firmware}-{self.medium}-{self.cpus}"


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class Stick:
    """A file that a machine sees as its stick or CD."""

    def __init__(self, path: Path, image: Path) -> None:
        self.path = path
        shutil.copyfile(image, path)
        at = _partition(image)
        self._results = f"{path}@@{at}"
        self._partition = range(at, at + disc.RESULTS_BYTES)

    def outside_results(self) -> str:
        """A digest of all but the partition for results."""
        data = bytearray(self.path.read_bytes())
        del data[self._partition.start : self._partition.stop]
        return hashlib.sha256(data).hexdigest()

    def names(self) -> list[str]:
        """The files in the partition for results."""
        said = self._mtools("mdir", "-b", "-i", self._results, "::").decode()
        return sorted(line.strip().removeprefix("::/") for line in said.split("\n") if line.strip())

    def read(self, name: str) -> bytes:
        return self._mtools("mtype", "-i", self._results, f"::{name}")

    def _mtools(self, *argv: str) -> bytes:
        done = subprocess.run(argv, capture_output=True, timeout=60)
        assert done.returncode == 0, (argv, done.stderr)
        return done.stdout


def _partition(image: Path) -> int:
    """Where the partition for results begins, by the partition table of the image."""
    entry = image.read_bytes()[446 + 16 * (disc.RESULTS_PARTITION - 1) :][:16]
    assert entry[4] == int(disc.BASIC_DATA, 16)
    return int.from_bytes(entry[8:12], "little") * 512


class Machine:
    """A running machine. Use as a context manager: it is off afterwards."""

    def __init__(self, case: Case, stick: Stick, folder: Path) -> None:
        self._case, self._stick = case, stick
        self.disks = [folder / f"disk{number}.img" for number in range(len(OWN_DISKS))]
        for number, disk in enumerate(self.disks):
            disk.write_bytes(f"data of the machine, disk {number}\n".encode() * 3000)
            with disk.open("r+b") as file:
                file.truncate(DISK_BYTES)
        self._digests = [digest(disk) for disk in self.disks]
        self._console, theirs = socket.socketpair()
        self._console.settimeout(1)
        self._read, self._seen = b"", 0
        socket_path = folder / "monitor"
        listener = Listener(socket_path)
        argv = [*self._argv(folder, theirs.fileno()), *_monitor(listener.fileno())]
        self._process = qemu.Process(argv, [theirs.fileno(), listener.fileno()])
        theirs.close()
        self.monitor = Monitor(socket_path)
        listener.close()

    def _argv(self, folder: Path, console: int) -> list[str]:
        argv = [
            qemu.binary(),
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-vga", "std"),
            *("-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "1536M"),
            *("-smp", str(self._case.cpus), "-device", "qemu-xhci,id=usb"),
            *("-chardev", f"socket,id=console,fd={console}", "-serial", "chardev:console"),
        ]
        if self._case.firmware == "uefi":
            variables = shutil.copy(FIRMWARE / "OVMF_VARS_4M.fd", folder / "variables.fd")
            code = FIRMWARE / "OVMF_CODE_4M.fd"
            argv += ["-drive", f"if=pflash,format=raw,unit=0,readonly=on,file={code}"]
            argv += ["-drive", f"if=pflash,format=raw,unit=1,file={variables}"]
        image = f"raw,node-name=image,file.driver=file,file.filename={self._stick.path}"
        if self._case.medium == "usb":
            device = ",".join(f"{key}={value}" for key, value in STICK.items())
            argv += ["-blockdev", image, "-device", f"{device},bootindex=0"]
        else:
            argv += ["-blockdev", f"{image},read-only=on"]
            argv += ["-device", "ide-cd,bus=ide.0,drive=image,bootindex=0"]
        for number, (disk, device) in enumerate(zip(self.disks, OWN_DISKS, strict=True)):
            argv += ["-drive", f"if=none,id=disk{number},format=raw,file={disk}"]
            argv += ["-device", f"{device},drive=disk{number}"]
        return argv

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.monitor.close()
        self._process.stop()
        self._process.close()
        self._console.close()

    def disks_are_untouched(self) -> bool:
        return [digest(disk) for disk in self.disks] == self._digests

    def expect(self, pattern: str, limit_s: float = LIMIT_S) -> str:
        """Wait for a pattern in what the console shows next; what was shown up to its end."""
        end = time.monotonic() + limit_s
        while not (match := re.search(pattern.encode(), self._read[self._seen :])):
            assert time.monotonic() < end, f"no {pattern!r} in:\n{self.text()[-4000:]}"
            try:
                piece = self._console.recv(1 << 16)
            except TimeoutError:
                continue
            assert piece, f"the machine ended before {pattern!r}:\n{self.text()[-4000:]}"
            self._read += piece
        start, self._seen = self._seen, self._seen + match.end()
        return self._read[start : self._seen].decode(errors="replace")

    def send(self, text: str) -> None:
        self._console.sendall(text.encode())

    def ask(self, pattern: str, answer: str) -> str:
        """Wait for a pattern, and type the answer."""
        shown = self.expect(pattern)
        self.send(answer)
        return shown

    def text(self) -> str:
        """All that the console has shown."""
        return self._read.decode(errors="replace")

    def pull_stick(self) -> None:
        self.monitor._ask("device_del", {"id": STICK["id"]})

    def plug_stick(self) -> None:
        self.monitor._ask("device_add", dict(STICK))

    def is_off(self, limit_s: float = 120) -> bool:
        """Whether the machine switches itself off in time."""
        end = time.monotonic() + limit_s
        while not self._process.ended() and time.monotonic() < end:
            time.sleep(0.1)
        return self._process.ended()


def _monitor(descriptor: int) -> list[str]:
    return [
        *("-chardev", f"socket,id=monitor,fd={descriptor},server=on,wait=off"),
        *("-mon", "chardev=monitor,mode=control"),
    ]
