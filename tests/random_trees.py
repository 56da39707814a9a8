# SPDX-License-Identifier: GPL-2.0-only
"""Trees of files, for tests of programs that walk them: random ones of every kind, and of text."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path


def grow(folder: Path, generator: random.Random, depth: int) -> list[Path]:
    """A random tree of every kind of file; returns its regular files."""
    files: list[Path] = []
    for i in range(generator.randrange(1, 12)):
        path = folder / f"{generator.choice('abc -.')}{i}"
        what = generator.random()
        if what < 0.35 and depth:
            path.mkdir()
            files += grow(path, generator, depth - 1)
        elif what < 0.75:
            path.write_bytes(b"x" * generator.choice([0, 1, 4096, 4097, 70000]))
            files.append(path)
        elif what < 0.85:
            path.symlink_to(generator.choice(["..", ".", "nowhere", "/", "a0"]))
        elif what < 0.9:
            os.mkfifo(path)
        elif files:
            os.link(generator.choice(files), path)
    return files


def texts(folder: Path) -> list[Path]:
    """A hundred files of text in folders; some are empty, and one is larger than most buffers."""
    words = ["no", " word\n", "two words\v", "\t\n\n"]
    for i in range(100):
        place = folder / f"d{i % 7}"
        place.mkdir(exist_ok=True)
        text = "x" * 90_000 if i == 50 else "".join(words[j % 4] for j in range(7 * i))
        (place / f"f{i}").write_text(text if i % 9 else "")
    return sorted(folder.rglob("f*"))


def copied_by(command: list[object], folder: Path) -> str:
    """What a program prints that copies a tree of text, links and an empty folder as it should.

    One of two trees in `folder` cannot be copied whole, and the program says so."""
    source, odd = folder / "source", folder / "odd"
    source.mkdir()
    texts(source)
    (source / "empty").mkdir()
    (source / "link").symlink_to("d0/f0")
    (source / "to a folder").symlink_to("d1")
    done = subprocess.run(
        [*command, source, folder / "copy"], capture_output=True, text=True, check=True
    )
    subprocess.run(["diff", "-r", "--no-dereference", source, folder / "copy"], check=True)
    assert (folder / "copy/d1/f1").stat().st_mode == (source / "d1/f1").stat().st_mode

    odd.mkdir()
    (odd / "file").write_text("text")
    os.mkfifo(odd / "pipe")
    (odd / "taken").write_text("")
    (folder / "new/taken").mkdir(parents=True)
    failed = subprocess.run([*command, odd, folder / "new"], capture_output=True, text=True)
    assert failed.returncode == 1
    assert failed.stdout.startswith("1 files, ")
    assert (folder / "new/file").read_text() == "text"
    complaints = sorted(line.rpartition(": ")[0] for line in failed.stderr.splitlines())
    assert complaints == [f"cp: {odd}/pipe", f"cp: {folder}/new/taken"][::-1]
    return done.stdout


def counted(files: list[Path]) -> set[str]:
    """Lines, words and bytes of each file and of all, as wc(1) says in the C locale."""
    said = subprocess.run(
        ["wc", *files], env=os.environ | {"LC_ALL": "C"}, stdout=subprocess.PIPE, check=True
    ).stdout.decode()
    return {" ".join(line.split()) for line in said.splitlines()}
