"""Several stores in one tier: what goes where, and that the whole engine works on them.
The contract itself is in `tests/contract`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import EntryDraft
from memory.domain.errors import ConfigError, NotOpen, StoreUnavailable
from memory.domain.scope import Scope, ScopeKind
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.split import Share, SplitStore
from memory.orchestrator.storage.topology import Topology, refuse_away
from memory.orchestrator.tiering.moves import MoveResult
from memory.policies.entry_query import EntryQuery
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import FOREIGN, HERE, apply_all, delete, id_of, key_of, put, record
from memory.ports.query import MAX_LIMIT, Everywhere, Order, Query, RowType, Tenant, within
from memory.ports.record import Key, Partition, Record, Tombstone
from memory.ports.store import MOST_NAMED
from memory.ports.writes import Outcome, Purge, RaiseGeneration, Write
from tests.unit.orchestrator.world import DAY, DURABLE, Clock, Flaky

SESSION = Partition("acme", "session:s1")


def store(name: str, **changes: object) -> InMemoryStore:
    return InMemoryStore(name, capabilities=replace(DURABLE, **changes))  # type: ignore[arg-type]


async def split(**parts: InMemoryStore) -> tuple[SplitStore, dict[str, InMemoryStore]]:
    """Tenant umbrella apart, sessions apart, one collection apart, and the rest."""
    made = {name: parts.get(name) or store(name) for name in ("umbrella", "sessions", "plain", "rest")}
    shares = (
        Share(made["umbrella"], tenants=frozenset({"umbrella"})),
        Share(made["sessions"], scope_kinds=frozenset({ScopeKind.SESSION})),
        Share(made["plain"], collections=frozenset({"plain"})),
    )
    whole = SplitStore("split", shares, made["rest"])
    await whole.open((*DECLARED, *KINDS.collections))
    return whole, made


async def holding(parts: dict[str, InMemoryStore], n: int, at: Partition) -> set[str]:
    return {
        name
        for name, part in parts.items()
        for c in (SAMPLES, PLAIN)
        if (await part.get(c, [key_of(n, at)]))[0] is not None
    }


async def test_a_record_lives_in_the_first_part_that_takes_it_and_nowhere_else() -> None:
    whole, parts = await split()
    await apply_all(
        whole,
        put(record(1)),
        put(record(2, FOREIGN)),
        put(record(3, SESSION)),
        put(record(4), collection=PLAIN),
    )
    assert await holding(parts, 1, HERE) == {"rest"}
    assert await holding(parts, 2, FOREIGN) == {"umbrella"}
    assert await holding(parts, 3, SESSION) == {"sessions"}
    assert await holding(parts, 4, HERE) == {"plain"}
    assert [
        r is not None
        for r in await whole.get(SAMPLES, [key_of(1), key_of(2, FOREIGN), key_of(3, SESSION), key_of(9)])
    ] == [
        True,
        True,
        True,
        False,
    ]


async def test_a_tombstone_for_what_nobody_holds_keeps_a_late_copy_out_of_every_part() -> None:
    whole, parts = await split()
    await apply_all(whole, delete(1, version=50))
    late = await parts["rest"].apply([put(record(1, version=9))])
    assert late[0].applied, "Always() asks nothing"
    for at in (HERE, SESSION):
        tombstone = await whole.apply([delete(2, version=50, at=at)])
        assert tombstone[0].applied
        refused = await whole.apply([replace(put(record(2, at, version=9)), when=delete(2).when)])
        assert not refused[0].applied
        assert isinstance((await whole.get(SAMPLES, [key_of(2, at)]))[0], Tombstone)


async def test_a_deletion_that_is_refused_where_the_record_was_leaves_nothing_in_the_other_parts() -> None:
    whole, parts = await split()
    await apply_all(whole, delete(1, version=3), put(record(1, version=9)))
    await whole.delete_matching(Query(SAMPLES, within(HERE)), 7)
    before = {name: (await part.get(SAMPLES, [key_of(1)]))[0] for name, part in parts.items()}
    (refused,) = await whole.apply([delete(1, version=10)])
    assert not refused.applied
    assert {name: (await part.get(SAMPLES, [key_of(1)]))[0] for name, part in parts.items()} == before


async def test_a_tombstone_is_purged_with_the_older_ones_of_the_other_parts() -> None:
    whole, parts = await split()
    await apply_all(whole, delete(1, version=3), put(record(1, version=9)))
    await whole.delete_matching(Query(SAMPLES, within(HERE)), 7)
    await apply_all(whole, Purge(SAMPLES, key_of(1), at=10))
    assert await whole.get(SAMPLES, [key_of(1)]) == [None]
    assert await holding(parts, 1, HERE) == set()


async def test_a_generation_raised_in_some_parts_only_is_made_equal_by_the_next_raise() -> None:
    whole, parts = await split()
    await apply_all(
        parts["plain"], RaiseGeneration(HERE), RaiseGeneration(HERE)
    )  # as after a crash between the parts
    (raised,) = await whole.apply([RaiseGeneration(HERE)])
    assert raised.number == 3
    for collection in (SAMPLES, PLAIN):
        (old,) = await whole.apply([put(record(1, generation=2), collection=collection)])
        assert old.reason == "generation"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
@pytest.mark.parametrize("descending", [False, True])
async def test_pages_of_several_parts_are_one_ordered_list_without_loss_or_doubles(
    limit: int, descending: bool
) -> None:
    whole, _ = await split()
    places = (HERE, SESSION)
    for n in range(12):
        here = record(n, places[n % 2])
        await apply_all(
            whole, put(replace(here, created_at=here.created_at - timedelta(seconds=n - n // 3)))
        )  # ties of three
    query = Query(SAMPLES, Tenant("acme"), order=(Order("created_at", descending),), limit=limit)
    found: list[str] = []
    while True:
        page = await whole.query(query)
        assert len(page.records) <= limit
        found += [r.key.id for r in page.records]
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    wanted = sorted(((n // 3, id_of(n, places[n % 2])) for n in range(12)), reverse=descending)
    assert found == [i for _, i in wanted]


async def test_a_page_with_a_damaged_record_at_its_end_loses_nothing_of_the_other_parts() -> None:
    whole, parts = await split()
    await apply_all(
        whole,
        *[put(record(n, HERE)) for n in range(0, 8, 2)],
        *[put(record(n, SESSION)) for n in range(1, 9, 2)],
    )
    parts["rest"].state.damage("samples", key_of(4, HERE))
    query, found = Query(SAMPLES, Tenant("acme"), order=(Order("created_at"),), limit=2), list[str]()
    while True:
        page = await whole.query(query)
        found += [r.key.id for r in page.records]
        if page.cursor is None:
            break
        query = replace(query, cursor=page.cursor)
    assert found == [id_of(n, SESSION if n % 2 else HERE) for n in range(8) if n != 4]


async def test_everywhere_lists_a_tombstone_once_though_each_part_keeps_it() -> None:
    whole, _ = await split()
    await apply_all(whole, delete(1, version=7))
    page = await whole.query(
        Query(SAMPLES, Everywhere(), types=frozenset({RowType.TOMBSTONE}), limit=MAX_LIMIT)
    )
    assert [t.key for t in page.records] == [key_of(1)]


async def test_what_one_part_cannot_do_the_whole_cannot() -> None:
    whole, _ = await split(
        sessions=store(
            "sessions", lexical=False, durable=False, loss_window=timedelta(seconds=2), max_batch=10
        )
    )
    can = whole.capabilities
    assert (can.lexical, can.semantic, can.durable, can.atomic, can.max_batch) == (
        False,
        True,
        False,
        False,
        10,
    )
    assert can.loss_window == timedelta(seconds=2)
    with pytest.raises(ConfigError, match="tier 'mid' on store 'sessions' lacks durable"):
        await Topology(short=whole, mid=whole, long=whole).open(DECLARED)


async def test_losing_what_a_part_acknowledged_can_be_accepted_by_its_name() -> None:
    whole, _ = await split(sessions=store("sessions", durable=False))
    topology = Topology(short=whole, mid=whole, long=whole, accept_loss=("sessions",))
    await topology.open(DECLARED)
    assert topology.cache is None


async def test_a_part_of_one_tier_cannot_serve_another_beside() -> None:
    whole, parts = await split()
    with pytest.raises(
        ConfigError, match="store 'rest' is part of one tier's stores and also serves another tier"
    ):
        await Topology(short=whole, mid=whole, long=parts["rest"]).open(DECLARED)


async def test_an_engine_works_on_a_split_tier_as_on_a_whole_one() -> None:
    mid, parts = await split()
    engine = Engine(Topology(short=store("short"), mid=mid, long=store("long")))
    await engine.open()
    drafts = {
        t: EntryDraft(scope=Scope.user("ann"), content=f"the lantern of {t}") for t in ("acme", "umbrella")
    }
    entries = {t: await engine.entries.write(t, draft) for t, draft in drafts.items()}
    changed = await engine.entries.update(
        "umbrella", entries["umbrella"].id, {"content": "a lantern, mended"}
    )
    assert await parts["umbrella"].count(Query(ENTRIES, Tenant("umbrella"))) != await parts["rest"].count(
        Query(ENTRIES, Tenant("umbrella"))
    )
    for tenant in drafts:
        asked = EntryQuery(tenant, (Scope.user("ann"),))
        assert [e.id for e in await engine.browser.browse(asked)] == [entries[tenant].id]
        assert [h.entry.id for h in await engine.entry_search.search(asked, "lantern")] == [
            entries[tenant].id
        ]
    assert [e.content for e in await engine.entries.history("umbrella", changed.id)] == [
        "the lantern of umbrella",
        "a lantern, mended",
    ]
    assert await engine.deletion.delete("umbrella", changed.id)
    assert await engine.entries.get("umbrella", changed.id) is None
    assert await engine.entries.get("acme", entries["acme"].id) is not None
    await engine.close()


async def test_a_tombstone_beside_the_part_where_the_entry_lives_again_is_forgotten_in_its_time() -> None:
    mid, parts = await split()
    clock = Clock()
    engine = Engine(Topology(short=store("short"), mid=mid, long=store("long")), clock=clock)
    await engine.open()
    draft = EntryDraft(scope=Scope.session("s1"), content="a lantern", key="lantern")
    key = Key("acme", (await engine.entries.write("acme", draft)).id)
    assert await engine.deletion.delete("acme", key.id)
    await engine.entries.write("acme", draft, revive=True)
    assert await engine.tier_mover.move(ENTRIES, key, "mid") is MoveResult.MOVED
    assert isinstance((await parts["rest"].get(ENTRIES, [key]))[0], Tombstone)
    assert isinstance((await parts["sessions"].get(ENTRIES, [key]))[0], Record)
    clock.advance(engine.settings.tombstone_life + timedelta(days=1))
    await engine.maintenance.sweep()
    assert (await parts["rest"].get(ENTRIES, [key]))[0] is None
    assert await engine.entries.get("acme", key.id) is not None
    await engine.close()


async def test_what_a_record_of_any_part_owes_is_counted_and_done() -> None:
    mid, parts = await split()
    long = Flaky("long", DURABLE)
    engine = Engine(Topology(short=store("short"), mid=mid, long=long))
    await engine.open()
    long.down = True
    places = {"rest": ("acme", Scope.user("ann")), "umbrella": ("umbrella", Scope.user("ann"))}
    keys = {
        part: Key(t, (await engine.entries.write(t, EntryDraft(scope=at, content="a lantern"))).id)
        for part, (t, at) in places.items()
    }
    long.heal()
    for part, key in keys.items():
        assert isinstance((await parts[part].get(ENTRIES, [key]))[0], Record)
    assert await engine.maintenance.count_pending() == len(keys)
    await engine.maintenance.sweep()
    assert await engine.maintenance.count_pending() == 0
    assert None not in await long.get(ENTRIES, list(keys.values()))
    await engine.close()


async def test_deleting_a_scope_reaches_the_parts_that_have_some_of_it() -> None:
    whole, parts = await split()
    await apply_all(whole, put(record(1)), put(record(2), collection=PLAIN), put(record(3, SESSION)))
    assert await whole.delete_matching(Query(SAMPLES, within(HERE)), version=5) == 1
    assert await whole.delete_matching(Query(PLAIN, within(HERE)), version=5) == 1
    assert await holding(parts, 3, SESSION) == {"sessions"}
    assert (await whole.count(Query(SAMPLES, Tenant("acme")))).records == 1


class Slow(InMemoryStore):
    """Answers a little later than others."""

    ended = 0

    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        for _ in range(5):
            await asyncio.sleep(0)
        outcomes = await super()._apply(writes, together)
        self.ended += 1
        return outcomes


class Failing(InMemoryStore):
    async def _apply(self, writes: Sequence[Write], together: bool) -> list[Outcome]:
        raise StoreUnavailable(self.name, "is gone")

    async def close(self) -> None:
        await super().close()
        raise StoreUnavailable(self.name, "cannot say goodbye")


async def test_a_failure_of_one_part_is_raised_when_the_others_are_through() -> None:
    slow, failing = Slow("slow"), Failing("failing")
    whole = SplitStore("both", [Share(failing, tenants=frozenset({"umbrella"}))], slow)
    await whole.open(DECLARED)
    with pytest.raises(StoreUnavailable, match="failing"):
        await whole.apply([put(record(1)), put(record(1, at=FOREIGN))])
    assert slow.ended == 1


async def test_every_part_is_closed_also_when_one_fails_to() -> None:
    failing, other = Failing("failing"), InMemoryStore("other")
    whole = SplitStore("both", [Share(failing, tenants=frozenset({"umbrella"}))], other)
    await whole.open(DECLARED)
    with pytest.raises(StoreUnavailable, match="cannot say goodbye"):
        await whole.close()
    with pytest.raises(NotOpen):
        await other.get(SAMPLES, [key_of(1)])


async def test_a_tombstone_in_one_part_is_forgotten_though_a_record_in_another_hides_it() -> None:
    mid, parts = await split()
    clock = Clock()
    engine = Engine(Topology(short=store("short"), mid=mid, long=store("long")), clock=clock)
    await engine.open()
    draft = EntryDraft(scope=Scope.session("s1"), content="text", key="once")
    first = await engine.entries.write("acme", draft)
    assert await engine.deletion.delete("acme", first.id)
    again = await engine.entries.write("acme", draft, revive=True)
    assert await engine.tier_mover.move(ENTRIES, Key("acme", again.id), "mid") == "moved"
    assert isinstance((await parts["rest"].get(ENTRIES, [Key("acme", again.id)]))[0], Tombstone)
    clock.advance(31 * DAY)
    await engine.maintenance.sweep()
    assert await parts["rest"].get(ENTRIES, [Key("acme", again.id)]) == [None]
    assert await engine.entries.get("acme", again.id) is not None
    await engine.close()


async def test_a_split_tier_is_passed_over_once_none_of_its_parts_answers() -> None:
    """Errors name the part that failed, never the whole."""
    whole, parts = await split()
    names = {part.name for part in parts.values()}
    for answering in names:
        refuse_away(whole, names - {answering})
    with pytest.raises(StoreUnavailable, match="a moment ago"):
        refuse_away(whole, names)
    refuse_away(parts["rest"], names - {"rest"})
    with pytest.raises(StoreUnavailable, match="'rest'"):
        refuse_away(parts["rest"], {"rest"})


async def test_an_audit_names_no_more_of_a_store_in_parts_than_of_one() -> None:
    whole, parts = await split()
    apart = {"rest": HERE, "umbrella": FOREIGN}
    for name, at in apart.items():
        await apply_all(whole, *[put(record(n, at)) for n in range(MOST_NAMED - 10)])
        for n in range(MOST_NAMED - 10):
            parts[name].state.damage(SAMPLES.name, key_of(n, at))
    named = (await whole.audit()).damaged
    assert len(named) == len(set(named)) == MOST_NAMED
    assert {one.rpartition(" ")[2] for one in named} == {"acme", "umbrella"}
    for n in range(MOST_NAMED - 10):
        await apply_all(parts["rest"], put(record(1_000 + n)))
        parts["rest"].state.damage(SAMPLES.name, key_of(1_000 + n))
    assert len((await parts["rest"].audit()).damaged) == MOST_NAMED
