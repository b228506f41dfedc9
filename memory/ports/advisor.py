"""Models that advise: one that answers in words, one that scores texts. No answer and
no write needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True, slots=True)
class Prompt:
    """What an advisor is asked. `system` is ours alone; what users said and what is
    stored is quoted in `user`.
    """

    system: str
    user: str

    def to_messages(self) -> list[dict[str, str]]:
        """The same as a request to a model."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


class Advice(str):
    """An advisor's answer that says what it cost: `Advice(text, input_tokens=120,
    output_tokens=8)`. A plain `str` will do where nobody counts.
    """

    __slots__ = ("input_tokens", "output_tokens")

    input_tokens: int | None
    output_tokens: int | None

    def __new__(cls, text: str, *, input_tokens: int | None = None, output_tokens: int | None = None) -> Self:
        made = super().__new__(cls, text)
        made.input_tokens, made.output_tokens = input_tokens, output_tokens
        return made


@runtime_checkable
class Advisor(Protocol):
    """A language model. It may fail, and answer anything: what is done with its words
    is decided by who asked.
    """

    @property
    def model(self) -> str:
        """What answers say they were made with."""
        ...

    async def advise(self, prompt: Prompt) -> str: ...


@runtime_checkable
class Reranker(Protocol):
    """Scores texts against a question, such as a cross-encoder does."""

    @property
    def model(self) -> str:
        """What answers say they were made with."""
        ...

    async def score(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """One finite number a text, in their order: the higher, the better it answers.
        Only their order counts.
        """
        ...
