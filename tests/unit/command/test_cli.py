# SPDX-License-Identifier: GPL-2.0-only
"""The command's face: help for everything, statuses as promised, errors as one message.

What the commands do is tested with the parts that do it.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from trapless import __version__, cli
from trapless.experiments import experiment

ROOT = Path(__file__).resolve().parents[3]
LAUNCHER = ROOT / "bin" / "trapless"


def trapless(*arguments, **options):
    return subprocess.run(
        [str(LAUNCHER), *arguments], capture_output=True, text=True, timeout=600, **options
    )


def commands(group=cli.cli, path=()):
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


@pytest.mark.parametrize("path", [path for path, _ in commands()], ids=" ".join)
def test_every_command_explains_itself(path):
    run = CliRunner().invoke(cli.cli, [*path, "--help"], prog_name="trapless")
    assert run.exit_code == 0
    assert "Usage: trapless " + " ".join(path) in run.stdout


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda value: str(value))
def test_every_option_has_a_purpose(path, command):
    for option in command.params:
        if isinstance(option, click.Option) and option.name != "help":
            assert option.help, f"{' '.join(path)} {option.opts[0]}"


@pytest.mark.parametrize("path", [(), ("module",)], ids=str)
def test_no_line_of_a_list_of_commands_is_cut_off(path):
    assert "..." not in re.sub(r"\.\.\.(?=\n\n|\])", "", trapless(*path, "--help").stdout)


def test_help_is_quick_and_imports_no_part():
    code = "import sys; from trapless import cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    loaded = set(run.stdout.split())
    assert "trapless.cli" in loaded
    assert not loaded & {"matplotlib", "jinja2", "trapless.vm.lab", "subprocess", "hashlib"}


def test_the_version_is_that_of_the_project():
    assert f'\nversion = "{__version__}"\n' in (ROOT / "pyproject.toml").read_text()
    assert trapless("--version").stdout == f"trapless {__version__}\n"


def test_the_launcher_works_from_anywhere_and_through_a_link(tmp_path):
    (tmp_path / "trapless").mkdir()
    (tmp_path / "trapless" / "__init__.py").write_text("raise SystemExit('the wrong package')")
    link = tmp_path / "link"
    link.symlink_to(LAUNCHER)
    run = subprocess.run([str(link), "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout == f"trapless {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [["fly"], ["lab"], ["lab", "--cpus", "0", "--", "true"], ["report"], ["module", "x"]],
)
def test_wrong_usage_is_status_2(arguments):
    run = trapless(*arguments)
    assert run.returncode == 2
    assert "Usage:" in run.stderr and run.stdout == ""


@pytest.mark.parametrize(
    ("words", "kind"),
    [("lab --cpus abc", "whole number"), ("peek why --longer-than abc", "number")],
)
def test_a_word_in_the_place_of_a_number_is_named(words, kind):
    done = CliRunner().invoke(cli.cli, [*words.split(), "--", "true"])
    assert done.exit_code == 2 and f"'abc' is not a valid {kind}." in done.output


@pytest.mark.slow
def test_an_error_is_one_message_and_status_1(tmp_path):
    run = trapless("report", str(tmp_path / "nowhere"))
    assert run.returncode == 1
    assert run.stderr.startswith("trapless: ") and run.stderr.count("\n") == 1
    assert "no such folder" in run.stderr and "Traceback" not in run.stderr
    run = trapless("report", str(tmp_path / "no\x1b[2Jwhere"))
    assert "no?[2Jwhere" in run.stderr and "\x1b" not in run.stderr


STANDIN = """
import sys, time
from trapless import cli
from trapless.experiments import evaluate
def run(*_, **__):
    try:
        print("running", flush=True)
        time.sleep(40)
    finally:
        print("cleaned up", flush=True)
evaluate.run = run
sys.argv = ["trapless", "evaluate"]
cli.main()
"""


@pytest.mark.parametrize(
    ("number", "status", "word"),
    [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")],
)
def test_a_signal_ends_with_its_status_after_cleaning_up(number, status, word):
    run = subprocess.Popen(
        [sys.executable, "-c", STANDIN], cwd=ROOT, text=True, stdout=-1, stderr=-1
    )
    assert run.stdout.readline() == "running\n"
    run.send_signal(number)
    out, err = run.communicate(timeout=600)
    assert (run.returncode, out) == (status, "cleaned up\n")
    assert word in err and "Traceback" not in err


INTERRUPTED = """
import os, signal, sys, threading
from trapless import cli
from trapless.experiments import evaluate
def press():
    os.kill(os.getpid(), signal.SIGINT)  # as a terminal does: to the process
