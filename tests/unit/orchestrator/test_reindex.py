"""Reindex: vectors are made anew with another embedder while both are in use; nothing
is lost, returns, or is compared with what it cannot be.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import ConfigError, EmbedderMismatch, StoreUnavailable
from memory.domain.scope import Scope
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.engine import Engine
from memory.orchestrator.retrieval.choosing import AT_LEAST
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MODEL, PASSAGES
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.entry_query import EntryQuery
from memory.ports.query import Tenant
from memory.ports.record import Key, Role
from memory.ports.writes import AtVersion, Put
from tests.support.turned import Embedder
from tests.unit.orchestrator.conversations.meant import LONG, astray
from tests.unit.orchestrator.conversations.talking import begun, hits_of, opened, user
from tests.unit.orchestrator.world import DURABLE, SESSION, TENANT, USER, Flaky, World

OLD = Embedder("of yesterday")
ALIKE, LONGER = Embedder("of today", turned=1), Embedder("of today", dimensions=5)
PAGE = EngineSettings(page=2)


@pytest.fixture(params=[ALIKE, LONGER], ids=["equal dimensions", "other dimensions"])
def new(request: pytest.FixtureRequest) -> Embedder:
    like: Embedder = request.param
    return Embedder(like.model, like.dimensions, like.turned)


@pytest.fixture(params=["three stores", "one store", "words alone in short and mid"])
def world(request: pytest.FixtureRequest) -> World:
    plain = replace(DURABLE, semantic=False)
    if request.param == "words alone in short and mid":
        return World(short=plain, mid=plain, embedder=OLD, settings=PAGE, passages="long")
    world = World(embedder=OLD, settings=PAGE)
    return (
        world.in_one_store("mid", "long").in_one_store("mid", "short")
        if request.param == "one store"
        else world
    )


async def process(world: World, embedder: Embedder, *, reindex: bool = False) -> Engine:
    """Another process, with this embedder."""
    before, world.embedder = world.embedder, embedder
    engine = world.another_engine()
    world.embedder = before
    await engine.open(reindex=reindex)
    return engine


async def write(engine: Engine, content: str) -> Entry:
    return await engine.entries.write(TENANT, EntryDraft(scope=USER, content=content))


async def found(
    engine: Engine, text: str, scope: Scope = USER, mode: Any = "semantic", **asked: Any
) -> set[str]:
    return {
        hit.entry.content
        for hit in await engine.entry_search.search(EntryQuery(TENANT, (scope,), mode=mode, **asked), text)
    }


async def heard(session: Conversation, text: str) -> set[str]:
    """The messages that are found by meaning."""
    return {str(hit.message.id) for hit in await hits_of(session, text, 10, "semantic")}


async def rows(world: World) -> list[tuple[str, str, Any, str | None, bytes | None]]:
    """Every record that has, or could have, a vector: where it is, what it says, and
    whose vector it has.
    """
    return [
        (
            f"{collection.name} {row.key.id} of {row.role} in {store.name}",
            row.texts.get("content", ""),
            row.version,
            row.fields.get(MODEL),
            row.vector,
        )  # type: ignore[misc]
        for store in dict.fromkeys(world.stores)
        for collection in (ENTRIES, ENTRY_VERSIONS, PASSAGES)
        for row in await world.rows(store, collection)
    ]


async def others(world: World, embedder: Embedder) -> list[str]:
    """Which of them are not this embedder's, or not what it makes of their text."""
    digest = (await embedder.fingerprint()).digest
    return [
        name
        for name, text, _, model, vector in await rows(world)
        if model != digest
        or (text and vector != (embedder.vector_of(text) or None))
        or (vector is not None and len(vector) != 4 * embedder.dimensions)
    ]


