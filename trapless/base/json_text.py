# SPDX-License-Identifier: GPL-2.0-only
"""Reads JSON that somebody else has written: whatever is wrong with it is a ValueError.

Python's own reader ends with a RecursionError where arrays or objects are nested too deeply for it.
"""

from __future__ import annotations

import json
from typing import Any


def parse(text: str | bytes, **options: Any) -> Any:
    """The value of the text; `options` are those of json.loads()."""
    try:
        return json.loads(text, **options)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
