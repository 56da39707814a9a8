# SPDX-License-Identifier: GPL-2.0-only
"""result.json: what is written is read back, and what is damaged is refused with the reason.

The JSON schema for readers in other languages must accept and refuse what the Python does.
"""

from __future__ import annotations

import copy
import doctest
import json
from pathlib import Path

import jsonschema
import pytest

from trapless.base.console import TraplessError
from trapless.results import claims, result_file
from trapless.results.result_file import Claim, Metric, Result

SCHEMA = json.loads((Path(result_file.__file__).parent / "result.schema.json").read_text())

GOOD = Result(
    experiment="batch-size",
    kernel="6.x-stock",
    accelerator="tcg",
    machine="2 CPUs",
    metrics={
        "getppid.batch.n32.instructions": Metric(150.5, "instructions", "counted", 3, 0.0),
        "getppid.batch.n32.ratio": Metric(0.5, "ratio", "measured", 5, 0.02),
    },
    claims=(
        Claim("wsc-int", "wrapped-system-call", "N = 2", "N = 2", True),
        Claim("wsc-sysenter", "wrapped-system-call", "N = 32", "N = 3", False, "a cheaper door"),
        Claim("psc-best", "parallel-system-call", "up to 76%", "-", None, "one CPU under icount"),
    ),
)


def damaged(change):
    data = json.loads(GOOD.to_json())
    change(data)
    return data


def put(path, value):
    """A change of a document: set the field at `path` to `value`, or remove it (...)"""

    def change(data):
        for key in path[:-1]:
            data = data[key]
        if value is ...:
            del data[path[-1]]
        else:
            data[path[-1]] = copy.deepcopy(value)

    return change


METRIC = ("metrics", "getppid.batch.n32.instructions")
DAMAGE = {
    "no metrics": (put(("metrics",), {}), "no metrics"),
    "metrics a list": (put(("metrics",), []), "metrics is not an object"),
    "claims an object": (put(("claims",), {}), "claims is not a list"),
    "kernel missing": (put(("kernel",), ...), "lacks kernel"),
    "kernel empty": (put(("kernel",), ""), "kernel is missing"),
    "machine a number": (put(("machine",), 5), "machine is missing or not text"),
    "experiment with a path": (put(("experiment",), "../x"), "experiment '../x'"),
    "unknown field": (put(("colour",), "red"), "unknown fields: colour"),
    "metric without a unit": (put((*METRIC, "unit"), ...), "lacks unit"),
    "value a text": (put((*METRIC, "value"), "12"), "value '12' is not a number"),
    "value a truth": (put((*METRIC, "value"), True), "value True is not a number"),
    "spread negative": (put((*METRIC, "spread"), -1), "spread -1 is negative"),
    "n zero": (put((*METRIC, "n"), 0), "n 0 is not a count"),
    "n a fraction": (put((*METRIC, "n"), 1.5), "n 1.5 is not a count"),
    "kind unknown": (put((*METRIC, "kind"), "guessed"), "kind 'guessed' is none of"),
    "name of two parts": (
        put(
            ("metrics", "a.ns"),
            {"value": 1, "unit": "ns", "kind": "measured", "n": 1, "spread": 0},
        ),
        "metric name 'a.ns'",
    ),
    "claim failing without a reason": (put(("claims", 1, "note"), ""), "no note says why"),
    "claim with a foreign verdict": (put(("claims", 0, "holds"), "yes"), "holds 'yes'"),
    "claim id with a space": (put(("claims", 0, "id"), "wsc int"), "claim id 'wsc int'"),
}
# What a schema cannot say, or only Python checks.
PYTHON_ONLY = {
    "claim twice": (put(("claims", 1, "id"), "wsc-int"), "stands twice"),
    "unit differs from the name": (put((*METRIC, "unit"), "ns"), "its name says otherwise"),
}


def test_what_is_saved_is_loaded(tmp_path):
    path = result_file.save(GOOD, tmp_path / "batch-size")
    assert result_file.load(path) == GOOD
    assert result_file.load(path.parent) == GOOD
    assert [entry.name for entry in path.parent.iterdir()] == ["result.json"]


def test_equal_results_are_equal_files():
    assert GOOD.to_json() == result_file.from_data(json.loads(GOOD.to_json())).to_json()


def test_the_schema_accepts_what_is_saved():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(json.loads(GOOD.to_json()), SCHEMA)


