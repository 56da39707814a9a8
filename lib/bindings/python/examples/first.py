# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""A first program, which makes three system calls by one crossing into the kernel."""

from libtrapless import Backend, Batch, Stat

root = Stat()
with Batch() as batch:
    parent = batch.add("getppid")
    status = batch.add("stat", "/", root)
    closed = batch.close_file(-1)
    made = batch.flush()
    way = "one crossing" if batch.backend is Backend.MODULE else "one by one"
print(f"{made} calls, {way}")
print(f"getppid: {parent.result()}")
print(f"stat /: {status.result()}, inode {root.st_ino}")
print(f"close -1: {closed.value}")
