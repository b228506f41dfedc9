"""Passages of messages, which have no vector beside them (see `orchestrator.embeddings.passages`).

They are made behind the append. A message that is to be found so owes `embed` from the
write that says it on, which costs that write no trip; so does an edit. Whoever meets
the debt makes the passages of what the message says then: the process that wrote it
once it is quiet, before it searches and when it closes; else a sweep. A message that is
erased owes `forget`.
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
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.steps import step
from memory.policies.entry_query import SearchMode
from memory.policies.passage_splitting import parts_of
from memory.ports.query import Condition, IsNull, Not, Order, Query, Tenant
from memory.ports.record import Key, PendingStep, Record
from memory.ports.store import Store

if TYPE_CHECKING:
    from memory.policies.ranking.relevance import EmbedderScale

EMBED, FORGET = "embed", "forget"
"""The steps that make the passages of a message, and that erase them."""
REMEMBERED = 10_000
"""Messages without passages yet that this process remembers to have written; sweeps
find the others.
"""

Where: TypeAlias = Literal["home", "long", "off"]
"""Which store has the passages: the messages' own, that of the long tier, none."""


class Passages:
    """Makes and erases them."""

    def __init__(self, placement: Placement, *, embeddings: Embeddings, outbox: Outbox, where: Where) -> None:
        self._placement = placement
        self._embeddings = embeddings
        self._outbox = outbox
        self._where = where
        self.making = PassageBuilder(OF_MESSAGES, placement, embeddings=embeddings, outbox=outbox)
        self._waiting: dict[Key, int] = {}
        self._turn = asyncio.Lock()
        self.on_waiting: Callable[[], None] | None = None
        """Called when this process has written what passages are to be made of."""
        outbox.register_together(EMBED, self._embed)
        outbox.register(FORGET, self._forget)

    # -- where -------------------------------------------------------------------------

    @property
    def store(self) -> Store | None:
        """The store that has them; None where messages are found by words alone."""
        return self._placement.topology.home(self.tier) if self.lexical_only_reason is None else None

    @property
    def tier(self) -> str:
        return "long" if self._where == "long" else "mid"

    @property
    def lexical_only_reason(self) -> str | None:
        """Why messages are found by words alone; None where they are found by meaning
        too.
        """
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

    async def vector_of(self, query: str) -> bytes | None:
        """What passages are compared with; None for what means nothing."""
        return await self._embeddings.of_query(query)

    async def scale(self) -> EmbedderScale | None:
        """Return what relevance is computed with; None where the embedder has no
        calibration.
        """
        return await self._embeddings.scale()

    async def check_relevance(self, least: float | None, mode: SearchMode) -> None:
        """Raise `InvalidInput` where a least relevance is asked for that nobody can
        compute.
        """
        if self.store is not None:
            await self._embeddings.check_relevance(least, mode)

    @property
    def own(self) -> Condition | None:
        """Those with a vector of the embedder in use; None where there are no others."""
        return self._embeddings.own

    @property
    def lacks(self) -> str | None:
        """Why some are not compared; None where all are."""
        return self._embeddings.lacks

    # -- owed --------------------------------------------------------------------------

    def owed_by(self, said: Draft, parts: int = 0) -> tuple[PendingStep, ...]:
        """What a message owes from the write that says it on, or says something else:
        then `parts` is how many it may have by what it said before.

        One that is still being said has none, and owes them with its end.
        """
        message = said.message if said.is_in_history else None
        changes = message is not None and (parts or (message.is_final and found_by(message).strip()))
        return (PendingStep(EMBED, EMBED),) if changes and self.store is not None else ()

    def owed_by_erasing(self, event: Event) -> tuple[PendingStep, ...]:
        """What the erasure of a message owes: an end of all the passages that it ever
        had, or that somebody is about to bring.
        """
        parts = (
            max(event.parts, len(parts_of(found_by(event.draft.message))))
            if event.draft.message is not None
            else 0
        )
        return (PendingStep(FORGET, FORGET, {"parts": parts}),) if parts else ()

    def note(self, event: Event) -> None:
        """This process has just written the event."""
        if any(owed.step == EMBED for owed in event.owed):
            self._waiting.pop(event.key, None)
            self._waiting[event.key] = event.version
            if len(self._waiting) > REMEMBERED:
                del self._waiting[next(iter(self._waiting))]
            if self.on_waiting is not None:
                self.on_waiting()

    # -- making ------------------------------------------------------------------------

    async def catch_up(self, most: int = REMEMBERED) -> None:
        """Make the passages of what was said here, of so many messages, the newest
        first. What a store refuses or keeps waiting is left to sweeps.

        Raises where the messages cannot be read.
        """
        archive = self._placement.topology.archive
        async with self._turn:
            while self._waiting and most > 0:
                some = dict(list(self._waiting.items())[-min(AT_ONCE, most) :])
                with step("passages.read"):
                    rows = await archive.get(MESSAGES, list(some))
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
        """Make the passages of every message of a tenant, for what was said while
        messages were not found so; how many were gone through.

        What is there stays. Raises where a store fails; it may be repeated.
        """
        if (lacking := self.lexical_only_reason) is not None:
            raise ConfigError(f"messages are not found by meaning: {lacking}")
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
        if self.store is None:  # with an embedder somewhere else it is still to be done
            return [self._where == "off" or self._embeddings.on] * len(items)
        return await self.making.make(items, self.tier)

    async def _forget(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Every store that may have some, whatever is configured now."""
        stores = [self._placement.topology.home(tier) for tier in ("mid", "long")]
        return await self.making.end(
            pending, {store: owed.data["parts"] for store in stores if store.capabilities.semantic}
        )


def first_of(message_id: str) -> str:
    """The id of a message's first passage."""
    return part_id(message_id, 0)


def said_at(message: Record) -> int:
    """The version at which a message came to say what it says."""
    return int(message.body.get("said", message.version))


def _parts(message: Record) -> list[str]:
    """The parts of what is found of it: none while it is still being said."""
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
    shared=("subject", "agent", "namespace"),
    which=Not(IsNull("number_in_conversation")),
)
