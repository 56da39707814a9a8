# SPDX-License-Identifier: GPL-2.0-only
"""The report is made from saved files alone, shows every number, and fetches nothing.

Missing, damaged and foreign files are each refused by a message that names the file. The
experiments themselves are stood in for; what they find is tested where they live.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.unit.report.made_up import a_map, a_result, page_of, parsed
from trapless import cli
from trapless.base.console import Silent, TraplessError
from trapless.experiments import experiment, report_files
from trapless.report import citations, html, plot, readme, tables, text_report
from trapless.report.figures import Figure, Series, Table, bars
from trapless.results import result_file
from trapless.results.result_file import Metric, Result


@pytest.mark.slow
def test_the_page_is_whole_and_shows_every_number(saved):
    page = page_of(saved)
    words = " ".join(parsed(page).words)
    for metric in a_result().metrics.values():
        assert tables.number(metric.value) in words
    for text in ("N = 3", "door", "does not hold", "64 of 64", "trapless evaluate made-up"):
        assert text in words


@pytest.mark.slow
def test_the_page_fetches_nothing_and_runs_nothing(saved):
    page = page_of(saved)
    assert "<script" not in page and "<link" not in page and "@import" not in page
    for name, value in parsed(page).attributes:
        if name in {"href", "xlink:href", "src"}:
            assert value.startswith("#")
    assert not re.findall(r"url\((?!#)", page)


def test_text_from_files_is_escaped(saved):
    page = page_of(saved)
    assert "<b>door</b>" not in page and "&lt;b&gt;door&lt;/b&gt; &amp; co" in page


def test_the_same_files_make_the_same_report(saved):
    first = [page_of(saved).encode(), (saved / "report.txt").read_bytes()]
    again = [page_of(saved).encode(), (saved / "report.txt").read_bytes()]
    assert first == again


def test_the_text_is_plain_and_narrow(saved):
    report_files.write(saved, Silent())
    text = (saved / "report.txt").read_text()
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= text_report.FILE_COLUMNS
    for word in ("516", "151", "0.52", "counted", "measured", "does not hold", "1 left open"):
        assert word in text


def test_results_come_from_the_raw_data_where_that_is_there(known):
    page = page_of(known)
    assert result_file.load(known / "made-up").metrics["getppid.plain.n1.instructions"].value == 400
    words = " ".join(parsed(page).words)
    for text in ("400", "What is asked?", "A limit.", "A figure", "crossings", "17"):
        assert text in words


def test_without_raw_data_the_saved_numbers_stand_and_it_is_said(known):
    (known / "made-up" / "raw.jsonl").unlink()
    page = page_of(known)
    assert "raw data is not here" in page
    assert result_file.load(known / "made-up").metrics["getppid.plain.n1.instructions"].value == 378


def test_an_experiment_that_was_cut_short_is_named(saved):
    (saved / "cut-short").mkdir()
    (saved / "cut-short" / "meta.json").write_text("{}")
    page = page_of(saved)
    assert "<b>cut-short</b> was not finished." in page
    text = (saved / "report.txt").read_text()
    assert "cut-short was not finished.\n  to go on with it: trapless evaluate cut-short" in text


def test_an_interrupted_experiment_says_where_and_names_the_log(saved):
    boots = saved / "cut-short" / "boots"
    boots.mkdir(parents=True)
    for name in ("calls-1.jsonl", "calls-2.jsonl", "calls-3.part"):
        (boots / name).touch()
    (boots.parent / "meta.json").write_text("{}")
    (boots.parent / "calls-3.log").write_text("BUG: soft lockup")
    told = (
        "was not finished: it was interrupted during boot calls-3, after 2 boots that are saved, "
        f"after a failure, of which {boots.parent / 'calls-3.log'} is the log."
    )
    assert told in page_of(saved)


def test_an_experiment_that_failed_says_why_whatever_it_left(saved):
    experiment.note_failure(saved / "failing", "no <reply>\nfor minutes", "trapless evaluate it")
    (saved / "failing" / "raw.jsonl").write_text("{ not analysed")
    page = page_of(saved)
    assert "failing</b> failed: no &lt;reply&gt;\nfor minutes" in page
    assert "To go on with it: <code>trapless evaluate it</code>" in page
    text = (saved / "report.txt").read_text()
    told = "failing failed: no <reply>\nfor minutes\n  to go on with it: trapless evaluate it"
    assert told in text
    run = CliRunner().invoke(cli.cli, ["report", str(saved)])
    assert told in run.output and run.exit_code == 0


def test_a_report_of_a_failure_alone_is_one(tmp_path):
    experiment.note_failure(tmp_path / "failing", "no reply", "trapless evaluate failing")
    assert "failing</b> failed: no reply" in page_of(tmp_path)


@pytest.mark.parametrize("words", ["[]", "[" * 100_000], ids=["list", "nested"])
def test_a_damaged_word_of_a_failure_is_still_a_failure(saved, words):
    (saved / "failing").mkdir()
    (saved / "failing" / "failure.json").write_text(words)
    assert "failing</b> failed: " in page_of(saved)


def test_other_folders_are_left_alone(saved):
    (saved / "holiday").mkdir()
    assert "holiday" not in page_of(saved)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such folder"),
        (lambda path: path.write_text(""), "not a folder"),
        (lambda path: path.mkdir(), "holds no results"),
        (lambda path: (path / "x").mkdir(parents=True), "holds no results"),
    ],
)
def test_a_folder_without_results_is_refused(make, message, tmp_path):
    path = tmp_path / "results"
    make(path)
    with pytest.raises(TraplessError, match=message):
        report_files.write(path, Silent())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("result.json", '{"experiment": ', "not JSON"),
        ("result.json", a_result("other").to_json(), "is the result of 'other'"),
        ("meta.json", "[1]", "not an object"),
        ("meta.json", "{", "damaged"),
        ("result.json", "[" * 100_000, "nested too deeply"),
        ("meta.json", "[" * 100_000, "damaged"),
    ],
)
def test_a_damaged_file_is_refused_by_name(saved, name, content, message):
    path = saved / "made-up" / name
    path.write_text(content)
    with pytest.raises(TraplessError) as raised:
        report_files.write(saved, Silent())
    assert str(path) in str(raised.value) and message in str(raised.value)
    assert not (saved / "report.html").exists()


@pytest.mark.parametrize("value", [5, None, "text", [1], {"a": [{}]}])
def test_a_record_of_another_form_is_shown_as_far_as_it_goes(saved, value):
    fields = ("checks", "command", "qemu", "provenance", "date")
    (saved / "made-up" / "meta.json").write_text(json.dumps(dict.fromkeys(fields, value)))
    made = report_files.read(saved, Silent())
    assert "No self-check is recorded." in text_report.text(made)
    assert "No self-check is recorded." in html.html(made)


def test_the_command_prints_what_the_report_begins_with(saved):
    run = CliRunner().invoke(cli.cli, ["report", str(saved)])
    assert run.exit_code == 0
    screen = "\n".join(map(str.rstrip, run.stdout.partition("\n\nThe report: ")[0].splitlines()))
    assert (saved / "report.txt").read_text().startswith(screen)
    assert "3 published claims are tested here: " in run.output and "516" not in run.output
    assert "does not hold  wsc-sysenter  Published: N = 32. Here: N = 3." in run.output
    assert "door" not in run.output  # reasons are in the file


def test_the_readme_part_lies_between_its_markers(chosen):
    page = chosen / "README.md"
    page.write_text(f"before\n{readme.BEGIN}\nstale text\n{readme.END}\nafter\n")
    read = report_files.read(chosen, Silent())
    readme.rewrite(page, read)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "stale text" not in text
    assert "\n- A batch of 32 saves 196 instructions of each call" in text
    assert (chosen / readme.PICTURE_NAME).read_text().startswith("<svg")
    readme.rewrite(page, read)
    assert page.read_text() == text


def test_a_readme_is_not_made_of_results_that_lack_its_experiment(saved):
    page = saved / "README.md"
    page.write_text(f"{readme.BEGIN}\n{readme.END}\n")
    with pytest.raises(TraplessError, match="holds no instructions of calls"):
        readme.rewrite(page, report_files.read(saved, Silent()))
    assert page.read_text() == f"{readme.BEGIN}\n{readme.END}\n"


def citing(*sources):
    """The end of a document that cites these figures."""
    lines = "".join(f"{number} = {source}\n" for number, source in enumerate(sources, 1))
    return f"\n<!-- cited figures, by trapless/report/citations.py\n{lines}-->\n"


def test_figures_that_a_document_cites_come_from_the_results(saved, tmp_path):
    read = report_files.read(saved, Silent())
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    page.write_text(
        "It takes (9<!--1-->), between <!--2--> and ?<!--3-->; 1,2<!--1--> it is.\n"
        + citing(
            "made-up getppid.batch.n32.instructions whole",
            "made-up lowest getppid.*.n32.instructions whole",
            "made-up highest getppid.*.n32.instructions tens",
        )
    )
    citations.rewrite(tmp_path, [read])
    text = page.read_text()
    shown = re.sub("<.*?>", "", text, flags=re.S).rstrip()
    assert shown == "It takes (151), between 151 and 350; 151 it is."
    citations.rewrite(tmp_path, [read])
    assert page.read_text() == text


def test_a_figure_of_other_results_is_cited_by_their_folder(saved):
    read = report_files.read(saved, Silent())
    metric = {"a.b.c.instructions": Metric(7.0, "instructions", "counted")}
    section = read.sections[0]
    section = replace(section, result=replace(section.result, metrics=metric))
    other = replace(read, directory=Path("of/other"), sections=(section,))
    both = [read, other]
    assert citations.cited("other/made-up a.b.c.instructions whole", both) == "7"
    assert citations.cited("made-up getppid.batch.n32.instructions whole", both) == "151"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("absent getppid.batch.n32.instructions whole", "there is no result of absent"),
        ("made-up getppid.batch.n31.instructions whole", "0 metrics are called so"),
        ("made-up getppid.*.n32.instructions whole", r"\d metrics are called so"),
        ("made-up getppid.batch.n32.instructions roman", "no form is called roman"),
        ("made-up getppid.batch.n32.instructions", "that names no metric and form"),
        ("made-up table t: row: column", "no table is called t"),
        ("elsewhere/made-up getppid.batch.n32.instructions whole", "no results in a folder elsew"),
    ],
)
def test_a_figure_that_no_result_has_is_named_and_nothing_is_written(saved, tmp_path, said, why):
    pages = [tmp_path / "docs" / name for name in ("a.md", "b.md")]
    pages[0].parent.mkdir()
    pages[0].write_text("9<!--1-->" + citing("made-up getppid.batch.n32.instructions whole"))
    pages[1].write_text("9<!--1-->" + citing(said))
    with pytest.raises(TraplessError, match=rf"b.md: cites '{re.escape(said)}', but {why}"):
        citations.rewrite(tmp_path, [report_files.read(saved, Silent())])
    assert pages[0].read_text().startswith("9<")


GETPPID = "made-up getppid.batch.n32.instructions whole"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("9<!--2-->" + citing(GETPPID), "1, 2: a cited figure needs a source, and a source one"),
        ("9<!--1-->", "1: a cited figure needs a source"),
        ("9<!--1-->" + citing(GETPPID) * 2, "its sources are not written as cit"),
        ("9<!--1-->" + citing(GETPPID).replace("=", ":"), "its sources are not written as cit"),
        ("9<!--1-->" + citing(GETPPID).replace("-->", "1 = a b c\n-->"), "its sources are not"),
        ("<!--= made-up table t -->\n9\n", "a cited table is not written as cit"),
        ("so <!--= made-up table t -->9<!--/-->", "a cited table is not written as cit"),
    ],
)
def test_a_citation_that_is_not_whole_is_refused(saved, text, why):
    with pytest.raises(TraplessError, match=f"page.md: {why}"):
        citations.filled(Path("page.md"), text, [report_files.read(saved, Silent())])


def test_cells_of_a_reports_tables_can_be_cited(saved):
    read = report_files.read(saved, Silent())
    table = Table("t", "A table", ("call", "by trap"), (("getpid", "8 or so"),))
    read = replace(read, sections=(replace(read.sections[0], drawn_tables=(table,)),))
    assert citations.cited(f"{read.sections[0].name} table t: getpid: by trap", [read]) == "8 or so"
    with pytest.raises(LookupError, match="table t has 0 such rows"):
        citations.cited(f"{read.sections[0].name} table t: getppid: by trap", [read])
    with pytest.raises(TraplessError, match="is '8 or so', and no number"):
        page = "8<!--1-->" + citing(f"{read.sections[0].name} table t: getpid: by trap")
        citations.filled(Path("page.md"), page, [read])


def test_a_readme_without_markers_is_left_alone(saved):
    page = saved / "README.md"
    page.write_text("mine\n")
    with pytest.raises(TraplessError, match="no place for results"):
        readme.rewrite(page, report_files.read(saved, Silent()))
    assert page.read_text() == "mine\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (3, "3"), (1234.4, "1,234"), (131.37, "131"), (13.37, "13.4"), (0.524, "0.52"),
     (0.0123, "0.0123"), (-2.5, "-2.50"), (1e6, "1,000,000")],
)  # fmt: skip
def test_numbers_have_the_digits_they_deserve(value, text):
    assert tables.number(value) == text


def test_a_series_with_unequal_lengths_is_refused():
    with pytest.raises(ValueError, match="2 x but 1 y"):
        Series("batch", (1, 2), (1,))
    with pytest.raises(ValueError, match="1 columns but a row has 2"):
        Table("t", "T", ("a",), (("1", "2"),))


def test_the_axis_of_a_full_run_shows_numbers_not_powers():
    from trapless.report import plot

    counts = (1.0, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
    figure = Figure("f", "Many", "N", "y", (Series("batch", counts, counts),), log_x=True)
    drawn = plot.inline(figure)
    assert ">128</text>" in drawn and "mathdefault" not in drawn


def test_words_of_a_table_stay_whole():
    from rich.console import Console

    columns = ("program that ran", *("instructions", "measured)", "residual") * 2)
    rows = (("read1_disk with a long explanation", *("12.6 M", "3", "0.13%") * 2),) * 2
    stream = io.StringIO()
    console = Console(file=stream, width=text_report.FILE_COLUMNS)
    console.print(text_report.grid_of(Table("t", "A table", columns, rows), console.width))
    for word in (*columns[1:4], "read1_disk", "explanation"):
        assert word in stream.getvalue()


def test_a_narrow_terminal_loses_no_number(saved):
    from rich.console import Console

    stream = io.StringIO()
    text_report._print(Console(file=stream, width=60), report_files.read(saved, Silent()))
    assert "516" in stream.getvalue() and "977" in stream.getvalue()


def test_a_table_with_many_columns_goes_on_below():
    counts = range(1, 129, 4)
    metrics = {
        f"getppid.{mechanism}.n{n}.instructions": Metric(base + n, "instructions", "counted", 3)
        for mechanism, base in {"plain": 10_000, "io_uring-nop-sqpoll": 20_000}.items()
        for n in counts
    }
    made = tables.pivots(Result("made-up", "1.2.3", "tcg", "2 CPUs", metrics, ()))[0]
    grids = text_report._pivot(made, 80)
    from rich.console import Console

    stream = io.StringIO()
    Console(file=stream, width=80).print(*grids)
    text = stream.getvalue()
    assert "…" not in text and max(map(len, text.splitlines())) <= 80
    assert text.count("io_uring-nop-sqpoll") == len(grids) > 1
    for n in counts:
        assert f"{10_000 + n:,}" in text and f"{20_000 + n:,}" in text


def test_what_was_left_out_is_not_counted_as_passed(saved):
    path = saved / "made-up" / "meta.json"
    meta = json.loads(path.read_text())
    meta["checks"].append({"name": "uring left out", "ok": True, "left_out": True, "detail": "-"})
    path.write_text(json.dumps(meta))
    assert "All 1 self-checks passed; 1 left out." in text_report.text(
        report_files.read(saved, Silent())
    )


def test_bars_stand_over_their_names_and_tell_their_values():
    groups = {"getpid": {"trap": 306.0, "supervisor": 111.0}, "read": {"trap": 5444.0}}
    figure = Figure(
        id="bars", title="Bars", x_label="", y_label="instructions",
        series=bars(groups, {"trap": "trap", "supervisor": "supervisor", "absent": "absent"}),
        names=tuple(groups),
    )  # fmt: skip
    assert [series.name for series in figure.series] == ["trap", "supervisor"]
    drawn = plot.standalone(figure)
    assert plot.shows(drawn, figure)
    for text in ("getpid", "read", "306", "111", "5,444"):
        assert text in drawn.split("</desc>")[1], text
    with pytest.raises(ValueError, match="without a name"):
        Figure(
            id="x", title="", x_label="", y_label="", series=(Series("a", (2,), (1,)),),
            names=("one", "two"),
        )  # fmt: skip


@pytest.mark.slow
def test_a_map_is_a_file_of_its_own_and_part_of_the_page(known, monkeypatch):
    monkeypatch.setattr(experiment, "figures", lambda name, folder: (a_map(),))
    report_files.write(known, Silent())
    drawing = (known / "made-up" / "ratios.svg").read_text()
    assert plot.shows(drawing, a_map()) and not plot.shows(drawing, a_map(title="Others"))
    assert "0.250 1.000 3.500; 4: - 0.500 0.750" in drawing
    assert drawing == plot.standalone(a_map())
    assert ">here<" in drawing and ">ours / theirs<" in drawing
    page = (known / "report.html").read_text()
    assert "data:image/png;base64" in page and "too few to compare" in page
    assert "too few" not in plot.inline(a_map(cells=((1.0, 1.0, 1.0), (1.0, 1.0, 1.0))))


def test_a_map_with_a_cell_too_few_is_refused():
    with pytest.raises(ValueError, match="not 2 rows of 3 cells"):
        a_map(cells=((1.0, 1.0, 1.0), (1.0, 1.0)))
