# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""A first program, which makes three system calls by one crossing into the kernel."""

from libtrapless import Batch, Stat

root = Stat()
with Batch() as batch:
    parent = batch.add("getppid")
    status = batch.add("stat", "/", root)
    closed = batch.close_file(-1)
    made = batch.flush()
    way = f"one by one: {batch.reason}" if batch.reason else "one crossing"
print(f"{made} calls, {way}")
print(f"getppid: {parent.result()}")
print(f"stat /: {status.result()}, inode {root.st_ino}")
print(f"close -1: {closed.value}")
