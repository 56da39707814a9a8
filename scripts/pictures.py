# SPDX-License-Identifier: GPL-2.0-only
"""Makes the pictures of docs/pictures from real runs: `make pictures`.

One VM runs a busy loop and a parent that waits for its child of vfork. Commands look at it from a
terminal, and their output becomes an SVG; a browser photographs the pages. Each picture is what its
command showed; this file owns only the VM, the sizes and the commands.

    .venv/bin/python scripts/pictures.py FOLDER
"""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
TRAPLESS = str(ROOT / "bin/trapless")
COLUMNS, LINES = 112, 200
BYTES_MAX = 60_000
"""A picture that is larger fails: a page with all of them is to open at once."""
PAGE_PIXELS, ROW_PIXELS = (1000, 700), (1000, 170)
COLOURS = 32
LIMIT_S = 600.0
HANG_FOUND = 3
"""Exit status of peek why where something hangs."""
HANGS = "#include <unistd.h>\nint main(void) { if (!vfork()) { pause(); _exit(0); } return 0; }\n"
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.S)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build", prefix="pictures-") as scratch:
        draw_commands(folder, Path(scratch))
        report_page(folder / "report.png", Path(scratch))
    for path in sorted(folder.iterdir()):
        print(f"pictures: {path}: {path.stat().st_size:,} bytes")
        if path.stat().st_size > BYTES_MAX:
            sys.exit(f"pictures: {path} is larger than {BYTES_MAX:,} bytes")


def draw_commands(folder: Path, scratch: Path) -> None:
    with vm(scratch) as ram:
        target = ["--ram", str(ram), "--wait", "120"]
        top = shown([TRAPLESS, "peek", "top", *target, "--updates", "3"])
        draw("trapless peek top", top.rpartition("\x1b[?1049l")[2], folder / "peek-top.svg")
        served_page(ram, folder / "peek-serve.png")
        why = shown([TRAPLESS, "peek", "why", *target], status=HANG_FOUND)
        draw("trapless peek why", without_progress(why), folder / "peek-why.svg")
    words = ["stat", "--lab", "--calls", "--", "ls", "-l", "/usr/bin"]
    calls = shown(["sh", "-c", 'exec "$0" "$@" >/dev/null', TRAPLESS, *words])
    title = "trapless stat --lab --calls -- ls -l /usr/bin"
    draw(title, without_progress(calls), folder / "stat-calls.svg")


@contextlib.contextmanager
def vm(scratch: Path) -> Iterator[Path]:
    """A VM whose memory is a file: a thread hangs, and a shell looks through all files."""
    ram = Path(f"/dev/shm/upload-server-{os.getpid()}")
    program = scratch / "upload"
    argv = ["gcc", "-static", "-x", "c", "-", "-o", str(program)]
    subprocess.run(argv, input=HANGS, text=True, check=True)
    loop = f"{program} & while find / -xdev; do :; done"
    words = ["lab", "--shared-memory", str(ram), "--module-parameters", "probes=3"]
    words += ["--host-root", "--", "sh", "-c", loop]
    running = subprocess.Popen([TRAPLESS, *words], stdout=subprocess.DEVNULL)
    try:
        yield ram
    finally:
        running.terminate()
        running.wait(LIMIT_S)
        ram.unlink(missing_ok=True)


def shown(argv: Sequence[str], status: int = 0) -> str:
    """What a command that ends with `status` writes to a terminal of our size."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment |= {"COLUMNS": str(COLUMNS), "LINES": str(LINES)}
    environment.pop("NO_COLOR", None)
    running = subprocess.Popen(argv, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    parts = []
    with contextlib.suppress(OSError):  # nobody writes to the terminal any more
        while part := os.read(ours, 65536):
            parts.append(part)
    os.close(ours)
    text = b"".join(parts).decode()
    if running.wait(LIMIT_S) != status:
        sys.exit(f"pictures: {' '.join(argv)}: {running.returncode}\n{text}")
    return text.replace("\r\n", "\n")


def without_progress(text: str) -> str:
    """Without the lines that a later one has overwritten."""
    return "\n".join(line.rpartition("\r")[2].rpartition("\x1b[K")[2] for line in text.split("\n"))


def draw(title: str, text: str, path: Path) -> None:
    """The text with its colours, as SVG, in whichever monospaced font the reader has."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), color_system="truecolor")
    console.print(Text.from_ansi(text.strip("\n")), soft_wrap=False)
    path.write_text(WEB_FONT.sub("", console.export_svg(title=title, unique_id=path.stem)))


def served_page(ram: Path, path: Path) -> None:
    """The page of the daemon, once it has sampled the VM for some seconds."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    chosen = ["--ram", str(ram), "--vm", ram.name]  # and none of the VMs that run here besides
    serving = subprocess.Popen([TRAPLESS, "peek", "serve", *chosen, "--listen", address])
    try:
        end = time.monotonic() + LIMIT_S
        while "trapless_vm_up{" not in metrics(address) and time.monotonic() < end:
            time.sleep(1)
        time.sleep(20)  # the page shows a course
        photograph(f"http://{address}/", path, ROW_PIXELS)
    finally:
        serving.terminate()
        serving.wait(LIMIT_S)


def metrics(address: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def report_page(path: Path, scratch: Path) -> None:
    """The report of the results that are saved for the oldest kernel, made from their raw data."""
    results = scratch / "results"
    shutil.copytree(min((ROOT / "docs/results").iterdir()), results)
    words = [TRAPLESS, "report", str(results)]
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True, timeout=LIMIT_S)
    photograph((results / "report.html").as_uri(), path, PAGE_PIXELS)


def photograph(address: str, path: Path, pixels: tuple[int, int]) -> None:
    """A page as a browser shows it, in few colours."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        sys.exit("pictures: no browser; on Debian: apt-get install chromium")
    size = ",".join(map(str, pixels))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    options += [f"--window-size={size}", f"--screenshot={path.absolute()}"]
    subprocess.run(
        [browser, *options, address], stderr=subprocess.DEVNULL, check=True, timeout=LIMIT_S
    )
    with Image.open(path) as picture:
        picture.convert("RGB").quantize(COLOURS).save(path, optimize=True)


if __name__ == "__main__":
    main()
