# SPDX-License-Identifier: GPL-2.0-only
"""The Debian packages in clean roots (`make packages-test`): installed, used, upgraded, purged.

The tests of a root stand in the order of a package's life, and each goes on where the one before
it ended. They begin with what apt says that an installation costs (docs/install.md).
A VM here boots the root's own kernel, whose module DKMS has built, on the root's files.
"""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.packages.conftest import build
from tests.packages.test_debs import NAMES
from trapless import __version__

ROOT = Path(__file__).resolve().parents[2]
NEXT = f"{__version__}+next"
ROW = re.compile(r"^\| `apt-get install ([^`]+)` \| .*? \| ([\d,]+) \| ([\d,]+) \|", re.M)
COSTS = {
    row[1]: (int(row[2].replace(",", "")), int(row[3].replace(",", "")))
    for row in ROW.finditer((ROOT / "docs/install.md").read_text())
}
PROMISED = {
    "libtrapless0": (1, 1),
    "trapless": (60, 200),
    "trapless trapless-lab": (160, 600),
}
"""The most that these may ever cost: packages, and megabytes."""
TOPS = ("boot", "etc", "lib/modules", "usr", "var/lib", "var/cache")


def apt(root, packages: list[Path], names: str, *options: str) -> str:
    """What apt says; it takes our packages by their files, and others by their names."""
    ours = {path.name.partition("_")[0]: f"/mnt/debs/{path.name}" for path in packages}
    wanted = [ours.get(name, name) for name in names.split()]
    words = ["apt-get -q install --no-install-recommends", *options, *wanted]
    return root.run(" ".join(words), debs=packages[0].parent)


def cost(root, packages: list[Path], names: str) -> tuple[int, float]:
    """Packages and megabytes that apt would add."""
    count = len(re.findall("^Inst ", apt(root, packages, names, "-s"), re.M))
    said = apt(root, packages, names, "--print-uris")
    size, unit = re.search(r"([\d.,]+) (kB|MB|GB) of additional disk space", said).groups()
    return count, float(size.replace(",", "")) * {"kB": 1e-3, "MB": 1, "GB": 1e3}[unit]


@pytest.fixture(scope="session")
def next_packages() -> list[Path]:
    return build(ROOT, NEXT)


@pytest.fixture(scope="module")
def before(root) -> set[str]:
    """Every file of the clean root with what the packages need, and a kernel with its headers."""
    control = (ROOT / "scripts/debian/control").read_text()
    ours = tuple(f"Package: trapless{end}\n" for end in ("", "-lab", "-experiments"))
    paragraphs = [one for one in control.split("\n\n") if one.startswith(ours)]
    lists = [re.search("^Depends: (.*)$", one, re.M)[1].split(", ") for one in paragraphs]
    words = [word for words in lists for word in words]
    needs = {word.split()[0] for word in words if not word.startswith(("$", "trapless"))}
    kernel = ("linux-image-amd64", "linux-headers-amd64", "dkms", "pkgconf")
    root.run(f"apt-get -q -y install {' '.join((*needs, *kernel))}")
    return root.files(*TOPS)


def test_the_package_is_of_no_version_of_python(packages):
    """It would not install where another one is the default: Debian 13's is not Debian 12's."""
    (command,) = [path for path in packages if path.name.startswith("trapless_")]
    script = subprocess.run(["dpkg-deb", "-I", command, "postinst"], capture_output=True, text=True)
    assert "py3compile" in script.stdout and " -V " not in script.stdout


def test_the_version_is_the_projects(packages):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert all(f"_{project['version']}_" in path.name for path in packages)


@pytest.mark.parametrize("names", COSTS)
def test_an_installation_costs_what_the_document_says(release, root, packages, names):
    if release != "12":
        pytest.skip("the table is of Debian 12")
    for ours, most in zip(cost(root, packages, names), COSTS[names], strict=True):
        assert most * 0.8 - 1 < ours <= most, f"{names}: {ours}, and the document says {most}"


def test_the_document_keeps_what_was_promised():
    for names, most in PROMISED.items():
        assert all(said <= bound for said, bound in zip(COSTS[names], most, strict=True))


def test_the_command_alone_works_and_names_what_the_others_need(root, packages):
    apt(root, packages, "trapless", "-y")
    assert "yes  Python packages: Python 3" in root.run("trapless doctor")
    assert "no   Python packages for figures: lacks matplotlib" in root.run("trapless doctor")
    root.run("trapless ps --help && trapless switch --help")
    root.run("head -c 16M /dev/zero >/root/ram")
    assert "no kernel in" in root.run("trapless peek ps --ram /root/ram", 1)
    assert "apt-get install qemu-system-x86" in root.run("trapless lab -- true", 1)
    for words, package in (("peek top", "pyarrow"), ("peek shell", "drgn")):
        said = root.run(f"trapless {words} --ram /root/ram", 1)
        assert f"pip install --break-system-packages {package}" in said
    root.run(f"umask 077; echo {64 * 'a'} >/root/key")
    said = root.run("trapless peek ps --rdma 127.0.0.1 --key /root/key", 1)
    assert "apt-get install librdmacm1 ibverbs-providers" in said
    root.run("apt-get -q -y purge trapless && apt-get -q -y --purge autoremove")


