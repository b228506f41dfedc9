"""Ports for models that advise: one answers in words, one scores texts.

Both are optional: no answer and no write needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable


@dataclass(frozen=True, slots=True)
class Prompt:
    """The question to an advisor.

    `system` holds only texts of this library. `user` quotes users' messages and stored
    texts.
    """

    system: str
    user: str

    def to_messages(self) -> list[dict[str, str]]:
        """Return the prompt as the messages of a model request."""
        return [{"role": "system", "content": self.system}, {"role": "user", "content": self.user}]


class Advice(str):
    """An advisor's answer with its cost in tokens.

    For example `Advice(text, input_tokens=120, output_tokens=8)`. An advisor may return
    a plain `str` if nobody counts tokens.
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
    """A language model.

    It may fail, and may answer anything: the caller decides how to use the answer.
    """

    @property
    def model(self) -> str:
        """The model's name that answers report."""
        ...

    async def advise(self, prompt: Prompt) -> str: ...


@runtime_checkable
class Reranker(Protocol):
    """Scores texts against a question, as a cross-encoder does."""

    @property
    def model(self) -> str:
        """The model's name that answers report."""
        ...

    async def score(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Score each text; a higher score means a better answer to the question.

        Returns:
            One finite number for each text, in their order. Only the order of the
                numbers counts.
        """
        ...
