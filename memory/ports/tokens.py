"""Counting what a text costs a model."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable
class TokenCounter(Protocol):
    """Counts tokens. The same text always costs the same, and a text that goes on costs
    no less (A113): budgets are kept with it.

    `name` is stored beside what was counted, so that another counter counts again.
    """

    @property
    def name(self) -> str: ...

    def count(self, text: str) -> int:
        """How many tokens the text is; 0 for the empty text, never below."""
        ...
