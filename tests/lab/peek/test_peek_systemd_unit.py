# SPDX-License-Identifier: GPL-2.0-only
"""The unit of the Debian package: systemd itself starts the daemon in a guest, on this machine's
files, without all that the unit takes away from it.

systemd is process 1 of a PID namespace there, because the lab's init is that of the guest; the
kernel enforces the same namespaces, capabilities and filters. What is not run is a boot with the
unit enabled. Two machines of another user are observed: a real one that has no kernel yet, and one
that eval/peek_fleet simulates, whose memory is a made-up kernel's.
"""

from __future__ import annotations

import re
import shutil

import pytest

from tests.lab.command import LIMIT_S, ROOT, run_lab
from trapless.base.paths import build_dir
from trapless.peek import rights

pytestmark = [pytest.mark.lab, pytest.mark.nightly, pytest.mark.timeout(1.2 * LIMIT_S)]

UNIT = ROOT / "scripts/debian/trapless.trapless-peek.service"
EXPOSURE_MAX = 3.5
"""By `systemd-analyze security`, whose scale ends at 10; what runs as root, listens and opens other
processes has at least 3."""
RECORDS = re.search(r"```ini\n(.*?)```", (ROOT / "docs/peek.md").read_text(), re.S)[1]
TOY = """\
from pathlib import Path
from tests.unit.peek.toy_kernel import PERCPU_AT, ToyKernel
toy = ToyKernel()
toy.save(Path("/var/tmp"), "toy")
words = [toy.physical(toy.symbols["jiffies_64"]), 50]
print(*words, toy.symbols["init_task"], toy.symbols["toy_server"], PERCPU_AT + 0x68)
"""
STEPS = f"""\
PATH=/usr/sbin:/usr/bin:/sbin:/bin
say() {{ echo "== $1 =="; }}
inside() {{ nsenter -t "$init" -p -m -r -w -- "$@"; }}
ask() {{ busybox wget -q -O - "http://127.0.0.1:9737/$1" 2>/dev/null; }}
of_unit() {{ inside systemctl show -P "$1" trapless-peek; }}
served() {{ until ask healthz; do sleep 1; done; }}
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ln -s {ROOT}/bin/trapless /usr/bin/trapless
unit=/etc/systemd/system/trapless-peek.service
cp {UNIT} $unit
# It would remove all that this machine has in /tmp, from the layer in memory, file by file.
ln -s /dev/null /etc/systemd/system/systemd-tmpfiles-setup.service
say verify
systemd-analyze verify --man=no $unit && echo well
container=lab unshare --pid --fork --mount-proc systemd --system --unit=trapless-peek.service \\
    --log-target=null </dev/null >/dev/null 2>&1 &
until init=$(pgrep -P $!); do sleep 1; done
say security
systemd-analyze security --offline=yes --no-pager $unit | sed -n 's/.*: \\([0-9.]*\\) .*/\\1/p'
say healthz
served
say status
main=$(of_unit MainPID) && [ "$main" -gt 1 ] || exit 1
inside cat /proc/$main/status
say written
inside nsenter -t "$main" -m -r -w -- sh -c '
    for place in "" /etc /usr /root /tmp /sys/fs/cgroup /var/lib/trapless; do
        mkdir $place/probe && echo $place
    done
    echo 4 >/proc/sys/kernel/printk && echo sysctl' 2>/dev/null
say machine
inside setpriv --reuid 1000 --regid 1000 --clear-groups qemu-system-x86_64 -S -name other \\
    -m 64M -display none -nodefaults -accel tcg </dev/null >/dev/null 2>&1 &
opened='^trapless_vm_state.state="booting",vm="other". 1.0$'  # once it has its RAM
until ask metrics | grep "$opened"; do sleep 1; done
say sampled
words=$(cd {ROOT} && .venv/bin/python -c '{TOY}')
sleep {LIMIT_S} | inside setpriv --reuid 1000 --regid 1000 --clear-groups \\
    bash -c "exec -a qemu-system-x86_64 {build_dir()}/eval/peek_fleet/peek-fleet \\
        -name toy -m 8M /var/tmp/toy $words" >/dev/null &
until ask metrics | grep '^trapless_vm_taken_samples_total.vm="toy". [1-9]'; do sleep 1; done
say opener
inside sh -c "cat /proc/\\$(pgrep -P $main -f diagnosis.opener)/status"
say killed
mkdir $unit.d
printf %s '{RECORDS}' >$unit.d/override.conf
inside systemctl daemon-reload
inside kill -9 $main
until [ "$(of_unit NRestarts)" = 1 ]; do sleep 1; done
served
say recordings
until inside sh -c 'ls /var/lib/trapless/recordings/toy/*/rows-000000.parquet' 2>/dev/null; do
    sleep 1
done
inside stat -c '%a %U' /var/lib/trapless /var/lib/trapless/recordings
say socket
printf '[Service]\nGroup=www-data\nExecStart=\nExecStart=%s\n' \\
    "/usr/bin/trapless peek serve --listen /run/trapless/peek.sock" >$unit.d/socket.conf
inside systemctl daemon-reload
inside systemctl restart trapless-peek
until inside test -S /run/trapless/peek.sock; do sleep 1; done
inside stat -c '%a %U %G' /run/trapless /run/trapless/peek.sock
say end
inside systemctl stop trapless-peek
of_unit Result
of_unit ExecMainStatus
say journal
inside journalctl -u trapless-peek -o cat --no-pager
"""


