# SPDX-License-Identifier: GPL-2.0-only
"""libtrapless for Python: what a batch, a program and an event loop see, and the three examples.

tests/lab/lib/test_lab_bindings.py runs this file in a guest, too, where the module makes the calls.
"""

from __future__ import annotations

import asyncio
import doctest
import errno
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path

import pytest

import libtrapless
from libtrapless import Backend, Batch, Condition, Stat, Word, number
from libtrapless.aio import AsyncBatch
from tests import random_trees
from tests.packages.conftest import BINDING, run_python

IN_GUEST = os.environ.get("TRAPLESS_BACKEND") == "module"
"""In a guest all is built, and this machine's files are read-only."""


@pytest.fixture
def batch():
    with Batch(64) as fresh:
        assert fresh.backend is (Backend.MODULE if IN_GUEST else Backend.PLAIN)
        yield fresh


def test_a_batch_says_why_its_calls_are_plain(batch):
    assert (batch.reason is None) == IN_GUEST
    with Batch(backend=Backend.PLAIN) as plain:
        assert plain.reason == "the program asks for plain calls (TL_PLAIN)"
    with pytest.raises(ValueError, match="closed"):
        plain.reason  # noqa: B018


def crossings(batch) -> int | None:
    """Crossings, where they are not just the calls."""
    return batch.stats.crossings if IN_GUEST else None


def test_its_page_is_true():
    assert doctest.testmod(libtrapless).failed == 0
    page = doctest.testfile(str(BINDING / "README.md"), module_relative=False)
    assert page.failed == 0 and page.attempted > 20


def test_names_are_shown_where_programs_import_them_from():
    for module in (libtrapless, libtrapless.aio):
        for name in module.__all__:
            assert getattr(module, name).__module__ == module.__name__, name


def test_its_programs_print_what_the_page_says():
    page = (BINDING / "README.md").read_text(encoding="utf-8")
    programs = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```\n", page, re.DOTALL)
    assert len(programs) == page.count("```python\n") == 2
    for program, wanted in programs:
        done = run_python("-c", program)
        assert (done.stdout, done.stderr) == (wanted, "")


def test_calls_have_results_and_errors(batch):
    parent = batch.add(number("getppid"))
    absent = batch.openat("/absent")
    with pytest.raises(RuntimeError, match="flush the batch first"):
        parent.result()
    assert (len(batch), batch.flush(), len(batch)) == (2, 2, 0)
    assert parent.result() == os.getppid()
    with pytest.raises(FileNotFoundError, match="/absent") as caught:
        absent.result()
    assert (caught.value.errno, absent.value) == (errno.ENOENT, -errno.ENOENT)
    assert crossings(batch) in (None, 1)


def test_arguments_that_cannot_be_are_refused(batch):
    for arguments, error in (
        ((7,) * 7, TypeError), (("a\0b",), ValueError), ((1.5,), TypeError), (([],), TypeError),
    ):  # fmt: skip
        with pytest.raises(error):
            batch.add("close", *arguments)
    with pytest.raises(ValueError, match="no system call has the name 'opn'"):
        batch.add("opn")
    for refused in ("execve", number("exit")):
        with pytest.raises(OSError, match=r"in a batch: (replaces the program|ends the)") as caught:
            batch.add(refused, 0)
        assert caught.value.errno == errno.EOPNOTSUPP
    with pytest.raises(TypeError, match="use a bytearray"):
        batch.read(0, b"fixed")
    with pytest.raises(ValueError, match="64 bits at 4 is not in a buffer of 8 bytes"):
        Word(bytearray(8), 4)
    with pytest.raises(ValueError, match="more than the buffer's 3 bytes"):
        batch.write(1, b"abc", 4)
    with Batch(8) as other, pytest.raises(ValueError, match="another batch"):
        batch.close_file(other.openat("/"))
    assert len(batch) == 0


def test_a_batch_is_full_until_a_flush():
    with Batch(3) as rounded:
        for _ in range(4):
            rounded.add("getppid")
        with pytest.raises(BlockingIOError):
            rounded.add("getppid")
    with pytest.raises(OSError, match="4097"):
        Batch(4097)
    with Batch(2) as small:
        small.add("getppid")
        small.add("getppid")
        with pytest.raises(BlockingIOError, match="flush them before getppid"):
            small.add("getppid")
        assert small.flush() == 2
        small.add("getppid")
    with pytest.raises(ValueError, match="closed"):
        small.flush()


