"""Show memory to a model: the trigger, the query, the format and the limits."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from memory.domain import validation
from memory.domain.agent_results import StoreEntry
from memory.domain.corrections import explain_arguments
from memory.domain.errors import ForkedProcess, InvalidInput
from memory.facade.arguments import length
from memory.facade.search_options import least_relevance
from memory.policies.injection import Placement, is_user_turn, query_of, render_block, with_block
from memory.policies.ranking.constants import MIN_RELEVANCE
from memory.policies.tokens import DefaultCounter
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)

Trigger = Literal["user_turn", "every_turn"] | Callable[[Sequence[Any]], bool | Awaitable[bool]]
Query = Callable[[Sequence[Any]], str | Awaitable[str | None] | None]
Format = Callable[[Sequence[StoreEntry]], str | Awaitable[str]]
Search = Callable[[str, int], Awaitable[list[StoreEntry]]]
MAX_ENTRIES = 5
COUNTER = DefaultCounter()
QUERY_CHARS = 4_000
"""The maximum number of characters of a query. Users may paste long texts."""


@explain_arguments
@dataclass(frozen=True, slots=True)
class Injection:
    """Settings of how memory is shown to a model.

    Args:
        trigger: `"user_turn"`, `"every_turn"`, or a function of the messages.
        query: A function of the messages that returns the query. By default the query
            is the user's text; on other turns it is the assistant's last text.
        format: A function that renders the entries and escapes their contents. The
            default renders XML.
        max_entries: The maximum number of entries that are shown. Each store is asked
            for this many; the entries of the first configured store come first.
        max_tokens: The maximum number of tokens of the rendered block. Entries at the
            end are dropped until the block fits.
        placement: Whether the block is put before (`"prepend"`) or after (`"append"`)
            the latest user text.
        deadline: The longest time that the injection may take. If it takes longer,
            nothing is shown.
        counter: Counts the tokens.
        min_relevance: From 0 to 1; less relevant entries are left out, and 0 shows all.
            The default is 0.015; entries of unknown relevance are always shown. If you
            set a value, the manager fails to open if a scope of a memory has an
            embedder without calibration.
    """

    trigger: Trigger = "user_turn"
    query: Query = query_of
    format: Format = render_block
    max_entries: int = MAX_ENTRIES
    max_tokens: int | None = None
    placement: Placement = "prepend"
    deadline: timedelta | float | str = timedelta(seconds=5)
    counter: TokenCounter = COUNTER
    min_relevance: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.trigger):
            validation.one_of("trigger", self.trigger, ("user_turn", "every_turn"))
        for name in ("query", "format"):
            if not callable(getattr(self, name)):
                raise InvalidInput(name, "must be a function")
        for name, most in (("max_entries", validation.MAX_LIMIT), ("max_tokens", validation.INT64 - 1)):
            value = getattr(self, name)
            if name == "max_tokens" and value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
                raise InvalidInput(name, f"must be a whole number from 1 to {most}")
        validation.one_of("placement", self.placement, ("prepend", "append"))
        object.__setattr__(self, "min_relevance", least_relevance(self.min_relevance))
        object.__setattr__(self, "deadline", length("deadline", self.deadline))

    async def into(self, messages: Sequence[Any], search: Search) -> list[Any]:
        """Return the messages with the found entries, or as given if anything fails.

        A failure never prevents the model call.
        """
        try:
            async with asyncio.timeout(self.deadline.total_seconds()):  # type: ignore[union-attr]
                block = await self._block(messages, search)
            return list(messages) if block is None else with_block(messages, block, self.placement)
        except ForkedProcess:
            raise
        except Exception as error:  # noqa: BLE001 - functions and stores may raise anything
            log.warning("no memories were injected for the model: %s: %s", type(error).__name__, error)
            return list(messages)

    async def _block(self, messages: Sequence[Any], search: Search) -> str | None:
        if not await self._fires(messages):
            return None
        query = await _invoke(self.query, messages)
        if not isinstance(query, str) or not query.strip():
            return None
        least = MIN_RELEVANCE if self.min_relevance is None else self.min_relevance
        found = [
            one
            for one in await search(query[:QUERY_CHARS], self.max_entries)
            if one.relevance is None or one.relevance >= least
        ]
        found = found[: self.max_entries]
        shown = await self._render_within_limit(found) if found else ""
        return shown if shown.strip() else None

    async def _fires(self, messages: Sequence[Any]) -> bool:
        if self.trigger == "every_turn":
            return True
        return (
            is_user_turn(messages)
            if self.trigger == "user_turn"
            else bool(await _invoke(self.trigger, messages))
        )

    async def _render_within_limit(self, found: Sequence[StoreEntry]) -> str:
        shown = await self._render(found)
        if self.max_tokens is None or self.counter.count(shown) <= self.max_tokens:
            return shown
        for count in range(len(found) - 1, 0, -1):
            shown = await self._render(found[:count])
            if self.counter.count(shown) <= self.max_tokens:
                return shown
        return ""

    async def _render(self, found: Sequence[StoreEntry]) -> str:
        return validation.text("format", await _invoke(self.format, found))


async def _invoke(function: Callable[..., Any], *args: Any) -> Any:
    made = function(*args)
    return await made if inspect.isawaitable(made) else made
