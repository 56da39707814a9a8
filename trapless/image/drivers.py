# SPDX-License-Identifier: GPL-2.0-only
"""Which of a kernel's own modules are in the image.

The modules that find the stick and the keyboard are loaded at the start. There is no driver of
SATA, NVMe, RAID or SCSI disks among them: the machine's disks cannot be touched, since the kernel
does not see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from trapless.vm import guest_modules
from trapless.vm.initramfs import Initramfs

BOOT = (
    *("xhci_pci", "ehci_pci", "ohci_pci", "uhci_hcd"),
    *("usb_storage", "uas", "sd_mod"),
    *("vfat", "nls_cp437", "nls_ascii"),
    *("usbhid", "hid_generic"),
)
"""Loaded at the start; what a kernel has built in is left out."""

AT_HAND = ("acpi_cpufreq", "brd", "ext4", "crc32c_generic", "null_blk")
"""Modules that a program loads when it wants one: the processor's clock, and file systems in
memory."""


def available(modules_dir: Path, wanted: Iterable[str]) -> list[str]:
    """Those of `wanted` that the kernel has, as modules or built in."""
    lines = [*_lines(modules_dir, "modules.dep"), *_lines(modules_dir, "modules.builtin")]
    names = {guest_modules.module_name(line.partition(":")[0]) for line in lines}
    return [name for name in wanted if name in names]


def add_at_hand(tree: Initramfs, modules_dir: Path) -> None:
    """Add the modules that are only at hand, with the lists by which modprobe finds them."""
    folder = f"/lib/modules/{modules_dir.name}"
    files = guest_modules.load_order(modules_dir, available(modules_dir, AT_HAND))
    chosen = {path.relative_to(modules_dir).as_posix() for path in files}
    for path in files:
        target = _plain(path.relative_to(modules_dir).as_posix())
        tree.file(f"{folder}/{target}", guest_modules.read_module(path))
    rows = []
    for line in _lines(modules_dir, "modules.dep"):
        own, _, needed = line.partition(":")
        if own in chosen:
            rows.append(f"{_plain(own)}: {' '.join(map(_plain, needed.split()))}".rstrip())
    tree.file(f"{folder}/modules.dep", _text(rows))
    for name in ("modules.builtin", "modules.order"):
        tree.file(f"{folder}/{name}", _text(_lines(modules_dir, name)))


def _plain(path: str) -> str:
    """The path of a module once it is decompressed."""
    for suffix in (".xz", ".zst", ".gz"):
        path = path.removesuffix(suffix)
    return path


def _lines(modules_dir: Path, name: str) -> Sequence[str]:
    path = modules_dir / name
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else ()


def _text(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
