# SPDX-License-Identifier: GPL-2.0-only
"""Starts the command, and says what to install where Python lacks what it needs.

It is what bin/trapless, the script that pip installs and `python -m trapless` run. It owns nothing
but that message, so it imports nothing that may be missing.
"""

import os
import signal
import sys

from trapless.base import statuses
from trapless.base.missing import remedy

PYTHON_WANTED = (3, 11)
DISTRIBUTIONS = {"elftools": "pyelftools"}
"""The packages of modules whose package has another name."""


def main() -> None:
    """Run the command."""
    if sys.version_info < PYTHON_WANTED:
        _fail(f"needs Python 3.11 or later, this is {sys.version.split()[0]}")
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Nothing has begun that would have to be cleaned up; cli.main() takes over.
        signal.signal(signal.SIGINT, lambda *_: os._exit(statuses.SIGNALLED + signal.SIGINT))
    try:
        from trapless.cli import main as command

        command()
    except ModuleNotFoundError as error:
        package = (error.name or "trapless").split(".")[0]
        if package == "trapless":
            raise
        name = DISTRIBUTIONS.get(package, package)
        _fail(f"Python lacks the package '{name}'; {remedy(name)}")
    except OSError as error:  # of an import
        _fail(f"{error.filename}: {error.strerror}")


def _fail(message: str) -> None:
    print(f"trapless: {message}", file=sys.stderr)
    sys.exit(statuses.of_failure())


if __name__ == "__main__":
    main()
