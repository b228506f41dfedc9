"""A tenant with one of every kind, what is to be true once it was erased, and what
others do at a call of whoever erases it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Container, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from memory.domain.document import check_value
from memory.domain.entry import EntryDraft
from memory.domain.message import Message
from memory.domain.message import Role as Speaker
from memory.domain.scope import Scope
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.tasks.runs import RunDraft
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.orchestrator.documents.documents import PutRequest
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries.scratchpads import scope_of
from memory.orchestrator.maintenance.tenant_erasure import ERASE_TENANT
from memory.orchestrator.storage.collections import OPERATIONS, SCRATCHPADS, SESSIONS
from memory.policies.entry_query import EntryQuery
from memory.ports.embedder import Fingerprint
from memory.ports.query import Everywhere, Query, RowType
from memory.ports.record import Key, Partition, Record, Role, Tombstone, pack_vector
from tests.support.delivered import undelivered
from tests.support.long_texts import astray, long_text
from tests.support.numbered import misnumbered

AGENT = "scribe"
NAMED = {SCRATCHPADS.name, SESSIONS.name}
"""Of these the same key may stand again: they are told by what they say."""
SCOPES = (Scope.session("s1"), Scope.user("ada"), Scope.org("o1"))


class Lengths:
    """An embedder: how long a text is, and how many words it has."""

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("lengths", 2)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [pack_vector([1.0 + len(text), 1.0 + text.count(" ")]) for text in texts]


async def fill(engine: Engine, tenant: str, word: str, session_id: str) -> list[str]:
    """One of every kind, `word` in each that has a text; the entries. The last of a
    session that had none stands in no other.
    """
    entries = [
        await engine.entries.write(tenant, EntryDraft(scope=scope, content=f"{word} in {scope}"))
        for scope in SCOPES
    ]
    entries.append(
        await engine.entries.write(
            tenant, EntryDraft(scope=SCOPES[1], content=long_text("money", f"{word} ends it"))
        )
    )
    entries.append(
        await engine.entries.write(
            tenant, EntryDraft(scope=SCOPES[1], content=f"{word} under a key", key=word)
        )
    )
    for entry in entries[:2]:
        await engine.entries.update(tenant, entry.id, {"content": f"{word} said anew"})
    await engine.relations.relate(tenant, entries[0].id, "refines", entries[1].id)
    await engine.short_ids.of(tenant, [entry.id for entry in entries])
    session = await engine.conversations.create(tenant, SessionDraft(session_id, user=word))
    await session.append([_said(word), _said(f"{word} " * 20_000)])
    await engine.conversations.tasks.save(session.log, TaskDraft(f"task of {session_id}", title=word))
    await engine.conversations.runs.save(session.log, RunDraft(f"run of {session_id}", child_id=word))
    await engine.conversations.manifests.put(
        tenant, session_id, f"{word}.md", "text/plain", _pieces(word.encode()), len(word)
    )
    for agent in (AGENT, None):
        await engine.scratchpads.append(tenant, agent, f"note: {word}")
    for value in ({"said": word}, word.encode() * 60_000):
        asked = PutRequest(SCOPES[1].text, f"{word} {type(value).__name__}", check_value(value), {"of": word})
        await engine.documents.put(tenant, asked)
    return [entry.id for entry in entries]


def _said(text: str) -> Message:
    return Message(role=Speaker.USER, content=text)


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def standing(engine: Engine, tenant: str) -> dict[tuple[str, str, Key], Record]:
    """All records of the tenant, whoever they are for, by store, collection and key."""
    found: dict[tuple[str, str, Key], Record] = {}
    for leaf in engine.topology.leaves:
        for kind in engine.placement.kinds.scoped:
            query = Query(
                kind.collection,
                Everywhere(),
                roles=frozenset(Role),
                types=frozenset({RowType.RECORD}),
                limit=1_000,
            )
            page = await leaf.query(query)
            assert page.cursor is None
            rows = [row for row in page.records if isinstance(row, Record) and row.key.tenant == tenant]
            found |= {(leaf.name, kind.collection.name, row.key): row for row in rows}
    return found


async def under_way(engine: Engine, kind: str = ERASE_TENANT) -> bool | None:
    """Whether an erasure of this kind is under way; None where it is over. False where
    none had begun.
    """
    graves = Query(
        OPERATIONS, Everywhere(), types=frozenset({RowType.RECORD, RowType.TOMBSTONE}), limit=1_000
    )
    rows = (await engine.topology.archive.query(graves)).records
    if any(isinstance(row, Record) and row.fields["kind"] == kind for row in rows):
        return True
    return None if any(isinstance(row, Tombstone) for row in rows) else False


async def left(
    engine: Engine, tenant: str, before: dict[tuple[str, str, Key], Record], word: str
) -> list[str]:
    """What is left of before once all is swept, a sentence each."""
    keys, wrong = {(kind, key) for _, kind, key in before if kind not in NAMED}, list[str]()
    for (store, kind, key), row in (await standing(engine, tenant)).items():
        if word in repr(row) or (kind, key) in keys:
            wrong.append(f"{row.role} of {kind} in {store} is of before: {row!r:.200}")
    if await under_way(engine):
        wrong.append("its operation is left")
    return wrong


async def lost(
    engine: Engine, tenant: str, entry_ids: Sequence[str], word: str, session_id: str
) -> list[str]:
    """What is missing of what `fill` stored afterwards, in whatever way it is read, a
    sentence each.
    """
    wrong = [*await undelivered(engine), *await misnumbered(engine), *await astray(engine)]
    there = [await engine.entries.get(tenant, one) for one in entry_ids]
    wrong += [
        f"entry {one} is not read" for one, entry in zip(entry_ids, there, strict=True) if entry is None
    ]
    listed = {entry.id for entry in await engine.browser.browse(EntryQuery(tenant, SCOPES))}
    wrong += [f"entry {one} is not listed" for one in set(entry_ids) - listed]
    for one in entry_ids[:2]:
        if there[entry_ids.index(one)] is not None and len(await engine.entries.history(tenant, one)) != 2:
            wrong.append(f"entry {one} has lost its past")
    if [(one.source_id, one.target_id) async for one in engine.relations.everything(tenant)] != [
        tuple(entry_ids[:2])
    ]:
        wrong.append("the relation is lost")
    if await engine.conversations.find(tenant, session_id) is None:
        return [*wrong, "the session is lost"]
    opened = await engine.conversations.open(tenant, SessionDraft(session_id), create=False)
    texts = [message.text for message in (await opened.context()).messages]
    wrong += [] if texts == [word, f"{word} " * 20_000] else [f"the session says {texts!r:.100}"]
    wrong += (
        []
        if await engine.conversations.tasks.get(opened.log, f"task of {session_id}")
        else ["the task is lost"]
    )
    manifest = await engine.conversations.manifests.at(tenant, session_id, f"{word}.md")
    said = (
        b""
        if manifest is None
        else b"".join([piece async for piece in engine.conversations.manifests.stream(manifest)])
    )
    wrong += [] if said == word.encode() else ["the artifact is lost"]
    for agent in (AGENT, None):
        pad = await engine.scratchpads.read(tenant, agent)
        if (
            pad.content.count(f"note: {word}") != 1
            or pad.damaged
            or (await engine.scratchpads._end(Partition(tenant, scope_of(agent)))).size != pad.size
        ):
            wrong.append(f"the scratchpad of {agent} reads {pad.content!r}, {pad.damaged} damaged")
    return wrong


_IS_COUNTED = ContextVar("_IS_COUNTED", default=False)


class AtCalls:
    """Let things happen at the calls of these numbers that are made within to any of
    the stores, each once: before the call, or, where the number is told to be `after`,
    behind it; how many did. What is called by what happens is not counted.
    """

    def __init__(
        self,
        stores: Sequence[Any],
        acts: Mapping[int, Callable[[], Awaitable[object]]],
        after: Container[int] = (),
    ) -> None:
        self.calls, self.happened, self._acts, self._after = 0, 0, acts, after
        self._calls = {store: store.on_call for store in stores}

    def __enter__(self) -> AtCalls:
        for store, call in self._calls.items():
            store.on_call = self._counting(call)
        self._token = _IS_COUNTED.set(True)
        return self

    def __exit__(self, *_: object) -> None:
        _IS_COUNTED.reset(self._token)
        for store, call in self._calls.items():
            store.on_call = call

    def _counting(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            if not _IS_COUNTED.get():
                return await call(*args, **kwargs)
            number = self.calls
            self.calls += 1
            if number not in self._after:
                await self._happens(number)
            answer = await call(*args, **kwargs)
            if number in self._after:
                await self._happens(number)
            return answer

        return counted

    async def _happens(self, number: int) -> None:
        if number in self._acts:
            self.happened += 1
            token = _IS_COUNTED.set(False)
            try:
                await self._acts[number]()
            finally:
                _IS_COUNTED.reset(token)
