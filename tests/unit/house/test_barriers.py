# SPDX-License-Identifier: GPL-2.0-only
"""What one thread of the module reads with acquire, another one stores with release.

On x86 a store is never seen before an earlier one, so that no test in a VM notices a plain store in
such a place. On arm64 it may be. smp_store_mb(), too, is a plain store there with a barrier behind
it. This test finds members by their names, and does not read what stands between the two sides.
"""

from __future__ import annotations

import re
from pathlib import Path

KMOD = Path(__file__).resolve().parents[3] / "kmod"
READ = re.compile(r"\bsmp_load_acquire\(&([\w>.-]+)\)")
STORED = re.compile(r"\b(?:smp_store_release|(?:cmp)?xchg(?:_release)?)\(&([\w>.-]+),")
OF_THE_KERNEL = {"d_flags"}
"""Members that the kernel's own code stores."""


def members(side: re.Pattern[str]) -> set[str]:
    sources = [path.read_text() for path in KMOD.rglob("*.[ch]")]
    return {re.split(r"->|\.", name)[-1] for text in sources for name in side.findall(text)}


def test_what_is_read_with_acquire_is_stored_with_release():
    read = members(READ)
    assert read >= OF_THE_KERNEL
    assert not read - OF_THE_KERNEL - members(STORED)