def test_memory_lives_until_the_flush(batch, tmp_path):
    stat, buffer = Stat(), bytearray(16)
    gone = weakref.ref(stat)
    path = tmp_path / "file"
    path.write_bytes(b"0123456789")
    file = batch.openat(str(path), os.O_RDWR)
    batch.fstat(file, stat)
    batch.read(file, buffer)
    batch.write(file, bytes(range(65, 70)))  # nobody else has it
    batch.close_file(file)
    del stat
    gc.collect()
    assert gone() is not None and gone().st_size == 0
    with pytest.raises(BufferError):
        buffer.extend(b"no room")
    batch.flush()
    gc.collect()
    assert gone() is None
    buffer.extend(b"room")
    assert (bytes(buffer[:10]), path.read_bytes()) == (b"0123456789", b"0123456789ABCDE")


def test_what_cannot_be_changed_is_copied(batch):
    fixed = b"fixed"
    read_end, write_end = os.pipe()
    os.write(write_end, b"other")
    batch.add("read", read_end, fixed, len(fixed))
    batch.flush()
    assert fixed == b"fixed"
    os.close(read_end)
    os.close(write_end)


def test_calls_behind_a_failed_one_are_cancelled(batch):
    stat, buffer = Stat(), bytearray(8)
    file = batch.openat("/absent")
    behind = [batch.fstat(file, stat), batch.read(file, buffer), batch.close_file(file)]
    assert batch.flush() == 4
    assert [call.value for call in behind] == [-errno.ECANCELED] * 3
    # Once it is complete, a call as an argument is what it returned.
    with pytest.raises(FileNotFoundError):
        batch.close_file(file)


def test_a_loop_copies_a_file_in_one_crossing(batch, tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(1 << 20))
    buffer = bytearray(1 << 16)
    with source.open("rb") as reader, target.open("wb") as writer:
        read = batch.read(reader, buffer)
        written = batch.write(writer, buffer, read)
        batch.jump(written, Condition.POSITIVE, read)
        assert batch.flush() == 2
        assert written.result() == 0
    assert target.read_bytes() == source.read_bytes()
    assert batch.stats.executed == 2 * 17
    assert crossings(batch) in (None, 1)


def test_words_are_read_when_the_call_is_made(batch):
    ends, count, buffer = bytearray(8), bytearray(8), bytearray(16)
    batch.add("pipe2", ends, os.O_CLOEXEC)
    batch.store(Word(count), 3)
    batch.increase(Word(count), 4)
    batch.add("write", Word(ends, 4, 32), b"0123456789", Word(count))
    read = batch.read(Word(ends, 0, 32), buffer)
    batch.close_file(Word(ends, 0, 32))
    batch.close_file(Word(ends, 4, 32))
    batch.flush()
    assert (read.result(), bytes(buffer[:7]), Word(count).value) == (7, b"0123456", 7)
    for end in (Word(ends, 0, 32), Word(ends, 4, 32)):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(end.value)


def test_jumps_lead_to_calls_and_to_the_end(batch):
    first = batch.add("getppid")
    skipped = batch.add("getppid")
    then = batch.openat("/absent")
    last = batch.add("getppid")
    batch.jump(first, Condition.SUCCESS, then)
    batch.jump(then, Condition.ERROR)
    batch.flush()
    assert [skipped.value, last.value] == [-errno.ECANCELED] * 2
    assert then.value == -errno.ENOENT
    with pytest.raises(ValueError, match="not queued"):
        batch.jump(first, Condition.ALWAYS)


def test_a_program_stops_at_its_budget_and_goes_on(batch):
    count = bytearray(8)
    again = batch.increase(Word(count), 1)
    batch.jump(again, Condition.ALWAYS, again)
    for rounds in (100, 200):
        with pytest.raises(OSError, match="stands at <Call 0 increase") as caught:
            batch.flush(steps=100)
        assert caught.value.errno == errno.ETIME
        assert Word(count).value == rounds
    assert batch.at is again
    batch.jump(again, Condition.ERROR)
    assert batch.flush() == 1
    assert again.result() == 201


