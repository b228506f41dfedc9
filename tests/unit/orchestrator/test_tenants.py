"""A tenant's erasure whose process dies at any call, beside others that write, erase
and hold: nothing of before is left, what came after stands.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch

import pytest

from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, CorruptRecord, LegalHoldActive, NotFound, StoreUnavailable
from memory.domain.legal_hold import LegalHold
from memory.domain.scope import Scope, ScopeKind
from memory.orchestrator.conversations import sessions
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.tasks.tasks import TaskDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.entries import scratchpads
from memory.orchestrator.erasure import erasure
from memory.orchestrator.maintenance import tenant_erasure
from memory.orchestrator.maintenance.tenant_erasure import TenantErasure
from memory.orchestrator.storage import generations, operations
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, HOLDS, OPERATIONS, SCRATCHPADS
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.past_versions import is_older
from memory.ports.record import Corrupt, Key, Partition, Record, Tombstone
from tests.support import noticed
from tests.support.delivered import undelivered
from tests.support.depth import NIGHTLY, PROVING, drawn
from tests.support.erased_tenants import SCOPES, AtCalls, Lengths, fill, left, lost, standing, under_way
from tests.support.mutations import Mutation
from tests.support.numbered import misnumbered
from tests.unit.orchestrator.conversations.talking import begun as begun_session
from tests.unit.orchestrator.conversations.talking import opened, told, user
from tests.unit.orchestrator.world import (
    DAY,
    DURABLE,
    HOUR,
    SESSION,
    TENANT,
    USER,
    VOLATILE,
    Died,
    World,
    dies,
)

BEFORE, AFTER = "zirconium", "feldspar"
WORLDS: dict[str, dict[str, Any]] = {
    "three stores": {},
    "a cache": {"short": VOLATILE},
    "stores that are not fenced": {
        "short": replace(DURABLE, fenced=False),
        "long": replace(DURABLE, fenced=False),
    },
    "not atomic": {"mid": replace(DURABLE, atomic=False)},
}


EACH = 1 if PROVING else 5 if NIGHTLY else 37
"""Which calls are played: each, or some of them."""


async def filled(name: str = "three stores") -> tuple[World, list[str]]:
    """A world, and the entries in it."""
    world = World(embedder=Lengths(), **WORLDS[name])
    await world.engine.open()
    written = await fill(world.engine, TENANT, BEFORE, "chat")
    await world.engine.maintenance.sweep()
    return world, written


async def swept(world: World) -> Engine:
    """Another process, once all is done that is owed, and erasures are repeated where
    that is needed.
    """
    engine = await world.settled()
    for _ in range(3):
        world.clock.advance(timedelta(minutes=16))
        report = await engine.maintenance.sweep()
        assert (report.waiting, report.stays) == ((), ())
    return engine


async def dying_at(number: int, name: str = "three stores") -> list[str] | None:
    """What is wrong after an eraser that died at its call of this number, another
    process that wrote, and sweeps; None where it makes fewer calls.
    """
    world, _ = await filled(name)
    before = await standing(world.engine, TENANT)
    with AtCalls(world.stores, {number: dies}) as died, suppress(Died):
        await world.engine.tenants.erase(TENANT)
    if not died.happened:
        return None
    other = await world.another_process()
    if await under_way(other) is False:
        return (
            []
            if (await standing(other, TENANT)).keys() == before.keys()
            else ["something is gone, and nothing had begun"]
        )
    written = await fill(other, TENANT, AFTER, "later")
    engine = await swept(world)
    return [*await left(engine, TENANT, before, BEFORE), *await lost(engine, TENANT, written, AFTER, "later")]


@pytest.mark.thorough
@pytest.mark.parametrize("name", WORLDS)
async def test_an_eraser_that_dies_at_any_call_is_followed_by_a_sweep(name: str) -> None:
    number, played = 0, 0
    while (wrong := await dying_at(number, name)) is not None:
        assert wrong == [], number
        number, played = number + EACH, played + 1
    assert played >= 10


class History:
    """A tenant's erasure, and what others do meanwhile."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.stand: dict[str, Scope] = {}
        """What was written once the erasure had begun, and nobody has erased since."""
        self.gone: set[str] = set()
        self.erasures = Counter[Scope]()
        """How many erasures of a scope have begun or ended."""
        self.notes: list[str] = []
        self.either: list[str] = []
        """Notes that were made while it was about to begin."""
        self.said: dict[str, list[str]] = {}
        """What was said in a session that was created once the erasure had begun, by
        its incarnation.
        """
        self.begun = False
        """Whether the eraser has its moment. Another one's may be over before: what is
        written between them is of before.
        """
        self.perhaps: set[str | None] = set()
        """The sessions that were created before."""

    async def played(self) -> list[str]:
        """What is wrong in the end, a sentence each."""
        name = self.chance.choice(list(WORLDS))
        self.world, self.old = await filled(name)
        self.other = await self.world.another_process()
        before = await standing(self.world.engine, TENANT)
        self.perhaps.add(await self._incarnation(self.other))
        with patch.object(
            self.world.engine.tenants, "_begin", self._begins(self.world.engine.tenants._begin)
        ):
            how = await self._erased()
        if await under_way(self.other) is False:
            await self.erase()
        self.begun = True
        for act in (self.write, self.note, self.say):
            await act()
        engine = await swept(self.world)
        wrong = [
            f"{one} in {scope} is lost"
            for one, scope in self.stand.items()
            if await engine.entries.get(TENANT, one) is None
        ]
        wrong += [
            f"{one} is there, and its scope was erased"
            for one in self.gone
            if await engine.entries.get(TENANT, one) is not None
        ]
        pad = await engine.scratchpads.read(TENANT, None)
        noted = [
            line for line in pad.content.splitlines() if not line.startswith("##") and line not in self.either
        ]
        if pad.damaged or sorted(noted) != sorted(self.notes):
            wrong.append(f"noted was {self.notes}, and it reads {pad}")
        wrong += [*await self._heard(engine), *await undelivered(engine), *await misnumbered(engine)]
        return [f"{name}, {how}: {said}" for said in (*wrong, *await left(engine, TENANT, before, BEFORE))]

    def _begins(self, begin: Callable[..., Awaitable[Record]]) -> Callable[..., Awaitable[Record]]:
        async def begun(*args: Any) -> Record:
            operation = await begin(*args)
            self.begun = True
            return operation

        return begun

    async def _erased(self) -> object:
        """At some of the eraser's calls others do something, and at one it dies, or a
        store fails; which, by their numbers.
        """
        ways = [
            self.write,
            self.write,
            self.move,
            self.edit,
            self.note,
            self.say,
            self.erase_scope,
            self.erase,
        ]
        acts = {self.chance.randrange(500): self.chance.choice(ways) for _ in range(5)}
        acts |= {self.chance.randrange(500): self.chance.choice([dies, self.fails])}
        with (
            AtCalls(self.world.stores, acts, after=[number for number in acts if number % 2]),
            suppress(Died, StoreUnavailable),
        ):
            await self.world.engine.tenants.erase(TENANT)
        return {number: act.__name__ for number, act in acts.items()}

    async def write(self) -> None:
        scope = self.chance.choice(SCOPES)
        begun, erasures = self.begun, self.erasures[scope]
        entry = await self.other.entries.write(TENANT, EntryDraft(scope=scope, content=f"{AFTER} text"))
        with suppress(NotFound):
            await self.other.entries.update(TENANT, entry.id, {"tags": ["later"]})
        if begun and erasures == self.erasures[scope]:
            self.stand[entry.id] = scope

    async def move(self) -> None:
        for one in list(self.stand):
            await self.other.tier_mover.move(ENTRIES, Key(TENANT, one), self.chance.choice(("mid", "long")))

    async def note(self) -> None:
        begun, text = self.begun, f"{AFTER} {self.chance.random()}"
        await self.other.scratchpads.append(TENANT, None, text)
        (self.notes if begun else self.either).append(text)

    async def say(self) -> None:
        """In the session of before, or in one that is created if it is gone."""
        begun, text = self.begun, f"{AFTER} {self.chance.random()}"
        with suppress(NotFound):
            session = await self.other.conversations.open(TENANT, SessionDraft("chat"), create=True)
            if not begun:
                self.perhaps.add(session.log.life.incarnation)
            await session.append([user(text)])
            self.said.setdefault(session.log.life.incarnation, []).append(text)

    async def _incarnation(self, engine: Engine) -> str | None:
        found = await engine.conversations.find(TENANT, "chat")
        return None if found is None else str(found.body["incarnation"])

    async def _heard(self, engine: Engine) -> list[str]:
        there = await self._incarnation(engine)
        since = self.said.keys() - self.perhaps
        if since != ({there} - {None}):
            return [f"the session is {there}, and {since} were created since"]
        texts = (
            []
            if there is None
            else [message.text for message in (await (await opened(engine, "chat")).context()).messages]
        )
        wanted = [] if there is None else self.said[there]
        return [] if sorted(texts) == sorted(wanted) else [f"said was {wanted}, and heard is {texts}"]

    async def edit(self) -> None:
        """What is changed is still of before."""
        with suppress(NotFound):
            for _ in range(2):
                await self.other.entries.update(TENANT, self.chance.choice(self.old), {"tags": [AFTER]})

    async def erase_scope(self) -> None:
        await self.write()
        scope = self.chance.choice(SCOPES)
        there = [one for one, where in self.stand.items() if where == scope]
        self.erasures[scope] += 1
        self.stand = {one: where for one, where in self.stand.items() if where != scope}
        try:
            await self.other.erasure.erase_scope(TENANT, scope)
            self.gone.update(there)
        finally:
            self.erasures[scope] += 1
            self.stand = {one: where for one, where in self.stand.items() if where != scope}

    async def erase(self) -> None:
        """Again, by another process."""
        there, self.stand, self.notes, self.said = list(self.stand), {}, [], {}
        await self.other.tenants.erase(TENANT)
        self.gone.update(there)

    async def fails(self) -> None:
        raise StoreUnavailable("mid", "does not answer")


