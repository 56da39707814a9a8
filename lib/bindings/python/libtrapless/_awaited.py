# SPDX-License-Identifier: (GPL-2.0-only WITH Linux-syscall-note) OR MIT
"""What functions return that must be awaited. It owns what a program is told that forgets to."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Never

    from libtrapless._file import File

T = TypeVar("T")
_OF_COROUTINES = ("_", "cr_", "gi_")
"""How names begin that asyncio asks of a coroutine."""


class _Wrapped(Coroutine[Any, Any, T]):
    """A coroutine that can do more than be awaited."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine

    def send(self, value: Any) -> Any:
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._coroutine.__await__()


class Answer(_Wrapped[bool]):
    """What a question to an entry returns. As a condition it would always be true."""

    __slots__ = ("_question",)

    def __init__(self, coroutine: Coroutine[Any, Any, bool], question: str) -> None:
        super().__init__(coroutine)
        self._question = question

    def __bool__(self) -> bool:
        self.close()
        raise TypeError(f"the answer must be awaited: `if await entry.{self._question}():`")


class OnlyAsyncWith:
    """What `async with` opens and closes: `with` cannot wait for that."""

    __slots__ = ()
    if not TYPE_CHECKING:

        def __enter__(self) -> Never:
            raise TypeError("use `async with` instead of `with`")

        def __exit__(self, *_: object) -> None: ...


class Opening(OnlyAsyncWith, _Wrapped["File"]):
    """What open() returns: `await` it, or use it in `async with`."""

    __slots__ = ("_file",)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str):
            """Raise AttributeError, which says how the file is opened."""
            text = f"{type(self).__name__!r} object has no attribute {name!r}"
            if not name.startswith(_OF_COROUTINES):
                text += ": open the file first, `async with files.open(path) as file`"
            raise AttributeError(text, name=name, obj=self)

        def __enter__(self) -> Never:
            self.close()
            super().__enter__()

        def __aiter__(self) -> Never:
            self.close()
            raise TypeError("open the file first: `async with files.open(path) as file`")

    async def __aenter__(self) -> File:
        self._file = await self._coroutine
        return self._file

    async def __aexit__(self, *_: object) -> None:
        await self._file.close()
