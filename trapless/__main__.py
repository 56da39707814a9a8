# SPDX-License-Identifier: GPL-2.0-only
"""Starts the command, and says what to install where Python lacks what it needs.

It is what bin/trapless, the script that pip installs and `python -m trapless` run. It owns nothing
but that message, so it imports nothing that may be missing.
"""

import sys

from trapless.base.missing import remedy

PYTHON_WANTED = (3, 11)
DISTRIBUTIONS = {"elftools": "pyelftools"}
"""Of modules whose package has another name."""


def main() -> None:
    """Run the command."""
    if sys.version_info < PYTHON_WANTED:
        sys.exit(f"trapless: needs Python 3.11 or later, this is {sys.version.split()[0]}")
    try:
        from trapless.cli import main as command

        command()
    except ModuleNotFoundError as error:
        package = (error.name or "trapless").split(".")[0]
        if package == "trapless":
            raise
        name = DISTRIBUTIONS.get(package, package)
        sys.exit(f"trapless: Python lacks the package '{name}'; {remedy(name)}")


if __name__ == "__main__":
    main()
