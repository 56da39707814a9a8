# SPDX-License-Identifier: GPL-2.0-only
"""Declares `trapless peek serve`, its options and its help."""

from __future__ import annotations

import os
from pathlib import Path

import click

from trapless.peek.commands import need, size


@click.command()
@click.option(
    "--listen",
    default="127.0.0.1:9737",
    show_default=True,
    metavar="HOST:PORT|PATH",
    help="Loopback address or Unix socket where it answers; a reverse proxy answers other hosts.",
)
@click.option(
    "--interval-us",
    type=click.FloatRange(100, 1_000_000),
    default=10_000.0,
    show_default=True,
    metavar="N",
    help="Microseconds from one sample of a VM to the next.",
)
@click.option("--cpu", type=click.IntRange(0), metavar="N", help="Processor for all samplers.")
@click.option(
    "--vm",
    "patterns",
    multiple=True,
    metavar="PATTERN",
    help="Observe VMs with such names, as in 'web-*'; may be repeated.  [default: all]",
)
@click.option(
    "--ram",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Observe the VM with this RAM file, too; may be repeated.",
)
@click.option(
    "--processes",
    type=click.IntRange(0, 100),
    default=0,
    show_default=True,
    metavar="N",
    help="Give the times of up to N processes of each VM by their names.",
)
@click.option(
    "--recordings",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Record all VMs into FOLDER, and remove the oldest recordings.",
)
@click.option(
    "--recordings-size",
    type=size,
    default="1G",
    show_default=True,
    metavar="SIZE",
    help="How much all recordings together may take, 16M at least.",
)
def serve(
    listen: str,
    interval_us: float,
    cpu: int | None,
    patterns: tuple[str, ...],
    files: tuple[Path, ...],
    processes: int,
    recordings: Path | None,
    recordings_size: int,
) -> None:
    """Observe all VMs of this host, for Prometheus and browsers.

    VMs are found as they come and go, and followed over reboots. /metrics has their CPU shares,
    run queues, disabled interrupts, steal, and how well they were sampled; / is a page with a line
    for each VM; /healthz is for whoever restarts the daemon. SIGTERM or Ctrl-C ends it.

    \b
    trapless peek serve --recordings /var/lib/trapless/recordings --recordings-size 10G
    curl http://127.0.0.1:9737/metrics
    trapless peek serve --listen /run/trapless/peek.sock
    """
    need("prometheus_client", "it answers Prometheus", "prometheus-client")
    need("pyarrow", "samples are added up with it")
    from trapless.peek.serve import daemon
    from trapless.peek.serve.recordings_folder import BYTES_MIN
    from trapless.peek.serve.web import Address

    source = click.get_current_context().get_parameter_source("recordings_size")
    if recordings is None and source is not click.core.ParameterSource.DEFAULT:
        raise click.UsageError("--recordings-size is for the folder of --recordings")
    if recordings_size < BYTES_MIN:
        raise click.UsageError(
            f"--recordings-size: {recordings_size:,} bytes; recordings take {BYTES_MIN >> 20}M at "
            "least"
        )
    last = os.sysconf("SC_NPROCESSORS_CONF") - 1
    if cpu is not None and cpu > last:
        raise click.UsageError(f"--cpu: this host has no CPU {cpu}, but 0 to {last}")
    daemon.serve(
        daemon.Options(
            address=Address.named(listen),
            interval_ns=round(interval_us * 1000),
            cpu=cpu,
            patterns=patterns,
            files=files,
            names_max=processes,
            recordings=recordings,
            recordings_bytes=recordings_size,
        ),
        daemon.log,
    )
