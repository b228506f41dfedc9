"""Passages: what messages are found by, by meaning. Each is a vector of one part of a message, and none of its text.

They are made behind the append. A message that is to be found so owes `embed` from the write that says it on, which costs that write no trip; so
does an edit. Whoever meets the debt makes the passages of what the message says then: the process that wrote it once it is quiet, before it searches
and when it closes; else a sweep. Keys are computed from the message's, and a passage has the version at which the message came to say this, so none
of an earlier text comes to stand over a later one's. A message that is erased owes `forget`: tombstones under the keys of all its parts, which also
keep out what a slow maker brings.

They lie in the session's partition, in the store that serves meaning: deleting the session takes them, and no late one comes to stand.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from memory.domain import ids
from memory.domain.errors import ConfigError
from memory.orchestrator.collections import MESSAGES, PASSAGES
from memory.orchestrator.conversations.events import Draft, Event, found_by
from memory.orchestrator.meaning import Meaning
from memory.orchestrator.outbox import Came, Item, Outbox, Pending
from memory.orchestrator.placement import Placement
from memory.orchestrator.steps import step
from memory.policies.passages import parts_of
from memory.ports.pace import paced
from memory.ports.query import Filter, IsNull, Not, Order, Query, Tenant
from memory.ports.record import FieldValue, Key, Owed, Record, Stored, Tombstone
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Delete, Newer, Put

EMBED, FORGET = "embed", "forget"
"""The steps that make the passages of a message, and that erase them."""
AT_ONCE = 50
"""Messages of which passages are made together: an append that comes meanwhile waits for no more."""
REMEMBERED = 10_000
"""Messages without passages yet that this process remembers to have written; sweeps find the others."""

Where: TypeAlias = Literal["home", "long", "off"]
"""Which store has the passages: the messages' own, that of the long tier, none."""


