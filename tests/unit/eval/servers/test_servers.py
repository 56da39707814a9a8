# SPDX-License-Identifier: GPL-2.0-only
"""Experiment servers: the load, against servers of this test that answer rightly and wrongly, and
what is made of counts."""

from __future__ import annotations

import json
import lzma
import re
import socket
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from eval.servers import counting, findings, part_http, server_results
from eval.servers.findings import Counted
from eval.servers.shapes import SMALL, Talk, content, load, ready, shape
from eval.servers.unmodified import packaged_servers
from eval.servers.unmodified.server_description import Server
from eval.servers.unmodified.web_servers import http
from trapless.experiments.experiment import OWN_KERNEL, Raw, program
from trapless.experiments.raw_files import read_rows
from trapless.results import claims
from trapless.stat.run_counts import RunCounts
from trapless.stat.run_report import CALLS_APART
from trapless.stock.real_programs import Programs

ROOT = Path(__file__).parents[4]
SAVED = ROOT / "docs" / "results" / "6.1" / "servers"
DOCUMENT = ROOT / "eval" / "servers" / "README.md"
DATA = ROOT / "tests" / "data" / "stat" / "find.json.xz"
MODELLED = DATA.parents[1] / "programs-counted.jsonl"
TIMED_REQUESTS, TIMED_TURNS = 1000, 3
BODY = content(SMALL)
RIGHT = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)


# ---- The load ----------------------------------------------------------------------------------


class Answering:
    """A server that answers every request with the same bytes; `closes` after each."""

    def __init__(self, answer: bytes, request_end: bytes, *, closes: bool = False) -> None:
        self.answer, self.end, self.closes = answer, request_end, closes
        self.asked = self.connections = 0
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                one, _ = self.listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        words = b""
        with one:
            while piece := _received(one):
                words += piece
                while self.end in words:
                    words = words.partition(self.end)[2]
                    self.asked += 1
                    with suppress(OSError):
                        one.sendall(self.answer)
                    if self.closes:
                        return


def _received(one: socket.socket) -> bytes:
    try:
        return one.recv(4096)
    except ConnectionResetError:  # the load has ended over a wrong reply
        return b""


@pytest.fixture
def made(tmp_path):
    """Makes a load for a server, with its files, and runs it."""

    def run(server: Answering, talk: Talk, name: str, requests: int):
        for file, data in talk.files.items():
            (tmp_path / file).write_bytes(data)
        wanted = shape(name, requests)
        words = talk.command(wanted).replace("/words", str(tmp_path)).split()
        words[0] = str(program("servers/load/load"))
        words[words.index("--port") + 1] = str(server.port)
        return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

    return run


@pytest.mark.parametrize(
    ("name", "closes", "connections"),
    [("keep8", False, 8), ("keep8-free", False, 8), ("close4", True, 40)],
)
def test_a_load_is_of_the_amount_that_was_asked_for(made, name, closes, connections):
    server = Answering(RIGHT, b"\r\n\r\n", closes=closes)
    done = made(server, http(SMALL), name, 40)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "40 replies, each compared\n"
    assert (server.asked, server.connections) == (40, connections)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (RIGHT.replace(BODY, BODY[::-1]), "is not the right one"),
        (RIGHT.replace(b"200 OK", b"404 No"), "is not the right one"),
        (RIGHT.replace(b": 100", b": 99"), "is not the right one"),
        (RIGHT + b"more", "is not the right one"),
    ],
    ids=["other-body", "other-status", "other-length", "too-long"],
)
def test_a_wrong_reply_ends_a_load(made, answer, message):
    done = made(Answering(answer, b"\r\n\r\n"), http(SMALL), "keep2", 4)
    assert done.returncode == 1 and message in done.stderr


def test_a_connection_that_ends_before_its_reply_ends_a_load(made):
    done = made(Answering(RIGHT[:-1], b"\r\n\r\n", closes=True), http(SMALL), "keep2", 4)
    assert done.returncode == 1 and "ended before its reply" in done.stderr


