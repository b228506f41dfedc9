"""Async context managers that raise a helpful error if a plain `with` enters them."""

from __future__ import annotations

from typing import ClassVar, NoReturn


class AsyncContext:
    """A base class for classes that are entered with `async with`."""

    _blocking: ClassVar[str] = "BlockingMemory"
    """The counterpart for code that is not async."""

    def __enter__(self) -> NoReturn:
        """Refuse a plain `with`.

        Raises:
            TypeError: Always; it says what to use instead.
        """
        raise TypeError(
            f"{type(self).__name__} is async: use `async with`, or {self._blocking} in code that is not async"
        )

    def __exit__(self, *_: object) -> None:
        """Do nothing. Python looks this method up before it enters the context."""