def test_apt_installs_them(root, before, packages):
    files = " ".join(f"/mnt/debs/{path.name}" for path in packages)
    root.run(f"apt-get -q -y install {files}", debs=packages[0].parent)
    assert root.run("trapless --version") == f"trapless {__version__}\n"
    assert "yes  Python packages" in root.run("trapless doctor")


def test_completion_and_manuals_are_where_they_are_looked_for(root):
    for name in (
        "bash-completion/completions/trapless",
        "zsh/vendor-completions/_trapless",
        "fish/vendor_completions.d/trapless.fish",
    ):
        assert "_TRAPLESS_COMPLETE" in (root.folder / "usr/share" / name).read_text()
    complete = "COMP_WORDS='trapless doc' COMP_CWORD=1 _TRAPLESS_COMPLETE=bash_complete trapless"
    assert root.run(complete) == "plain,doctor\n"
    for page in ("man1/trapless.1", "man1/trapless-stat.1", "man3/tl_batch_add.3"):
        assert (root.folder / f"usr/share/man/{page}.gz").exists()


def test_the_lab_boots_a_stock_kernel(root):
    release = root.run("trapless lab -- uname -r").splitlines()[-1]
    assert release.endswith("-amd64")


def test_dkms_built_the_module_for_the_kernel_and_it_makes_one_crossing(root):
    release = root.run("ls /lib/modules").strip()
    assert f"trapless/{__version__}, {release}, x86_64: installed" in root.run("dkms status")
    depends = f"modinfo -k {release} -F depends"
    assert root.run(f"{depends} trapless") == "\n"
    assert "ib_core" in root.run(f"{depends} trapless_rdma")
    compile_it = "gcc /mnt/examples/first.c -o /root/first $(pkg-config --cflags --libs trapless)"
    root.run(compile_it, examples=ROOT / "examples")
    inside = "modprobe trapless && /root/first"
    said = root.run(
        f"trapless lab --kernel /boot/vmlinuz-{release} --no-module --host-root -- sh -c '{inside}'"
    )
    assert "3 calls, one crossing" in said
    assert "3 calls, one by one" in root.run("/root/first && rm /root/first")


def test_dkms_signs_the_module_also_with_a_key_of_the_administrators(root):
    signer = f"modinfo -k {root.run('ls /lib/modules').strip()} -F signer trapless"
    assert "DKMS module signing key" in root.run(signer)
    assert (root.folder / "var/lib/dkms/mok.pub").exists()
    page = (ROOT / "scripts/debian/trapless-dkms.README.Debian").read_text()
    remedy = [line.partition("#")[0].strip() for line in page.splitlines() if "--force" in line]
    assert [words.split()[1] for words in remedy] == ["build", "install"]
    script = " && ".join(
        (
            "cp /etc/dkms/framework.conf /root/before",
            "openssl req -new -x509 -newkey rsa:2048 -nodes -subj /CN=own/ -keyout /root/own.key "
            "-outform DER -out /root/own.der",
            "echo mok_signing_key=/root/own.key >>/etc/dkms/framework.conf",
            "echo mok_certificate=/root/own.der >>/etc/dkms/framework.conf",
            *(f"{words.replace('VERSION', __version__)} -k $(ls /lib/modules)" for words in remedy),
            "mv /root/before /etc/dkms/framework.conf && rm /root/own.*",
        )
    )
    root.run(script)
    assert root.run(signer) == "own\n"


def test_python_finds_the_library(root):
    examples = ROOT / "lib/bindings/python/examples"
    assert "3 calls, one by one" in root.run("python3 /mnt/py/first.py", py=examples)


def test_an_upgrade_replaces_everything(root, next_packages):
    files = " ".join(f"/mnt/debs/{path.name}" for path in next_packages)
    root.run(f"apt-get -q -y install {files}", debs=next_packages[0].parent)
    status = root.run("dkms status")
    assert f"trapless/{NEXT}" in status and f"trapless/{__version__}," not in status
    assert not (root.folder / f"usr/src/trapless-{__version__}").exists()


def test_a_purge_leaves_nothing(root, before):
    root.run(f"apt-get -q -y purge {' '.join(NAMES)}")
    ours = {name for name in root.files(*TOPS) - before if "trapless" in name}
    assert ours == set()
    assert not [name for name in root.files("lib/modules") - before if name.endswith(".ko")]
