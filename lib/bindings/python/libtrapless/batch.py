# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Batches whose flush the caller waits for.

queue.py owns the calls, ring.py their memory; aio.py has batches for asyncio.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from libtrapless import abi
from libtrapless.queue import Queue

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self


class Batch(Queue):
    """Calls that one crossing makes. `with Batch() as batch` gives it back at the end."""

    def flush(self, steps: int = abi.STEPS_DEFAULT) -> int:
        """Make all queued calls, and return their number.

        A call that fails raises nothing here; its result() does. OSError with ETIME: a program
        has made `steps` steps and is not at its end; another flush goes on.
        """
        return self._use().flush(operator.index(steps))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
