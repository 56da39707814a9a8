# SPDX-License-Identifier: GPL-2.0-only
"""What doctor says about supervisor mode: the module's answer, or one predicted without it.

tests/lab/supervisor/inside/refused_machine.py compares predictions with the module on real kernels.
"""

from __future__ import annotations

import gzip

import pytest

from trapless import abi
from trapless.abi import Refusal
from trapless.doctor.capabilities import Host
from trapless.doctor.supervisor_offer import NEEDED_CONFIG, NEEDED_SYMBOLS, PREDICTIONS, examine
from trapless.supervisor import control
from trapless.supervisor.refusals import table

FLAGS = "processor : 0\nflags\t\t: fpu vme {} sse\n"
VULNERABILITIES = "sys/devices/system/cpu/vulnerabilities"
KALLSYMS = "".join(f"0 T {name}\n" for name in (*NEEDED_SYMBOLS, "irqentry_exit"))
CONFIG = "".join(f"{name}=y\n" for name in NEEDED_CONFIG)
PLAIN = {
    "proc/modules": "",
    "proc/cpuinfo": FLAGS.format("pae"),
    "proc/kallsyms": KALLSYMS,
    "boot/config-9.9.9": CONFIG,
    f"{VULNERABILITIES}/spectre_v2": "Mitigation: Enhanced / Automatic IBRS; IBPB: conditional",
    f"{VULNERABILITIES}/retbleed": "Mitigation: untrained return thunk",
    "sys/devices/system/cpu/nohz_full": "(null)",
    "sys/kernel/security/lockdown": "[none] integrity confidentiality",
}


def machine(tmp_path, files):
    """PLAIN with these files in place of its own."""
    for name, text in {**PLAIN, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Host(tmp_path, 0, "9.9.9")


REASONS = [
    (Refusal.CONFIG, {"boot/config-9.9.9": "CONFIG_TRACEPOINTS=y\n"}, "CONFIG_PREEMPT_NOTIFIERS"),
    (Refusal.CONFIG, {"proc/config.gz": gzip.compress(b"# none\n")}, "CONFIG_TRACEPOINTS"),
    (Refusal.SYMBOL, {"proc/kallsyms": KALLSYMS.replace("ptrace_may", "x")}, "ptrace_may_access"),
    (Refusal.SYMBOL, {"proc/kallsyms": KALLSYMS.replace("irqentry", "x")}, " or irqentry_exit"),
    (Refusal.PTI, {"proc/cpuinfo": FLAGS.format("pti")}, "pti in"),
    (Refusal.FRED, {"proc/cpuinfo": FLAGS.format("fred")}, "fred in"),
    (Refusal.IBRS, {f"{VULNERABILITIES}/spectre_v2": "Mitigation: IBRS; IBPB"}, "IBRS; IBPB"),
    (Refusal.CALL_DEPTH, {f"{VULNERABILITIES}/retbleed": "Mitigation: Stuffing"}, "Stuffing"),
    (Refusal.XEN, {"sys/hypervisor/guest_type": "PV\n"}, "Xen PV"),
    (Refusal.CONFIDENTIAL, {"dev/sev-guest": ""}, "sev-guest"),
    (Refusal.CONFIDENTIAL, {"proc/cpuinfo": FLAGS.format("tdx_guest")}, "TDX"),
    (Refusal.CONTEXT, {"sys/devices/system/cpu/nohz_full": "1-3\n"}, "processors 1-3"),
    (
        Refusal.LOCKDOWN,
        {"sys/kernel/security/lockdown": "none [integrity] confidentiality"},
        "(integrity)",
    ),
]


@pytest.mark.parametrize(
    ("code", "files", "words"), REASONS, ids=lambda value: getattr(value, "name", "")
)
def test_each_reason_is_seen_where_no_module_answers(tmp_path, code, files, words):
    head, *others = examine(machine(tmp_path, files))
    refused = [one for one in others if not one.ok]
    assert (head.id, head.ok) == ("supervisor", False) and "one reason" in head.found
    assert [one.id for one in refused] == [f"supervisor-{table()[code].name}"]
    assert words in refused[0].found and refused[0].remedy == table()[code].remedy
    assert table()[code].title not in others[-1].found


def test_every_prediction_is_tested():
    assert {code for code, _, _ in REASONS} == PREDICTIONS.keys()


def test_nothing_against_it_leaves_the_word_to_the_module(tmp_path):
    head, fine = examine(machine(tmp_path, {}))
    assert head.ok and "the module itself says" in head.found
    assert all(table()[code].title in fine.found for code in PREDICTIONS)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("proc/cpuinfo", FLAGS.format("nopti xfred")),
        ("proc/cpuinfo", FLAGS.format("ibt lass user_shstk")),
        (f"{VULNERABILITIES}/spectre_v2", "Mitigation: Enhanced IBRS"),
        ("sys/hypervisor/guest_type", "HVM"),
        ("sys/devices/system/cpu/nohz_full", "\n"),
        ("proc/kallsyms", ""),
    ],
)
def test_what_only_looks_like_a_reason_is_none(tmp_path, file, text):
    assert examine(machine(tmp_path, {file: text}))[0].ok


def test_a_kernel_without_modules_leads_to_the_lab(tmp_path):
    head, fine = examine(Host(tmp_path, 0, "9.9.9"))
    assert not head.ok and "no modules" in head.found and "run --lab" in head.remedy
    assert fine.ok


@pytest.mark.parametrize(
    ("mask", "ids", "words"),
    [
        (0, ["supervisor"], "offered by the module"),
        (1 << Refusal.PARAMETER, ["supervisor", "supervisor-parameter"], "one reason"),
        (
            1 << Refusal.PTI | 1 << Refusal.LOCKDOWN,
            ["supervisor", "supervisor-pti", "supervisor-lockdown"],
            "2 reasons",
        ),
    ],
)
def test_the_module_is_asked_first(tmp_path, monkeypatch, mask, ids, words):
    def ioctl(_fd, code, argument):
        assert code == abi.IOC_SUPERVISOR
        argument.refusals = mask
        return 0

    monkeypatch.setattr(control, "_ioctl", ioctl)
    answers = examine(machine(tmp_path, {"dev/trapless": "", "proc/cpuinfo": FLAGS.format("fred")}))
    assert [one.id for one in answers] == ids
    assert words in answers[0].found and answers[0].ok is (mask == 0)
    assert all(one.remedy for one in answers if not one.ok)


def test_a_reason_of_a_newer_module_is_shown_as_its_bit(tmp_path, monkeypatch):
    def ioctl(_fd, _code, argument):
        argument.refusals = 1 << 31
        return 0

    monkeypatch.setattr(control, "_ioctl", ioctl)
    (head,) = examine(machine(tmp_path, {"dev/trapless": ""}))
    assert not head.ok and "0x80000000" in head.remedy


def test_an_older_module_is_no_answer(tmp_path):
    head, *_ = examine(machine(tmp_path, {"dev/trapless": ""}))  # a file: ENOTTY
    assert head.ok and "when it is loaded" in head.found
