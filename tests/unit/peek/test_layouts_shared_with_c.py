# SPDX-License-Identifier: GPL-2.0-only
"""What crosses from C to Python in memory and in streams: kmod/probe/layout.h and sampler/row.h say
the same as trapless.peek, member by member and number by number.
"""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from tests import headers
from tests.unit.peek.toy_kernel import MAP_MEMBERS
from trapless.peek import limits
from trapless.peek.sampling import probes, sample_rows, sites, tier0, tier1
from trapless.peek.sampling.sampling_plan import Group, Rule
from trapless.peek.trace import rings

PROBES, ROWS = "kmod/probe/layout.h", "sampler/row.h"
RECORD = "tlk_probe_record"


def of_struct(form, *names):
    """Offset and size of each member, and of all: of bytes that count up, values say where."""
    values = form.unpack(bytes(range(form.size)))
    parts = [v if isinstance(v, bytes) else v.to_bytes(8, "little").rstrip(b"\0") for v in values]
    members = {name: (part[0], len(part)) for name, part in zip(names, parts, strict=True)}
    return members, form.size


def of_rows(kind):
    """The same of an array's rows."""
    members = {name: (at, column.itemsize) for name, (column, at) in kind.fields.items()}
    return members, kind.itemsize


def numbered(names, values):
    return dict(zip(names.split(), values, strict=True))


STRUCTURES = {
    "tlk_probe_map": of_struct(probes.MAP, *MAP_MEMBERS),
    "tlk_probe_site": of_rows(sites.SITE),
    "tlk_probe_event": of_rows(rings.EVENT),
    "tlk_probe_ring": (of_struct(rings.HEAD, "head", "dropped")[0], rings.HEAD_BYTES),
    "stream_head": of_struct(sample_rows.HEAD, "magic", "head_bytes", "row_bytes"),
    "block_head": of_struct(sample_rows.BLOCK, "magic", "rows"),
    "stream_end": of_struct(
        sample_rows.END, "magic", *(field.name for field in fields(sample_rows.End))
    ),
    "row": of_rows(np.dtype([*sample_rows.FIXED])),
}


def in_c():
    return headers.read(PROBES).structures | headers.read(ROWS).structures


def test_no_structure_is_declared_on_one_side_alone():
    assert in_c().keys() == {*STRUCTURES, RECORD}


@pytest.mark.parametrize("name", [*STRUCTURES, RECORD])
def test_each_structure_is_the_same_in_c_and_in_python(name):
    members, size = in_c()[name]
    used = {one: at for one, at in members.items() if not one.startswith("reserved")}
    if name == RECORD:
        assert [*used] == ["state", "entry"]  # which plans read, see below
    else:
        assert (used, size) == STRUCTURES[name]


def test_plans_read_the_members_of_the_map_and_of_a_record():
    target = SimpleNamespace(physical=lambda address: address, percpu_bases=(0,))
    stock = [Group(name, Rule.ONCE, ()) for name in ("cpu0", tier0.SYSTEM)]
    cpu, system = (
        {field.name: (field.address, field.bytes) for field in group.fields}
        for group in tier1.groups(target, probes.ProbeMap(*[0] * len(MAP_MEMBERS)), stock)
    )
    (record, _), (map_, _) = in_c()[RECORD], in_c()["tlk_probe_map"]
    assert cpu == {name: record[name] for name in ("state", "entry")}
    assert sum(record["entry"]) == probes.RECORD_BYTES_MIN
    assert system == {"probe_magic": map_["magic"], "probes": map_["active"]}


def test_each_number_of_probes_is_the_same_in_c_and_in_python():
    assert headers.read(PROBES).constants == {
        **numbered(
            "TLK_PROBE_MODES TLK_PROBE_INTERRUPTS TLK_PROBE_COUNTS TLK_PROBE_EVENTS", probes.Mode
        ),
        "TLK_PROBE_ALL": sum(probes.Mode),
        **numbered(
            "TLK_SITE_DISABLE TLK_SITE_ENABLE TLK_SITE_ENTER_USER TLK_SITE_LEAVE_USER", sites.Kind
        ),
        "TLK_STATE_KERNEL": tier1.STATE_ENABLED,
        "TLK_STATE_USER": tier1.STATE_USER,
        "TLK_STATE_ENTERED": tier1.STATE_ENTERED,
        **numbered("TLK_ENTRY_CALL TLK_ENTRY_EXCEPTION TLK_ENTRY_SIGNAL", [*tier1.Entry][1:]),
        "TLK_EVENT_VALUES": rings.VALUES,
        "TLK_EVENT_PLACE_BYTES": rings.PLACE_BYTES,
    }


def test_the_map_begins_with_the_magic_that_python_looks_for():
    letters = ", ".join(f"'{letter}'" for letter in probes.MAGIC.decode())
    assert f".magic = {{ {letters} }}" in (headers.ROOT / "kmod/probe/probe.c").read_text()


def test_each_number_of_rows_is_the_same_in_c_and_in_python():
    assert headers.read(ROWS).constants == {
        **{
            name: getattr(sample_rows, name)
            for name in ("STREAM_MAGIC", "BLOCK_MAGIC", "END_MAGIC")
        },
        **{f"ROW_{flag.name}": flag for flag in sample_rows.Flag},
        **{f"ENDING_{ending.name}": ending for ending in sample_rows.Ending},
        "ENDINGS": len(sample_rows.Ending),
    }


def test_python_takes_as_much_as_c_may_give():
    module = headers.read("kmod/limits.h").constants
    sampler = headers.read("sampler/limits.h").constants
    assert module["TLK_EVENT_PLACES_MAX"] == limits.PLACES_MAX
    assert module["TLK_EVENT_KB_MAX"] << 10 == limits.RING_BYTES_MAX
    assert sampler["GROUPS_MAX"] == sampler["THREADS_MAX"] == limits.GROUPS_MAX
    assert sampler["PLAN_BYTES_MAX"] < sample_rows.HEAD_BYTES_MAX
    assert sampler["BLOCK_BYTES"] <= sample_rows.BLOCK_BYTES_MAX
