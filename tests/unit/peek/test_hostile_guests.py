# SPDX-License-Identifier: GPL-2.0-only
"""A guest that attacks its observer: by names, by lists without an end, by tables that blow up.

Each attack was seen to crash, stall or fool the observer. A time limit holds for each test.
"""

from __future__ import annotations

import ast
import doctest
import hashlib
import html
import io
import json
import re
import struct
import time
from pathlib import Path

import jinja2
import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from tests.unit.peek.kernel.test_target import BytesMemory, opened
from tests.unit.peek.kernel.test_tasks import INIT, KTHREAD, SERVER, SIGNAL, Lists
from tests.unit.peek.test_summary import busy_and_idle, head, recorded
from tests.unit.peek.toy_kernel import LINKED, SHIFT, ToyKernel, Types
from trapless.base import jail
from trapless.peek import guest_text as guest_text_file
from trapless.peek import limits
from trapless.peek.errors import PeekError
from trapless.peek.guest_text import GuestText, visible
from trapless.peek.kernel import kallsyms, symbol_cache, tasks
from trapless.peek.kernel.btf import Btf
from trapless.peek.kernel.image import locate
from trapless.peek.kernel.memories.images import open_memory
from trapless.peek.kernel.target import Target
from trapless.peek.limits import TEXT_CHARS_MAX
from trapless.peek.sampling import recording_figures, recording_tables
from trapless.peek.sandbox.client import Resolver, open_target
from trapless.peek.trace.event_decoder import NEEDED, Decoder
from trapless.peek.trace.rings import Place
from trapless.report import text_report
from trapless.report.figures import Table

pytestmark = [pytest.mark.usefixtures("own_cache"), pytest.mark.timeout(60)]

ROOT = Path(__file__).resolve().parents[3]
READERS = ("kernel", "sampling", "trace")
DECODES_NO_GUEST = {"sample_rows.py", "sampler.py", "process_memory.py"}
"""They decode what our own sampler says, and what this machine's /proc says of a process."""
DECODERS = {"self._decoder.decode", "kallsyms.decode"}
"""They decode events and tables, and no text."""

EVIL = (
    b"\x1b]0;PWNED\x07",
    b"\x1b[2J\x1b[41mX",
    b"a\nb fake/1 evt",
    b"x\rOVERWRITE",
    b"\x9b31mCSI8",
    b"\xc2\x9b31m",
    b"\xff\xfe\xc3(",
    b"\xe2\x80\xae\xe2\x81\xa6reversed",
    b"\xf3\xa0\x80\x81tag",
    b"A" * 100_000,
)


# ---- Text ----------------------------------------------------------------------------------------


def test_examples_are_so():
    assert doctest.testmod(guest_text_file).failed == 0


@pytest.mark.parametrize("data", EVIL)
def test_text_of_a_guest_is_visible_and_bounded(data):
    text = str(GuestText(data))
    assert text.isprintable() and 0 < len(text) <= TEXT_CHARS_MAX
    assert visible(text) == text
    assert visible(data.decode("utf-8", "surrogateescape")).isprintable()


@pytest.mark.parametrize(
    "code", (0x34F, 0x115F, 0x17B4, 0x180B, 0x200B, 0x2800, 0x3164, 0xFE0F, 0xFFA0, 0xE0100)
)
def test_a_name_with_a_character_that_nobody_sees_looks_like_no_other(code):
    """Some of them are letters or symbols by their kind, and printable therefore."""
    name = str(GuestText(f"init{chr(code)}".encode()))
    assert name == "init" + chr(code).encode("unicode_escape").decode() == visible(name)


def test_honest_names_stay_as_they_are():
    for name in ("kworker/0:1H-kblockd", "Größe", "virtnet_poll [virtio_net]", "a\\b <c> [d]"):
        assert str(GuestText(name.encode() + b"\0rest")) == visible(name) == name


@pytest.mark.parametrize("folder", READERS)
def test_nothing_else_decodes_bytes_of_a_guest(folder):
    for path in (ROOT / "trapless/peek" / folder).glob("*.py"):
        if path.name not in DECODES_NO_GUEST:
            decoded = set(re.findall(r"(?<!def )(\S+\.decode)\(", path.read_text()))
            assert decoded <= DECODERS, f"{path.name}: {decoded - DECODERS}; use GuestText"


def test_text_of_a_guest_is_no_str_and_leaves_visibly_only():
    """mypy finds what passes it as a str (test_peek_hostile_memories.py); so does Python."""
    text = GuestText(b"\x1b[2J[bold]<b>hid\n")
    assert not isinstance(text, str | bytes)
    shown = "\\x1b[2J[bold]<b>hid\\n"
    assert {str(text), f"{text}", format(text), "%s" % text} == {shown}  # noqa: UP031
    public = {name for name in dir(GuestText) if not name.startswith("_")}
    assert public == {"stored", "says", "starts", "with_tabs"}
    assert GuestText(b"\ta\x1b\n\tb").with_tabs() == "\ta\\x1b\\n\tb"
    for pass_on in (json.dumps, "".join, io.StringIO().write, bytes, Text):
        with pytest.raises((TypeError, AttributeError)):
            pass_on([text] if pass_on == "".join else text)
    terminal = io.StringIO()
    console = Console(file=terminal, width=100)  # as anybody makes one: it reads markup
    console.print(text)
    assert terminal.getvalue() == shown + "\n"
    page = jinja2.Environment(autoescape=True).from_string("{{ text }}").render(text=text)
    assert page == html.escape(shown)


