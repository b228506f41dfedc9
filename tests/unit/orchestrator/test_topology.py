"""Which stores may serve which tiers, and whose vectors they hold."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.adapters.wrappers import latecomer
from memory.adapters.wrappers.latecomer import DeferredOpen
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import ConfigError, EmbedderMismatch, NotOpen, StoreTimeout, StoreUnavailable
from memory.domain.scope import Scope
from memory.orchestrator.engine import Engine
from memory.orchestrator.retrieval.pool import build_pool
from memory.orchestrator.storage import split
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_PASSAGES
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.topology import Topology
from memory.policies.entry_query import EntryQuery
from memory.ports.candidate_scan import measure_heads
from memory.ports.candidates import Candidates, Statistics
from memory.ports.capabilities import CACHE_NEEDS, Capabilities
from memory.ports.collections import Collection
from memory.ports.embedder import Embedder, Fingerprint
from memory.ports.query import Head, within
from memory.ports.record import Key, Partition, Record, Role, pack_vector
from memory.ports.store import Store
from tests.unit.orchestrator.world import DURABLE, SESSION, TENANT, USER, VOLATILE, Clock, Flaky, World


class Letters:
    """An embedder whose vectors say how often a, b and c occur."""

    def __init__(self, model: str = "letters", dimensions: int = 3) -> None:
        self._fingerprint = Fingerprint(model, dimensions)

    async def fingerprint(self) -> Fingerprint:
        return self._fingerprint

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        counted = [[float(text.count(letter)) for letter in "abc"] for text in texts]
        return [pack_vector([n / math.hypot(*row) for n in row]) if any(row) else b"" for row in counted]


def embedder(model: str = "letters", dimensions: int = 3) -> Embedder:
    return Letters(model, dimensions)


async def test_a_home_must_be_durable_and_a_cache_need_not(world: World) -> None:
    volatile = InMemoryStore("volatile")
    durable = InMemoryStore("durable", capabilities=DURABLE)
    placings: list[dict[str, Store]] = [
        {"short": durable, "mid": volatile, "long": durable},
        {"short": durable, "mid": durable, "long": volatile},
    ]
    for tiers in placings:
        with pytest.raises(ConfigError, match="on store 'volatile' lacks durable"):
            await Topology(short=tiers["short"], mid=tiers["mid"], long=tiers["long"]).open(KINDS.collections)
    await Topology(short=volatile, mid=durable, long=durable).open(KINDS.collections)


async def test_every_problem_is_named_at_once() -> None:
    weak = InMemoryStore("weak", capabilities=replace(DURABLE, filter=False, order=False))
    with pytest.raises(
        ConfigError, match="tier 'short' on store 'weak' lacks filter, order; tier 'mid' on store 'weak'"
    ):
        await Topology(short=weak, mid=weak, long=weak).open(KINDS.collections)


async def test_a_cache_must_be_able_to_decide_conditions() -> None:
    durable = InMemoryStore("durable", capabilities=DURABLE)
    weak = InMemoryStore("weak", capabilities=replace(CACHE_NEEDS, conditional=False))
    with pytest.raises(ConfigError, match="tier 'short' on store 'weak' lacks conditional"):
        await Topology(short=weak, mid=durable, long=durable).open(KINDS.collections)


async def test_everything_may_be_volatile_where_loss_is_accepted() -> None:
    stores = [InMemoryStore(name) for name in ("short", "mid", "long")]
    topology = Topology(short=stores[0], mid=stores[1], long=stores[2], accept_loss=True)
    await topology.open(KINDS.collections)
    assert topology.cache is None
    assert topology.homes == tuple(stores)


async def test_one_store_may_serve_every_tier_and_is_opened_once() -> None:
    store = InMemoryStore("one", capabilities=DURABLE)
    topology = Topology(short=store, mid=store, long=store)
    await topology.open(KINDS.collections)
    assert topology.stores == topology.homes == (store,)
    assert topology.tiers_of(store) == ("short", "mid", "long")
    assert topology.later(store) == ()


async def test_a_failed_opening_closes_what_was_opened_and_may_be_repeated() -> None:
    class Fails(InMemoryStore):
        broken = True

        async def open(self, collections: object) -> None:
            if self.broken:
                raise StoreUnavailable(self.name, "not there")
            await super().open(KINDS.collections)

    first, second = InMemoryStore("first", capabilities=DURABLE), Fails("second", capabilities=DURABLE)
    topology = Topology(short=first, mid=second, long=second)
    with pytest.raises(StoreUnavailable):
        await topology.open(KINDS.collections)
    with pytest.raises(NotOpen):
        await first.check()
    second.broken = False
    await topology.open(KINDS.collections)
    assert (await first.check()).ok


async def test_a_store_that_does_not_close_keeps_no_other_open(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hangs(InMemoryStore):
        async def close(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(split, "CLOSES_WITHIN", timedelta(0))
    first, second = Hangs("first", capabilities=DURABLE), InMemoryStore("second", capabilities=DURABLE)
    topology = Topology(short=first, mid=second, long=second)
    await topology.open(KINDS.collections)
    with pytest.raises(StoreTimeout, match="'first': it did not close"):
        await topology.close()
    with pytest.raises(NotOpen):
        await second.check()


async def test_vectors_of_another_embedder_are_refused_and_the_stores_closed() -> None:
    world = World(embedder=embedder())
    async with world:
        await world.write("abc")
    for other in (embedder("other"), embedder(dimensions=4)):
        world.embedder = other
        with pytest.raises(EmbedderMismatch, match="letters") as caught:
            await world.another_engine().open()
        assert caught.value.stored == "letters (3 dimensions, cosine)"
        with pytest.raises(NotOpen):
            await world.short.check()
    world.embedder = embedder()
    same = world.another_engine()
    await same.open()
    note = await same.embeddings.read_note_in(world.long)
    assert note is not None
    assert note.model == await world.embedder.fingerprint()


async def test_a_store_opened_without_an_embedder_takes_any_later() -> None:
    world = World()
    async with world:
        assert world.engine.embeddings.on is False
        assert await world.engine.embeddings.read_note_in(world.long) is None
        await world.write("abc")
        assert await world.search("abc") == ["abc"]
    world.embedder = embedder()
    engine = world.another_engine()
    await engine.open()
    assert engine.embeddings.on is True


async def test_an_embedder_with_more_dimensions_than_a_store_takes_is_refused() -> None:
    world = World(long=replace(DURABLE, max_vector_dims=2), embedder=embedder())
    with pytest.raises(ConfigError, match="at most 2 dimensions"):
        await world.engine.open()


async def test_stores_that_take_no_vectors_are_not_asked_about_them() -> None:
    async with World(short=replace(DURABLE, semantic=False), embedder=embedder()) as world:
        assert await world.engine.embeddings.read_note_in(world.short) is None
        await world.write("aaa")
        assert await world.search("aaa") == ["aaa"]


async def test_entries_are_found_by_meaning_and_an_edit_changes_theirs() -> None:
    async with World(embedder=embedder()) as world:
        a = await world.write("aaaa", scope=USER)
        await world.write("bbbb", scope=USER)
        await world.write("zzzz", scope=USER)  # has no vector
        hits = await world.engine.entry_search.search(
            EntryQuery(TENANT, (USER,), limit=1), "aa", explain=True
        )
        assert [(h.entry.content, h.explanation["ranks"]["semantic"]) for h in hits] == [("aaaa", 1)]
        await world.update(a, content="cccc")
        assert (await world.search("ccc", USER))[0] == "cccc"
        assert (await world.search("bbb", USER))[0] == "bbbb"
        assert await world.search("qqqq", USER) == []


async def test_a_volatile_short_store_holds_no_vectors_to_disagree_about() -> None:
    async with World(short=VOLATILE, embedder=embedder()) as world:
        await world.write("aaaa", scope=SESSION)
        assert await world.search("aa") == ["aaaa"]


@pytest.mark.parametrize(
    "short", [replace(DURABLE, semantic=False), replace(DURABLE, semantic=False, lexical=False), VOLATILE]
)
async def test_entries_of_a_session_are_found_by_meaning_where_their_home_has_no_index_for_it(
    short: Capabilities,
) -> None:
    async with World(short=short, mid=replace(DURABLE, semantic=False), embedder=embedder()) as world:
        for content in ("aaaa", "bbbb", "abab"):
            await world.write(content, scope=SESSION)
        await world.write("aaab", scope=USER)
        both = await world.engine.entry_search.search(
            EntryQuery(TENANT, (SESSION, USER), limit=2), "aa", explain=True
        )
        assert [h.entry.content for h in both] == ["aaaa", "aaab"]
        assert all(h.explanation["ranks"]["semantic"] for h in both)


# -- who is asked ----------------------------------------------------------------------


def _listened(world: World) -> list[tuple[str, str, Candidates | None]]:
    """What the stores are asked from now on: by name, method and, of candidates, the
    question.
    """
    heard: list[tuple[str, str, Candidates | None]] = []

    def listen(store: Flaky) -> None:
        original = store.on_call

        async def call(method: str, *args: Any, **kwargs: Any) -> Any:
            heard.append((store.name, method, args[0] if method == "candidates" else None))
            return await original(method, *args, **kwargs)

        store.on_call = call  # type: ignore[method-assign]

    for store in (world.short, world.mid, world.long):
        listen(store)
    return heard


async def _asked(world: World, *scopes: Scope, limit: int = 10) -> list[tuple[str, str, Candidates | None]]:
    """Who was asked for entries, and what; beside these the one store of passages was
    asked for such, once.
    """
    heard = _listened(world)
    assert await world.engine.entry_search.search(EntryQuery(TENANT, scopes, limit=limit), "aa bb")
    asked = [one for one in heard if one[1] in ("candidates", "search")]
    passages = [one for one in asked if one[2] is not None and one[2].collection is ENTRY_PASSAGES]
    assert [(name, question.limit) for name, _, question in passages if question is not None] == [
        ("long", 3 * max(3 * limit, 50))
    ]
    return [one for one in asked if one not in passages]


async def test_only_stores_that_can_hold_the_scope_are_asked_each_once_in_the_direction_of_moves() -> None:
    async with World(embedder=embedder()) as world:
        await world.write("aa bb", scope=USER)
        await world.write("aa bb", scope=SESSION)
        assert [(name, method) for name, method, _ in await _asked(world, USER)] == [
            ("mid", "candidates"),
            ("long", "candidates"),
        ]
    async with World(embedder=embedder()) as world:
        await world.write("aa bb", scope=SESSION)
        assert [name for name, _, _ in await _asked(world, SESSION)] == ["short", "mid", "long"]


async def test_a_home_with_an_index_for_meaning_is_asked_by_both_ways_one_without_is_told_what_its_copies_found() -> (
    None
):
    async with World(embedder=embedder()) as world:
        entry = await world.write("aa bb", scope=USER)
        (_, _, mid), _ = await _asked(world, USER)
        assert mid is not None
        assert (mid.near is not None, mid.among) == (True, ())
    async with World(mid=replace(DURABLE, semantic=False), embedder=embedder()) as world:
        entry = await world.write("aa bb", scope=USER)
        copies, (name, _, mid), (last, _, _) = await _asked(world, USER)
        assert (copies[:2], name, last) == (("long", "search"), "mid", "long")
        assert mid is not None
        assert (mid.near, mid.among, mid.text) == (None, (entry.id,), "aa bb")


@pytest.mark.parametrize(("limit", "candidates"), [(1, 50), (16, 50), (17, 51), (200, 600)])
async def test_three_times_as_many_candidates_are_asked_for_as_hits_and_fifty_at_least(
    limit: int, candidates: int
) -> None:
    async with World(embedder=embedder()) as world:
        await world.write("aa bb", scope=USER)
        asked = [
            question for _, _, question in await _asked(world, USER, limit=limit) if question is not None
        ]
        assert {question.limit for question in asked} == {candidates}


def test_of_what_two_stores_answer_the_newer_copy_counts_and_between_equals_the_home() -> None:
    async def found(*answers: tuple[int, Role]) -> int:
        """Which of the answers, each of another store, is taken."""
        asked = Candidates(ENTRIES, within(Partition(TENANT, USER.text)))
        stores = [InMemoryStore(str(n)) for n in range(len(answers))]
        heads = [
            Head(Key(TENANT, "e"), USER.text, version, role, "mid", 0, {}, None, None)
            for version, role in answers
        ]
        measures = [await measure_heads(asked, [head], Statistics()) for head in heads]
        pool = build_pool(list(zip(stores, measures, strict=True)), full=False)
        assert pool is not None
        assert (len(pool.measured), len(pool.stores)) == (1, 1)
        return stores.index(pool.stores[0])  # type: ignore[arg-type]

    async def all_of_them() -> list[int]:
        return [
            await found((1, Role.HOME), (2, Role.ARRIVING)),
            await found((2, Role.HOME), (1, Role.HOME)),
            await found((1, Role.ARRIVING), (1, Role.HOME)),
            await found((1, Role.HOME), (1, Role.ARRIVING)),
        ]

    assert asyncio.run(all_of_them()) == [1, 0, 1, 0]


# -- a store that is away when the others open -----------------------------------------


async def _open_without(world: World, name: str, embedder: Embedder | None = None) -> Engine:
    """An engine that was opened while one of its three stores was away."""
    stores = {
        "short": DeferredOpen(world.short),
        "mid": DeferredOpen(world.mid),
        "long": DeferredOpen(world.long),
    }
    opens, gone = stores[name].inner.open, StoreUnavailable(name, "nobody listens")

    async def away(collections: Sequence[Collection]) -> None:
        if getattr(world, name).down:
            raise gone
        await opens(collections)

    stores[name].inner.open = away  # type: ignore[method-assign]
    getattr(world, name).down = True
    engine = Engine(
        Topology(short=stores["short"], mid=stores["mid"], long=stores["long"]),
        embedder=embedder,
        clock=world.clock,
    )
    await engine.open()
    return engine


@pytest.mark.parametrize("name", ["short", "mid", "long"])
async def test_the_rest_opens_where_one_store_is_away_and_it_joins_when_it_is_back(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 0.0)
    world = World()
    engine = await _open_without(world, name)
    assert list(engine.topology.away) == [name]
    scope = SESSION if name == "mid" else USER
    if name == "mid":
        with pytest.raises(StoreUnavailable):
            await engine.entries.write(TENANT, EntryDraft(scope=USER, content="text"))
    entry = await engine.entries.write(TENANT, EntryDraft(scope=scope, content="text"))
    assert await engine.entries.get(TENANT, entry.id) == entry
    getattr(world, name).down = False
    report = await engine.maintenance.sweep()
    assert report.waiting == ()
    assert engine.topology.away == {}
    assert await engine.maintenance.count_pending() == 0
    await engine.close()


async def test_a_store_that_arrives_with_vectors_of_another_embedder_stays_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 0.0)
    plain = replace(DURABLE, semantic=False)
    world = World(short=plain, mid=plain, embedder=embedder("of yesterday"))
    async with world:
        await world.write("abc", scope=USER)
    world.mid = Flaky("mid", plain, world.clock)  # a new archive, which notes nothing
    engine = await _open_without(world, "long", embedder("of today"))
    world.long.down = False
    await engine.entries.write(TENANT, EntryDraft(scope=USER, content="cab"))
    await engine.deliveries.flush()
    assert await engine.maintenance.count_pending_in(engine.topology.home("mid")) == 1
    assert "of yesterday" in engine.topology.away["long"]


class Claims(Flaky):
    """A store that claims to keep what it holds, cannot be opened while it is `gone`,
    and is then found to forget.
    """

    gone = True

    async def open(self, collections: Sequence[Collection]) -> None:
        await asyncio.sleep(0)
        if self.gone:
            raise StoreUnavailable(self.name, "nobody listens")
        await super().open(collections)
        self._capabilities = VOLATILE


async def test_what_was_to_have_its_home_in_a_store_that_comes_late_and_is_a_cache_is_nowhere_or_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 0.0)
    late, clock = Claims("short", DURABLE), Clock()
    short, mid, long = DeferredOpen(late), Flaky("mid", DURABLE), Flaky("long", DURABLE)
    engine = Engine(Topology(short=short, mid=mid, long=long), clock=clock)
    await engine.open()
    late.gone = False

    async def write(content: str) -> Entry | None:
        try:
            return await engine.entries.write(TENANT, EntryDraft(scope=SESSION, content=content))
        except StoreUnavailable:
            return None

    embedded = engine.embeddings.embed_records

    async def arrives_meanwhile(records: Sequence[Record]) -> list[Record]:
        with contextlib.suppress(StoreUnavailable):
            await short.get(ENTRIES, [])
        return await embedded(records)

    side_by_side = await asyncio.gather(*(write(f"text {n}") for n in range(3)))
    assert side_by_side == [None, None, None]
    await engine.close()
    late.gone, late._capabilities = True, DURABLE
    await engine.open()
    late.gone = False
    with monkeypatch.context() as patched:
        patched.setattr(engine.embeddings, "embed_records", arrives_meanwhile)
        assert await write("text that was on its way") is None
    assert list(late.state.everything("entries")) == []
    entry = await write("text")
    assert entry is not None
    assert (await engine.entries.get(TENANT, entry.id)) == entry
    assert engine.topology.cache is short
    await engine.close()


async def test_a_store_that_comes_late_and_is_kept_out_is_what_it_was_taken_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latecomer, "AGAIN_AFTER", 0.0)
    late = Claims("mid", DURABLE)
    short, long = Flaky("short", DURABLE), Flaky("long", DURABLE)
    topology = Topology(short=short, mid=DeferredOpen(late), long=long)
    engine = Engine(topology)
    await engine.open()
    homes = topology.homes
    late.gone = False
    with pytest.raises(StoreUnavailable, match="durable"):
        await topology.home("mid").get(ENTRIES, [])
    assert topology.homes == homes
    assert topology.cache is None
    await engine.close()
