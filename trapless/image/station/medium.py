# SPDX-License-Identifier: GPL-2.0-only
"""The stick that this machine was booted from: how it is found, and how results are saved on it.

A disk is the stick if it is on USB and its ISO 9660 header carries the mark of this image. Results
go to the partition of that disk whose FAT header carries the same mark, and nowhere else. Of other
USB disks a few sectors are read; other disks have no driver here. This file owns these rules.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VOLUME = "TRAPLESS_{}"
"""The ISO's volume identifier, with the image's mark: eight hexadecimal digits."""
LABEL = "TRAPLESS"
"""The label of the FAT partition for results. Its serial number is the mark."""

HEADER_OFFSET, SECTOR_BYTES = 16 * 2048, 2048
SERIAL_OFFSET, LABEL_OFFSET = 0x27, 0x2B  # of FAT12 and FAT16
WAIT_S, LOOK_S = 12.0, 0.5
"""How long a stick may take to appear, as USB lets it; and how often to look."""

WHERE = Path("/run/stick")


@dataclass(frozen=True)
class Stick:
    """The partition for results, and the disk that it is on: names in /dev."""

    disk: str
    partition: str


class SaveError(Exception):
    """Why results could not be saved, in a sentence."""


def find(mark: str, sys: Path = Path("/sys"), dev: Path = Path("/dev")) -> Stick | None:
    """The stick with this mark, or None where none is there."""
    for disk in sorted((sys / "block").glob("sd*")):
        if "/usb" not in str(disk.resolve()) or not _is_image(dev / disk.name, mark):
            continue
        for partition in sorted(disk.glob(f"{disk.name}*")):
            if (partition / "partition").exists() and _is_for_results(dev / partition.name, mark):
                return Stick(disk.name, partition.name)
    return None


def wait_for(mark: str, limit_s: float = WAIT_S) -> Stick | None:
    """The same, but a stick that is plugged in and not yet there is waited for."""
    end = time.monotonic() + limit_s
    while (stick := find(mark)) is None and time.monotonic() < end:
        time.sleep(LOOK_S)
    return stick


def _is_image(device: Path, mark: str) -> bool:
    header = _read(device, HEADER_OFFSET, SECTOR_BYTES)
    volume = header[40:72].decode("ascii", "replace").strip()
    return header[1:6] == b"CD001" and volume == VOLUME.format(mark)


def _is_for_results(device: Path, mark: str) -> bool:
    header = _read(device, 0, 512)
    if len(header) < 512 or header[510:] != b"\x55\xaa":
        return False
    (serial,) = struct.unpack_from("<I", header, SERIAL_OFFSET)
    label = header[LABEL_OFFSET : LABEL_OFFSET + 11].decode("ascii", "replace").strip()
    return label == LABEL and f"{serial:08X}" == mark


def _read(device: Path, offset: int, count: int) -> bytes:
    """Some bytes of a device, or none: a stick may go at any time."""
    try:
        with device.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), count, offset)
    except OSError:
        return b""


def save(stick: Stick, files: Sequence[tuple[str, Path]], where: Path = WHERE) -> list[str]:
    """Write files under new names and read them again; the names. A SaveError says what failed, and
    then none of them is left half written, as far as the stick still answers."""
    _mount(stick, where, "rw,sync")
    try:
        names = _write_all(files, where)
    finally:
        _unmount(where)
    _mount(stick, where, "ro")  # the cached copy is dropped: this reads the stick
    try:
        for name, (_, source) in zip(names, files, strict=True):
            if _digest(where / name) != _digest(source):
                raise SaveError(f"what was read again of {name} differs: the stick is damaged")
    except OSError as error:
        raise SaveError(_explained(error)) from error
    finally:
        _unmount(where)
    return names


def _write_all(files: Sequence[tuple[str, Path]], where: Path) -> list[str]:
    """All of `files`, or none."""
    names: list[str] = []
    try:
        need_bytes = sum(source.stat().st_size for _, source in files)
        free_bytes = (status := os.statvfs(where)).f_bavail * status.f_frsize
        if need_bytes > free_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        for wanted, source in files:
            names.append(_free_name(where, wanted))
            _copy(source, where / names[-1])
    except OSError as error:
        for name in names:
            with contextlib.suppress(OSError):
                (where / name).unlink(missing_ok=True)
        raise SaveError(_explained(error)) from error
    return names


def _free_name(where: Path, wanted: str) -> str:
    """`wanted`, or the same with a number: nothing on the stick is written over."""
    stem, dot, suffix = wanted.partition(".")
    names = (wanted, *(f"{stem}-{number}{dot}{suffix}" for number in range(2, 1000)))
    for name in names:
        if not (where / name).exists():
            return name
    raise OSError(errno.EEXIST, os.strerror(errno.EEXIST))


def _copy(source: Path, target: Path) -> None:
    with target.open("xb") as file:
        file.write(source.read_bytes())
        file.flush()
        os.fsync(file.fileno())


def _mount(stick: Stick, where: Path, options: str) -> None:
    where.mkdir(parents=True, exist_ok=True)
    kept = "nodev,nosuid,noexec,tz=UTC"
    command = ["mount", "-t", "vfat", "-o", f"{options},{kept}", f"/dev/{stick.partition}"]
    done = subprocess.run([*command, str(where)], capture_output=True, text=True)
    if done.returncode:
        raise SaveError(f"its partition {stick.partition} cannot be mounted: {done.stderr.strip()}")


def _unmount(where: Path) -> None:
    if subprocess.run(["umount", str(where)], capture_output=True).returncode:
        subprocess.run(["umount", "-l", str(where)], capture_output=True)


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def _explained(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the stick is full: make room in its partition TRAPLESS, or take another stick"
    if error.errno in (errno.EIO, errno.ENODEV, errno.ENXIO, errno.EROFS):
        return f"the stick does not answer, as if it were pulled ({error.strerror})"
    return error.strerror or str(error)
