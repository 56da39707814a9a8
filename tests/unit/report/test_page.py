# SPDX-License-Identifier: GPL-2.0-only
"""The page begins with what a user gains, and a reader finds their way in it: by anchors, captions,
scopes and folds, on a phone and on paper. What a browser makes of it is for tests/browser."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from tests.unit.report.made_up import VOID, page_of, parsed
from trapless.base.console import Silent
from trapless.experiments import report_files
from trapless.report import html, saved_page, summary, text_report
from trapless.results import result_file
from trapless.results.result_file import Claim, Metric


@pytest.mark.slow
def test_the_first_screen_is_made_of_saved_results(chosen):
    read = report_files.read(chosen, Silent())
    gain = summary.gain(read)
    assert gain.rows == (
        ("getppid", "347", "151", "306", "310", "115", "instructions, counted"),
        ("walk of a tree", "52.8", "12.3", "–", "–", "–", "million instructions, counted"),
    )
    assert summary.headline(read) == (
        "A batch of 32 saves 196 instructions of each call: 56% of getppid. Supervisor mode saves "
        "195 instructions of each call: 63% of getppid."
    )
    drawn = {series.name: series.y[0] for series in summary.gain_figure(read).series}
    assert drawn == pytest.approx({"batch": 43.5, "io_uring": 88.2, "supervisor": 37.1}, abs=0.1)
    parser = parsed(html.html(read))
    headings = [text.strip() for text in parser.words if text.strip() in html.FIRST.values()]
    assert headings == [*html.FIRST.values()] * 2  # in the contents, and above each part
    for text in ("12.3", "20.2", "Linux 1.2.3-stock, as distributed, in an emulated VM"):
        assert any(text in words for words in parser.words), text
    assert ">20<" in html.html(read)  # in its part of the pile
    for shown in ("12.3", "20.2", "196 instructions", "1.2.3-stock"):
        assert shown in text_report.text(read)


def test_what_was_measured_shows_its_spread_and_what_was_counted_does_not(chosen):
    read = report_files.read(chosen, Silent())
    section = next(one for one in read.sections if one.name == summary.CALLS)
    for scale, cells, unit in (
        (1, ("400 (20)", "100 (0.50)"), "ns, measured"),
        (1e6, ("400 (20)", "100 (0.50)"), "million ns, measured"),
    ):
        added = {
            "walk.plain.total.ns": Metric(400 * scale, "ns", "measured", 5, 20.0 * scale),
            "walk.batch.total.ns": Metric(100 * scale, "ns", "measured", 5, 0.5 * scale),
            "walk.plain.crossings.count": Metric(9, "crossings", "counted", 5, 2.0),
            "walk.batch.crossings.count": Metric(3, "crossings", "counted", 5),
        }
        other = replace(section, result=replace(section.result, metrics=added))
        gain = summary.gain(replace(read, sections=(other,)))
        assert [(*row[1:3], row[-1]) for row in gain.rows] == [
            (*cells, unit),
            ("9", "3", "crossings, counted"),
        ]
        assert "how far the quartiles" in gain.caption


def test_cells_that_mean_less_than_they_say_are_marked(chosen):
    read = report_files.read(chosen, Silent())
    assert not set(summary.MARKS) & set(summary.gain(read).caption)
    section = next(one for one in read.sections if one.name == summary.CALLS)
    added = {
        f"{subject}.{mechanism}.n32.instructions": Metric(5000, "instructions", "counted", 3)
        for subject in ("read4k", "stat", "getpid")
        for mechanism in ("plain", "io_uring-nop" if subject == "getpid" else "io_uring")
    }
    other = replace(section, result=replace(section.result, metrics=added))
    gain = summary.gain(replace(read, sections=(other,)))
    assert [(row[0], row[3]) for row in gain.rows] == [
        ("getpid", "5,000*"),
        ("read of 4 KB, tmpfs†", "5,000"),
        ("stat of a file†", "5,000‡"),
    ]
    added["read4k.io_uring.n32.instructions"] = Metric(11000, "instructions", "counted", 3)
    handed = summary.calls(replace(read, sections=(other,)))
    assert handed[1].text("io_uring") == "11,000‡"  # as on kernels that hand it to a thread
    for mark, text in summary.MARKS.items():
        assert f" {mark} {text}" in gain.caption


def test_the_first_screen_leaves_out_what_was_not_evaluated(saved):
    page = page_of(saved)
    assert 'id="claims"' in page and 'id="gain"' not in page and 'id="seen"' not in page
    assert 'href="#gain"' not in page


class Structure(HTMLParser):
    """Collects what a reader finds their way by; `chain` is the elements that are open."""

    def __init__(self, page):
        super().__init__()
        self.chain, self.found = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs), tuple(self.chain)))
        if tag not in VOID:
            self.chain.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.chain.pop() == tag

    def attributes(self, tag):
        return [attributes for name, attributes, _ in self.found if name == tag]


def test_no_two_parts_of_the_page_have_the_same_id(twins):
    ids = [attributes["id"] for _, attributes, _ in Structure(twins).found if "id" in attributes]
    assert len(ids) == len(set(ids)) > 20
    for kind in (r'href="#([^"]+)"', r"url\(#([^)]+)\)"):
        wanted = set(re.findall(kind, twins))
        assert wanted and wanted <= set(ids)


def test_each_heading_has_an_anchor_and_each_but_the_first_is_in_the_contents(twins):
    page = Structure(twins)
    linked = {link["href"] for name, link, chain in page.found if name == "a" and "nav" in chain}
    for level, in_contents in (("h2", True), ("h3", False)):
        for heading in page.attributes(level):
            links = twins.count(f'href="#{heading["id"]}"')
            assert links >= 1 + in_contents, heading
    assert {f"#{heading['id']}" for heading in page.attributes("h2")} <= linked
    assert "#made-up-a-figure" in linked and "#made-up-a-figure-2" in linked


def test_tables_have_captions_and_their_heads_have_scopes(twins):
    page = Structure(twins)
    tables_ = page.attributes("table")
    assert len(page.attributes("caption")) == len(tables_) > 5
    assert len(page.attributes("th")) > 20
    assert all(head.get("scope") for head in page.attributes("th"))
    for name, _, chain in page.found:
        assert name != "table" or "div" in chain or "details" in chain or "main" in chain
    for region in page.attributes("div"):
        if region.get("class") == "wide":  # scrolls: a keyboard reaches it, and it has a name
            assert region["tabindex"] == "0" and region["aria-label"]
    assert all(one["aria-label"] for one in page.attributes("svg"))


def test_paper_shows_no_folded_part_and_no_contents(twins):
    style = re.search(r"@media print \{(.*?)\n\}", twins, re.S)[1]
    assert re.search(r"nav,[^{}]*details:not\(\[open\]\) \{ display: none; \}", style)
    assert "break-after: avoid" in style and "break-inside: avoid" in style


def test_a_claim_is_a_sentence_and_its_reason_is_folded(known):
    page = html.html(report_files.read(known, Silent()))
    row = page[page.index('id="wsc-sysenter"') :].partition("</tr>")[0]
    seen, _, folded = row.partition("<details>")
    assert "Published: N = 32. Here: N = 3." in seen and "door" not in seen and "door" in folded
    assert ".claims, .claims tbody, .claims tr, .claims :is(th, td) { display: block; }" in page


def test_each_form_of_the_report_says_what_bounds_a_claim_and_what_to_cite(known):
    read = report_files.read(known, Silent())
    (section,) = read.sections
    cited = "Linux 1.2.3-stock on 2 CPUs; 2001-02-03, by trapless an unknown version: "
    assert section.citation.startswith(f"{cited}`trapless evaluate made-up`. ")
    result_file.save(section.result, known / "made-up")
    saved_as = hashlib.sha256((known / "made-up" / "result.json").read_bytes()).hexdigest()
    assert section.citation.endswith(f" (SHA-256 {saved_as[:16]}...).")
    forms = [html.html(read), text_report.text(read), saved_page.document(read, known.parent)]
    for form in forms:
        words = " ".join(re.sub(r"<[^>]*>", " ", form).split())
        assert section.citation in words
        assert "It holds if N = 32." in words and "It holds if share of time saved ≥ 0.76." in words


def test_each_form_of_the_report_shows_how_each_paper_fares(known):
    read = report_files.read(known, Silent())
    rows = [
        ("Wrapped system calls", "wrapped-system-call: wsc-*", "1", "1", "0"),
        ("Parallel system calls", "parallel-system-call: psc-*", "0", "0", "1"),
    ]
    assert list(summary.papers_table(read).rows) == rows
    for form in (html.html(read), text_report.text(read)):
        words = " ".join(re.sub(r"<[^>]*>", " ", form).split())
        assert all(" ".join(row) in words for row in rows)
    page = saved_page.document(read, known.parent)
    paper = "[Wrapped system calls](../eval/README.md#the-four-papers)"
    assert f"| {paper} | wrapped-system-call: wsc-* | 1 | 1 | 0 |" in page
    result = replace(read.sections[0].result, claims=read.claims[:2])
    of_one = replace(read, sections=(replace(read.sections[0], result=result),))
    assert summary.papers_table(of_one) is None


@pytest.mark.parametrize(
    ("ours", "told"),
    [
        ("one; two", "one"),
        ("one (a; b); two", "one (a; b)"),
        ("only this", "only this"),
    ],
)
def test_a_sentence_is_the_first_part_of_a_finding(ours, told):
    claim = Claim("wsc-int", "wrapped-system-call", "2", ours, True)
    assert summary.sentence(claim) == f"Published: 2. Here: {told}."
