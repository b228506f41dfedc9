"""What the end of a session owes while a store is away is done by a sweep once it is
back, once; and a plan tells it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.orchestrator.conversations import conversation, window_exits
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.enrichment.enrichment import ENRICH
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.tiering import retention, session_ends
from memory.orchestrator.tiering import rules as judging
from memory.policies.promotion import PromotionRule
from memory.policies.retention import RetentionRule
from memory.policies.single_conditions import IdleFor
from memory.policies.window_exit import ExitedMessages
from memory.ports.record import Key, PendingStep, Record
from memory.ports.writes import Annotate
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.talking import begun, opened, user
from tests.unit.orchestrator.planning import compared, homes
from tests.unit.orchestrator.world import DAY, HOUR, SESSION, TENANT, USER, World

ONWARD = PromotionRule(name="onward", on="session_end", source="short", target="long")
KNOWN = PromotionRule(name="known", to_scope="user")
OVER = RetentionRule(name="over", what="sessions", when=IdleFor(4 * DAY), statuses=("ended",))


async def ended(world: World, *contents: str, session_id: str = "s1", spoken: bool = True) -> list[Entry]:
    """A session that ends by hand with these entries; `spoken`: it has a conversation."""
    scope = Scope.session(session_id)
    if spoken:
        await world.engine.conversations.create(TENANT, SessionDraft(session_id, user="ada"))
    entries = [await world.write(content, scope) for content in contents]
    await world.flush()
    await end(world, session_id, spoken=spoken)
    return entries


async def end(world: World, session_id: str = "s1", *, spoken: bool = True) -> list[str]:
    if spoken:
        session = await world.engine.conversations.open(TENANT, SessionDraft(session_id), create=False)
        await session.close("ended")
    return (await world.engine.end_session(TENANT, Scope.session(session_id))).waiting


async def advised_on(world: World) -> Entry:
    """An entry that stays until an advisor was asked about it."""
    owed = PendingStep(ENRICH, ENRICH, {"wanted": ["auto_tag"], "until": micros(world.clock() + DAY)})
    return await world.engine.entries.write(TENANT, EntryDraft(scope=SESSION, content="text"), steps=[owed])


async def advised(world: World, entry: Entry) -> None:
    key = Key(TENANT, entry.id)
    [record] = await world.short.get(ENTRIES, [key])
    assert isinstance(record, Record)
    await world.engine.placement.write(
        "test.advised", world.short, Annotate(ENTRIES, key, at=record.version, settle=(ENRICH,))
    )


async def settled(world: World) -> None:
    """Nothing is owed, and a sweep finds nothing to do."""
    assert await world.engine.maintenance.count_pending() == 0
    report = await world.engine.maintenance.sweep()
    assert (report.finished, report.moved, report.pending_steps) == (0, 0, 0)


@pytest.mark.parametrize("spoken", [True, False], ids=["a conversation", "entries alone"])
async def test_what_was_to_go_to_a_store_that_was_away_goes_once_it_is_back(spoken: bool) -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        entries = await ended(world, "a", "b", spoken=spoken)
        assert set((await homes(world)).values()) == {"short"}
        assert (await world.engine.maintenance.sweep()).moved == 0
        world.heal()
        assert await compared(world) == []
        assert await homes(world) == dict.fromkeys([entry.id for entry in entries], "long")
        await settled(world)


async def test_what_a_process_leaves_that_dies_behind_an_end_is_done() -> None:
    async with World(rules=[ONWARD, KNOWN]) as world:
        session = await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada"))
        entry = await world.write("a", SESSION)
        await world.flush()
        await session.close("ended")
        assert await compared(world) == []
        assert (await homes(world))[entry.id] == "long"
        assert len(await world.homes_in(USER)) == 1
        await settled(world)


@pytest.mark.parametrize("spoken", [True, False], ids=["a conversation", "entries alone"])
async def test_an_end_that_nothing_kept_from_anything_owes_nothing(spoken: bool) -> None:
    async with World(rules=[ONWARD]) as world:
        await ended(world, "a", spoken=spoken)
        await settled(world)


async def test_a_copy_is_made_once_and_not_again_where_it_was_deleted() -> None:
    async with World(rules=[KNOWN, ONWARD]) as world:
        waits = await advised_on(world)
        await ended(world, "a")
        made = await world.homes_in(USER)
        assert len(made) == 2
        await world.engine.deletion.delete(TENANT, made[0])
        await advised(world, waits)
        assert await compared(world) == []
        assert await world.homes_in(USER) == made[1:]
        assert (await homes(world))[waits.id] == "long"
        await settled(world)


async def test_a_session_that_was_resumed_keeps_its_entries_until_it_ends_again() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        [entry] = await ended(world, "a")
        session = await world.engine.conversations.open(TENANT, SessionDraft("s1"), create=False)
        await session.resume()
        world.heal()
        assert await compared(world) == []
        assert await homes(world) == {entry.id: "short"}
        await settled(world)
        assert await end(world) == []
        assert await homes(world) == {entry.id: "long"}
        await settled(world)


async def test_what_was_ended_again_with_success_is_owed_no_longer() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        await ended(world, "a")
        world.heal()
        assert await end(world) == []
        await settled(world)


async def test_entries_that_come_after_the_end_of_a_session_without_a_conversation_stay() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        [before] = await ended(world, "a", spoken=False)
        world.clock.advance(HOUR)
        after = await world.write("b", SESSION)
        world.heal()
        assert await compared(world) == []
        assert await homes(world) == {before.id: "long", after.id: "short"}
        await settled(world)


async def test_while_a_store_is_away_it_is_asked_once_and_not_for_each_session() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        for number in range(5):
            await ended(world, "a", session_id=f"s{number}")
        for store in world.stores:
            store.steps.clear()
        assert (await world.engine.maintenance.sweep()).pending_steps == 5
        assert world.long.steps.count("end.answers") == 1
        assert "promotion.scan" not in world.long.steps


async def test_an_end_that_waits_for_one_entry_is_tried_again() -> None:
    async with World(rules=[ONWARD]) as world:
        waits = await advised_on(world)
        await ended(world, "a")
        assert sorted((await homes(world)).values()) == ["long", "short"]
        await world.engine.maintenance.sweep()
        await advised(world, waits)
        assert await compared(world) == []
        assert set((await homes(world)).values()) == {"long"}
        await settled(world)


async def test_a_session_is_not_deleted_by_rule_while_its_end_is_owed() -> None:
    async with World(rules=[ONWARD], retention=[OVER]) as world:
        world.long.down = True
        [entry] = await ended(world, "a")
        world.clock.advance(5 * DAY)
        assert (await world.engine.maintenance.sweep()).deleted == 0
        plan = await world.engine.plan()
        assert [(one.action, one.because) for one in plan.stays] == [
            ("delete", "its messages or entries are still to be processed")
        ]
        assert any("pending steps of the end of session 's1'" in said for said in plan.waiting)
        world.heal()
        plan = await world.engine.plan()
        assert [(one.action, one.rule, one.id) for one in plan.planned if one.collection == ENTRIES.name] == [
            ("move", "onward", entry.id)
        ]
        assert await compared(world) == []
        assert await world.engine.conversations.find(TENANT, "s1") is None


# -- what messages become --------------------------------------------------------------


class Model:
    """A callback whose model is away at first."""

    def __init__(self, *, away: bool) -> None:
        self.away = away

    def __call__(self, leaving: ExitedMessages) -> list[str]:
        if self.away:
            raise RuntimeError("the model is away")
        return [message.text for message in leaving.messages]


async def spoken_in(world: World) -> Conversation:
    """A session without a user, in which something was said: what is made of that goes
    to the session.
    """
    session = await begun(world.engine, system=None)
    await session.append([user("tea", "u1")])
    return session


async def made_and_moved(world: World) -> None:
    """What is made of the messages goes where the rules have it go, and then nothing is
    owed.
    """
    world.clock.advance(DAY)
    await world.engine.maintain()
    assert list((await homes(world)).values()) == ["long"]
    await settled(world)


@pytest.mark.parametrize("handed", [True, False], ids=["with what was read", "by itself"])
async def test_what_is_made_of_messages_behind_an_end_goes_onward_too(handed: bool) -> None:
    model = Model(away=True)
    async with World(rules=[ONWARD], on_window_exit=model) as world:
        session = await spoken_in(world)
        await session.close("ended")
        left = await session.handle_window_exit()
        assert left.waiting
        assert (await world.engine.end_session(TENANT, SESSION, left.owing if handed else None)).waiting == []
        model.away = False
        await made_and_moved(world)


async def test_what_is_made_of_messages_goes_onward_where_the_process_that_ended_died() -> None:
    async with World(rules=[ONWARD], on_window_exit=Model(away=False)) as world:
        await (await spoken_in(world)).close("ended")
        await made_and_moved(world)


async def test_what_was_answered_is_made_and_goes_onward_in_one_sweep() -> None:
    async with World(rules=[ONWARD], on_window_exit=Model(away=False)) as world:
        await (await spoken_in(world)).close("ended")
        for store in world.stores:
            store.fails_before.add("onward.home")
        await world.engine.maintain()
        assert await homes(world) == {}
        world.heal()
        assert await compared(world) == []
        assert list((await homes(world)).values()) == ["long"]
        await settled(world)


async def test_what_is_made_of_messages_behind_an_end_by_rule_goes_onward_too() -> None:
    quiet = RetentionRule(
        name="quiet", what="sessions", then="end", when=IdleFor(4 * DAY), statuses=("active",)
    )
    async with World(rules=[ONWARD], retention=[quiet], on_window_exit=Model(away=False)) as world:
        await spoken_in(world)
        world.clock.advance(5 * DAY)
        assert (await world.engine.maintenance.sweep()).ended == 1
        await made_and_moved(world)


async def test_an_end_that_makes_entries_of_messages_owes_nothing_and_reads_what_is_owed_once() -> None:
    async with World(rules=[ONWARD], on_window_exit=Model(away=False)) as world:
        session = await spoken_in(world)
        world.mid.steps.clear()
        await session.close("ended")
        left = await session.handle_window_exit()
        await world.engine.end_session(TENANT, SESSION, left.owing)
        assert list((await homes(world)).values()) == ["long"]
        assert (
            world.mid.steps.count("onward.owed"),
            world.mid.steps.count("end.owed"),
            world.mid.steps.count("end.settle"),
        ) == (1, 0, 1)
        await settled(world)


# -- others meanwhile ------------------------------------------------------------------


async def test_an_end_is_not_taken_for_that_of_another_who_resumed_the_session_meanwhile() -> None:
    async with World(rules=[ONWARD]) as world:
        other = await world.another_process()

        async def go_on_and_end() -> None:
            session = await opened(other)
            await session.resume()
            await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="b"))
            await other.deliveries.flush()
            world.long.down = True
            await session.close("ended")
            assert (await other.end_session(TENANT, SESSION)).waiting

        world.long.after["promotion.scan"] = go_on_and_end
        await ended(world, "a")
        assert sorted((await homes(world)).values()) == ["long", "short"]
        world.heal()
        assert await compared(world) == []
        assert list((await homes(world)).values()) == ["long", "long"]
        await settled(world)


@pytest.mark.parametrize("resumed", [True, False], ids=["resumed", "not resumed"])
async def test_a_session_that_was_archived_is_ended_unless_it_was_resumed_before(resumed: bool) -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        await ended(world, "a")
        session = await opened(world.engine)
        if resumed:
            await session.resume()
            await world.write("b", SESSION)
        await session.close("archived")
        world.heal()
        assert await compared(world) == []
        assert set((await homes(world)).values()) == {"short" if resumed else "long"}
        await settled(world)


async def test_an_end_is_carried_out_where_the_session_has_expired_meanwhile() -> None:
    async with World(rules=[ONWARD]) as world:
        await world.engine.conversations.create(TENANT, SessionDraft("s1", user="ada", expires_at=HOUR))
        entry = await world.write("a", SESSION)
        await world.flush()
        world.long.down = True
        assert await end(world)
        world.clock.advance(2 * HOUR)
        assert await world.engine.conversations.find(TENANT, "s1") is None
        world.heal()
        assert await compared(world) == []
        assert await homes(world) == {entry.id: "long"}
        await settled(world)


async def test_the_end_of_a_life_that_was_deleted_takes_nothing_of_the_next() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        await ended(world, "a")
        world.heal()
        await world.engine.conversations.sessions.delete(TENANT, "s1")
        session = await begun(world.engine)
        await world.write("b", SESSION)
        await session.close("archived")
        assert await compared(world) == []
        assert [tier for tier in (await homes(world)).values() if tier != "short"] == []
        await settled(world)


async def test_an_end_is_noted_over_what_is_left_of_one_by_a_clock_that_is_ahead() -> None:
    async with World(rules=[ONWARD]) as world:
        now = world.clock.moment
        world.clock.advance(DAY)
        world.long.down = True
        await ended(world, "a", spoken=False)
        world.heal()
        await world.engine.maintenance.sweep()
        await settled(world)
        world.clock.moment = now + HOUR
        world.long.down = True
        [entry] = await ended(world, "b", spoken=False)
        assert await world.engine.maintenance.count_pending() == 1
        world.heal()
        await world.engine.maintenance.sweep()
        assert (await homes(world))[entry.id] == "long"
        await settled(world)


async def test_an_end_that_is_noted_again_takes_what_came_in_between() -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.down = True
        await ended(world, "a", spoken=False)
        world.clock.advance(HOUR)
        await ended(world, "b", spoken=False)
        assert await world.engine.maintenance.count_pending() == 1
        world.heal()
        assert await compared(world) == []
        assert list((await homes(world)).values()) == ["long", "long"]
        await settled(world)


async def test_an_end_that_is_noted_late_keeps_what_another_has_noted_since() -> None:
    async with World(rules=[ONWARD]) as world:
        other = await world.another_process()

        async def write_and_end() -> None:
            await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="b"))
            await other.deliveries.flush()
            assert (await other.end_session(TENANT, SESSION)).waiting

        await world.write("a", SESSION)
        await world.flush()
        world.long.down = True
        world.long.before["promotion.scan"] = write_and_end
        assert await end(world, spoken=False)
        world.heal()
        assert await compared(world) == []
        assert list((await homes(world)).values()) == ["long", "long"]
        await settled(world)


@pytest.mark.parametrize(
    "step", ["promotion.scan", "move.copy"], ids=["it is not read", "it is not written to"]
)
async def test_a_store_that_answers_a_question_and_no_more_is_waited_for_once(step: str) -> None:
    async with World(rules=[ONWARD]) as world:
        world.long.fails_before.add(step)
        for number in range(5):
            await ended(world, "a", session_id=f"s{number}")
        world.long.steps.clear()
        assert (await world.engine.maintenance.sweep()).pending_steps == 5
        assert world.long.steps.count(step) == 1
        world.heal()
        assert await compared(world) == []
        assert set((await homes(world)).values()) == {"long"}
        await settled(world)


# -- the tests themselves --------------------------------------------------------------


MUTATIONS: dict[str, tuple[Mutation, Callable[[], Awaitable[None]]]] = {
    "an end is over whose messages are to go onward": (
        Mutation(session_ends, "SessionClosing.end", "elif not _events_with_step(LEAVE, before):", "else:"),
        partial(test_what_is_made_of_messages_behind_an_end_goes_onward_too, handed=True),
    ),
    "a sweep ends a session whose messages are to go onward": (
        Mutation(session_ends, "SessionClosing._do", " if leaving else []", " if False else []"),
        test_what_is_made_of_messages_goes_onward_where_the_process_that_ended_died,
    ),
    "an end does not wait for what a sweep makes of messages": (
        Mutation(session_ends, "SessionClosing.__init__", ", is_last=True", ""),
        test_what_was_answered_is_made_and_goes_onward_in_one_sweep,
    ),
    "what waited for an answer waits on": (
        Mutation(
            window_exits, "WindowExitHandler._ask_waiting", "await self._outbox.finish_all(answered)", "pass"
        ),
        test_what_is_made_of_messages_goes_onward_where_the_process_that_ended_died,
    ),
    "an end by rule owes nothing to what is made of messages": (
        Mutation(conversation, "Conversation.close", "(owed or not is_promoted)", "not is_promoted"),
        test_what_is_made_of_messages_behind_an_end_by_rule_goes_onward_too,
    ),
    "an end settles what others owe since": (
        Mutation(
            session_ends,
            "SessionClosing.end",
            "self._settle(_events_with_step(END, before))",
            "self._settle(_events_with_step(END, await self._pending_events(tenant, scope)))",
        ),
        test_an_end_is_not_taken_for_that_of_another_who_resumed_the_session_meanwhile,
    ),
    "an end reads again what was read": (
        Mutation(session_ends, "SessionClosing.end", " if owing is None else owing", ""),
        test_an_end_that_makes_entries_of_messages_owes_nothing_and_reads_what_is_owed_once,
    ),
    "an end is settled as the event was before the answer": (
        Mutation(window_exits, "WindowExitHandler._ask", "heard.event = noted", "pass"),
        test_an_end_that_makes_entries_of_messages_owes_nothing_and_reads_what_is_owed_once,
    ),
    "a session is ended that was resumed and archived": (
        Mutation(session_ends, "SessionClosing.due_end", " and await log.first(resumed) is None", ""),
        partial(test_a_session_that_was_archived_is_ended_unless_it_was_resumed_before, resumed=True),
    ),
    "a session that has expired is not ended": (
        Mutation(
            session_ends,
            "SessionClosing.due_end",
            "scope.id)) is None:",
            "scope.id)) is None or self._sessions.is_over(record):",
        ),
        test_an_end_is_carried_out_where_the_session_has_expired_meanwhile,
    ),
    "a note that is refused is taken for one": (
        Mutation(session_ends, "SessionClosing._note", "if noted.applied:", "if True:"),
        test_an_end_is_noted_over_what_is_left_of_one_by_a_clock_that_is_ahead,
    ),
    "a late note takes back an earlier one": (
        Mutation(session_ends, "SessionClosing._note", "when: When = Absent()", "when: When = Newer()"),
        test_an_end_that_is_noted_late_keeps_what_another_has_noted_since,
    ),
    "each end reads a store that does not answer": (
        Mutation(
            judging,
            "RuleEvaluator.matches",
            "missed.away |= {error.store} if isinstance(error, StoreUnavailable) else set()",
            "pass",
        ),
        partial(test_a_store_that_answers_a_question_and_no_more_is_waited_for_once, "promotion.scan"),
    ),
    "each end writes to a store that does not answer": (
        Mutation(
            session_ends,
            "SessionClosing._carry_out",
            "return came + [error] * (len(items) - len(came))",
            "pass",
        ),
        partial(test_a_store_that_answers_a_question_and_no_more_is_waited_for_once, "move.copy"),
    ),
    "an end owes nothing": (
        Mutation(
            conversation,
            "Conversation.close",
            'if status == "ended" and (owed or not is_promoted)',
            "if False",
        ),
        test_what_a_process_leaves_that_dies_behind_an_end_is_done,
    ),
    "an end without a conversation owes nothing": (
        Mutation(session_ends, "SessionClosing.end", "await self._note(tenant, scope, begun)", "pass"),
        partial(test_what_was_to_go_to_a_store_that_was_away_goes_once_it_is_back, spoken=False),
    ),
    "an end that is done is owed still": (
        Mutation(
            session_ends, "SessionClosing.end", "await self._settle(_events_with_step(END, before))", "pass"
        ),
        partial(test_an_end_that_nothing_kept_from_anything_owes_nothing, spoken=True),
    ),
    "an end that waits is over": (
        Mutation(session_ends, "SessionClosing._do", 'raise SessionEndDeferred("; ".join(waiting))', "pass"),
        test_an_end_that_waits_for_one_entry_is_tried_again,
    ),
    "a resumed session is ended": (
        Mutation(
            session_ends,
            "SessionClosing.due_end",
            '(await log.load()).state.after.status != "active" and await log.first(resumed) is None',
            "True",
        ),
        test_a_session_that_was_resumed_keeps_its_entries_until_it_ends_again,
    ),
    "what comes later goes with it": (
        Mutation(session_ends, "SessionClosing.due_end", 'moment(owed.data["until"])', "None"),
        test_entries_that_come_after_the_end_of_a_session_without_a_conversation_stay,
    ),
    "each end asks a store that is away": (
        Mutation(session_ends, "SessionClosing._carry_out", "return [error] * len(items)", "pass"),
        test_while_a_store_is_away_it_is_asked_once_and_not_for_each_session,
    ),
    "a session goes whose end is owed": (
        Mutation(retention, "Retention._leaves", "owed.step in (LEAVE, END)", "owed.step == LEAVE"),
        test_a_session_is_not_deleted_by_rule_while_its_end_is_owed,
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_mutation_is_shown_by_its_test(name: str) -> None:
    mutation, test = MUTATIONS[name]
    with mutation.applied(), pytest.raises(AssertionError):
        await test()
