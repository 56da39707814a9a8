# SPDX-License-Identifier: GPL-2.0-only
"""Places that make life hard: paths with spaces, trees that nobody may write, full disks.

What cannot work is said before any work is done, with the place and the remedy.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections import namedtuple
from pathlib import Path

import pytest

from trapless.base import built_programs, console, paths
from trapless.base.console import Silent, TraplessError
from trapless.stock import kbuild, kernels, packages
from trapless.stock import real_programs as stock_programs
from trapless.stock.kernel import Kernel

ROOT = Path(__file__).resolve().parents[3]
Usage = namedtuple("Usage", "total used free")


@pytest.mark.parametrize("name", ["DESTDIR", "PREFIX", "BUILD"])
def test_folders_that_make_would_split_are_refused_first(tmp_path, name):
    place = f"{tmp_path}/a folder"
    # Not as a part of the make that runs this test.
    env = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        ["make", "install", f"{name}={place}"], cwd=ROOT, capture_output=True, text=True, env=env
    )
    assert done.returncode == 2 and done.stdout == ""
    assert "must have no spaces: '" in done.stderr and place in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_cache_with_spaces_is_refused_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "my cache"))
    for name in (kernels.SUPPORTED[0].name, "debug"):
        with pytest.raises(TraplessError, match=r"no path with ' ' in it: .*my cache; name a"):
            kernels.resolve(name, Silent())
    kernel = Kernel("own", "1", tmp_path / "image", tmp_path, None)
    with pytest.raises(TraplessError, match="no path with ' ' in it"):
        kbuild.module_for(kernel, Silent())
    assert list(tmp_path.iterdir()) == []


def test_a_kernel_whose_headers_have_a_colon_in_their_path_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path))
    kernel = Kernel("own", "1", tmp_path / "image", tmp_path / "a:b", None)
    with pytest.raises(TraplessError, match=r"no path with ':' in it: .*a:b"):
        kbuild.module_for(kernel, Silent())


def test_a_full_disk_is_told_before_package_lists_are_read(tmp_path, monkeypatch):
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(10**9, 9 * 10**8, 10**8))
    monkeypatch.setattr(packages, "machine_mirror", lambda: pytest.fail("the mirror was asked"))
    began = time.monotonic()
    name = kernels.SUPPORTED[0].name
    for fetch in (
        lambda: kernels.resolve(name, Silent()),
        lambda: stock_programs.unpacked(Silent()),
    ):
        with pytest.raises(TraplessError, match=r"needs .* MB and its disk has 100 MB free"):
            fetch()
    assert time.monotonic() - began < 60


@pytest.mark.slow
def test_a_tree_that_may_not_be_written_is_built_into_the_cache(tmp_path, monkeypatch, capsys):
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "Makefile").write_text(
        "BUILD = build\nworkloads:\n\tmkdir -p $(BUILD)/stat; sleep 1; echo x > $(BUILD)/stat/x\n"
    )
    monkeypatch.setenv(paths.CACHE_VARIABLE, str(tmp_path / "cache"))
    for module in (paths, built_programs):
        monkeypatch.setattr(module, "repo_root", lambda: tree)
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda path, mode: Path(path) != tree)
        patch.setattr(console, "SHOW_AFTER_S", 0.0)
        found = built_programs.find("stat/x")
        assert found.is_relative_to(tmp_path / "cache" / "build") and found.exists()
        assert "building the workloads" in capsys.readouterr().err
    assert paths.build_dir() == tree / "build"
    with pytest.raises(TraplessError, match=r"make -C .*/tree workloads` builds all"):
        built_programs.find("stat/x")
    assert not (tree / "build").exists()


@pytest.mark.parametrize("place", ["/proc/nowhere", "/dev/null"])
def test_a_cache_that_cannot_be_is_named_with_the_remedy(place):
    argv = [str(ROOT / "bin/trapless"), "lab", "--", "true"]
    env = os.environ | {paths.CACHE_VARIABLE: place}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 1 and done.stderr.startswith(f"trapless: {place}")
    assert "; name another cache with TRAPLESS_CACHE=DIR" in done.stderr


def test_an_installation_builds_nothing_and_needs_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setattr(built_programs, "repo_root", lambda: tmp_path)
    monkeypatch.setattr("trapless.base.tools.tool_path", lambda: str(tmp_path))
    built_programs.build(Silent())
    (tmp_path / "Makefile").touch()
    with pytest.raises(TraplessError, match="building the workloads needs make"):
        built_programs.build(Silent())
