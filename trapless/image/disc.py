# SPDX-License-Identifier: GPL-2.0-only
"""The image as a file: boot loaders of BIOS and UEFI, the system, and a partition for results.

This file owns the programs that make it (GRUB's grub-mkrescue, xorriso, mtools) and the layout: an
ISO 9660 file system that is a disk at the same time. What it holds is the same bytes each time; the
boot loader finds its medium by the time of making, which grub-mkrescue takes from the clock.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from trapless.base import tools
from trapless.base.console import Progress, TraplessError
from trapless.image import menu
from trapless.image.station.medium import LABEL, VOLUME

TOOLS = {
    "grub-mkrescue": "grub-common",
    "xorriso": "xorriso",
    "mformat": "mtools",
    "mcopy": "mtools",
    "zstd": "zstd",
}
PLATFORMS = {"i386-pc": "grub-pc-bin", "x86_64-efi": "grub-efi-amd64-bin"}
GRUB = Path("/usr/lib/grub")

RESULTS_BYTES = 32 << 20
"""The partition for results. An archive takes some hundred kilobytes."""
RESULTS_PARTITION = 4
BASIC_DATA = "0x0c"  # FAT with LBA: what every system mounts

EPOCH = "1577836800"
"""The date of all that is in the image, where SOURCE_DATE_EPOCH names no other."""

README = """\
This stick boots a machine and measures on it what Trapless saves.\r
Results are written to this partition: trapless-*.tar.xz and what was on the screen, as .txt.\r
`trapless report --verify FILE` checks an archive; anyone can be sent one.\r
"""


def absent() -> tuple[list[str], list[str]]:
    """The programs for making an image that this machine lacks, with the packages that have
    them."""
    names = [tool for tool in TOOLS if shutil.which(tool, path=tools.tool_path()) is None]
    packages = {TOOLS[tool] for tool in names}
    for platform, package in PLATFORMS.items():
        if not (GRUB / platform / "moddep.lst").exists():
            names.append(f"GRUB for {platform}")
            packages.add(package)
    return names, sorted(packages)


def require_tools() -> None:
    """Raise TraplessError where something is missing, with all packages."""
    names, packages = absent()
    if names:
        raise TraplessError(
            f"making an image needs {', '.join(names)}, not found on this machine; "
            f"on Debian: apt-get install {' '.join(packages)}"
        )


def compress(source: Path, target: Path, log: Path) -> None:
    """Compress the initramfs as every supported kernel can unpack it."""
    _run(["zstd", "-q", "-T0", "-9", "-o", str(target), str(source)], log, "compressing")


def make(
    folder: Path, kernel: Path, initrd: Path, release: str, mark: str, words: str, log: Path,
    progress: Progress,
) -> Path:  # fmt: skip
    """The image, made in `folder`, with this mark; `words` are for the kernel's command line."""
    tree, results, image = folder / "tree", folder / "results.img", folder / "image.iso"
    for source, name in ((kernel, menu.KERNEL), (initrd, menu.INITRD)):
        place = tree / name.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    (tree / "boot/grub").mkdir()
    text = menu.text(mark, release, initrd.stat().st_size, words)
    (tree / "boot/grub/grub.cfg").write_text(text)
    _date(tree)
    progress.step("making the partition for results")
    _make_results(results, mark, folder / "README.TXT", log)
    progress.step("writing the image")
    partition = ["-append_partition", str(RESULTS_PARTITION), BASIC_DATA, str(results)]
    command = ["grub-mkrescue", "-o", str(image), "--locales=", "--themes=", "--fonts="]
    date = ["-volume_date", "all_file_dates", f"={_epoch()}"]
    _run([*command, str(tree), "-volid", VOLUME.format(mark), *partition, "--", *date], log, "grub")
    return image


def _make_results(results: Path, mark: str, readme: Path, log: Path) -> None:
    with results.open("wb") as file:
        file.truncate(RESULTS_BYTES)
    sectors = str(RESULTS_BYTES // 512)
    geometry = ["-T", sectors, "-h", "64", "-s", "32"]
    naming = ["-N", mark, "-v", LABEL]
    _run(["mformat", "-i", str(results), *geometry, *naming, "::"], log, "mformat")
    readme.write_text(README, newline="")
    os.utime(readme, (int(_epoch()), int(_epoch())))
    _run(["mcopy", "-m", "-i", str(results), str(readme), "::"], log, "mcopy")


def _date(tree: Path) -> None:
    """Give everything the one date."""
    for path in _below(tree):
        os.utime(path, (int(_epoch()), int(_epoch())))


def _below(tree: Path) -> Iterable[Path]:
    return [*tree.rglob("*"), tree]


def _epoch() -> str:
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    return given if given.isdigit() else EPOCH


def _run(argv: list[str], log: Path, doing: str) -> None:
    if tools.run_tool(["env", f"SOURCE_DATE_EPOCH={_epoch()}", "TZ=UTC", *argv], log) != 0:
        raise TraplessError(f"{doing} failed: {argv[0]} says:\n{tools.last_lines(log)}")
