# SPDX-License-Identifier: GPL-2.0-only
"""Holds text of a guest, and makes it visible when it leaves for a terminal, a file or a page.

A guest is an attacker: a process names itself as it likes, and a kernel's memory may say anything.
So its text is no `str`: mypy refuses it where a `str` is wanted, and each way from here to a `str`
makes it visible: no control characters, none that hide or reorder text, no line ends, a bounded
length. Rich shows it without reading markup in it, and pages escape it. A test refuses any other
decode() in the folders that read guests, and any console that reads markup.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from rich.text import Text

from trapless.peek.limits import TEXT_CHARS_MAX


@final
class GuestText:
    r"""Bytes of a guest up to the first zero, which are text. It never changes.

    >>> name = GuestText(b"a\x1b]0;b\n\xff\xe2\x80\xae[/red]\0rest")
    >>> print(name)
    a\x1b]0;b\n\xff\u202e[/red]
    >>> f"{name:>30}|", GuestText(b"init").says("init"), GuestText(b"init") == GuestText(b"init")
    ('   a\\x1b]0;b\\n\\xff\\u202e[/red]|', True, True)
    """

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data[:TEXT_CHARS_MAX].split(b"\0", 1)[0]

    @classmethod
    def stored(cls, text: str) -> GuestText:
        """Text of a guest that comes out of a file or from another process."""
        return cls(text[:TEXT_CHARS_MAX].encode("utf-8", "backslashreplace"))

    def __str__(self) -> str:
        return visible(self._data.decode("utf-8", "backslashreplace"))

    def with_tabs(self) -> str:
        r"""The same for a log, in which tabs stay tabs.

        >>> GuestText(b"\ta\x1b\tb").with_tabs()
        '\ta\\x1b\tb'
        """
        parts = self._data.decode("utf-8", "backslashreplace").split("\t")
        return "\t".join(map(visible, parts))[:TEXT_CHARS_MAX]

    def __format__(self, form: str) -> str:
        return format(str(self), form)

    def __repr__(self) -> str:
        return f"GuestText({str(self)!r})"

    def __rich__(self) -> Text:
        from rich.text import Text

        return Text(str(self))

    def __html__(self) -> str:
        import html

        return html.escape(str(self))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):  # it would always be false, and mypy does not notice
            raise TypeError(f"compare the text of a guest with {other!r} by says()")
        return self._data == other._data if isinstance(other, GuestText) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._data)

    def __lt__(self, other: GuestText) -> bool:
        return self._data < other._data

    def __bool__(self) -> bool:
        return bool(self._data)

    def says(self, text: str) -> bool:
        """Whether it is exactly a text of ours."""
        return self._data == text.encode()

    def starts(self, text: str) -> bool:
        """Whether it begins with a text of ours."""
        return self._data.startswith(text.encode())


BLANK = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U000e0100-\U000e01ef]"
)
"""Invisible letters, marks and symbols, with which two different names look the same: Unicode's
Default_Ignorable_Code_Point, where Python takes them for printable, and an empty cell of
Braille."""


def visible(text: str) -> str:
    """Text whose characters are all seen, and not too many: what is not becomes an escape."""
    text = text[:TEXT_CHARS_MAX]
    if not text.isascii() or not text.isprintable():
        text = "".join(
            one
            if one.isprintable() and not BLANK.match(one)
            else one.encode("unicode_escape").decode()
            for one in text
        )
    return text[:TEXT_CHARS_MAX]
