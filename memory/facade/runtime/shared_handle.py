"""Copies of what belongs to an open memory."""

from __future__ import annotations

from typing import NoReturn, Self, SupportsIndex


class SharedHandle:
    """A base class of objects that belong to connections and threads of this process.

    Their copies are the objects themselves: a framework that copies an agent or its
    dependencies leaves the memory of both the same.
    """

    __slots__ = ()

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        """Refuse to be pickled.

        Raises:
            TypeError: Always; it says what to pass instead.
        """
        raise TypeError(
            "an open memory and its parts cannot be pickled, because they belong to connections of this"
            " process. Pass the configuration, and open a Memory where it is used"
        )