def test_an_unordered_batch_knows_barriers_and_no_jumps():
    with Batch(8, unordered=True) as batch:
        one = batch.add("getppid")
        batch.barrier()
        with pytest.raises(OSError, match="knows no jumps"):
            batch.jump(one, Condition.ALWAYS)
        batch.add("getppid")
        assert batch.flush() == 2


def test_a_signal_handler_runs_and_the_flush_goes_on(batch):
    """The call that was interrupted says so, or is made again; the others are made."""
    seen, (read_end, write_end) = [], os.pipe()
    old = signal.signal(signal.SIGALRM, lambda *_: seen.append(os.write(write_end, b"x")))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    batch.add("getppid")
    read = batch.read(read_end, bytearray(8))
    last = batch.add("getppid")
    try:
        assert batch.flush() == 3
    finally:
        signal.signal(signal.SIGALRM, old)
        os.close(read_end)
        os.close(write_end)
    assert (seen, last.result()) == ([1], os.getppid())
    assert read.value in (1, -errno.EINTR)


def test_a_handler_that_raises_leaves_the_rest_queued(batch):
    def stop(*_):
        raise KeyboardInterrupt

    read_end, write_end = os.pipe()
    old = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    read = batch.read(read_end, bytearray(8))
    last = batch.add("getppid")
    try:
        with pytest.raises(KeyboardInterrupt):
            batch.flush()
    finally:
        signal.signal(signal.SIGALRM, old)
        os.close(read_end)
        os.close(write_end)
    assert not last.done and len(batch) == 1
    assert batch.flush() == 1
    assert last.result() == os.getppid()
    with pytest.raises(InterruptedError):
        read.result()


def test_a_batch_belongs_to_the_process_that_made_it(batch):
    batch.add("getppid")
    child = os.fork()
    if child == 0:
        status = 1
        try:
            batch.flush()
        except PermissionError:
            try:
                batch.add("getppid")
            except BlockingIOError:
                status = 0
        os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert batch.flush() == 1


def test_a_flush_lets_other_threads_run(batch):
    read_end, write_end = os.pipe()
    read = batch.read(read_end, bytearray(8))
    threading.Timer(0.1, os.write, (write_end, b"x")).start()
    batch.flush()
    assert read.result() == 1
    os.close(read_end)
    os.close(write_end)


# ---- asyncio -------------------------------------------------------------------------------------


def test_an_event_loop_goes_on_while_a_flush_waits():
    async def main():
        read_end, write_end = os.pipe()
        buffer = bytearray(8)
        async with AsyncBatch(8) as batch:
            read = batch.read(read_end, buffer)
            flush = asyncio.create_task(batch.flush())
            await asyncio.sleep(0.05)
            assert not flush.done()
            for action in (lambda: batch.add("getppid"), batch.flush):
                with pytest.raises(RuntimeError, match="under way"):
                    await asyncio.ensure_future(action())
            os.write(write_end, b"data")
            assert await flush == 1
            parent = batch.add("getppid")
            assert (await batch.flush(), parent.result()) == (1, os.getppid())
        os.close(read_end)
        os.close(write_end)
        assert (read.result(), bytes(buffer[:4])) == (4, b"data")

    asyncio.run(main())


def test_the_calls_of_a_task_that_is_cancelled_are_made_and_their_memory_lives():
    async def main():
        read_end, write_end = os.pipe()
        stat, batch = Stat(), AsyncBatch(8)
        gone = weakref.ref(stat)
        batch.read(read_end, bytearray(8))
        last = batch.fstat(read_end, stat)
        del stat
        flush = asyncio.create_task(batch.flush())
        await asyncio.sleep(0.05)
        flush.cancel()
        with pytest.raises(asyncio.CancelledError):
            await flush
        batch.close()
        gc.collect()
        assert gone() is not None and not last.done
        os.write(write_end, b"x")
        limit = time.monotonic() + 600
        while not last.done and time.monotonic() < limit:
            await asyncio.sleep(0.01)
        assert last.result() == 0
        with pytest.raises(ValueError, match="closed"):
            batch.add("getppid")
        os.close(read_end)
        os.close(write_end)

    asyncio.run(main())


def test_a_flush_that_fails_raises_where_it_is_awaited():
    async def main():
        async with AsyncBatch(8) as batch:
            again = batch.add("getppid")
            batch.jump(again, Condition.ALWAYS, again)
            with pytest.raises(OSError, match="has made 10 steps"):
                await batch.flush(steps=10)

    asyncio.run(main())


