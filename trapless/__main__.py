# SPDX-License-Identifier: GPL-2.0-only
"""Starts the command, and says what to install where Python lacks what it needs.

It is what bin/trapless and `python -m trapless` run. It owns nothing but that message, so it
imports nothing that may be missing.
"""

import sys
from pathlib import Path

PYTHON_WANTED = (3, 11)
PACKAGES = "python3-click python3-jinja2 python3-matplotlib python3-pyelftools python3-rich"


def main() -> None:
    """Run the command."""
    if sys.version_info < PYTHON_WANTED:
        sys.exit(f"trapless: needs Python 3.11 or later, this is {sys.version.split()[0]}")
    try:
        from trapless.cli import main as command
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "trapless":
            raise
        root = Path(__file__).resolve().parent.parent
        if (root / "scripts" / "setup").exists():
            remedy = f"run `make -C {root} setup`"
        else:
            remedy = f"on Debian: apt-get install {PACKAGES}"
        sys.exit(f"trapless: Python lacks the package '{error.name}'; {remedy}")
    command()


if __name__ == "__main__":
    main()
