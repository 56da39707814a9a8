# SPDX-License-Identifier: GPL-2.0-only
"""Each kernel starts from an image that was decompressed on this side, and as its own decompressor
would have started it: at random addresses and with five levels of page tables, or without, as its
command line says.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S
from trapless.base.console import Silent
from trapless.stock import kernels
from trapless.vm import lab

pytestmark = pytest.mark.timeout(4 * LIMIT_S)

FIXED = (0xFFFFFFFF81000000, 0x1000000)
"""Where a kernel is without KASLR: in its address space, and in memory."""
FIVE_LEVELS_END = 0xFFFF800000000000
"""Four levels of page tables map no address of the kernel below."""
SCRIPT = """
echo 1 >/proc/sys/kernel/kptr_restrict # then root sees addresses
grep ' _text$' /proc/kallsyms
grep 'Kernel code' /proc/iomem
head -n 1 /proc/vmallocinfo
"""


def boot(kernel: str, **how: str) -> tuple[tuple[int, int], bool, Path]:
    """Where the kernel is, whether it has five levels, and the image that it was started from."""
    result = lab.run(lab.LabConfig(kernel=kernel, module=False, **how), ["sh", "-c", SCRIPT])
    text, code, area = result.stdout.decode().splitlines()
    place = int(text.split()[0], 16), int(re.match(r"\s*([0-9a-f]+)-", code)[1], 16)
    levels = int(re.match(r"0x([0-9a-f]+)-", area)[1], 16) < FIVE_LEVELS_END
    return place, levels, Path(result.qemu_argv[result.qemu_argv.index("-kernel") + 1])


def test_kernel_starts_as_its_own_image_would_start_it(kernel):
    stock = kernels.resolve(kernel, Silent()).image
    place, levels, image = boot(kernel, memory="256M")
    assert image != stock
    assert place != FIXED  # by chance once in twenty thousand boots
    assert [address % 0x200000 for address in place] == [0, 0]
    assert levels
    place, levels, image = boot(kernel, memory="128M", append="nokaslr no5lvl")
    assert image != stock
    assert (place, levels) == (FIXED, False)


def test_counted_guest_starts_from_the_kernels_own_image_unless_it_is_to_start_quickly():
    config = lab.LabConfig(module=False, icount=True)
    assert lab.prepare(config, ["true"], Silent()).image is None
    assert lab.prepare(replace(config, quick_start=True), ["true"], Silent()).image is not None
