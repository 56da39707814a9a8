# SPDX-License-Identifier: GPL-2.0-only
"""Recognises the format of an image by its first bytes, and says what to do with those not read.

Owns the list of formats. A raw image has no such bytes: it is what no other format is.
"""

from __future__ import annotations

import codecs
from enum import Enum
from typing import NamedTuple

HEAD_BYTES = 4096
"""The signature of a hibernation image is at the end of the first page."""


class Kind(Enum):
    """What reads an image of this format."""

    RAW = "raw"
    ELF = "ELF core"
    LIME = "LiME"
    AVML = "AVML"
    KDUMP = "kdump-compressed"
    FLAT = "flattened"
    MIGRATION = "QEMU's migration stream"
    SAVED = "libvirt's saved state"
    GZIP = "gzip"
    BZIP2 = "bzip2"
    XZ = "xz"
    ZSTD = "zstd"
    LZ4 = "lz4"
    OTHER = "not read"


class Format(NamedTuple):
    """A format by the bytes at one place. `name` and `remedy` are for formats that are not read."""

    magic: bytes
    kind: Kind
    name: str = ""
    remedy: str = ""
    at: int = 0


_DUMP = "take a dump of the machine's memory instead, as by `virsh dump --memory-only`"
_UNPACK = "unpack it, and give the image that is in it"
_VMEM = "give the file .vmem that lies beside it"
_VBOX = "`VBoxManage debugvm VM dumpvmcore --filename FILE` writes a core that is read"

FORMATS: tuple[Format, ...] = (
    Format(b"\x7fELF", Kind.ELF),
    Format(b"EMiL", Kind.LIME),
    Format(b"AVML", Kind.AVML),
    Format(b"KDUMP   ", Kind.KDUMP),
    Format(b"DISKDUMP", Kind.KDUMP),
    Format(b"makedumpfile\0", Kind.FLAT),
    Format(b"QEVM", Kind.MIGRATION),
    Format(b"LibvirtQemudSave", Kind.SAVED),
    Format(b"LibvirtQemudPart", Kind.OTHER, "libvirt's saved state, not whole", _DUMP),
    Format(b"\x1f\x8b\x08", Kind.GZIP),
    Format(b"BZh", Kind.BZIP2),
    Format(b"\xfd7zXZ\0", Kind.XZ),
    Format(b"\x28\xb5\x2f\xfd", Kind.ZSTD),
    Format(b"\x04\x22\x4d\x18", Kind.LZ4),
    Format(b"\x89LZO\0\r\n\x1a\n", Kind.OTHER, "a file that lzop has packed", _UNPACK),
    Format(b"PK\x03\x04", Kind.OTHER, "a zip archive", _UNPACK),
    Format(b"7z\xbc\xaf\x27\x1c", Kind.OTHER, "a 7z archive", _UNPACK),
    Format(b"ustar", Kind.OTHER, "a tar archive", _UNPACK, at=257),
    Format(b"EVF\x09\r\n\xff\0", Kind.OTHER, "an EWF evidence file", "`ewfexport` makes it raw"),
    Format(
        bytes.fromhex("0000648684191007"),
        Kind.OTHER,
        "the state of a Firecracker snapshot, without memory",
        "give the snapshot's memory file (mem_file_path)",
    ),
    *(
        Format(
            one,
            Kind.OTHER,
            "JSON, as the state of a cloud-hypervisor snapshot, without memory",
            "give the file memory-ranges of the snapshot",
        )
        for one in (b'{"', b"{\n")
    ),
    *(
        Format(bytes.fromhex(f"{one}bed2be"), Kind.OTHER, "VMware's saved state", _VMEM)
        for one in ("d0", "d2", "d3")
    ),
    Format(bytes.fromhex("d1bad1ba"), Kind.OTHER, "VMware's saved state", _VMEM),
    Format(b"\x7fVirtualBox SavedState", Kind.OTHER, "VirtualBox's saved state", _VBOX),
    Format(b"PAGEDU", Kind.OTHER, "a crash dump in the format of Windows", _DUMP),
    Format(
        b"HIBR", Kind.OTHER, "a hibernation file of Windows", "peek reads the memory of Linux only"
    ),
    Format(bytes.fromhex("ed238f61730119a8"), Kind.OTHER, "an LKCD dump", _DUMP),
    Format(b"XenSavedDomain", Kind.OTHER, "Xen's saved state", _DUMP),
    Format(b"LibxlFmt", Kind.OTHER, "Xen's saved state", _DUMP),
    Format(b"QFI\xfb", Kind.OTHER, "a disk image (qcow2)", _DUMP),
    Format(b"KDMV", Kind.OTHER, "a disk image (VMDK)", _DUMP),
    Format(b"conectix", Kind.OTHER, "a disk image (VHD)", _DUMP),
    Format(b"vhdxfile", Kind.OTHER, "a disk image (VHDX)", _DUMP),
    Format(b"S1SUSPEND", Kind.OTHER, "a hibernation image of Linux", _DUMP, at=4086),
    Format(b"SWAPSPACE2", Kind.OTHER, "a swap area", _DUMP, at=4086),
)

RAW = Format(b"", Kind.RAW)
TEXT = Format(
    b"", Kind.OTHER, "a text file", "name a dump, or the file that a machine has as its RAM"
)
CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"})
"""Bytes that no text has."""


def recognise(head: bytes) -> Format:
    """The format of an image that begins with these bytes; a raw one where it is none of the list.

    >>> recognise(b"EMiL\\1").kind, recognise(bytes(64)).kind, recognise(b"# Notes\\n").name
    (<Kind.LIME: 'LiME'>, <Kind.RAW: 'raw'>, 'a text file')
    """
    rest = TEXT if _is_text(head) else RAW
    return next((one for one in FORMATS if head.startswith(one.magic, one.at)), rest)


def _is_text(head: bytes) -> bool:
    """Whether bytes are a text, which may end amid a letter. The first page of a RAM is none."""
    if not head or head.translate(None, CONTROLS) != head:
        return False
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return False
    return True
