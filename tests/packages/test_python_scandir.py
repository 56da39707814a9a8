# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python: the entries of a folder answer what those of os.scandir() answer, and
those of a tree are the ones that os.walk() and os.lstat() find."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import re
import threading
from pathlib import Path

import pytest

from libtrapless import scandir, scantree
from tests import descriptors


@pytest.fixture
def tree(tmp_path):
    """Folders, links of each sort, a fifo, and names that are no text."""
    for i in range(3):
        (tmp_path / f"folder {i}/in/side").mkdir(parents=True)
        (tmp_path / f"folder {i}/in/file\nof two lines").write_text("text" * i)
    (tmp_path / "link").symlink_to("folder 0")
    (tmp_path / "folder 1/back").symlink_to("..")
    (tmp_path / "dangling").symlink_to("absent")
    (tmp_path / "self").symlink_to("self")
    os.mkfifo(tmp_path / "fifo")
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb"):
        pass
    return tmp_path


def told(function, **options):
    """What it returns, or what is said by the error that it raises."""
    try:
        return function(**options)
    except OSError as error:
        return type(error), error.errno, error.strerror, error.filename


def answers(entry):
    found = [entry.name, entry.path, os.fspath(entry), entry.inode(), entry.is_symlink()]
    for name in ("is_dir", "is_file", "stat"):
        for follow in (False, True):
            one = told(getattr(entry, name), follow_symlinks=follow)
            # To follow a link changes its time of access.
            found.append(one if not isinstance(one, os.stat_result) else (one[:7], one[8:]))
    return found


@pytest.mark.parametrize("form", [str, os.fsencode, Path])
def test_entries_answer_as_those_of_os_scandir(tree, form):
    for folder in (tree, f"{tree}/", tree / "folder 1", tree / "link"):
        path = form(str(folder)) if form is not Path else Path(folder)
        with os.scandir(path) as theirs, scandir(path) as ours:
            wanted = [answers(entry) for entry in theirs]
            assert [answers(entry) for entry in ours] == wanted
            assert wanted


def test_a_file_that_is_gone_keeps_its_attributes(tree):
    (entry,) = (entry for entry in scandir(tree) if entry.name == "fifo")
    (tree / "fifo").unlink()
    assert entry.stat().st_mode == entry.stat(follow_symlinks=False).st_mode
    assert not entry.is_file() and not entry.is_dir()


def test_the_folder_of_the_process_is_the_default(tree, monkeypatch):
    monkeypatch.chdir(tree)
    assert sorted(e.path for e in scandir()) == sorted(e.path for e in os.scandir())


def by_python(top):
    """Path, depth and attributes of everything in the tree, in the order of os.scandir()."""
    attributes = os.stat(top)
    found = [(os.fspath(top), attributes)]
    with os.scandir(top) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                found += by_python(entry.path)
            else:
                found.append((entry.path, entry.stat(follow_symlinks=False)))
    return found


def but_for_reading(found):
    """The same without the time of the last access, which reading a folder changes."""
    return [(path, attributes[:7], attributes[8:]) for path, attributes in found]


def test_a_tree_is_what_python_finds_in_it(tree):
    for top in (tree, os.fsencode(tree), tree / "link"):
        ours = [(e.path, e.stat(follow_symlinks=False)) for e in scantree(top)]
        assert but_for_reading(ours) == but_for_reading(by_python(top))


def test_orders_kinds_and_depths(tree):
    entries = list(scantree(tree / "folder 1", order="name", leave=True))
    told = [(e.name, e.depth, e.kind) for e in entries]
    assert told == [
        (str(tree / "folder 1"), 0, "entry"),
        ("back", 1, "entry"),
        ("in", 1, "entry"),
        ("file\nof two lines", 2, "entry"),
        ("side", 2, "entry"),
        ("side", 2, "left"),
        ("in", 1, "left"),
        (str(tree / "folder 1"), 0, "left"),
    ]
    depths = [e.depth for e in scantree(tree, breadth_first=True)]
    assert depths == sorted(depths) and max(depths) == 3
    cycles = [e for e in scantree(tree / "folder 1", follow_symlinks=True) if e.kind == "cycle"]
    assert [entry.name for entry in cycles] == ["folder 1"]


