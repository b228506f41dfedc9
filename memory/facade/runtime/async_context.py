"""Async context managers that say what to use where a plain `with` enters them."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class AsyncContext:
    """A class to be entered by `async with`."""

    _blocking: ClassVar[str] = "BlockingMemory"
    """The class for code that is not async."""

    def __enter__(self) -> NoReturn:
        """Refuse a plain `with`.

        Raises:
            TypeError: Always; it says what to use instead.
        """
        raise TypeError(
            f"{type(self).__name__} is async: use `async with`, or {self._blocking} in code that is not async"
        )

    def __exit__(self, *_: object) -> None:
        """Is never reached. Python looks it up before it enters."""
