# SPDX-License-Identifier: GPL-2.0-only
"""examples/walk against du and find, on trees that are meant to trip it, without the module.

Owns the nasty trees and the comparison. The same program with the module, in a VM, is
tests/lab's business. Each comparison runs the ordinary build and one with sanitizers on the tree.
"""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.random_trees import grow

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SANITIZE = "-fsanitize=address,undefined -fno-sanitize-recover=all"
ENVIRONMENT = {"LC_ALL": "C", "PATH": os.environ["PATH"], "TRAPLESS_BACKEND": "plain"}
NOBODY = 65534
# Trees are quicker in memory; du and find treat a file system in memory and one on disk unlike.
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


@dataclass(frozen=True)
class Outcome:
    """What a program did."""

    status: int
    stdout: bytes
    stderr: bytes


def build(options: Sequence[str], program: str) -> Path:
    subprocess.run(["make", "-s", *options, program], cwd=ROOT, check=True)
    return ROOT / program


@pytest.fixture(scope="module")
def walks() -> Iterator[dict[str, Path]]:
    """Both builds, where any user may run them; the checkout may be in somebody's private folder.

    Messages begin with a program's name, so each is `walk`.
    """
    options = ["BUILD=build/sanitized", "STATIC=", f"SANITIZE={SANITIZE}"]
    built = {
        "ordinary": build([], "build/examples/walk"),
        "sanitized": build(options, "build/sanitized/examples/walk"),
    }
    folder = Path(tempfile.mkdtemp(prefix="trapless-walk-"))
    folder.chmod(0o755)
    for kind in built:
        (folder / kind).mkdir()
        (folder / kind).chmod(0o755)
    yield {kind: Path(shutil.copy2(path, folder / kind / "walk")) for kind, path in built.items()}
    shutil.rmtree(folder)


@pytest.fixture(params=["ordinary", "sanitized"])
def walk(request: pytest.FixtureRequest, walks: dict[str, Path]) -> Path:
    """Each build by itself, for what is not compared."""
    return walks[request.param]


@pytest.fixture
def tree() -> Iterator[Path]:
    """An empty folder that anybody may enter, removed however deep it has become."""
    folder = Path(tempfile.mkdtemp(prefix="trapless-walk-", dir=MEMORY))
    folder.chmod(0o755)
    yield folder
    subprocess.run(["rm", "-rf", folder], check=True)


def run(
    command: Sequence[str | bytes | Path],
    *,
    cwd: Path | None = None,
    limit: tuple[int, int] | None = None,
    user: int | None = None,
) -> Outcome:
    def prepare() -> None:
        if limit is not None:
            resource.setrlimit(limit[0], (limit[1], limit[1]))
        if user is not None:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)

    done = subprocess.run(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        timeout=600,
        preexec_fn=prepare if limit is not None or user is not None else None,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def complaints(stderr: bytes) -> bytes:
    """Standard error without the name of the program and with find's messages as they are."""
    return b"".join(line.split(b": ", 1)[1] for line in stderr.splitlines(keepends=True))


MODES: tuple[tuple[list[str], list[str], list[str]], ...] = (
    ([], ["du"], []),
    (["-a"], ["du", "-a"], []),
    (["-s"], ["du", "-s"], []),
    (["-x"], ["du", "-x"], []),
    (["--find"], ["find"], []),
    (["--find", "-x"], ["find"], ["-xdev"]),
)


def assert_equal(
    walks: dict[str, Path],
    name: str | bytes | Path,
    *,
    cwd: Path | None = None,
    limit: tuple[int, int] | None = None,
    user: int | None = None,
    options: Sequence[str] = (),
) -> None:
    """The same bytes on standard output, the same complaints, the same exit status."""
    for ours, theirs, after in MODES:
        expected = run([*theirs, name, *after], cwd=cwd, user=user)
        for kind, walk in walks.items():
            got = run([walk, *ours, *options, name], cwd=cwd, limit=limit, user=user)
            assert got.stdout == expected.stdout, (kind, ours, name)
            assert complaints(got.stderr) == complaints(expected.stderr), (kind, ours, name)
            assert got.status == expected.status, (kind, ours, name)


@pytest.mark.parametrize("seed", range(4))
def test_random_trees(walks: dict[str, Path], tree: Path, seed: int) -> None:
    generator = random.Random(seed)
    files = grow(tree, generator, 5)
    for i in range(40):  # names of one file in many directories: the first one met counts
        if files:
            chosen = generator.choice(files)
            os.link(chosen, generator.choice(files).parent / f"link{i}")
    assert_equal(walks, tree)
    assert_equal(walks, tree, options=["--batch=1"])
    assert_equal(walks, ".", cwd=tree)


def test_names_of_any_byte(walks: dict[str, Path], tree: Path) -> None:
    base = os.fsencode(tree)
    for i in range(1, 256):
        if i not in (ord("/"), ord(".")):
            os.mkdir(base + b"/" + bytes([i]))
            Path(os.fsdecode(base + b"/" + bytes([i]) + b"/" + bytes([i]) * 255)).touch()
    for name in (b"...", b"..a", b".hidden", b"-s", b"--find", b"a\nb", b"\xff\xfe"):
        os.mkdir(base + b"/" + name)
    assert_equal(walks, base)


@pytest.mark.parametrize("name", ["", "/", "//", "/.", "/../tree"])
def test_the_tree_as_it_is_named(walks: dict[str, Path], tree: Path, name: str) -> None:
    inner = tree / "tree"
    (inner / "sub").mkdir(parents=True)
    (inner / "sub" / "file").write_bytes(b"1")
    assert_equal(walks, f"tree{name}", cwd=tree)
    assert_equal(walks, f"{inner}{name}")


def test_a_tree_that_is_no_directory(walks: dict[str, Path], tree: Path) -> None:
    (tree / "file").write_bytes(b"x" * 5000)
    (tree / "dir").mkdir()
    (tree / "dir" / "inside").touch()
    (tree / "to-dir").symlink_to("dir")
    (tree / "dangling").symlink_to("nowhere")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.fspath(tree / "socket"))
    listener.close()
    for name in ("file", "to-dir", "to-dir/", "dangling", "socket", "absent", "file/", "to-dir/x"):
        assert_equal(walks, name, cwd=tree)


