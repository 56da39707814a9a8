# SPDX-License-Identifier: GPL-2.0-only
"""Modules of experiments, beside trapless.ko: for the lab's kernel, or for this machine's.

Here, one that lies in the folder of the module given by --module is taken; else it is built, which
takes the kernel's headers.
"""

from __future__ import annotations

from pathlib import Path

from trapless import module
from trapless.base.console import TraplessError
from trapless.experiments.collection import Collection
from trapless.stock import kbuild, kernels


def find(run: Collection, tree: Path, name: str) -> tuple[Path | None, str]:
    """The module called `name`, whose sources are in `tree`; none, and why, where there is none."""
    if run.place is None:
        kernel = kernels.resolve(run.kernel, run.progress)
        return kbuild.module_for(kernel, run.progress, tree, name), ""
    for own in run.place.files:
        if (own.parent / name).exists():
            module.check_release(own.parent / name)
            return own.parent / name, ""
    try:
        return kbuild.module_for(module.host_kernel(), run.progress, tree, name), ""
    except TraplessError as error:
        return None, f"{name} is not built, and cannot be: {error}"
