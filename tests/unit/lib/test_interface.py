# SPDX-License-Identifier: GPL-2.0-only
"""Holds the library's four lists of its functions equal, and its packaging usable.

The lists: include/trapless.h declares, lib/libtrapless.map exports, the shared library really has,
the manual pages explain. include/trapless_paper.h gives some functions a second name. The
packaging: pkg-config from the build tree and from an installation under DESTDIR, from C and from
C++. Behaviour is tested by the C programs in tests/unit/lib.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted([*(ROOT / "man").glob("*.3"), ROOT / "man/trapless.7"])
SECTIONS_3 = (
    "NAME",
    "SYNOPSIS",
    "DESCRIPTION",
    "RETURN VALUES",
    "EXAMPLES",
    "ERRORS",
    "SEE ALSO",
    "NOTES",
)
PROGRAM = """
#include <trapless_paper.h>

int main(void)
{
	struct tl_batch *batch;
	struct tl_psc *psc;
	char name[390];
	int slot;

	if (tl_batch_create(&batch, 8, TL_PLAIN))
		return 1;
	TL_ADD(batch, 63, name);
	slot = TL_ADD(batch, 39);
	if (tl_batch_flush(batch) != 2 || tl_batch_result(batch, (unsigned)slot) <= 0)
		return 2;
	tl_batch_destroy(batch);
	if (pscregist(&psc, 8, 0, TL_PLAIN) || pscnotify(psc) || pscwait(psc, 0))
		return 3;
	pscexit(psc);
	return switch_user(-1) == -3 ? 0 : 4;
}
"""


def sh(*command: str | Path, **environment: str) -> str:
    """Run a command in the checkout; its output. Fails the test with what the command said."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def library() -> Path:
    sh("make", "-s", "lib")
    return ROOT / "build/lib"


def header() -> str:
    """trapless.h and the parts of it that have files of their own."""
    parts = ("trapless.h", "trapless_files.h", "trapless_sched.h", "trapless_walk.h")
    return "".join((ROOT / "include" / name).read_text(encoding="utf-8") for name in parts)


def declared() -> tuple[set[str], set[str]]:
    """The header's functions: exported ones and inline ones."""
    text = re.sub(r"/\*.*?\*/", "", header(), flags=re.S)
    function = r"^(?!\s)((?:(?:TL_INLINE|static inline) )?)[\w ]+?[ *](tl_\w+)\("
    names = re.findall(function, text, flags=re.M)
    inline = {name for kind, name in names if kind}
    return {name for kind, name in names if not kind}, inline


@pytest.mark.parametrize(
    ("name", "functions"),
    [("libtrapless.map", 0), ("bindings/libtrapless-ffi.map", 1)],
)
def test_map_exports_what_the_header_declares(name: str, functions: int):
    text = (ROOT / "lib" / name).read_text(encoding="utf-8")
    exported = set(re.findall(r"^\t(\w+);", text, flags=re.M))
    assert exported == declared()[functions]


@pytest.mark.parametrize("name", ["libtrapless", "libtrapless-ffi"])
def test_shared_library_has_versioned_symbols(library: Path, name: str):
    """In libtrapless-ffi the inline functions are symbols, too."""
    exported, inline = declared()
    symbols = {f"{function}@@TRAPLESS_0.1" for function in exported}
    if name == "libtrapless-ffi":
        assert len(inline) > 5
        symbols |= {f"{function}@@TRAPLESS_FFI_0.1" for function in inline}
    listing = sh("nm", "-D", "--defined-only", library / f"{name}.so")
    assert {line.split()[-1] for line in listing.splitlines() if " A " not in line} == symbols
    dynamic = sh("readelf", "-d", library / f"{name}.so")
    assert f"soname: [{name}.so.0]" in dynamic
    # A worker whose call blocks runs in the library when a program has closed it by dlclose().
    assert re.search(r"Flags: .*\bNODELETE\b", dynamic)


def test_every_function_has_a_manual_page():
    exported, inline = declared()
    named: set[str] = set()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        named |= set(re.findall(r"^\.Nm (\w+)", text, flags=re.M))
    assert named >= exported | inline | set(aliases())


def aliases() -> dict[str, str]:
    """The papers' own names, with the function that each of them stands for."""
    text = (ROOT / "include/trapless_paper.h").read_text(encoding="utf-8")
    return dict(re.findall(r"^#define ([a-z_]+) (\w+)$", text, flags=re.M))


