"""Messages in the form of a framework."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from memory.domain import door
from memory.domain.message import Message
from memory.domain.shapes import anthropic, langchain, openai, plain
from memory.domain.shapes.fields import Fields

_EACH = {"openai": openai.given, "langchain": langchain.given, "plain": plain.given}
SHAPES = ("anthropic", *_EACH)


def given_as(messages: Iterable[Message], shape: str, *, foreign_reasoning: bool = True) -> list[Fields]:
    """The messages as dicts of this shape, copies of their own (C12); LangChain's as its `message_to_dict` has them, see `langchain_messages`.

    A message that came in this shape is equal to what came, where it was not changed since. Of another one goes over what both know: text, calls,
    results, images, reasoning. Without `foreign_reasoning` what another framework's model thought stays behind: it is not signed. Anthropic's list is
    without system messages (`system_of`), and results of tools and what a user says right behind them are one message of the user there.
    """
    door.one_of("shape", shape, SHAPES)
    if shape == "anthropic":
        return deepcopy(anthropic.given(list(messages), foreign_reasoning=foreign_reasoning))
    return [deepcopy(_EACH[shape](message, foreign_reasoning=foreign_reasoning)) for message in messages]


def langchain_messages(messages: Iterable[Message]) -> list[Any]:
    """LangChain's own message objects. Raises `ConfigError` where langchain-core is not installed."""
    return langchain.objects_of(given_as(messages, "langchain"))
