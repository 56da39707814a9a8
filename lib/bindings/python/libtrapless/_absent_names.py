# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""Names that programs know from io, os, pathlib or aiofiles: what takes their place."""

from __future__ import annotations

from typing import Final

_POSITION: Final = "a file has no position: use pread(count, offset) or pwrite(data, offset)"
OF_FILE: Final = {
    **dict.fromkeys(("seek", "tell", "write", "writelines"), _POSITION),
    "readinto": "use pread(count, offset), which returns the bytes",
    **dict.fromkeys(("readline", "readlines"), "use `async for line in file`"),
    "flush": "nothing is buffered: use fsync() to have the bytes on the disk",
}
OF_FILES: Final = {
    "lstat": "use stat(path, follow_symlinks=False)",
    "exists": "use stat(path), which raises FileNotFoundError",
    **dict.fromkeys(("getsize", "isdir", "isfile", "is_dir", "is_file"), "use stat(path)"),
    "listdir": "use scandir(path)",
    "remove": "use unlink(path)",
    "replace": "use rename(source, target)",
    "read_bytes": "use read_file(path)",
    "read_text": "use (await read_file(path)).decode()",
    **dict.fromkeys(("write_bytes", "write_text"), "use write_file(path, data)"),
    "touch": 'use write_file(path, "", append=True)',
    "fsync": "use write_file(path, data, sync=True), or fsync() of an open file",
    "scantree": "use asyncio.to_thread(list, libtrapless.scantree(path))",
    "rmtree": "use asyncio.to_thread(shutil.rmtree, path)",
    **{
        name: f"use asyncio.to_thread(os.{name}, ...)"
        for name in ("access", "chmod", "chown", "link", "makedirs", "readlink", "symlink", "utime")
    },
}


def absent(self: object, name: str, remedies: dict[str, str]) -> AttributeError:
    """The error for a name that an object lacks, with what takes its place."""
    text = f"{type(self).__name__!r} object has no attribute {name!r}"
    remedy = remedies.get(name)
    return AttributeError(f"{text}: {remedy}" if remedy else text, name=name, obj=self)
