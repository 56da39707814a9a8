# SPDX-License-Identifier: GPL-2.0-only
"""What the model is told and what it says: processors, plans, the plugin's choice, rows."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path

import pytest

from trapless.base.console import TraplessError
from trapless.model import events, model_plan, plugin_choice, processors, rows
from trapless.model.model_plan import Plan, Variant

ROOT = Path(__file__).resolve().parents[3]
PENTIUM, LARGER = "pentium-4-1.8", "pentium-4-1.8a"


def test_both_processors_of_the_paper_are_there_as_it_says():
    one, other = processors.load(PENTIUM), processors.load(LARGER)
    assert (one.structures["l2"].size, other.structures["l2"].size) == (256 << 10, 512 << 10)
    assert one.structures["l2"].ways == other.structures["l2"].ways == 8
    for processor in (one, other):
        tlb = processor.structures["dtlb"]
        assert (tlb.size, tlb.ways, 4096 in tlb.pages_bytes) == (64, 64, True)


def test_every_geometry_can_be_and_says_where_it_is_from():
    assert len(processors.with_caches()) >= 4
    for processor in processors.with_caches().values():
        for structure in processor.structures.values():
            model_plan.check(structure)
            assert len(structure.source) > 10 or structure.source.startswith("as above")
            assert all(structure.assumed.values())
        assert {"l2", "memory", "dtlb"} <= set(processor.latencies)
        figures = [*processor.latencies.values(), *processor.costs.values()]
        assert all(len(one.source) > 10 for one in figures)


def test_a_server_s_processor_of_today_is_there():
    server = processors.load("epyc-9004")
    sizes = {role: one.size for role, one in server.structures.items()}
    assert (sizes["dtlb"], sizes["stlb"]) == (72, 3072)
    assert (sizes["l1d"], sizes["l2"], sizes["l3"]) == (32 << 10, 1 << 20, 32 << 20)
    assert server.latencies["l2"].low < server.latencies["l3"].low < server.latencies["memory"].low
    # What a trap costs beyond its instructions, at the model's clocks for each of them.
    (case,) = server.cases
    assert server.costs["fast"].low == case.trap.low - 250 * max(server.cpi)
    assert server.costs["fast"].high == case.trap.high - 250 * min(server.cpi)


def test_a_file_that_is_like_another_one_has_its_figures():
    one, other = processors.load(PENTIUM), processors.load(LARGER)
    assert (one.costs, one.latencies, one.note) == (other.costs, other.latencies, other.note)
    assert [role for role in one.structures if one.structures[role] != other.structures[role]] == [
        "l2"
    ]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"costs": {}}, "costs: fast, instruction missing"),
        ({"costs": {"int": {"clocks": [1, 2]}}}, "either source or assumed"),
        ({"costs": {"int": {"clocks": [0, 2], "source": "a text"}}}, "clocks of int: a range"),
        ({"latencies": {"l2": {"clocks": [2, 1], "source": "a text"}}}, "clocks of l2: a range"),
        ({"name": None, "like": "nothing"}, r"nothing\.json"),
    ],
)
def test_a_figure_without_a_range_or_a_source_is_refused(tmp_path, fields, reason):
    data = json.loads((processors.folder() / f"{PENTIUM}.json").read_text())
    path = tmp_path / "other.json"
    path.write_text(json.dumps({**data, **fields}))
    with pytest.raises(TraplessError, match=reason):
        processors.read(path)


def changed(tmp_path: Path, role: str, **fields: object) -> Path:
    data = json.loads((processors.folder() / f"{PENTIUM}.json").read_text())
    data["structures"][role] |= fields
    path = tmp_path / "other.json"
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(
    ("role", "fields", "reason"),
    [
        ("l2", {"policy": "fifo"}, "policy 'fifo'"),
        ("l2", {"from": ["l3"]}, "stands not before it"),
        ("l2", {"kind": "disk"}, "neither cache nor tlb"),
        ("l2", {"source": ""}, "no source"),
        ("l2", {"write": "around"}, "around"),
        ("dtlb", {"flush": "never"}, "flush or page_bytes"),
        ("dtlb", {"page_bytes": [8192]}, "flush or page_bytes"),
    ],
)
def test_a_file_that_is_no_processor_is_refused(tmp_path, role, fields, reason):
    with pytest.raises(TraplessError, match=reason):
        processors.read(changed(tmp_path, role, **fields))


@pytest.mark.parametrize(
    ("role", "fields", "reason"),
    [
        ("l2", {"bytes": 300_000}, "300000 bytes are not 8 ways of lines times a power of two"),
        ("l2", {"bytes": 0}, "0 bytes are not"),
        ("l2", {"ways": 0}, "0 ways"),
        ("l2", {"ways": 6, "bytes": 6 << 15}, "plru needs a power of two"),
        ("l2", {"line_bytes": 96}, "lines of 96 bytes"),
        ("dtlb", {"entries": 65}, "65 entries are not"),
    ],
)
def test_a_geometry_that_cannot_be_is_refused(tmp_path, role, fields, reason):
    structure = processors.read(changed(tmp_path, role, **fields)).structures[role]
    with pytest.raises(TraplessError, match=reason):
        model_plan.check(structure)


def test_unknown_processors_and_choices_are_refused():
    with pytest.raises(TraplessError, match="no processor 'i486'; there are: core"):
        Plan.of([Variant("i486")])
    with pytest.raises(TraplessError, match="no policy 'fifo' of a 'l2'"):
        Plan.of([Variant(PENTIUM, policy={"l2": "fifo"})])
    with pytest.raises(TraplessError, match="no prefetcher 'stream' of a 'l1d'"):
        Plan.of([Variant(PENTIUM, prefetch={"l1d": "stream"})])
    with pytest.raises(TraplessError, match="not negative"):
        Plan.of([Variant(PENTIUM, colour=-1)])
    with pytest.raises(TraplessError, match="use several runs"):
        Plan.of([Variant(PENTIUM, colour=colour) for colour in range(60)])


def test_what_variants_share_is_simulated_once():
    both = Plan.of([Variant(PENTIUM), Variant(LARGER), Variant(PENTIUM, colour=5)])
    assert both.names[PENTIUM, "l1d"] == both.names[LARGER, "l1d"]
    assert both.names[PENTIUM, "dtlb"] == both.names[f"{PENTIUM}+colour5", "dtlb"]
    assert len({both.names[one.id, "l2"] for one in both.variants}) == 3
    assert len(both.lines) == 6  # of twelve


def test_variants_do_what_their_names_say():
    variant = Variant(PENTIUM, policy={"dtlb": "random"}, prefetch={"l2": "stream"}, seed=2)
    text = "\n".join(Plan.of([variant]).lines)
    assert variant.id == f"{PENTIUM}+dtlb=random+l2=stream+seed2"
    assert "policy=random seed=512 from=read,write" in text
    assert "streams=8 ahead=2 policy=plru" in text
    assert "streams" not in "\n".join(Plan.of([Variant(PENTIUM)]).lines)


def test_a_processor_elsewhere_has_private_caches_and_shares_the_last():
    variants = [Variant("core-i7-9700k", split=True), Variant("core-i7-9700k", elsewhere=True)]
    both = Plan.of(variants)
    modes = {
        role: next((word for word in line.split() if word.startswith("modes=")), "modes=shared")
        for (variant, role), name in both.names.items()
        for line in both.lines
        if variant.endswith("+elsewhere") and line.split()[1] == name
    }
    assert {modes[role] for role in ("l1d", "l1i", "l2")} == {"modes=coherent"}
    assert modes["l3"] == "modes=shared"
    assert both.names["core-i7-9700k+split", "stlb"] == both.names[variants[1].id, "stlb"]
    with pytest.raises(TraplessError, match="neither split nor prefetched"):
        Plan.of([Variant(PENTIUM, split=True, elsewhere=True)])


def test_split_variants_and_footprints(tmp_path):
    variants = [Variant(PENTIUM), Variant(PENTIUM, split=True)]
    both = Plan.of(variants, footprint_of=1)
    assert variants[1].id == f"{PENTIUM}+split"
    apart = {line.split()[1] for line in both.lines if "modes=apart" in line}
    assert apart == {name for (variant, _), name in both.names.items() if variant.endswith("split")}
    l2 = next(line for line in both.lines if line.startswith(f"cache l2@{PENTIUM}+split "))
    assert f"from=l1d@{PENTIUM}+split," in l2
    assert "footprint run-64 unit=64 from=data,fetch label=1" in both.lines
    assert "footprint visit-4096 unit=4096 from=data,fetch empty=crossing" in both.lines
    assert not any(line.startswith("footprint") for line in Plan.of(variants).lines)
    with pytest.raises(TraplessError, match="footprints of 16: a label's four bits"):
        Plan.of(variants, footprint_of=16)

    names = [both.names[variant.id, "l2"] for variant in variants]
    columns = [f"kernel.{name}.{kind}_misses" for name in names for kind in rows.KINDS]
    columns += [f"user.{name}.{kind}_references" for name in names for kind in rows.KINDS]
    for footprint in ("run-64", "visit-4096"):
        columns += [f"kernel.{footprint}.{kind}_misses" for kind in rows.KINDS]
    columns += ["crossings.to_kernel", "crossings.to_user"]
    counts = [*range(1, 7), *range(6), 5, 3, 2, 9, 6, 0, 4, 0]
    line = {"region": 1, "number": 0, "counts": counts}
    columns += [f"user.visit-4096.{kind}_misses" for kind in rows.KINDS]
    line["counts"] += [0, 0, 0]
    row = rows.read(written(tmp_path, HEADER | {"columns": columns}, line)).rows[0]
    assert both.misses(row, "kernel", variants[0].id, "l2") == 6
    assert both.misses(row, "kernel", variants[1].id, "l2") == 15
    assert both.references(row, "user", variants[1].id, "l2") == 12
    assert both.footprint_bytes(row, "kernel", 64) == 640
    assert both.visit_bytes(row, "kernel", 4096) == 15 * 4096 / 4
    assert math.isnan(both.visit_bytes(row, "user", 4096))


def fake_qemu(tmp_path: Path, version: str, options: str = "-plugin FILE") -> str:
    path = tmp_path / "qemu"
    path.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && echo "QEMU emulator version {version}" || echo "{options}"\n'
    )
    path.chmod(0o755)
    plugin_choice.api.cache_clear()
    return str(path)


def test_each_qemu_gets_the_plugin_of_its_interface(tmp_path):
    assert plugin_choice.api(fake_qemu(tmp_path, "7.2.22 (Debian)")) == 1
    assert plugin_choice.api(fake_qemu(tmp_path, "10.0.2")) == 4


@pytest.mark.parametrize("version", ["5.2.0", "9.0.1", "9.1.0"])
def test_a_qemu_of_another_interface_is_refused(tmp_path, version):
    with pytest.raises(TraplessError, match="whose plugin interface the model does not know"):
        plugin_choice.api(fake_qemu(tmp_path, version))


def test_a_qemu_without_plugins_is_refused(tmp_path):
    with pytest.raises(TraplessError, match="built without plugins"):
        plugin_choice.api(fake_qemu(tmp_path, "7.2.0", "-machine TYPE"))
    with pytest.raises(TraplessError, match="No such file"):
        plugin_choice.api(str(tmp_path / "none"))


def test_a_comma_in_a_path_is_refused(tmp_path):
    with pytest.raises(TraplessError, match="comma"):
        plugin_choice.argument(tmp_path / "a,b", tmp_path / "rows")


HEADER = {"format": "trapless-model", "version": 1, "columns": ["user.reads", "crossings.int"]}


def written(tmp_path: Path, *lines: object, tail: str = "") -> Path:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + tail)
    return path


def test_rows_describe_themselves(tmp_path):
    row = {"region": 1 << 63, "number": 0, "counts": [3, 4]}
    end = {"end": {"rows": 1}}
    recording = rows.read(written(tmp_path, HEADER, row, {"event": "x", "region": 1}, end))
    assert recording.complete
    assert recording.events == ("x",)
    assert recording.rows[0]["user.reads"] == 3
    assert recording.rows[0].crossings() == {"int": 4}
    assert recording.rows[0].label == 1 << 63


def test_a_guest_that_died_leaves_its_finished_rows(tmp_path):
    row = {"region": 1, "number": 0, "counts": [3, 4]}
    path = written(tmp_path, HEADER, row, tail='{"region": 2, "number": 1, "cou')
    recording = rows.read(path)
    assert len(recording.rows) == 1
    assert not recording.complete


def test_both_backends_have_the_same_columns(tmp_path):
    model = Plan.of([Variant(PENTIUM), Variant("core-i7-9700k")])
    structures = set(model.names.values())
    kinds = [f"{kind}_misses" for kind in rows.KINDS]
    columns = [f"{mode}.instructions" for mode in events.MODES]
    columns += [f"{m}.{s}.{kind}" for m in events.MODES for s in structures for kind in kinds]
    counts = list(range(len(columns)))
    row = {"region": 1, "number": 0, "counts": counts}
    read = rows.read(written(tmp_path, HEADER | {"columns": columns}, row)).rows[0]
    of = {one.id: events.of_model(read, model, one.id) for one in model.variants}
    both = [f"{mode}.{event}" for event in events.EVENTS for mode in events.MODES]
    assert sorted(of[PENTIUM]) == sorted(of["core-i7-9700k"]) == sorted(both)
    assert of[PENTIUM]["user.l2_misses"] == of[PENTIUM]["user.llc_misses"]
    core = {role: model.names["core-i7-9700k", role] for role in ("stlb", "l3")}
    assert of["core-i7-9700k"]["kernel.dtlb_misses"] == read.of("kernel", core["stlb"], kinds[0])
    assert of["core-i7-9700k"]["kernel.llc_misses"] == read.misses("kernel", core["l3"])

    counted = {"format": "trapless-counters", "version": 1, "columns": [*both, "user.clocks"]}
    row = {"region": 1, "number": 0, "counted": 1.0, "counts": list(range(len(both) + 1))}
    recording = rows.read(written(tmp_path, counted, row))
    found = events.of_counters(recording, recording.rows[0])
    assert set(both) < set(found)
    other = rows.read(written(tmp_path, HEADER, {"region": 1, "number": 0, "counts": [3, 4]}))
    with pytest.raises(TraplessError, match=r"not events of counters: crossings\.int"):
        events.of_counters(other, other.rows[0])


def test_a_command_is_counted_or_the_model_is_named(tmp_path):
    """On a machine without counters nothing is run at all."""
    program = ROOT / "build" / "sanitized" / "stat" / "trapless-count"
    output, trace = tmp_path / "rows", tmp_path / "it-ran"
    run = subprocess.run(
        [str(program), str(output), "sh", "-c", f"touch {trace}; exit 3"],
        capture_output=True,
        text=True,
        check=False,
    )
    if run.returncode == 3:
        recording = rows.read(output)
        assert events.of_counters(recording, recording.rows[0])["user.instructions"] > 1000
    else:
        assert run.returncode == 125
        assert "the model inside the emulator gives the same events" in run.stderr
        assert not trace.exists()


def test_what_the_kernel_counts_needs_no_counters(tmp_path):
    program = ROOT / "build" / "sanitized" / "stat" / "trapless-count"
    output = tmp_path / "rows"
    command = [str(program), "--software", str(output), "sh", "-c", "(exit 0); exit 3"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode == 125 and "not allowed here" in run.stderr:
        pytest.skip(run.stderr.strip())
    assert run.returncode == 3, run.stderr
    recording = rows.read(output)
    found = events.of_counters(recording, recording.rows[0])
    assert found["user.page_faults"] > 20  # of two processes
    assert {"kernel.context_switches", "kernel.page_faults"} < set(found)
    assert not any("instructions" in column for column in found)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(TraplessError, match="not rows of the model"):
        rows.read(written(tmp_path, {"format": "x"}))
    with pytest.raises(TraplessError, match="not rows of the model"):
        rows.read(written(tmp_path, tail="{"))
    with pytest.raises(TraplessError, match="version 2"):
        rows.read(written(tmp_path, HEADER | {"version": 2}))
    with pytest.raises(TraplessError, match="has not 2 counts"):
        rows.read(written(tmp_path, HEADER, {"region": 1, "number": 0, "counts": [3]}))
    with pytest.raises(TraplessError, match="No such file"):
        rows.add_up(tmp_path / "none")
