# SPDX-License-Identifier: GPL-2.0-only
"""The start of a process that will read a stranger's data: what it has, and what it lacks."""

from __future__ import annotations

import json
import os

from trapless.base import jail

PROBE = """
import json, os, sys
def main(*arguments):
    print(json.dumps([arguments, dict(os.environ), os.getcwd(), os.getsid(0) == os.getpid(),
                      "site" in sys.modules, sorted(map(int, os.listdir("/proc/self/fd")))]))
"""


def test_child_has_its_arguments_and_nothing_of_its_parent(tmp_path, monkeypatch):
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.setenv("SECRET", "of the parent")
    with open(os.devnull) as kept, open(os.devnull) as own:
        number = kept.fileno()
        os.set_inheritable(own.fileno(), True)
        child = jail.start("probe", "a", packages=str(tmp_path), descriptors=[number])
        answer, _ = child.communicate(timeout=600)
    arguments, environment, folder, is_leader, has_site, descriptors = json.loads(answer)
    assert arguments == ["a"] and environment.items() >= jail.ENVIRONMENT.items()
    assert "SECRET" not in environment and "PATH" not in environment
    assert (folder, is_leader, has_site) == ("/", True, False)
    assert {0, 1, 2, number} < set(descriptors)
    assert len(descriptors) == 5  # with that of the listing itself
