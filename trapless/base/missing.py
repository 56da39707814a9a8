# SPDX-License-Identifier: GPL-2.0-only
"""Says what to do if Python lacks packages.

The command says it before it starts, and `trapless doctor` beside its answer. This file imports
nothing that may be missing, and an older Python than the command needs can read it.
"""

import shlex
import sys
from pathlib import Path


def remedy(*names: str) -> str:
    """How the Python that runs here is given packages."""
    root = Path(__file__).resolve().parents[2]
    if (root / "scripts" / "setup").exists():
        return f"run `make -C {shlex.quote(str(root))} setup`"
    if sys.prefix != sys.base_prefix:
        return f"run `{shlex.quote(sys.executable)} -m pip install {' '.join(names)}`"
    return "on Debian: apt-get install " + " ".join(f"python3-{name}" for name in names)
