"""Handles: objects that hold an open memory, such as sessions, views and providers."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

C = TypeVar("C")


def copies_are_the_handle(kind: type[C]) -> type[C]:
    """Make a copy of an object be the object itself, and refuse to pickle it.

    Frameworks copy their agents with all that they hold. Such a copy uses the same
    memory, which has one set of open stores.
    """
    for name, method in (("__copy__", _itself), ("__deepcopy__", _itself), ("__reduce_ex__", _refuse)):
        setattr(kind, name, method)
    return kind


def _itself(self: Any, memo: object = None) -> Any:
    return self


def _refuse(self: Any, protocol: object) -> NoReturn:
    raise TypeError(
        f"a {type(self).__name__} cannot be pickled, because its memory holds open stores. In another process"
        " open a new memory with the same configuration"
    )
