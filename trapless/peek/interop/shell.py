# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek shell`: opens a drgn session on a running kernel.

Owns the beginning of the session and the names in it. drgn_program.py gives drgn its view of
the target.
"""

from __future__ import annotations

import traceback
from typing import Any

import drgn
import drgn.cli

from trapless.peek.errors import PeekError
from trapless.peek.interop.drgn_program import program
from trapless.peek.kernel.target import Target
from trapless.peek.machines import Machine

BANNER = """\
Linux {release} in {memory}, live and read-only
(prog: the drgn program; target: names, types and addresses as `trapless peek` has them)
>>> from drgn.helpers.linux import *"""


def run(machine: Machine, code: str | None) -> int:
    """Run a session in the terminal, or the Python code `code`; return the exit status."""
    with machine.open(sandbox=False) as target:
        prog = program(target)
        names = {**drgn.cli.default_globals(prog), "target": target}
        if code is not None:
            return _execute(prog, names, code, target)
        drgn.cli.run_interactive(
            prog,
            banner_func=lambda _: BANNER.format(release=target.release, memory=machine),
            globals_func=lambda _: names,
        )
    return 0


def _execute(prog: drgn.Program, names: dict[str, Any], code: str, target: Target) -> int:
    """Run code as drgn's own -c does. An error in it names the line of the code."""
    drgn.set_default_prog(prog)
    try:
        exec(compile(code, "<command>", "exec"), names)
        target.check_same()  # without this, the output may mix two kernels
    except PeekError:
        raise
    except drgn.FaultError as error:
        target.check_same()  # a restart is the better explanation
        raise PeekError(f"no memory at {error.address:#x} in the target: {error}") from error
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f" (line {last.lineno})" if last.filename == "<command>" else ""
        raise PeekError(f"{type(error).__name__}: {error}{where}") from error
    finally:
        drgn.set_default_prog(None)
    return 0
