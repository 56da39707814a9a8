# SPDX-License-Identifier: GPL-2.0-only
"""The exit statuses of the command, and which of them a failure has.

It owns no message. An older Python than the command needs can read this file.
"""

import sys

FAILED = 1
NOT_RUN = 125  # as with env(1) and timeout(1)
CANNOT_EXECUTE = 126  # as with shells
NOT_FOUND = 127
SIGNALLED = 128  # and the signal's number

HAND_ON = ("run", "stat")
"""Commands that end with the status of a command of the user: our own failures have another one."""


def of_failure(status: int = FAILED) -> int:
    """The exit status of a failure that is `status` by itself."""
    return NOT_RUN if status == FAILED and sys.argv[1:2] and sys.argv[1] in HAND_ON else status