async def fill(world: World) -> Conversation:
    """Entries of a user and of a session, an edit, texts without a vector, and
    messages.
    """
    for text in (
        "Ada prefers tea",
        "A heron stood there",
        "It crashed at night",
        "Nothing known",
        "Tea again",
    ):
        await world.write(text, scope=USER)
        await world.write(f"{text}, it was said")
    entry = await world.write("Bo prefers tea", scope=USER)
    world.clock.advance()
    await world.update(entry, content="Bo saw a heron")
    session = await begun(world.engine)
    await session.append(
        [user("tea with milk", "m1"), user("a bird by the lake", "m2"), user("nothing known", "m3")]
    )
    await heard(session, "tea")
    return session


# -- the whole -------------------------------------------------------------------------


async def test_all_is_found_by_meaning_of_another_embedder_once_it_has_ended(
    world: World, new: Embedder
) -> None:
    async with world:
        await fill(world)
        past = world.clock.moment
        before = [(name, text, version) for name, text, version, _, _ in await rows(world)]
    with pytest.raises(EmbedderMismatch, match="memory reindex"):
        await process(world, new)
    engine = await process(world, new, reindex=True)
    told: list[tuple[int, int]] = []
    came = await engine.reindexing.run(lambda done, total: told.append((done, total)))
    assert (came.ended, came.left, came.waiting) == (True, 0, ())
    assert told[-1] == (came.made, came.made)
    assert len(told) > 2
    assert await others(world, new) == []
    assert await found(engine, "beverage") == {"Ada prefers tea", "Tea again"}
    assert await found(engine, "beverage", SESSION) == {
        "Ada prefers tea, it was said",
        "Tea again, it was said",
    }
    assert await found(engine, "beverage", known_at=past) == {"Ada prefers tea", "Tea again"}
    assert await heard(await opened(engine), "beverage") == {"m1"}
    assert await astray(engine) == []
    assert (await engine.entry_search.search(EntryQuery(TENANT, (USER,)), "beverage")).degraded == ()
    assert [(name, text, version) for name, text, version, _, _ in await rows(world)] == before, (
        "no version came of it"
    )
    await process(world, new)
    with pytest.raises(EmbedderMismatch):
        await process(world, OLD)


