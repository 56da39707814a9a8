# SPDX-License-Identifier: GPL-2.0-only
"""Describes a server: how it is started, what is asked of it, and under which loads it is
counted.

This file owns the description. packaged_servers.py lists the servers.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass

from eval.servers.shapes import Shape, Talk, shape


@dataclass(frozen=True)
class Server:
    """A server of the stock root. `programs` are packed with their libraries, `trees` are folders
    of the root with all in them.

    `talk` says what is asked of it, by the bytes of a reply. `loads` are the names of shapes; the
    first is the one that the model sees, too, unless the server is another one's twin (`modelled`),
    and that quick runs have. `requests` are those of a run. Under the `uneven` loads turns in one
    mode differ by more than supervisor mode saves: a saving can be seen only in many pairs.
    """

    name: str
    package: str
    programs: tuple[str, ...]
    argv: tuple[str, ...]
    talk: Callable[[int], Talk]
    loads: tuple[str, ...]
    requests: int
    prepare: str = ""
    trees: tuple[str, ...] = ()
    ready_limit_s: int = 60
    modelled: bool = True
    uneven: tuple[str, ...] = ()

    def shapes(self, *, quick: bool) -> tuple[Shape, ...]:
        """Its loads."""
        return tuple(shape(name, self.requests) for name in self.loads[: 1 if quick else None])


def written(text: str, path: str) -> str:
    """A line of the guest's shell that writes a file."""
    return f"printf %s {shlex.quote(text)} > {path}\n"
