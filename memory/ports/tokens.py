"""The token counter port: counts the tokens of a text for a model."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens.

    The same text always has the same count, and appending text never lowers the count.
    Budgets depend on this.

    `name` is stored beside the counts, so another counter counts again.
    """

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """Return the number of tokens; 0 for the empty text, and never negative."""
        ...
