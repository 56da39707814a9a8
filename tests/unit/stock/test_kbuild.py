# SPDX-License-Identifier: GPL-2.0-only
"""The module is built when something it is made of has changed, and not otherwise.

It owns the tests of kbuild.py. The kernel here is a Makefile that does what kbuild does at its
end, so that each command line, copy and message is real; tests/lab builds for real kernels.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from trapless.base.console import Silent, TraplessError
from trapless.stock import kbuild
from trapless.stock.kernel import Kernel

COUNT_AND_BUILD = """\
modules:
\techo built >> $(COUNT)
\tcat $(M)/trapless.c $(M)/../include/trapless.h > $(M)/trapless.ko
"""

needs_make = pytest.mark.skipif(
    not all(shutil.which(tool) for tool in ("make", "gcc", "ld")), reason="needs make and gcc"
)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    for name, text in (
        ("kmod/Kbuild", "obj-m := trapless.o\n"),
        ("kmod/trapless.c", "source\n"),
        ("kmod/trapless.o", "left by somebody's make\n"),
        ("include/trapless.h", "header\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(kbuild, "repo_root", lambda: root)
    monkeypatch.setenv("TRAPLESS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COUNT", str(tmp_path / "count"))
    return root


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    build = tmp_path / "build"
    build.mkdir()
    (build / "Makefile").write_text(COUNT_AND_BUILD)
    (build / "Module.symvers").write_text("0 symbol\n")
    return Kernel("test", "9.9.1", tmp_path / "vmlinuz", build, None)


def builds(tmp_path: Path) -> int:
    count = tmp_path / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


@needs_make
def test_the_module_is_built_once(checkout: Path, kernel: Kernel, tmp_path: Path) -> None:
    module = kbuild.module_for(kernel, Silent())
    assert module.read_text() == "source\nheader\n"
    assert kbuild.module_for(kernel, Silent()) == module
    assert builds(tmp_path) == 1
    assert sorted(path.name for path in module.parent.iterdir()) == ["build.log", "trapless.ko"]


@needs_make
@pytest.mark.parametrize(
    "changed", ["checkout/kmod/trapless.c", "checkout/include/trapless.h", "build/Module.symvers"]
)
def test_a_change_builds_anew(checkout: Path, kernel: Kernel, tmp_path: Path, changed: str) -> None:
    first = kbuild.module_for(kernel, Silent())
    (tmp_path / changed).write_text("changed\n")
    assert kbuild.module_for(kernel, Silent()) != first
    assert builds(tmp_path) == 2


@needs_make
def test_what_is_no_source_is_not_copied(checkout: Path, kernel: Kernel, tmp_path: Path) -> None:
    first = kbuild.module_for(kernel, Silent())
    (checkout / "kmod/trapless.o").write_text("changed\n")
    assert kbuild.module_for(kernel, Silent()) == first
    assert kernel.build_dir is not None
    (kernel.build_dir / "Makefile").write_text("modules:\n\tls $(M) > $(M)/trapless.ko\n")
    (kernel.build_dir / ".config").write_text("CONFIG_OTHER=y\n")
    assert kbuild.module_for(kernel, Silent()).read_text().split() == [
        "Kbuild",
        "trapless.c",
        "trapless.ko",
    ]


@needs_make
def test_a_failed_build_shows_the_compilers_lines(
    checkout: Path, kernel: Kernel, tmp_path: Path
) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / "Makefile").write_text(
        "modules:\n"
        "\t@echo '  CC [M] trapless.o'; echo \"$(M)/trapless.c:7:1: error: no such thing\" >&2\n"
        "\t@echo 'ring.c:9:2: error: nor this' >&2; exit 1\n"
    )
    with pytest.raises(TraplessError) as caught:
        kbuild.module_for(kernel, Silent())
    message = str(caught.value)
    assert "does not build for 9.9.1" in message
    assert "    kmod/trapless.c:7:1: error: no such thing\n" in message
    assert "    kmod/ring.c:9:2: error: nor this" in message
    assert not list((tmp_path / "cache" / "modules").glob("9.9.1-*"))


@needs_make
def test_a_build_that_makes_nothing_is_a_failure(checkout: Path, kernel: Kernel) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / "Makefile").write_text("modules:\n\t@echo nothing to do\n")
    with pytest.raises(TraplessError, match="nothing to do"):
        kbuild.module_for(kernel, Silent())


@needs_make
def test_a_calling_makes_settings_do_not_reach_the_build(
    checkout: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / "Makefile").write_text("modules:\n\techo $(CC) > $(M)/trapless.ko\n")
    monkeypatch.setenv("MAKEFLAGS", "-- CC=clang")
    assert kbuild.module_for(kernel, Silent()).read_text() == "cc\n"


@needs_make
def test_a_machine_needs_no_pahole(checkout: Path, kernel: Kernel) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / "Makefile").write_text(
        "CONFIG_DEBUG_INFO_BTF_MODULES=y\n"
        "modules:\n\techo $(CONFIG_DEBUG_INFO_BTF_MODULES) > $(M)/trapless.ko\n"
    )
    assert kbuild.module_for(kernel, Silent()).read_text() == "\n"


@needs_make
def test_old_builds_are_forgotten(
    checkout: Path, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kbuild, "BUILDS_KEPT", 2)
    modules = []
    for number in range(4):
        (checkout / "kmod/trapless.c").write_text(f"{number}\n")
        modules.append(kbuild.module_for(kernel, Silent()))
    assert [module.exists() for module in modules] == [False, False, True, True]


def test_debians_headers_need_no_installation(tmp_path: Path) -> None:
    headers = tmp_path / "usr/src/linux-headers-9.9.1-amd64"
    headers.mkdir(parents=True)
    (headers / "Makefile").write_text(
        f"KBUILD_OUTPUT={headers}\ninclude /usr/src/linux-headers-9.9.1-common/Makefile\n"
    )
    assert kbuild.common_makefile(headers) is None
    common = tmp_path / "usr/src/linux-headers-9.9.1-common/Makefile"
    common.parent.mkdir()
    common.touch()
    assert kbuild.common_makefile(headers) == common


def test_the_compiler_is_the_one_the_headers_name(tmp_path: Path) -> None:
    kernel = Kernel("test", "9.9.1", tmp_path / "vmlinuz", tmp_path, None)
    assert kbuild.compiler_name(kernel) == "gcc"
    (tmp_path / ".kernelvariables").write_text(
        "CCACHE = ccache\nCC = $(if $(X),$(CCACHE)) $(CROSS_COMPILE)gcc-12\n"
    )
    assert kbuild.compiler_name(kernel) == "gcc-12"


CLANG = "CONFIG_CC_IS_CLANG=y\nCONFIG_CLANG_VERSION=990006\nCONFIG_LD_IS_LLD=y\n"


@pytest.mark.parametrize(
    "here, root, suffix",
    [
        ({"clang-99": "99"}, (), "-99"),
        ({"clang-99": "99", "clang": "100"}, (), "-99"),
        ({"clang": "100"}, (), ""),
        ({"clang": "98"}, (), "-99"),
        ({}, (), "-99"),
        ({}, ("clang-99",), "-99"),
        ({"clang-99": "99"}, ("clang",), ""),
    ],
)
def test_a_kernel_of_clangs_gets_a_module_of_clangs(
    kernel: Kernel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    here: Mapping[str, str],
    root: Sequence[str],
    suffix: str,
) -> None:
    for name, release in here.items():
        (tmp_path / name).write_text(f"#!/bin/sh\necho Debian clang version {release}.0.6\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    kbuild.compiler_version.cache_clear()
    if root:
        kernel = replace(kernel, build_root=tmp_path / "root")
        (tmp_path / "root/usr/bin").mkdir(parents=True)
        for name in root:
            (tmp_path / "root/usr/bin" / name).touch(0o755)
    assert kernel.build_dir is not None
    config = kernel.build_dir / ".config"
    config.write_text(CLANG)
    assert kbuild.clang_tools(kernel) == {"CC": f"clang{suffix}", "LD": f"ld.lld{suffix}"}
    assert kbuild.compiler_name(kernel) == f"clang{suffix}"
    config.write_text(CLANG.replace("CONFIG_LD_IS_LLD=y", ""))
    assert kbuild.clang_tools(kernel) == {"CC": f"clang{suffix}"}
    config.write_text("CONFIG_CC_IS_GCC=y\nCONFIG_CLANG_VERSION=0\n")
    assert kbuild.clang_tools(kernel) == {}
    kbuild.compiler_version.cache_clear()


def test_missing_tools_of_clangs_are_named_and_its_lines_are_not_counted(
    checkout: Path, kernel: Kernel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / ".config").write_text(CLANG)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TraplessError, match="apt-get install clang-99 lld-99"):
        kbuild.module_for(kernel, Silent())
    with pytest.raises(TraplessError, match="give another kernel"):
        kbuild.module_for(kernel, Silent(), counted=True)


def test_a_missing_compiler_is_named(checkout: Path, kernel: Kernel) -> None:
    assert kernel.build_dir is not None
    (kernel.build_dir / ".kernelvariables").write_text("CC = gcc-99\n")
    with pytest.raises(TraplessError, match="apt-get install gcc-99"):
        kbuild.module_for(kernel, Silent())


def test_an_image_without_headers_says_how_to_give_them(tmp_path: Path) -> None:
    kernel = Kernel("x", "9.9.1", tmp_path / "bzImage", None, None)
    with pytest.raises(TraplessError, match="give IMAGE:BUILD_DIR"):
        kbuild.module_for(kernel, Silent())


def test_tools_that_cannot_run_in_their_root_are_explained(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "proc").mkdir()
    with pytest.raises(TraplessError, match="unprivileged user namespaces"):
        kbuild.root_entry(tmp_path)
