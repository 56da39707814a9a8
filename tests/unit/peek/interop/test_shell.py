# SPDX-License-Identifier: GPL-2.0-only
"""`trapless peek shell`: what drgn sees of a kernel, which machine is meant, and what is said where
that goes wrong."""

from __future__ import annotations

import subprocess
from pathlib import Path

import drgn
import pytest

from tests.unit.peek import toy_kernel
from tests.unit.peek.toy_kernel import MODULES_VIRTUAL, ToyKernel
from trapless.peek import commands
from trapless.peek.interop.drgn_program import program
from trapless.peek.kernel.target import Target

pytestmark = pytest.mark.usefixtures("own_cache")

ROOT = Path(__file__).resolve().parents[4]
LAUNCHER = ROOT / "bin" / "trapless"


@pytest.fixture
def target(kernel, tmp_path):
    with Target.open(kernel.save(tmp_path)) as opened:
        yield opened


# ---- What drgn sees ------------------------------------------------------------------------------


def test_variables_are_read_by_their_types(target):
    prog = program(target)
    task = prog["init_task"]
    assert task.comm.string_() == b"swapper/0"
    assert task.pid == 0
    assert task.stack_canary == toy_kernel.CANARY
    assert prog["init_uts_ns"].name.release.string_().decode() == str(target.release)


def test_variables_that_btf_has_no_types_of_have_ours(target):
    assert [int(one) for one in program(target)["vm_node_stat"]] == [5, 6, 7]
    with pytest.raises(KeyError):
        program(target)["schedule_timeout"]  # is there, and nobody knows its type


def test_types_are_those_of_the_kernel(target):
    prog = program(target)
    assert drgn.offsetof(prog.type("struct task_struct"), "pid") == 4
    assert drgn.sizeof(prog.type("struct rq")) == target.sizeof("rq")
    members = {member.name: member for member in prog.type("struct flags").members}
    assert (members["high"].bit_offset, members["high"].bit_field_size) == (3, 5)
    assert str(prog.type("pid_t").type) == "int"
    with pytest.raises(LookupError):
        prog.type("struct nothing")


def test_enumerators_are_constants(target):
    prog = program(target)
    assert prog["TOY_RUNS"].value_() == 7
    assert prog["TOY_LOST"].value_() == -1
    assert prog["TOY_RUNS"].type_.tag == "toy_state"


def test_addresses_have_symbols_and_symbols_addresses(target):
    prog = program(target)
    schedule = target.symbol("schedule")
    found = prog.symbol(schedule + 3)
    assert (found.name, found.address, found.size) == ("schedule", schedule, 0x80)
    assert prog.symbol("schedule").address == schedule
    assert prog.symbol(MODULES_VIRTUAL + 0x84).name == "toy_close"
    for unknown in ("nothing", 0x1234):
        with pytest.raises(LookupError):
            prog.symbol(unknown)


def test_its_own_page_walk_and_ours_lead_to_the_same_memory(target):
    prog = program(target)
    for cpu in target.cpus_online:
        queue = target.percpu("runqueues", cpu)
        assert drgn.Object(prog, "struct rq", address=queue).nr_running == 3 + cpu
        assert prog.read(queue, 16) == target.read(queue, 16)


def test_what_is_not_mapped_is_a_fault(target, kernel):
    prog = program(target)
    with pytest.raises(drgn.FaultError):
        prog.read(kernel.direct_map + toy_kernel.RAM_BYTES, 8)
    with pytest.raises(drgn.FaultError):
        prog.read(toy_kernel.RAM_BYTES, 8, physical=True)


# ---- The command ---------------------------------------------------------------------------------


def shell(*arguments, **options):
    return subprocess.run(
        [str(LAUNCHER), "peek", "shell", *arguments],
        capture_output=True,
        text=True,
        timeout=600,
        **options,
    )


@pytest.mark.slow
def test_code_is_run_on_the_target(tmp_path):
    kernel = ToyKernel()
    code = (
        "print(prog['init_task'].comm.string_().decode(), target.release, sizeof(prog['modules']))"
    )
    done = shell("--ram", str(kernel.save(tmp_path)), "-c", code)
    assert (done.stdout, done.stderr, done.returncode) == ("swapper/0 6.1.0-toy 16\n", "", 0)


@pytest.mark.slow
def test_session_reads_commands_until_its_end(tmp_path):
    path = ToyKernel().save(tmp_path)
    done = shell("--ram", str(path), input="prog['init_task'].pid\n1/0\nprint(6 * 7)\n")
    assert done.returncode == 0
    assert f"Linux 6.1.0-toy in {path}, live and read-only" in done.stderr
    assert "(pid_t)0" in done.stdout
    assert "ZeroDivisionError" in done.stderr
    assert "42" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("\nnothing", "NameError: name 'nothing' is not defined (line 2)"),
        ("1 +", "SyntaxError"),
        ("prog.read_u64(0)", "no memory at 0x0 in the target"),
        ("target.symbol('nothing')", "no symbol 'nothing'"),
    ],
)
def test_code_that_fails_gives_one_message(tmp_path, code, said):
    done = shell("--ram", str(ToyKernel().save(tmp_path)), "-c", code)
    assert done.returncode == 1
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_target_that_restarts_meanwhile_is_said(tmp_path):
    path = ToyKernel().save(tmp_path)
    restart = f"with open({str(path)!r}, 'r+b') as ram: ram.truncate(0); ram.truncate(8 << 20)"
    done = shell("--ram", str(path), "-c", f"print('before')\n{restart}")
    assert (done.stdout, done.returncode) == ("before\n", 1)
    assert "the target was restarted since it was opened" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "size"), [("4096", 4096), ("2G", 2 << 30), ("512MiB", 512 << 20), ("0x1000", 4096)]
)
def test_sizes_are_read_as_people_write_them(text, size):
    assert commands.size(text) == size


def test_wrong_size_is_wrong_usage(tmp_path):
    done = shell("--ram", "x", "--hole", "much")
    assert done.returncode == 2
    assert "'much' is not a size" in done.stderr
