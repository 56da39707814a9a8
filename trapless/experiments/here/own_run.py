# SPDX-License-Identifier: GPL-2.0-only
"""`trapless evaluate --here`: checks, asks, prepares this machine, and runs its experiments.

This file owns the order of these steps. evaluate.py runs experiments, place.py the commands.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trapless import module
from trapless.base import built_programs
from trapless.base.console import Progress, TraplessError
from trapless.experiments import evaluate
from trapless.experiments.evaluate import Outcome
from trapless.experiments.here import consent, own_machine, root
from trapless.experiments.here.place import Here
from trapless.vm import guest_tree


@dataclass(frozen=True)
class Wishes:
    """The user's options."""

    names: Sequence[str]
    quick: bool
    out: Path | None
    module: Path | None
    supervisor: bool
    agreed: bool
    reported: bool
    least: bool = False  # for tests: the fewest rounds and sizes that can be analysed


def run(wishes: Wishes, progress: Progress) -> tuple[Outcome, Path]:
    """Run it all; the outcome, and the folder of the results."""
    specs, absent = own_machine.chosen(wishes.names)
    out = wishes.out if wishes.out is not None else Path("results") / own_machine.folder_name()
    _check(wishes)
    own = wishes.module.absolute() if wishes.module is not None else module.build(progress)
    progress.done()
    words = consent.text(
        specs, absent, module=own, supervisor=wishes.supervisor, out=out, quick=wishes.quick
    )
    consent.ask(words, agreed=wishes.agreed)
    evaluate.make_writable(out)
    built_programs.build(progress)
    root.leave_namespace()
    here = Here(own, wishes.supervisor, own_machine.facts(own), (own,), wishes.least)
    outcome = evaluate.run_at(
        here,
        specs,
        quick=wishes.quick,
        out=out,
        progress=progress,
        page=evaluate.can_draw(progress),
        reported=wishes.reported,
    )
    return outcome, out


def _check(wishes: Wishes) -> None:
    """Raise TraplessError where it could not begin, before anything is built or asked."""
    if os.geteuid() != 0:
        raise TraplessError(
            "evaluate --here loads the module into this machine's kernel, which needs root: run it "
            "with sudo. Without --here it runs in a VM, without root"
        )
    if module.is_loaded():
        raise TraplessError(
            "the module is loaded already, and which build of it nobody knows; unload it first: "
            "trapless module unload"
        )
    if wishes.module is not None:
        module.check_release(wishes.module)
    guest_tree.find_busybox()