class Passages:
    """Makes and erases them."""

    def __init__(self, placement: Placement, *, meaning: Meaning, outbox: Outbox, where: Where) -> None:
        self._placement = placement
        self._meaning = meaning
        self._outbox = outbox
        self._where = where
        self._waiting: dict[Key, int] = {}
        self._turn = asyncio.Lock()
        self.on_waiting: Callable[[], None] | None = None
        """Called when this process has written what passages are to be made of."""
        outbox.register_together(EMBED, self._embed)
        outbox.register(FORGET, self._forget)

    # -- where --------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> Store | None:
        """The store that has them; None where messages are found by words alone."""
        return self._placement.topology.home(self._tier) if self.lacking is None else None

    @property
    def _tier(self) -> str:
        return "long" if self._where == "long" else "mid"

    @property
    def lacking(self) -> str | None:
        """Why messages are found by words alone; None where they are found by meaning too."""
        if self._where == "off":
            return "conversations.meaning is 'off'"
        if not self._meaning.on:
            return "no embedder is configured"
        store = self._placement.topology.home(self._tier)
        return None if store.capabilities.semantic else f"store '{store.name}' has no index for meaning (conversations.meaning is '{self._where}')"

    async def vector_of(self, query: str) -> bytes | None:
        """What passages are compared with; None for what means nothing."""
        return await self._meaning.of_query(query)

    @property
    def own(self) -> Filter | None:
        """Those with a vector of the embedder in use; None where there are no others."""
        return self._meaning.own

    @property
    def lacks(self) -> str | None:
        """Why some are not compared; None where all are."""
        return self._meaning.lacks

    # -- owed ---------------------------------------------------------------------------------------------------------

    def owed_by(self, said: Draft, parts: int = 0) -> tuple[Owed, ...]:
        """What a message owes from the write that says it on, or says something else: then `parts` is how many it may have by what it said before.

        One that is still being said has none, and owes them with its end.
        """
        message = said.message if said.is_in_history else None
        changes = message is not None and (parts or (message.is_final and found_by(message).strip()))
        return (Owed(EMBED, EMBED),) if changes and self.store is not None else ()

    def owed_by_erasing(self, event: Event) -> tuple[Owed, ...]:
        """What the erasure of a message owes: an end of all the passages that it ever had, or that somebody is about to bring."""
        parts = max(event.parts, len(parts_of(found_by(event.draft.message)))) if event.draft.message is not None else 0
        return (Owed(FORGET, FORGET, {"parts": parts}),) if parts else ()

    def note(self, event: Event) -> None:
        """This process has just written the event."""
        if any(owed.step == EMBED for owed in event.owed):
            self._waiting.pop(event.key, None)
            self._waiting[event.key] = event.version
            if len(self._waiting) > REMEMBERED:
                del self._waiting[next(iter(self._waiting))]
            if self.on_waiting is not None:
                self.on_waiting()

    # -- making -------------------------------------------------------------------------------------------------------

    async def catch_up(self, most: int = REMEMBERED) -> None:
        """Make the passages of what was said here, of so many messages, the newest first. What a store refuses or keeps waiting is left to sweeps.

        Raises where the messages cannot be read.
        """
        archive = self._placement.topology.archive
        async with self._turn:
            while self._waiting and most > 0:
                some = dict(list(self._waiting.items())[-min(AT_ONCE, most) :])
                with step("passages.read"):
                    rows = await archive.get(MESSAGES, list(some))
                here = [(row, tuple(owed for owed in row.owed if owed.step == EMBED)) for row in rows if isinstance(row, Record)]
                await self._outbox.finish_all([Pending(MESSAGES, archive, replace(row, owed=steps)) for row, steps in here if steps])
                for key, version in some.items():
                    if self._waiting.get(key) == version:
                        del self._waiting[key]
                most -= len(some)

    async def make_all(self, tenant: str) -> int:
        """Make the passages of every message of a tenant, for what was said while messages were not found so; how many were gone through.

        What is there stays. Raises where a store fails; it may be repeated.
        """
        if (lacking := self.lacking) is not None:
            raise ConfigError(f"messages are not found by meaning: {lacking}")
        archive, gone_through = self._placement.topology.archive, 0
        query = Query(MESSAGES, Tenant(tenant), Not(IsNull("number_in_conversation")), (Order("created_at"),), self._placement.settings.page)
        async for page in self._placement.pages("passages.all", archive, query):
            rows = [row for row in page.records if isinstance(row, Record)]
            for came in await self._embed([(Pending(MESSAGES, archive, row), Owed(EMBED, EMBED)) for row in rows]):
                if isinstance(came, Exception):
                    raise came
            gone_through += len(rows)
        return gone_through

    async def renewals(self, store: Store, messages: Sequence[Record]) -> list[Put]:
        """What gives the passages of these messages in a store a vector of the embedder in use, where they have another's or are missing.

        Who writes one meanwhile is faster, and none comes to stand where the message was erased.
        """
        whose, keys = await self._meaning.whose(), dict[Key, list[Key]]()
        for message in messages:
            keys[message.key] = [_key(message, part) for part, _ in enumerate(parts_of(_text(message)))]
        with step("passages.read"):
            flat = [key for each in keys.values() for key in each]
            there = dict(zip(flat, await store.get(PASSAGES, flat) if flat else [], strict=True))
        lacking = [m for m in messages if any(not _has(there[key], m, whose) for key in keys[m.key])]
        made = await self._writes(lacking)
        puts: list[Put] = []
        for message in lacking:
            new = {write.key: write.record for write in made[message.key] if isinstance(write, Put)}
            for key in keys[message.key]:
                old, passage = there[key], new.get(key)
                if isinstance(old, Record) and old.version == said_at(message):
                    vector = None if passage is None else passage.vector
                    puts.append(Put(PASSAGES, replace(old, vector=vector, fields={**old.fields, **whose}), AtVersion(old.version)))
                elif passage is not None:
                    puts.append(Put(PASSAGES, passage, Newer()))
        return puts

    def is_of(self, passage: Record, message: Record) -> bool:
        """Whether the message says now what the passage is of."""
        return passage.version == said_at(message) and int(str(passage.fields["part"])) < len(parts_of(_text(message)))

    async def _embed(self, items: Sequence[Item]) -> Sequence[Came]:
        store = self.store
        if store is None:  # with an embedder somewhere else it is still to be done
            return [self._where == "off" or self._meaning.on] * len(items)
        came: list[Came] = []
        for start in range(0, len(items), AT_ONCE):
            pending = [one for one, _ in items[start : start + AT_ONCE]]
            writes = await self._writes([one.owner for one in pending if isinstance(one.owner, Record)])
            came += await self._written(store, pending, [writes.get(one.owner.key, []) for one in pending])
        return came

    async def _writes(self, messages: Sequence[Record]) -> dict[Key, list[Put | Delete]]:
        """Of each message a passage for each part, and the end of those that it had when it said more."""
        parts, whose = [parts_of(_text(message)) for message in messages], await self._meaning.whose()
        vectors = iter(await self._meaning.of_texts([part for each in parts for part in each]))
        made: dict[Key, list[Put | Delete]] = {}
        async for message, said in paced(zip(messages, parts, strict=True)):
            had = self._ends(message, int(message.body.get("parts", 0)))
            puts: dict[Key, Put | Delete] = {delete.key: delete for delete in had}
            for number, _ in enumerate(said):
                if (vector := next(vectors)) is not None:
                    passage = _passage(message, number, vector, self._tier, whose)
                    puts[passage.key] = Put(PASSAGES, passage, Newer())
            made[message.key] = list(puts.values())
        return made

    async def _forget(self, pending: Pending, owed: Owed) -> bool:
        """Every store that may have some, whatever is configured now."""
        if isinstance(pending.owner, Record):
            for store in dict.fromkeys(self._placement.topology.home(tier) for tier in ("mid", "long")):
                if store.capabilities.semantic:
                    ends = list(self._ends(pending.owner, owed.data["parts"]))
                    (came,) = await self._written(store, [pending], [ends])
                    if isinstance(came, Exception):
                        raise came
                    if not came:
                        return False
        return True

    def _ends(self, message: Record, parts: int) -> Iterator[Delete]:
        for number in range(parts):
            until = self._placement.tombstone_until()
            yield Delete(PASSAGES, _key(message, number), said_at(message), Newer(), discard_at=until)

    async def _written(self, store: Store, pending: Sequence[Pending], writes: Sequence[Sequence[Put | Delete]]) -> list[Came]:
        """What came of the writes for each of these. What is there already, or newer, is as good as written."""
        flat = [write for each in writes for write in each]
        outcomes = iter(await self._placement.write("passages.write", store, *flat) if flat else ())
        came: list[Came] = []
        for one, each in zip(pending, writes, strict=True):
            settled: Came = True
            for write in each:
                try:
                    settled = await self._outbox.is_settled(one, store, write, next(outcomes), set()) and settled
                except Exception as error:  # noqa: BLE001 - of one message
                    settled = error
            came.append(settled)
        return came


