# SPDX-License-Identifier: GPL-2.0-only
"""Runs the workload of scan in the lab, and makes metrics and tables of its rows.

This file owns the file systems, the commands and the metrics' names. The calls themselves are made
by the programs beside it, in C, Python and Rust.
"""

from __future__ import annotations

import shlex
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from eval.scan import spec
from trapless.base.console import TraplessError
from trapless.base.paths import build_dir, repo_root
from trapless.experiments import repeated_counts
from trapless.experiments.collection import Collection, Row, option_words
from trapless.experiments.experiment import Findings, Raw, workload
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.stock import program_archive, real_programs
from trapless.vm import guest_disk
from trapless.vm.lab import LabConfig

TIMEOUT_S = 2 * 3600.0
GUEST_PROGRAM = "/bin/scan"
DISK_KB, BYTES_OF_INODE = 524288, 4096
"""The disk in memory, and for how many of its bytes it has an inode."""

BARE, STOCK = "counted", "counted-stock"
"""Labels of boots: without the instructions that the emulator counts a byte each, and as it is."""
BARE_APPEND = "init_on_alloc=0 clearcpuid=erms,fsrm"

SCRIPT = f"""\
set -e
mkdir -p /data /memory /low /overlay
mke2fs -b 4096 -i {BYTES_OF_INODE} /dev/ram0 >/dev/null
mount -t ext2 -o relatime /dev/ram0 /data
mount -t tmpfs -o size=75% none /memory
mkdir /memory/upper /memory/work /data/cold
mount -t overlay -o lowerdir=/low,upperdir=/memory/upper,workdir=/memory/work none /overlay
"""

TREE = "tree"
DIRECTORIES = {
    "tmpfs": "/memory",
    "ext4": "/data",
    "overlayfs": "/overlay",
    "procfs": "/proc",
    TREE: "/memory",
}

PYTHON = "usr/bin/python3.11"
FOLDERS = ("", "/encodings", "/collections", "/re")
PYTHON_FOLDERS = tuple(f"usr/lib/python3.11{part}" for part in FOLDERS)
PYTHON_WAYS, ARCHIVE = "/bin/python_ways.py", "/python.tar"
BINDING = repo_root() / "lib/bindings/python"
EXTENSION = BINDING / "libtrapless/_ring.abi3.so"
GUEST_BINDING = "/lib-python"
RUST_WAYS = build_dir() / "eval/scan/rust_ways/release/rust-ways"
"""Built by `cargo build --release` in rust_ways."""
GUEST_RUST = "/bin/rust-ways"

Counted = dict[repeated_counts.Key, dict[int, list[float]]]
"""(what is read, way) -> entries -> instructions of one entry, in each repeat."""


def collect(run: Collection) -> None:
    drivers = guest_disk.modules(run.kernel, run.progress)
    others = tuple(one for one in drivers if one[0] != "brd")
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        memory="2G",
        icount=True,
        files=((workload("scan"), GUEST_PROGRAM),),
        modules=(("brd", f"rd_nr=1 rd_size={DISK_KB}"), *others, ("overlay", "")),
        timeout_s=TIMEOUT_S,
    )
    with tempfile.TemporaryDirectory() as folder:
        others_of = {BARE: languages(run, Path(folder)), STOCK: ((), ())}
        for label, append in ((BARE, BARE_APPEND), (STOCK, "")):
            files, more = others_of[label]
            script = SCRIPT + "\n".join((*commands(run, label), *more))
            guest = replace(config, append=append, files=(*config.files, *files))
            compare_sums(run.boot(label, guest, ["/bin/sh", "-c", script]))


