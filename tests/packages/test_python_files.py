# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python: stat, read and unlink of whole lists, and the walk of a tree, give what
Python's own functions give, whatever is in the way.
"""

from __future__ import annotations

import errno
import os
import platform
import signal
import stat
import threading
from pathlib import Path

import pytest

from libtrapless import Batch, Stat, read_files, stat_files, unlink_files, walk
from tests import descriptors

SIZES = (0, 1, 4095, 4096, 65535, 65536, 65537, 69632, 69633, 300_000)
"""Around the buffers that files are read into."""


@pytest.fixture
def tree(tmp_path):
    """Folders, links to each sort of thing, a socket's like: names that are no UTF-8, too."""
    for i in range(3):
        (tmp_path / f"folder {i}/in/side").mkdir(parents=True)
        (tmp_path / f"folder {i}/in/file").write_text("text")
    (tmp_path / "link").symlink_to("folder 0")
    (tmp_path / "folder 1/back").symlink_to("..")
    (tmp_path / "dangling").symlink_to("absent")
    (tmp_path / "to file").symlink_to("folder 0/in/file")
    os.mkfifo(tmp_path / "fifo")
    with open(os.fsencode(tmp_path) + b"/\xff\xfe", "wb"):
        pass
    return tmp_path


def everything(top) -> list[str]:
    return [
        os.path.join(path, name)
        for path, folders, files in os.walk(top)
        for name in (*folders, *files)
    ]


def told(function, *arguments):
    try:
        return function(*arguments)
    except OSError as error:
        return error


def same(ours, by_python) -> bool:
    if not isinstance(by_python, OSError):
        return type(ours) is type(by_python) and repr(ours) == repr(by_python) and ours == by_python
    names = [(type(e), e.errno, e.strerror, str(e.filename)) for e in (ours, by_python)]
    return names[0] == names[1]


@pytest.mark.parametrize("follow", [True, False])
def test_stat_of_many_files_is_that_of_each(tree, follow):
    paths: list = [*everything(tree), "/dev/null", "/", str(tree / "absent"), str(tree) + "/link/"]
    paths += [tree, os.fsencode(tree), str(tree / "link/file/none")]
    paths += [str(tree / "fifo")] * 300
    for _ in range(2):  # the first look at a link sets its time of access
        wanted = [told(lambda p: os.stat(p, follow_symlinks=follow), path) for path in paths]
    found = stat_files(paths, follow_symlinks=follow)
    assert all(same(*pair) for pair in zip(found, wanted, strict=True))
    for one, other in zip(found, wanted, strict=True):
        if not isinstance(one, OSError):
            names = [name for name in dir(other) if name.startswith("st_")]
            assert [getattr(one, name) for name in names] == [
                getattr(other, name) for name in names
            ]


def test_stat_of_the_names_of_one_folder(tmp_path):
    paths = [str(tmp_path / f"{i}") for i in range(200)]
    for i, path in enumerate(paths[:150]):
        Path(path).write_bytes(bytes(i))
        os.utime(path, ns=(i, -i * 10**9))
    for some in (paths, paths[:7], [*paths, str(tmp_path) + "/"], [f"{p}/none" for p in paths]):
        pairs = zip(stat_files(some), [told(os.stat, path) for path in some], strict=True)
        assert all(same(*pair) for pair in pairs)


def test_files_of_all_lengths_are_read_whole(tmp_path):
    paths = []
    for size in SIZES * 20:
        paths.append(tmp_path / f"{len(paths)}")
        paths[-1].write_bytes(os.urandom(size))
    assert read_files(paths) == [path.read_bytes() for path in paths]
    assert read_files(map(str, paths[:3])) == [path.read_bytes() for path in paths[:3]]
    assert read_files([]) == stat_files(()) == unlink_files(iter([])) == []
    assert not descriptors.of(rf"{tmp_path}.*")


def test_files_that_say_no_length_are_read_whole(tmp_path):
    """Those of /proc are given in pieces."""
    paths = ["/proc/kallsyms", "/proc/cpuinfo", "/proc/self/status", "/proc/version"]
    found = read_files(paths)
    assert [len(one) > 0 for one in found] == [True] * 4
    assert (found[1][:9], found[3]) == (b"processor", Path("/proc/version").read_bytes())
    assert found[0].count(b"\n") == Path("/proc/kallsyms").read_bytes().count(b"\n")