def test_its_help_explains_every_option_and_every_kind():
    """What cannot be guessed from the names of the arguments."""
    text = scantree.__doc__ or ""
    _, *options = inspect.signature(scantree).parameters
    assert len(options) == 6
    for word in (*options, "'entry'", "'unreadable'", "'cycle'", "'left'"):
        assert re.search(rf"^{word}  +[A-Z]", text, re.M), word
    assert "skip()" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_pruned_folders_are_not_entered(tree):
    with scantree(tree) as entries:
        seen = []
        for entry in entries:
            seen.append(entry.name)
            if entry.name.startswith("folder"):
                entries.skip()
    assert "in" not in seen and "folder 2" in seen


def test_a_folder_that_cannot_be_read_is_an_error_of_its_entry(tree):
    removed = tree / "folder 2/in"
    errors = []
    for entry in scantree(tree, order="name"):
        if entry.path == str(removed) and entry.kind == "entry":
            for name in os.listdir(removed):
                path = removed / name
                path.rmdir() if path.is_dir() else path.unlink()
            removed.rmdir()
        if entry.error is not None:
            errors.append((entry.kind, type(entry.error), entry.error.filename))
    assert errors == [("unreadable", FileNotFoundError, str(removed))]


def test_errors_name_the_path_and_bad_arguments_are_refused(tree):
    for function in (scandir, scantree):
        with pytest.raises(FileNotFoundError) as error:
            function(tree / "absent")
        assert error.value.filename == str(tree / "absent")
        with pytest.raises(ValueError, match="NUL byte"):
            function("a\0b")
        with pytest.raises(TypeError):
            function(3)  # type: ignore[call-overload,type-var]
    with pytest.raises(NotADirectoryError):
        scandir(tree / "fifo")
    with pytest.raises(ValueError, match="'name', 'inode' or None, not 'size'"):
        scantree(tree, order="size")
    for wrong in (1, 2, -1):
        with pytest.raises(ValueError, match=f"descriptors={wrong}: it is 3 or more, or 0"):
            scantree(tree, descriptors=wrong)
    assert len(list(scantree(tree, descriptors=3))) == len(list(scantree(tree)))
    with pytest.raises(ValueError, match="depth first"):
        scantree(tree, leave=True, breadth_first=True)


def test_a_loop_runs_while_a_thread_walks_a_tree(tmp_path):
    for i in range(2000):
        (tmp_path / f"{i}").touch()

    async def work():
        turns = 0
        found = asyncio.create_task(asyncio.to_thread(list, scantree(tmp_path)))
        while not found.done():
            await asyncio.sleep(0)
            turns += 1
        return turns, len(await found)

    turns, found = asyncio.run(work())
    assert found == 2001 and turns > 10


def test_what_is_closed_or_given_up_leaves_no_descriptor(tree):
    for _ in range(20):
        next(iter(scandir(tree)))
        next(iter(scantree(tree)))
        entries = scantree(tree)
        next(entries)
        entries.close()
        assert list(entries) == []
    with pytest.raises(FileNotFoundError):
        scandir(tree / "absent")
    gc.collect()
    assert not descriptors.of(rf"{tree}.*")


def test_threads_and_children_of_a_fork_read_folders_at_the_same_time(tree):
    wanted = sorted(os.listdir(tree))
    wrong = []

    def read():
        for _ in range(50):
            if sorted(entry.name for entry in scandir(tree)) != wanted:
                wrong.append(1)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    child = os.fork()
    if not child:
        os._exit(sorted(entry.name for entry in scandir(tree)) != wanted)
    assert os.waitpid(child, 0)[1] == 0
