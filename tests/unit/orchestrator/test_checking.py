"""Conflict detection: what is near an entry is shown to a resolver, and nobody's
failure keeps the entry from being written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.embedders.wordllama import WordLlamaEmbedder
from memory.domain.conflicts import ConflictReport, Resolution
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import Conflict, InvalidInput
from memory.domain.scope import Scope
from memory.orchestrator.enrichment.conflicts import UNRESOLVED
from memory.orchestrator.storage.settings import EngineSettings
from memory.ports.record import Key
from tests.unit.orchestrator.world import HOUR, ORG, SESSION, TENANT, USER, World

SCOPES = pytest.mark.parametrize("scope", [USER, SESSION], ids=["at once", "operation"])


class Decider:
    """Answers what it is told to, and remembers what it was shown."""

    def __init__(self, answer: object = "keep") -> None:
        self.answer = answer
        self.shown: list[list[str]] = []

    async def __call__(self, draft: EntryDraft, entries: list[Entry]) -> object:
        self.shown.append([one.content for one in entries])
        if isinstance(self.answer, Exception):
            raise self.answer
        return await self.answer(draft, entries) if callable(self.answer) else self.answer


async def check(
    world: World, content: str, decide: Any = None, scope: Scope = USER, **more: Any
) -> tuple[Entry, ConflictReport]:
    revive = more.pop("revive", False)
    return await world.engine.conflict_detector.write(
        TENANT, EntryDraft(scope=scope, content=content, **more), decide, revive=revive
    )


@pytest.fixture
async def meant() -> AsyncIterator[World]:
    """Entries are found by meaning too."""
    async with World(embedder=WordLlamaEmbedder()) as opened:
        yield opened


async def test_what_is_near_is_shown_and_all_of_it_stands_unless_somebody_decides_otherwise(
    meant: World,
) -> None:
    old = await meant.write("Ada lives in Lisbon", USER)
    await meant.write("The boats leave on Sunday", USER)
    entry, checked = await check(meant, "Ada lives in Porto")
    assert checked == ConflictReport((old,), "keep", (), UNRESOLVED)
    assert sorted(await meant.browse(USER)) == [
        "Ada lives in Lisbon",
        "Ada lives in Porto",
        "The boats leave on Sunday",
    ]
    decide = Decider()
    entry, checked = await check(meant, "Ada lives in Madrid", decide)
    assert decide.shown == [["Ada lives in Lisbon", "Ada lives in Porto"]]
    assert (checked.action, checked.superseded, checked.note) == ("keep", (), None)
    assert entry.content == "Ada lives in Madrid"


async def test_where_nothing_is_near_nobody_is_asked(meant: World) -> None:
    await meant.write("The boats leave on Sunday", USER)
    decide = Decider("supersede")
    _, checked = await check(meant, "Ada lives in Porto", decide)
    assert decide.shown == []
    assert checked == ConflictReport()


async def test_what_only_words_or_only_meaning_bring_near_is_not_shown(meant: World) -> None:
    await meant.write("Ada reports on birds", USER)
    await meant.write("The lady's residence is in Portugal", USER)
    decide = Decider()
    await check(meant, "The report is due on Friday", decide)
    await check(meant, "Her home is in Spain", decide)
    assert decide.shown == []


@pytest.mark.behaviour("D105")
async def test_only_active_older_entries_of_its_scope_and_type_are_shown(world: World) -> None:
    shown = await world.write("Ada lives in Lisbon", USER)
    retired = await world.write("Ada lives in Beja", USER)
    await world.engine.entries.invalidate(TENANT, retired.id, None)
    await world.write("Ada lives in Evora", USER, expires_at=HOUR)
    world.clock.advance(2 * HOUR)
    await world.write("Ada lives in Braga", ORG)
    await world.write("Ada lives in Tomar", USER, type="user")
    moment = world.clock.advance()
    world.clock.advance()
    await world.write("Ada lives in Porto", USER)
    decide = Decider("supersede")
    entry, checked = await check(world, "Ada lives in Faro", decide, created_at=moment)
    assert decide.shown == [["Ada lives in Lisbon"]]
    assert checked.superseded == (shown.id,)
    assert sorted(await world.browse(USER)) == [
        "Ada lives in Faro",
        "Ada lives in Porto",
        "Ada lives in Tomar",
    ]
    (link,) = await world.engine.relations.find(TENANT, source_id=entry.id)
    assert (link.label, link.target_id) == ("supersedes", shown.id)


@SCOPES
@pytest.mark.behaviour("D106")
async def test_what_is_decided_to_be_superseded_gives_way(world: World, scope: Scope) -> None:
    old, other = (
        await world.write("Ada lives in Lisbon", scope),
        await world.write("Ada lives in Porto", scope),
    )
    entry, checked = await check(
        world, "Ada lives in Faro", Decider(Resolution("supersede", ids=[old.id])), scope
    )
    assert sorted(await world.browse(scope)) == ["Ada lives in Faro", "Ada lives in Porto"]
    assert (checked.action, checked.superseded, checked.note) == ("supersede", (old.id,), None)
    await check(world, "Ada lives in Beja", Decider("supersede"), scope)
    assert await world.browse(scope) == ["Ada lives in Beja"]
    assert {one.target_id for one in await world.engine.relations.find(TENANT, label="supersedes")} == {
        old.id,
        other.id,
        entry.id,
    }


@SCOPES
async def test_what_is_merged_says_what_was_decided_in_the_place_of_all(world: World, scope: Scope) -> None:
    old = await world.write("Ada lives in Lisbon", scope)
    entry, checked = await check(
        world,
        "Ada lives in Porto",
        Decider(Resolution("merge", content="Ada moved from Lisbon to Porto")),
        scope,
        tags=["home"],
    )
    assert (entry.content, entry.tags) == ("Ada moved from Lisbon to Porto", ["home"])
    assert await world.browse(scope) == ["Ada moved from Lisbon to Porto"]
    assert (checked.action, checked.superseded) == ("merge", (old.id,))


@pytest.mark.parametrize(
    ("answer", "note"),
    [
        (RuntimeError("no model"), r"`resolve` failed \(no model\)"),
        (RuntimeError(), r"`resolve` failed \(RuntimeError\)"),
        (None, "was refused"),
        ("drop", "was refused"),
        ("merge", "merged them without a text"),
        (Resolution("merge"), "merged them without a text"),
        (Resolution("merge", content=""), "is empty. An entry needs"),
        (Resolution("merge", content=7), "content"),  # type: ignore[arg-type]
        (Resolution("supersede", ids=[]), "named no entry"),
        (Resolution("supersede", ids=["0195d3b0-7e2a-7cc0-8000-000000000000"]), "that were not shown"),
        (Resolution("supersede", ids="all"), "was refused"),
        (Resolution("supersede", ids=7), "was refused"),  # type: ignore[arg-type]
        (Resolution("supersede", ids=[{}]), "was refused"),  # type: ignore[list-item]
    ],
    ids=repr,
)
@pytest.mark.behaviour("D110")
async def test_a_decider_that_fails_or_talks_nonsense_leaves_all_of_them(
    world: World, answer: object, note: str
) -> None:
    old = await world.write("Ada lives in Lisbon", USER)
    _, checked = await check(world, "Ada lives in Porto", Decider(answer))
    assert sorted(await world.browse(USER)) == ["Ada lives in Lisbon", "Ada lives in Porto"]
    assert (checked.action, checked.superseded) == ("keep", ())
    assert [one.id for one in checked.found] == [old.id]
    assert checked.note is not None
    with pytest.raises(AssertionError, match=note):
        raise AssertionError(checked.note)


async def test_a_decider_that_is_late_leaves_all_of_them() -> None:
    async def for_ever(*_: object) -> object:
        return await asyncio.Event().wait()

    async with World(settings=EngineSettings(advice=timedelta(milliseconds=10))) as world:
        await world.write("Ada lives in Lisbon", USER)
        _, checked = await check(world, "Ada lives in Porto", Decider(for_ever))
        assert checked.note == "`resolve` failed (it took too long): all of them stay active"
        assert len(await world.browse(USER)) == 2


@SCOPES
async def test_what_is_edited_or_gone_since_it_was_shown_stays_as_it_is(world: World, scope: Scope) -> None:
    old, other, gone = [
        await world.write(f"Ada lives in {place}", scope) for place in ("Lisbon", "Porto", "Beja")
    ]

    async def meanwhile(draft: EntryDraft, entries: list[Entry]) -> object:
        await world.update(other, content="Ada works in Porto")
        await world.delete(gone)
        return Resolution("merge", content="Ada lives by the sea")

    _, checked = await check(world, "Ada lives in Faro", Decider(meanwhile), scope)
    assert sorted(await world.browse(scope)) == ["Ada lives by the sea", "Ada works in Porto"]
    assert checked.superseded == (old.id,)
    assert checked.note is not None
    assert checked.note.startswith("changed since it was shown, so it stays active: ")
    assert {other.id, gone.id} == set(checked.note.split(": ")[1].split(", "))


async def test_what_a_decider_does_to_its_copies_is_its_own(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)

    async def scribbles(draft: EntryDraft, entries: list[Entry]) -> object:
        entries[0].tags.append("x")
        entries[0].id = "another"
        return "supersede"

    _, checked = await check(world, "Ada lives in Porto", Decider(scribbles))
    assert checked.superseded == (old.id,)
    assert checked.found[0].tags == []


async def test_at_most_five_are_shown_the_nearest_first(world: World) -> None:
    for n in range(7):
        await world.write(f"Ada lives in house {n}", USER)
    await world.write("Ada lives in house number ten", USER)
    decide = Decider()
    await check(world, "Ada lives in house number ten", decide)
    ((first, *others),) = decide.shown
    assert first == "Ada lives in house number ten"
    assert len(others) == 4


@SCOPES
async def test_a_repeat_under_a_key_is_answered_the_first_and_nobody_is_asked(
    world: World, scope: Scope
) -> None:
    await world.write("Ada lives in Lisbon", scope)
    first, _ = await check(
        world,
        "Ada lives in Porto",
        Decider(Resolution("merge", content="Ada moved to Porto")),
        scope,
        key="home",
    )
    decide = Decider("keep")
    again, checked = await check(world, "Ada lives in Porto", decide, scope, key="home")
    assert (again.id, again.content) == (first.id, "Ada moved to Porto")
    assert (decide.shown, checked) == ([], ConflictReport())
    with pytest.raises(Conflict, match="another entry"):
        await check(world, "Ada lives in Faro", decide, scope, key="home")
    await world.delete(first)
    with pytest.raises(Conflict, match="was deleted at"):
        await check(world, "Ada lives in Porto", decide, scope, key="home")
    assert decide.shown == []
    new, _ = await check(world, "Ada lives in Porto", decide, scope, key="home", revive=True)
    assert await world.browse(scope) == [new.content]


async def test_it_is_written_though_a_store_that_may_hold_what_is_near_is_away(world: World) -> None:
    await world.write("Ada lives in Lisbon", USER)
    world.long.down = True
    entry, checked = await check(world, "Ada lives in Porto", Decider("supersede"))
    assert await world.get(entry) is not None
    assert checked.superseded
    for step, copies_answer in (("search", True), ("read.home", False)):
        await world.settled()
        world.mid.fails_before.add(step)
        _, checked = await check(world, f"Ada lives in Faro by {step}", Decider("supersede"))
        assert bool(checked.superseded) is copies_answer
        assert checked.note is not None
        assert "there may be more similar entries" in checked.note
    world.heal()
    assert len(await world.browse(USER)) == 2


async def test_a_moment_that_lies_ahead_is_refused_before_anybody_is_asked(world: World) -> None:
    await world.write("Ada lives in Lisbon", USER)
    decide = Decider()
    with pytest.raises(InvalidInput, match="created_at"):
        await check(world, "Ada lives in Porto", decide, created_at=world.clock() + HOUR)
    assert decide.shown == []


async def test_a_vector_of_another_embedder_tells_nothing(meant: World) -> None:
    """By words alone then."""
    old = await meant.write("Ada lives in Lisbon", USER)
    meant.engine.embeddings.is_own = lambda model: False  # type: ignore[method-assign]
    _, checked = await check(meant, "Ada lives in Porto")
    assert [one.id for one in checked.found] == [old.id]


async def test_what_cannot_be_read_any_more_stays_and_the_entry_is_written(world: World) -> None:
    damaged, away, old = [
        await world.write(f"Ada lives in {place}", USER) for place in ("Lisbon", "Porto", "Beja")
    ]
    await world.move(away, "long")

    async def meanwhile(draft: EntryDraft, entries: list[Entry]) -> object:
        world.mid.state.damage("entries", Key(TENANT, damaged.id))
        world.long.fails_before.add("read.home")
        return "supersede"

    _, checked = await check(world, "Ada lives in Faro", Decider(meanwhile))
    world.heal()
    assert checked.superseded == (old.id,)
    assert {damaged.id, away.id} == set((checked.note or "").split(": ")[1].split(", "))
    assert sorted(await world.browse(USER)) == ["Ada lives in Faro", "Ada lives in Porto"]


async def test_where_nothing_gave_way_nothing_was_superseded(world: World) -> None:
    old = await world.write("Ada lives in Lisbon", USER)

    async def meanwhile(draft: EntryDraft, entries: list[Entry]) -> object:
        await world.update(old, content="Ada works in Lisbon")
        return "supersede"

    _, checked = await check(world, "Ada lives in Faro", Decider(meanwhile))
    assert (checked.action, checked.superseded) == ("keep", ())
    assert checked.note == f"changed since it was shown, so it stays active: {old.id}"