def test_an_opening_goes_before_the_requests(made):
    talk = Talk("--port 1", b"right", send=b"ask\n", opening=((b"hello\n", b"ht"),))
    server = Answering(b"right", b"\n")
    done = made(server, talk, "keep2", 6)
    assert done.returncode == 0, done.stderr
    assert server.asked == 6 + 2


def test_connections_stay_open_from_one_run_to_the_next(made, tmp_path):
    server, talk, path = Answering(RIGHT, b"\r\n\r\n"), http(SMALL), tmp_path / "stay"
    (tmp_path / "expect").write_bytes(BODY)
    command = talk.command(shape("keep8", 40), "--stay", str(path), "--idle", "3")
    words = command.replace("/words", str(tmp_path)).split()
    words[0] = str(program("servers/load/load"))
    words[words.index("--port") + 1] = str(server.port)
    staying = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    again = [words[0], "--again", str(path)]
    try:
        while not path.exists():
            assert staying.poll() is None
            time.sleep(0.01)
        for run in (1, 2):
            done = subprocess.run(again, capture_output=True, text=True, timeout=60, check=True)
            assert done.stdout == "40 replies, each compared\n"
            assert (server.asked, server.connections) == (40 * run, 8 + 3)
        server.answer = RIGHT.replace(BODY, BODY[::-1])
        failed = subprocess.run(again, capture_output=True, text=True, timeout=60, check=False)
        assert failed.returncode == 1 and "has failed" in failed.stderr
        assert staying.wait(60) == 1
    finally:
        staying.kill()
        staying.communicate()


# ---- What is counted ---------------------------------------------------------------------------


def test_each_server_is_described_whole():
    servers = packaged_servers.servers(quick=False)
    assert len({server.name for server in servers}) == len(servers) >= 10
    for server in servers:
        assert server.package in packaged_servers.PACKAGES
        for one in server.shapes(quick=False):
            talk = server.talk(one.bytes_)
            assert talk.expect and bool(talk.path) != bool(talk.send)
            loaded = load(talk, one) if one.close else ready(talk, one)
            assert f"--requests {one.requests}" in loaded
            assert ("--again" in load(talk, one)) == ("--stay" in ready(talk, one)) != one.close
            assert ("WAKEUP_PREEMPTION" in load(talk, one)) == one.lockstep
            assert ("--idle" in ready(talk, one)) == bool(one.idle)


def test_what_a_quick_run_counts_is_part_of_a_full_one():
    full = {
        server.name: server.shapes(quick=False) for server in packaged_servers.servers(quick=False)
    }
    for server in packaged_servers.servers(quick=True):
        assert set(server.shapes(quick=True)) <= set(full[server.name])


