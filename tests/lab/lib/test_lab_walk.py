# SPDX-License-Identifier: GPL-2.0-only
"""examples/walk by the module, in VMs: equal to du and find on nasty trees, and its crossings.

The same trees without the module are tests/unit/eval/test_walk.py's business. Here are those that
need root, mounts or another user, and proof that batches are what makes the walk cross so rarely.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from eval.tools.crossings import crossings
from eval.tools.crossings.crossings import Command
from tests.make import make
from tests.random_trees import grow
from trapless.base.console import Silent
from trapless.experiments.collection import RowStream
from trapless.vm import lab

pytestmark = [
    pytest.mark.outer_kernels,
    pytest.mark.tool,
    pytest.mark.lab,
    pytest.mark.timeout(3600),
]

ROOT = Path(__file__).resolve().parents[3]

EQUAL = r"""
cd /t || exit 1
same() { # same WALK-OPTIONS TREE -- COMMAND...: equal output, equal status, as $user
	ours=; while [ "$1" != -- ]; do ours="$ours $1"; shift; done; shift
	$as /bin/walk $ours > /out.ours 2> /err.ours; status=$?
	$as "$@" > /out.theirs 2> /err.theirs
	[ $? = $status ] || echo "FAIL status: walk$ours: $status, as $user"
	cmp -s /out.ours /out.theirs || echo "FAIL output: walk$ours as $user"
	sed 's/^[^:]*: //' /err.theirs > /err.want; sed 's/^[^:]*: //' /err.ours | cmp -s - /err.want ||
		echo "FAIL messages: walk$ours as $user: $(head -3 /err.ours)"
	compared=$((compared + 1))
}
all() { # all TREE
	same $1 -- /bin/du-of-host $1
	same -a $1 -- /bin/du-of-host -a $1
	same -s $1 -- /bin/du-of-host -s $1
	same -x $1 -- /bin/du-of-host -x $1
	same --find $1 -- /bin/find-of-host $1
	same --find -x $1 -- /bin/find-of-host $1 -xdev
}
as= user=root compared=0
tar -x -f /tree.tar
all tree

# mounts: another file system, a loop, a file on a file
mkdir -p m/a/b/c m/other; echo 1 > m/file
mount -t tmpfs none m/other; mkdir m/other/d; head -c 10000 /dev/zero > m/other/d/f
mount --bind m/a m/a/b/c; mount --bind m/other/d/f m/file
all m; all m/other

# deeper than a path can say, with few descriptors
mkdir deep; n=0; name=$(printf '%0200d' 0)
(cd deep; while [ $n -lt 60 ]; do mkdir $name side; echo x > file; cd -P $name; n=$((n + 1)); done)
all deep
(ulimit -n 13; all deep; echo "$compared" > /compared); compared=$(cat /compared)

# what a user may not read
mkdir -p p/0/x p/1/x p/4/x p/5/x; touch p/0/f p/1/f p/4/f p/5/f p/4/x/g
chmod 0 p/0; chmod 111 p/1; chmod 444 p/4; chmod 555 p/5
as="setpriv --reuid 1000 --regid 1000 --clear-groups" user=1000
all p
as= user=root

# kernel's own trees
all /sys/kernel/debug/tracing/events/sched; all /sys/class

# killed in the middle
/bin/walk -a /sys > /dev/null & pid=$!; usleep 30000; kill -9 $pid; wait $pid

/bin/walk --stats -s tree 2>&1 >/dev/null
echo "compared $compared"
"""


def programs() -> tuple[tuple[Path, str], ...]:
    subprocess.run(["make", "-s", "all"], cwd=ROOT, check=True)
    found = [(name, shutil.which(name)) for name in ("du", "find", "strace", "setpriv")]
    missing = [name for name, path in found if path is None]
    assert not missing, f"{missing}: run scripts/setup"
    host = tuple(
        (Path(path).resolve(), f"/bin/{name}" + ("" if name == "setpriv" else "-of-host"))
        for name, path in found
        if path is not None
    )
    return (
        (ROOT / "build" / "examples" / "walk", "/bin/walk"),
        (ROOT / "build" / "eval" / "tools" / "crossings" / "crossings", crossings.GUEST_PROGRAM),
        *host,
    )


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random tree, as an archive."""
    folder = tmp_path_factory.mktemp("trees")
    generator = random.Random(20)
    (folder / "tree").mkdir()
    for i in range(25):
        (folder / "tree" / str(i)).mkdir()
        grow(folder / "tree" / str(i), generator, 3)
    with tarfile.open(folder / "tree.tar", "w") as tar:
        tar.add(folder / "tree", "tree")
    return folder / "tree.tar"


