# SPDX-License-Identifier: GPL-2.0-only
"""The launcher's end of the shared memory: layout as in C, rings that lose and invent nothing."""

from __future__ import annotations

import ctypes
import itertools
import os
import random
import subprocess
from pathlib import Path

import pytest

from trapless.vm import channel
from trapless.vm.channel import Channel, Phase

ROOT = Path(__file__).resolve().parents[3]
GUEST = ROOT / "trapless/vm/guest"
SEED = 20
ROUNDS = 1000

LAYOUT = """
#include <stdio.h>
#include "channel.h"
#define F(type, field) printf(#type "." #field " %zu %zu\\n", offsetof(struct type, field), \\
    sizeof(((struct type *)0)->field))
int main(void)
{
    F(ring, head); F(ring, tail); F(ring, producer_closed); F(ring, consumer_closed);
    F(ring, offset); F(ring, bytes); F(channel, magic); F(channel, phase); F(channel, status);
    F(channel, switch_error); F(channel, calls); F(channel, refusal);
    F(channel, input); F(channel, output); F(channel, errors); F(channel, error);
    printf("magic %u bytes %u phases %d %d %d %d %d\\n", CHANNEL_MAGIC, CHANNEL_BYTES,
    PHASE_FIRMWARE, PHASE_INIT, PHASE_RUNNING, PHASE_DONE, PHASE_FAILED);
    return 0;
}
"""


@pytest.fixture
def shared():
    made = Channel()
    yield made
    made.close()


def test_layout_is_the_guests(tmp_path):
    code = tmp_path / "layout.c"
    code.write_text(LAYOUT)
    program = tmp_path / "layout"
    subprocess.run(["cc", f"-I{GUEST}", "-o", str(program), str(code)], check=True, timeout=600)
    *fields, constants = subprocess.check_output([program], text=True).splitlines()
    assert len(fields) == 16
    for line in fields:
        name, offset, size = line.split()
        structure, field = name.split(".")
        kind = {"ring": channel._Ring, "channel": channel._Header}[structure]
        described = getattr(kind, field)
        assert (name, described.offset, described.size) == (name, int(offset), int(size))
    phases = " ".join(str(phase.value) for phase in Phase)
    assert constants == f"magic {channel.MAGIC} bytes {channel.CHANNEL_BYTES} phases {phases}"


@pytest.mark.slow
def test_guests_init_compiles_with_both_compilers(tmp_path):
    sources = sorted(str(path) for path in GUEST.glob("*.c"))
    for compiler in ("gcc", "clang"):
        flags = ("-static", "-O2", "-Wall", "-Wextra", "-Werror", "-Wshadow")
        flags = (*flags, f"-I{ROOT / 'include/uapi'}")
        subprocess.run(
            [compiler, *flags, "-o", str(tmp_path / compiler), *sources], check=True, timeout=600
        )


def test_rings_do_not_overlap(shared):
    ranges = sorted(
        (ring._offset, ring._offset + ring.size)
        for ring in (shared.input, shared.output, shared.errors)
    )
    assert ranges[0][0] >= ctypes.sizeof(channel._Header)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
    assert ranges[-1][1] <= channel.CHANNEL_BYTES


def test_memory_has_no_name(shared):
    assert os.readlink(f"/proc/self/fd/{shared.file}").startswith("/memfd:")


@pytest.mark.slow
def test_bytes_come_out_as_they_went_in(shared):
    ring, chance = shared.input, random.Random(SEED)
    sent, received = bytearray(), bytearray()
    for _ in range(ROUNDS):
        data = chance.randbytes(chance.choice((1, 7, 4096, 300_000)))
        taken = ring.produce(data)
        assert taken <= len(data)
        sent += data[:taken]
        piece = ring.peek(chance.choice((1, 5, 65536, ring.size)))
        ring.consume(len(piece))
        received += piece
        assert ring.waiting() == len(sent) - len(received)
        assert ring.waiting() + ring.space() == ring.size
    while piece := ring.peek(ring.size):
        received += piece
        ring.consume(len(piece))
    assert len(sent) > 3 * ring.size  # it went round
    assert sent == received


def test_full_ring_takes_nothing(shared):
    ring = shared.input
    assert ring.produce(b"x" * (ring.size + 10)) == ring.size
    assert ring.space() == 0
    assert ring.produce(b"y") == 0
    assert ring.peek(3) == b"xxx"
    assert ring.waiting() == ring.size  # peeking took nothing


def test_closed_consumer_drops_what_waits(shared):
    shared.output._fields.head = 10
    shared.output.close_consumer()
    assert shared.output.waiting() == 0
    assert shared.output.consumer_closed


def test_guest_that_lies_about_its_head_is_bounded(shared):
    shared.output._fields.head = (1 << 63) + 5
    assert shared.output.waiting() == shared.output.size
    assert len(shared.output.peek(1 << 40)) <= shared.output.size
    shared.output._fields.head = 0
    shared.output._fields.tail = 5
    assert 0 <= shared.output.waiting() <= shared.output.size


def test_phase_that_does_not_exist_is_failure(shared):
    assert shared.phase is Phase.FIRMWARE
    shared._header.phase = 77
    assert shared.phase is Phase.FAILED


def test_negative_status_and_error_text(shared):
    shared._header.status = -1
    shared._header.error = b"no disk\xff"
    assert shared.status == -1
    assert shared.error.startswith("no disk")
