"""Passages of messages, which have no vector beside them.

See `orchestrator.embeddings.passages`. Passages are made after the append. A message
that a search shall find by meaning is stored with the pending step `embed`, which costs
no extra round trip. So is an edit. The step makes the passages of the current text. The
process that wrote the message runs it once it is idle, before it searches, and when it
closes. Otherwise a sweep does. An erased message has the pending step `forget`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from memory.domain.errors import ConfigError
from memory.orchestrator.conversations.log.events import Draft, Event, found_by
from memory.orchestrator.embeddings.embeddings import Embeddings
from memory.orchestrator.embeddings.passages import AT_ONCE, PassageBuilder, PassageSpec, part_id
from memory.orchestrator.storage.collections import MESSAGES, PASSAGES
from memory.orchestrator.storage.outbox import Came, Item, Outbox, OutboxRecord
from memory.orchestrator.storage.partial_answers import AnswerGaps
from memory.orchestrator.storage.placement import Placement
from memory.policies.entry_query import SearchMode
from memory.policies.passage_splitting import parts_of
from memory.ports.query import Condition, IsNull, Not, Order, Query, Tenant
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store

if TYPE_CHECKING:
    from memory.policies.ranking.relevance import EmbedderScale

EMBED, FORGET = "embed", "forget"
"""The steps that make and erase the passages of a message."""
REMEMBERED = 10_000
"""Messages without passages that this process remembers; sweeps find the others."""

Where: TypeAlias = Literal["home", "long", "off"]
"""Where passages are: with the messages, in the long tier's store, or nowhere."""


