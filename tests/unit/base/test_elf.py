# SPDX-License-Identifier: GPL-2.0-only
"""Libraries that a program needs, compared with ld.so's own opinion on programs made here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from trapless.base import elf
from trapless.base.console import TraplessError


def compiled(folder: Path, name: str, source: str, *flags: str) -> Path:
    """Compile `source` with the host's compiler."""
    code = folder / f"{name}.c"
    code.write_text(source)
    target = folder / name
    subprocess.run(
        ["cc", "-o", str(target), str(code), *flags], check=True, timeout=600, cwd=folder
    )
    return target


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with libinner.so and libouter.so, which needs the former."""
    folder = tmp_path / "private"
    folder.mkdir()
    shared = ("-shared", "-fPIC")
    compiled(folder, "libinner.so", "int inner(void) { return 1; }", *shared)
    compiled(
        folder,
        "libouter.so",
        "int inner(void); int outer(void) { return inner(); }",
        *shared,
        "-L.",
        "-linner",
    )
    return folder


MAIN = "int outer(void); int main(void) { return outer(); }"
LINK = ("-Lprivate", "-louter", "-Wl,-rpath-link,private")


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def test_static_program_needs_nothing(tmp_path):
    program = compiled(tmp_path, "alone", "int main(void) { return 0; }", "-static")
    assert elf.dependencies(program) == []


@pytest.mark.parametrize("program", ["/bin/ls", "/usr/bin/qemu-system-x86_64"])
def test_system_programs_agree_with_ldd(program):
    wanted = set()
    listing = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for line in listing.splitlines():
        words = line.split()
        if "=>" in words:
            wanted.add(os.path.realpath(words[2]))
        elif words[0].startswith("/"):
            wanted.add(os.path.realpath(words[0]))
    assert {os.path.realpath(path) for path in elf.dependencies(Path(program))} == wanted


def test_rpath_is_inherited_by_libraries(tmp_path, library):
    flags = ("-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/private")
    program = compiled(tmp_path, "program", MAIN, *LINK, *flags)
    assert elf.needs(program).rpath == ("$ORIGIN/private",)
    libraries = elf.dependencies(program)
    assert {"libouter.so", "libinner.so"} <= set(names(libraries))
    assert library / "libinner.so" in libraries
    subprocess.run([program], check=False)  # ld.so itself agrees: it would exit with 127
    assert subprocess.run([program], check=False).returncode == 1


def test_runpath_is_not_inherited(tmp_path, library):
    flags = ("-Wl,--enable-new-dtags", "-Wl,-rpath,$ORIGIN/private")
    program = compiled(tmp_path, "program", MAIN, *LINK, *flags)
    assert elf.needs(program).runpath == ("$ORIGIN/private",)
    with pytest.raises(TraplessError, match=r"libouter\.so needs the library libinner\.so"):
        elf.dependencies(program)
    assert subprocess.run([program], check=False, stderr=subprocess.DEVNULL).returncode == 127


def test_ld_library_path_is_searched(tmp_path, library, monkeypatch):
    program = compiled(tmp_path, "program", MAIN, *LINK)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    assert library / "libouter.so" in elf.dependencies(program)


def test_missing_library_is_named(tmp_path, library):
    program = compiled(tmp_path, "program", MAIN, *LINK)
    with pytest.raises(TraplessError, match=r"needs the library libouter\.so"):
        elf.dependencies(program)


def test_loader_comes_first_and_once(tmp_path):
    program = compiled(tmp_path, "dynamic", "int main(void) { return 0; }")
    libraries = names(elf.dependencies(program))
    assert libraries[0] == "ld-linux-x86-64.so.2"
    assert len(libraries) == len(set(libraries))
    assert "libc.so.6" in libraries


@pytest.mark.parametrize("cut", [4, 20, 64, 100, 1000])
def test_cut_file_is_an_error_not_a_crash(tmp_path, cut):
    program = compiled(tmp_path, "dynamic", "int main(void) { return 0; }")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(program.read_bytes()[:cut])
    with pytest.raises(TraplessError, match="damaged"):
        elf.dependencies(damaged)


def test_program_of_other_machine_is_refused(tmp_path):
    program = compiled(tmp_path, "dynamic", "int main(void) { return 0; }")
    image = bytearray(program.read_bytes())
    image[18] = 0xB7  # e_machine: AArch64
    program.write_bytes(bytes(image))
    with pytest.raises(TraplessError, match="AArch64"):
        elf.needs(program)


@pytest.mark.slow
def test_garbage_headers_are_errors_not_crashes(tmp_path):
    program = compiled(tmp_path, "dynamic", "int main(void) { return 0; }")
    image = program.read_bytes()
    for offset in range(4, 600):
        changed = bytearray(image)
        changed[offset] ^= 0xFF
        damaged = tmp_path / "damaged"
        damaged.write_bytes(bytes(changed))
        try:
            elf.needs(damaged)
        except TraplessError as error:
            assert str(damaged) in str(error)
