# SPDX-License-Identifier: GPL-2.0-only
"""Records the calls of unmodified event loops under load, and bounds what a library would save
that makes some of them together with the next wait.

This file owns the runs, the metrics and the tables; deferral.py decides which calls may wait, and
aggregate.md says what follows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eval.servers import counting, deferral, shapes
from eval.servers.deferral import LOOSE, POLICIES, RULES, STRICT, Bound, Call, Costs
from eval.servers.shapes import Shape, shape
from eval.servers.unmodified import key_stores, packaged_servers, web_servers
from eval.servers.unmodified.server_description import Server
from trapless.experiments.collection import Collection, Row, guest_folder
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.report.figures import Table
from trapless.results.result_file import Metric
from trapless.stock import real_programs
from trapless.vm.lab import LabConfig

STRACE = "usr/bin/strace"
SHOWN = ("keep8", "close8")
REQUESTS = 128
LOADS = {
    "nginx": ("keep8", "keep64", "close8", "close64"),
    "redis": ("keep8", "keep64"),
    "haproxy": ("keep8", "keep64", "close8", "close64"),
}
SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64, 128)
SUBJECT = "getppid"
"""A call that does nothing: a batch saves the same at each call as at this one."""

TIMEOUT_S = 3600.0
WARM = 2
ARGUMENTS = "epoll_ctl|setsockopt|shutdown"
"""Calls whose second and third argument say what they do; of others they are addresses."""

SCRIPT = """\
mkdir -p /sys/kernel/debug; test -e {features} || mount -t debugfs none /sys/kernel/debug
"$@" > /tmp/server.log 2>&1 &
first=$!
until ({ready}) > /dev/null 2>&1; do kill -0 $first || exit 1; sleep 0.1; done
all="$first $(cat /proc/$first/task/*/children)"
put() {{ ({load}) || exit 1; sleep 0.05; }}
used() {{
  for one in $all; do cat /proc/$one/task/*/schedstat; done |
    awk '{{s += $1}} END {{printf "%.0f", s}}'
}}
{warm}
before=$(used); put; after=$(used)
threads=$(for one in $all; do ls /proc/$one/task; done | wc -w)
options=; for one in $all; do options="$options -p $one"; done
/{strace} -ff -qq -e raw=all -o /tmp/calls $options & tracer=$!
for one in $all; do for status in /proc/$one/task/*/status; do
  until grep -q 'TracerPid:.*[1-9]' $status; do sleep 0.1; done; done; done
put; kill -INT $tracer; wait $tracer || true
echo '{{"instructions": '$((after - before))', "threads": '$threads', {about}}}'
for file in /tmp/calls.*; do awk '{parse}' $file; done
{after} | grep -q '^{requests} replies, each compared$'
echo '{{"complete": true}}'
"""
PARSE = r"""
function show() { if (items) printf "{\"calls\": [%s], {about}}\n", items; items = "" }
/^[a-z0-9_]+\(.*\) += / {
  name = $0; sub(/\(.*/, "", name)
  inside = $0; sub(/^[^(]*\(/, "", inside); sub(/\) +=.*/, "", inside)
  result = $0; sub(/.*\) += /, "", result); sub(/ .*/, "", result)
  n = split(inside, a, ", ")
  for (i = n + 1; i <= 3; i++) a[i] = "-"
  if (a[1] == "") a[1] = "-"
  if (name !~ /^({arguments})$/) a[2] = a[3] = "-"
  items = items (items ? ", " : "") "\"" name " " a[1] " " a[2] " " a[3] " " result "\""
  if (name ~ /^({waits})$/) show()
}
END { show() }
"""


def servers() -> Iterator[tuple[Server, Shape]]:
    """Each server with each of its loads."""
    for server in (web_servers.nginx(), key_stores.redis(), web_servers.haproxy()):
        for name in LOADS[server.name]:
            yield server, shape(name, REQUESTS)


def script(server: Server, load: Shape) -> str:
    """The guest's steps: count the server's instructions under the load, then record its calls."""
    talk = server.talk(load.bytes_)
    about = f'"server": "{server.name}", "load": "{load.name}", "requests": {load.requests}'
    parse = (
        PARSE.replace("{about}", about.replace('"', r"\""))
        .replace("{arguments}", ARGUMENTS)
        .replace("{waits}", "|".join(deferral.WAITS))
    )
    steps = SCRIPT.format(
        features=shapes.FEATURES,
        ready=shapes.ready(talk, load),
        load=shapes.load(talk, load),
        warm="; ".join(["put"] * WARM),
        strace=STRACE,
        about=about,
        parse=parse,
        after=counting.AFTER,
        requests=load.requests,
    )
    return f"{counting.ENTER}{server.prepare}\n{steps}"


def collect(run: Collection) -> None:
    root = real_programs.unpacked(
        run.progress, packaged_servers.PACKAGES, (), packaged_servers.ROOT
    )
    with guest_folder(run.directory) as folder:
        for server, load in servers():
            packed = counting.pack(root.root, _traced(server), folder)
            config = LabConfig(
                kernel=run.kernel,
                cpus=1,
                icount=True,
                memory=counting.MEMORY,
                files=counting.files(packed, server, load, folder),
                append=counting.PUT_OFF,
                timeout_s=TIMEOUT_S,
            )
            argv = ["/bin/sh", "-c", script(server, load), "sh", *server.argv]
            run.boot(f"{server.name}-{load.name}", config, argv)
    run.boot("costs", *_costs(run.kernel))
    run.write(
        {"check": f"{server.name} traced, {load.name}: each reply compared", "made": load.requests}
        for server, load in servers()
    )


def _traced(server: Server) -> Server:
    return Server(**{**vars(server), "programs": (*server.programs, STRACE)})


def _costs(kernel: str) -> tuple[LabConfig, list[str]]:
    """The saving of a batch for one call, by the batch's size, on the same kernel."""
    program = workload("batch-size")
    config = LabConfig(
        kernel=kernel, cpus=1, icount=True, files=((program, "/bin/costs"),), timeout_s=TIMEOUT_S
    )
    options = {"kind": "counted", "calls": SUBJECT, "mechanisms": "plain,batch", "repeats": 3}
    options["sizes"] = ",".join(map(str, SIZES))
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return config, ["/bin/costs", *words]


# ---- Figures -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """One server under one load: its instructions without strace, its calls with it."""

    server: str
    load: str
    requests: int
    instructions: int
    threads: int
    windows: tuple[tuple[Call, ...], ...]

    @property
    def calls(self) -> Counter[str]:
        return Counter(call.name for window in self.windows for call in window)

    def bound(self, policy: str, costs: Costs) -> Bound:
        return deferral.bound(self.windows, policy, costs, self.requests, self.instructions)


def costs_of(rows: Sequence[Row]) -> Costs:
    """By the size of a batch; ValueError where nothing was counted."""
    found: dict[str, dict[int, float]] = {"plain": {}, "batch": {}}
    for row in rows:
        if row.get("call") == SUBJECT:
            found[row["mechanism"]][int(row["n"])] = row["value"] / row["ops"]
    if not found["batch"] or found["batch"].keys() != found["plain"].keys():
        raise ValueError("what a batch costs was not counted")
    return Costs(found["plain"], found["batch"])


def traced_of(rows: Sequence[Row]) -> tuple[Traced, ...]:
    """All that was recorded, in the order of the runs."""
    found = []
    for head in (row for row in rows if "instructions" in row and "threads" in row):
        place = (head["server"], head["load"])
        recorded = tuple(
            tuple(map(Call.of, row["calls"]))
            for row in rows
            if "calls" in row and (row.get("server"), row.get("load")) == place
        )
        if len(recorded) < 2 or head["instructions"] <= 0:
            raise ValueError(f"{place[0]} did nothing under {place[1]}")
        found.append(
            Traced(*place, head["requests"], head["instructions"], head["threads"], recorded)
        )
    if not found:
        raise ValueError("no server was traced")
    return tuple(found)


def analyse(raw: Raw) -> Findings:
    costs, metrics = costs_of(raw.rows), {}
    for one in traced_of(raw.rows):
        for policy in POLICIES:
            bound = one.bound(policy, costs)
            name = f"{one.server}.aggregate-{policy}.{one.load}"
            metrics[f"{name}.deferred"] = Metric(round(bound.deferred, 3), "deferred", "counted")
            metrics[f"{name}.saved-at-most"] = Metric(
                round(bound.saved, 1), "saved-at-most", "modelled"
            )
            metrics[f"{name}.share-at-most"] = Metric(
                round(bound.share, 5), "share-at-most", "modelled"
            )
        metrics[f"{one.server}.aggregate.{one.load}.calls"] = Metric(
            round(bound.calls, 3), "calls", "counted"
        )
    return Findings(metrics)


def calls_table(traced: Sequence[Traced]) -> Table:
    """Calls a request, by kind, those that may wait first; of more connections they are the same,
    with fewer waits."""
    traced = [one for one in traced if one.load in SHOWN]
    names = Counter[str]()
    for one in traced:
        names.update(one.calls)
    ordered = sorted(names, key=lambda name: (name not in RULES, name in deferral.WAITS, name))
    return Table(
        id="aggregate-calls",
        title="The calls of event loops: how many a request",
        columns=("call", "may wait", *(f"{one.server} {one.load}" for one in traced)),
        rows=tuple(
            (name, _rule(name), *(_number(one.calls[name] / one.requests) for one in traced))
            for name in ordered
        ),
        caption="Recorded by strace. Strict: nobody can notice; loose: only if a program may be "
        "told that a write was whole before it was made. Of the others the result is used at once.",
        kind="counted",
    )


def _rule(name: str) -> str:
    if name not in RULES:
        return "the wait" if name in deferral.WAITS else "no"
    return STRICT if STRICT in RULES[name].by else LOOSE


def _number(value: float) -> str:
    return f"{value:.2f}" if value else "-"


def bounds_table(traced: Sequence[Traced], costs: Costs) -> Table:
    """The largest possible saving, under both policies."""
    rows = []
    for one in traced:
        strict, loose = (one.bound(policy, costs) for policy in POLICIES)
        rows.append(
            (
                f"{one.server} {one.load}",
                f"{one.threads}",
                f"{strict.of:,.0f}",
                f"{strict.calls:.2f}",
                f"{strict.deferred:.2f}",
                f"{strict.saved:,.0f}",
                f"{strict.share:.2%}",
                f"{loose.deferred:.2f}",
                f"{loose.saved:,.0f}",
                f"{loose.share:.2%}",
            )
        )
    return Table(
        id="aggregate-bounds",
        title="Calls that wait for the next one: what they would save of a request, at most",
        columns=(
            "server and load", "threads", "instructions", "calls",
            "wait, strict", "saved at most, strict", "of all, strict",
            "wait, loose", "saved at most, loose", "of all, loose",
        ),
        rows=tuple(rows),
        caption="A request, of all threads. Saved: what batches of the sizes that come about save "
        "of calls that do nothing, without anything that the library itself executes.",
        kind="modelled",
    )  # fmt: skip


def figures(raw: Raw) -> tuple[Table, ...]:
    traced = traced_of(raw.rows)
    return (calls_table(traced), bounds_table(traced, costs_of(raw.rows)))
