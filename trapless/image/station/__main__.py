# SPDX-License-Identifier: GPL-2.0-only
"""Starts the dialogue: process 1 runs this on a machine that was booted from the image."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

from trapless.image.station import boot_order
from trapless.image.station.consoles import Consoles
from trapless.image.station.station import Station


def main() -> int:
    """How the machine shall end, as a status."""
    with Consoles.active() as consoles:
        try:
            return Station(boot_order.parse(Path("/proc/cmdline").read_text()), consoles).go()
        except Exception:  # no one else shows it: init then leaves a shell
            consoles.say(traceback.format_exc())
            return 1


if __name__ == "__main__":
    sys.exit(main())
