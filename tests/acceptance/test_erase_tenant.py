"""A tenant's end: one of every kind there is, and afterwards every record of every
store is looked at.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from memory.domain.session import ErasedTenant
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.maintenance.tenant_erasure import TenantErasure
from memory.orchestrator.storage.collections import (
    COUNTERS,
    HOLDS,
    LEASES,
    OPERATIONS,
    PASSAGES,
    RESERVATIONS,
    SETTINGS,
)
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.placement import Placement
from memory.ports.advisor import Prompt
from memory.ports.query import Everywhere, Query, RowType
from memory.ports.record import Record, Role
from tests.acceptance.support import SESSION, USER, Clock
from tests.support.long_texts import long_text

ENGINES_OWN = {OPERATIONS, LEASES, SETTINGS}
"""They are nobody's: an erasure is remembered by its scope's name, and no word of a
caller's.
"""
STAYS = {COUNTERS: 1, RESERVATIONS: 1}
"""How far the tenant has counted, and the balance of its artifacts, which is nothing."""
AGENT = "scribe"


def no_model(prompt: Prompt) -> str:
    raise OSError("no model there")


async def fill(memory: Memory, word: str) -> None:
    """One of every kind, `word` in each that has a text."""
    first = await memory.write(long_text("money", f"{word} ends it"), scope=USER, tags=[word])
    session = memory.session("chat", user=word)
    await session.append(
        [{"role": "user", "content": f"how is the {word}"}, {"role": "user", "content": f"{word} " * 20_000}]
    )
    second = await memory.write(f"the {word} is calm", scope=SESSION, conversation_id="chat")
    await memory.update(second.id, content=f"the {word} is rough")
    await memory.entries.invalidate((await memory.write(f"{word} retired", scope=USER)).id)
    await memory.relations.relate(first.id, "refines", second.id)
    await memory.short_ids.of([first.id, second.id])
    await memory.write(f"{word} once", scope=USER, request_id=word)
    await memory.admin.move([first.id], "long")
    await session.tasks.save("task", title=word)
    await session.runs.save("run", child_id=word)
    await memory.artifacts.put("chat", f"{word}.md", word.encode() * 100)
    for agent in (AGENT, None):
        await memory.scratchpads.append(f"note: {word}", agent)
    await memory.documents.put(USER, word, {"said": word}, metadata={"of": word})
    await memory.documents.put(USER, f"{word} at length", word.encode() * 60_000)
    await memory.write_with_report(f"Ada says {word}", scope=USER, auto_tag=True)  # which stays owed
    if engine_of(memory).conversations.passages.lexical_only_reason is None:
        await memory.admin.embed_messages()
    await memory.admin.sweep()
    await memory.admin.flush()


async def standing(memory: Memory, tenant: str) -> Counter[tuple[str, str]]:
    """How many there are of each kind in each store, in whatever role."""
    found = Counter[tuple[str, str]]()
    for leaf, kind, row in await rows(memory, frozenset({RowType.RECORD})):
        found[kind, leaf] += row.key.tenant == tenant
    return +found


async def rows(memory: Memory, types: frozenset[RowType]) -> list[tuple[str, str, Any]]:
    found = list[tuple[str, str, Any]]()
    for leaf in engine_of(memory).topology.leaves:
        for collection in KINDS.collections:
            page = await leaf.query(
                Query(collection, Everywhere(), roles=frozenset(Role), types=types, limit=1_000)
            )
            assert page.cursor is None
            found += [(leaf.name, collection.name, row) for row in page.records]
    return found


@pytest.mark.behaviour("D35")
async def test_one_of_every_kind_ends_with_its_tenant_in_every_store_and_the_receipt_says_so(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(
        config | {"embedder": "wordllama", "conversations": {"meaning": "long"}},
        clock=clock,
        advisor=no_model,
    ) as memory:
        other = memory.for_tenant("other")
        await fill(memory, "zirconium")
        await fill(other, "feldspar")
        before, theirs = await standing(memory, memory.tenant), await standing(memory, "other")
        there = {name for name, _ in before}
        missing = {kind.collection.name for kind in KINDS if kind.collection not in ENGINES_OWN} - there
        no_meaning = (
            {PASSAGES.name}
            if engine_of(memory).conversations.passages.lexical_only_reason is not None
            else set()
        )
        assert missing == {HOLDS.name} | no_meaning, "of every kind: what is held is not erased"

        receipt = await memory.admin.erase_tenant()
        assert receipt.scopes == 6, "two scopes, a conversation, two scratchpads, requests"
        assert receipt.records.keys() == {kind.collection.name for kind in KINDS.scoped} - no_meaning
        assert all(receipt.records.values())
        await memory.admin.flush()
        left = await standing(memory, memory.tenant)
        assert {name for name, _ in left} == {kind.name for kind in STAYS}
        assert sorted(left.values()) == sorted(STAYS.values())
        assert await engine_of(memory).conversations.reservations.used_bytes(memory.tenant) == 0
        every = frozenset(RowType)
        assert not [
            row
            for *_, row in await rows(memory, every)
            if "zirconium" in repr(row) and not _names_a_scope(row)
        ]
        assert await standing(memory, "other") == theirs, "nothing of others"

        clock.advance()
        await memory.admin.sweep()
        assert (await standing(memory, memory.tenant)).keys() == left.keys(), (
            "what was owed brings nothing back"
        )
        assert await memory.admin.erase_tenant() == ErasedTenant(0)
        await fill(memory, "basalt")
        for _ in range(2):
            clock.advance()
            await memory.admin.sweep()
        assert {name for name, _ in await standing(memory, memory.tenant)} == there, "it may begin anew"


def _names_a_scope(row: Any) -> bool:
    return isinstance(row, Record) and row.scope == "operations"


async def test_what_was_made_of_what_was_said_is_counted(config: dict[str, Any], clock: Clock) -> None:
    """It goes with its session, and lies in a scope of its own."""
    async with Memory(
        config, clock=clock, on_window_exit=lambda leaving: [message.text for message in leaving.messages]
    ) as memory:
        session = memory.session("chat", user="ada")
        await session.append([{"role": "user", "content": "tea"}, {"role": "user", "content": "milk"}])
        await session.end()
        assert len(await memory.retrieve("user:ada")) == 2
        receipt = await memory.admin.erase_tenant()
        assert (receipt.scopes, sum(receipt.records["entries"].values())) == (2, 2)


async def test_it_looks_again_until_nothing_of_before_is_there_and_leaves_what_is_written_meanwhile(
    config: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Memory(config, clock=clock) as memory:
        await memory.write("old", scope=USER)
        look, looks = TenantErasure._scopes, list[int]()

        async def looked(self: TenantErasure, *asked: Any) -> set[str]:
            looks.append(len(looks))
            if len(looks) == 2:
                await memory.write("late", scope="org:late")
                clock.advance()
            found = await look(self, *asked)
            return {*found, *({SESSION.text} if len(looks) == 2 else ())}

        monkeypatch.setattr(TenantErasure, "_scopes", looked)
        assert (await memory.admin.erase_tenant()).scopes == 2
        assert len(looks) == 4, "twice behind the last that was found"
        assert [entry.content for entry in await memory.retrieve("org:late")] == ["late"]
        assert await memory.retrieve(USER) == []


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("come_to", [0, 3, 14])
async def test_what_a_process_left_that_died_over_it_another_takes_to_its_end_and_leaves_what_was_written_since(
    config: dict[str, Any], clock: Clock, monkeypatch: pytest.MonkeyPatch, come_to: int
) -> None:
    """It dies before that many of the deletions that it asks the stores for."""
    delete, asked = Placement.delete_matching, list[str]()

    async def dies(self: Placement, name: str, *more: Any) -> int:
        asked.append(name)
        if len(asked) > come_to:
            raise Died
        return await delete(self, name, *more)

    keeps = "memory://" in str(config)
    async with Memory(config, clock=clock, advisor=no_model) as memory:
        await fill(memory, "zirconium")
        monkeypatch.setattr(Placement, "delete_matching", dies)
        with pytest.raises(Died):
            await memory.admin.erase_tenant()
        monkeypatch.undo()
        if keeps:
            await _followed(memory, clock)
    if not keeps:
        async with Memory(config, clock=clock, advisor=no_model) as memory:
            await _followed(memory, clock)


async def _followed(memory: Memory, clock: Clock) -> None:
    since = [await memory.write("feldspar", scope=scope) for scope in (USER, SESSION)]
    await memory.update(since[0].id, content="feldspar still")
    await memory.scratchpads.append("note: feldspar", AGENT)
    assert (await memory.admin.stats()).pending_steps > 0
    for _ in range(3):
        await memory.admin.sweep()
        clock.advance()
    assert (await memory.admin.stats()).pending_steps == 0
    left = [
        (leaf, kind, row)
        for leaf, kind, row in await rows(memory, frozenset({RowType.RECORD}))
        if "zirconium" in repr(row)
    ]
    assert [one for one in left if not _names_a_scope(one[2])] == []
    assert [entry.content for entry in await memory.retrieve(USER)] == ["feldspar still"]
    assert [entry.content for entry in await memory.retrieve(SESSION)] == ["feldspar"]
    pad = await memory.scratchpads.read(AGENT)
    assert (pad.content.count("note: "), pad.damaged) == (1, 0)
    assert (await memory.admin.erase_tenant()).scopes == 3
