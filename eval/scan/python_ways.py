# SPDX-License-Identifier: GPL-2.0-only
"""Reads a directory or a tree by `os.scandir` and `DirEntry.stat`, with the attributes of each
entry, and prints a row of JSON a run, with the sum that scan_runs.c makes as well. Where
TRAPLESS_BACKEND is set, libtrapless reads.

Usage: python_ways.py CALL N PATH REPEATS; of the CALL `tree` PATH is a tree. Guests run it.
"""

import os
import sys
import time
from collections.abc import Callable

BINDING = "/lib-python"
WAYS = {None: "os-scandir", "module": "libtrapless", "plain": "libtrapless-plain"}
WARM_UPS = 1
WORD = (1 << 64) - 1


def number_of(name: str, attributes: os.stat_result) -> int:
    """What an entry adds, as add() of ways.c."""
    inode, size, seconds = attributes.st_ino, attributes.st_size, int(attributes.st_mtime)
    return (inode * 31 + size * 7 + seconds) ^ ord(name[0])


def directory(path: str) -> tuple[int, int]:
    """Entries, and the sum of all."""
    entries = total = 0
    with os.scandir(path) as listed:
        for entry in listed:
            total += number_of(entry.name, entry.stat(follow_symlinks=False))
            entries += 1
    return entries, total


def tree(path: str) -> tuple[int, int]:
    entries, total = 1, number_of(path, os.stat(path, follow_symlinks=False))
    left = [path]
    while left:
        with os.scandir(left.pop()) as listed:
            for entry in listed:
                total += number_of(entry.name, entry.stat(follow_symlinks=False))
                entries += 1
                if entry.is_dir(follow_symlinks=False):
                    left.append(entry.path)
    return entries, total


def by_libtrapless(call: str) -> Callable[[str], tuple[int, int]]:
    sys.path.insert(0, BINDING)
    import libtrapless

    listing = libtrapless.scantree if call == "tree" else libtrapless.scandir

    def read(path: str) -> tuple[int, int]:
        entries = total = 0
        for entry in listing(path):
            total += number_of(entry.name, entry.stat(follow_symlinks=False))
            entries += 1
        return entries, total

    return read


def main() -> None:
    call, n, path, repeats = sys.argv[1:]
    backend = os.environ.get("TRAPLESS_BACKEND")
    by_os = tree if call == "tree" else directory
    read = by_libtrapless(call) if backend else by_os
    for run in range(WARM_UPS + int(repeats)):
        begin = time.monotonic_ns()
        entries, total = read(path)
        value = time.monotonic_ns() - begin
        if run >= WARM_UPS:
            print(
                f'{{"mechanism": "{WAYS[backend]}", "call": "{call}", "n": {n}, "kind": "counted", '
                f'"value": {value}, "unit": "instructions", "ops": {entries}, '
                f'"sum": {total & WORD}}}'
            )


main()
