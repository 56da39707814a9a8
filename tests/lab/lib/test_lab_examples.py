# SPDX-License-Identifier: GPL-2.0-only
"""The examples by use, with and without the module in one boot, beside what coreutils answer.

Owns the tree that they work on, and the comparison.
"""

from __future__ import annotations

import random
import shutil
import tarfile
from pathlib import Path

import pytest

from tests.make import make
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ("copy", "words", "log", "usage")
SIZES = (0, 1, 300, 4096, 65536, 65537, 200_000)
"""Bytes of files: nothing, a part of a step of a copy, whole steps, and more."""

SCRIPT = r"""
cd /t && tar -x -f /tree.tar || exit 1
equal() { cmp -s $1 $2 && echo "equal $3 $TRAPLESS_BACKEND" || echo "FAIL $3 $TRAPLESS_BACKEND"; }
listing() { (cd $1 && find . | sort | while read -r name; do stat -c '%A %s %n' "$name"
	[ -L "$name" ] && readlink "$name"; [ -f "$name" ] && md5sum < "$name"; done) > $2; }
find tree -type f | xargs /bin/wc-of-host | sed 's/^ *//; s/  */ /g' | sort > /wc
/bin/cp-of-host -r tree cp || exit 1
for one in tree tree/link tree/d0; do /bin/du-of-host -s $one; done > /du
find cp -type d | sort > /dirs; listing cp /cp
for client in 0 1 2 3 4 5 6 7; do
	n=0; while [ $n -lt 25 ]; do echo "client $client record $n"; n=$((n + 1)); done
done > /records
for TRAPLESS_BACKEND in module plain; do
	export TRAPLESS_BACKEND
	/bin/words tree | sort > /words; equal /words /wc words
	/bin/usage tree tree/link tree/d0 > /usage; equal /usage /du usage
	/bin/copy tree copy || echo "FAIL copy $?"
	listing copy /copy; equal /copy /cp copy; rm -r copy
	/bin/log log 25 > /said
	for client in 0 1 2 3 4 5 6 7; do grep "^client $client " log; done > /log
	equal /log /records log; sed "s/^/$TRAPLESS_BACKEND: /" /said
	# What cannot be copied or read is said, and the rest is done.
	mkdir odd && echo text > odd/file && mkfifo odd/pipe
	/bin/copy odd new 2> /err && echo "FAIL status of copy"
	[ "$(cat new/file)" = text ] && grep -q '^copy: odd/pipe: ' /err && echo "odd $TRAPLESS_BACKEND"
	/bin/words absent 2> /err && echo "FAIL status of words"
	grep -q "absent: No such" /err || echo "FAIL words"
	rm -r odd new log
done
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree of text, of more files than one crossing takes, with links and modes."""
    folder = tmp_path_factory.mktemp("examples")
    generator = random.Random(7)
    for i in range(90):
        place = folder / "tree" / f"d{i % 4}" / f"e{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        size = SIZES[i % len(SIZES)]
        text = "".join(generator.choices("abc \n\t", weights=(9, 9, 9, 5, 2, 1), k=size))
        (place / f"f{i}").write_text(text)
        (place / f"f{i}").chmod(generator.choice((0o644, 0o600, 0o755, 0o444)))
    (folder / "tree" / "link").symlink_to("d0/e0")
    (folder / "tree" / "dangling").symlink_to("nowhere")
    with tarfile.open(folder / "tree.tar", "w") as tar:
        tar.add(folder / "tree", "tree")
    return folder / "tree.tar"


def test_examples_answer_as_coreutils_with_and_without_the_module(archive: Path) -> None:
    built = [ROOT / "build" / "examples" / name for name in EXAMPLES]
    for program in built:
        make(program)
    host = [
        (Path(str(shutil.which(name))).resolve(), f"/bin/{name}-of-host")
        for name in ("wc", "cp", "du")
    ]
    config = lab.LabConfig(
        files=(*((path, f"/bin/{path.name}") for path in built), *host, (archive, "/tree.tar")),
        env=(("LC_ALL", "C"),),
    )
    script = "mkdir /t; mount -t tmpfs none /t\n" + SCRIPT
    result = lab.run(config, ["/bin/sh", "-c", script])
    lines = result.stdout.decode(errors="replace").splitlines()
    assert not [line for line in lines if line.startswith("FAIL")], (lines, result.stderr)
    for backend in ("module", "plain"):
        for name in EXAMPLES:
            assert f"equal {name} {backend}" in lines, (lines, result.stderr)
        assert f"odd {backend}" in lines, (lines, result.stderr)
        (said,) = (line for line in lines if line.startswith(f"{backend}: 200 records, "))
        assert 1 <= int(said.split()[3]) <= 200
    assert not lab.splats(result.kernel_log)