async def test_each_text_is_embedded_once_and_its_copies_get_the_same(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        for text in ("Ada prefers tea", "A heron stood there"):
            await world.write(text, scope=USER)
        engine = await process(world, new, reindex=True)
        assert (await engine.reindexing.run()).made == 4
        assert new.embedded == 2
        assert (await engine.reindexing.run()).made == 0
        assert await others(world, new) == []


async def test_messages_that_meant_nothing_to_the_embedder_before_are_found_too() -> None:
    async with World(embedder=Embedder("knows no tea", unknown="tea")) as world:
        session = await begun(world.engine)
        await session.append([user("tea with milk", "m1"), user("a bird", "m2")])
        await heard(session, "bird")
        engine = await process(world, ALIKE, reindex=True)
        assert (await engine.reindexing.run()).ended
        assert await heard(await opened(engine), "beverage") == {"m1"}
        assert await astray(engine) == []


async def test_what_means_nothing_to_the_next_embedder_is_found_by_it_no_more() -> None:
    async with World(embedder=OLD) as world:
        session = await fill(world)
        assert await heard(session, "beverage") == {"m1"}
        less = Embedder("knows no tea", unknown="tea")
        engine = await process(world, less, reindex=True)
        assert (await engine.reindexing.run()).ended
        assert await found(engine, "beverage") == set()
        assert await heard(await opened(engine), "beverage") == set()
        assert await others(world, less) == []


async def test_vectors_of_before_there_was_the_field_are_made_anew_as_all_others(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        for store in world.stores:
            for collection in (ENTRIES, ENTRY_VERSIONS, PASSAGES):
                for row in await world.rows(store, collection):
                    bare = replace(row, fields={**row.fields, MODEL: None})
                    await store.apply([Put(collection, bare, AtVersion(row.version))])
        old = await process(world, OLD)
        assert await found(old, "beverage") == {"Ada prefers tea", "Tea again"}
        engine = await process(world, new, reindex=True)
        assert await found(engine, "beverage") == set()
        await old.maintenance.sweep()
        assert await found(old, "beverage") == {"Ada prefers tea", "Tea again"}
        assert (await engine.reindexing.run()).ended
        assert await others(world, new) == []


async def test_without_an_embedder_or_with_one_whose_vectors_a_store_does_not_take_nothing_is_begun() -> None:
    async with World(long=replace(DURABLE, max_vector_dims=4), embedder=OLD) as world:
        await fill(world)
        with pytest.raises(ConfigError, match="at most 4 dimensions"):
            await process(world, LONGER, reindex=True)
        world.embedder = None
        bare = world.another_engine()
        await bare.open()
        with pytest.raises(ConfigError, match="none is configured"):
            await bare.reindexing.run()
        noted = await bare.embeddings.read_note()
        assert noted is not None
        assert (noted.model, noted.to) == (await OLD.fingerprint(), None)


# -- both in use -----------------------------------------------------------------------


async def test_meanwhile_each_finds_by_meaning_what_is_its_own_and_all_by_words(
    world: World, new: Embedder
) -> None:
    async with world:
        await fill(world)
        engine = await process(world, new, reindex=True)
        old = await process(world, OLD)
        await world.flush()
        assert await found(engine, "beverage") == set()
        assert await found(old, "beverage") == {"Ada prefers tea", "Tea again"}
        assert await heard(await opened(engine), "beverage") == set()
        assert await heard(await opened(old), "beverage") == {"m1"}
        for one in (engine, old):
            hits = await one.entry_search.search(EntryQuery(TENANT, (USER,)), "tea")
            assert {"Ada prefers tea", "Tea again"} == {hit.entry.content for hit in hits}
            assert "a reindex" in hits.degraded[0]
            assert "a reindex" in (await one.message_search.find(Tenant(TENANT), None, "tea", 10)).degraded[0]
        await write(engine, "A new beverage")
        await write(old, "An old beverage")
        assert await found(engine, "tea") == {"A new beverage"}
        assert await found(old, "tea") == {"Ada prefers tea", "Tea again", "An old beverage"}
        assert (await engine.reindexing.run()).ended
        assert await found(engine, "tea") == {
            "Ada prefers tea",
            "Tea again",
            "A new beverage",
            "An old beverage",
        }


async def test_of_a_half_made_store_nothing_is_compared_that_means_something_else(
    world: World, new: Embedder
) -> None:
    """Vectors of the same length, of which one embedder's tea is the other's heron."""
    async with world:
        await fill(world)
        engine, old = await process(world, new, reindex=True), await process(world, OLD)

        async def no_more() -> None:
            for store in world.stores:
                store.fails_before.add("reindex.put")

        world.stores[0].after["reindex.put"] = no_more
        assert not (await engine.reindexing.run()).ended
        world.heal()
        for text, right in (("beverage", "tea"), ("bird", "heron"), ("outage", "crashed")):
            for one in (engine, old):
                for scope in (USER, SESSION):
                    assert all(right in hit.lower() for hit in await found(one, text, scope))
                    assert all(
                        right in hit.lower()
                        for hit in await found(one, text, scope, known_at=world.clock.moment)
                    )
            both = (
                await found(engine, text) | await found(old, text),
                await found(engine, text, SESSION) | await found(old, text, SESSION),
            )
            assert all(both), "what one does not find the other does"
        assert (await engine.reindexing.run()).ended


async def test_what_is_found_by_words_is_not_compared_with_a_vector_of_the_other(world: World) -> None:
    async with world:
        await world.write("A heron in the snow", scope=USER)
        engine = await process(world, ALIKE, reindex=True)
        for at in (None, world.clock.moment):
            words, both = [
                await engine.entry_search.search(
                    EntryQuery(TENANT, (USER,), mode=mode, known_at=at), "beverage snow"
                )
                for mode in ("lexical", "hybrid")
            ]
            assert [hit.score for hit in both] == pytest.approx([hit.score for hit in words])
            assert 0 < (words[0].relevance or 0) < 1


async def test_what_is_of_the_other_takes_no_place_among_those_asked_for(world: World) -> None:
    async with world:
        for number in range(AT_LEAST + 5):
            await world.write(f"A heron, number {number}", scope=USER)
        engine = await process(world, ALIKE, reindex=True)
        await write(engine, "Ada prefers tea")
        assert await found(engine, "beverage", limit=10) == {"Ada prefers tea"}


@pytest.mark.parametrize("ending", [False, True], ids=["at the beginning", "at the end"])
async def test_both_open_also_where_it_was_broken_off_between_two_notes(ending: bool, new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        if ending:
            engine = await process(world, new, reindex=True)
            world.mid.fails_before.add("embedder.note")
            with pytest.raises(StoreUnavailable):
                await engine.reindexing.run()
        else:
            world.long.fails_before.add("embedder.note")
            with pytest.raises(StoreUnavailable):
                await process(world, new, reindex=True)
        world.heal()
        old, next_one = await process(world, OLD), await process(world, new)
        assert None not in (old.embeddings.lacks, next_one.embeddings.lacks)
        assert (await next_one.reindexing.run()).ended
        assert await others(world, new) == []


async def test_a_process_of_before_learns_of_the_beginning_and_of_the_end_by_its_sweeps(
    new: Embedder,
) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        engine = await process(world, new, reindex=True)
        assert world.engine.embeddings.lacks is None
        await world.engine.maintenance.sweep()
        assert "a reindex" in (world.engine.embeddings.lacks or "")
        assert (await engine.reindexing.run()).ended
        await world.engine.maintenance.sweep()
        assert "the stores now hold vectors" in (world.engine.embeddings.lacks or "")
        assert await found(world.engine, "tea", mode="hybrid") == {"Ada prefers tea", "Tea again"}
        late = await world.write("Late tea", scope=USER)
        await world.flush()
        assert await engine.reindexing.count_remaining(await new.fingerprint()) == 2
        assert (await engine.reindexing.run()).ended
        assert (await world.get(late)) == late
        assert "Late tea" in await found(engine, "beverage")


async def test_a_search_during_which_it_ends_is_answered_as_any_other(new: Embedder) -> None:
    """The stores asked before were asked among one's own, those asked afterwards are
    not.
    """
    async with World(embedder=OLD) as world:
        await world.write("Ada prefers tea", scope=USER)
        engine = await process(world, new, reindex=True)

        async def reindex() -> None:
            assert (await engine.reindexing.run()).ended

        world.mid.after["search"] = reindex
        assert await found(engine, "tea", mode="hybrid") == {"Ada prefers tea"}
        assert "search" not in world.mid.after
        assert await found(engine, "beverage") == {"Ada prefers tea"}


async def test_a_process_of_the_next_embedder_asks_without_a_filter_once_it_has_ended(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        engine, beside = await process(world, new, reindex=True), await process(world, new)
        assert beside.embeddings.own is not None
        assert (await engine.reindexing.run()).ended
        assert engine.embeddings.own is None
        await beside.maintenance.sweep()
        assert beside.embeddings.lacks is None


async def test_another_embedder_may_be_chosen_half_way_also_the_one_before(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        engine = await process(world, new, reindex=True)
        world.long.fails_before.add("reindex.put")
        await engine.reindexing.run()
        world.heal()
        back = await process(world, OLD, reindex=True)
        assert (await back.reindexing.run()).ended
        assert await others(world, OLD) == []
        assert await found(back, "beverage") == {"Ada prefers tea", "Tea again"}
        with pytest.raises(EmbedderMismatch):
            await process(world, new)


# -- whatever happens meanwhile --------------------------------------------------------


STEPS = (
    "embedder.check",
    "embedder.note",
    "reindex.find",
    "reindex.read",
    "reindex.put",
    "passages.read",
    "messages.read",
    "reindex.messages",
)


@pytest.mark.parametrize("where", ["after", pytest.param("before", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.thorough
async def test_broken_off_anywhere_it_goes_on_where_it_was(step: str, where: str, new: Embedder) -> None:
    """In each store at each of its steps, at the first time and at the second, as a
    process ends that loses its stores.
    """
    for number in range(6):
        async with World(embedder=OLD, settings=PAGE) as world:
            await fill(world)
            store, times = world.stores[number % 3], number // 3
            _break(store, step, where, times)
            try:
                engine = await process(world, new, reindex=True)
                await engine.reindexing.run()
            except StoreUnavailable:
                pass
            world.heal()
            store.before.clear()
            store.after.clear()
            for one in (OLD, new):
                try:
                    between = await process(world, one)
                except EmbedderMismatch:  # not begun, or ended
                    continue
                assert await found(between, "tea", mode="hybrid") >= {"Ada prefers tea", "Tea again"}
            again = await process(world, new, reindex=True)
            assert (await again.reindexing.run()).ended
            assert await others(world, new) == []
            assert await astray(again) == []


def _break(store: Flaky, step: str, where: str, times: int) -> None:
    async def fail() -> None:
        store.down = True

    async def wait() -> None:
        meets[step] = fail

    meets = store.before if where == "before" else store.after
    meets[step] = wait if times else fail


async def test_a_store_that_is_away_is_named_and_the_rest_goes_on(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        await fill(world)
        engine = await process(world, new, reindex=True)
        world.long.down = True
        with pytest.raises(StoreUnavailable):
            await engine.reindexing.run()
        world.heal()
        world.long.fails_before.add("reindex.find")
        came = await engine.reindexing.run()
        assert not came.ended
        assert "long" in came.waiting[0]
        assert await found(engine, "beverage", SESSION) == {
            "Ada prefers tea, it was said",
            "Tea again, it was said",
        }
        world.heal()
        assert (await engine.reindexing.run()).ended
        assert await others(world, new) == []


async def test_what_is_edited_while_its_text_is_embedded_stays_as_edited(world: World, new: Embedder) -> None:
    async with world:
        entry = await world.write("Ada prefers tea", scope=USER)
        engine = await process(world, new, reindex=True)

        async def edit() -> None:
            world.clock.advance()
            await world.update(entry, content="Ada saw a heron")

        new.meanwhile = edit
        assert (await engine.reindexing.run()).ended
        assert await found(engine, "bird") == {"Ada saw a heron"}
        assert [old.content for old in await engine.entries.history(TENANT, entry.id)] == [
            "Ada prefers tea",
            "Ada saw a heron",
        ]
        assert await others(world, new) == []


async def test_what_is_erased_while_its_text_is_embedded_does_not_return(world: World, new: Embedder) -> None:
    async with world:
        entry, kept = (
            await world.write("Ada prefers tea", scope=USER),
            await world.write("tea again", scope=USER),
        )
        session = await begun(world.engine)
        await session.append([user("tea with milk", "m1"), user("a bird", "m2")])
        await heard(session, "tea")
        engine = await process(world, new, reindex=True)

        async def erase() -> None:
            await world.delete(entry)
            new.meanwhile = erase_message

        async def erase_message() -> None:
            await world.engine.conversations.redaction.erase(session.log, "m1")
            await world.engine.erasure.erase_scope(TENANT, SESSION)

        new.meanwhile = erase
        assert (await engine.reindexing.run()).ended
        assert await found(engine, "beverage") == {kept.content}
        assert await found(engine, "tea", mode="lexical") == {kept.content}
        assert not [name for name, text, *_ in await rows(world) if text == entry.content]
        assert await astray(engine) == []


async def test_what_is_counted_while_its_text_is_embedded_stays_counted(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        entry = await world.write("Ada prefers tea", scope=USER)
        engine = await process(world, new, reindex=True)

        async def read() -> None:
            world.engine.accesses.note(TENANT, [entry.id])
            await world.engine.accesses.tell()

        new.meanwhile = read
        assert (await engine.reindexing.run()).ended
        standing = await world.standing(world.mid, entry.id)
        assert getattr(standing, "accesses", 0) == 1


async def test_what_moves_onward_meanwhile_is_met_where_it_goes(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        entry, other = await world.write("Ada prefers tea"), await world.write("tea again")
        engine = await process(world, new, reindex=True)
        await world.break_off(other, "mid")

        async def move() -> None:
            assert await world.move(entry, "long") == "moved"

        new.meanwhile = move
        assert (await engine.reindexing.run()).ended
        assert await world.move(other, "long") == "moved"
        assert await others(world, new) == []
        assert await found(engine, "beverage", SESSION) == {"Ada prefers tea", "tea again"}


async def test_a_version_on_its_way_to_a_store_that_does_not_take_it_keeps_it_from_ending(
    new: Embedder,
) -> None:
    async with World(embedder=OLD) as world:
        entry = await world.write("tea, it was said")
        engine = await process(world, new, reindex=True)
        world.mid.fails_before.add("version.keep")
        world.clock.advance()
        await engine.entries.update(TENANT, entry.id, {"content": "a heron, it was said"})
        came = await engine.reindexing.run()
        assert not came.ended
        assert "pending" in came.waiting[0]
        world.heal()
        assert (await engine.reindexing.run()).ended
        assert await others(world, new) == []
        assert [old.content for old in await engine.entries.history(TENANT, entry.id)] == [
            "tea, it was said",
            "a heron, it was said",
        ]


async def test_a_passage_of_what_a_message_says_no_more_stands_in_nobodys_way(new: Embedder) -> None:
    async with World(embedder=OLD) as world:
        session = await fill(world)
        await session.append([user(f"{LONG} Tea came last.", "long")])
        assert await heard(session, "beverage") == {"m1", "long"}
        await session.update("m1", {"content": "it crashed"})
        await session.update("long", {"content": "nothing known"})
        engine = await process(world, new, reindex=True)
        assert (await engine.reindexing.run()).ended
        assert await others(world, new) == []
        there = await opened(engine)
        assert await heard(there, "beverage") == set()
        await engine.maintenance.sweep()
        assert await heard(there, "outage") == {"m1"}
        assert await astray(engine) == []


@pytest.mark.parametrize("kind", ["move", "edit"])
async def test_what_was_under_way_when_it_ended_is_made_anew_by_a_sweep(kind: str, new: Embedder) -> None:
    """A write that read the record before and brings its vector back, at the same
    version or as the next.
    """
    async with World(embedder=OLD).in_one_store("mid", "long") as world:
        entry = await world.write("Ada prefers tea", scope=USER)
        engine = await process(world, new, reindex=True)

        async def reindex() -> None:
            assert (await engine.reindexing.run()).ended

        world.clock.advance()
        world.mid.before["move.relabel" if kind == "move" else "update.home"] = reindex
        if kind == "move":
            assert await engine.tier_mover.move(ENTRIES, Key(TENANT, entry.id), "long") == "moved"
        else:
            await engine.entries.update(TENANT, entry.id, {"tags": ["late"]})
        assert await engine.reindexing.count_remaining(await new.fingerprint()) > 0
        assert (await engine.maintenance.sweep()).reindexed > 0
        assert await others(world, new) == []
        assert await found(engine, "beverage") == {"Ada prefers tea"}
        assert (await engine.maintenance.sweep()).reindexed == 0


async def test_two_at_once_do_no_harm(world: World, new: Embedder) -> None:
    async with world:
        await fill(world)
        one, two = await process(world, new, reindex=True), await process(world, new, reindex=True)
        both = await asyncio.gather(one.reindexing.run(), two.reindexing.run())
        assert any(came.ended for came in both)
        assert (await one.reindexing.run()).ended
        assert await others(world, new) == []
        assert await astray(one) == []


async def test_a_copy_that_arrives_with_the_vector_of_before_has_come_all_the_same(new: Embedder) -> None:
    """The source got a new one since it was copied."""
    async with World(embedder=OLD) as world:
        entry = await world.write("Ada prefers tea")
        await world.break_off(entry, "mid")
        engine = await process(world, new, reindex=True)
        world.mid.fails_before.add("reindex.put")
        await engine.reindexing.run()
        world.heal()
        assert await world.move(entry, "mid") == "moved"
        assert [row.role for row in await world.rows(world.mid, ENTRIES)] == [Role.HOME]
        assert (await engine.reindexing.run()).ended
        assert await others(world, new) == []
