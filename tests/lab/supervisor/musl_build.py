# SPDX-License-Identifier: GPL-2.0-only
"""Builds programs linked with musl, Debian's, which ends them by hlt, without installing musl.

inside/musl_programs.py uses them in a guest, where test_lab_switch.py brings them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from trapless.base.console import Progress
from trapless.stock import packages, real_programs

NEED_BYTES = 10_000_000
LIBRARY = "usr/lib/x86_64-linux-musl"
INTERPRETER = "/lib/ld-musl-x86_64.so.1"
"""Of musl's package, and where the guest has it."""

SMASHED = r"""
#include <string.h>
#include <unistd.h>

/* Waits for a word, and then overwrites its canary if there is an argument. */
__attribute__((noinline)) static int victim(volatile int count)
{
    char room[16], word;

    while (read(0, &word, 1) == 1 && word != '\n')
        getppid();
    memset(room, 'A', count);
    return room[3] != 'A';
}

/* What stands behind a call that does not return, and must not be executed. */
__attribute__((noinline, used)) static int next(void)
{
    static const char words[] = "went on\n";

    write(1, words, sizeof(words) - 1);
    _exit(0);
}

int main(int count, char **words)
{
    return count > 5 ? next() : victim(count > 1 ? 32 : 16);
}
"""

KINDS = {
    "static": ("-fno-pie", "-no-pie", "-static", "crt1.o"),
    "static-pie": ("-fPIE", "-static-pie", "rcrt1.o"),
    "dynamic": ("-fPIE", "-pie", f"-Wl,-dynamic-linker={INTERPRETER}", "Scrt1.o"),
}
"""How each program is made: options of gcc, and musl's first object."""

OPTIONS = ("-O1", "-w", "-fstack-protector-all", "-fno-toplevel-reorder", "-nostdinc", "-nostdlib")


def built(folder: Path, progress: Progress) -> tuple[tuple[Path, str], ...]:
    """The programs and their interpreter, with their places in the guest."""
    root = folder / "musl"
    root.mkdir()
    with packages.opened(real_programs.SUITES, progress, need_bytes=NEED_BYTES) as archive:
        chosen = [one for one in archive.closure(["musl-dev"]) if one.name.startswith("musl")]
        archive.fetch(chosen, root, progress, what="musl")
    headers, objects = root / "usr/include/x86_64-linux-musl", root / LIBRARY
    shared = (root / INTERPRETER.lstrip("/")).resolve()
    (folder / "smashed.c").write_text(SMASHED)
    files = [(shared, f"/usr{INTERPRETER}")]  # /lib is a link to it
    for kind, (*how, first) in KINDS.items():
        program = folder / f"musl-{kind}"
        ends = objects / first, objects / "crti.o", objects / "crtn.o"
        libc = shared if kind == "dynamic" else objects / "libc.a"
        inputs = (*ends[:2], folder / "smashed.c", libc, "-lgcc", ends[2])
        words = ("gcc", *OPTIONS, "-isystem", headers, *how, "-o", program, *inputs)
        subprocess.run(words, check=True)
        files.append((program, f"/opt/{program.name}"))
    for file, _ in files:
        file.chmod(0o644)  # else the lab would bring their interpreter from this machine
    return tuple(files)