class Passages:
    """Makes and erases passages."""

    def __init__(self, placement: Placement, *, embeddings: Embeddings, outbox: Outbox, where: Where) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox
        self._where = where
        self.making = PassageBuilder(OF_MESSAGES, placement, embeddings=embeddings, outbox=outbox)
        self._waiting: dict[Key, int] = {}
        self._turn = asyncio.Lock()
        self.on_waiting: Callable[[], None] | None = None
        """Called when this process has written a message that needs passages."""
        outbox.register_together(EMBED, self._embed)
        outbox.register(FORGET, self._forget)

    # -- where -------------------------------------------------------------------------

    @property
    def store(self) -> Store | None:
        """The store of the passages; None if messages are only found by words."""
        return self._placement.topology.home(self.tier) if self.lexical_only_reason is None else None

    @property
    def tier(self) -> str:
        return "long" if self._where == "long" else "mid"

    @property
    def lexical_only_reason(self) -> str | None:
        """Why messages are only found by words; None if also by meaning."""
        if self._where == "off":
            return "conversations.meaning is 'off'"
        if not self._embeddings.on:
            return "no embedder is configured"
        store = self._placement.topology.home(self.tier)
        return (
            None
            if store.capabilities.semantic
            else f"store '{store.name}' has no vector index (conversations.meaning is '{self._where}')"
        )

    async def vector_of(self, query: str, mode: SearchMode, lacking: AnswerGaps) -> bytes | None:
        """Return the query's vector; None if the query has no meaning."""
        return await self._embeddings.of_query(query, mode, lacking)

    async def scale(self) -> EmbedderScale | None:
        """Return the scale of relevance; None if the embedder has none."""
        return await self._embeddings.scale()

    async def check_relevance(self, least: float | None, mode: SearchMode) -> None:
        """Raise `InvalidInput` if a least relevance is given but not computable."""
        if self.store is not None:
            await self._embeddings.check_relevance(least, mode)

    @property
    def own(self) -> Condition | None:
        """Selects vectors of the current embedder; None if there are no others."""
        return self._embeddings.own

    @property
    def lacks(self) -> str | None:
        """Why some passages are not compared; None if all are."""
        return self._embeddings.lacks

    # -- owed --------------------------------------------------------------------------

    def owed_by(self, said: Draft, parts: int = 0) -> tuple[PendingStep, ...]:
        """Return the pending steps of a message that is written or changed.

        A message that is still being streamed has none; its last write has them.

        Args:
            parts: For a changed message, the number of passages that it may have so
                far.
        """
        message = said.message if said.is_in_history else None
        changes = message is not None and (parts or (message.is_final and found_by(message).strip()))
        return (PendingStep(EMBED, EMBED),) if changes and self.store is not None else ()

    def owed_by_erasing(self, event: Event) -> tuple[PendingStep, ...]:
        """Return the pending steps of a message's erasure.

        They erase all passages that the message ever had, or that are still being made.
        """
        parts = (
            max(event.parts, len(parts_of(found_by(event.draft.message))))
            if event.draft.message is not None
            else 0
        )
        return (PendingStep(FORGET, FORGET, {"parts": parts}),) if parts else ()

    def note(self, event: Event) -> None:
        """Note an event that this process has just written."""
        if any(owed.step == EMBED for owed in event.owed):
            self._waiting.pop(event.key, None)
            self._waiting[event.key] = event.version
            if len(self._waiting) > REMEMBERED:
                del self._waiting[next(iter(self._waiting))]
            if self.on_waiting is not None:
                self.on_waiting()

    # -- making ------------------------------------------------------------------------

    async def catch_up(self, most: int = REMEMBERED) -> None:
        """Make passages of messages that were written here, the newest first.

        `most` limits the number of messages. Steps that a store rejects or delays are
        left to sweeps. Raises if the messages cannot be read.
        """
        archive = self._placement.topology.archive
        async with self._turn:
            while self._waiting and most > 0:
                some = dict(list(self._waiting.items())[-min(AT_ONCE, most) :])
                rows = await self._placement.read("passages.read", archive, MESSAGES, list(some))
                here = [
                    (row, tuple(owed for owed in row.owed if owed.step == EMBED))
                    for row in rows
                    if isinstance(row, Record)
                ]
                await self._outbox.finish_all(
                    [
                        OutboxRecord(MESSAGES, archive, replace(row, owed=steps))
                        for row, steps in here
                        if steps
                    ]
                )
                for key, version in some.items():
                    if self._waiting.get(key) == version:
                        del self._waiting[key]
                most -= len(some)

    async def make_all(self, tenant: str) -> int:
        """Make the passages of all messages of a tenant; return how many were visited.

        Use it for messages that were written before they were found by meaning.
        Existing passages stay. Raises if a store fails; the call may be repeated.
        """
        if (lacking := self.lexical_only_reason) is not None:
            raise ConfigError(f"messages cannot be searched by meaning: {lacking}")
        archive, gone_through = self._placement.topology.archive, 0
        query = Query(
            MESSAGES, Tenant(tenant), OF_MESSAGES.which, (Order("created_at"),), self._placement.settings.page
        )
        async for page in self._placement.pages("passages.all", archive, query):
            rows = [row for row in page.records if isinstance(row, Record)]
            for came in await self._embed(
                [(OutboxRecord(MESSAGES, archive, row), PendingStep(EMBED, EMBED)) for row in rows]
            ):
                if isinstance(came, Exception):
                    raise came
            gone_through += len(rows)
        return gone_through

    async def _embed(self, items: Sequence[Item]) -> Sequence[Came]:
        if self.store is None:  # still pending if another process has an embedder
            return [self._where == "off" or self._embeddings.on] * len(items)
        return await self.making.make(items, self.tier)

    async def _forget(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Erase passages in all possible stores, not only the configured one."""
        stores = [self._placement.topology.home(tier) for tier in ("mid", "long")]
        return await self.making.end(
            pending, {store: owed.data["parts"] for store in stores if store.capabilities.semantic}
        )


def first_of(message_id: str) -> str:
    """Return the id of a message's first passage."""
    return part_id(message_id, 0)


def said_at(message: Record) -> int:
    """Return the version at which a message got its current content."""
    return int(message.body.get("said", message.version))


def _parts(message: Record) -> list[str]:
    """Return the parts of a message's searchable text; none while it is streamed."""
    said = message.body.get("message") or {}
    return parts_of(message.texts.get("content", "")) if said.get("is_final", True) else []


def _before(message: Record) -> int:
    return int(message.body.get("parts", 0))


OF_MESSAGES = PassageSpec(
    MESSAGES,
    PASSAGES,
    "message",
    _parts,
    _before,
    said_at,
    shared=("subject", "agent", "namespace", "at"),
    which=Not(IsNull("number_in_conversation")),
)
