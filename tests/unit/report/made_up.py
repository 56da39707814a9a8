# SPDX-License-Identifier: GPL-2.0-only
"""Made-up results, and what reads the pages that are made of them. It tests nothing itself."""

from __future__ import annotations

from html.parser import HTMLParser

from trapless.base.console import Silent
from trapless.experiments import report_files
from trapless.report.figures import Map
from trapless.results.result_file import Claim, Metric, Result

VOID = {"meta", "br", "img", "input", "hr", "path", "use", "rect"}


def a_result(name="made-up", first=378.0):
    metrics = {
        f"getppid.{mechanism}.n{n}.instructions": Metric(value, "instructions", "counted", 3)
        for mechanism, values in {
            "plain": (first, 347.0),
            "batch": (516.0, 151.0),
            "io_uring": (977.0, 306.0),
        }.items()
        for n, value in zip((1, 32), values, strict=True)
    }
    metrics["getppid.batch.n32.ratio"] = Metric(0.52, "ratio", "measured", 7, 0.04)
    metrics["getppid.batch.break_even.n"] = Metric(2, "n", "counted", 3)
    claims = (
        Claim("wsc-int", "wrapped-system-call", "N = 2", "N = 2", True),
        Claim("wsc-sysenter", "wrapped-system-call", "N = 32", "N = 3", False, "<b>door</b> & co"),
        Claim("psc-best", "parallel-system-call", "up to 76%", "-", None, "one CPU"),
    )
    return Result(name, "1.2.3-stock", "tcg", "2 CPUs", metrics, claims)


def a_map(**changes):
    fields = {
        "id": "ratios", "title": "Ratios", "x_label": "user", "y_label": "kernel",
        "x": (0.0, 4.0, 8.0), "y": (0.0, 4.0), "outlines": (((0.0, 4.0), (8.0, 0.0)),),
        "names": ((2.0, 2.0, "here"),), "scale": "ours / theirs",
        "cells": ((0.25, 1.0, 3.5), (None, 0.5, 0.75)),
    }  # fmt: skip
    return Map(**(fields | changes))


class Balanced(HTMLParser):
    """Fails on a tag that closes what is not open; collects all text and attributes."""

    def __init__(self):
        super().__init__()
        self.open = []
        self.words = []
        self.attributes = []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open and self.open.pop() == tag, f"</{tag}> at {self.getpos()}"

    def handle_data(self, data):
        self.words.append(data)


def parsed(page):
    parser = Balanced()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser


def page_of(folder):
    report_files.write(folder, Silent())
    return (folder / report_files.HTML_NAME).read_text()