def languages(
    run: Collection, folder: Path
) -> tuple[tuple[tuple[Path, str], ...], tuple[str, ...]]:
    """What programs in Python and Rust do: files for the guest, and commands. A quick run has
    none."""
    if run.quick:
        return (), ()
    root = real_programs.unpacked(run.progress).root
    archive = program_archive.pack(root, folder / "python.tar", (PYTHON,), PYTHON_FOLDERS)
    files = [(archive, ARCHIVE), (Path(__file__).with_name("python_ways.py"), PYTHON_WAYS)]
    ways = [f"/{PYTHON} -I -S {PYTHON_WAYS}"]
    of_trees: list[str] = []
    if EXTENSION.exists():
        ways += [f"TRAPLESS_BACKEND={backend} {ways[0]}" for backend in ("module", "plain")]
        own = (EXTENSION, *sorted(EXTENSION.parent.glob("*.py")))
        files += [(path, f"{GUEST_BINDING}/{path.relative_to(BINDING)}") for path in own]
    else:
        run.write([{"skipped": "libtrapless", "reason": "make lib has not built it for Python"}])
    if RUST_WAYS.exists():
        files.append((RUST_WAYS, GUEST_RUST))
        ways.append(GUEST_RUST)
        of_trees = [f"TRAPLESS_BACKEND={backend} {GUEST_RUST}" for backend in ("module", "plain")]
    else:
        run.write([{"skipped": "walkdir", "reason": "eval/scan/rust_ways is not built"}])
    widths = run.chosen(spec.WIDTHS)
    sizes = {TREE: max(widths), "tmpfs": spec.AT, "ext4": spec.AT}
    repeats = run.chosen(spec.REPEATS)
    return tuple(files), (
        f"tar -x -f {ARCHIVE} -C /",
        *(
            f"{way} {call} {n} {DIRECTORIES[call]}/{call}-{n} {repeats}"
            for call, n in sizes.items()
            for way in (*ways, *(of_trees if call == TREE else ()))
        ),
        "echo '{\"complete\": true}'",
    )


def compare_sums(rows: Sequence[Row]) -> None:
    """Programs in other languages must find what those in C have agreed on."""
    agreed = {row["check"].partition(":")[0]: row["sum"] for row in rows if "check" in row}
    for row in rows:
        if "mechanism" in row and "sum" in row:
            place = f"{row['call']}.n{row['n']}"
            if row["sum"] != agreed[place]:
                raise TraplessError(
                    f"scan: {place} by {row['mechanism']}: sum {row['sum']}, not {agreed[place]}"
                )


def commands(run: Collection, label: str) -> Iterator[str]:
    """The runs of one boot. The kernel as it is counts one size only."""
    of_tmpfs, of_ext4 = run.chosen(spec.SIZES), run.chosen(spec.EXT4_SIZES)
    of_others = run.chosen(spec.COMMON_SIZES)
    widths = run.chosen(spec.WIDTHS)
    if label == STOCK:
        of_tmpfs = of_ext4 = of_others = (spec.AT,)
    else:
        yield command(run, "procfs", (spec.THREADS,))
        yield command(run, "ext4", (spec.AT,), "/data/cold", "--cold")
    yield command(run, TREE, widths)
    yield command(run, "overlayfs", of_others)
    yield command(run, "ext4", of_ext4)
    yield command(run, "tmpfs", of_tmpfs)


def command(
    run: Collection, call: str, sizes: Sequence[int], directory: str = "", *more: str
) -> str:
    options = {
        "kind": "counted",
        "calls": call,
        "directory": directory or DIRECTORIES[call],
        "sizes": sizes,
        "repeats": run.chosen(spec.REPEATS),
    }
    return shlex.join([GUEST_PROGRAM, *option_words(options), *more])


def select(rows: Sequence[Row], label: str) -> Counted:
    counted: Counted = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.get("kind") == "counted" and row["boot"] == f"scan-{label}":
            value = row["value"] / row["ops"]
            counted[row["call"], row["mechanism"]][row["n"]].append(value)
    return counted


def analyse(raw: Raw) -> Findings:
    metrics: dict[str, Metric] = {}
    for label, suffix in ((BARE, ""), (STOCK, "_stock")):
        counted = select(raw.rows, label)
        for (call, way), samples in counted.items():
            for n, values in samples.items():
                name = f"{call}.{way}.n{n}{suffix}.instructions"
                metrics[name] = repeated_counts.metric(values, "instructions", 1)
        metrics |= ratios(counted, suffix)
    return Findings(metrics)