def test_the_papers_names_are_aliases_of_functions():
    papers = {"pscregist", "pscenter", "pscnotify", "pscwait", "pscexit"}
    assert set(aliases()) == papers | {"switch_supervisor", "switch_user"}
    assert set(aliases().values()) <= declared()[0]
    assert not re.search(rf"\b({'|'.join(aliases())})\b", header())


def test_no_function_has_the_name_of_a_type():
    text = header() + (ROOT / "include/uapi/linux/trapless.h").read_text(encoding="utf-8")
    types = set(re.findall(r"^(?:struct|enum) (\w+) \{", text, flags=re.M))
    exported, inline = declared()
    assert types and not types & (exported | inline)


def test_manual_pages_show_the_header_prototypes():
    """A prototype in a SYNOPSIS is the header's, but for spacing."""
    declarations = re.sub(r"\s+", "", re.sub(r"/\*.*?\*/", "", header(), flags=re.S))
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for kind, body in re.findall(r"^\.Ft (.*)\n\.Fo ([\s\S]*?)^\.Fc", text, flags=re.M):
            name, *arguments = body.replace('.Fa "', "").replace('"', "").splitlines()
            prototype = re.sub(r"\s+", "", f"{kind}{name}({','.join(arguments)})")
            assert prototype in declarations, f"{page.name}: {kind} {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_manual_page_is_clean(page: Path):
    lint = subprocess.run(
        ["mandoc", "-T", "lint", "-W", "style", page], capture_output=True, text=True, check=False
    )
    # Whether other pages are installed here says nothing about this one.
    lines = [line for line in lint.stdout.splitlines() if "referenced manual" not in line]
    assert not lines
    sections = re.findall(r"^\.Sh (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    if page.suffix == ".3":
        assert set(SECTIONS_3) <= set(sections)


@pytest.mark.parametrize("page", PAGES[:-1], ids=lambda page: page.name)
def test_example_of_manual_page_runs(library: Path, tmp_path: Path, page: Path):
    text = page.read_text(encoding="utf-8").split(".Sh EXAMPLES")[1]
    body = text.split(".Bd -literal\n")[1].split(".Ed")[0]
    source = tmp_path / "example.c"
    source.write_text(body.replace("\\e", "\\"), encoding="utf-8")
    flags = sh("pkg-config", "--cflags", "--libs", "trapless", PKG_CONFIG_PATH=str(library))
    strict = ["-Wall", "-Wextra", "-Werror"]
    sh("gcc", *strict, source, "-o", tmp_path / "example", *flags.split())
    assert sh(tmp_path / "example", LD_LIBRARY_PATH=str(library))


def compiled(compiler: str, source: Path, flags: list[str], out: Path) -> str:
    strict = ["-Wall", "-Wextra", "-Wconversion", "-Wshadow", "-Werror", "-pedantic"]
    sh(compiler, *strict, source, "-o", out, *flags)
    return sh(out, LD_LIBRARY_PATH=flags[-2].removeprefix("-L"))


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["gcc", "clang", "g++", "clang++"])
def test_build_tree_serves_pkg_config(library: Path, tmp_path: Path, compiler: str):
    source = tmp_path / ("program.cc" if compiler.endswith("++") else "program.c")
    source.write_text(PROGRAM, encoding="utf-8")
    flags = sh("pkg-config", "--cflags", "--libs", "trapless", PKG_CONFIG_PATH=str(library))
    compiled(compiler, source, flags.split(), tmp_path / "program")


def test_installation_serves_pkg_config(library: Path, tmp_path: Path):
    root = tmp_path / "root"
    shutil.copytree(library, tmp_path / "build/lib", symlinks=True)  # of what was built already
    build = f"BUILD={tmp_path / 'build'}"
    sh("make", "-s", build, "install-lib", f"DESTDIR={root}", "PREFIX=/opt/trapless")
    installed = root / "opt/trapless"
    assert (installed / "lib/libtrapless.so.0").resolve().name == "libtrapless.so.0.1.0"
    assert (installed / "share/man/man3/tl_batch_flush.3").resolve().name == "tl_batch.3"
    source = tmp_path / "program.c"
    source.write_text(PROGRAM, encoding="utf-8")
    flags = sh(
        "pkg-config",
        "--cflags",
        "--libs",
        "trapless",
        PKG_CONFIG_PATH=str(installed / "lib/pkgconfig"),
        PKG_CONFIG_SYSROOT_DIR=str(root),
    )
    compiled("gcc", source, flags.split(), tmp_path / "program")
    sh("make", "-s", build, "uninstall-lib", f"DESTDIR={root}", "PREFIX=/opt/trapless")
    assert not [path for path in root.rglob("*") if not path.is_dir()]
