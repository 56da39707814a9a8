# SPDX-License-Identifier: GPL-2.0-only
"""Runs plug-ins of volatility3 on a dump, each as the command `vol` does, and prints their rows.

A program of its own, because volatility3 keeps what it has loaded: python -m
tests.lab.peek.interop.volatility_run DUMP TABLES CACHE PLUGIN...
"""

from __future__ import annotations

import json
import sys
from typing import Any
from urllib.request import pathname2url

import volatility3.plugins
import volatility3.symbols
from volatility3 import framework
from volatility3.framework import automagic, constants, contexts, plugins


def main(dump: str, tables: str, cache: str, *names: str) -> None:
    constants.CACHE_PATH, constants.OFFLINE = cache, True
    volatility3.symbols.__path__.insert(0, tables)
    constants.SYMBOL_BASEPATHS.insert(0, tables)
    framework.import_files(volatility3.plugins, True)
    classes = framework.list_plugins()
    context = contexts.Context()
    context.config["automagic.LayerStacker.single_location"] = "file:" + pathname2url(dump)
    kernel = None
    for name in names:
        plugin = classes[f"linux.{name}"]
        if kernel is not None:  # the first one has found it
            context.config[f"plugins.{plugin.__name__}.kernel"] = kernel
        steps = automagic.choose_automagic(automagic.available(context), plugin)
        grid = plugins.construct_plugin(context, steps, plugin, "plugins", None, None).run()
        kernel = kernel or context.config[f"plugins.{plugin.__name__}.kernel"]
        rows: list[dict[str, Any]] = []
        grid.populate(lambda node, _, grid=grid, rows=rows: rows.append(_row(grid, node)), None)
        print(json.dumps(rows))


def _row(grid: Any, node: Any) -> dict[str, Any]:
    values = zip(grid.columns, node.values, strict=True)
    row: dict[str, Any] = {
        column.name: int(value) if isinstance(value, int) else str(value)
        for column, value in values
    }
    return {"depth": node.path_depth, **row}


if __name__ == "__main__":
    main(*sys.argv[1:])
