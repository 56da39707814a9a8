# SPDX-License-Identifier: GPL-2.0-only
"""A short run of the fuzzer, its corpus first; and that it finds what is planted.

TL_FUZZ_S sets the length of the run: `make matrix` takes minutes, `make fuzz` as long as you like.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.fuzz import fuzz
from trapless.base.console import Silent

SECONDS = int(os.environ.get("TL_FUZZ_S", "30"))
LIMIT_S = 3600

WORKER_RING_IS_SHUT = bytes([0, 0, 0, 1, 7, 0])
"""Header; make ring 0, a worker ring of one entry; shut ring 0."""

pytestmark = [pytest.mark.lab, pytest.mark.timeout(LIMIT_S)]


@pytest.mark.outer_kernels
def test_fuzzing_finds_nothing(kernel: str):
    fuzz.build(Silent())
    plan = fuzz.Plan(kernel, seed=os.getpid(), seconds=SECONDS)
    result = fuzz.run_round(plan, fuzz.read_corpus(fuzz.CORPUS), Silent())
    if result.wrong:
        path = fuzz.save(plan, result, result.recent, "By the lab's test.")
        programs = "\n".join(one.hex() for one in result.recent)
        pytest.fail(f"programs: {path}\n{programs}\n{result.wrong}", pytrace=False)
    print(result.stat)  # shown by -rA
    assert result.stat["programs"] > 0
    assert result.stat["reached"] > result.stat["of"] // 10


def test_a_planted_fault_is_found_with_its_program(tmp_path: Path):
    fuzz.build(Silent())
    shutil.copytree(fuzz.ROOT / "kmod", tmp_path / "kmod")
    shutil.copytree(fuzz.ROOT / "include", tmp_path / "include")
    device = tmp_path / "kmod/device.c"
    text = device.read_text()
    assert text.count("\ttlk_queue_shut(ring);\n") == 1
    device.write_text(
        text.replace("\ttlk_queue_shut(ring);\n", "\tWARN_ON(ring), tlk_queue_shut(ring);\n")
    )
    plan = fuzz.Plan(fuzz.lab.DEFAULT_KERNEL, seed=1, seconds=SECONDS, tree=tmp_path)
    result = fuzz.run_round(plan, [bytes([0, 0, 0, 0]), WORKER_RING_IS_SHUT], Silent())
    assert "WARNING: " in result.wrong
    assert result.recent[-1] == WORKER_RING_IS_SHUT
