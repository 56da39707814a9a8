# SPDX-License-Identifier: GPL-2.0-only
"""Runs the library's C unit tests once more inside two sandboxes, with the same results.

The first allows what Docker's default seccomp profile allows (tests/data/docker_seccomp.json, which
names its source), the second refuses some calls more. This file owns the filters; the programs are
those of test_c_programs.py.
"""

from __future__ import annotations

import ctypes
import errno
import json
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.test_c_programs import SKIPPED, programs
from trapless import calls

ROOT = Path(__file__).resolve().parents[3]
PROFILE = json.loads((ROOT / "tests/data/docker_seccomp.json").read_text())
NUMBERS = {call.name: call.nr for call in calls.load()}
STRICTER = (
    *("process_vm_readv", "process_vm_writev", "membarrier", "rseq", "userfaultfd"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
)

LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
NUMBER_AT, ARGUMENTS_AT = 0, 16
X32_NUMBERS = 0x40000000
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def rule(number: int, then: list[bytes]) -> list[bytes]:
    """If the call has this number, `then` decides."""
    return [instruction(EQUAL, number, 0, len(then)), *then]


def condition(form: dict) -> list[bytes]:
    """Allows the call where its argument is, or is not, one of some values."""
    values, if_among = form.get("is", form.get("is_not")), "is" in form
    yes, no = instruction(RETURN, ALLOW), instruction(RETURN, ERRNO | PROFILE["refused"]["errno"])
    code = [
        instruction(LOAD, ARGUMENTS_AT + 8 * form["argument"]),
        instruction(AND, form["mask"]),
    ]
    for place, value in enumerate(values):
        code.append(instruction(EQUAL, value, len(values) - place, 0))
    return [*code, no if if_among else yes, yes if if_among else no]


def filter_of(refused: dict[str, int]) -> list[bytes]:
    """The profile as a program of the kernel's, less the calls that are refused with an error."""
    code = [instruction(LOAD, NUMBER_AT)]
    code += [
        instruction(AT_LEAST, X32_NUMBERS, 0, 1),
        instruction(RETURN, ERRNO | PROFILE["refused"]["errno"]),
    ]
    for name in PROFILE["unknown"]["names"]:
        code += rule(NUMBERS[name], [instruction(RETURN, ERRNO | PROFILE["unknown"]["errno"])])
    for name, error in refused.items():
        code += rule(NUMBERS[name], [instruction(RETURN, ERRNO | error)])
    for name, form in PROFILE["allowed_if"].items():
        code += rule(NUMBERS[name], condition(form))
    for name in PROFILE["allowed"]:
        if name in NUMBERS:
            code += rule(NUMBERS[name], [instruction(RETURN, ALLOW)])
    return [*code, instruction(RETURN, ERRNO | PROFILE["refused"]["errno"])]


def confined(refused: dict[str, int]) -> Callable[[], None]:
    """A function that puts the filter on a process which is about to execute a program."""
    code = filter_of(refused)
    program = ctypes.create_string_buffer(b"".join(code))
    header = struct.pack("@HP", len(code), ctypes.addressof(program))
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_void_p] * 4]

    def confine() -> None:
        assert program  # the filter's memory, which lives as long as this function
        if prctl(PR_SET_NO_NEW_PRIVS, 1, None, None, None) or prctl(
            PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, None, None
        ):
            raise OSError(ctypes.get_errno(), "the filter is refused")

    return confine


SANDBOXES = {
    "docker": {},
    "docker-unknown": dict.fromkeys(STRICTER, errno.ENOSYS),
    "docker-forbidden": dict.fromkeys(STRICTER, errno.EPERM),
}
LIBRARY = [path for path in programs() if path.name.startswith("lib_")]


def status_of(program: Path, confine: Callable[[], None] | None) -> tuple[int, str]:
    run = subprocess.run(
        [str(program)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        preexec_fn=confine,
    )
    return run.returncode, run.stdout + run.stderr


def test_the_filters_refuse_what_they_say():
    code = "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
    for name in ("getpid", "clone3", "setns", "process_vm_readv"):
        code += f"print(libc.syscall({NUMBERS[name]}, 0, 0, 0, 0, 0, 0) < 0, ctypes.get_errno())\n"
    outputs = {
        name: subprocess.run(
            ["python3", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=confined(refused),
        ).stdout.split("\n")
        for name, refused in SANDBOXES.items()
    }
    for lines in outputs.values():
        assert lines[0] == "False 0"
        assert lines[1] == f"True {errno.ENOSYS}" and lines[2] == f"True {errno.EPERM}"
    assert outputs["docker-unknown"][3] == f"True {errno.ENOSYS}"
    assert outputs["docker-forbidden"][3] == f"True {errno.EPERM}"


@pytest.mark.slow
@pytest.mark.parametrize("program", [pytest.param(path, id=path.name) for path in LIBRARY])
@pytest.mark.parametrize("sandbox", SANDBOXES)
def test_the_library_works_in_the_sandbox(program: Path, sandbox: str):
    status, output = status_of(program, confined(SANDBOXES[sandbox]))
    if status == SKIPPED:
        assert status_of(program, None)[0] == SKIPPED or "mounts of its own" in output, output
        pytest.skip(output.strip())
    assert status == 0, f"exit status {status}\n{output}"