def _has(passage: Stored | None, message: Record, whose: Mapping[str, FieldValue]) -> bool:
    """Whether this is the message's passage with such a vector, or is to be none."""
    if isinstance(passage, Record):
        return passage.version == said_at(message) and passage.fields.items() >= whose.items()
    return isinstance(passage, Tombstone) and passage.version >= said_at(message)


def first_of(message_id: str) -> str:
    """The id of a message's first passage."""
    return _id(message_id, 0)


def said_at(message: Record) -> int:
    """The version at which a message came to say what it says."""
    return int(message.body.get("said", message.version))


def _text(message: Record) -> str:
    """What is found of it: nothing while it is still being said."""
    said = message.body.get("message") or {}
    return message.texts.get("content", "") if said.get("is_final", True) else ""


def _key(message: Record, part: int) -> Key:
    return Key(message.key.tenant, _id(message.key.id, part))


def _id(message_id: str, part: int) -> str:
    return ids.beside(message_id, "passage", str(part))


def _passage(message: Record, part: int, vector: bytes, tier: str, whose: Mapping[str, FieldValue]) -> Record:
    of_session = {name: message.fields.get(name) for name in ("subject", "agent", "namespace")}
    return Record(
        _key(message, part),
        message.scope,
        said_at(message),
        message.created_at,
        message.updated_at,
        fields={**of_session, **whose, "message": message.key.id, "part": part},
        vector=vector,
        generation=message.generation,
        tier=tier,
    )