class Destroyed:
    def __del__(self):
        press()
def run(*_, **__):
    try:
        {where}
        threading.Event().wait(60)
    finally:
        press()
        print("cleaned up", flush=True)
        threading.Thread(target=press).start()  # it ends while Python does
evaluate.run = run
sys.argv = ["trapless", "evaluate"]
cli.main()
"""


@pytest.mark.parametrize("where", ["press()", "Destroyed()", "threading.Timer(0.1, press).start()"])
def test_whoever_presses_ctrl_c_again_and_again_ends_the_command_once(where):
    code = INTERRUPTED.replace("{where}", where)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert (done.returncode, done.stdout) == (130, "cleaned up\n")
    assert done.stderr.split() == ["trapless:", "interrupted"]


def test_ctrl_c_that_whoever_starts_the_command_ignores_stays_ignored():
    code = INTERRUPTED.replace("{where}", "press(); sys.exit(0)")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    assert (done.returncode, done.stdout) == (0, "cleaned up\n")


def test_an_error_that_nobody_foresaw_is_no_status_of_a_command():
    code = "import sys; from trapless import cli, run; run.here = lambda *_: 1 / 0; "
    code += "sys.argv = ['trapless', 'run', 'true']; cli.main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 125 and "ZeroDivisionError" in done.stderr
    assert "an error of Trapless itself; please report it" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_build_of_the_debug_kernel(tmp_path, number, status):
    """The real command; what it starts first, apt-get, is one that stays, with a child."""
    programs, cache = tmp_path / "bin", tmp_path / "cache"
    programs.mkdir()
    script = (
        f"#!/bin/sh\nsleep 1000 &\necho $$ $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/pids"
    )
    (programs / "apt-get").write_text(f"{script}\nwait\n")
    (programs / "apt-get").chmod(0o755)
    places = {"TRAPLESS_CACHE": str(cache), "PATH": f"{programs}:{os.environ['PATH']}"}
    run = subprocess.Popen(
        [ROOT / "bin/trapless", "lab", "--debug", "--", "true"],
        env=os.environ | places,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=-1,
        stderr=-1,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    limit = time.monotonic() + 600
    while not (tmp_path / "pids").exists():
        assert run.poll() is None and time.monotonic() < limit
        time.sleep(0.02)
    run.send_signal(number)
    _, err = run.communicate(timeout=600)
    assert run.returncode == status and "Traceback" not in err
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        stat = Path(f"/proc/{pid}/stat")
        assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    left = [path.name for path in (cache / "kernels").iterdir()]
    assert len(left) == 1 and left[0].endswith(".lock")
    with (cache / "kernels" / left[0]).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it


def test_the_list_of_experiments_has_their_minutes():
    shown = CliRunner().invoke(cli.cli, ["evaluate", "--list"]).output
    assert re.search(r"^memory-hierarchy +\d+ min +\d+ min  A transition", shown, re.M)


def test_the_list_of_experiments_names_the_claims_of_each():
    shown = CliRunner().invoke(cli.cli, ["evaluate", "--list"]).output
    listed = re.findall(r"^(\S+) +\d+ min((?:.|\n )*)", shown, re.M)
    claims = {
        name: re.findall(r"\S+-[^\s,.]+", text.partition("Claims:")[2]) for name, text in listed
    }
    assert claims["batch-size"] == ["wsc-int", "wsc-sysenter", "wsc-fast-trap", "wsc-eq1"]
    assert len(claims["servers"]) == 13 and "Claims" not in dict(listed)["scan"]


def test_a_reader_that_leaves_early_ends_the_command_as_it_ends_others():
    code = (
        "import os, sys; from trapless import cli; from trapless.experiments import experiment; "
        "experiment.names = lambda: ('ls',) * 100000; "
        "sys.argv = ['trapless', 'evaluate', '--list']; cli.main()"
    )
    run = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=-1, stderr=-1, text=True)
    run.stdout.read(10)
    run.stdout.close()
    assert run.stderr.read() == ""
    assert run.wait(timeout=600) == -signal.SIGPIPE


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "cp1252"])
def test_what_a_terminal_has_no_character_for_is_an_escape(encoding):
    """Two names of a guest look different there, too, and no byte of theirs is a command."""
    code = (
        "import contextlib, sys; from trapless import cli; "
        "from trapless.peek.diagnosis import commands; "
        "from trapless.peek.guest_text import GuestText; "
        "from trapless.peek.kernel.health.processes import Process; "
        "names = [GuestText(one.encode()) for one in ('\\u65e5', '\\u06db[2J')]; "
        "process = lambda name: Process(1, 1, 'S', 1.0, 0, name, 'x', name); "
        "target = type('Target', (), {'processes': lambda *_, **__: map(process, names)})(); "
        "commands._opened = lambda: contextlib.nullcontext((target, None, False)); "
        "sys.argv = ['trapless', 'peek', 'ps']; cli.main()"
    )
    env = os.environ | {"PYTHONIOENCODING": encoding}
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, env=env)
    assert (run.returncode, run.stderr) == (0, b"")
    _, first, second = run.stdout.splitlines()
    assert first.split()[-2:] == [b"\\u65e5"] * 2
    assert second.split()[-2:] == [b"\\u06db[2J"] * 2


@pytest.mark.slow
def test_a_locale_without_unicode_ends_no_report(tmp_path):
    shutil.copytree(ROOT / "docs/results/6.12/batch-size", tmp_path / "r/batch-size")
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    run = subprocess.run(
        [str(LAUNCHER), "report", str(tmp_path / "r")], capture_output=True, env=os.environ | locale
    )
    assert run.returncode == 0, run.stderr


def test_a_name_that_is_no_text_is_named(tmp_path):
    folder = tmp_path / "r\udcff"
    experiment.note_failure(folder / "ls", "no reply", "trapless evaluate ls")
    run = trapless("report", str(folder))
    assert run.returncode == 1 and "Traceback" not in run.stderr
    assert "r\\udcff'; rename that folder or file" in run.stderr


def test_options_after_the_labs_command_are_the_commands(monkeypatch):
    from trapless.vm import lab

    seen = []

    def run(config, command, **_):
        seen.append((config.cpus, tuple(command)))
        return type("Result", (), {"status": 7})()

    monkeypatch.setattr(lab, "run", run)
    for line in (["--cpus", "1", "--", "ls", "-l"], ["--cpus", "1", "ls", "-l"]):
        assert CliRunner().invoke(cli.cli, ["lab", *line]).exit_code == 7
    assert seen == [(1, ("ls", "-l"))] * 2


@pytest.mark.parametrize("options", [(), ("--icount",), ("--host-root",)])
def test_counts_that_do_not_repeat_are_told_of(monkeypatch, options):
    from trapless.vm import lab

    ended = type("Result", (), {"status": 0})
    monkeypatch.setattr(lab, "run", lambda *_, **__: ended)
    quiet = CliRunner().invoke(cli.cli, ["lab", *options, "--", "true"])
    assert (quiet.exit_code, quiet.stderr) == (0, "")
    both = CliRunner().invoke(cli.cli, ["lab", "--icount", "--host-root", "--", "true"])
    assert both.exit_code == 0 and "counts do not repeat: this machine's files" in both.stderr
    assert "sh -c 'cp -r TREE /tmp/t; PROGRAM /tmp/t'" in " ".join(both.stderr.split())


def test_words_for_module_and_kernel_reach_the_lab(monkeypatch):
    from trapless.vm import lab

    seen = []

    def run(config, command, **_):
        seen.append((config.module_parameters, config.append))
        return type("Result", (), {"status": 0})()

    monkeypatch.setattr(lab, "run", run)
    line = ["lab", "--module-parameters", "supervisor=1", "--append", "pti=on nosmp", "--", "true"]
    assert CliRunner().invoke(cli.cli, line).exit_code == 0
    assert seen == [("supervisor=1", "pti=on nosmp")]