# ---- Examples ------------------------------------------------------------------------------------


def example(name: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    done = run_python(BINDING / "examples" / name, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_the_first_program_runs():
    lines = example("first.py").stdout.splitlines()
    way = lines.pop(0)
    if IN_GUEST:
        assert way == "3 calls, one crossing"
    else:
        assert way.startswith("3 calls, one by one: the module is not loaded")
    assert lines == [
        f"getppid: {os.getpid()}", f"stat /: 0, inode {os.stat('/').st_ino}", "close -1: -9",
    ]  # fmt: skip


def test_wc_counts_as_wc_does_by_a_crossing_for_32_files(tmp_path):
    files = random_trees.texts(tmp_path)
    done = example("wc.py", tmp_path)
    assert set(done.stdout.splitlines()) == random_trees.counted(files)
    assert done.stderr == f"100 files, 400 calls, {4 if IN_GUEST else 400} crossings\n"


def test_cp_copies_a_tree_by_a_crossing_for_32_files(tmp_path):
    program = BINDING / "examples/cp.py"
    said = random_trees.copied_by(
        ["env", f"PYTHONPATH={BINDING}", sys.executable, program], tmp_path
    )
    # Of 12 empty files 5 each, of the long one 9, of any other 7.
    assert said == f"100 files, 678 calls, {4 if IN_GUEST else 678} crossings\n"


@pytest.mark.parametrize("name", ["cp.py", "log.py", "wc.py"])
def test_a_program_without_arguments_says_how_it_is_called(name):
    done = run_python(BINDING / "examples" / name)
    usage = re.search(r"^    python (.*)$", (BINDING / "examples" / name).read_text(), re.M)
    assert usage and (done.returncode, done.stderr) == (1, f"usage: {usage[1]}\n")


def test_a_log_commits_many_records_at_once(tmp_path):
    done = example("log.py", tmp_path / "log", "20", "5")
    records, commits, crossed = (int(word.split()[0]) for word in done.stdout.split(", "))
    assert records == 100 and 5 <= commits < 50
    assert crossed == (commits if IN_GUEST else records + commits)
    lines = (tmp_path / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"task {i} record {j}" for i in range(20) for j in range(5))
    for task in range(20):
        own = [line for line in lines if line.startswith(f"task {task} ")]
        assert own == [f"task {task} record {j}" for j in range(5)]


STRERROR = r"""
char *strerror(int error)
{
	(void)error;
	return "refus\xe9";
}
"""


def test_errors_may_have_texts_in_the_encoding_of_another_locale(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As a locale with LC_MESSAGES in Latin-1 has them; os accepts that, too."""
    (tmp_path / "strerror.c").write_text(STRERROR)
    library = tmp_path / "strerror.so"
    compiled = ["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "strerror.c")]
    subprocess.run(compiled, check=True)
    monkeypatch.setenv("LD_PRELOAD", str(library))
    program = """
import asyncio, errno, os
import libtrapless
from libtrapless import Batch
from libtrapless.aio import Files

def raised_by(f, *arguments):
    try:
        f(*arguments)
    except OSError as error:
        return error

async def stat(path):
    async with Files(workers=1) as files:
        await files.stat(path)

def flush(batch, *arguments):
    call = batch.add(*arguments)
    batch.flush()
    call.result()

one, full = Batch(1), Batch(1)
full.add("getppid")
errors = [
    raised_by(os.stat, "absent"),
    raised_by(asyncio.run, stat("absent")),
    raised_by(flush, one, "close", -1),
    raised_by(flush, one, "unlink", "absent"),
    raised_by(full.add, "getppid"),
    raised_by(libtrapless.scandir, "absent"),
    libtrapless.stat_files(["absent"])[0],
]
list(libtrapless.walk("absent", onerror=errors.append))
os.makedirs("top/below")
for entry in libtrapless.scantree("top"):
    if entry.kind == "unreadable":
        errors.append(entry.error)
    elif entry.name == "below":
        os.rmdir("top/below")
for error in errors:
    assert error.strerror.split(" (")[0] == "refus\\udce9", ascii(error)
assert len(errors) == 9
"""
    paths = {"PYTHONPATH": str(BINDING)}
    subprocess.run(
        [sys.executable, "-c", program], env=os.environ | paths, cwd=tmp_path, check=True
    )
