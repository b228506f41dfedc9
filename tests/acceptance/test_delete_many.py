"""Deletion by a filter: what matches now, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from memory import Entry, Filter, InvalidInput, Memory
from memory.facade.runtime.access import engine_of
from memory.orchestrator.storage.key_locks import KeyLocks
from memory.ports.record import Key
from memory.ports.store import Store
from tests.acceptance.support import OTHER_USER, SESSION, USER, Clock, watching

DRAFT = {"metadata.kind": "draft"}


async def _entries(memory: Memory) -> list[str]:
    return sorted([entry.content async for entry in memory.entries.iterate(include_retired=True)])


async def _write(memory: Memory, content: str, kind: str, scope: object = USER) -> Entry:
    return await memory.write(content, scope=scope, metadata={"kind": kind})  # type: ignore[arg-type]


async def test_it_deletes_what_matches_in_every_tier_and_says_how_many(memory: Memory) -> None:
    await _write(memory, "one", "draft")
    moved = await _write(memory, "two", "draft", SESSION)
    await memory.admin.move([moved.id], "long")
    await _write(memory, "three", "final")
    await _write(memory, "four", "draft", OTHER_USER)
    report = await memory.entries.delete_many(DRAFT, scope=USER)
    assert (report.deleted, report.held, report.is_complete) == (1, (), True)
    assert (await memory.entries.delete_many(Filter.metadata("kind") == "draft")).deleted == 2
    assert await _entries(memory) == ["three"]
    assert (await memory.entries.delete_many(DRAFT)).to_dict() == {
        "deleted": 0,
        "held": [],
        "kept": [],
        "is_complete": True,
    }


async def test_other_tenants_keep_theirs(memory: Memory) -> None:
    other = memory.for_tenant("globex")
    await _write(other, "theirs", "draft")
    await _write(memory, "ours", "draft")
    assert (await memory.entries.delete_many(DRAFT)).deleted == 1
    assert await _entries(other) == ["theirs"]


async def test_retired_entries_stay_unless_asked_for(memory: Memory, clock: Clock) -> None:
    old = await _write(memory, "old", "draft")
    await memory.entries.invalidate(old.id)
    clock.advance()
    assert (await memory.entries.delete_many(DRAFT)).deleted == 0
    assert (await memory.entries.delete_many(DRAFT, include_retired=True)).deleted == 1
    assert await _entries(memory) == []


async def test_what_is_held_stays_and_is_named(memory: Memory) -> None:
    held = await _write(memory, "held", "draft")
    await _write(memory, "free", "draft", OTHER_USER)
    await memory.admin.legal_holds.add("case-7", reason="litigation", user="u1")
    report = await memory.entries.delete_many(DRAFT)
    assert (report.deleted, report.held) == (1, (held.id,))
    assert await _entries(memory) == ["held"]


async def test_copies_that_stay_are_named(memory: Memory) -> None:
    one = await _write(memory, "one", "draft")
    copy = await memory.promote(one.id, "org:o1", metadata={"kind": "final"})
    assert (await memory.entries.delete_many(DRAFT)).kept == (copy.id,)


async def test_an_entry_that_is_changed_before_its_turn_is_judged_anew(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, goes = await _write(memory, "kept", "draft"), await _write(memory, "goes", "draft")
    derivatives = engine_of(memory).derivatives
    delete_at, changed = derivatives.delete_at, set[str]()

    async def change_first(at: Mapping[Key, int], store: Store) -> object:
        for key in at:
            changed.add(key.id)
            await memory.update(key.id, metadata={"kind": "final"} if key.id == kept.id else {"n": 1})
        return await delete_at(at, store)

    monkeypatch.setattr(engine_of(memory).deletion, "key_locks", KeyLocks())  # as of another process
    monkeypatch.setattr(derivatives, "delete_at", change_first)
    assert (await memory.entries.delete_many(DRAFT)).deleted == 1
    assert changed == {kept.id, goes.id}
    assert await _entries(memory) == ["kept"]


@pytest.mark.parametrize(
    "empty", [{}, {"tags": []}, {"types": None, "metadata": {}}, {"$and": [{}]}], ids=repr
)
async def test_an_empty_filter_is_refused(plain: Memory, empty: dict[str, object]) -> None:
    await _write(plain, "one", "draft")
    with watching(plain) as calls, pytest.raises(InvalidInput, match=r"empty.*admin\.erase"):
        await plain.entries.delete_many(empty)
    assert calls == []
