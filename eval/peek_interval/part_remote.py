# SPDX-License-Identifier: GPL-2.0-only
"""Counts what a read takes by the ways to machines that are not virtual ones: kcore and RDMA.

Owns the guest, which reads a page of its own (own_page.c), its device for RDMA, and the metrics.
The guest's clock counts its instructions. Both ends of an RDMA READ are in one guest, so that all
that it takes is counted.
"""

from __future__ import annotations

import ctypes
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace

from eval.peek_interval import spec
from trapless.experiments.collection import Collection
from trapless.experiments.experiment import Findings, Raw, program
from trapless.peek.sampling import sampler
from trapless.report.figures import Figure, Table
from trapless.results.result_file import Metric
from trapless.stock import kbuild, kernels
from trapless.vm.lab import LabConfig

GUEST_PROGRAM, GUEST_MODULE, KEY_FILE = "/root/own-page", "/root/trapless_rdma.ko", "/root/key"
ADDRESS, PORT = "192.0.2.1", 18515
MEMORY, TIMEOUT_S = "1G", 3600.0
KEY = bytes(range(32)).hex()
WAYS = {"ram": "mapped", "regions": "kcore", "rdma": "rdma"}
"""The sampler's sources, and what a metric calls them."""
TITLES = {"mapped": "a mapped file", "kcore": "/proc/kcore", "rdma": "RDMA READ, by Soft-RoCE"}
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
DEVICE = f"""\
set -e
PATH={PATH}
ip link set lo up
ip link add rdma0 type dummy
ip link set rdma0 mtu 4400 up
ip addr add {ADDRESS}/24 dev rdma0
rdma link add rxe0 type rxe netdev rdma0
insmod {GUEST_MODULE} address={ADDRESS} allow={ADDRESS} allow_virtual_dma=1
umask 077
echo {KEY} >{KEY_FILE}
cat {KEY_FILE} >/sys/module/trapless_rdma/parameters/key
"""


NEEDED = {"ip": "iproute2", "rdma": "iproute2"}
"""The commands that make the device, and Debian's packages of them."""


def missing() -> str:
    """What this machine lacks for RDMA in a guest that has its files; empty where all is there."""
    lacks = {package for name, package in NEEDED.items() if shutil.which(name, path=PATH) is None}
    try:
        ctypes.CDLL("librdmacm.so.1")
    except OSError:
        lacks |= {"librdmacm1", "ibverbs-providers"}
    usage = subprocess.run([sampler.program(), "--help"], capture_output=True, check=True).stdout
    if b"rdma:HOST" not in usage:
        lacks.add("librdmacm-dev, and a sampler built after it")
    return ", ".join(sorted(lacks))


def collect(run: Collection) -> None:
    lacks = missing()
    reads = run.chosen(spec.REMOTE_READS)
    command = [GUEST_PROGRAM, str(sampler.program()), ",".join(map(str, spec.REMOTE_SIZES))]
    command.append(str(reads))
    config = LabConfig(
        kernel=run.kernel,
        cpus=1,
        icount=True,
        memory=MEMORY,
        module=False,
        host_root=True,  # the libraries of RDMA
        files=((program("peek_interval/own-page"), GUEST_PROGRAM),),
        timeout_s=TIMEOUT_S,
    )
    if lacks:
        run.write([{"skipped": "RDMA", "reason": f"this machine lacks {lacks}"}])
        run.boot("counted", config, command)
        return
    kernel = kernels.resolve(run.kernel, run.progress)
    module = kbuild.module_for(kernel, run.progress, name=kbuild.RDMA_MODULE)
    config = replace(
        config,
        modules=(("rdma_rxe", ""), ("dummy", "numdummies=0")),
        files=(*config.files, (module, GUEST_MODULE)),
    )
    script = DEVICE + shlex.join([*command, f"{ADDRESS},{PORT},{KEY_FILE}"])
    run.boot("counted", config, ["sh", "-c", script])


def found(raw: Raw) -> Mapping[str, Mapping[int, float]]:
    """Way -> bytes -> instructions of a read; ValueError for reads that found something else."""
    counts: dict[str, dict[int, float]] = {}
    for row in raw.rows:
        if "quantiles" not in row:
            continue
        way, size = WAYS[row["interval"]], row["bytes"]
        if row["changes"] != 1:  # the first read, after none
            raise ValueError(f"reads of {size} bytes by {way} changed {row['changes']} times")
        if row["tick_ns"] != 1:
            raise ValueError("the guest's clock does not count instructions")
        counts.setdefault(way, {})[size] = float(row["bare_ns"])
    for way in tuple(TITLES)[: 2 if is_without_rdma(raw) else 3]:
        if set(counts.get(way, ())) != set(spec.REMOTE_SIZES):
            raise ValueError(f"reads by {way} are missing")
    return counts


def is_without_rdma(raw: Raw) -> bool:
    return any("skipped" in row for row in raw.rows)


def analyse(raw: Raw) -> Findings:
    return Findings(
        {
            f"read{size}.{way}.instructions": Metric(round(count, 1), "instructions", "counted")
            for way, counts in found(raw).items()
            for size, count in counts.items()
        }
    )


def figures(raw: Raw) -> tuple[Figure | Table, ...]:
    counts = found(raw)
    base = counts["mapped"]
    return (
        Table(
            id="peek-remote",
            title="Reads by the ways to machines that are not virtual ones",
            columns=("way", *(f"{size} B" for size in spec.REMOTE_SIZES)),
            rows=tuple(
                (TITLES[way], *(f"{of[size]:,.0f} ({of[size] / base[size]:,.1f})" for size in of))
                for way, of in counts.items()
            ),
            caption="Instructions of a read; in brackets a mapped file = 1. Kernel and user mode "
            "together, by the clock of an emulated guest that reads a page of its own. By "
            "/proc/kcore the commands read with --local and --ssh. With RDMA READ it is both "
            "ends, the network between them and its checksums, because Soft-RoCE does in "
            "software what network cards do by themselves. Where one instruction copies bytes (rep "
            "movsb), the emulator counts each byte. The paper's read of 4 B took 20.7 µs.",
            kind="counted",
        ),
    )
