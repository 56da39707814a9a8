# SPDX-License-Identifier: GPL-2.0-only
"""The model in the emulator: what a guest's program is known to do is what its regions count."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from trapless.base.paths import repo_root
from trapless.model import plugin_choice, rows
from trapless.model.model_plan import Plan, Variant
from trapless.vm import lab, qemu

# The lab's own limits of time apply.
pytestmark = [pytest.mark.lab, pytest.mark.tool, pytest.mark.timeout(0)]

PROGRAM = repo_root() / "build" / "tests" / "lab" / "model_regions"
PASSES, ROUNDS, STRIDE, SMALL, LARGE = 10, 3, 128, 64 << 10, 512 << 10
VARIANT = Variant("pentium-4-1.8", policy={"dtlb": "lru", "l2": "lru"})
PLAN = Plan.of([VARIANT])
SLACK = 1000
"""Reads beyond the walk's own: of the stack, around ten system calls."""


def crash_in_a_region(kernel: str, folder: Path) -> Path:
    """Run the program until it crashes its kernel; the rows' file."""
    folder.mkdir()
    config, output = folder / "config", folder / "rows"
    PLAN.write(config)
    with pytest.raises(lab.LabError, match=r"sysrq|panic|crash"):
        lab.run(
            lab.LabConfig(
                kernel=kernel,
                icount=True,
                files=((PROGRAM, "/regions"),),
                append="transparent_hugepage=never",
                plugins=(plugin_choice.argument(config, output),),
            ),
            ["/regions", "crash"],
        )
    return output


def undisturbed(rounds: Sequence[rows.Row]) -> list[rows.Row]:
    """Those in which the program ran alone: after an interrupt the kernel may run another."""
    alone = [row for row in rounds if row.crossings()["interrupt"] == 0]
    assert alone
    return alone


def test_regions_count_what_the_program_did(kernel: str, tmp_path: Path) -> None:
    """And a guest that dies in a region keeps its finished rows; equal runs are equal bytes."""
    first = crash_in_a_region(kernel, tmp_path / "first")
    recording = rows.read(first)
    assert [row.label for row in recording.rows] == [SMALL] * ROUNDS + [LARGE] * 2 * ROUNDS
    # Nothing else is told: memory and the kernel's page tables were found.
    assert set(recording.events) - {"a region had not ended"} == {
        "a region ended that had not begun"
    }
    assert recording.complete == ("a region had not ended" in recording.events)
    tlb, cache = (PLAN.names[VARIANT.id, role] for role in ("dtlb", "l2"))
    small, large, again = (
        undisturbed(recording.rows[at : at + ROUNDS]) for at in range(0, 3 * ROUNDS, ROUNDS)
    )
    for row in (*small, *large, *again):
        reads = PASSES * row.label // STRIDE
        assert reads <= row["user.reads"] <= reads + SLACK
        assert row["kernel.instructions"] > PASSES * 50
        assert row.crossings()["syscall"] == PASSES
        assert row.crossings()["swapgs"] >= 2 * PASSES
        assert row.crossings()["cr3"] == 0
    # 16 pages and their lines fit beside the kernel's; 128 pages go round in 64 entries, and
    # 4,096 lines in 2,048.
    for row in small:
        assert row.misses("user", tlb) < PASSES * 16
        assert row.misses("user", cache) < PASSES * 512 / 10
    for row in (*large, *again):
        assert PASSES * 128 <= row.misses("user", tlb) <= PASSES * 140
        assert PASSES * 4096 * 0.99 <= row.misses("user", cache) <= PASSES * 4200
    second = crash_in_a_region(kernel, tmp_path / "second")
    assert first.read_bytes() == second.read_bytes()


def refusal(kernel: str, config: Path, cpus: int = 1, api: int | None = None) -> str:
    """Why QEMU did not start with the plugin for it, or with that of interface `api`."""
    argument = plugin_choice.argument(config, config.with_name("rows"))
    if api is not None:
        right = plugin_choice.file(qemu.binary())
        argument = argument.replace(str(right), str(right.with_name(f"trapless-model-{api}.so")))
    with pytest.raises(lab.LabError) as error:
        lab.run(lab.LabConfig(kernel=kernel, cpus=cpus, plugins=(argument,)), ["true"])
    return str(error.value)


def test_what_cannot_be_modelled_is_refused_before_the_guest_boots(
    kernel: str, tmp_path: Path
) -> None:
    config = tmp_path / "config"
    PLAN.write(config)
    assert "the model follows one processor" in refusal(kernel, config, cpus=2)
    config.write_text("memory 1073741824\ncache c size=3000 ways=4 line=64 policy=lru from=data\n")
    assert "not ways=4 times line times a power of two" in refusal(kernel, config)
    PLAN.write(config)
    other = {1: 4, 4: 1}[plugin_choice.api(qemu.binary())]
    assert f"plugin requires API version {other}" in refusal(kernel, config, api=other)
