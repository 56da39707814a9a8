# SPDX-License-Identifier: GPL-2.0-only
"""Declares the error that every part of peek raises, in a file that all of them may import.

Whoever raises it says what is wrong with which image, and what a person can do. The refusals that
people meet are rows here, of which docs/questions.md has a table.
"""

from __future__ import annotations

from typing import NamedTuple

from trapless.base.console import TraplessError


class PeekError(TraplessError):
    """A fault of the observed machine or of its image that a person can act on."""


class BootingError(PeekError):
    """A memory without a kernel that can be read, as while a machine boots. Only its caller knows
    whether a machine runs in it, so that waiting helps."""


class ImageError(PeekError):
    """A fault of a saved image, which changes no more: waiting does not help."""


WAIT = "--wait 60 waits for a kernel that has booted"
"""The remedy where a machine runs that may be booting: the last line of such an error."""


class Refusal(NamedTuple):
    """Why a machine or an image cannot be read. Both parts have {fields}, and continue a sentence:
    they have no full stop."""

    reason: str
    remedy: str

    def text(self, **values: object) -> str:
        """The message with the values of its fields.

        >>> Refusal("{name} is locked", "use {way}").text(name="a", way="b")
        'a is locked; use b'
        """
        return f"{self.reason}; {self.remedy}".format(**values)


NO_MACHINE = Refusal(
    "no virtual machine runs on this host",
    "start one with `trapless lab -- COMMAND`, or any QEMU, and look as the user who runs it or as "
    "root; or name an image with --ram FILE",
)
NO_MACHINE_OF_USER = Refusal(
    "this user runs no virtual machine, and to observe other users' takes root", NO_MACHINE.remedy
)

FILE_OF_OTHERS = Refusal(
    "{name} may not be read by this user", "look as the user who owns it, or as root"
)
_MAY_NOT = "the memory of process {pid} may not be read: "
OTHER_USER = Refusal(_MAY_NOT + "it runs as {user}", "look as that user, or as root")
PTRACE_OF_ROOT = Refusal(
    _MAY_NOT + "kernel.yama.ptrace_scope is {scope}, which leaves it to root",
    "look as root, or set it to 0",
)
PTRACE_OF_NOBODY = Refusal(
    _MAY_NOT + "kernel.yama.ptrace_scope is 3, which forbids it to all until a reboot",
    "start the machine with shared memory, and name that file with --ram",
)
PTRACE_IN_CONTAINER = Refusal(
    _MAY_NOT + "it takes CAP_SYS_PTRACE in the process's user namespace",
    "look as root of the host itself",
)

KCORE_ABSENT = Refusal(
    "{machine} has no /proc/kcore: its kernel was built without CONFIG_PROC_KCORE, or a container "
    "hides it",
    "look from the host itself, outside of the container",
)
KCORE_OF_ROOT_HERE = Refusal("to read the kernel of this machine takes root", "use sudo")
KCORE_OF_ROOT_THERE = Refusal(
    "to read the kernel of {machine} takes root", "use root@HOST, or sudo there without a password"
)
KCORE_LOCKED = Refusal(
    "the kernel of {machine} is locked down ({level}), and shows its memory to nobody, not even to "
    "root",
    "it must be booted without lockdown=confidentiality",
)
KCORE_IN_CONTAINER = Refusal(
    "to read the kernel of {machine} takes CAP_SYS_RAWIO, which root lacks in this container",
    "look from the host itself, outside of the container",
)

_NO_KERNEL = "no kernel in {name} ({size} MiB): it has no VMCOREINFO; "
ALL_ZEROS = Refusal(
    _NO_KERNEL + "it is all zeros: the machine has not been started, or its RAM is another file",
    "name the file that its monitor has as memory (mem-path of QEMU)",
)
STILL_BOOTING = Refusal(
    _NO_KERNEL + '"{banner}" is there: it is still booting, or was built without '
    "CONFIG_VMCORE_INFO",
    "a kernel without that option cannot be read",
)
NO_LINUX = Refusal(
    _NO_KERNEL + "either no Linux runs in it, or one that is still booting, was built without "
    "CONFIG_VMCORE_INFO, or encrypts its memory",
    "name the memory of a machine that runs Linux",
)
NO_SYMBOLS_OF_DATA = Refusal(
    "{release} was built without CONFIG_KALLSYMS_ALL: its own table of symbols has functions only, "
    "and peek finds threads and types by symbols of data, such as init_task and __start_BTF",
    "use a kernel of a distribution: they set this option",
)
MEMORY_TOO_SHORT = Refusal(
    "{name} ends at physical address {end}, but its kernel {release} has memory up to {used_end}: "
    "the file was truncated, or RAM below 4 GiB ends elsewhere",
    "copy the file again, or give the end of that RAM with --hole",
)
CORE_TRUNCATED = Refusal(
    "{name} is cut off (truncated): it has {size} bytes, and a whole one {whole}", "copy it again"
)
CORE_OF_XEN = Refusal(
    "{name} is an ELF core without memory: Xen's `xl dump-core` keeps it in sections, which are "
    "not read",
    "take the dump inside the guest (kdump, LiME or AVML)",
)
NO_LIBKDUMPFILE = Refusal(
    "it is kdump-compressed, which libkdumpfile reads, and that is not installed",
    "pip install drgn brings it, as does apt-get install libkdumpfile10; or `makedumpfile -E DUMP "
    "CORE` makes an ELF core of it",
)

REFUSALS = tuple(row for row in globals().values() if isinstance(row, Refusal))
