"""Searches by meaning of stores without an index for it: chosen from what the process
keeps, shown as the stores say now; by itself, and in drawn histories of two processes
over stores that fail.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.errors import MemoryTiersError, StoreUnavailable
from memory.domain.ids import keyed_id
from memory.domain.provenance import ORIGIN_KINDS
from memory.domain.scope import Scope, Subtree
from memory.orchestrator.embeddings import partition_indexes
from memory.orchestrator.embeddings.partition_indexes import LASTS
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage import placement
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.split import Share, SplitStore
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.trust.blocked_sources import of_origin
from memory.policies import visibility
from memory.policies.entry_query import EntryQuery
from memory.policies.visibility import FILTERED
from memory.ports.query import Condition, Not, Or
from memory.ports.record import Key
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.forms import astray, kept, read
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.meant import FILLING, Embedder
from tests.unit.orchestrator.test_long_texts import LONG, Turned
from tests.unit.orchestrator.world import DURABLE, ORG, SESSION, TENANT, USER, Flaky, World

PLAIN = replace(DURABLE, semantic=False)
SECOND = timedelta(seconds=1)


def _world(settings: EngineSettings | None = None) -> World:
    """As PostgreSQL without pgvector is: one store for all, which finds by words alone."""
    return (
        World(mid=PLAIN, embedder=Embedder(), settings=settings)
        .in_one_store("mid", "short")
        .in_one_store("mid", "long")
    )


async def _found(engine: Engine, text: str, *scopes: Scope | Subtree, **more: Any) -> list[str]:
    found = await engine.entry_search.search(
        EntryQuery(TENANT, scopes or (USER,), mode="semantic", limit=50, **more), text
    )
    assert not found.degraded
    return sorted(hit.entry.content for hit in found)


async def _ready(engine: Engine, *scopes: Scope | Subtree) -> None:
    """The forms of these scopes choose."""
    await _found(engine, "beverage", *scopes)
    await read(engine)
    assert len(kept(engine)) == 2 * len(scopes or (USER,))


async def test_a_form_chooses_once_it_has_been_read_and_the_store_measures() -> None:
    async with _world() as world:
        tea, bird = await world.write("tea", USER), await world.write("heron", USER)
        await _ready(world.engine)
        world.mid.steps.clear()
        assert await _found(world.engine, "beverage") == ["tea"]
        assert not {"forms.read", "passages.search"} & {*world.mid.steps}, (
            "of a scope without long entries there is nothing to ask"
        )
        (hit,) = await world.engine.entry_search.search(
            EntryQuery(TENANT, (USER,), mode="semantic"), "beverage", explain=True
        )
        assert hit.entry == await world.get(tea)
        assert hit.explanation["vectors_age"] == 0.0
        world.clock.advance(10 * SECOND)
        (hit,) = await world.engine.entry_search.search(
            EntryQuery(TENANT, (USER,), mode="semantic"), "bird", explain=True
        )
        assert (hit.entry.id, hit.explanation["vectors_age"]) == (bird.id, 10.0)


async def test_where_the_store_was_asked_by_meaning_nothing_is_said_of_an_age() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        (hit,) = await world.engine.entry_search.search(
            EntryQuery(TENANT, (USER,), mode="semantic"), "beverage", explain=True
        )
        assert "vectors_age" not in hit.explanation


async def test_what_this_process_writes_is_found_by_the_next_search() -> None:
    async with _world() as world:
        first = await world.write("tea", USER)
        await _ready(world.engine)
        second = await world.write("beverage", USER)
        assert await _found(world.engine, "tea") == ["beverage", "tea"]
        await world.update(first, content="a heron")
        assert await _found(world.engine, "tea") == ["beverage"]
        assert await _found(world.engine, "bird") == ["a heron"]
        await world.delete(second)
        assert await _found(world.engine, "tea") == []
        await world.move(first, "long")
        assert await _found(world.engine, "bird") == ["a heron"]
        await world.engine.entries.invalidate(TENANT, first.id, None)
        assert await _found(world.engine, "bird") == []
        assert await astray(world.engine) == []


async def test_what_others_write_is_found_after_a_minute_and_nothing_stale_is_shown() -> None:
    async with _world() as world:
        first, gone = await world.write("tea", USER), await world.write("tea too", USER)
        await _ready(world.engine)
        other = await world.another_process()
        await other.entries.write(TENANT, EntryDraft(scope=USER, content="beverage"))
        await other.entries.update(TENANT, first.id, {"content": "a heron"})
        await other.deletion.delete(TENANT, gone.id)
        assert await _found(world.engine, "tea") == []
        world.clock.advance(LASTS)
        assert await _found(world.engine, "tea") == ["beverage"]
        assert await _found(world.engine, "bird") == ["a heron"]
        await other.close()


async def test_what_others_deleted_makes_room_for_what_is_less_near() -> None:
    async with _world() as world:
        near = [await world.write("tea", USER) for _ in range(60)]
        await world.write("tea and a heron", USER)
        await _ready(world.engine)
        other = await world.another_process()
        for entry in near:
            await other.deletion.delete(TENANT, entry.id)
        found = await world.engine.entry_search.search(
            EntryQuery(TENANT, (USER,), mode="semantic", limit=1), "beverage"
        )
        assert [hit.entry.content for hit in found] == ["tea and a heron"]
        await other.close()


async def test_a_form_is_as_old_as_the_beginning_of_its_reading() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        other = await world.another_process()

        async def meanwhile() -> None:
            await other.entries.write(TENANT, EntryDraft(scope=USER, content="beverage"))
            world.clock.advance(LASTS / 2)

        world.mid.after["forms.read"] = meanwhile
        await _ready(world.engine)
        assert await _found(world.engine, "tea") == ["tea"]
        world.clock.advance(LASTS / 2)
        assert await _found(world.engine, "tea") == ["beverage", "tea"]
        await other.close()


async def test_a_form_that_is_asked_goes_on_being_read_behind_whoever_asks() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        other = await world.another_process()
        await other.entries.write(TENANT, EntryDraft(scope=USER, content="beverage"))
        world.clock.advance(LASTS / 2)
        assert await _found(world.engine, "tea") == ["tea"]
        await read(world.engine)
        assert await _found(world.engine, "tea") == ["beverage", "tea"]
        await other.close()


async def test_a_clock_that_was_set_back_makes_no_form_young() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        world.clock.advance(-LASTS)
        await _found(world.engine, "tea")
        assert kept(world.engine) == []
        world.clock.advance(2 * LASTS)
        await _ready(world.engine)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_write_that_failed_leaves_its_partition_to_the_store_for_a_minute(how: str) -> None:
    """It may land at any moment after it."""
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        failing = world.mid.fails_before if how == "before" else world.mid.fails_after
        failing.add("write.home")
        with pytest.raises(StoreUnavailable):
            await world.write("beverage", USER)
        world.heal()
        assert kept(world.engine) == ["entry_passages of user:ada"]
        wanted = ["tea"] if how == "before" else ["beverage", "tea"]
        assert await _found(world.engine, "tea") == wanted
        await read(world.engine)
        other = await world.another_process()
        await other.entries.write(TENANT, EntryDraft(scope=USER, content="tea that landed late"))
        assert await _found(world.engine, "tea") == [*wanted, "tea that landed late"]
        world.clock.advance(LASTS + SECOND)
        await _ready(world.engine)
        await other.close()


async def test_a_write_that_is_cut_off_leaves_its_partition_to_the_store() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        landed = asyncio.Event()

        async def hang() -> None:
            landed.set()
            await asyncio.Event().wait()

        world.mid.after["write.home"] = hang
        writing = asyncio.create_task(world.write("beverage", USER))
        await landed.wait()
        writing.cancel()
        with suppress(asyncio.CancelledError):
            await writing
        assert await _found(world.engine, "tea") == ["beverage", "tea"]


async def test_what_is_written_while_a_form_is_read_is_found() -> None:
    async with _world() as world:
        first = await world.write("tea", USER)

        async def meanwhile() -> None:
            await world.update(first, content="a heron")
            await world.write("beverage", USER)

        world.mid.after["forms.read"] = meanwhile
        await _ready(world.engine)
        assert await _found(world.engine, "tea") == ["beverage"]
        assert await _found(world.engine, "bird") == ["a heron"]
        assert await astray(world.engine) == []


async def test_what_is_written_while_a_form_is_brought_up_is_found_by_the_next_search() -> None:
    async with _world() as world:
        first = await world.write("tea", USER)
        await _ready(world.engine)
        await world.update(first, content="another tea")

        async def meanwhile() -> None:
            await world.update(first, content="a heron")

        world.mid.after["forms.written"] = meanwhile
        await _found(world.engine, "tea")
        assert await _found(world.engine, "bird") == ["a heron"]
        assert await astray(world.engine) == []


@pytest.mark.parametrize("way", ["erased", "deleted"])
async def test_what_was_erased_while_a_form_is_read_is_not_kept(way: str) -> None:
    async with _world() as world:
        first = await world.write("tea", USER)

        async def meanwhile() -> None:
            await (world.engine.erasure.erase_scope(TENANT, USER) if way == "erased" else world.delete(first))

        world.mid.after["forms.read"] = meanwhile
        await _found(world.engine, "beverage")
        await read(world.engine)
        await _found(world.engine, "beverage")
        assert "tea" not in [one.fields.get("content") for one in await world.rows(world.mid, ENTRIES)]
        assert await astray(world.engine) == []


async def test_an_erased_scope_is_let_go_of_at_once() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        await world.write("tea", ORG)
        await _ready(world.engine, USER, ORG)
        await world.engine.erasure.erase_scope(TENANT, USER)
        assert kept(world.engine) == ["entries of org:o1", "entry_passages of org:o1"]
        assert await _found(world.engine, "beverage", USER, ORG) == ["tea"]


async def test_a_subtree_has_one_form_that_follows_what_this_process_does() -> None:
    team, red, redder = (Scope.path("team", *labels) for labels in ((), ("red",), ("redder",)))
    tree = Scope.path("team", "red").subtree()
    async with _world() as world:
        first = await world.write("tea", red)
        await world.write("tea of the team", team)
        await world.write("tea of others", redder)
        await _ready(world.engine, tree)
        assert kept(world.engine) == ["entries of path:team/red/**", "entry_passages of path:team/red/**"]
        world.mid.steps.clear()
        await world.write("beverage", Scope.path("team", "red", "new"))
        await world.write("beverage elsewhere", redder)
        assert await _found(world.engine, "tea", tree) == ["beverage", "tea"]
        assert "forms.read" not in world.mid.steps
        await world.update(first, content="a heron")
        assert await _found(world.engine, "tea", tree) == ["beverage"]
        assert await _found(world.engine, "bird", tree) == ["a heron"]
        assert await astray(world.engine) == []
        await world.engine.erasure.erase_scope(TENANT, Scope.path("team", "red", "new"))
        assert kept(world.engine) == []
        assert await _found(world.engine, "beverage", tree) == []


async def test_a_subtree_beside_a_scope_has_a_form_of_its_own() -> None:
    tree = Scope.path("team").subtree()
    async with _world() as world:
        await world.write("tea", Scope.path("team", "red"))
        await world.write("beverage", USER)
        await world.write("tea of the org", ORG)
        for _ in range(2):
            assert await _found(world.engine, "tea", tree, USER) == ["beverage", "tea"]
            assert await _found(world.engine, "tea", tree) == ["tea"]
            await read(world.engine)
        assert "entries of path:team/**, user:ada" in kept(world.engine)
        other = await world.another_process()
        await other.entries.write(
            TENANT, EntryDraft(scope=Scope.path("team"), content="beverage of the team")
        )
        world.clock.advance(LASTS)
        assert await _found(world.engine, "tea", tree) == ["beverage of the team", "tea"]
        await other.close()


async def test_scopes_and_tenants_are_apart() -> None:
    async with _world() as world:
        for tenant, scope in (("acme", USER), ("acme", ORG), ("other", USER)):
            await world.engine.entries.write(
                tenant, EntryDraft(scope=scope, content=f"tea of {tenant} {scope.text}")
            )
        for _ in range(2):
            for tenant, scope in (("acme", USER), ("acme", ORG), ("other", USER)):
                found = await world.engine.entry_search.search(
                    EntryQuery(tenant, (scope,), mode="semantic"), "beverage"
                )
                assert [hit.entry.content for hit in found] == [f"tea of {tenant} {scope.text}"]
            assert await _found(world.engine, "beverage", USER, ORG) == [
                "tea of acme org:o1",
                "tea of acme user:ada",
            ]
            await read(world.engine)
        assert len(kept(world.engine)) == 6


async def test_a_filter_that_few_pass_is_asked_of_the_form() -> None:
    async with _world() as world:
        for number in range(60):
            await world.write(f"tea {number}", USER)
        await world.write("tea and heron", USER, tags=["rare"])
        await _ready(world.engine)
        asked = EntryQuery(TENANT, (USER,), mode="semantic", limit=1, tags=("rare",))
        assert [hit.entry.content for hit in await world.engine.entry_search.search(asked, "beverage")] == [
            "tea and heron"
        ]


def test_filters_of_searches_name_no_field_that_forms_lack() -> None:
    now = World().clock()
    trusted = Not(Or(tuple(of_origin(f"{kind}:x") for kind in ORIGIN_KINDS)))
    asked = EntryQuery(
        TENANT,
        (USER,),
        since=now,
        before=now,
        types=("fact",),
        tags=("a",),
        any_tags=("b",),
        as_of=now,
        trusted=trusted,
    )
    assert _named(visibility.filter_of(asked, ENTRIES, now)) == FILTERED


def _named(part: Condition | None) -> set[str]:
    inner: tuple[Condition, ...] = (part.part,) if isinstance(part, Not) else getattr(part, "parts", ())
    return {name for one in inner for name in _named(one)} | (
        {name} if (name := getattr(part, "field", None)) is not None else set()
    )


async def test_passages_of_long_entries_are_chosen_likewise() -> None:
    async with _world() as world:
        entry = await world.write(LONG, USER)
        await world.write(FILLING * 60, USER)
        await _ready(world.engine)
        assert await _found(world.engine, "boat outage") == [LONG]
        await world.update(entry, content=f"{FILLING * 60}tea")
        assert await _found(world.engine, "boat outage") == []
        assert await _found(world.engine, "beverage") == [f"{FILLING * 60}tea"]
        assert await astray(world.engine) == []


async def test_vectors_of_another_embedder_are_not_chosen_while_they_are_made_anew() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        world.embedder = Turned()
        new = world.another_engine()
        await new.open(reindex=True)
        await world.engine.embeddings.look()
        await new.entries.write(TENANT, EntryDraft(scope=USER, content="beverage"))
        assert await _both(new, world.engine) == (["beverage"], ["tea"])
        await read(new)
        assert await _both(new, world.engine) == (["beverage"], ["tea"])
        assert (await new.reindexing.run()).ended
        assert await _meant(new) == ["beverage", "tea"]
        assert await _meant(world.engine) == []
        assert await astray(new) == []
        await new.close()


async def _meant(engine: Engine) -> list[str]:
    return sorted(
        hit.entry.content
        for hit in await engine.entry_search.search(EntryQuery(TENANT, (USER,), mode="semantic"), "beverage")
    )


async def _both(one: Engine, other: Engine) -> tuple[list[str], list[str]]:
    return await _meant(one), await _meant(other)


# -- bounds ----------------------------------------------------------------------------


async def test_the_one_asked_longest_ago_makes_room() -> None:
    scopes = [Scope.user(f"u{number}") for number in range(6)]
    async with _world(EngineSettings(search_cache_bytes=60_000)) as world:
        for scope in scopes:
            await world.write("tea", scope)
        for scope in (*scopes, scopes[2]):
            await _found(world.engine, "beverage", scope)
            await read(world.engine)
            assert world.engine.partition_indexes.bytes <= 30_000
        there = kept(world.engine)
        assert 2 < len(there) < 12
        assert "entries of user:u2" in there
        for scope in scopes:
            assert await _found(world.engine, "beverage", scope) == ["tea"]


async def test_a_partition_that_is_too_large_is_left_to_the_store() -> None:
    async with _world(EngineSettings(search_cache_bytes=60_000)) as world:
        for number in range(30):
            await world.write(f"tea {number}", USER)
        for _ in range(2):
            assert len(await _found(world.engine, "beverage")) == 30
            await read(world.engine)
            assert kept(world.engine) == ["entry_passages of user:ada"]
            world.clock.advance(LASTS)
        assert world.mid.steps.count("forms.read") == 3, (
            "it is read once in ten minutes, and its passages twice"
        )


async def test_nothing_is_kept_where_nothing_may_be() -> None:
    async with _world(EngineSettings(search_cache_bytes=0)) as world:
        await world.write("tea", USER)
        assert await _found(world.engine, "beverage") == ["tea"]
        await read(world.engine)
        assert "forms.read" not in world.mid.steps


async def test_a_form_that_missed_very_many_writes_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_indexes, "WRITTEN", 5)
    async with _world() as world:
        await world.write("tea", USER)
        await _ready(world.engine)
        for number in range(6):
            await world.write(f"tea {number}", USER)
        assert kept(world.engine) == ["entry_passages of user:ada"]
        assert len(await _found(world.engine, "beverage")) == 7


# -- stores that fail ------------------------------------------------------------------


async def test_a_search_does_not_wait_for_what_is_read_behind_it() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        goes_on = asyncio.Event()
        world.mid.before["forms.read"] = goes_on.wait
        for _ in range(3):
            assert await _found(world.engine, "beverage") == ["tea"]
        goes_on.set()
        await read(world.engine)
        assert len(kept(world.engine)) == 2


async def test_a_form_that_cannot_be_read_fails_no_search_and_is_tried_again() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        world.mid.fails_before.add("forms.read")
        for _ in range(3):
            assert await _found(world.engine, "beverage") == ["tea"]
            await read(world.engine)
        assert world.mid.steps.count("forms.read") == 2, (
            "once for each collection, till half a minute is over"
        )
        world.heal()
        world.clock.advance(LASTS / 2)
        await _ready(world.engine)


async def test_closing_ends_what_is_read() -> None:
    async with _world() as world:
        await world.write("tea", USER)
        world.mid.before["forms.read"] = asyncio.Event().wait
        await _found(world.engine, "beverage")
        task = world.engine.partition_indexes._task
        assert task is not None
        await asyncio.sleep(0)
        await world.engine.close()
        assert task.cancelled()
        await world.engine.open()
        await _ready(world.engine)


def test_on_another_loop_what_the_first_one_left_behind_is_read_again() -> None:
    world, first, second = _world(), asyncio.new_event_loop(), asyncio.new_event_loop()

    async def begun() -> None:
        await world.engine.open()
        await world.write("tea", USER)
        world.mid.before["forms.read"] = asyncio.Event().wait
        await _found(world.engine, "beverage")
        await asyncio.sleep(0)

    async def gone_on() -> None:
        world.clock.advance(LASTS)
        await _ready(world.engine)
        await world.engine.close()

    with closing(first), closing(second):
        first.run_until_complete(begun())
        left = world.engine.partition_indexes._task
        assert left is not None
        second.run_until_complete(gone_on())
        left.cancel()
        first.run_until_complete(asyncio.wait([left]))


# -- stores that index, or are several -------------------------------------------------


@pytest.mark.parametrize(
    "can", [DURABLE, replace(PLAIN, lexical=False)], ids=["by meaning too", "by neither"]
)
async def test_stores_are_left_to_themselves_that_find_by_meaning_or_look_through_all_for_words_too(
    can: Any,
) -> None:
    async with (
        World(mid=can, embedder=Embedder()).in_one_store("mid", "short").in_one_store("mid", "long") as world
    ):
        await world.write("tea", USER)
        assert await _found(world.engine, "beverage") == ["tea"]
        await read(world.engine)
        assert kept(world.engine) == []


async def test_of_a_store_of_several_parts_each_is_asked_as_it_is() -> None:
    clock = World().clock
    plain, finds = Flaky("plain", PLAIN, clock), Flaky("finds", DURABLE, clock)
    store = SplitStore("mid", [Share(finds, scope_kinds=frozenset({ORG.kind}))], plain)
    engine = Engine(Topology(short=store, mid=store, long=store), embedder=Embedder(), clock=clock)
    await engine.open()
    for scope in (USER, SESSION, ORG):
        await engine.entries.write(TENANT, EntryDraft(scope=scope, content=f"tea of {scope.text}"))
    for _ in range(2):
        assert await _found(engine, "beverage", USER, SESSION, ORG) == [
            "tea of org:o1",
            "tea of session:s1",
            "tea of user:ada",
        ]
        await read(engine)
        assert [name for name in kept(engine) if name.startswith("entries")] == [
            "entries of session:s1",
            "entries of user:ada",
        ]
    await engine.close()


# -- drawn -----------------------------------------------------------------------------

TEXTS = ("tea", "a beverage", "heron", "the bird drank tea", "an outage", "nothing at all", LONG)
SCOPES = (USER, SESSION, ORG)
FAILING = (
    "write.home",
    "update.home",
    "delete.home",
    "erase.delete",
    "move.copy",
    "move.release",
    "move.arrive",
    "owed.settle",
    "passages.write",
)
WORDS = {"beverage": ("tea", "beverage"), "bird": ("heron", "bird"), "outage": ("outage", "crashed")}
"""What is asked, and what texts say that mean it."""


class Told:
    """A history that a seed draws: this process, another beside it at times, stores
    that fail, and searches of which nothing is kept back.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"forms {seed}")  # noqa: S311
        self.world = (
            _world()
            if self.draw.random() < 0.7
            else World(short=PLAIN, mid=PLAIN, long=PLAIN, embedder=Embedder())
        )
        self.others_wrote = False

    async def played(self) -> list[str]:
        wrong: list[str] = []
        async with self.world:
            self.other = await self.world.another_process()
            for _ in range(self.draw.randrange(5, 40)):
                await self.one()
                if wrong := [
                    *await self.missed(),
                    *(await astray(self.world.engine) if not self.others_wrote else []),
                ]:
                    break
            await self.other.close()
        return wrong

    async def one(self) -> None:
        world, chance = self.world, self.draw.random()
        world.heal()
        world.clock.advance(timedelta(seconds=self.draw.choice([0, 0, 1, 20])))
        if chance < 0.3:
            store = self.draw.choice(world.stores)
            self.draw.choice([store.fails_before, store.fails_after]).add(self.draw.choice(FAILING))
        if self.draw.random() < 0.15:
            self.others_wrote = True
            await self.call(self.other)
            if self.draw.random() < 0.5:
                world.clock.advance(LASTS + SECOND)
                self.others_wrote = False
        else:
            await self.call(world.engine)
        world.heal()
        if self.draw.random() < 0.7:
            await self.searched_while_written()

    async def searched_while_written(self) -> None:
        """A search, and a call while a form is read for it or behind it."""
        world, store = self.world, self.draw.choice(self.world.stores)
        during = self.draw.choice(["forms.read", "forms.written", ""])
        store.after[during] = lambda: self.call(world.engine)
        await self.missed()
        await read(world.engine)
        store.after.pop(during, None)

    async def call(self, engine: Engine) -> None:
        with suppress(MemoryTiersError):
            await self.draw.choice(self.calls)(engine)

    @property
    def calls(self) -> list[Callable[[Engine], Awaitable[object]]]:
        scope, key, text = (
            self.draw.choice(SCOPES),
            self.draw.choice(["k1", "k2", "k3"]),
            self.draw.choice(TEXTS),
        )
        entry_id, tier = keyed_id(TENANT, scope.text, key), self.draw.choice(["mid", "long"])

        def write(engine: Engine) -> Awaitable[object]:
            return engine.entries.write(TENANT, EntryDraft(scope=scope, content=text, key=key), revive=True)

        def edit(engine: Engine) -> Awaitable[object]:
            return engine.entries.update(TENANT, entry_id, {"content": text})

        async def cut_off(engine: Engine) -> None:
            """A write that is cut off, before or after it has landed."""
            stands = self.draw.choice([self.world.mid.before, self.world.mid.after])
            reached = asyncio.Event()

            async def hang() -> None:
                reached.set()
                await asyncio.Event().wait()

            stands["write.home"] = hang
            writing, waiting = asyncio.ensure_future(write(engine)), asyncio.ensure_future(reached.wait())
            await asyncio.wait([writing, waiting], return_when=asyncio.FIRST_COMPLETED)
            stands.pop("write.home", None)
            writing.cancel()
            waiting.cancel()
            with suppress(asyncio.CancelledError, MemoryTiersError):
                await writing

        return [
            *(write, write, write, edit, edit, cut_off),
            lambda engine: engine.entries.invalidate(TENANT, entry_id, None),
            lambda engine: engine.derivation.promote(
                TENANT, entry_id, ORG, delete_original=self.draw.random() < 0.5
            ),
            lambda engine: engine.tier_mover.move(ENTRIES, Key(TENANT, entry_id), tier),
            lambda engine: engine.promotion.end_session(TENANT, SESSION),
            lambda engine: engine.deletion.delete(TENANT, entry_id),
            lambda engine: engine.erasure.erase_scope(TENANT, scope),
            lambda engine: engine.maintenance.sweep(),
        ]

    async def missed(self) -> list[str]:
        """What a search by meaning misses of what stands, or shows though it does not
        stand or mean that.
        """
        engine, scopes = self.world.engine, tuple(self.draw.sample(SCOPES, self.draw.randrange(1, 4)))
        there = await engine.browser.browse(EntryQuery(TENANT, scopes, limit=50))
        wrong = []
        for asked, words in WORDS.items():
            found = await engine.entry_search.search(
                EntryQuery(TENANT, scopes, mode="semantic", limit=50), asked
            )
            shown = {(hit.entry.id, hit.entry.content) for hit in found}
            standing = {
                (entry.id, entry.content) for entry in there if any(word in entry.content for word in words)
            }
            wrong += [
                f"{asked}: shown {content[:20]!r} of {entry_id}" for entry_id, content in shown - standing
            ]
            wrong += [
                f"{asked}: missed {content[:20]!r} of {entry_id}"
                for entry_id, content in standing - shown
                if not self.others_wrote
            ]
        return wrong