def test_what_cannot_be_read_is_an_error_in_its_place(tmp_path):
    good = tmp_path / "good"
    good.write_bytes(b"good")
    paths = [tmp_path / "absent", tmp_path, good, good / "none"]
    found = read_files(paths)
    wanted = [told(lambda p: Path(p).read_bytes(), path) for path in paths]
    assert [same(*pair) for pair in zip(found, wanted, strict=True)] == [True] * 4
    (unreadable,) = read_files(["/proc/self/mem"])
    assert (unreadable.errno, unreadable.filename) == (errno.EIO, "/proc/self/mem")
    with pytest.raises(FileNotFoundError, match="absent"):
        raise found[0]


def test_files_are_unlinked_and_what_cannot_be_stays(tree):
    paths = [str(tree / name) for name in ("to file", "fifo", "absent", "folder 0", "dangling")]
    found = unlink_files(paths)
    assert [type(one) for one in found] == [
        type(None), type(None), FileNotFoundError, IsADirectoryError, type(None)
    ]  # fmt: skip
    assert sorted(os.listdir(tree))[0:3] == ["folder 0", "folder 1", "folder 2"]
    assert (tree / "folder 0/in/file").exists()


@pytest.mark.parametrize("function", [stat_files, read_files, unlink_files])
def test_a_list_with_something_else_is_refused_before_anything_is_done(tmp_path, function):
    path = tmp_path / "file"
    path.write_bytes(b"")
    for wrong, error in (
        ([path, 3], TypeError), ([path, None], TypeError), ([path, "a\0b"], ValueError),
        (7, TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            function(wrong)
    for one in (path, str(path), os.fsencode(path)):
        with pytest.raises(TypeError, match="a list of paths, and not one path"):
            function(one)
    assert path.exists()


@pytest.mark.parametrize("links", [False, True])
def test_a_walk_meets_what_pythons_walk_meets(tree, links):
    (tree / "folder 1/back").unlink()
    for top in (str(tree), os.fsencode(tree), tree):
        assert list(walk(top, followlinks=links)) == list(os.walk(top, followlinks=links))
    some = []
    for path, folders, _ in walk(str(tree)):
        some.append(os.path.relpath(path, tree))
        folders[:] = [name for name in sorted(folders) if name == "folder 2" or path != str(tree)]
    assert some == [".", "folder 2", "folder 2/in", "folder 2/in/side"]


def test_a_walk_says_what_it_could_not_read(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "file").write_bytes(b"")
    for top in (tmp_path / "absent", tmp_path / "file"):
        ours: list[OSError] = []
        by_python: list[OSError] = []
        assert list(walk(top, ours.append)) == list(os.walk(top, onerror=by_python.append)) == []
        assert same(ours[0], by_python[0])
    with pytest.raises(TypeError):
        next(walk(None))  # type: ignore[type-var]


def test_other_threads_run_while_a_list_is_read(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    threading.Timer(0.1, (tmp_path / "fifo").write_bytes, (b"from a thread",)).start()
    assert read_files([tmp_path / "fifo"]) == [b"from a thread"]


def test_a_handler_that_raises_ends_a_list_and_leaves_nothing_open(tmp_path):
    for i in range(100):
        (tmp_path / f"{i}").write_bytes(bytes(100_000))
    os.mkfifo(tmp_path / "fifo")
    held = os.open(tmp_path / "fifo", os.O_RDWR)
    paths = [tmp_path / f"{i}" for i in range(100)]
    paths.insert(50, tmp_path / "fifo")

    def stop(*_):
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(3):
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                read_files(paths)
            assert descriptors.of(rf"{tmp_path}.*") == [f"{tmp_path}/fifo"]
    finally:
        signal.signal(signal.SIGALRM, old)
        os.close(held)


def test_stat_has_the_fields_of_fstat(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    os.utime(path, ns=(1_000_000_002, 3_000_000_004))
    found, wanted = Stat(), path.stat()
    with Batch(1) as batch, path.open("rb") as file:
        batch.fstat(file, found)
        batch.flush()
    for name in ("dev", "ino", "nlink", "mode", "uid", "gid", "rdev", "size", "blksize", "blocks"):
        assert getattr(found, f"st_{name}") == getattr(wanted, f"st_{name}")
    assert (found.st_atime, found.st_atime_ns) == (1, 2)
    assert (found.st_mtime, found.st_mtime_ns) == (3, 4)
    assert found.st_ctime * 10**9 + found.st_ctime_ns == wanted.st_ctime_ns
    assert stat.S_ISREG(found.st_mode)
    assert memoryview(found).nbytes == {"x86_64": 144, "aarch64": 128}[platform.machine()]
