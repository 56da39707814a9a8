# SPDX-License-Identifier: GPL-2.0-only
"""`trapless image`: its options and help, and what it says of a finished image."""

from __future__ import annotations

from pathlib import Path

import click

from trapless.base.console import ConsoleProgress


@click.command(short_help="Make an image that boots a machine and measures it.")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path), metavar="OUT.iso")
@click.option(
    "--kernel",
    metavar="NAME",
    help="A supported kernel by name; default: the oldest.",
)
@click.option(
    "--append",
    metavar="TEXT",
    default="",
    help="More words for the kernel in every menu entry.",
)
def image(out: Path, kernel: str | None, append: str) -> None:
    """Make OUT.iso, which boots a machine by BIOS or UEFI from a USB stick or a CD, and runs there
    what `trapless evaluate --here` runs.

    The machine's own disks are not touched: the image has no driver for them, and its whole system
    is in memory. The boot menu asks what to run, quick or full, without supervisor mode or with
    the processor's mitigations off. Results are shown, and saved as one archive in a partition of
    the stick. From a CD, or when the stick was pulled, they stay on the screen and in memory.

    Secure Boot must be off: neither the boot loader nor the module is signed. eval/image.md says
    what the machine needs, and trapless-image(1) has all words for the kernel.

    \b
    trapless image trapless.iso
    trapless image trapless.iso --kernel newest
    trapless image trapless.iso --append "trapless.run=quick trapless.then=poweroff"
    dd if=trapless.iso of=/dev/sdX bs=4M oflag=direct     # as root; sdX is the stick
    """
    from trapless.base.cache import megabytes
    from trapless.image import build
    from trapless.stock.kernels import SUPPORTED

    with ConsoleProgress() as progress:
        made = build.make(out, kernel or SUPPORTED[0].name, append, progress)
    click.echo(
        f"{made.path}: Linux {made.release} with Trapless, {megabytes(made.size_bytes)}, "
        f"mark {made.mark}\n"
        f"Copy it onto a stick, as root:  dd if={made.path} of=/dev/sdX bs=4M oflag=direct\n"
        "or burn it on a CD. Secure Boot must be off in the machine's firmware."
    )
