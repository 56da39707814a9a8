# SPDX-License-Identifier: GPL-2.0-only
"""Documents say what is so: links lead somewhere, commands exist, examples are the examples.

It reads README.md, CONTRIBUTING.md, docs/, the READMEs of parts, and the manual pages.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import click
import pytest

from tests.make import make
from trapless import cli

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = sorted(
    path
    for pattern in (
        "*.md", "docs/*.md", "docs/results/*/*.md", "eval/**/*.md", "examples/**/*.md", "kmod/*.md",
        "lib/**/*.md", "sampler/*.md", "trapless/**/*.md",
    )
    for path in ROOT.glob(pattern)
)  # fmt: skip
PAGES = sorted((ROOT / "man").glob("*.[1-8]"))
README = ROOT / "README.md"
RESULTS = sorted(path for path in (ROOT / "docs/results").iterdir() if path.is_dir())
FIRST = ROOT / "docs/results/6.1"
"""The results that README.md and documents cite; the others are compared with these."""
REMAKE = " ".join(
    [
        f"bin/trapless report {FIRST.relative_to(ROOT)} --readme README.md",
        *(f"--compare {folder.relative_to(ROOT)}" for folder in RESULTS if folder != FIRST),
    ]
)


def named(path):
    return path.relative_to(ROOT).as_posix()


def anchors(text):
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in headings}


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_links_lead_somewhere(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        place = (path.parent / name).resolve() if name else path
        assert place.exists(), f"{named(path)} links to {target}"
        if anchor and place.suffix == ".md":
            assert anchor in anchors(place.read_text()), f"{named(path)} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_a_link_that_shows_a_files_name_leads_to_that_file(path):
    links = re.findall(r"\[`?([\w./-]+\.(?:c|h|py|json))`?\]\(([^)#\s]+)", path.read_text())
    assert [pair for pair in links if Path(pair[0]).name != Path(pair[1]).name] == []


def shell_lines(text):
    """Command lines that a document tells people to type, without prompts and comments."""
    for block in re.findall(r"```(?:sh|console)\n(.*?)```", text, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.removeprefix("$ ")
    for line in re.findall(r"`((?:bin/)?trapless [^`]+|make [^`]+)`", text):
        yield line


def check_command(line):
    """Assert that a `trapless` or `make` line names what exists."""
    words = shlex.split(line, comments=True)
    if not words or Path(words[0]).name not in {"trapless", "make"}:
        return
    if words[0] == "make":
        targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M)
        for word in words[1:]:
            if word.startswith("build/"):  # a file: make knows how to build it
                subprocess.run(["make", "-C", ROOT, "-n", word], check=True, capture_output=True)
                continue
            assert word.startswith("-") or "=" in word or word in targets, line
        return
    command: click.Command = cli.cli
    words = words[1:]
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no such command: {line}"
        command = command.commands[words.pop(0)]
    options = {opt for param in command.params for opt in param.opts} | {"--help", "-h"}
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            assert word.split("=")[0] in options, f"no option {word}: {line}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=named)
def test_commands_that_documents_name_exist(path):
    for line in shell_lines(path.read_text()):
        check_command(line)


def test_that_check_finds_wrong_commands():
    for line in ("trapless fly", "trapless lab --warp -- true", "make coffee"):
        with pytest.raises(AssertionError):
            check_command(line)


def test_the_first_program_is_the_example():
    block = re.search(r"```c\n(.*?)```", README.read_text(), re.S)
    source = (ROOT / "examples" / "first.c").read_text()
    code = re.sub(r"\A(\s*(/\*.*?\*/|//[^\n]*))*\s*", "", source, flags=re.S)
    assert block and block[1].strip() == code.strip()


def test_git_ignores_the_environments_that_documents_make():
    texts = [path.read_text() for path in DOCUMENTS]
    made = {name for text in texts for name in re.findall(r"python3 -m venv ([\w.]+)", text)}
    assert made <= {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert "env" in made


def test_the_first_program_prints_what_readme_shows():
    if Path("/dev/trapless").exists():
        pytest.skip("README shows what it prints without the module")
    shown = re.search(r"```c\n.*?```text\n(.*?)```", README.read_text(), re.S)
    program = ROOT / "build/examples/first"
    make(program)
    env = {name: value for name, value in os.environ.items() if name != "TRAPLESS_BACKEND"}
    printed = subprocess.run([program], env=env, check=True, capture_output=True, text=True).stdout
    assert shown and re.fullmatch(re.escape(shown[1]).replace(r"\.\.\.", r"\d+"), printed)


def generated_part():
    from trapless.report import readme

    return README.read_text().split(readme.BEGIN + "\n")[1].split(readme.END)[0]


@cache
def analysed(folder):
    """What the raw data in a folder of saved results give, which takes seconds."""
    from trapless.base.console import Silent
    from trapless.experiments import report_files

    return report_files.read(folder, Silent())


@pytest.fixture
def saved():
    """The results that README.md names."""
    assert f"({FIRST.relative_to(ROOT)}/)" in generated_part()
    return analysed(FIRST)


def every_result(first):
    """All saved results, the cited ones first."""
    return [first, *(analysed(folder) for folder in RESULTS if folder != FIRST)]


@pytest.mark.slow
@pytest.mark.parametrize("folder", RESULTS, ids=named)
def test_the_page_of_saved_results_is_what_their_raw_data_say(folder):
    from trapless.report import saved_page

    page = (folder / saved_page.NAME).read_text()
    assert page == saved_page.document(analysed(folder), ROOT), f"`{REMAKE}` puts it right"


@pytest.mark.slow
def test_the_generated_part_of_the_readme_is_what_saved_results_say(saved):
    from trapless.report import plot, readme

    others = every_result(saved)[1:]
    assert readme.generated(saved, ROOT, others) == generated_part()
    native = README.read_text().split(readme.NATIVE_BEGIN + "\n")[1].split(readme.NATIVE_END)[0]
    assert readme.native(saved) == native
    picture = (saved.directory / readme.PICTURE_NAME).read_text()
    assert plot.shows(picture, readme.picture(saved))


@pytest.mark.slow
def test_the_comparison_of_kernels_is_what_saved_results_say(saved):
    from trapless.report import kernel_comparison

    groups = kernel_comparison.by_processor(every_result(saved))
    assert [len(group) for group in groups] == [3, 2]
    for group in groups:
        page = (group[0].directory / kernel_comparison.NAME).read_text()
        assert page == kernel_comparison.document(group), f"`{REMAKE}` puts it right"


@pytest.mark.slow
def test_no_cell_of_the_report_is_a_list(saved):
    tables = [table for section in saved.sections for table in section.drawn_tables]
    cells = [cell for table in tables for row in table.rows for cell in row]
    cells += [text for claim in saved.claims for text in (claim.published, claim.ours)]
    assert len(cells) > 500
    assert [cell for cell in cells if re.search(r"\d%? +/ +[-\d]", cell)] == []


@pytest.mark.slow
def test_figures_that_documents_cite_are_what_saved_results_say(saved):
    from trapless.report import citations

    documents = citations.documents(ROOT)
    assert set(documents) <= set(DOCUMENTS)
    assert any(citations.FIGURE.search(path.read_text()) for path in documents)
    for path in documents:
        text = path.read_text()
        assert citations.filled(path, text, every_result(saved)) == text, (
            f"{path}: `{REMAKE}` puts it right"
        )


@cache
def words_of(page):
    """A manual page as plain text, options as they are typed."""
    run = subprocess.run(
        ["mandoc", "-T", "ascii", str(page)], capture_output=True, text=True, check=True
    )
    return re.sub(r".\x08", "", run.stdout)


def commands(group=cli.cli, path=()):
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


def page_of(path):
    """Commands may have a page of their own."""
    own = ROOT / "man" / f"trapless-{path[0]}.1"
    return own if own.exists() else ROOT / "man" / "trapless.1"


@pytest.mark.parametrize(("path", "command"), list(commands()), ids=lambda value: str(value))
def test_the_manual_has_every_command_and_option(path, command):
    text = words_of(page_of(path))
    assert f"trapless {' '.join(path)}" in text
    for param in command.params:
        if isinstance(param, click.Option):
            for option in param.opts:
                assert re.search(rf"(?<![\w-]){option}(?![\w-])", text), option


@pytest.mark.parametrize("group", [cli.cli, cli.cli.commands["peek"]], ids=lambda group: group.name)
def test_the_manual_has_no_command_that_is_not_there(group):
    page = "trapless.1" if group is cli.cli else f"trapless-{group.name}.1"
    source = (ROOT / "man" / page).read_text()
    shown = re.findall(r"^\.Nm\n\.Cm (\w+)", source, re.M)
    typed = re.findall(r"^(?:\.Dl )?(trapless .*)$", source, re.M)
    assert set(shown) == set(group.commands)
    assert typed
    for line in typed:
        check_command(line)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_manual_pages_are_well_formed(page):
    run = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True, text=True
    )
    assert run.stdout + run.stderr == ""


def test_the_changelog_has_the_version():
    from trapless import __version__

    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_architecture_names_every_file_of_the_module():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "kmod").rglob("*.[cS]"):
        assert f"| `{path.relative_to(ROOT / 'kmod').as_posix()}` |" in text