def ratios(counted: Counted, suffix: str) -> dict[str, Metric]:
    """The walks' instructions, with all that the program makes of them, in those of fts."""
    if (TREE, "fts") not in counted:
        return {}
    widest = max(counted[TREE, "fts"])
    fts = min(counted[TREE, "fts"][widest])
    found = {}
    for way, name in (("walk", "module"), ("walk-plain", "plain")):
        if (TREE, way) in counted:
            values = [value / fts for value in counted[TREE, way][widest]]
            one = repeated_counts.metric(values, "ratio_to_fts", 4)
            found[f"tree.walk.{name}{suffix}.ratio_to_fts"] = one
    return found


NAMES = {
    "scan": "tl_scan, module",
    "walk": "tl_walk, module",
    "statx": "getdents64, statx",
    "readdir": "readdir, fstatat",
    "read-dir": "Rust: read_dir, metadata",
    "os-scandir": "Python: os.scandir, stat",
    "libtrapless": "Python: libtrapless, module",
    "libtrapless-plain": "Python: libtrapless, without the module",
    "batch": "getdents64, batches of statx",
    "scan-plain": "tl_scan, without the module",
    "io_uring": "getdents64, io_uring's statx",
    "fts": "fts",
    "walkdir": "Rust: walkdir, metadata",
    "rust-walk": "Rust: trapless::Walk, module",
    "rust-walk-plain": "Rust: trapless::Walk, without the module",
    "walk-plain": "tl_walk, without the module",
}
PLACES = ("tmpfs", "ext4", "ext4-cold", "overlayfs", "procfs")


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    bare, stock = select(raw.rows, BARE), select(raw.rows, STOCK)
    return (
        directories_table(bare, stock),
        sizes_table(bare, "tmpfs", "A small directory's entries carry what opening it costs."),
        sizes_table(bare, "ext4", "ext4 keeps large directories in an index of names (htree)."),
        tree_table(bare, stock),
    )


def least(counted: Counted, call: str, way: str, n: int) -> str:
    values = counted.get((call, way), {}).get(n)
    return f"{min(values):,.0f}" if values else ""


def directories_table(bare: Counted, stock: Counted) -> Table:
    size = {"procfs": spec.THREADS}
    ways = [way for way in NAMES if any((place, way) in bare for place in PLACES)]
    rows = [
        (
            NAMES[way],
            *(least(bare, place, way, size.get(place, spec.AT)) for place in PLACES),
            least(stock, "tmpfs", way, spec.AT),
            least(stock, "ext4", way, spec.AT),
        )
        for way in ways
    ]
    return Table(
        id="directories",
        title=f"A directory of {spec.AT:,} entries with their attributes: instructions an entry",
        columns=("by", *PLACES, "tmpfs, stock", "ext4, stock"),
        rows=tuple(rows),
        caption=f"From opening the directory to closing it; procfs: {spec.THREADS} threads of a "
        "process. Cold: the kernel's caches are empty, and the disk is in memory. Stock: the "
        "kernel as it is, where the emulator counts each byte of a `rep` instruction.",
        kind="counted",
    )


def sizes_table(bare: Counted, place: str, caption: str) -> Table:
    ways = [way for way in NAMES if (place, way) in bare]
    sizes = sorted({n for way in ways for n in bare[place, way]})
    return Table(
        id=f"sizes-{place}",
        title=f"Directories of more and fewer entries on {place}: instructions an entry",
        columns=("by", *(f"{n:,}" for n in sizes)),
        rows=tuple((NAMES[way], *(least(bare, place, way, n) for n in sizes)) for way in ways),
        caption=caption,
        kind="counted",
    )


def tree_table(bare: Counted, stock: Counted) -> Table:
    ways = [way for way in NAMES if (TREE, way) in bare]
    width = max((n for way in ways for n in bare[TREE, way]), default=0)
    rows = []
    for way in ways:
        cells: list[str] = [NAMES[way]]
        for counted in (bare, stock):
            values, fts = counted[TREE, way][width], counted[TREE, "fts"][width]
            cells += (
                [f"{min(values):,.0f}", f"{min(values) / min(fts):.1%}"] if values else ["", ""]
            )
        rows.append(tuple(cells))
    return Table(
        id="tree",
        title=f"A tree on tmpfs, {width} directories in each directory: instructions an entry",
        columns=("by", "instructions", "of those of fts", "stock", "of those of fts"),
        rows=tuple(rows),
        caption="All that the program executes from the beginning of the walk to its end, in user "
        "space and kernel.",
        kind="counted",
    )
