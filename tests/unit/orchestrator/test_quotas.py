"""Quotas: beyond them nothing is stored, or others go; of several writers too."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import EntryDraft
from memory.domain.errors import InvalidInput, QuotaExceeded
from memory.domain.legal_hold import LegalHold
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.ports.query import Count, Query
from memory.ports.record import Role
from tests.unit.orchestrator.world import HOUR, ORG, SESSION, TENANT, USER, World


def quota(**given: Any) -> Quota:
    return Quota(name="q", **given)


async def _contents(world: World) -> list[str]:
    rows = [
        row for store in world.stores for row in await world.rows(store, ENTRIES) if row.role is Role.HOME
    ]
    return [row.texts["content"] for row in sorted(rows, key=lambda row: row.created_at)]


async def test_a_write_beyond_a_quota_is_refused_before_anything_is_stored() -> None:
    async with World(quotas=[quota(entries=5, scope_kinds=["user"])]) as world:
        for n in range(3):
            await world.write(f"text {n}", scope=USER)
        drafts = [EntryDraft(scope=USER, content=f"more {n}") for n in range(3)]
        with pytest.raises(
            QuotaExceeded,
            match=(
                "quota 'q': scope 'user:ada' holds 3 of at most 5 entries, and this would add 3; nothing was"
                " written"
            ),
        ):
            await world.engine.entries.write_many(
                TENANT, [EntryDraft(scope=ORG, content="of another"), *drafts]
            )
        assert await _contents(world) == ["text 0", "text 1", "text 2"]
        await world.engine.entries.write_many(TENANT, drafts[:2])
        with pytest.raises(QuotaExceeded):
            await world.write(scope=USER)
        await world.write(scope=ORG)
        entry = await world.write(scope=SESSION)
        with pytest.raises(QuotaExceeded):
            await world.engine.derivation.promote(TENANT, entry.id, USER)
        await world.engine.erasure.erase_scope(TENANT, USER)
        assert (await world.write(scope=USER)).content == "text"


async def test_a_repeat_of_what_filled_the_quota_is_answered() -> None:
    async with World(quotas=[quota(entries=2)]) as world:
        first = await world.write("text 1", scope=USER, key="k")
        entry = await world.write("text 2", scope=USER)
        assert await world.write("text 1", scope=USER, key="k") == first
        session = await world.write(scope=SESSION)
        with pytest.raises(QuotaExceeded):
            await world.engine.derivation.promote(TENANT, session.id, USER)
        await world.delete(entry)
        promoted = await world.engine.derivation.promote(TENANT, session.id, USER)
        assert await world.engine.derivation.promote(TENANT, session.id, USER) == promoted
        summary = await world.engine.derivation.compact(
            TENANT, [first.id, promoted.id], lambda entries: "summary", delete_sources=True
        )
        assert await world.browse(USER) == [summary.content]


async def test_a_tenants_quota_counts_all_of_its_scopes_in_all_stores() -> None:
    async with World(quotas=[quota(entries=4, per="tenant")]) as world:
        for n, scope in enumerate((SESSION, USER, ORG, USER)):
            entry = await world.write(f"text {n}", scope=scope)
        await world.move(entry, "long")
        with pytest.raises(QuotaExceeded, match="tenant 'acme' holds 4 of at most 4 entries"):
            await world.write(scope=ORG)
        await world.engine.entries.write("other", EntryDraft(scope=ORG, content="text"))


async def test_bytes_are_what_the_stores_say() -> None:
    async with World(quotas=[quota(bytes=20_000)]) as world:
        for _ in range(5):
            await world.write("x" * 1_000, scope=USER)
        with pytest.raises(QuotaExceeded, match="of at most 20,000 bytes"):
            await world.engine.entries.write_many(TENANT, [EntryDraft(scope=USER, content="x" * 1_000)] * 15)


async def test_the_oldest_of_the_scope_go_wherever_they_are_and_are_counted() -> None:
    async with World(quotas=[quota(entries=5, then="evict")]) as world:
        for n in range(5):
            entry = await world.write(f"text {n}", scope=USER)
            await world.write(f"other {n}", scope=ORG)
            if n in (1, 3):
                await world.move(entry, "long")
        await world.engine.entries.write_many(
            TENANT, [EntryDraft(scope=USER, content=f"new {n}") for n in range(3)]
        )
        assert await world.browse(USER) == ["new 2", "new 1", "new 0", "text 4", "text 3"]
        assert len(await world.browse(ORG)) == 5
        assert world.engine.quotas.evicted == {(TENANT, "q"): 3}
        with pytest.raises(QuotaExceeded):
            await world.engine.entries.write_many(
                TENANT, [EntryDraft(scope=USER, content=f"newer {n}") for n in range(6)]
            )
        assert await world.owed() == 0


async def test_what_is_read_least_or_trusted_least_goes_first_and_never_what_was_written_just_now() -> None:
    for evict, wanted in (
        ("least_read", ["text 0", "text 2", "new"]),
        ("least_confident", ["text 1", "text 2", "new"]),
    ):
        async with World(quotas=[quota(entries=3, then="evict", evict=evict)]) as world:
            confidences = (0.1, 0.5, 0.9)
            entries = [
                await world.write(f"text {n}", scope=USER, metadata={"confidence": confidences[n]})
                for n in range(3)
            ]
            world.clock.advance(HOUR)
            for entry in (entries[0], entries[2]):
                world.engine.accesses.note(TENANT, [entry.id])
            await world.engine.accesses.tell()
            await world.write("new", scope=USER, metadata={"confidence": 0.0})
            assert await _contents(world) == wanted, evict


async def test_a_write_is_made_where_a_store_keeps_others_from_going_which_the_next_write_has_go() -> None:
    async with World(quotas=[quota(entries=2, then="evict")]) as world:
        for n in range(2):
            await world.write(f"text {n}", scope=USER)
        world.mid.fails_before.add("delete.home")
        assert (await world.write("text 2", scope=USER)).content == "text 2"
        assert len(await _contents(world)) == 3
        world.heal()
        await world.write("text 3", scope=USER)
        assert await _contents(world) == ["text 2", "text 3"]


async def test_what_is_held_or_kept_by_a_rule_is_not_evicted() -> None:
    keep = RetentionRule(name="pinned", then="keep", when={"tag": "pinned"})
    async with World(quotas=[quota(entries=3, then="evict")], retention=[keep]) as world:
        held = await world.write("held", scope=USER)
        await world.write("pinned", scope=USER, tags=["pinned"])
        await world.engine.erasure.holds.place(
            TENANT, LegalHold("case", "entry", held.id, "r", None, world.clock()), USER.text
        )
        for n in range(4):
            await world.write(f"text {n}", scope=USER)
        assert await _contents(world) == ["held", "pinned", "text 3"]


@pytest.mark.parametrize("then", ["refuse", "evict"])
async def test_two_processes_that_write_at_once_stay_within_what_they_have_under_way(then: str) -> None:
    async with World(quotas=[quota(entries=50, then=then)]) as world:
        other, refused = await world.another_process(), 0

        async def writes(engine: Engine, name: str) -> None:
            nonlocal refused
            for n in range(60):
                try:
                    await engine.entries.write(TENANT, EntryDraft(scope=USER, content=f"{name} {n}"))
                except QuotaExceeded:
                    refused += 1
                await asyncio.sleep(0)

        await asyncio.gather(writes(world.engine, "a"), writes(other, "b"), writes(other, "c"))
        left = len(await _contents(world))
        assert 50 <= left <= 51
        if then == "refuse":
            assert refused == 180 - left
        else:
            evicted = world.engine.quotas.evicted[TENANT, "q"] + other.quotas.evicted[TENANT, "q"]
            assert evicted == 180 - left


async def test_far_from_a_quota_its_room_is_counted_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, count = list[str](), InMemoryStore.count

    async def watched(self: InMemoryStore, query: Query) -> Count:
        counted.append(self.name)
        return await count(self, query)

    async with World(quotas=[quota(entries=3_200)]) as world:
        monkeypatch.setattr(InMemoryStore, "count", watched)
        for n in range(200):
            await world.write(f"text {n}", scope=USER)
        assert counted == ["short", "mid", "long"]
        world.clock.advance(HOUR)
        await world.write(scope=USER)
        assert counted == ["short", "mid", "long"] * 2


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "quotas.q.entries: exactly one of"),
        ({"entries": 1, "bytes": 1}, "quotas.q.entries: exactly one of"),
        ({"entries": 1, "per": "tenant", "then": "evict"}, "quotas.q.then: 'evict' needs a quota per scope"),
        ({"entries": 1, "evict": "oldest"}, "quotas.q.evict: applies only to then"),
    ],
)
def test_a_quota_that_cannot_be_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidInput, ValueError), match=says.replace(".", r"\.")):
        quota(**given)
