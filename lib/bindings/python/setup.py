# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Builds the extension module with the C library inside: a compiler is all it needs.

A checkout has the C library three folders above. Its sources are copied to `library` meanwhile: an
sdist takes them along, and has them there.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
CHECKOUT = (HERE / "../../..").resolve()
INSIDE = HERE / "library"


def copy_library() -> None:
    """The C library as the checkout has it."""
    shutil.rmtree(INSIDE, ignore_errors=True)
    shutil.copytree(CHECKOUT / "include", INSIDE / "include")
    left_out = shutil.ignore_patterns("bindings")
    shutil.copytree(CHECKOUT / "lib", INSIDE / "lib", ignore=left_out)


class Build(build_ext):
    """Says what this machine lacks, where the compiler would say less."""

    def run(self) -> None:
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        headers = Path(sysconfig.get_path("include"), "Python.h")
        lacks = [] if shutil.which(compiler) else [f"the C compiler {compiler}"]
        lacks += [] if headers.exists() else [f"Python's headers ({headers})"]
        if lacks:
            remedy = "On Debian: apt-get install gcc python3-dev"
            sys.exit(f"libtrapless is built from C; absent: {' and '.join(lacks)}. {remedy}")
        super().run()


def build() -> None:
    sources = [
        str(path.relative_to(HERE))
        for top in ("extension", "library/lib")
        for path in sorted((HERE / top).rglob("*.c"))
    ]
    extension = Extension(
        "libtrapless._ring",
        sources,
        include_dirs=["library/lib", "library/include", "library/include/uapi"],
        define_macros=[("_GNU_SOURCE", None)],
        extra_compile_args=["-std=gnu11"],
        extra_link_args=["-Wl,-z,now", "-Wl,--version-script,extension/ring.map", "-pthread"],
        py_limited_api=True,
    )
    oldest = {"py_limited_api": "cp311"}
    setup(ext_modules=[extension], options={"bdist_wheel": oldest}, cmdclass={"build_ext": Build})


if not (CHECKOUT / "include/trapless.h").exists():
    build()
else:
    copy_library()
    try:
        build()
    finally:
        shutil.rmtree(INSIDE)