class Interleaved(History):
    """The same, and every call to a store takes its time: the eraser and others go on
    in turns.
    """

    async def _erased(self) -> object:
        acts = [
            self.chance.choice(
                [
                    self.write,
                    self.write,
                    self.move,
                    self.edit,
                    self.note,
                    self.say,
                    self.erase_scope,
                    self.sweep,
                ]
            )
            for _ in range(6)
        ]
        calls = [(store, store.on_call) for store in self.world.stores]
        for store, call in calls:
            store.on_call = self._slow(call)  # type: ignore[method-assign, assignment]
        await asyncio.gather(self.world.engine.tenants.erase(TENANT), *[self._later(act) for act in acts])
        for store, call in calls:
            store.on_call = call  # type: ignore[method-assign]
        return [act.__name__ for act in acts]

    def _slow(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def slow(*args: Any, **kwargs: Any) -> Any:
            await self._waits(8)
            answer = await call(*args, **kwargs)
            await self._waits(8)
            return answer

        return slow

    async def _later(self, act: Callable[[], Awaitable[None]]) -> None:
        await self._waits(3_000)
        for _ in range(3):
            await act()

    async def _waits(self, most: int) -> None:
        for _ in range(self.chance.randrange(most)):
            await asyncio.sleep(0)

    async def sweep(self) -> None:
        await self.other.maintenance.sweep()


@pytest.mark.parametrize("seed", range(drawn(200, quick=12, proof=4_000)))
@pytest.mark.thorough
async def test_what_goes_on_beside_it_is_neither_lost_nor_saves_what_was_before(seed: int) -> None:
    assert await Interleaved(seed).played() == []


@pytest.mark.parametrize("seed", range(drawn(200, quick=12, proof=4_000)))
@pytest.mark.thorough
async def test_what_others_do_meanwhile_is_neither_lost_nor_saves_what_was_before(seed: int) -> None:
    assert await History(seed).played() == []


# -- mutations -----------------------------------------------------------------------------

MUTATIONS = {
    "the operation owes nothing": Mutation(
        operations, "new_operation", "owed=(PendingStep(step, step, data),)", "owed=()"
    ),
    "an entry that was changed since stays": Mutation(
        tenant_erasure, "TenantErasure._round", "await self._delete(place, store, record, done)", "pass"
    ),
    "scopes are erased whole": Mutation(
        tenant_erasure, "TenantErasure._erase", "before=before, prefix", "prefix"
    ),
    "a session of before is spared": Mutation(
        sessions, "SessionRecords.erase_before", "is_of_before(stored, before)", "False"
    ),
    "all is erased that is of a lower generation": Mutation(
        erasure, "Erasure._erase_in", "before is not None:\n        older =", "False:\n        older ="
    ),
    "what is spared is left behind": Mutation(
        erasure,
        "Erasure._erase_in",
        "await self._generations.spare(store, partition, generation, before)",
        "pass",
    ),
    "copies are left behind": Mutation(
        generations, "Generations.spare", "frozenset(Role)", "frozenset({Role.HOME, Role.ARRIVING})"
    ),
    "a scratchpad misses what was taken": Mutation(
        scratchpads, "Scratchpads._begin_anew", "if upto <= (await self._end(partition)).cleared:", "if True:"
    ),
}


async def judged(seed: int) -> list[str]:
    return (
        await History(seed).played()
        if seed % 2
        else await dying_at(5 * seed, list(WORLDS)[seed // 2 % len(WORLDS)]) or []
    )


@pytest.mark.parametrize("name", noticed.cases("tenants/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(judged, 200, f"tenants/{name}")


# -- one thing at a time ---------------------------------------------------------------


async def test_the_receipt_counts_what_was_before_alone(world: World) -> None:
    for scope in SCOPES:
        await world.write("before", scope)
    other = await world.another_process()

    async def write() -> None:
        for scope in SCOPES:
            await other.entries.write(TENANT, EntryDraft(scope=scope, content="since"))

    world.mid.after["tenant.begin"] = write
    receipt = await world.engine.tenants.erase(TENANT)
    assert (receipt.scopes, receipt.records) == (3, {"entries": {"short": 1, "mid": 2}})
    for scope in SCOPES:
        assert await world.browse(scope) == ["since"]
    assert await undelivered(await world.settled()) == []
    assert world.engine.generations.healed == other.generations.healed == [], "no store was behind"
    assert await under_way(other) is None


async def test_what_a_clock_wrote_that_is_ahead_is_of_before(world: World) -> None:
    world.clock.advance(HOUR)
    entry = await world.write("before")
    world.clock.advance(-HOUR)
    await world.engine.tenants.erase(TENANT)
    assert await world.get(entry) is None


async def test_what_a_clock_wrote_that_is_ahead_goes_though_it_comes_late_to_a_store_that_cannot_refuse_it() -> (
    None
):
    async with World(long=replace(DURABLE, fenced=False)) as world:
        entry = await world.write(f"{BEFORE} ahead")
        await world.move(entry, "long")
        late = await world.standing(world.long, entry.id)
        assert isinstance(late, Record)
        world.clock.advance(-timedelta(minutes=1))
        await world.engine.tenants.erase(TENANT)
        world.long.state.place(
            "entries", late.key, late
        )  # its writer died between its put and its look at the generation
        await swept(world)
        assert isinstance(await world.standing(world.long, entry.id), Tombstone)
        assert await world.get(entry) is None


async def test_what_a_clock_wrote_that_is_ahead_does_not_come_back_with_a_backup(world: World) -> None:
    entry = await world.write(f"{BEFORE} ahead")
    backup = world.short.state.snapshot()
    world.clock.advance(-timedelta(minutes=1))
    await world.engine.tenants.erase(TENANT)
    world.short.state.restore(backup)
    with suppress(NotFound):
        await world.move(entry, "mid")  # which refuses it
    assert await world.get(entry) is None


async def test_what_is_held_stays_and_keeps_no_operation(world: World) -> None:
    for scope in (SESSION, USER):
        await world.write("before", scope)
    hold = LegalHold("case", "scope", USER.text, "asked for", None, world.clock())
    await world.engine.erasure.holds.place(TENANT, hold)
    with pytest.raises(LegalHoldActive, match="'case'"):
        await world.engine.tenants.erase(TENANT)
    assert (await world.browse(USER), await world.browse(SESSION)) == (["before"], [])
    assert await under_way(world.engine) is None
    await world.engine.erasure.holds.release(TENANT, "case")
    await world.engine.maintenance.sweep()
    assert await world.browse(USER) == ["before"], "what was held is not erased behind anybody's back"
    assert (await world.engine.tenants.erase(TENANT)).scopes == 1


async def test_an_entry_that_was_edited_since_and_is_held_stays(world: World) -> None:
    entry, other = await world.write("before", USER), await world.another_process()

    async def edit_and_hold() -> None:
        await other.entries.update(TENANT, entry.id, {"content": "edited"})
        await world.engine.maintenance.sweep()

    hold = LegalHold("case", "entry", entry.id, "asked for", None, world.clock())
    world.mid.after["tenant.begin"] = edit_and_hold
    world.mid.before["tenant.changed"] = lambda: other.erasure.holds.place(TENANT, hold, USER.text)
    with pytest.raises(LegalHoldActive, match="'case'"):
        await world.engine.tenants.erase(TENANT)
    assert await world.browse(USER) == ["edited"]
    assert await under_way(world.engine) is None


async def test_a_call_that_is_repeated_follows_the_one_that_died_from_its_own_moment(world: World) -> None:
    await world.write("before", USER)
    world.mid.fails_before.add("erase.begin")
    with pytest.raises(StoreUnavailable):
        await world.engine.tenants.erase(TENANT)
    world.heal()
    await world.write("between", USER)
    await world.flush()
    other = await world.another_process()
    assert await under_way(other) is True
    assert await other.maintenance.count_pending() == 1, "as `doctor` and `stats` count it"
    assert (await other.tenants.erase(TENANT)).records == {"entries": {"mid": 2}}
    assert await world.browse(USER) == []
    assert await under_way(other) is None


async def test_of_two_that_erase_at_once_the_later_moment_counts(world: World) -> None:
    await world.write("before", USER)
    other = await world.another_process()
    world.mid.before["tenant.begin"] = lambda: begun(other)

    async def begun(engine: Engine) -> None:
        world.clock.advance(HOUR)
        world.mid.fails_before.add("erase.begin")
        with pytest.raises(StoreUnavailable):
            await engine.tenants.erase(TENANT)
        world.mid.fails_before.discard("erase.begin")

    await world.engine.tenants.erase(TENANT)
    assert await under_way(other) is None
    assert await world.browse(USER) == []


async def test_what_cannot_be_erased_stays_owed_and_is_told(world: World) -> None:
    await world.write("before", USER)
    hold = LegalHold("case", "scope", USER.text, "asked for", None, world.clock())
    await world.engine.erasure.holds.place(TENANT, hold)
    [row] = await world.rows(world.mid, HOLDS)
    world.mid.state.damage("holds", row.key)
    with pytest.raises(CorruptRecord, match="a legal hold"):
        await world.engine.tenants.erase(TENANT)
    assert await under_way(world.engine) is True
    [said] = (await world.engine.maintenance.sweep()).stays
    assert said.startswith("erase_tenant of ")
    world.mid.state.place("holds", row.key, row)
    await world.engine.erasure.holds.release(TENANT, "case")
    assert (await world.engine.maintenance.sweep()).stays == ()
    assert (await under_way(world.engine), await world.browse(USER)) == (None, [])


async def erased_while_more_comes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever the eraser looks something of before is there, until the patch is
    undone.
    """
    look = TenantErasure._scopes

    async def looked(self: TenantErasure, *asked: Any) -> set[str]:
        return {*await look(self, *asked), USER.text}

    monkeypatch.setattr(TenantErasure, "_scopes", looked)
    with pytest.raises(StoreUnavailable, match="still arriving"):
        await world.engine.tenants.erase(TENANT)


async def test_what_goes_on_coming_is_left_to_a_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await erased_while_more_comes(world, monkeypatch)
    monkeypatch.undo()
    assert await under_way(world.engine) is True
    await world.engine.maintenance.sweep()
    assert await under_way(world.engine) is None


async def test_nothing_is_left_of_it_once_tombstones_are(world: World) -> None:
    await world.write("before", USER)
    await world.engine.tenants.erase(TENANT)
    for _ in range(3):
        world.clock.advance(31 * DAY)
        await world.engine.maintenance.sweep()
    for store in world.stores:
        for collection in (*[kind.collection for kind in KINDS.scoped], OPERATIONS):
            assert list(store.state.everything(collection.name)) == [], (store.name, collection.name)
    assert (await world.write("anew", USER)).content == "anew"
    assert (await world.engine.tenants.erase(TENANT)).scopes == 1, (
        "over the tombstones of operations that are forgotten"
    )


# -- what it finds ---------------------------------------------------------------------


async def test_a_store_that_is_away_keeps_nothing_from_being_erased_in_the_others(world: World) -> None:
    entries = [await world.write("before", scope) for scope in SCOPES]
    await world.move(entries[1], "long")
    world.long.down = True
    with pytest.raises(StoreUnavailable, match="'long'"):
        await world.engine.tenants.erase(TENANT)
    for store in (world.short, world.mid):
        assert await world.rows(store, ENTRIES) == []
    world.long.down = False
    assert await under_way(world.engine) is True
    await swept(world)
    assert (await under_way(world.engine), await world.rows(world.long, ENTRIES)) == (None, [])


async def test_a_scope_that_cannot_be_erased_keeps_no_other(world: World) -> None:
    for scope in SCOPES:
        await world.write("before", scope)
    hold = LegalHold("case", "scope", SCOPES[2].text, "asked for", None, world.clock())
    await world.engine.erasure.holds.place(TENANT, hold)

    async def fails_once() -> None:
        raise StoreUnavailable("mid", "fails once")

    world.mid.before["erase.begin"] = fails_once
    with pytest.raises(
        StoreUnavailable, match="fails once"
    ):  # and not `Held`, which would say that nothing is to be done
        await world.engine.tenants.erase(TENANT)
    assert sum([len(await world.browse(scope)) for scope in SCOPES]) == 2
    await world.engine.maintenance.sweep()
    assert [await world.browse(scope) for scope in SCOPES] == [[], [], ["before"]]
    assert await under_way(world.engine) is None


@pytest.mark.parametrize("scope", SCOPES)
async def test_where_all_that_is_left_is_damaged_it_goes(world: World, scope: Scope) -> None:
    entry = await world.write("before", scope)
    await world.flush()
    store = world.short if scope.kind is ScopeKind.SESSION else world.mid
    store.state.damage("entries", Key(TENANT, entry.id))
    assert (await world.engine.tenants.erase(TENANT)).records == {"entries": {store.name: 1}}
    assert not isinstance(store.state.fetch_stored("entries", Key(TENANT, entry.id)), Record | Corrupt)


async def test_a_session_of_before_goes_of_which_nothing_is_that_old_any_more(world: World) -> None:
    session = await begun_session(world.engine, "chat")

    async def names_it() -> None:
        await session.update("system", {"content": "since"})

    world.mid.after["tenant.begin"] = names_it
    assert (await world.engine.tenants.erase(TENANT)).records == {"sessions": {"mid": 1}}
    assert await world.engine.conversations.find(TENANT, "chat") is None


async def test_what_is_made_meanwhile_of_what_was_before_goes_with_it(world: World) -> None:
    """Copies, copies of copies and summaries in other scopes, and a session that forks
    off.
    """
    old, session = await world.write("before", SESSION), await begun_session(world.engine, "chat")
    await session.append([user("before", "m1")])
    other, stand = await world.another_process(), list[Entry]()
    theirs = await opened(other, "chat")

    async def make() -> None:
        await other.entries.update(TENANT, old.id, {"content": "before, edited"})
        copy = await other.derivation.promote(TENANT, old.id, USER)
        await other.derivation.promote(TENANT, copy.id, Scope.org("o1"))
        await other.derivation.compact(TENANT, [copy.id], lambda entries: "made of it")
        draft, messages = await theirs.as_of(None)
        fork = await other.conversations.create(TENANT, replace(draft, id="fork"))
        await fork.begin(messages)
        since = await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="since"))
        stand.extend([since, await other.derivation.promote(TENANT, since.id, USER)])
        stand.append(await other.derivation.compact(TENANT, [stand[1].id], lambda entries: "made since"))

    world.mid.after["tenant.begin"] = make
    await world.engine.tenants.erase(TENANT)
    assert sorted([*await world.browse(USER), *await world.browse(Scope.org("o1"))]) == [
        "made since",
        "since",
    ]
    assert await other.conversations.find(TENANT, "fork") is None
    assert all([await other.entries.get(TENANT, one.id) for one in stand])


async def test_a_note_that_is_made_while_its_scratchpad_is_erased_misses_nothing(world: World) -> None:
    other, notes = await world.another_process(), list[asyncio.Task[Any]]()
    for _ in range(2):
        await world.engine.scratchpads.append(TENANT, None, "before")

    async def note() -> None:
        """It has seen where the scratchpad ends, and puts its row once all is over."""
        over = asyncio.Event()
        world.mid.before["scratchpad.put"], world.mid.after["tenant.end"] = over.wait, ends(over)
        notes.append(asyncio.create_task(other.scratchpads.append(TENANT, None, "since")))
        await asyncio.sleep(0.01)

    def ends(over: asyncio.Event) -> Callable[[], Coroutine[Any, Any, None]]:
        async def end() -> None:
            over.set()

        return end

    world.mid.after["tenant.begin"] = note
    await world.engine.tenants.erase(TENANT)
    await notes[0]
    pad = await other.scratchpads.read(TENANT, None)
    assert (pad.content.count("since"), pad.damaged) == (1, 0)


@pytest.mark.parametrize("long", [False, True])
async def test_a_note_that_nobody_was_answered_before_its_scratchpad_was_erased_is_made_once(
    world: World, long: bool
) -> None:
    """It was put, and the answer lost; the erasure spares it; who noted it asks again,
    and is refused for the generation of what it follows.
    """
    other, notes, over = await world.another_process(), list[asyncio.Task[Any]](), asyncio.Event()
    text = "since" + " and so on" * 20 * long
    for _ in range(2):
        await world.engine.scratchpads.append(TENANT, None, "before")

    async def all_is_over() -> None:
        over.set()

    async def asks_again() -> None:
        world.mid.fails_after.clear()
        world.mid.after["tenant.end"] = all_is_over
        await over.wait()

    async def loses_its_answer() -> None:
        world.mid.fails_after.add("scratchpad.put")
        world.mid.before["scratchpad.put"] = asks_again

    async def note() -> None:
        world.mid.before["scratchpad.put"] = loses_its_answer
        notes.append(asyncio.create_task(other.scratchpads.append(TENANT, None, text)))
        await asyncio.sleep(0.01)

    world.mid.after["tenant.begin"] = note
    with patch.object(scratchpads, "PART_BYTES", 16):
        await world.engine.tenants.erase(TENANT)
        await notes[0]
        pad = await (await world.settled()).scratchpads.read(TENANT, None)
    assert (pad.content.count(text), pad.damaged) == (1, 0)


async def test_where_its_eraser_has_died_a_note_is_made_at_once(world: World) -> None:
    for _ in range(2):
        await world.engine.scratchpads.append(TENANT, None, "before")
    world.mid.before["erase.delete"] = dies
    with pytest.raises(Died):
        await world.engine.tenants.erase(TENANT)
    other = await world.another_process()
    for _ in range(2):
        await other.scratchpads.append(TENANT, None, "since")
    for engine in (other, await swept(world)):
        pad = await engine.scratchpads.read(TENANT, None)
        assert (pad.content.count("since"), pad.content.count("before"), pad.damaged) == (2, 0, 0)


async def test_a_long_note_stands_whole_or_not_at_all(world: World) -> None:
    """It is put in parts, which are of before, and its row comes when all is over, or
    when it has just begun.
    """
    for put in ("scratchpad.part", "scratchpad.put"):
        for begun_at in ("tenant.begin", "tenant.end"):
            other, text = await world.another_process(), f"{put} {begun_at} " + "long " * 10

            async def erase(other: Engine = other) -> None:
                await other.tenants.erase(TENANT)

            async def notes(text: str = text) -> None:
                await world.engine.scratchpads.append(TENANT, None, text)

            with patch.object(scratchpads, "PART_BYTES", 16):
                if begun_at == "tenant.begin":
                    world.mid.before[put] = erase
                    await notes()
                else:
                    await world.engine.scratchpads.append(TENANT, None, "of before " * 10)
                    world.mid.after["tenant.begin"] = notes
                    await erase()
            pad = await (await world.settled()).scratchpads.read(TENANT, None)
            assert (pad.content.count(text), pad.damaged, "of before" in pad.content) == (1, 0, False), (
                put,
                begun_at,
            )


async def test_the_parts_of_a_note_are_as_old_as_it_is_where_it_is_put_over_what_an_erasure_left(
    world: World,
) -> None:
    await world.engine.scratchpads.append(TENANT, None, "before")
    await world.engine.tenants.erase(TENANT)
    world.clock.advance(-HOUR)
    with patch.object(scratchpads, "PART_BYTES", 16):
        await world.engine.scratchpads.append(TENANT, None, "long " * 10)
    rows = await world.rows(world.mid, SCRATCHPADS)
    assert len(rows) > 2
    assert len({row.version for row in rows}) == 1
    assert await world.owed() == 0


async def test_what_goes_on_coming_does_not_keep_a_sweep_from_the_archive(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await erased_while_more_comes(world, monkeypatch)
    told = (await world.engine.maintenance.sweep()).waiting
    assert (told, world.engine.outbox.problems) == ((), ())
    assert await under_way(world.engine) is True


async def test_twenty_scopes_take_no_more_calls_than_they_must(world: World) -> None:
    for number in range(20):
        await world.write("before", Scope.user(f"u{number}"))
    await world.flush()
    before = sum(len(store.steps) for store in world.stores)
    assert (await world.engine.tenants.erase(TENANT)).scopes == 20
    assert sum(len(store.steps) for store in world.stores) - before <= 2_930


# -- beside others ---------------------------------------------------------------------


async def all_is_erased_beside(world: World) -> None:
    """An erasure of a scope begins beside, before anything is spared there, and erases
    behind that.
    """
    other, begun, gate = await world.another_process(), asyncio.Event(), asyncio.Event()
    await world.write("before", USER)
    await world.flush()
    tasks = list[asyncio.Task[int]]()

    async def begins() -> None:
        await other.entries.write(TENANT, EntryDraft(scope=USER, content="since"), consistency="replicated")
        tasks.append(asyncio.create_task(other.erasure.erase_scope(TENANT, USER)))
        world.mid.before["erase.raise"], world.short.before["erase.raise"] = waits, goes_on
        await begun.wait()

    async def waits() -> None:
        begun.set()
        await gate.wait()

    async def goes_on() -> None:
        gate.set()
        await tasks[0]

    world.mid.before["erase.raise"] = begins
    await world.engine.tenants.erase(TENANT)
    assert tasks[0].done()
    assert await world.browse(USER) == [], "as it was told that did not spare it"


async def all_had_been_erased_but_for_a_store(world: World) -> None:
    """It spares nothing from an erasure that began before it came to the scope, and is
    still owed.
    """
    other = await world.another_process()
    await world.write("before")

    async def begins() -> None:
        await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="since"))
        world.short.fails_before.add("erase.delete")
        with pytest.raises(StoreUnavailable):
            await other.erasure.erase_scope(TENANT, SESSION)
        world.heal()

    world.mid.after["tenant.begin"] = begins
    await world.engine.tenants.erase(TENANT)
    assert await world.browse() == []
    assert await world.owed() == 0


async def written_in_a_store_that_is_still_behind(world: World) -> None:
    """What it owes is refused by a store that is not, and delivered all the same."""
    await world.write("before")
    other, written = await world.another_process(), list[Entry]()

    async def write() -> None:
        written.append(await other.entries.write(TENANT, EntryDraft(scope=SESSION, content="since")))
        await other.entries.update(TENANT, written[0].id, {"content": "edited"}, "replicated")

    world.short.before["erase.raise"] = write
    await world.engine.tenants.erase(TENANT)
    await world.settled()
    assert [entry.content for entry in await other.entries.history(TENANT, written[0].id)] == [
        "since",
        "edited",
    ]


async def created_since_in_the_place_of_another(world: World) -> None:
    """What a former life left goes, and the session stands with its tasks: no other
    takes their ids.
    """
    before = world.engine.placement.next_version()
    session = await begun_session(world.engine, "chat")
    await session.append([user("since", "m1")])
    await world.engine.conversations.tasks.save(session.log, TaskDraft("t1"))
    await world.engine.conversations.sessions.erase_before(TENANT, "chat", before)
    theirs = await opened(await world.another_process(), "chat")
    assert await told(theirs) == ["system", "m1"]
    with pytest.raises(Conflict, match="collision"):
        await world.engine.conversations.tasks.save(
            (await begun_session(world.engine, "other")).log, TaskDraft("t1")
        )


BESIDE: dict[Callable[[World], Coroutine[Any, Any, None]], Mutation] = {
    all_is_erased_beside: Mutation(
        erasure, "Erasure._begin", "(before is not None or BEFORE in there.body)", "False"
    ),
    all_had_been_erased_but_for_a_store: Mutation(
        erasure, "Erasure._begin_sparing", 'begun.fields["kind"] == UNDER_WAY', "False"
    ),
    written_in_a_store_that_is_still_behind: Mutation(
        generations, "Generations._level", "and BEFORE not in operation.body", ""
    ),
    created_since_in_the_place_of_another: Mutation(
        erasure, "Erasure._carry_out", "() if is_nobodys else self.also", "self.also"
    ),
}


@pytest.mark.parametrize("how", BESIDE, ids=lambda how: how.__name__)
async def test_a_tenant_is_erased_beside_others(how: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async with World() as world:
        await how(world)
    with BESIDE[how].applied():
        async with World() as world:
            with pytest.raises((AssertionError, pytest.fail.Exception)):
                await how(world)


# -- whoever was there since -----------------------------------------------------------


async def says(session: Conversation, _: Engine) -> None:
    await session.append([user("more", "m2")])


async def has_a_task(session: Conversation, engine: Engine) -> None:
    await engine.conversations.tasks.save(session.log, TaskDraft("t1"))


async def is_titled(session: Conversation, _: Engine) -> None:
    await session.describe({}, title="a title")


@pytest.mark.parametrize("does", [says, has_a_task, is_titled])
async def test_where_its_eraser_has_died_a_session_that_was_created_since_goes_on(
    does: Callable[[Conversation, Engine], Awaitable[None]],
) -> None:
    async with World() as world:
        before = world.engine.placement.next_version()
        await (await begun_session(world.engine, "chat")).append([user("since", "m1")])
        world.mid.after["erase.raise"] = dies
        with pytest.raises(Died):
            await world.engine.conversations.sessions.erase_before(TENANT, "chat", before)
        other = await world.another_process()
        await does(await opened(other, "chat"), other)


async def test_where_its_eraser_has_died_entries_that_were_born_since_are_summed_up() -> None:
    async with World() as world:
        before = world.engine.placement.next_version()
        entry = await world.write("since", USER)
        world.mid.after["erase.raise"] = dies
        with pytest.raises(Died):
            await world.engine.erasure.erase(Partition(TENANT, USER.text), before=before)
        await (await world.another_process()).derivation.compact(
            TENANT, [entry.id], lambda entries: "summed up"
        )


# -- whether an entry is older ---------------------------------------------------------


@pytest.mark.parametrize("dropped", [0, 1, 2])
async def test_an_entry_is_as_old_as_its_birth_whatever_is_kept_of_it(world: World, dropped: int) -> None:
    old = await world.write("one", USER)
    since = world.engine.placement.next_version()
    young = await world.write("one", USER, created_at=world.clock() - DAY * (dropped == 0))
    for text in ("two", "three"):
        for entry in (old, young):
            await world.update(entry, content=text)
    kept = sorted(await world.rows(world.mid, ENTRY_VERSIONS), key=lambda row: row.version)
    for entry, expected in ((old, True), (young, False)):
        gone = [row for row in kept if row.fields["entry_id"] == entry.id][:dropped]
        await world.engine.erasure.delete_versions({row.key: row.version for row in gone})
        (record,) = await world.mid.get(ENTRIES, [Key(TENANT, entry.id)])
        assert isinstance(record, Record)
        assert await is_older(world.engine.placement, record, since) is expected
