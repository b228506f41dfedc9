"""Trust, call by call: a roll-back that fails at any is done by a sweep, and where
the blocked sources are unknown nothing doubtful is shown.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest

from memory.domain.blocked_source import BlockedSource
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import CorruptRecord, InvalidInput, RejectedByGate, StoreError, StoreUnavailable
from memory.domain.legal_hold import LegalHold
from memory.domain.revert_report import RevertReport
from memory.domain.scope import Scope
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.maintenance.reverting import NOT_KEPT
from memory.orchestrator.storage.collections import ENTRY_VERSIONS, OPERATIONS, SETTINGS
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.trust import blocked_sources
from memory.orchestrator.trust.gates import GateRunner, lets_out
from memory.policies.entry_query import EntryQuery
from tests.support.depth import beyond
from tests.unit.orchestrator.world import SESSION, TENANT, USER, Flaky, World

WEB = "source:web"
ASKED = EntryQuery(TENANT, (SESSION, USER), limit=100)
LATER = timedelta(seconds=3)


async def _write(world: World, content: str, scope: Scope = USER, **said: Any) -> Entry:
    return await world.engine.entries.write(TENANT, EntryDraft(scope=scope, content=content, **said))


async def _block(engine: Engine, origin: str = WEB) -> None:
    await engine.trust.blocked_sources.block(
        TENANT, [BlockedSource(origin, None, "refused", "r", None, engine.placement.now())]
    )


async def _roll_back(engine: Engine, *, erase: bool = False, derived: bool = False) -> RevertReport:
    return await engine.source_reverter.run(TENANT, [WEB], since=None, erase=erase, derived=derived)


async def _shown(engine: Engine, asked: EntryQuery = ASKED) -> list[str]:
    return sorted(entry.content for entry in await engine.browser.browse(asked))


async def _poisoned(world: World) -> dict[str, Entry]:
    """Entries of a user, and what a page wrote, changed, superseded and was taken into."""
    written = {
        "evil": await _write(world, "evil", source="web"),
        "evil in session": await _write(world, "evil in session", SESSION, source="web", run="r1"),
        "changed": await _write(world, "good", source="user", metadata={"a": 1}),
        "good": await _write(world, "good too", SESSION),
        "superseded": await _write(world, "good three"),
    }
    await world.engine.entries.update(
        TENANT, written["changed"].id, {"content": "turned", "metadata": {"a": 2}, "origins": [WEB]}
    )
    await world.engine.entries.update(TENANT, written["changed"].id, {"tags": ["t"]})
    superseding = EntryDraft(scope=USER, content="evil over it", source="web")
    written["superseding"] = (
        await world.engine.supersede_writer.write(
            TENANT, superseding, SupersedeRequest([written["superseded"].id])
        )
    )[0]
    written["made"] = await world.engine.derivation.compact(
        TENANT, [written["evil"].id, written["changed"].id], lambda entries: "made of evil"
    )
    return written


AFTER = ["good", "good three", "good too"]


@pytest.mark.parametrize(
    "erase",
    [
        pytest.param(erase, id="erased" if erase else "retired", marks=beyond(erase, [False]))
        for erase in (False, True)
    ],
)
@pytest.mark.thorough
async def test_a_roll_back_that_fails_at_any_call_is_done_by_a_sweep_and_once(erase: bool) -> None:
    came = list[str]()
    for store_number, after in [(number, after) for number in range(3) for after in (False, True)]:
        number = 0
        while (how := await _failing_at(number, store_number, after=after, erase=erase)) != "whole":
            came.append(how)
            number += 1
    assert len(came) > 40
    assert came.count("not begun") == 1, "the first call alone notes what is to be done"


async def _failing_at(number: int, store_number: int, *, after: bool, erase: bool) -> str:
    """What a roll-back came to of which this call of a store failed; `whole` where it
    makes no such call.
    """
    world = World()
    await world.engine.open()
    written = await _poisoned(world)
    await world.engine.maintenance.sweep()
    before, failed = (
        await _shown(world.engine),
        _counting((world.short, world.mid, world.long)[store_number], number, after=after),
    )
    with suppress(StoreError):
        await _roll_back(world.engine, erase=erase, derived=True)
    how = "failed" if failed() else "whole"
    world.clock.advance()
    sweeping = await world.another_process()
    await sweeping.maintenance.sweep()
    if await _shown(sweeping) == before:
        how = "not begun"
        await _roll_back(sweeping, erase=erase, derived=True)
    await sweeping.maintenance.sweep()
    assert await _shown(sweeping) == AFTER
    assert await world.rows(world.mid, OPERATIONS) == []
    changed = await sweeping.entries.get(TENANT, written["changed"].id)
    assert changed is not None
    assert (changed.metadata, changed.tags, changed.source, changed.origins) == (
        {"a": 1},
        ["t"],
        "user",
        None,
    )
    history = await sweeping.entries.history(TENANT, written["changed"].id)
    assert [one.content for one in history] == ["good", "turned", "turned", "good"], "it was turned back once"
    assert (await _roll_back(sweeping, erase=erase, derived=True)).entries == []
    return how


def _counting(store: Flaky, number: int, *, after: bool) -> Callable[[], bool]:
    """Let the call of this number fail; what tells whether there was one."""
    made = {"calls": 0, "failed": 0}
    call: Callable[..., Awaitable[Any]] = store.on_call

    async def failing(method: str, *args: Any, **kwargs: Any) -> Any:
        made["calls"] += 1
        fails = made["calls"] - 1 == number
        made["failed"] += fails
        if fails and not after:
            raise StoreUnavailable(store.name, "fails before")
        answer = await call(method, *args, **kwargs)
        if fails:
            raise StoreUnavailable(store.name, "fails after")
        return answer

    store.on_call = failing  # type: ignore[method-assign]

    def told() -> bool:
        store.on_call = call  # type: ignore[method-assign, assignment]
        return made["failed"] > 0

    return told


async def test_a_roll_back_judges_an_entry_again_that_was_changed_meanwhile(world: World) -> None:
    evil = await _write(world, "evil", source="web")
    other = await world.another_process()
    world.mid.before["delete.home"] = lambda: other.entries.update(TENANT, evil.id, {"tags": ["t"]})
    assert (await _roll_back(world.engine, erase=True)).of("erased") == [evil.id]
    assert await world.engine.entries.get(TENANT, evil.id) is None


async def test_a_hold_placed_meanwhile_wins(world: World) -> None:
    evil = await _write(world, "evil", source="web")
    hold = LegalHold("case", "entry", evil.id, "r", None, world.clock())
    world.mid.before["take_back.begin"] = lambda: world.engine.erasure.holds.place(TENANT, hold, USER.text)
    report = await _roll_back(world.engine, erase=True)
    assert [(undone.done, undone.note) for undone in report.entries] == [
        ("retired", "under legal hold: retired instead")
    ]
    assert await _shown(world.engine) == []


async def test_what_was_changed_by_it_and_has_lost_the_version_before_is_retired_or_named(
    world: World,
) -> None:
    last, named, other = [await _write(world, f"good {number}") for number in range(3)]
    for one, said in ((last, {"origins": [WEB]}), (named, {"source": "web"}), (other, {"origins": [WEB]})):
        await world.engine.entries.update(TENANT, one.id, {"content": "turned", **said})
    for one in (named, other):
        await world.engine.entries.update(TENANT, one.id, {"tags": ["t"]})
    kept = await world.rows(world.mid, ENTRY_VERSIONS)
    await world.engine.erasure.delete_versions({row.key: row.version for row in kept})
    report = await _roll_back(world.engine)
    told = {undone.entry_id: (undone.why, undone.done, undone.note) for undone in report.entries}
    retired = ("changed", "retired", "the earlier version is not kept")
    assert told == {
        last.id: retired,
        named.id: retired,
        other.id: ("changed", "left", "the earlier version is not kept"),
    }


async def test_what_was_changed_since_is_taken_back_though_what_stood_before_is_not_kept(
    world: World,
) -> None:
    of_old, changed = [await _write(world, f"of old {number}", source="web") for number in range(2)]
    for one in (of_old, changed):
        await world.engine.entries.update(TENANT, one.id, {"tags": ["t"]})
    kept = await world.rows(world.mid, ENTRY_VERSIONS)
    await world.engine.erasure.delete_versions({row.key: row.version for row in kept})
    for one in (of_old, changed):
        await world.engine.entries.update(TENANT, one.id, {"tags": ["u"]})
    since = world.clock.advance()
    await world.engine.entries.update(TENANT, of_old.id, {"tags": ["v"]})
    await world.engine.entries.update(TENANT, changed.id, {"content": "turned", "origins": [WEB]})
    report = await world.engine.source_reverter.run(TENANT, [WEB], since=since, erase=True, derived=False)
    assert [(undone.entry_id, undone.done) for undone in report.entries] == [(changed.id, "restored")]
    assert await _shown(world.engine) == ["of old 0", "of old 1"]


async def test_what_was_made_of_its_entries_before_the_moment_stays_though_its_versions_are_not_kept(
    world: World,
) -> None:
    evil = await _write(world, "evil", SESSION, source="web")
    made = await world.engine.derivation.promote(TENANT, evil.id, USER)
    await world.engine.entries.update(TENANT, made.id, {"tags": ["t"]})
    since = world.clock.advance()
    await world.engine.entries.update(TENANT, made.id, {"tags": ["u"]})
    kept = await world.rows(world.mid, ENTRY_VERSIONS)
    await world.engine.erasure.delete_versions({row.key: row.version for row in kept})
    report = await world.engine.source_reverter.run(TENANT, [WEB], since=since, erase=True, derived=True)
    assert report.entries == []


async def test_where_a_version_in_between_is_not_kept_nothing_is_taken_for_the_next_ones(
    world: World,
) -> None:
    one, other = await _write(world, "good", tags=["a"]), await _write(world, "good too", tags=["a"])
    for entry, writers in ((one, ["user", "web", "user"]), (other, ["web", "user", "web"])):
        for number, source in enumerate(writers):
            await world.engine.entries.update(
                TENANT, entry.id, {"tags": [f"{source}{number}"], "origins": [f"source:{source}"]}
            )
    kept = [
        row for row in await world.rows(world.mid, ENTRY_VERSIONS) if str(row.fields["tags"]).endswith("1',)")
    ]
    await world.engine.erasure.delete_versions({row.key: row.version for row in kept})
    report = await _roll_back(world.engine)
    told = {undone.entry_id: (undone.why, undone.done, undone.note) for undone in report.entries}
    assert told == {one.id: ("changed", "left", NOT_KEPT), other.id: ("changed", "retired", NOT_KEPT)}


async def test_what_was_turned_back_since_a_moment_is_not_turned_back_again(world: World) -> None:
    entry = await _write(world, "good", metadata={"a": 1})
    await world.engine.entries.update(TENANT, entry.id, {"metadata": {"a": 2}, "origins": [WEB]})
    since = world.clock.advance()
    await world.engine.entries.update(
        TENANT, entry.id, {"content": "turned", "metadata": {"a": 3, "b": 1}, "origins": [WEB]}
    )
    done = [
        (await world.engine.source_reverter.run(TENANT, [WEB], since=since, erase=False, derived=False)).of(
            "restored"
        )
        for _ in range(2)
    ]
    assert done == [[entry.id], []]
    history = [(one.content, one.metadata) for one in await world.engine.entries.history(TENANT, entry.id)]
    assert history == [
        ("good", {"a": 1}),
        ("good", {"a": 2}),
        ("turned", {"a": 3, "b": 1}),
        ("good", {"a": 2}),
    ]
    assert (await _roll_back(world.engine)).of("restored") == [entry.id]
    after = await world.engine.entries.get(TENANT, entry.id)
    assert after is not None
    assert (after.content, after.metadata, after.origins) == ("good", {"a": 1}, None)


async def test_what_others_had_taken_back_before_is_not_said_again(world: World) -> None:
    entry = await _write(world, "good")
    await world.engine.entries.update(TENANT, entry.id, {"title": "turned by a", "agent": "a"})
    await world.engine.entries.update(TENANT, entry.id, {"content": "turned by the web", "origins": [WEB]})
    await world.engine.source_reverter.run(TENANT, ["agent:a"], since=None, erase=False, derived=False)
    await world.engine.entries.update(TENANT, entry.id, {"tags": ["t"]})
    await _roll_back(world.engine)
    after = await world.engine.entries.get(TENANT, entry.id)
    assert after is not None
    assert (after.content, after.title, after.tags, after.agent, after.origins) == (
        "good",
        None,
        ["t"],
        None,
        None,
    )


async def test_an_upsert_is_taken_back_as_a_whole(world: World) -> None:
    said = {"conversation_id": "c1", "number_in_conversation": 1, "speaker": "ada"}
    good = EntryDraft(scope=USER, content="good", key="k", metadata={"a": None}, **said)
    before, _ = await world.engine.upserts.upsert(TENANT, UpsertCall(good))
    evil = good.model_copy(
        update={
            "content": "evil",
            "source": "web",
            "conversation_id": "c2",
            "number_in_conversation": 2,
            "speaker": "eve",
        }
    )
    await world.engine.upserts.upsert(TENANT, UpsertCall(evil))
    await _roll_back(world.engine)
    after = await world.engine.entries.get(TENANT, before.id)
    assert after is not None
    assert after.model_dump(exclude={"version", "updated_at"}) == before.model_dump(
        exclude={"version", "updated_at"}
    )


@pytest.mark.parametrize("erase", [False, True], ids=["retired", "erased"])
async def test_what_was_rolled_back_retires_nothing_that_it_was_still_to_supersede(
    world: World, erase: bool
) -> None:
    good = await _write(world, "good")
    world.mid.fails_before.add("update.home")
    evil = EntryDraft(scope=SESSION, content="evil", source="web")
    await world.engine.supersede_writer.write(TENANT, evil, SupersedeRequest([good.id]))
    assert await _shown(world.engine) == ["evil", "good"]
    world.mid.heal()
    await _roll_back(world.engine, erase=erase)
    await world.engine.maintenance.sweep()
    assert await _shown(world.engine) == ["good"]


async def test_another_process_hears_within_two_seconds(world: World) -> None:
    other = await world.another_process()
    await _write(world, "evil", source="web")
    assert await _shown(other) == ["evil"]
    await _block(world.engine)
    assert await _shown(world.engine) == []
    world.clock.advance(LATER)
    assert await _shown(other) == []


async def test_a_search_asks_the_archive_for_blocked_sources_once_in_two_seconds(world: World) -> None:
    await _write(world, "tea")
    world.mid.steps.clear()
    for _ in range(3):
        await world.engine.entry_search.search(ASKED, "tea")
        await world.engine.browser.browse(ASKED)
    assert world.mid.steps.count("distrust.read") == 1
    world.clock.advance(LATER)
    await world.engine.entry_search.search(ASKED, "tea")
    assert world.mid.steps.count("distrust.read") == 2


async def test_a_source_known_to_be_blocked_stays_so_while_the_archive_is_away(world: World) -> None:
    await _write(world, "evil", SESSION, source="web")
    await _write(world, "good", SESSION)
    await _block(world.engine)
    world.clock.advance(LATER)
    world.mid.down = True
    assert await _shown(world.engine) == ["good"]


@pytest.mark.parametrize("way", ["down", "silent"])
async def test_where_blocked_sources_are_unknown_what_comes_from_somewhere_is_not_shown(
    way: str,
) -> None:
    world = World(settings=EngineSettings(deadline=timedelta(seconds=0.1)))
    await world.engine.open()
    named = await _write(world, "of the web", SESSION, source="web")
    await _write(world, "of an agent", SESSION, agent="a")
    unnamed = await _write(world, "good", SESSION)
    other = await world.another_process()
    setattr(world.mid, way, True)
    browsed = await other.browser.browse(EntryQuery(TENANT, (SESSION,)))
    assert [entry.content for entry in browsed] == ["good"]
    assert any("may be blocked" in said for said in browsed.degraded)
    found = await other.entry_search.search(EntryQuery(TENANT, (SESSION,)), "good web agent")
    assert [hit.entry.content for hit in found] == ["good"]
    assert await other.entries.get(TENANT, unnamed.id) == unnamed
    with pytest.raises(StoreUnavailable):
        await other.entries.get(TENANT, named.id)


async def test_a_list_that_cannot_be_read_hides_what_comes_from_somewhere(world: World) -> None:
    await _write(world, "of the web", source="web")
    await _write(world, "good")
    await _block(world.engine, "source:other")
    [row] = [row for row in await world.rows(world.mid, SETTINGS) if row.key.tenant == TENANT]
    world.mid.state.damage("settings", row.key)
    other = await world.another_process()
    assert await _shown(other) == ["good"]
    with pytest.raises(CorruptRecord, match="which sources are blocked"):
        await other.trust.blocked_sources.all(TENANT)


async def test_a_source_blocked_here_is_so_at_once_whatever_was_being_read_meanwhile(world: World) -> None:
    await _write(world, "evil", source="web")
    world.clock.advance(LATER)
    world.mid.after["distrust.read"] = lambda: _block(world.engine)
    await _shown(world.engine)
    assert await _shown(world.engine) == []


async def test_so_many_are_blocked_as_a_question_can_leave_out(world: World) -> None:
    await _write(world, "good")
    await _write(world, "evil", run="r1")
    since = world.clock()

    async def place(*runs: int) -> None:
        said = [
            BlockedSource(f"run:r{number}", since, "refused", "r", None, world.clock()) for number in runs
        ]
        await world.engine.trust.blocked_sources.block(TENANT, said)

    await place(*range(blocked_sources.MAX_BLOCKED_SOURCES))
    with pytest.raises(InvalidInput, match="revert some of them, then unblock these"):
        await place(blocked_sources.MAX_BLOCKED_SOURCES)
    await place(0)
    everything = EntryQuery(
        TENANT,
        (SESSION, USER),
        tags=tuple(f"t{n}" for n in range(50)),
        any_tags=tuple(f"a{n}" for n in range(50)),
    )
    assert await _shown(world.engine, everything) == []
    assert len(await _shown(world.engine)) == 2
    await world.engine.trust.blocked_sources.unblock(TENANT, ["run:r0"])
    await place(blocked_sources.MAX_BLOCKED_SOURCES)


async def test_two_that_block_at_once_are_both_heard(world: World) -> None:
    other = await world.another_process()
    world.mid.after["distrust.read"] = lambda: _block(other, "agent:a")
    await _block(world.engine)
    assert {one.origin for one in await other.trust.blocked_sources.all(TENANT)} == {WEB, "agent:a"}


async def test_so_many_tenants_are_remembered_those_asked_last(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocked_sources, "MAX_TENANTS", 2)
    for tenant in ("a", "b", "a", "c"):
        await world.engine.trust.blocked_sources.load(tenant)
    known = [tenant for tenant in "abc" if world.engine.trust.blocked_sources.cached(tenant) is not None]
    assert known == ["b", "c"], "the one that was only looked at was read first"


async def test_a_later_block_refuses_from_its_moment_on(world: World) -> None:
    later = world.clock() + timedelta(hours=1)
    await world.engine.trust.blocked_sources.block(
        TENANT, [BlockedSource(WEB, later, "refused", "r", None, world.clock())]
    )
    await _write(world, "tea", source="web")
    world.clock.advance(timedelta(hours=2))
    with pytest.raises(RejectedByGate):
        await _write(world, "evil", source="web")
    assert await _shown(world.engine) == ["tea"]


async def test_the_recall_gate_is_asked_at_once_of_all_that_is_read_by_ids(world: World) -> None:
    written = [await _write(world, f"tea {number}", source="web") for number in range(3)]
    asked, all_asked = list[str](), asyncio.Event()

    async def gate(entry: Entry) -> bool:
        asked.append(entry.content)
        if len(asked) == len(written):
            all_asked.set()
        await all_asked.wait()
        return entry.content != "tea 1"

    world.engine.trust.gates.recall = gate
    found = await world.engine.entries.get_many(TENANT, [one.id for one in written])
    assert sorted(one.content for one in found.values()) == ["tea 0", "tea 2"]


async def test_a_gate_that_hangs_in_its_thread_keeps_nothing_else_from_running(world: World) -> None:
    never, asked = threading.Event(), list[str]()

    def gate(entry: Entry) -> bool:
        asked.append(entry.content)
        return never.wait()

    asking = GateRunner(timedelta(milliseconds=1))
    written = [await _write(world, f"tea {number}") for number in range(2)]
    for _ in range(40):
        assert not any(map(lets_out, await asking.answers_of(gate, [(one,) for one in written])))
    try:
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "runs") == "runs"
    finally:
        never.set()
        asking._threads.shutdown()
    assert set(asked) == {"tea 0"}, "nobody waits for the others any more"


async def test_what_is_expired_or_of_an_erased_scope_is_not_taken_back(world: World) -> None:
    await _write(world, "evil", source="web", expires_at=world.clock() + timedelta(hours=1))
    await _write(world, "evil too", SESSION, source="web")
    world.clock.advance(timedelta(hours=2))
    world.short.before["update.home"] = lambda: world.engine.erasure.erase_scope(TENANT, SESSION)
    assert (await _roll_back(world.engine)).entries == []