def test_no_tree_named_means_here(walk: Path, tree: Path) -> None:
    (tree / "a").mkdir()
    assert run([walk], cwd=tree) == run(["du"], cwd=tree)


def as_somebody() -> int | None:
    """Somebody whom permissions bind: root is not."""
    return NOBODY if os.geteuid() == 0 else None


def test_directories_that_cannot_be_read(walks: dict[str, Path], tree: Path) -> None:
    for mode in (0o000, 0o111, 0o444, 0o555):
        folder = tree / f"{mode:o}"
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / "file").touch()
        (folder / "file").write_bytes(b"x" * 9000)
        folder.chmod(mode)
    assert run([walks["ordinary"], tree], user=as_somebody()).status == 1
    assert_equal(walks, tree, user=as_somebody())
    assert_equal(walks, tree / "0", user=as_somebody())
    for folder in tree.iterdir():
        folder.chmod(0o755)  # so that anybody can remove it


def dig(tree: Path, depth: int, name: bytes, at_each_level: Callable[[int], None]) -> None:
    """Directories one in the other, deeper than any path can say."""
    fd = os.open(tree, os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(depth):
        at_each_level(fd)
        os.mkdir(name, dir_fd=fd)
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


@pytest.mark.parametrize("descriptors", [1024, 13])
def test_deeper_than_a_path_can_say(walks: dict[str, Path], tree: Path, descriptors: int) -> None:
    def branch(fd: int) -> None:
        for side in (b"a", b"z"):
            os.mkdir(side, dir_fd=fd)
            os.mkdir(side + b"/in", dir_fd=fd)

    dig(tree, 90, b"long" * 50, branch)
    assert_equal(walks, tree, limit=(resource.RLIMIT_NOFILE, descriptors))


@pytest.mark.parametrize("descriptors", [1024, 13])
def test_wide_directories(walks: dict[str, Path], tree: Path, descriptors: int) -> None:
    for i in range(600):
        (tree / f"dir{i}" / "in").mkdir(parents=True)
    assert_equal(walks, tree, limit=(resource.RLIMIT_NOFILE, descriptors))


@pytest.mark.parametrize("where", [None, MEMORY])
def test_directories_that_du_sorts_by_inode(walks: dict[str, Path], where: str | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="trapless-walk-", dir=where))
    try:
        generator = random.Random(7)
        names = [f"{generator.randrange(10**9):x}" for _ in range(10_400)]
        for i, name in enumerate(names):
            if i % 20:
                os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY))
            else:
                os.makedirs(folder / name / "in", exist_ok=True)
        for i in range(1, 400, 20):
            os.link(folder / names[i], folder / f"other{i}")
        assert_equal(walks, folder)
    finally:
        shutil.rmtree(folder)


