# SPDX-License-Identifier: GPL-2.0-only
"""Finds the Debian mirror and keyring that this machine's own apt uses.

This file reads sources.list (one-line and deb822 forms) and chooses among the entries. It names no
mirror: where apt has none, TRAPLESS_MIRROR=URI gives one.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trapless.base.console import TraplessError

MIRROR_VARIABLE = "TRAPLESS_MIRROR"
SECURITY_SUFFIX = "-security"
KEYRINGS = (
    Path("/usr/share/keyrings/debian-archive-keyring.pgp"),
    Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
)
"""Where Debian's keyring package puts the keyring, newest name first."""


class Index(Enum):
    """A list of a suite: binary packages, or the sources they are built from."""

    PACKAGES = "Packages"
    SOURCES = "Sources"


@dataclass(frozen=True)
class Source:
    """One entry of apt's sources: address, suites, components, and who must have signed it."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]
    signed_by: str = ""  # paths or fingerprints, or a key in ASCII armour, or nothing


@dataclass(frozen=True)
class Mirror:
    """Where Debian's archive and its security updates come from, and the entry's keyring."""

    archive: str
    security: str | None
    signed_by: str = ""

    def sources(self, suites: Sequence[str], folder: Path, index: Index = Index.PACKAGES) -> str:
        """A sources.list for `suites`; a key kept inside an entry is written to `folder`."""
        keys = self._keys(folder)
        kind = "deb-src" if index is Index.SOURCES else "deb"
        options = f"[{f'signed-by={keys} ' if keys else ''}target={index.value}]"
        lines = []
        for suite in suites:
            uri = self.security if suite.endswith(SECURITY_SUFFIX) else self.archive
            if uri is not None:
                lines.append(f"{kind} {options} {uri} {suite} main\n")
        return "".join(lines)

    def _keys(self, folder: Path) -> str:
        """The entry's keyring and, where the machine has it, Debian's own: suites that the entry
        does not name may be signed by keys that only the latter holds."""
        keys = [str(path) for path in KEYRINGS if path.exists()][:1]
        if "BEGIN PGP" in self.signed_by:
            key = folder / "mirror.asc"
            key.write_text(self.signed_by)
            keys.append(str(key))
        else:
            keys += [key for key in re.split(r"[,\s]+", self.signed_by) if key not in ("", *keys)]
        return ",".join(keys)


def machine_mirror(etc: Path = Path("/etc/apt")) -> Mirror:
    """The mirror that this machine's apt uses for Debian itself."""
    named = os.environ.get(MIRROR_VARIABLE)
    if named:
        return Mirror(named.rstrip("/"), _security_beside(named.rstrip("/")))
    sources = list(machine_sources(etc))
    archive = max((s for s in sources if not _is_security(s)), key=_likeness, default=None)
    if archive is None or _likeness(archive) == 0:
        raise TraplessError(
            f"apt on this machine ({etc}) names no Debian mirror to take kernels from; name one "
            f"with {MIRROR_VARIABLE}=URI (and install the package debian-archive-keyring)"
        )
    security = max((s for s in sources if _is_security(s)), key=_likeness, default=None)
    return Mirror(archive.uri, security.uri if security else None, archive.signed_by)


def _security_beside(archive: str) -> str:
    """The address of security updates: mirrors keep them beside the archive, with a suffix."""
    return archive + SECURITY_SUFFIX


def _is_security(source: Source) -> bool:
    return any(suite.endswith((SECURITY_SUFFIX, "/updates")) for suite in source.suites)


def _likeness(source: Source) -> int:
    """How much an entry looks like the archive of Debian, and not of somebody else."""
    if "main" not in source.components:
        return 0
    path = source.uri.rstrip("/").rsplit("/", 1)[-1]
    return (
        2 * ("debian-archive" in source.signed_by)
        + 2 * path.startswith("debian")
        + any(suite.endswith("-updates") for suite in source.suites)
    )


def machine_sources(etc: Path) -> Iterator[Source]:
    """Every enabled `deb` entry of apt's configuration in `etc`."""
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    for path in files:
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        if path.suffix == ".list":
            yield from parse_lines(text)
        elif path.suffix == ".sources":
            yield from parse_stanzas(text)


def parse_lines(text: str) -> Iterator[Source]:
    """The one-line form: deb [OPTIONS] URI SUITE COMPONENT..."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match:
            options, uri, suite, components = match.groups()
            signed = re.search(r"signed-by=(\S+)", options or "", re.IGNORECASE)
            yield Source(
                uri.rstrip("/"),
                (suite,),
                tuple(components.split()),
                signed.group(1) if signed else "",
            )


def parse_stanzas(text: str) -> Iterator[Source]:
    """The deb822 form: stanzas of `Field: value`, values going on in indented lines."""
    uncommented = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", uncommented):
        fields: dict[str, str] = {}
        for match in re.finditer(r"^([\w-]+):(.*(?:\n[ \t].*)*)", stanza, re.MULTILINE):
            fields[match.group(1).lower()] = match.group(2)
        if "deb" not in fields.get("types", "").split():
            continue
        if fields.get("enabled", "yes").strip().lower() in ("no", "false", "0", "off", "without"):
            continue
        for uri in fields.get("uris", "").split():
            yield Source(
                uri.rstrip("/"),
                tuple(fields.get("suites", "").split()),
                tuple(fields.get("components", "").split()),
                _signed_by(fields.get("signed-by", "")),
            )


def _signed_by(value: str) -> str:
    """Paths unchanged; a key inside the entry without its indentation and its dots."""
    if "BEGIN PGP" not in value:
        return " ".join(value.split())
    lines = textwrap.dedent(value.lstrip(" \t").lstrip("\n")).splitlines()
    return "\n".join("" if line.strip() == "." else line.strip() for line in lines) + "\n"