@pytest.fixture
def found():
    """A run by turns, with loops: of a program that is no server, which the analysis cannot see."""
    saved = json.loads(lzma.decompress(DATA.read_bytes()))
    for runs in saved["counted_by_turns"]["repeats"].values():
        for run in runs:
            newer = {"kernel": run["instructions"] // 2, "preempted_within": 0, "left_again": 0}
            run["features"] = newer | run["features"]
    turns = RunCounts.of_json(saved["counted_by_turns"])
    loops = RunCounts.of_json(saved["counted"]).loops
    return Counted("srv", "srv 1", "keep8", "words", 100, replace(turns, loops=loops), None)


def more_calls(found: Counted, percent: int) -> Counted:
    """The same where all turns in supervisor mode made more calls."""
    more = [
        replace(run, features={**run.features, "syscall": run.features["syscall"] * percent // 100})
        for run in found.turns.repeats["supervisor"]
    ]
    repeats = {**found.turns.repeats, "supervisor": tuple(more)}
    return replace(found, turns=replace(found.turns, repeats=repeats))


def test_figures_are_those_of_one_request(found):
    pair = found.pairs[0]
    assert found.did_the_same and len(found.alike) == len(found.pairs)
    each = sorted(one.saved / 100 for one in found.pairs)
    assert each[0] <= found.saved.median <= each[-1]
    total = found.instructions("trap")
    assert sum(total.values()) == pytest.approx(pair.trap.instructions / 100, rel=0.01)
    assert found.error == pytest.approx(found.predicted / found.saved.median - 1)
    assert 0 < found.batch_saves < total["kernel"]


def test_what_crossings_cost_in_modelled_clocks_is_shown(found):
    rows = {row.get("run"): row for row in read_rows(MODELLED)}
    model = RunCounts.of_json(rows["nginx-user"]["counted"])
    one = replace(found, server="nginx", modelled=model)
    for processor in counting.PROCESSORS:
        share = one.shares(processor)
        assert 0 < share["direct"] < share["pollution"] < 0.5
        assert share["direct"] < share["batch-at-most"] < share["direct"] + share["pollution"]
    metrics = server_results.metrics([one])
    assert metrics["nginx.pollution.keep8_i7-9700k.share"].kind == "modelled"
    table, figure = server_results.modelled([one])
    assert len(table.rows) == len(counting.PROCESSORS) and figure.names == ("nginx",)
    assert not list(server_results.modelled([found]))
    (claim,) = (c for c in server_results.claims_of([one]) if c.id == "srv-flexsc-nginx")
    assert "by pollution" in claim.ours


def test_turns_that_did_different_work_give_no_saving(found):
    same, other = server_results.metrics([found]), server_results.metrics([more_calls(found, 104)])
    assert "srv.supervisor.keep8.saved" in same and "srv.supervisor.keep8.predicted" in same
    assert "srv.supervisor.keep8.saved" not in other
    assert other["srv.supervisor.keep8.calls-apart"].value == pytest.approx(0.04, abs=0.005)
    assert same["servers.supervisor.same-work.count"].value == 1
    assert other["servers.supervisor.same-work.count"].value == 0
    (row,) = server_results.savings([more_calls(found, 104)]).rows
    assert "different work" in row


def test_a_prediction_is_near_or_within_what_the_pairs_say(found):
    assert found.is_predicted == (
        abs(found.error) <= findings.NEAR or found.saved.low <= found.predicted <= found.saved.high
    )
    far = {
        name: {mode: replace(run, instructions=2 * run.instructions) for mode, run in modes.items()}
        for name, modes in found.turns.loops.items()
    }
    assert not replace(found, turns=replace(found.turns, loops=far)).is_predicted


def test_every_published_gain_is_shown_and_none_is_decided(found):
    shown = server_results.claims_of([replace(found, server="redis")])
    wanted = {one.id for one in claims.published().values() if one.experiment == "servers"}
    assert {claim.id for claim in shown} == wanted
    assert {claim.holds for claim in shown} == {None}
    ours = {claim.id: claim.ours for claim in shown}
    assert "redis, keep8" in ours["srv-ub-redis"] and ours["srv-flexsc-bind"] == "not run"


@pytest.mark.parametrize(
    ("proof", "change", "message"),
    [
        ("99 replies, each compared", {}, "and not 100 replies"),
        ("100 replies, each compared", {"status": 1}, "ended with status 1"),
        ("100 replies, each compared", {"calls": None}, "no call in supervisor mode"),
    ],
)
def test_a_run_that_did_not_do_its_work_is_no_result(found, proof, change, message):
    findings.check("srv", found.turns, "100 replies, each compared", 100)
    with pytest.raises(ValueError, match=message):
        findings.check("srv", replace(found.turns, **change), proof, 100)


def test_a_guest_gets_what_the_load_sends_and_awaits(tmp_path, monkeypatch):
    monkeypatch.setattr(counting, "pack", lambda root, server, folder: DATA)
    server = Server("srv", "p", (), ("srv",), http, ("keep8", "close8"), 64, uneven=("close8",))
    root = Programs(tmp_path, {})
    runs = list(counting.runs("6.1", root, tmp_path, [server], quick=False))
    assert [run.label for run in runs] == ["srv-keep8", "srv-keep8-modelled", "srv-close8"]
    assert [len(run.job.turns) for run in runs] == [12, 0, 32]
    quick = list(counting.runs("6.1", root, tmp_path, [server], quick=True))
    assert [len(run.job.turns) for run in quick] == [6]
    brought = {where: path for path, where in runs[0].config.files}
    assert brought["/words/expect"].read_bytes() == BODY
    assert brought["/site/100"].read_bytes() == BODY


def test_predictions_that_are_farther_off_are_shown_with_what_tells_why(found):
    other = replace(more_calls(found, 104), load="other")
    saves_nothing = [
        replace(run, features={**run.features, "kernel": run.features["kernel"] + 10**7})
        for run in found.turns.repeats["supervisor"]
    ]
    repeats = {**found.turns.repeats, "supervisor": tuple(saves_nothing)}
    far = replace(found, load="far", turns=replace(found.turns, repeats=repeats))
    numbers = [int(row[1]) for row in server_results.held([found, far, other]).rows]
    assert numbers[:2] == [3, 2] and sum(numbers[2:]) == 2
    shown = [row for table in server_results.far([far, other]) for row in table.rows]
    assert [(row[0], row[4], row[5]) for row in shown] == [("srv far", "nothing saved", "outside")]
    assert bool(list(server_results.far([found]))) != found.is_near


def test_what_the_program_itself_executes_is_not_saved(found):
    collects_garbage = [
        replace(run, instructions=2 * run.instructions) for run in found.turns.repeats["supervisor"]
    ]
    repeats = {**found.turns.repeats, "supervisor": tuple(collects_garbage)}
    other = replace(found, turns=replace(found.turns, repeats=repeats))
    assert other.saved == found.saved and other.error == found.error
    (apart,) = {row[-1] for row in server_results.savings([other]).rows}
    assert float(apart.rstrip("%")) > 100 * max(pair.program_apart for pair in found.pairs) + 50


def test_uneven_loads_are_loads_of_their_server():
    for server in packaged_servers.servers(quick=False):
        assert set(server.uneven) <= set(server.loads), server.name


@pytest.fixture(scope="module")
def saved():
    rows = [row for row in read_rows(SAVED / "raw.jsonl") if row["part"] == "unmodified"]
    return {(one.server, one.load): one for one in findings.counted_of(rows) if one.did_the_same}


def test_the_document_names_the_load_whose_prediction_fails_and_why(saved):
    named = re.findall(r"^\*\*(\w+) under `([\w-]+)` fails", DOCUMENT.read_text(), re.M)
    outside = {key: one for key, one in saved.items() if not one.is_predicted}
    assert [(server.lower(), load) for server, load in named] == list(outside)
    for one in outside.values():
        assert one.own_turns_apart > 1.5 * one.predicted
        least, most = one.sleeps
        calls = one.turns.repeats["trap"][0].features["syscall"]
        assert most - least < calls * CALLS_APART < 2 * most
        each = [pair.saved / one.requests for pair in one.alike]
        assert (one.saved.low, one.saved.high) == (min(each), max(each))
        assert len(each) < len(one.pairs) and one.saved.high < one.predicted


def test_the_document_names_the_loads_whose_intervals_say_little(saved):
    far = {key: one for key, one in saved.items() if not one.is_near and one.is_predicted}
    wide = {key for key, one in far.items() if one.own_turns_apart > one.saved.median}
    assert {load for server, load in wide if server == "nginx"} == {"close64"}
    assert {server for server, _ in wide} == {"nginx", "caddy"}
    assert far.keys() - wide == {("haproxy", "close8"), ("bind", "keep8-free")}
    assert all(far[key].error > 0 for key in far.keys() - wide)


def test_the_document_says_which_goals_were_reached():
    rows = re.findall(
        r"^\| (.+) \| (\d+)% at most \| (.+) \| (\w+) \|$", DOCUMENT.read_text(), re.M
    )
    rows += re.findall(r"^\| (.+) \| less than (\d+)% \| (.+) \| (\w+)", DOCUMENT.read_text(), re.M)
    assert len(rows) == 5
    for words, bound, is_, reached in rows:
        ratios = [float(one) for one in re.findall(r"([\d.]+)%<!--", is_)]
        within = [ratio <= float(bound) for ratio in ratios]
        expected = {True: "yes", False: "no"}.get(all(within)) if len(set(within)) == 1 else "with"
        assert reached == expected, words


def test_the_document_says_how_long_the_web_server_is():
    lines = {
        path.name: path.read_text().count("\n")
        for path in (ROOT / "examples" / "http").glob("*.[ch]")
    }
    shown = dict(re.findall(r"<!-- lines: (\S+) -->(\d+)<!--/-->", DOCUMENT.read_text()))
    assert shown == {"server.c": str(lines["server.c"]), "all": str(sum(lines.values()))}


# ---- On a machine's own kernel -----------------------------------------------------------------


def timed_rows(*, inside: bool) -> list[dict]:
    """Turns in which io_uring takes half of epoll's time, and the load twice of the server's."""
    found: list[dict] = [
        {"clocks_per_ns": 2.0},
        {"load": "keep8", "requests": TIMED_REQUESTS},
    ]
    ns = {"scheduler": 8000, "epoll": 10_000, "io_uring": 5000}
    if inside:
        ns[part_http.INSIDE] = 9000
        found.append({"server": part_http.INSIDE, "stayed": 990, "left": 10})
    else:
        found.append({"skipped": part_http.INSIDE, "reason": "no module"})
    for turn in range(TIMED_TURNS):
        for server, each in ns.items():
            row = {"kind": "measured", "server": server, "load": "keep8", "turn": turn}
            grown = each * TIMED_REQUESTS * (turn + 1)  # a turn that the machine disturbs
            found.append({**row, "unit": "cpu-ns", "value": grown})
            found.append({**row, "unit": "clocks", "value": 4 * grown})
    return found


def timed(*, inside: bool) -> Raw:
    return Raw(timed_rows(inside=inside), {"accelerator": OWN_KERNEL}, Path())


def test_turns_become_times_of_a_request_and_paired_shares():
    metrics = part_http.analyse(timed(inside=True)).metrics
    assert metrics["http.scheduler.keep8.cpu-ns"].value == 16_000
    assert metrics["http.scheduler.keep8.ns"].value == 32_000
    assert metrics["http.io_uring.keep8.ratio"].value == 0.5
    assert metrics["http.epoll-supervisor.keep8.ratio"].value == 0.9
    assert metrics["http.epoll-supervisor.keep8.ratio"].spread == 0
    assert metrics["http.epoll-supervisor.all.share"].value == 0.99
    (table,) = part_http.figures(timed(inside=True))
    assert ("keep8", "io_uring", "10.00", "50%", "20.00") in table.rows
    assert "99.0% of its calls" in table.caption


def test_a_machine_that_refuses_the_mode_has_the_other_servers():
    metrics = part_http.analyse(timed(inside=False)).metrics
    assert metrics["http.scheduler.keep8.ratio"].value == 0.8
    assert not any("supervisor" in name for name in metrics)
    (table,) = part_http.figures(timed(inside=False))
    assert len(table.rows) == len(part_http.TIMED) - 1


def test_no_figure_is_made_of_nothing():
    with pytest.raises(ValueError, match="no server"):
        part_http.samples(Raw([{"load": "keep8", "requests": 1}], {}, Path()), "cpu-ns")