def test_mounts(walks: dict[str, Path], tree: Path) -> None:
    for name in ("a/b/c", "other", "file-on-file"):
        (tree / name).mkdir(parents=True)
    (tree / "file-on-file" / "x").write_bytes(b"x" * 5000)
    script = (
        "mount -t tmpfs none other && mkdir other/d && echo 1 > other/d/f && "
        "mount --bind a a/b/c && mount --bind other/d/f file-on-file/x && "
    )
    probe = ["unshare", "-m", "sh", "-c", script + "true"]
    if run(probe, cwd=tree).status:
        pytest.skip("mounting is not allowed here; tests/lab does it in a VM")
    inside = ["unshare", "-m", "sh", "-c", script + 'exec "$@"', "sh"]
    for ours, theirs, after in MODES:
        expected = run([*inside, *theirs, ".", *after], cwd=tree)
        for kind, walk in walks.items():
            got = run([*inside, walk, *ours, "."], cwd=tree)
            assert got.stdout == expected.stdout, (kind, ours)
            assert complaints(got.stderr) == complaints(expected.stderr), (kind, ours)
            assert got.status == expected.status, (kind, ours)


def test_a_tree_that_changes_under_the_walk(walk: Path, tree: Path) -> None:
    grow(tree, random.Random(3), 5)
    stop = threading.Event()

    def churn() -> None:
        generator = random.Random(4)
        while not stop.is_set():
            folder = tree / f"churn{generator.randrange(8)}"
            shutil.rmtree(folder, ignore_errors=True)
            if folder.is_symlink():
                folder.unlink(missing_ok=True)
            if generator.random() < 0.3:
                folder.symlink_to("/usr")
            else:
                (folder / "x" / "y" / "z").mkdir(parents=True)
                (folder / "x" / "file").touch()

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(12):
            for option in ("-a", "--find"):
                got = run([walk, option, tree], limit=(resource.RLIMIT_NOFILE, 20))
                assert got.status in (0, 1), got.stderr
                assert (got.status == 1) == bool(got.stderr)
                assert b"/bin" not in got.stdout  # /usr is behind a link: never followed
                lines = got.stdout.splitlines()
                end = os.fsencode(tree)
                assert (lines[-1] if option == "-a" else lines[0]).endswith(end)
    finally:
        stop.set()
        thread.join()


def test_a_full_disk_is_an_error(walk: Path, tree: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [walk, tree], stdout=full, stderr=subprocess.PIPE, env=ENVIRONMENT, timeout=600
        )
    assert done.returncode == 1
    assert done.stderr == b"walk: write error: No space left on device\n"


def test_a_reader_that_leaves(walk: Path) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [walk, "-a", ROOT / "include"],
        stdout=write_end,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        timeout=600,
        preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL) and None,
    )
    os.close(write_end)
    assert done.returncode == -signal.SIGPIPE


def test_no_memory_is_said(walk: Path, tree: Path) -> None:
    if walk.parent.name == "sanitized":
        pytest.skip("the sanitizers' own memory does not fit a limit")
    for i in range(300):
        (tree / ("long" * 50 + str(i)) / "in").mkdir(parents=True)
    got = run([walk, tree], limit=(resource.RLIMIT_AS, 2 << 20))
    assert got.status == 1
    assert b"walk: " in got.stderr and b"memory" in got.stderr


@pytest.mark.parametrize(
    "arguments",
    [["-z"], ["--batch=0"], ["--batch=4097"], ["--batch=4x"], ["-a", "-s"], ["a", "b"], ["--bat"]],
)
def test_wrong_usage(walk: Path, arguments: list[str]) -> None:
    got = run([walk, *arguments])
    assert (got.status, got.stdout) == (2, b"")
    assert got.stderr.endswith(b"Try 'walk --help'.\n")


def test_stats_say_what_it_took(walk: Path, tree: Path) -> None:
    (tree / "a").mkdir()
    (tree / "b").touch()
    got = run([walk, "--stats", tree])
    # root: open, stat of 2, 2 reads, close; a: open, 2 reads, close
    assert got.stderr == b"walk: 10 calls, 10 crossings, plain\n"
    assert "Print what each directory" in run([walk, "--help"]).stdout.decode(sys.stdout.encoding)
