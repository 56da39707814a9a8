# SPDX-License-Identifier: GPL-2.0-only
"""Programs for another processor are built where `make BUILD=build/ARCH` builds them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trapless.base import built_programs, paths
from trapless.base.architecture import ARM64
from trapless.base.console import Silent

PATH = "eval/one/one"
MAKEFILE = """
$(BUILD)/%:
\tmkdir -p $(@D) && echo $@ >$@
"""


@pytest.mark.skipif(not ARM64.is_foreign, reason="this machine is of arm64")
def test_make_hears_the_name_that_a_user_gives_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object's list of headers counts only under the name by which the object was built."""
    (tmp_path / "build").mkdir()
    (tmp_path / "Makefile").write_text(MAKEFILE)
    for tool in ("gcc", "ar"):
        program = tmp_path / ARM64.tool(tool)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(paths, "PACKAGE", tmp_path / "trapless")
    built_programs.cross_build(ARM64, [PATH], tmp_path, Silent())
    named = f"build/{ARM64.name}/{PATH}"
    assert (tmp_path / named).read_text() == f"{named}\n"
