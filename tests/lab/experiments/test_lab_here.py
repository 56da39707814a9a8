# SPDX-License-Identifier: GPL-2.0-only
"""`trapless evaluate --here` whole, in a VM that stands for a machine of its own: this machine's
Python runs in the guest, on its files, and loads the module into the guest's kernel.

The guest is emulated and has no counters: figures mean nothing, and no claim about clocks may be
decided by them. All else is as on a processor.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from eval.memory_hierarchy import part_regions as hierarchy
from eval.programs import part_programs as array
from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.experiments import archive, experiment, fit, verify
from trapless.stock import kbuild, kernels
from trapless.vm import lab

pytestmark = [pytest.mark.lab, pytest.mark.long, pytest.mark.timeout(3600)]

RAN = (
    "batch-size",
    "ls",
    "memory-hierarchy",
    "mode-switch",
    "parallel",
    "peek-overhead",
    "programs",
    "servers",
)
STEPS = """\
set -e
cd {root}
rm Makefile # of the guest's own view: as in an installation, nothing is to be built
mkdir -p /lib/modules
ln -s {modules} /lib/modules/$(uname -r)
exec .venv/bin/python -m tests.lab.experiments.here_guest {module}
"""


@pytest.fixture(scope="module")
def ran(request, tmp_path_factory) -> tuple[Path, str, lab.LabResult]:
    """The archive that the guest has packed, what it said, and how it ended."""
    name = request.param
    kernel = kernels.resolve(name, Silent())
    folder = tmp_path_factory.mktemp("modules")
    shutil.copy(kbuild.module_for(kernel, Silent()), folder)
    shutil.copy(kbuild.module_for(kernel, Silent(), hierarchy.TREE, hierarchy.MODULE), folder)
    shutil.copy(kbuild.module_for(kernel, Silent(), array.HERE, array.MODULE), folder)
    module = folder / kbuild.MODULE
    script = STEPS.format(root=repo_root(), modules=kernel.modules_dir, module=module)
    config = lab.LabConfig(kernel=name, host_root=True, module=False, memory="2G", timeout_s=1500)
    result = lab.run(config, ["sh", "-c", script], progress=Silent())
    said = result.stderr.decode(errors="replace")
    assert result.status == 0, said
    path = tmp_path_factory.mktemp("here") / "results.tar.xz"
    path.write_bytes(result.stdout)
    return path, said, result


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One VM a kernel for all tests. It takes minutes: CI has the first kernel alone."""
    from tests.lab.runner.suite import kernel_names

    names = kernel_names(metafunc.config.getoption("--kernels"))
    others = [pytest.param(name, marks=pytest.mark.nightly) for name in names[1:]]
    metafunc.parametrize("ran", [*names[:1], *others], indirect=True, scope="module")


def test_nothing_begins_without_consent(ran):
    assert re.search(r"^without consent: 2$", ran[1], re.MULTILINE), ran[1]
    assert "--yes goes on without a question" in ran[1]


def test_it_says_first_what_it_loads_and_gives_up(ran):
    said = ran[1]
    assert said.index("It loads into this kernel, as root") < said.index("batch-size: calls")
    assert "nothing\n  protects the machine from them" in said
    for name in set(experiment.names()) - set(RAN):
        assert f"left out: {name}: " in said


def test_nothing_stays_loaded_or_mounted(ran):
    assert re.search(r"^left after the run:$", ran[1], re.MULTILINE), ran[1]
    assert re.search(r"^interrupted: 130$", ran[1], re.MULTILINE), ran[1]
    assert re.search(r"^left after an interrupt:$", ran[1], re.MULTILINE), ran[1]


def test_the_kernel_did_not_complain(ran):
    assert not lab.splats(ran[2].kernel_log)


def test_the_results_verify_and_decide_no_claim_by_an_emulators_clock(ran):
    verified = verify.verify(ran[0], Silent())
    assert tuple(one.experiment for one in verified.results) == RAN
    for one in verified.results:
        assert one.accelerator == "none"
        assert one.kernel == ran[2].release
        assert "virtual machine" in one.machine
    claims = {claim.id: claim.holds for one in verified.results for claim in one.claims}
    assert claims["wsc-fast-trap"] is None
    assert claims["dms-saving"] is None
    assert claims["dms-ls408"] is None


def test_each_experiment_measured_what_it_is_for(ran):
    with archive.unpacked(ran[0]) as folder:
        metrics = {name: experiment.analyse(name, folder / name).metrics for name in RAN}
        disks = [row for row in experiment.load_raw(folder / "parallel").rows if "skipped" in row]
    assert metrics["batch-size"]["getppid.batch.n32.ns"].value > 0
    assert metrics["batch-size"]["read1_disk.batch.n32.ratio"].n >= fit.SAMPLES_MIN
    assert metrics["batch-size"]["walk.batch.total.ns"].value > 0
    assert metrics["mode-switch"]["getpid.supervisor.static.ns"].value > 0
    assert metrics["ls"]["ls-lr.supervisor.busybox.share"].value > 0.9
    assert metrics["memory-hierarchy"]["iteration.batched.u0_k0.ratio"].n >= fit.SAMPLES_MIN
    assert metrics["peek-overhead"]["calls.counts.each.ratio"].n >= fit.SAMPLES_MIN
    assert metrics["programs"]["file.program.n32.ratio"].n >= fit.SAMPLES_MIN
    assert metrics["servers"]["http.scheduler.keep8.ratio"].n >= fit.SAMPLES_MIN
    assert metrics["servers"]["http.epoll-supervisor.all.share"].value > 0.9
    assert metrics["parallel"]["slow_read.psc.gap.ratio"].kind == "measured", disks