@pytest.fixture(scope="module")
def facts() -> dict[str, str]:
    """What each step has said."""
    lacks = [name for name in ("systemd-analyze", "nsenter") if shutil.which(name) is None]
    assert not lacks, f"{lacks}: install systemd and util-linux (`make setup`)"
    result = run_lab("sh", "-c", STEPS, options=("--host-root", "--timeout", str(LIMIT_S)))
    said = result.stdout.decode()
    assert result.returncode == 0, said + result.stderr.decode()
    parts = re.split(r"^== (\w+) ==\n", said, flags=re.M)[1:]
    return dict(zip(parts[::2], (text.strip() for text in parts[1::2]), strict=True))


def capability_set(status: str, kind: str) -> int:
    """A set of capabilities of a process, or another number, by its status."""
    return int(re.search(rf"^{kind}:\t(\w+)$", status, re.M)[1], 16)


def test_systemd_takes_the_unit_and_the_daemon_serves_under_it(facts):
    assert facts["verify"] == "well"
    assert facts["healthz"] == "ok"


def test_a_machine_of_another_user_is_opened(facts):
    assert facts["machine"].endswith(" 1.0")


def test_a_machine_is_sampled_by_what_the_filter_leaves(facts):
    assert facts["sampled"].startswith("trapless_vm_taken_samples_total")
    assert float(facts["security"]) <= EXPOSURE_MAX


def test_the_daemon_has_no_rights_and_its_opener_those_to_open(facts):
    assert capability_set(facts["status"], "CapEff") == 0
    assert capability_set(facts["opener"], "CapEff") == sum(1 << one for one in rights.TO_OPEN)
    for status in (facts["status"], facts["opener"]):
        assert capability_set(status, "NoNewPrivs") == 1
        assert capability_set(status, "Seccomp") == 2


def test_nothing_but_its_own_folder_can_be_written(facts):
    assert facts["written"] == "/var/lib/trapless"


def test_a_socket_is_open_to_the_group_that_the_unit_names(facts):
    assert facts["socket"].splitlines() == ["750 root www-data", "660 root www-data"]


def test_it_is_started_again_records_as_the_documents_say_and_ends(facts):
    assert facts["killed"] == "ok"
    assert facts["recordings"].splitlines()[-2:] == ["750 root", "700 root"]
    assert facts["end"].splitlines() == ["success", "0"]
    assert "shows the machines" in facts["journal"] and "ended on request" in facts["journal"]
    assert "Traceback" not in facts["journal"]
