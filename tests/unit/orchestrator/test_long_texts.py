"""Passages of long entries are those of what the entries say, whatever happens: by
themselves, and in drawn histories of two processes.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

import pytest

from memory.domain.entry import EntryDraft
from memory.domain.errors import MemoryTiersError
from memory.domain.ids import keyed_id
from memory.domain.scope import Scope
from memory.orchestrator.embeddings import passages
from memory.orchestrator.embeddings.passages import part_key
from memory.orchestrator.engine import Engine
from memory.orchestrator.erasure import erasure
from memory.orchestrator.storage import entry_records, outbox
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_PASSAGES, MODEL, SAID
from memory.orchestrator.storage.kinds import KINDS, Kind, Kinds
from memory.policies import passage_splitting as policy
from memory.policies.entry_query import EntryQuery
from memory.policies.passage_splitting import FINE, PART, fine_parts_of
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.embedder import Fingerprint
from memory.ports.record import Key, Record, Role, Tombstone
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.long_texts import astray
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.meant import DIMENSIONS, FILLING, Embedder, embedder
from tests.unit.orchestrator.world import DURABLE, ORG, SESSION, TENANT, USER, VOLATILE, World

LONG = f"{FILLING * 60}In the end a ship crashed."
LONGER = f"{FILLING * 30}tea. {LONG}"
PLAIN = replace(DURABLE, semantic=False)
SCOPES = (USER, SESSION, ORG)


def _world(short: Capabilities = DURABLE, mid: Capabilities = DURABLE, long: Capabilities = DURABLE) -> World:
    return World(short=short, mid=mid, long=long, embedder=Embedder())


async def _passages(world: World) -> list[int]:
    """How many passages stand in short, mid and long."""
    return [len(await world.rows(store, ENTRY_PASSAGES)) for store in world.stores]


async def _settled(world: World) -> list[str]:
    """What is astray once all is done that is owed."""
    return await astray(await world.settled())


@pytest.mark.parametrize(
    ("stores", "where"),
    [
        ({}, "long"),
        ({"long": PLAIN}, "mid"),
        ({"short": VOLATILE, "long": PLAIN, "mid": PLAIN}, "mid"),
        ({"mid": PLAIN}, "long"),
    ],
)
@pytest.mark.parametrize("scope", [USER, SESSION])
async def test_they_are_in_one_store_and_stay_there_when_their_entry_moves(
    stores: dict[str, Capabilities], where: str, scope: Scope
) -> None:
    async with _world(**stores) as world:
        entry = await world.write(LONG, scope)
        await world.write("x" * PART, scope)
        there = [int(store.name == where) for store in world.stores]
        assert await _passages(world) == there
        assert await world.search("boat outage", scope, mode="semantic") == [LONG]
        await world.move(entry, "long")
        assert await world.owed() == 0
        assert await _passages(world) == there
        assert await world.search("boat outage", scope, mode="semantic") == [LONG]


async def test_what_an_entry_says_no_more_finds_nothing_though_its_passage_stands() -> None:
    async with _world() as world:
        entry = await world.write(LONG, USER)
        world.long.fails_before.add("passages.write")
        await world.update(entry, content=LONG.replace("ship crashed", "tea went cold"))
        assert await _passages(world) == [0, 0, 1]
        assert await world.search("boat", USER, mode="semantic") == []
        assert await _settled(world) == []
        assert len(await world.search("beverage", USER, mode="semantic")) == 1


async def test_tags_change_a_version_and_no_passage() -> None:
    async with _world() as world:
        entry = await world.write(LONG, USER)
        (before,) = await world.rows(world.long, ENTRY_PASSAGES)
        texts = len(embedder(world).batches)
        await world.update(entry, tags=["one"])
        await world.engine.entries.invalidate(TENANT, (await world.write(LONG, SESSION)).id, None)
        assert len(embedder(world).batches) == texts + 2, "of the second entry, and of its parts"
        assert before in await world.rows(world.long, ENTRY_PASSAGES)
        assert await _settled(world) == []


async def test_a_write_without_the_store_of_passages_owes_them_and_moves_once_it_is_back() -> None:
    async with _world() as world:
        world.long.down = True
        entry = await world.write(LONG, SESSION)
        assert await world.owed() == 1
        assert await world.move(entry, "mid") == "postponed"
        assert (await world.get(entry)) == entry
        found = await world.engine.entry_search.search(EntryQuery(TENANT, (SESSION,)), "crashed ship")
        assert [hit.entry.id for hit in found] == [entry.id]
        assert set(found.degraded) == {
            "store 'long': fails before passages.search",
            "store 'long': fails before search",
        }
        world.heal()
        await world.engine.maintenance.sweep()
        assert await _passages(world) == [0, 0, 1]
        assert await world.move(entry, "mid") == "moved"


@pytest.mark.parametrize("store", ["mid", "long"])
async def test_a_deletion_without_a_store_of_passages_owes_their_end(store: str) -> None:
    async with _world() as world:
        entry = await world.write(LONGER, SESSION)

        async def goes() -> None:
            getattr(world, store).down = True

        world.mid.after["hold.read"] = goes  # once it has said that nothing is held
        assert await world.delete(entry)
        assert await world.owed() == 1
        assert await _settled(world) == []
        assert await _passages(world) == [0, 0, 0]


async def test_a_deletion_ends_those_in_a_store_that_had_them_once() -> None:
    async with _world(long=PLAIN) as world:
        entry = await world.write(LONGER, USER)
        assert await _passages(world) == [0, 2, 0]
        later = _world()
        later.short, later.mid = world.short, world.mid
        later.engine = later.another_engine()
        async with later:
            await later.update(entry, content=LONG)
            assert await _passages(later) == [0, 2, 1]
            assert await later.search("beverage", USER, mode="semantic") == []
            await later.delete(entry)
            assert await _passages(later) == [0, 0, 0]


async def test_of_a_damaged_entry_all_parts_go_that_ever_were() -> None:
    async with _world() as world:
        entry = await world.write("tea, and more tea. " * (60 * FINE // 19), SESSION)
        assert sum(await _passages(world)) > 55
        world.short.state.damage("entries", Key(TENANT, entry.id))
        assert await world.delete(entry)
        assert await _passages(world) == [0, 0, 0]
        assert await world.owed() == 0


async def test_a_slow_maker_brings_nothing_of_what_was_deleted_meanwhile() -> None:
    async with _world() as world:

        async def delete() -> None:
            (entry,) = await world.engine.browser.browse(EntryQuery(TENANT, (USER,)))
            assert await world.delete(entry)

        async def while_its_parts_are_embedded() -> None:
            embedder(world).meanwhile = delete

        world.mid.after["write.home"] = while_its_parts_are_embedded
        entry = await world.write(LONG, USER)
        assert await _passages(world) == [0, 0, 0]
        for part, _ in enumerate(fine_parts_of(LONG)):
            row = await world.standing(world.long, part_key(Key(TENANT, entry.id), part).id, ENTRY_PASSAGES)
            assert isinstance(row, Tombstone)


async def test_a_slow_maker_brings_nothing_of_what_was_deleted_unread_meanwhile() -> None:
    """Nobody could read how many parts it has, and none of them stood yet."""
    async with _world() as world:

        async def damaged_and_deleted() -> None:
            (home,) = await world.rows(world.short, ENTRIES)
            world.short.state.damage("entries", home.key)
            assert await (await world.another_process()).deletion.delete(TENANT, home.key.id)

        async def while_its_parts_are_embedded() -> None:
            embedder(world).meanwhile = damaged_and_deleted

        world.short.after["write.home"] = while_its_parts_are_embedded
        await world.write(LONG, SESSION)
        assert await _passages(world) == [0, 0, 0]
        assert await world.owed() == 0


@pytest.mark.parametrize("scope", SCOPES, ids=str)
async def test_what_is_born_again_while_its_scope_is_erased_has_all_its_passages_and_copies(
    scope: Scope,
) -> None:
    """Its first store is done with the erasure before the others are."""
    async with _world() as world:

        async def erase() -> None:
            await (await world.another_process()).erasure.erase_scope(TENANT, scope)

        await world.write(LONG, scope, key="k")
        embedder(world).meanwhile = erase
        await world.write(LONG, scope, key="k", revive=True)
        assert embedder(world).meanwhile is None
        assert await _settled(world) == []
        assert await _passages(world) == [0, 0, 1]
        copies = [row.role for row in await world.rows(world.long, ENTRIES)]
        assert copies == ([] if scope == SESSION else [Role.REPLICA])


PAGES = Collection(
    "pages",
    (Field(MODEL, FieldType.TEXT), Field(SAID, FieldType.INTEGER)),
    (TextPart("content", 1.0),),
    vector=True,
)
PAGE_PARTS = Collection("page_parts", ENTRY_PASSAGES.fields, vector=True)
TABLE = Kinds(*KINDS, Kind(PAGES, passages=PAGE_PARTS), Kind(PAGE_PARTS, exported=False))


async def test_a_store_that_others_do_not_agree_with_gets_the_passages_at_once() -> None:
    """Of an erased scope the other stores forgot the generation: they were set back."""
    async with _world() as world:
        await world.write("tea", USER)
        await world.engine.erasure.erase_scope(TENANT, USER)
        for replaced in (world.short, world.mid):
            replaced.state.wipe()
        await world.write(LONG, USER)
        await world.engine.deliveries.flush()
        assert await world.owed() == 0
        assert await _passages(world) == [0, 0, 1]
        assert await world.search("boat", USER, mode="semantic") == [LONG]


async def test_a_kind_more_has_passages_by_its_line_in_the_table() -> None:
    async with World(embedder=Embedder(), kinds=TABLE) as world:
        engine, now = world.engine, world.clock()
        for scope in (USER, SESSION):
            page = Record(
                Key(TENANT, keyed_id(TENANT, scope.text, "p")),
                scope.text,
                0,
                now,
                now,
                texts={"content": LONG},
            )
            assert (await engine.transfer.restore(TENANT, TABLE.of(PAGES), page)).fate == "written"
        assert [len(await world.rows(store, PAGE_PARTS)) for store in world.stores] == [0, 0, 2]
        world.embedder = Turned()
        engine = world.another_engine()
        await engine.open(reindex=True)
        assert (await engine.reindexing.run()).ended
        digest = (await world.embedder.fingerprint()).digest
        assert [row.fields[MODEL] for row in await world.rows(world.long, PAGE_PARTS)] == [digest] * 2
        assert await engine.erasure.delete(PAGES, page.key)
        await engine.erasure.erase_scope(TENANT, USER)
        assert await world.rows(world.long, PAGE_PARTS) == []
        assert await engine.maintenance.count_pending() == 0


async def test_reindex_makes_what_was_written_before_there_were_passages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with _world() as world:
        monkeypatch.setattr(policy, "PART", 1_000_000)
        for scope in SCOPES:
            await world.write(LONG, scope)
        assert await _passages(world) == [0, 0, 0]
        monkeypatch.undo()
        assert (await world.engine.reindexing.run()).made == len(SCOPES)
        assert await astray(world.engine) == []
        assert (await world.engine.reindexing.run()).made == 0


class Turned(Embedder):
    """Another one, which means the same."""

    async def fingerprint(self) -> Fingerprint:
        return Fingerprint("other words", DIMENSIONS)


# -- drawn -----------------------------------------------------------------------------

TEXTS = (
    "tea",
    "a heron",
    LONG,
    LONGER,
    f"{LONG} tea {LONGER}",
    "x" * (PART + 1),
    f"{'The bird drank tea. ' * 60}",
)
FAILING = (
    *(
        "passages.write",
        "owed.settle",
        "write.home",
        "update.home",
        "delete.home",
        "derive.home",
        "replica.deliver",
        "version.keep",
    ),
    *(
        "move.copy",
        "move.release",
        "move.arrive",
        "erase.delete",
        "erase.raise",
        "delete.elsewhere",
        "write.revive",
    ),
)


class Told:
    """A history that a seed draws: two processes over stores that fail, while texts are
    embedded too.
    """

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"long texts {seed}")  # noqa: S311
        mid, long = self.draw.choice([(DURABLE, DURABLE), (DURABLE, PLAIN), (PLAIN, DURABLE), (PLAIN, PLAIN)])
        self.world = _world(mid=mid, long=long)
        self.engines: list[Engine] = []
        self.busy: list[Engine] = []

    async def played(self) -> list[str]:
        async with self.world:
            self.engines = [self.world.engine, await self.world.another_process()]
            for _ in range(self.draw.randrange(5, 30)):
                self.world.heal()
                self.world.clock.advance(timedelta(seconds=1))
                if self.draw.random() < 0.3:
                    store = self.draw.choice(self.world.stores)
                    self.draw.choice([store.fails_before, store.fails_after]).add(self.draw.choice(FAILING))
                if self.draw.random() < 0.3:
                    embedder(self.world).meanwhile = self.draw.choice([self.step, self.once_more])
                await self.step()
            embedder(self.world).meanwhile = None
            return await _settled(self.world)

    async def step(self) -> None:
        """A call of a process that is not in the middle of one."""
        engine = self.draw.choice([engine for engine in self.engines if engine not in self.busy])
        self.busy.append(engine)
        with suppress(MemoryTiersError):
            await self.draw.choice(self.calls)(engine)
        self.busy.remove(engine)

    async def once_more(self) -> None:
        """Not while the text is embedded, while its parts are."""
        embedder(self.world).meanwhile = self.step

    @property
    def calls(self) -> list[Callable[[Engine], Awaitable[object]]]:
        scope, key, text = self.draw.choice(SCOPES), self.draw.choice(["k1", "k2"]), self.draw.choice(TEXTS)
        entry_id, tier = keyed_id(TENANT, scope.text, key), self.draw.choice(["mid", "long"])

        def write(engine: Engine) -> Awaitable[object]:
            return engine.entries.write(TENANT, EntryDraft(scope=scope, content=text, key=key), revive=True)

        def edit(engine: Engine) -> Awaitable[object]:
            return engine.entries.update(TENANT, entry_id, {"content": text})

        return [
            *(write, write, edit, edit),
            lambda engine: engine.entries.update(TENANT, entry_id, {"tags": [text[:3]]}),
            lambda engine: engine.entries.invalidate(TENANT, entry_id, None),
            lambda engine: engine.derivation.promote(
                TENANT, entry_id, ORG, delete_original=self.draw.random() < 0.5
            ),
            lambda engine: engine.tier_mover.move(ENTRIES, Key(TENANT, entry_id), tier),
            lambda engine: engine.promotion.end_session(TENANT, SESSION),
            lambda engine: engine.deletion.delete(TENANT, entry_id),
            lambda engine: engine.erasure.erase_scope(TENANT, scope),
            lambda engine: engine.entry_search.search(EntryQuery(TENANT, (scope,)), "boat"),
            lambda engine: engine.maintenance.sweep(),
            lambda engine: engine.reindexing.run(),
        ]


async def test_they_are_those_of_the_entries_whatever_happens() -> None:
    for seed in range(drawn(400, 20, proof=5_000)):
        assert await Told(seed).played() == [], f"in history {seed}"


MUTATIONS = {
    "a text owes nothing": Mutation(
        outbox, "write_steps", "(*owed, PendingStep(MAKE_PASSAGES, MAKE_PASSAGES))", "owed"
    ),
    "a deletion owes nothing": Mutation(erasure, "Erasure.deletion", "*passages_left(kind, record)", ""),
    "an edit keeps what there was": Mutation(
        entry_records, "apply_changes", "fields.pop(SAID, None)", "fields[SAID] = said_at(record)"
    ),
    "what was more parts once is forgotten": Mutation(
        entry_records, "apply_changes", "max(parts_before(record), len(parts_in(record)))", "0"
    ),
    "a passage has no generation": Mutation(
        passages, "PassageBuilder._passage", "generation=record.generation,", ""
    ),
}


@pytest.mark.parametrize("name", noticed.cases("long texts/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(lambda seed: Told(seed).played(), 200, f"long texts/{name}")