def test_no_console_reads_markup():
    consoles = 0
    for path in (ROOT / "trapless").rglob("*.py"):
        source = path.read_text()
        assert not re.search(r"from_markup|render_markup|\bMarkup\(", source)
        if not re.search(r"\bConsole\(", source):
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "Console":
                continue
            consoles += 1
            given = {one.arg: ast.unparse(one.value) for one in node.keywords}
            assert given.get("markup") == given.get("emoji") == "False", path
    assert consoles > 3


def test_markup_in_a_table_is_text(capsys):
    names = ("[/red]x", "[bold]hid", "virtnet_poll [virtio_net]", "[link=http://a]", "\\[b]")
    table = Table("t", "", ("name", "[share]"), tuple((name, "[/]") for name in names))
    text_report.show_tables([table])
    shown = capsys.readouterr().out
    assert "[share]" in shown and all(name in shown for name in names)


@pytest.mark.slow
@pytest.mark.parametrize(
    "comm", [b"[/red]x", b"<script>1</scri", b"\x1b]0;PWNED\x07", b"a\nb fake"]
)
def test_a_process_cannot_write_to_the_observers_terminal_or_page(comm, tmp_path, capsys):
    rows = busy_and_idle(head())
    rows["cpu0.comm"] = np.frombuffer(comm.ljust(16, b"\0"), "V16")[0]
    recording = recorded(tmp_path / "r", head(), rows)
    text_report.show_tables(recording_tables.tables(recording))
    shown = capsys.readouterr().out
    assert str(GuestText(comm)) in shown
    assert all(line.isprintable() for line in shown.splitlines())
    recording_figures.write(recording, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert html.escape(str(GuestText(comm))) in page and comm.decode() not in page.replace(
        "[/red]x", ""
    )


def test_release_and_names_of_a_hostile_kernel_are_visible():
    kernel = ToyKernel(release="6.1.0-\x1b]0;P\x07[41m")
    at = bytes(kernel.ram).index(b"toy_driver")
    kernel.put(at, b"\x1b[2Jdriver")
    target = opened(kernel)
    assert str(target.release) == "6.1.0-\\x1b]0;P\\x07[41m"
    assert str(target.release) in str(target.banner) and str(target.banner).isprintable()
    (module,) = target.modules
    assert str(target.name_of(module.addresses[0])) == "toy_open [\\x1b[2Jdriver]"


# ---- Budgets -------------------------------------------------------------------------------------


def test_task_lists_linked_to_themselves_end():
    lists = Lists()
    lists.ring(SERVER)  # a leader after itself, for ever
    lists.ring(SERVER + 16)  # and its threads, which never come to their head
    assert set(tasks.threads(lists)) == {6}


def test_lists_that_share_members_end(monkeypatch):
    monkeypatch.setattr(limits, "THREADS_MAX", 3)
    lists = Lists()
    lists.ring(INIT, SERVER, KTHREAD)
    lists.data[KTHREAD + 32 : KTHREAD + 40] = struct.pack("<Q", SIGNAL)  # the same threads again
    reads = []
    plain = lists.read
    lists.read = lambda address, length: reads.append(address) or plain(address, length)
    assert set(tasks.threads(lists)) == {2, 6, 7}
    assert len(reads) < 60


def test_btf_of_anonymous_members_inside_each_other_is_searched_once():
    types = Types()
    integer = types.integer("int", 4)
    inner = types.record("", 8, [("last", integer, 0)])
    for _ in range(30):  # 2^30 ways to the innermost
        inner = types.record("", 8, [("", inner, 0), ("", inner, 0)])
    types.record("nest", 8, [("", inner, 0), ("found", integer, 4)])
    btf = Btf(types.data())
    began = time.monotonic()
    assert btf.place("nest", "found").offset == 4 and btf.place("nest", "last").offset == 0
    with pytest.raises(PeekError, match="no member absent"):
        btf.place("nest", "absent")
    assert time.monotonic() - began < 10


def test_tokens_that_blow_names_up_are_refused():
    kernel = ToyKernel()
    table = kernel.physical(kernel.symbols["kallsyms_token_table"])
    kernel.put(table, b"A" * 60 + b"\0")
    index = kernel.physical(kernel.symbols["kallsyms_token_index"])
    kernel.put(index, struct.pack("<256H", *[0] * 255, 60))
    names = kernel.physical(kernel.symbols["kallsyms_names"])
    kernel.put(names, (b"\xff\x7f" + bytes(16383))[:1000])
    with pytest.raises(PeekError, match=r"16383 tokens|damaged"):
        opened(kernel)
    tables = kallsyms.RawTables(1, b"\x20" + bytes(32), b"A" * 60 + b"\0", bytes(512), b"", 0, None)
    with pytest.raises(PeekError, match=r"32 tokens and 1920 letters: it is damaged"):
        kallsyms.decode(tables, {}, 0)


def test_a_module_of_too_many_symbols_keeps_its_name(monkeypatch):
    kernel = ToyKernel()
    target = opened(kernel)
    (module,) = target.modules
    assert module.names
    monkeypatch.setattr(limits, "MODULE_SYMBOLS_TOTAL_MAX", 1)
    (module,) = opened(kernel).modules
    assert module.name.says("toy_driver") and not module.names


def test_copies_of_the_note_cost_nothing(monkeypatch):
    """500 pages with the true note's text, in front of the true one: one is verified."""
    kernel = ToyKernel()
    text = kernel.note()
    for number in range(200):
        kernel.put_note(text, 0x400000 + 4096 * number)
    verified = []
    plain = kallsyms.read_tables
    monkeypatch.setattr(kallsyms, "read_tables", lambda *a: verified.append(1) or plain(*a))
    image = locate([BytesMemory(kernel.ram)])
    assert image.info.address == 0x500000 and len(verified) == 1
    assert str(Target(image).release) == kernel.release


def test_notes_of_many_texts_are_bounded(monkeypatch):
    monkeypatch.setattr(limits, "NOTES_SEEN_MAX", 10)
    kernel = ToyKernel()
    for number in range(100):
        kernel.put_note(f"OSRELEASE=6.1.{number}\n", 0x400000 + 4096 * number)
    memory = BytesMemory(kernel.ram)
    with pytest.raises(PeekError, match="more than 10 different notes"):
        locate([memory])


def test_a_copy_in_front_does_not_hide_the_kernel():
    kernel = ToyKernel()
    kernel.put_note(kernel.note(), 0x400000)
    kernel.put_note(kernel.note().replace(f"{SHIFT:x}", "0"), 0x401000)
    assert opened(kernel).symbol("_text") == LINKED + SHIFT


@pytest.mark.parametrize("name", sorted(NEEDED))
def test_places_without_their_values_are_refused(name):
    with pytest.raises(PeekError, match=rf"events {name} have no .*damaged"):
        Decoder((Place.parse(name),), None)


def test_the_modules_own_places_are_accepted():
    rows = re.findall(
        r'\tROW\((\w+), "([\w.:]+)", \w+\)', (ROOT / "kmod/probe/event_tracepoint.c").read_text()
    )
    assert len(rows) > 20 and set(NEEDED) <= {name for name, _ in rows}
    Decoder(tuple(Place.parse(f"{name}:{labels}") for name, labels in rows), None)


DEAF = """
import sys, time; sys.path.insert(0, sys.argv[2])
from trapless.peek.sandbox.messages import receive, send
receive(0)
send(1, {"load": "0" * 40})
time.sleep(600)
"""


class LargeStore:
    """Has more for each build-id than a pipe takes."""

    def load(self, _: str) -> tuple[bytes, bytes]:
        return bytes(64), bytes(8 << 20)

    def save(self, *_: object) -> None:
        raise AssertionError


def test_a_sandbox_that_does_not_read_what_it_has_asked_for_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(jail, "PROGRAM", DEAF)
    monkeypatch.setattr(limits, "BUSY_FACTOR", 0.05)
    layouts = open_memory(ToyKernel().save(tmp_path))
    with pytest.raises(PeekError, match="took more than"):
        Resolver(layouts, LargeStore())
    for memory in layouts:
        memory.close()


TAKEN_OVER = """
import sys; sys.path.insert(0, sys.argv[2])
from trapless.peek.sandbox.messages import receive, send
receive(0)
for message in ({"load": BUILD_ID}, None, {"save": BUILD_ID}, DIGEST, TEXT, {"error": "none"}):
    (receive(0), receive(0)) if message is None else send(1, message)
"""


def test_a_sandbox_that_was_taken_over_renames_nothing_that_is_kept(tmp_path, monkeypatch):
    kernel = ToyKernel()
    ram, kept = kernel.save(tmp_path), symbol_cache.FileStore()
    open_target(ram).close()
    before = kept.load(kernel.build_id)
    assert before is not None
    evil = before[1].replace(b" schedule\n", b" innocent\n")
    assert evil != before[1]
    digest = before[0].split()[0] + f" {hashlib.sha256(evil).hexdigest()}\n".encode()
    values = {"BUILD_ID": kernel.build_id, "DIGEST": digest, "TEXT": evil}
    program = "\n".join(f"{name} = {value!r}" for name, value in values.items()) + TAKEN_OVER
    with monkeypatch.context() as patch:
        patch.setattr(jail, "PROGRAM", program)
        with pytest.raises(PeekError, match="none"):
            open_target(ram)
    assert kept.load(kernel.build_id) == before
