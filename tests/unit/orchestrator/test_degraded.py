"""A store that fails or does not answer is left out of an answer and named; what needs
it says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest

from memory.domain.errors import StoreUnavailable
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.entry_query import EntryQuery
from memory.ports.embedder import Fingerprint
from memory.ports.record import Key, pack_vector
from tests.unit.orchestrator.world import DURABLE, ORG, SESSION, TENANT, USER, Flaky, World

ASKED = EntryQuery(TENANT, (SESSION, USER))


async def _two_tiers(world: World) -> None:
    await world.write("text in short", scope=SESSION)
    await world.write("text in mid", scope=USER)


@pytest.mark.parametrize("name", ["short", "mid"])
async def test_a_store_that_is_down_is_left_out_and_named(world: World, name: str) -> None:
    await _two_tiers(world)
    broken = world.short if name == "short" else world.mid
    broken.down = True
    other = "text in mid" if name == "short" else "text in short"
    browsed = await world.engine.browser.browse(ASKED)
    assert other in [e.content for e in browsed] or name == "short"
    assert {d.partition(":")[0] for d in browsed.degraded} == {f"store '{name}'"}
    found = await world.engine.entry_search.search(ASKED, "text")
    assert any(name in d for d in found.degraded)


async def test_only_stores_that_can_hold_an_answer_are_asked(world: World) -> None:
    await _two_tiers(world)
    world.short.down = True
    known = world.clock.advance()
    for asked in (
        EntryQuery(TENANT, (USER,)),
        EntryQuery(TENANT, (USER,), known_at=known),
        EntryQuery(TENANT, (USER, ORG)),
    ):
        for answer in (
            await world.engine.browser.browse(asked),
            await world.engine.entry_search.search(asked, "text"),
        ):
            assert len(answer) == 1
            assert answer.degraded == ()


async def test_hits_that_cannot_be_confirmed_are_left_out_and_the_answer_says_so(world: World) -> None:
    await world.write("text in mid", scope=USER)
    await world.flush()
    world.mid.down = True
    found = await world.engine.entry_search.search(EntryQuery(TENANT, (USER,)), "text")
    assert list(found) == []
    assert any("could not be confirmed" in d for d in found.degraded)


async def test_the_past_that_cannot_be_confirmed_is_left_out_and_the_answer_says_so(world: World) -> None:
    entry = await world.write("text one", scope=USER)
    known = world.clock.advance()
    await world.update(entry, content="text two")
    world.mid.fails_before.add("move.arrive")
    world.long.fails_before.add("move.arrive")
    await world.move(entry, "long")
    world.mid.fails_before.add("read.home")  # the mark is there, and with it whether the arriving copy counts
    for answer in (
        await world.engine.browser.browse(EntryQuery(TENANT, (USER,), known_at=known)),
        await world.engine.entry_search.search(EntryQuery(TENANT, (USER,), known_at=known), "text"),
    ):
        assert list(answer) == []
        assert any("mid" in d for d in answer.degraded)


@pytest.mark.parametrize("name", ["short", "mid", "long"])
async def test_a_store_that_does_not_answer_in_time_is_left_out_and_named(name: str) -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=500))) as world:
        await _two_tiers(world)
        getattr(world, name).silent = True
        browsed = await world.engine.browser.browse(ASKED)
        assert any(f"'{name}': no answer within" in d for d in browsed.degraded)


async def test_a_whole_answer_names_nobody(world: World) -> None:
    await _two_tiers(world)
    assert (await world.engine.browser.browse(ASKED)).degraded == ()
    assert (await world.engine.entry_search.search(ASKED, "text")).degraded == ()
    assert (await world.engine.entry_search.search(ASKED, " ")).degraded == ()


async def test_a_blank_query_browses(world: World) -> None:
    await _two_tiers(world)
    found = await world.engine.entry_search.search(ASKED, " \n")
    assert [h.entry.content for h in found] == [e.content for e in await world.engine.browser.browse(ASKED)]


async def test_what_needs_a_store_that_is_down_fails_by_its_name(world: World) -> None:
    entry = await world.write("text", scope=USER)
    world.mid.down = True
    for call in (
        world.write("more", scope=USER),
        world.get(entry),
        world.update(entry, content="x"),
        world.delete(entry),
        world.engine.derivation.promote(TENANT, entry.id, ORG),
        world.engine.relations.find(TENANT),
        world.engine.erasure.erase_scope(TENANT, USER),
    ):
        with pytest.raises(StoreUnavailable, match="store 'mid'"):
            await call
    assert any("store 'mid'" in said for said in (await world.engine.maintenance.sweep()).waiting)
    world.heal()
    assert await world.seen(entry) == ["text"]


async def test_a_sweep_with_something_to_do_waits_for_the_archive_which_keeps_the_lease(world: World) -> None:
    entry = await world.write()
    world.long.down = True
    await world.delete(entry)
    world.heal()
    world.mid.down = True
    report = await world.engine.maintenance.sweep()
    assert (report.ran, report.finished) == (False, 0)
    assert any("store 'mid'" in said for said in report.waiting)
    world.heal()
    assert (await world.engine.maintenance.sweep()).finished == 1


async def test_a_write_that_failed_after_it_was_applied_can_be_repeated_under_its_key(world: World) -> None:
    world.short.fails_after.add("write.home")
    with pytest.raises(StoreUnavailable):
        await world.write("text once", key="k")
    world.heal()
    entry = await world.write("text once", key="k")
    assert await world.browse() == ["text once"]
    assert await world.seen(entry) == ["text once"]


async def test_an_answer_comes_from_every_tier_and_holds_each_entry_once(world: World) -> None:
    entries = [await world.write(f"text {n}") for n in range(6)]
    for entry in entries[2:4]:
        await world.move(entry, "mid")
    for entry in entries[4:]:
        await world.move(entry, "long")
    assert await world.browse() == [f"text {n}" for n in range(5, -1, -1)]
    assert sorted(await world.search("text")) == [f"text {n}" for n in range(6)]
    assert await world.browse(limit=3, order="oldest") == ["text 0", "text 1", "text 2"]
    exported = [e.content async for e in world.engine.browser.everything(TENANT, [SESSION])]
    assert sorted(exported) == [f"text {n}" for n in range(6)]


async def test_an_entry_being_moved_is_in_every_answer_once(world: World) -> None:
    entry = await world.write()
    world.mid.fails_before.add("move.arrive")
    await world.move(entry, "mid")
    assert await world.stands(entry) == ["mark", "arriving", "-"]
    assert await world.seen(entry) == ["text"]
    assert [e.content async for e in world.engine.browser.everything(TENANT)] == ["text"]
    assert await world.engine.erasure.erase_scope(TENANT, SESSION) == 1
    assert await world.seen(entry) == []


async def test_paging_passes_over_copies_that_do_not_count() -> None:
    async with World(settings=EngineSettings(page=2)) as world:
        entries = [await world.write(f"text {n}") for n in range(5)]
        for entry in entries[1:4]:
            await world.break_off(entry, "mid")
            world.short.state.place("entries", Key(TENANT, entry.id), None)
        assert await world.browse(limit=2) == ["text 4", "text 0"]
        assert [e.content async for e in world.engine.browser.everything(TENANT, [SESSION])] == [
            "text 0",
            "text 4",
        ]


async def test_a_store_without_word_search_is_searched_all_the_same() -> None:
    async with World(short=replace(DURABLE, lexical=False, semantic=False)) as world:
        await world.write("alpacas like hay")
        await world.write("nothing of the kind")
        known = world.clock.advance()
        assert await world.search("alpaca") == ["alpacas like hay"]
        assert await world.search("alpaca", known_at=known) == ["alpacas like hay"]


async def test_a_stale_replica_finds_nothing_that_its_home_no_longer_is(world: World) -> None:
    """Retired, expired or tagged otherwise since: the replica still matches what was
    asked, its home decides, and the next best takes its place.
    """
    retired, retagged, expired = [
        await world.write(f"text {word}", USER, tags=["old"]) for word in ("retired", "retagged", "expired")
    ]
    kept = await world.write("another text with more words around it", USER, tags=["old"])
    await world.flush()
    world.long.down = True
    assert await world.engine.entries.invalidate(TENANT, retired.id, None)
    await world.update(retagged, tags=["new"])
    await world.update(expired, expires_at=world.clock.advance())
    await world.flush()
    world.clock.advance()
    world.long.heal()
    world.mid.fails_before.add("search")  # so that the replicas alone are asked
    found = await world.engine.entry_search.search(
        EntryQuery(TENANT, (USER,), tags=("old",), limit=1), "text"
    )
    assert [h.entry.id for h in found] == [kept.id]
    assert [said for said in found.degraded if said.startswith("store 'mid'")]


class TwoWays:
    """Texts and queries all alike."""

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("alike", 2)

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        return [pack_vector([1.0, 2.0]) for _ in texts]


@pytest.mark.parametrize("mode", ["lexical", "semantic"])
async def test_of_a_home_that_cannot_search_the_copies_answer(mode: Literal["lexical", "semantic"]) -> None:
    async with World(mid=replace(DURABLE, semantic=False), embedder=TwoWays()) as world:
        entry, gone = await world.write("text", scope=USER), await world.write("text too", scope=USER)
        await world.flush()
        world.long.down = True
        await world.delete(gone)
        world.long.heal()
        world.mid.fails_before.add("search")
        found = await world.engine.entry_search.search(EntryQuery(TENANT, (USER,), mode=mode), "text")
        assert [h.entry.id for h in found] == [entry.id]
        assert found.degraded == ("store 'mid': fails before search",)


@pytest.mark.parametrize(("how", "most"), [("down", 2), ("silent", 1)])
async def test_of_a_home_that_is_away_the_others_are_not_asked_over_and_over(how: str, most: int) -> None:
    """However many copies there are: nothing can be confirmed, neither the next ten nor
    a wider pool.
    """
    in_time = EngineSettings(deadline=timedelta(milliseconds=500))
    async with World(mid=replace(DURABLE, semantic=False), embedder=TwoWays(), settings=in_time) as world:
        for n in range(120):
            await world.write(f"text {n}", scope=USER)
        await world.flush()
        setattr(world.mid, how, True)
        asked: list[tuple[str, str]] = []
        for store in (world.mid, world.long):
            _told(store, asked)
        assert await world.engine.entry_search.search(EntryQuery(TENANT, (USER,)), "text") == []
        assert sum(call == ("mid", "get") for call in asked) <= 2, (
            "the blocked sources, and where the first of them live"
        )
        assert sum(call == ("long", "candidates of entries") for call in asked) <= most


def _told(store: Flaky, asked: list[tuple[str, str]]) -> None:
    original = store.on_call

    async def call(method: str, *args: Any, **kwargs: Any) -> Any:
        asked.append(
            (store.name, f"candidates of {args[0].collection.name}" if method == "candidates" else method)
        )
        return await original(method, *args, **kwargs)

    store.on_call = call  # type: ignore[method-assign]


async def test_a_source_that_is_silent_holds_up_no_search_that_finds_what_left_it() -> None:
    """Its mark alone could tell whether what arrives counts."""
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=500))) as world:
        await _one_arriving_in_mid(world)
        world.short.silent = True
        async with asyncio.timeout(60):
            found = await world.engine.entry_search.search(EntryQuery(TENANT, (SESSION,), limit=20), "text")
        assert len(found) == 10
        assert [said for said in found.degraded if said.startswith("store 'short'")]


async def _one_arriving_in_mid(world: World) -> None:
    """Ten entries in mid, and one that has left short and has yet to arrive."""
    entries = [await world.write(f"text {n}") for n in range(11)]
    for entry in entries[1:]:
        await world.move(entry, "mid")
    world.mid.fails_before.add("move.arrive")
    await world.move(entries[0], "mid")
    world.heal()


@pytest.mark.parametrize("how", ["down", "silent"])
async def test_a_store_that_cannot_show_its_marks_hides_nothing_but_what_they_tell(how: str) -> None:
    async with World(settings=EngineSettings(deadline=timedelta(milliseconds=500))) as world:
        await _one_arriving_in_mid(world)
        setattr(world.short, how, True)
        browsed = await world.engine.browser.browse(EntryQuery(TENANT, (SESSION,)))
        assert sorted(e.content for e in browsed) == sorted(f"text {n}" for n in range(1, 11))
        assert {note.partition(":")[0] for note in browsed.degraded} == {"store 'short'"}
        world.heal()
        assert len(await world.browse()) == 11


async def test_an_export_says_so_where_marks_cannot_be_read(world: World) -> None:
    await _one_arriving_in_mid(world)
    world.short.fails_before.add("browse.marks")
    with pytest.raises(StoreUnavailable, match="store 'short'"):
        _ = [e async for e in world.engine.browser.everything(TENANT, [SESSION])]


async def test_a_relation_of_whose_end_no_store_can_tell_is_left_by_a_sweep(world: World) -> None:
    source, target = (
        await world.write("text of the user", scope=USER),
        await world.write("text of the session"),
    )
    relation = await world.engine.relations.relate(TENANT, source.id, "supports", target.id)
    world.short.down = True
    assert (await world.engine.maintenance.sweep()).dropped_relations == 0
    world.heal()
    assert await world.engine.relations.find(TENANT) == [relation]