@pytest.mark.thorough
async def test_nothing_is_stale_and_nothing_of_ones_own_is_missed_whatever_happens() -> None:
    for seed in range(drawn(400, 12, proof=3_000)):
        assert await Told(seed).played() == [], f"in history {seed}"


MUTATIONS = {
    "writes are not noted": Mutation(
        partition_indexes,
        "PartitionIndexes.on_write",
        "view.written[write.key.id] = number",
        "pass",
    ),
    "writes are noted of what chooses alone": Mutation(
        partition_indexes,
        "PartitionIndexes._all",
        "[self._reading] if self._reading is not None else []",
        "[]",
    ),
    "a write that broke off counts as none": Mutation(
        placement, "Placement.write", "watcher.on_write_failure(writes)", "pass"
    ),
    "what was written while it was read by id is forgotten": Mutation(
        partition_indexes, "PartitionIndexes._bring_up", "view.written.get(record_id) != number", "False"
    ),
    "what is gone is kept": Mutation(
        partition_indexes, "PartitionIndexes._bring_up", "view.form.drop(record_id)", "pass"
    ),
    "what was erased is kept": Mutation(
        placement, "Placement.delete_matching", "watcher.on_delete(query)", "pass"
    ),
    "a form never grows old": Mutation(
        partition_indexes,
        "PartitionIndexes._let_go_of_old",
        "<= now - view.since <= LASTS]",
        "<= now - view.since]",
    ),
    "what was let go of while it was read chooses": Mutation(
        partition_indexes, "PartitionIndexes._read", "if self._reading is None:", "if False:"
    ),
}


@pytest.mark.parametrize("name", noticed.cases("forms/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(lambda seed: Told(seed).played(), 1_000, f"forms/{name}")
