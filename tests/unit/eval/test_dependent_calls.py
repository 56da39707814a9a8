# SPDX-License-Identifier: GPL-2.0-only
"""Experiments programs, on saved rows, and scan, on rows as its workload prints them: the names of
their metrics, what they are made of, what is left out where a mechanism could not be had."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from eval.programs import part_programs
from eval.scan import part_scan
from trapless.base.console import TraplessError
from trapless.experiments import experiment
from trapless.experiments.experiment import Raw

DATA = Path(__file__).parents[3] / "docs/results/6.1" / "programs"
FOLDER = Path(__file__).parents[3] / "eval" / "programs"
FILES = ("plain", "batch", "program", "io_uring")


@pytest.fixture(scope="module")
def raw():
    return experiment.load_raw(DATA)


def test_the_metrics_have_the_names_that_others_rely_on(raw):
    metrics = part_programs.analyse(raw).metrics
    for name, one in metrics.items():
        one.check(name)
    wanted = {f"file.{name}.n32.{unit}" for name in FILES for unit in ("crossings", "instructions")}
    wanted |= {"copy.program.k64.crossings", "accept.program.n16.crossings"}
    wanted |= {"accept.program.n16.calls", "burst.psc.w16.wakeups"}
    wanted |= {f"burst.psc.w{n}.instructions" for n in (1, 16)}
    assert wanted <= metrics.keys()
    assert all(metrics[name].kind == "counted" for name in wanted)


def test_instructions_are_of_one_file_and_crossings_of_all(raw):
    metrics = part_programs.analyse(raw).metrics
    rows = [
        row
        for row in raw.rows
        if (row.get("call"), row.get("mechanism"), row.get("n")) == ("file", "program", 32)
        and row["boot"] == "programs-counted"
    ]
    assert len(rows) == metrics["file.program.n32.instructions"].n
    assert metrics["file.program.n32.instructions"].value == pytest.approx(
        min(row["value"] for row in rows) / 32, abs=0.001
    )
    assert metrics["file.program.n32.crossings"].value == 1
    assert metrics["file.plain.n32.crossings"].value == 128
    assert metrics["accept.program.n16.calls"].value == 17


def test_counts_without_zeroing_are_metrics_of_their_own(raw):
    metrics = part_programs.analyse(raw).metrics
    for name in FILES:
        zeroed, unzeroed = (
            metrics[f"file.{name}.{end}.instructions"].value for end in ("n32", "n32_unzeroed")
        )
        assert 3000 < zeroed - unzeroed < 6000


def test_a_peer_that_could_not_be_had_leaves_the_rest(raw):
    rows = [row for row in raw.rows if row.get("mechanism") not in ("c-blake", "io_uring")]
    findings = part_programs.analyse(Raw(rows, raw.meta))
    assert [(claim.holds, claim.ours) for claim in findings.claims] == [(None, "not run")]
    files = next(one for one in part_programs.figures(Raw(rows, raw.meta)) if one.id == "loops")
    assert len(files.rows) == 2 * len(part_programs.LOOPS)


@pytest.mark.parametrize(("line", "word"), [("=y", "with"), (" is not set", "without")])
def test_the_report_says_whether_the_kernel_has_programs_of_bpf(raw, tmp_path, line, word):
    config = tmp_path / "include" / "config" / "auto.conf"
    config.parent.mkdir(parents=True)
    config.write_text(f"CONFIG_IO_URING=y\n{part_programs.BPF_LOOP}{line}\n")
    other = [row for row in raw.rows if "bpf_loop" not in row]
    rows = [*other, {"bpf_loop": part_programs.has_bpf_loop(tmp_path)}]
    tables = part_programs.figures(Raw(rows, raw.meta))
    captions = [one.caption for one in tables if f"configured {word} io_uring's" in one.caption]
    assert len(captions) == 1
    assert not any(
        "configured" in one.caption for one in part_programs.figures(Raw(other, raw.meta))
    )


def test_a_program_of_bpf_stands_beside_the_others_where_the_kernel_has_it(raw):
    def names(rows):
        tables = part_programs.figures(Raw(rows, raw.meta))
        return [row[0] for one in tables if one.id == "calls" for row in one.rows]

    calls = [row for row in raw.rows if (row.get("call"), row.get("n")) == ("getppid", 32)]
    name, mechanism = part_programs.NAMES["io_uring-bpf"], {"mechanism": "io_uring-bpf"}
    assert name not in names(raw.rows)
    assert names([*raw.rows, *({**row, **mechanism} for row in calls)]) == [*names(raw.rows), name]


def lines_of_code(text: str) -> int:
    """Lines that are neither empty nor of comments alone."""
    without = re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)
    return sum(bool(line.strip()) for line in without.splitlines())


def lines_of(*names: str) -> int:
    """Lines of code of functions in chains.c."""
    text = (FOLDER / "chains.c").read_text()
    functions = [
        re.search(rf"^[\w ]+{name}\([^;]*?\n\{{.*?^\}}", text, re.S | re.M) for name in names
    ]
    assert all(functions), names
    return sum(lines_of_code(one[0]) for one in functions if one)


def test_the_document_says_how_many_lines_each_mechanism_takes():
    loop = sum(lines_of_code((FOLDER / name).read_text()) for name in ("bpf_loop.c", "bpf_loop.h"))
    counted = {
        "plain calls": lines_of("file_plain"),
        "batches": lines_of("file_batch"),
        "a program": lines_of("file_program"),
        "c-blake/batch's loop": lines_of("copy_of", "file_c_blake"),
        "io_uring, links": lines_of("file_uring_linked"),
        "io_uring, a program of BPF that queues NOPs": loop + lines_of("getppid_uring_bpf"),
    }
    text = (FOLDER / "README.md").read_text()
    (table,) = re.findall("<!-- table: lines -->\n(.*?)\n\n", text, re.S)
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert {row[0]: int(row[-1]) for row in rows} == counted


ENTRIES = 2203
SCAN_COSTS = {
    ("tmpfs", "statx", 1000): 3135400,
    ("tmpfs", "scan", 1000): 1520000,
    ("tmpfs", "scan", 10): 24000,
    ("ext4", "scan", 1000): 2600000,
    ("tree", "fts", 6): 6150 * ENTRIES,
    ("tree", "fts", 2): 123,
    ("tree", "walk", 6): 3075 * ENTRIES,
    ("tree", "walk-plain", 6): 4920 * ENTRIES,
    ("tree", "walkdir", 6): 8200 * ENTRIES,
    ("tree", "rust-walk", 6): 3690 * ENTRIES,
    ("tree", "os-scandir", 6): 16400 * ENTRIES,
    ("tree", "libtrapless", 6): 9225 * ENTRIES,
    ("tmpfs", "read-dir", 1000): 3860000,
}
OTHER_LANGUAGES = ("walkdir", "rust-walk", "os-scandir", "libtrapless", "read-dir")


def scan_rows(label: str, without: tuple[str, ...] = ()):
    return [
        {
            "boot": f"scan-{label}",
            "part": "scan",
            "kind": "counted",
            "unit": "instructions",
            "call": call,
            "mechanism": way,
            "n": n,
            "ops": ENTRIES if call == "tree" else n,
            "value": value + 10 * repeat,
            "ticks": 0,
        }
        for (call, way, n), value in SCAN_COSTS.items()
        if way not in without
        for repeat in (1, 0)
    ]


def analysed(*rows_of_boots):
    raw = Raw([row for one in rows_of_boots for row in one], {})
    return raw, part_scan.analyse(raw).metrics


def test_metrics_are_of_one_entry_and_the_least_of_the_repeats():
    _, metrics = analysed(scan_rows(part_scan.BARE))
    for name, one in metrics.items():
        one.check(name)
        assert one.kind == "counted"
    assert metrics["tmpfs.scan.n1000.instructions"].value == 1520
    assert metrics["tmpfs.statx.n1000.instructions"].value == pytest.approx(3135.4)
    assert metrics["tmpfs.scan.n10.instructions"].value == 2400
    assert metrics["ext4.scan.n1000.instructions"].value == 2600


def test_walks_are_compared_with_fts_on_the_largest_tree():
    _, metrics = analysed(scan_rows(part_scan.BARE))
    assert metrics["tree.walk.module.ratio_to_fts"].value == pytest.approx(0.5, abs=0.001)
    assert metrics["tree.walk.plain.ratio_to_fts"].value == pytest.approx(0.8, abs=0.001)


def test_the_kernel_as_it_is_has_metrics_of_its_own():
    _, metrics = analysed(scan_rows(part_scan.BARE), scan_rows(part_scan.STOCK))
    assert "tmpfs.scan.n1000_stock.instructions" in metrics
    assert "tree.walk.module_stock.ratio_to_fts" in metrics


def test_other_languages_are_in_one_boot_alone():
    raw, metrics = analysed(
        scan_rows(part_scan.BARE), scan_rows(part_scan.STOCK, without=OTHER_LANGUAGES)
    )
    assert metrics["tree.walkdir.n6.instructions"].value == 8200
    rows = {row[0]: row for row in part_scan.figures(raw)[-1].rows}
    assert rows["Rust: walkdir, metadata"] == ("Rust: walkdir, metadata", "8,200", "133.3%", "", "")
    assert rows["Python: libtrapless, module"][1:3] == ("9,225", "150.0%")
    assert rows["Rust: trapless::Walk, module"][1:3] == ("3,690", "60.0%")
    assert rows["fts"][3] == "6,150"


PYTHON_WAYS = [sys.executable, str(Path(part_scan.__file__).with_name("python_ways.py"))]


@pytest.mark.parametrize(
    ("program", "call", "entries", "ways"),
    [
        (PYTHON_WAYS, "tree", 4, ("os-scandir", "libtrapless-plain")),
        (PYTHON_WAYS, "tmpfs", 2, ("os-scandir", "libtrapless-plain")),
        ([str(part_scan.RUST_WAYS)], "tree", 4, ("walkdir", "rust-walk-plain")),
    ],
)
def test_a_language_and_its_library_find_the_same(
    monkeypatch, tmp_path, program, call, entries, ways
):
    if not Path(program[0]).exists():
        pytest.skip("eval/scan/rust_ways is not built")
    (tmp_path / "folder/below").mkdir(parents=True)
    (tmp_path / "file").write_text("text")
    monkeypatch.setenv("PYTHONPATH", str(part_scan.BINDING))
    monkeypatch.delenv("TRAPLESS_BACKEND", raising=False)
    found = {}
    for backend in (None, "plain"):
        if backend:
            monkeypatch.setenv("TRAPLESS_BACKEND", backend)
        words = [*program, call, "2", str(tmp_path), "1"]
        row = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
        found[row["mechanism"]] = row["ops"], row["sum"]
    assert set(found) == set(ways)
    assert len(set(found.values())) == 1 and row["ops"] == entries


def test_a_program_that_finds_something_else_is_an_error():
    rows = [
        {"check": "tmpfs.n1000: all ways find the same", "entries": 1000, "sum": 7},
        {"mechanism": "os-scandir", "call": "tmpfs", "n": 1000, "sum": 7},
    ]
    part_scan.compare_sums(rows)
    rows[1]["sum"] = 8
    with pytest.raises(TraplessError, match=r"tmpfs\.n1000 by os-scandir: sum 8, not 7"):
        part_scan.compare_sums(rows)


def test_a_module_without_compound_calls_leaves_their_rows_out():
    raw, metrics = analysed(
        scan_rows(part_scan.BARE, ("scan", "walk")), scan_rows(part_scan.STOCK, ("scan", "walk"))
    )
    assert "tmpfs.scan.n1000.instructions" not in metrics
    assert "tree.walk.module.ratio_to_fts" not in metrics
    assert metrics["tree.walk.plain.ratio_to_fts"].value == pytest.approx(0.8, abs=0.001)
    assert len(part_scan.figures(raw)) == 4
