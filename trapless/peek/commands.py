# SPDX-License-Identifier: GPL-2.0-only
"""The face of `trapless peek`: its subcommands, options and help.

As in cli.py, it owns no behaviour: each command imports the part that does the work.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from trapless.console import TraplessError

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


class Size(click.ParamType[int]):
    """A number of bytes, as in 4096, 512M or 2G."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        text = str(value).strip().upper().removesuffix("B").removesuffix("I")
        number, unit = (text[:-1], text[-1:]) if text[-1:] in UNITS else (text, "")
        try:
            return int(number, 0) * UNITS[unit]
        except ValueError:
            self.fail(f"{value!r} is no size, like 4096, 512M or 2G", param, ctx)


def target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say which machine is looked at, the same for every command."""
    ram = click.option(
        "--ram",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="A VM's RAM file, a raw image or an ELF core.  [default: the VM that shares its RAM]",
    )
    hole = click.option(
        "--hole",
        type=Size(),
        metavar="SIZE",
        help="Where RAM below 4 GiB ends, of a machine that is none of QEMU's.",
    )
    return ram(hole(command))


@click.group()
def peek() -> None:
    """Look into a running kernel from outside.

    The kernel is read out of its machine's memory: nothing is loaded into it, nothing in it
    helps or notices, and nothing is ever written.
    """


@peek.command()
@target_options
@click.option("-c", "--code", metavar="TEXT", help="Run this code instead of a session.")
def shell(ram: Path | None, hole: int | None, code: str | None) -> None:
    """Open a drgn session on a running kernel.

    Symbols, types and stack traces are found in the kernel's memory; no debug symbols are
    needed.

    \b
    trapless lab --shared-memory /dev/shm/ram -- sleep 60 &
    trapless peek shell -c 'print([task.comm for task in for_each_task()])'
    """
    if importlib.util.find_spec("drgn") is None:
        raise TraplessError(
            "drgn is not installed, and the shell is one of its sessions; pip install drgn"
        )
    from trapless.peek import machines
    from trapless.peek import shell as part

    sys.exit(part.run(ram if ram is not None else machines.the_one(), hole, code))
