# SPDX-License-Identifier: GPL-2.0-only
"""Turns bytes of a guest into text that may be shown: the only place that decodes them.

A guest is an attacker: a process names itself as it likes, and a kernel's memory may say anything.
What comes out of here has no control characters, none that hide or reorder text, no line ends and
a bounded length, so it may go to a terminal, a file, a page, JSON or a trace. Markup in it is not
touched; whoever renders guest text passes it as plain text. A test refuses any other decode() in
the folders that read guests.
"""

from __future__ import annotations

CHARS_MAX = 512
"""The longest text, characters: symbols of Rust and C++ may have some hundred."""


def guest_text(data: bytes, limit: int = CHARS_MAX) -> str:
    r"""The text of bytes up to the first zero, with all that is not printable as escapes.

    >>> print(guest_text(b"a\x1b]0;b\n\xff\xe2\x80\xae[/red]\0rest"))
    a\x1b]0;b\n\xff\u202e[/red]
    """
    text = data[: 4 * limit].split(b"\0", 1)[0].decode("utf-8", "backslashreplace")
    return visible(text, limit)


def visible(text: str, limit: int = CHARS_MAX) -> str:
    """The same for text that was decoded elsewhere, like that in a recording."""
    if not text.isprintable():
        text = "".join(
            one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
        )
    return text[:limit]