def test_the_walk_by_the_module_equals_du_and_find(kernel: str, archive: Path) -> None:
    config = lab.LabConfig(
        kernel=kernel,
        files=(*programs(), (archive, "/tree.tar")),
        env=(("LC_ALL", "C"), ("TRAPLESS_BACKEND", "module")),
    )
    script = "mkdir /t; mount -t tmpfs none /t\n" + EQUAL
    result = lab.run(config, ["/bin/sh", "-c", script])
    lines = result.stdout.decode(errors="replace").splitlines()
    assert not [line for line in lines if line.startswith("FAIL")], lines
    assert "compared 48" in lines, (lines, result.stderr)
    assert any(line.startswith("walk: ") and line.endswith(", module") for line in lines), lines
    assert not lab.splats(result.kernel_log)


STRACE = r"""
export LC_ALL=C
tar -x -f /tree.tar -C /
{lines}
for name in walk-plain du find; do
	case $name in walk-plain) set -- /bin/walk /tree;; *) set -- /bin/$name-of-host /tree;; esac
	TRAPLESS_BACKEND=plain /bin/strace-of-host -f -o /trace "$@" > /out
	calls=$(grep -c '^[0-9]* *[a-z]' /trace)
	echo "{{\"traced\": \"$name\", \"calls\": $calls}}"
done
/bin/strace-of-host -c -o /trace /bin/walk --stats /tree 2>&1 > /out.traced | grep ^walk: >&2
/bin/walk /tree | cmp - /out.traced || echo '{{"failure": "a traced walk prints something else"}}'
echo '{{"complete": true}}'
"""


def test_crossings_are_what_strace_sees(kernel: str, archive: Path) -> None:
    plain, module = (("TRAPLESS_BACKEND", "plain"),), (("TRAPLESS_BACKEND", "module"),)
    walk = ("/bin/walk", "/tree")
    commands = (
        Command("walk", "batch", walk, "/out", module),
        Command("walk-plain", "plain", walk, "/out", plain),
        Command("du", "plain", ("/bin/du-of-host", "/tree"), "/out"),
        Command("find", "plain", ("/bin/find-of-host", "/tree"), "/out"),
    )
    lines = "\n".join(crossings.shell_line(command, 2) for command in commands)
    files = (*programs(), (archive, "/tree.tar"))
    config = lab.LabConfig(kernel=kernel, icount=True, quick_start=True, files=files)
    result = lab.run(config, ["/bin/sh", "-c", STRACE.format(lines=lines)])
    with (archive.parent / f"rows-{kernel.replace('/', '-')}").open("w") as file:
        stream = RowStream(file, "", Silent())
        stream.feed(result.stdout)
        stream.close()
    assert stream.complete and not stream.failure, (stream.failure, stream.noise, result.stderr)
    found = crossings.counts(stream.rows)
    assert not crossings.differing(found)
    traced = {row["traced"]: row["calls"] for row in stream.rows if "traced" in row}
    for name, calls in traced.items():
        assert found[name, "plain"].crossings[0] == calls, name
    by_batch, by_plain = found["walk", "batch"], found["walk-plain", "plain"]
    assert 10 * by_batch.crossings[0] < found["du", "plain"].crossings[0]
    assert min(by_batch.instructions) < min(by_plain.instructions)
    assert min(by_batch.instructions) < min(found["du", "plain"].instructions)
    # Under a tracer the module steps aside: every call is seen, the output is the same.
    assert b", module\n" in result.stderr
    assert not lab.splats(result.kernel_log)


REASON = r"""
#include <fcntl.h>
#include <stdio.h>
#include <trapless.h>

int main(void)
{
	const struct tl_walk_entry *entry;
	struct tl_walk *walk;

	if (tl_walk_create(&walk, AT_FDCWD, "/proc/self/fdinfo", 0, TL_MODULE, 0))
		return 1;
	while (tl_walk_next(walk, &entry) == 1)
		;
	printf("%s\n", tl_walk_reason(walk) ? tl_walk_reason(walk) : "none");
	return 0;
}
"""


def test_a_module_without_compound_calls_is_the_reason_of_a_plain_walk(tmp_path: Path) -> None:
    (tmp_path / "reason.c").write_text(REASON)
    make(ROOT / "build/lib/libtrapless.a")
    argv = ["gcc", "-static", f"-I{ROOT}/include", f"-I{ROOT}/include/uapi", "reason.c"]
    argv += [f"{ROOT}/build/lib/libtrapless.a", "-pthread", "-o", "reason"]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=600)
    config = lab.LabConfig(module_parameters="scandir=0")
    result = lab.run(config, [str(tmp_path / "reason")])
    assert result.status == 0, result.stderr
    assert result.stdout == b"this kernel offers no compound calls\n"
