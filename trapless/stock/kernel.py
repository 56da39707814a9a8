# SPDX-License-Identifier: GPL-2.0-only
"""One kernel: the files it consists of, and its record in the cache.

This file owns the type Kernel, the file kernel.json beside an unpacked or built kernel, and the
check that the files which it names are still there. It owns no kernel's name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from trapless.base import cache
from trapless.base.architecture import AMD64
from trapless.base.console import Progress, TraplessError

RECORD = "kernel.json"
RECORD_FORMAT = 1


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be booted, and what modules are built and loaded from."""

    name: str
    release: str
    image: Path
    build_dir: Path | None  # headers or build tree; None: no module can be built
    modules_dir: Path | None  # .../lib/modules/RELEASE of an unpacked kernel
    debug: bool = False
    provenance: dict[str, str] = field(default_factory=dict)  # packages, versions, sha256
    build_root: Path | None = None  # modules are built inside this root, with its own tools
    arch: str = AMD64.name


def save(kernel: Kernel, folder: Path) -> None:
    """Write the record of a kernel into its folder, with paths relative to the folder."""
    record = {
        key: str(value.relative_to(folder)) if isinstance(value, Path) else value
        for key, value in asdict(kernel).items()
    }
    record["format"] = RECORD_FORMAT
    record["image_sha256"] = cache.sha256_file(kernel.image)
    (folder / RECORD).write_text(json.dumps(record, indent=2, sort_keys=True) + "\n")


def load(folder: Path, progress: Progress) -> Kernel | None:
    """The kernel recorded in `folder`, verified; None where there is none that can be used."""
    try:
        record = json.loads((folder / RECORD).read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        progress.note(f"{folder / RECORD} is damaged; the kernel is fetched again")
        return None
    if not isinstance(record, dict) or record.pop("format", None) != RECORD_FORMAT:
        return None
    digest = record.pop("image_sha256")
    for key in ("image", "build_dir", "modules_dir", "build_root"):
        if record[key] is not None:
            record[key] = folder / record[key]
    kernel = Kernel(**record)
    for path in (kernel.image, kernel.build_dir, kernel.modules_dir):
        if path is not None and not path.exists():
            progress.note(f"{path} is gone from the cache; the kernel is fetched again")
            return None
    if cache.sha256_file(kernel.image) != digest:
        progress.note(f"{kernel.image} is damaged; the kernel is fetched again")
        return None
    return replace(kernel, provenance={**kernel.provenance, "image": f"sha256:{digest}"})


def find_image(root: Path, release: str) -> Path:
    """Where an unpacked kernel package keeps its image: it moved out of /boot in 2026."""
    candidates = (
        root / "boot" / f"vmlinuz-{release}",
        root / "lib" / "modules" / release / "vmlinuz",
        root / "usr" / "lib" / "modules" / release / "vmlinuz",
    )
    for image in candidates:
        if image.exists():
            return image
    raise TraplessError(f"the unpacked kernel {release} in {root} has no image vmlinuz")
