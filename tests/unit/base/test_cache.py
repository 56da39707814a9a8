# SPDX-License-Identifier: GPL-2.0-only
"""A folder in the cache is whole or absent, whatever ends its making.

It owns the tests of cache.py and paths.py.
"""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from pathlib import Path

import pytest

from trapless.base import cache
from trapless.base.console import Silent, TraplessError
from trapless.base.paths import cache_dir, repo_root


def test_the_cache_is_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "own"))
    assert cache_dir() == tmp_path / "own"
    monkeypatch.delenv("TRAPLESS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dir() == tmp_path / "xdg" / "trapless"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "trapless"


def test_the_checkout_holds_the_package() -> None:
    assert (repo_root() / "trapless" / "cli.py").exists()


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "kernels" / "x"
    with cache.assembling(target) as part:
        (part / "file").write_text("new")
        assert not target.exists()
    assert (target / "file").read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["x"]


@pytest.mark.parametrize("how", [ValueError, KeyboardInterrupt, TraplessError])
def test_an_interrupted_folder_leaves_the_old_one(tmp_path: Path, how: type[BaseException]) -> None:
    target = tmp_path / "x"
    with cache.assembling(target) as part:
        (part / "file").write_text("old")
    with pytest.raises(how), cache.assembling(target) as part:
        (part / "file").write_text("half")
        raise how("stop")
    assert (target / "file").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    for content in ("old", "new"):
        with cache.assembling(tmp_path / "x") as part:
            (part / content).write_text(content)
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["new"]
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    stale = tmp_path / ".x.abcdef.part"
    (stale / "locked").mkdir(parents=True)
    (stale / "locked" / "file").write_text("half")
    (stale / "locked").chmod(0o500)
    with cache.assembling(tmp_path / "x"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_full_disk_is_explained(tmp_path: Path) -> None:
    target = tmp_path / "x"
    full = pytest.raises(TraplessError, match=r"disk is full.*TRAPLESS_CACHE")
    with full, cache.assembling(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert list(tmp_path.iterdir()) == []


def test_a_tools_failure_on_a_full_disk_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "FULL_BYTES", 1 << 62)
    with pytest.raises(TraplessError, match="disk is full"), cache.assembling(tmp_path / "x"):
        raise TraplessError("tar: something odd")


def test_a_cache_that_may_not_be_written_is_explained(tmp_path: Path) -> None:
    refused = pytest.raises(TraplessError, match=r"cannot write to the cache.*TRAPLESS_CACHE")
    with refused, cache.assembling(tmp_path / "x"):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/somewhere")


def test_a_cache_removed_meanwhile_is_explained(tmp_path: Path) -> None:
    gone = pytest.raises(TraplessError, match="somebody removed")
    with gone, cache.assembling(tmp_path / "x") as part:
        part.rmdir()
        (part / "file").write_text("late")


def test_a_lock_that_was_removed_is_taken_anew(tmp_path: Path) -> None:
    lock = tmp_path / "x.lock"
    order: list[str] = []

    def second() -> None:
        with cache.locked(lock, "fetching", Silent()):
            order.append("second")

    waiting = threading.Thread(target=second)
    with cache.locked(lock, "fetching", Silent()):
        waiting.start()
        while not is_blocked(lock):
            time.sleep(0.01)
        lock.unlink()
    waiting.join(20)
    assert order == ["second"]
    assert lock.exists()  # and it is the one that was locked


def is_blocked(lock: Path) -> bool:
    """Whether somebody waits for the lock: the kernel lists waiters with an arrow."""
    inode = str(lock.stat().st_ino)
    return any(
        "->" in line and line.split()[-3].endswith(f":{inode}")
        for line in Path("/proc/locks").read_text().splitlines()
    )


def hold(lock: str, held: object, leave: object) -> None:
    with cache.locked(Path(lock), "holding", Silent()):
        held.set()  # type: ignore[attr-defined]
        leave.wait(10)  # type: ignore[attr-defined]


class Said(Silent):
    """Progress that remembers its steps, and lets the other process go at the first."""

    def __init__(self, leave: object) -> None:
        self.steps: list[str] = []
        self._leave = leave

    def step(self, text: str) -> None:
        self.steps.append(text)
        self._leave.set()  # type: ignore[attr-defined]


def test_a_second_process_waits_and_says_so(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    held, leave = context.Event(), context.Event()
    lock = tmp_path / "x.lock"
    other = context.Process(target=hold, args=(str(lock), held, leave))
    other.start()
    try:
        assert held.wait(20)
        said = Said(leave)
        with cache.locked(lock, "fetching", said):
            assert said.steps == ["waiting for another trapless that is fetching"]
    finally:
        leave.set()
        other.join(20)
    assert other.exitcode == 0


def test_a_checksum_over_files_depends_on_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1")
    (tmp_path / "b").write_text("2")
    first = cache.sha256_files(tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert first == cache.sha256_files(tmp_path, [tmp_path / "b", tmp_path / "a"])
    assert first != cache.sha256_files(tmp_path, [tmp_path / "a", tmp_path / "b"], "more")
    (tmp_path / "b").rename(tmp_path / "c")
    assert first != cache.sha256_files(tmp_path, [tmp_path / "a", tmp_path / "c"])
