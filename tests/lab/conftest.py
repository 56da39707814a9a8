# SPDX-License-Identifier: GPL-2.0-only
"""Turns each C program of these folders into one test item per kernel, and shares the VMs' results.

Only what a session has selected is run in its VMs, so `-k seccomp` boots with those alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.lab.runner.suite import Suite, in_bochs, kernel_names, of_the_library, programs
from trapless.base.console import ConsoleProgress, Progress
from trapless.stock import kernels

OLDEST = kernels.GUESTS[0].name
SUITES = pytest.StashKey[dict[str, Suite]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[SUITES] = {}
    for marker in (
        "outer_kernels: rests on what the programs prove on every kernel; of the chosen kernels "
        "the first and the last will do",
        "tool: the subject is a tool of ours and not the module; with --tools-once the last of its "
        "kernels will do",
        "oldest: runs on the oldest kernel that peek reads as well, with --kernels all",
    ):
        config.addinivalue_line("markers", marker)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    names = kernel_names(metafunc.config.getoption("--kernels"))
    if metafunc.definition.get_closest_marker("outer_kernels"):
        names = [name for name in names if name in {names[0], names[-1]}]
    if metafunc.definition.get_closest_marker("tool") and metafunc.config.getoption("--tools-once"):
        names = names[-1:]
    elif metafunc.definition.get_closest_marker("oldest"):
        names += [OLDEST] * (metafunc.config.getoption("--kernels") == "all")
    if "kernel" in metafunc.fixturenames and "program" in metafunc.fixturenames:
        once = of_the_library() if metafunc.config.getoption("--tools-once") else ()
        chosen = in_bochs() if metafunc.config.getoption("--emulator") == "bochs" else programs()
        pairs = [
            (kernel, program)
            for kernel in names
            for program in chosen
            if kernel == names[-1] or program not in once
        ]
        ids = [f"{kernel}-{program}" for kernel, program in pairs]
        metafunc.parametrize(("kernel", "program"), pairs, ids=ids)
    elif "kernel" in metafunc.fixturenames:
        metafunc.parametrize("kernel", names)


def pytest_collection_finish(session: pytest.Session) -> None:
    suites = session.config.stash[SUITES]
    for item in session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if {"kernel", "program"} <= parameters.keys():
            emulator = session.config.getoption("--emulator")
            new = Suite(parameters["kernel"], emulator=emulator)
            suite = suites.setdefault(parameters["kernel"], new)
            suite.names.append(parameters["program"])


@contextmanager
def shown_progress(config: pytest.Config) -> Iterator[Progress]:
    """Progress on the terminal, past pytest's capture."""
    capture = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled(), ConsoleProgress() as progress:
        yield progress


@pytest.fixture
def suite(kernel: str, pytestconfig: pytest.Config) -> Suite:
    """All outcomes on one kernel; the first test of a kernel waits for its VM."""
    suites = pytestconfig.stash[SUITES]
    chosen = suites.setdefault(kernel, Suite(kernel))
    if not chosen.ran:
        with shown_progress(pytestconfig) as progress:
            chosen.run(progress)
    return chosen