@pytest.mark.parametrize("name", [*DAMAGE, *PYTHON_ONLY])
def test_damage_is_refused_with_the_reason(name, tmp_path):
    change, message = (DAMAGE | PYTHON_ONLY)[name]
    path = tmp_path / "result.json"
    path.write_text(json.dumps(damaged(change)))
    with pytest.raises(TraplessError) as raised:
        result_file.load(path)
    assert message in str(raised.value)
    assert str(path) in str(raised.value)


@pytest.mark.parametrize("name", DAMAGE)
def test_the_schema_refuses_the_same_damage(name):
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(damaged(DAMAGE[name][0]), SCHEMA)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "not text"),
        (b"[]", "result.json is not an object"),
        (b'{"experiment": NaN}', "NaN is not a number"),
        (GOOD.to_json().encode()[:200], "not JSON"),
    ],
)
def test_files_that_are_no_results_are_refused(content, message, tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    with pytest.raises(TraplessError, match=message):
        result_file.load(path)


def test_a_missing_file_names_what_would_write_it(tmp_path):
    with pytest.raises(TraplessError, match="trapless evaluate"):
        result_file.load(tmp_path / "result.json")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_lacks_are_not_saved(value, tmp_path):
    bad = Result("x", "k", "tcg", "m", {"a.b.c.ns": Metric(value, "ns", "measured")})
    with pytest.raises(TraplessError, match="not finite"):
        result_file.save(bad, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_claim_is_made_with_what_the_paper_published():
    claim = claims.judge("psc-break-even", "2", {"K": 2})
    assert (claim.paper, claim.published, claim.holds) == ("parallel-system-call", "3", True)
    assert claims.limit("psc-break-even") == 3


@pytest.mark.parametrize(
    ("claim_id", "values", "holds", "note"),
    [
        ("psc-break-even", {"K": 4}, False, "Always. Why not."),
        ("psc-break-even", {"K": None}, False, "Always. Why not."),
        ("psc-break-even", {"K": (2, 3)}, True, "Always."),
        ("psc-break-even", {"K": (3, 4)}, None, "Always. Why not."),
        ("psc-break-even", {"K": (4, 5)}, False, "Always. Why not."),
        ("wsc-x", {"ratio": 0.3}, True, "Always."),
        ("wsc-x", {"ratio": 0.51}, False, "Always. Why not."),
        ("dms-saving", {"fewest clocks saved": 800, "most clocks saved": 900}, True, "Always."),
        (
            "dms-saving",
            {"most clocks saved": 901, "fewest clocks saved": 800},
            False,
            "Always. Why not.",
        ),
        (
            "dms-saving",
            {"most clocks saved": 901, "fewest clocks saved": (700, 900)},
            False,
            "Always. Why not.",
        ),
    ],
)
def test_a_claim_is_judged_by_its_values(claim_id, values, holds, note):
    claim = claims.judge(claim_id, "ours", values, "Always.", why="Why not.")
    assert (claim.holds, claim.note) == (holds, note)


def test_the_note_names_each_value_that_is_not_as_it_must_be():
    why = {"largest residual of a line": "Not straight", "range of S, in A,": "Not alike"}
    for values, note in (((0.1, 0.1), "Not straight"), ((0.1, 0.3), "Not straight; Not alike")):
        claim = claims.judge("wsc-eq1", "ours", dict(zip(why, values, strict=True)), why=why)
        assert claim.note == note


@pytest.mark.parametrize(("claim_id", "values"), [("wsc-x", {"n": 1}), ("srv-anycall", {})])
def test_a_claim_is_judged_by_nothing_else(claim_id, values):
    with pytest.raises(ValueError, match="is judged by"):
        claims.judge(claim_id, "ours", values)


def test_an_unknown_claim_names_the_known_ones():
    with pytest.raises(TraplessError, match="wsc-eq1"):
        claims.undecided("wsc-eq2", "2", "Unknown.")


def test_each_published_claim_belongs_to_a_known_paper_and_can_be_judged():
    assert claims.published()
    for claim in claims.published().values():
        assert claim.paper in claims.papers()
        assert result_file.CLAIM_ID.fullmatch(claim.id)
        if claim.holds:
            values = dict.fromkeys(claim.holds)
            assert claims.judge(claim.id, "ours", values, "Never reached.").holds is False


def test_the_examples_of_claims_hold():
    assert doctest.testmod(claims).failed == 0
