"""Messages are found by meaning: their passages are made behind the append, follow
every change, and go with it, whatever fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from memory.domain.errors import ConfigError, InvalidInput, StoreUnavailable
from memory.domain.message import Role
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.log.events import INDEXED_CHARACTERS
from memory.orchestrator.conversations.log.passages import Where
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.streaming import StreamedMessage
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import PASSAGES
from memory.ports.query import Eq, Tenant
from tests.unit.orchestrator.conversations.large import large, unsound
from tests.unit.orchestrator.conversations.meant import FILLING, LONG, Embedder, astray, embedder, settled
from tests.unit.orchestrator.conversations.talking import (
    answer,
    assistant,
    begun,
    calling,
    hits_of,
    opened,
    user,
)
from tests.unit.orchestrator.world import DURABLE, TENANT, World


@pytest.fixture(params=["home", "long"])
async def meant(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with World(embedder=Embedder(), passages=request.param) as opened_world:
        yield opened_world


async def found(session: Conversation, text: str, mode: Any = "semantic") -> list[str]:
    return [str(hit.message.id) for hit in await hits_of(session, text, 10, mode)]


# -- found -----------------------------------------------------------------------------


async def test_a_message_is_found_by_meaning_as_soon_as_it_is_said(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append(
        [user("tea with milk", "u1"), assistant("noted", "a1"), user("a bird by the lake", "u2")]
    )
    assert await found(session, "beverage") == ["u1"]
    assert await found(session, "heron", "lexical") == []
    assert await found(session, "heron", "hybrid") == ["u2"]
    hits = await meant.engine.message_search.find(Tenant(TENANT), None, "beverage", 10)
    assert [(hit.session_id, hit.message.id) for hit in hits] == [("s1", "u1")]
    assert await meant.owed() == 0
    assert await settled(meant) == []


async def test_what_is_found_both_ways_comes_first(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append(
        [
            user("a boat", "by meaning"),
            user("a ship", "by both"),
            user("a ship in a bottle with a heron in it", "less"),
        ]
    )
    assert await found(session, "ship", "hybrid") == ["by both", "less", "by meaning"]


async def test_the_best_part_of_a_long_message_counts(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user(LONG, "long"), user("bird ship bird bird", "short")])
    assert await found(session, "bird") == ["long", "short"], "its first part is of nothing else"
    assert await found(session, "boat") == ["long", "short"]
    assert await settled(meant) == []


async def test_a_message_of_which_the_text_is_stored_apart_is_found_as_any_other(meant: World) -> None:
    """Who did not write it knows its row alone, and of that all parts which it was
    found by.
    """
    session = await begun(meant.engine)
    said = f"{LONG} It ended with tea, remarkably. {large('word')}"
    assert 2_048 < said.index("tea") < INDEXED_CHARACTERS
    await session.append([user(said, "large"), user("another", "u2")])
    assert await found(session, "beverage") == ["large"]
    other = await opened(await meant.another_process())
    await other.update("large", {"metadata": {"seen": True}})
    assert await found(other, "remarkably", "lexical") == ["large"]
    assert await found(other, "beverage") == ["large"]
    assert await settled(meant) == []
    await (await opened(await meant.another_process())).update("large", {"content": "tea"})
    assert await settled(meant) == []
    await other.update("large", {"content": said})
    assert await settled(meant) == []
    third = await meant.another_process()
    assert await third.conversations.redaction.erase((await opened(third)).log, "large")
    assert await found(other, "beverage") == []
    assert await settled(meant) == []


async def test_an_append_makes_no_trip_more_and_what_is_made_is_made_together(meant: World) -> None:
    session = await begun(meant.engine)
    meant.mid.steps.clear()
    meant.long.steps.clear()
    for number in range(60):
        await session.append([user(f"tea {number}")])
    assert set(meant.mid.steps) <= {"log.append", "session.follow"}
    assert meant.long.steps == []
    await meant.engine.conversations.passages.catch_up()
    assert embedder(meant).batches == [50, 10]
    assert meant.mid.steps.count("owed.settle") == 2


async def test_sweeps_with_nothing_to_make_ask_nothing_more(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea")])
    await meant.engine.maintenance.sweep()
    for store in meant.stores:
        store.steps.clear()
    await meant.engine.maintenance.sweep()
    assert not {step for store in meant.stores for step in store.steps if step.startswith("passages.")}


async def test_results_of_tools_control_events_and_what_is_in_the_window_only_have_none(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("go", "u1"), calling("c1", message_id="a1"), answer("c1", "tea", "t1")])
    await session.append([user("tea as a hint", "hint")], in_history=False)
    assert await found(session, "beverage") == []
    assert await settled(meant) == []


async def test_what_is_still_being_said_is_found_once_it_is_complete(meant: World) -> None:
    session = await begun(meant.engine)
    out = StreamedMessage(session, meant.engine.placement, Role.ASSISTANT, "a1")
    await out.write("tea ")
    assert await found(session, "beverage") == []
    await out.write("for two")
    await out.finish({})
    assert await found(session, "beverage") == ["a1"]
    assert await settled(meant) == []


async def test_an_excluded_message_is_not_found_until_it_is_restored(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea", "u1")])
    await session.exclude("u1", "manual")
    assert await found(session, "beverage") == []
    await session.restore("u1")
    assert await found(session, "beverage") == ["u1"]


async def test_a_summary_is_found_also_after_it_went_onward(meant: World) -> None:
    """What it owes onward is written into its record, which does not change what it
    says.
    """

    def onward_to(leaving: Any) -> list[Any]:
        return [{"scope": "user:ada", "content": "likes tea"}]

    engine = Engine(
        meant.engine.topology,
        embedder=Embedder(),
        clock=meant.clock,
        on_window_exit=onward_to,
        passages=meant.passages,
    )
    session = await begun(engine)
    await session.append([user("hello", "u1"), user("well", "u2")])
    made = await session.compact(lambda _: "it was about tea", keep_last=1, reason="manual")
    assert await found(session, "beverage") == [made.summary.id]
    assert (await session.handle_window_exit()).entries
    assert await found(session, "beverage") == [made.summary.id]
    assert await settled(meant) == []


async def test_the_fields_of_its_session_decide_who_finds_it(meant: World) -> None:
    for user_id in ("ada", "bob"):
        session = await meant.engine.conversations.create(TENANT, SessionDraft(f"of-{user_id}", user=user_id))
        await session.append([user("tea")])
    for user_id in ("ada", "bob"):
        hits = await meant.engine.message_search.find(
            Tenant(TENANT), Eq("subject", user_id), "beverage", 10, "semantic"
        )
        assert [hit.session_id for hit in hits] == [f"of-{user_id}"]
    assert await meant.engine.message_search.find(Tenant("another"), None, "beverage", 10, "semantic") == []


async def test_another_process_finds_by_words_at_once_and_by_meaning_once_the_writer_was_quiet(
    meant: World,
) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea", "u1")])
    theirs = await opened(await meant.another_process())
    assert await found(theirs, "tea", "hybrid") == ["u1"]
    assert await found(theirs, "beverage") == []
    await meant.engine.conversations.passages.catch_up()
    assert await found(theirs, "beverage") == ["u1"]


async def test_a_process_that_dies_leaves_it_to_a_sweep(meant: World) -> None:
    await (await begun(meant.engine)).append([user("tea", "u1"), user(LONG, "u2")])
    other = await meant.another_process()
    await other.maintenance.sweep()
    assert await astray(meant.engine) == []
    assert await found(await opened(other), "beverage") == ["u1"]


async def test_a_memory_that_is_closed_has_made_what_was_said_there(meant: World) -> None:
    engine = await meant.another_process()
    await (await begun(engine)).append([user("tea", "u1")])
    await engine.close()
    await meant.engine.open()
    assert await astray(meant.engine) == []


# -- changed and erased ----------------------------------------------------------------


@pytest.mark.parametrize("said", ["tea", "nothing that is known", "", LONG])
@pytest.mark.parametrize("before", ["a ship", LONG])
@pytest.mark.parametrize("made", [False, True], ids=["not made yet", "made"])
async def test_an_edited_message_is_found_by_what_it_says_now(
    meant: World, before: str, said: str, made: bool
) -> None:
    session = await begun(meant.engine)
    await session.append([user(before, "u1")])
    if made:
        assert await found(session, "boat") == ["u1"]
    await session.update("u1", {"content": said})
    assert await found(session, "boat") == (["u1"] if said == LONG else [])
    assert await found(session, "beverage") == (["u1"] if said == "tea" else [])
    assert await settled(meant) == []


async def test_what_is_made_of_an_earlier_text_never_comes_to_stand_over_a_later_one_s(meant: World) -> None:
    session = await begun(meant.engine)
    theirs = await opened(await meant.another_process())
    await session.append([user(LONG, "u1")])

    async def edit() -> None:
        await theirs.update("u1", {"content": "tea"})
        await hits_of(theirs, "beverage", 10)  # by whom the later ones are made first

    embedder(meant).meanwhile = edit
    await meant.engine.maintenance.sweep()
    assert await settled(meant) == []
    assert await found(session, "beverage") == ["u1"]


async def test_who_finds_a_passage_of_an_earlier_text_is_not_shown_the_later_one_for_it(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea", "u1")])
    assert await found(session, "beverage") == ["u1"]
    await (await opened(await meant.another_process())).update("u1", {"content": "a ship"})
    assert await found(session, "beverage") == []


async def standing(world: World) -> int:
    store = world.engine.conversations.passages.store
    assert store is not None
    return len(await world.rows(world.mid if store is world.mid else world.long, PASSAGES))


async def test_erasing_a_message_takes_its_passages_at_once(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user(LONG, "u1"), user("tea", "u2")])
    assert await found(session, "heron") == ["u1"]
    assert await standing(meant) > 2
    await meant.engine.conversations.redaction.erase(session.log, "u1")
    assert await standing(meant) == 1
    assert await found(session, "heron") == []
    assert await settled(meant) == []


async def test_who_makes_passages_of_a_message_while_it_is_erased_brings_none(meant: World) -> None:
    session = await begun(meant.engine)
    theirs = await opened(await meant.another_process())
    await session.append([user(LONG, "u1")])
    await session.update("u1", {"content": "a ship, a heron"})

    async def erase() -> None:
        await meant.engine.conversations.redaction.erase(theirs.log, "u1")

    embedder(meant).meanwhile = erase
    await meant.engine.maintenance.sweep()
    assert await standing(meant) == 0
    assert await settled(meant) == []


@pytest.mark.parametrize("where", ["home", "long"])
async def test_an_erasure_waits_for_a_store_that_is_away_and_a_sweep_ends_it(where: Where) -> None:
    async with World(embedder=Embedder(), passages=where) as meant:
        session = await begun(meant.engine)
        await session.append([user("tea", "u1"), user("well", "u2")])
        assert await found(session, "beverage") == ["u1"]
        (meant.mid if where == "home" else meant.long).fails_before.add("passages.write")
        with pytest.raises(StoreUnavailable, match=r"[Aa] sweep will"):
            await meant.engine.conversations.redaction.erase(session.log, "u1")
        assert [message.text for message in (await session.context()).messages][1:] == ["well"], (
            "the rest of the erasure waits for nobody"
        )
        assert await found(session, "beverage") == []
        assert await settled(meant) == []


async def test_deleting_a_session_takes_them_and_none_that_comes_late_stands(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea", "u1")])

    async def delete() -> None:
        await meant.engine.conversations.sessions.delete(TENANT, "s1")

    embedder(meant).meanwhile = delete
    await meant.engine.conversations.passages.catch_up()
    assert await standing(meant) == 0
    again = await begun(meant.engine)
    await again.append([user("a ship", "u1")])
    assert await found(again, "beverage") == []
    assert await found(again, "boat") == ["u1"]
    assert await settled(meant) == []


async def test_an_erased_summary_is_found_no_more(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append([user("tea", "u1"), user("well", "u2")])
    await session.compact(lambda _: "tea, a beverage", keep_last=1, reason="manual")
    assert len(await found(session, "beverage")) == 2
    await meant.engine.conversations.redaction.erase(session.log, "u1")
    assert await standing(meant) == 0


async def test_what_stands_where_passages_are_no_longer_kept_goes_with_its_message() -> None:
    async with World(embedder=Embedder(), passages="home") as meant:
        session = await begun(meant.engine)
        await session.append([user("tea", "u1")])
        assert await found(session, "beverage") == ["u1"]
        meant.passages = "off"
        theirs = await opened(engine := await meant.another_process())
        await engine.conversations.redaction.erase(theirs.log, "u1")
        assert await standing(meant) == 0


# -- where there is no meaning ---------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "can", "why"),
    [
        ("off", True, "'off'"),
        ("home", False, "store 'mid' has no vector index"),
        ("long", False, "store 'long' has no vector index"),
    ],
)
async def test_where_nothing_serves_meaning_messages_are_found_by_words_alone(
    where: Where, can: bool, why: str
) -> None:
    able = replace(DURABLE, semantic=can)
    async with World(embedder=Embedder(), passages=where, mid=able, long=able) as world:
        session = await begun(world.engine)
        await session.append([user("tea", "u1")])
        assert await found(session, "tea", "hybrid") == ["u1"]
        assert await found(session, "beverage", "hybrid") == []
        assert await world.owed() == 0
        with pytest.raises(InvalidInput, match=why):
            await found(session, "beverage")


async def test_what_was_said_while_messages_were_not_found_by_meaning_is_made_when_asked_for() -> None:
    async with World(embedder=Embedder(), passages="off") as world:
        session = await begun(world.engine)
        await session.append(
            [
                user("tea", "u1"),
                user(LONG, "u2"),
                calling("c1"),
                answer("c1", "tea", "t1"),
                user("a ship", "u3"),
            ]
        )
        await world.engine.conversations.redaction.erase(session.log, "u3")
        with pytest.raises(ConfigError, match="'off'"):
            await world.engine.conversations.passages.make_all(TENANT)
        world.passages = "home"
        engine = await world.another_process()
        for _ in range(2):
            assert await engine.conversations.passages.make_all(TENANT) == 5
            assert await astray(engine) == []
        assert await found(await opened(engine), "beverage") == ["u1"]
        assert await engine.conversations.passages.make_all("another") == 0


async def test_without_an_embedder_nothing_is_made_and_what_others_owe_is_left_to_them() -> None:
    async with World(embedder=Embedder()) as world:
        await (await begun(world.engine)).append([user("tea", "u1")])
        world.embedder = None
        engine = await world.another_process()
        await engine.maintenance.sweep()
        assert await engine.maintenance.count_pending() == 1
        with pytest.raises(InvalidInput, match="no embedder"):
            await found(await opened(engine), "beverage")
        world.embedder, world.passages = Embedder(), "off"
        await (await world.another_process()).maintenance.sweep()
        assert await engine.maintenance.count_pending() == 0, "nobody is to make them any more"


async def test_a_store_of_passages_that_is_away_takes_nothing_from_what_is_found_by_words() -> None:
    async with World(embedder=Embedder(), passages="long") as world:
        session = await begun(world.engine)
        await session.append([user("tea", "u1")])
        world.long.down = True
        hits = await hits_of(session, "tea", 10)
        assert [hit.message.id for hit in hits] == ["u1"]
        assert ["long" in said for said in hits.degraded] == [True]
        assert await settled(world) == []


async def test_a_large_message_is_found_by_how_it_begins_and_forgotten_like_any_other(meant: World) -> None:
    session = await begun(meant.engine)
    await session.append(
        [user(f"{FILLING * 100} A ship came by. {FILLING * 1_400}", "u1"), user("tea", "u2")]
    )
    assert await found(session, "boat") == ["u1"]
    assert await settled(meant) == []
    theirs = await opened(await meant.another_process())
    await theirs.update("u1", {"content": f"{FILLING * 140} A heron stood there. {FILLING * 1_400}"})
    assert (await found(theirs, "bird"), await found(theirs, "boat")) == (["u1"], [])
    again = await meant.another_process()
    assert await again.conversations.redaction.erase((await opened(again)).log, "u1")
    assert await found(theirs, "bird") == []
    assert await settled(meant) == []
    assert await unsound(meant.mid) == []
