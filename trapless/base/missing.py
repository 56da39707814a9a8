# SPDX-License-Identifier: GPL-2.0-only
"""Says what to do if Python lacks packages.

The command says it before it starts, and `trapless doctor` beside its answer. This file imports
nothing that may be missing, and an older Python than the command needs can read it.
"""

import shlex
import sys
from pathlib import Path

OF_PAGES = ("jinja2", "matplotlib")
"""Only reports with figures need these packages; every other command works without them."""
NOT_IN_DEBIAN = frozenset({"drgn", "perfetto", "pyarrow", "qemu.qmp"})
"""Debian 12 has no package of these, or one that is too old: pip installs them."""


def remedy(*names: str) -> str:
    """How the Python that runs here is given packages."""
    root = Path(__file__).resolve().parents[2]
    if (root / "scripts" / "setup").exists():
        return f"run `make -C {shlex.quote(str(root))} setup`"
    if sys.prefix != sys.base_prefix:
        return f"run `{shlex.quote(sys.executable)} -m pip install {' '.join(names)}`"
    by_pip = [name for name in names if name in NOT_IN_DEBIAN]
    by_apt = [f"python3-{name}" for name in names if name not in NOT_IN_DEBIAN]
    apt = f"apt-get install {' '.join([*by_apt, 'python3-pip'] if by_pip else by_apt)}"
    pip = f" && pip install --break-system-packages {' '.join(by_pip)}" if by_pip else ""
    return f"on Debian, as root: {apt}{pip}"
