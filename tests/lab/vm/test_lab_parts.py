# SPDX-License-Identifier: GPL-2.0-only
"""The module without its optional parts, as it is built for kernels that lack what these need (with
PREEMPT_RT, without jump labels): it is whole, says so, and makes calls.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.lab.command import LIMIT_S
from tests.lab.runner.suite import BINARY, build_programs
from trapless.base.console import Silent
from trapless.base.paths import repo_root
from trapless.stock import kbuild, kernels
from trapless.vm import lab

pytestmark = pytest.mark.timeout(4 * LIMIT_S)

ASKED = ("$(CONFIG_PREEMPT_RT),yy)", "$(CONFIG_TRACEPOINTS),yyy)")
"""The ends of the questions whether a kernel has what supervisor mode and probes need."""
SCRIPT = """
insmod /trapless.ko probes=1 2>/dev/null || echo no probes
insmod /trapless.ko supervisor=1
/labtests batch_keeps_order && /labtests workers_serve_in_parallel && echo calls
/labtests supervisor_mode_is_offered || echo no supervisor mode
"""


@pytest.mark.tool
def test_module_without_optional_parts_makes_calls(kernel: str, tmp_path: Path) -> None:
    build_programs(Silent())
    shutil.copytree(repo_root() / "kmod", tmp_path / "kmod")
    shutil.copytree(repo_root() / "include", tmp_path / "include")
    features = tmp_path / "kmod/compat/features.mk"
    text = features.read_text()
    for end in ASKED:
        assert text.count(end) == 1
        text = text.replace(end, end.replace(",", ",no"))
    features.write_text(text)
    module = kbuild.module_for(kernels.resolve(kernel, Silent()), Silent(), tmp_path)
    files = ((module, "/trapless.ko"), (BINARY, "/labtests"))
    config = lab.LabConfig(kernel=kernel, cpus=2, module=False, files=files)
    result = lab.run(config, ["sh", "-c", SCRIPT])
    said = result.stdout.decode().splitlines()
    assert said == ["no probes", "calls", "no supervisor mode"], result.stderr
