"""Each flag: it works if claimed, and is refused if not."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from memory.domain.errors import Unsupported
from memory.ports.capabilities import Capabilities
from memory.ports.contract.capability_tests import needs, refuses, works
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    LONG_AGO,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    hit_ids,
    id_of,
    key_of,
    one,
    put,
    query_ids,
    record,
    release,
    search_hits,
)
from memory.ports.cooperative import AT_A_TIME
from memory.ports.query import (
    MAX_LIMIT,
    Eq,
    Everywhere,
    Lt,
    Near,
    Order,
    Query,
    Search,
    Tenant,
    Under,
    Words,
    within,
)
from memory.ports.record import Partition, PendingStep, Record, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Purge, RaiseGeneration, Write


async def _assert_refused(call: object, flag: str, store: Store) -> None:
    """Check that the call is refused, with the names of the flag and the store."""
    with pytest.raises(Unsupported) as caught:
        await call  # type: ignore[misc]
    assert caught.value.missing == (flag,)
    assert caught.value.store == store.name


# -- claims ----------------------------------------------------------------------------


@clause("life.claims")
@pytest.mark.asyncio
async def test_an_opened_store_claims_what_its_harness_says(harness: Harness, store: Store) -> None:
    assert store.capabilities == harness.claims


@clause("life.health")
@pytest.mark.asyncio
async def test_a_store_has_a_name_for_messages(store: Store) -> None:
    assert store.name


# -- durable ---------------------------------------------------------------------------


@clause("durable.survives", "flag.works")
@works("durable")
@pytest.mark.asyncio
async def test_what_was_acknowledged_survives_the_death_of_a_durable_store(
    harness: Harness, store: Store
) -> None:
    await apply_all(store, *[put(record(n, body={"n": n}, texts={"content": "lantern"})) for n in range(20)])
    before = await store.get(SAMPLES, [key_of(n) for n in range(20)])
    epoch = store.epoch
    await apply_all(store, RaiseGeneration(ELSEWHERE, 4))

    again = await harness.restart(store)
    try:
        await again.open(DECLARED)
        assert await again.get(SAMPLES, [key_of(n) for n in range(20)]) == before
        assert len(await query_ids(again)) == 20
        if again.capabilities.lexical:
            assert len(await hit_ids(again, "lantern")) == 20
        assert (await one(again, RaiseGeneration(ELSEWHERE, 0))).number == 4
        assert again.epoch == epoch, "the epoch of a durable store is constant"
    finally:
        await again.close()


@clause("epoch.tells", "flag.refused")
@refuses("durable")
@pytest.mark.asyncio
async def test_a_store_that_may_lose_data_tells_by_its_epoch_that_it_was_restarted(
    harness: Harness, store: Store
) -> None:
    assert store.capabilities.missing(Capabilities(durable=True)) == ["durable"]
    epoch = store.epoch
    assert epoch, "a store that is not durable names its run"

    epochs = [epoch]
    for _ in range(4):
        store = await harness.restart(store)
        try:
            await store.open(DECLARED)
            assert store.epoch
            assert store.epoch not in epochs, "no run is taken for an earlier one, however many there were"
            assert (await store.check()).epoch == store.epoch
            epochs.append(store.epoch)
        finally:
            await store.close()


# -- shared ----------------------------------------------------------------------------


@clause("shared.sees", "flag.works")
@works("shared")
@pytest.mark.asyncio
async def test_two_clients_of_a_shared_store_see_each_others_acknowledged_writes(
    harness: Harness, store: Store
) -> None:
    other = await harness.client(store)
    try:
        await other.open(DECLARED)
        await apply_all(store, put(record(1, texts={"content": "lantern"}, vector=pack_vector([1.0]))))
        assert await fetch_stored(other, 1) == await fetch_record(store, 1)
        assert await query_ids(store) == [id_of(1)] == await query_ids(other)
        await apply_all(
            other,
            put(record(2, texts={"content": "lantern"}, vector=pack_vector([1.0]))),
            RaiseGeneration(HERE, 2),
        )
        assert await query_ids(store) == [id_of(1), id_of(2)] == await query_ids(other)
        assert (await one(store, RaiseGeneration(HERE, 0))).number == 2
        if store.capabilities.lexical:
            assert await hit_ids(store, "lantern") == {id_of(1), id_of(2)} == await hit_ids(other, "lantern")
        if store.capabilities.semantic:
            hits = [
                await client.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0])), 5))
                for client in (store, other)
            ]
            assert [[hit.head.key.id for hit in found_] for found_ in hits] == [[id_of(1), id_of(2)]] * 2
        await other.close()
        assert await query_ids(store) == [id_of(1), id_of(2)]
    finally:
        await other.close()


@clause("flag.refused")
@refuses("shared")
@pytest.mark.asyncio
async def test_a_store_that_is_not_shared_has_no_second_client(harness: Harness, store: Store) -> None:
    await _assert_refused(harness.client(store), "shared", store)


# -- ttl -------------------------------------------------------------------------------


@clause("ttl.kinds", "flag.works")
@works("ttl")
@pytest.mark.asyncio
async def test_a_store_with_ttl_forgets_what_is_past_its_time(harness: Harness, store: Store) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    cached = [
        record(n, role=Role.CACHED, expires_at=at) for n, at in ((1, LONG_AGO), (2, None), (3, tomorrow))
    ]
    await apply_all(store, *map(put, cached))
    if store.capabilities.conditional:
        await apply_all(store, delete(4, discard_at=LONG_AGO), delete(5))
    deadline = asyncio.get_running_loop().time() + harness.ttl_patience.total_seconds()

    while [await fetch_stored(store, 1), await fetch_stored(store, 4)] != [None, None]:
        assert asyncio.get_running_loop().time() < deadline, f"not forgotten within {harness.ttl_patience}"

    await fetch_record(store, 2)
    await fetch_record(store, 3)
    assert (await fetch_stored(store, 5) is not None) is store.capabilities.conditional


@clause("ttl.kinds")
@works("ttl")
@pytest.mark.asyncio
async def test_a_store_with_ttl_forgets_no_record_but_cached_copies(store: Store, harness: Harness) -> None:
    """The engine deletes expired records with their data in other stores.

    It must be able to find them. Any item with a pending step stays.
    """
    kept = [
        record(n, role=role, expires_at=LONG_AGO)
        for n, role in enumerate((Role.HOME, Role.REPLICA, Role.ARRIVING), 1)
    ]
    owing = record(4, role=Role.CACHED, expires_at=LONG_AGO, owed=(PendingStep("deliver", "deliver", {}),))
    await apply_all(store, *map(put, [*kept, owing, record(9, role=Role.CACHED, expires_at=LONG_AGO)]))
    deadline = asyncio.get_running_loop().time() + harness.ttl_patience.total_seconds()

    while await fetch_stored(store, 9) is not None:  # the store had time for the others too
        assert asyncio.get_running_loop().time() < deadline, f"not forgotten within {harness.ttl_patience}"

    for n in (1, 2, 3, 4):
        await fetch_record(store, n)


@clause("ttl.kinds", "flag.refused")
@refuses("ttl")
@pytest.mark.asyncio
async def test_a_store_without_ttl_keeps_what_is_past_its_time(store: Store) -> None:
    assert store.capabilities.missing(Capabilities(ttl=True)) == ["ttl"]
    await apply_all(store, put(record(1, expires_at=LONG_AGO)))
    assert (await fetch_record(store, 1)).expires_at == LONG_AGO
    assert await query_ids(store) == [id_of(1)]
    if store.capabilities.conditional:
        await apply_all(store, delete(2, discard_at=LONG_AGO))
        assert await fetch_stored(store, 2) is not None


# -- conditional -----------------------------------------------------------------------


@clause("life.at-once", "flag.works")
@works("conditional")
@pytest.mark.asyncio
async def test_conditions_are_decided_by_the_store_in_one_step(store: Store) -> None:
    outcomes = await asyncio.gather(*(one(store, put(record(version=n + 1), Absent())) for n in range(8)))
    assert sum(o.applied for o in outcomes) == 1
    stands = await fetch_record(store)
    assert [o.stored for o in outcomes if not o.applied] == [stands] * 7


_CONDITIONAL: dict[str, Write] = {
    "absent": put(record(), Absent()),
    "at a version": put(record(), AtVersion(1)),
    "newer": put(record(), Newer()),
    "delete": delete(),
    "release": release(),
    "annotate": Annotate(SAMPLES, key_of(1), 1, tier="x"),
    "purge": Purge(SAMPLES, key_of(1), 1),
}


@clause("flag.refused")
@refuses("conditional")
@pytest.mark.asyncio
@cells("write", _CONDITIONAL)
async def test_conditional_writes_are_refused_by_name(store: Store, write: str) -> None:
    await apply_all(store, put(record()))
    before = await fetch_record(store)
    await _assert_refused(store.apply([put(record(2)), _CONDITIONAL[write]]), "conditional", store)
    assert [await fetch_stored(store, 1), await fetch_stored(store, 2)] == [before, None]


# -- atomic ----------------------------------------------------------------------------

LONG_CALL = 520
"""More writes than a portion that a store may split them into."""


@clause("atomic.together", "flag.works")
@works("atomic")
@pytest.mark.asyncio
async def test_writes_together_are_kept_whole_or_not_at_all(store: Store) -> None:
    good = await store.apply([put(record(n)) for n in range(3)], together=True)
    assert [o.status for o in good] == ["applied"] * 3
    bad = await store.apply(
        [put(record(3)), put(record(4, fields={"colour": "x"})), put(record(5))], together=True
    )
    assert [o.status for o in bad] == ["skipped", "rejected", "skipped"]
    assert await query_ids(store) == [id_of(n) for n in range(3)]


@clause("atomic.cut-off")
@needs("atomic")
@pytest.mark.asyncio
@cells("together", [True, False])
async def test_a_call_that_is_cut_off_is_kept_whole_or_not_at_all(store: Store, together: bool) -> None:
    """The calls are short, and every eighth is longer than a portion may be."""
    longest = min(store.capabilities.max_batch or LONG_CALL, LONG_CALL)
    for turns in range(24):
        first, size = turns * LONG_CALL, longest if turns % 8 == 0 else 10
        call = asyncio.ensure_future(
            store.apply([put(record(first + n)) for n in range(size)], together=together)
        )
        checked = (
            size // AT_A_TIME if size == longest else 0
        )  # turns that a long call takes before the adapter is called
        for _ in range(turns + checked):
            await asyncio.sleep(0)  # one turn of the loop, so that each round is cancelled a little later
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        kept = sum(
            isinstance(s, Record) for s in await store.get(SAMPLES, [key_of(first + n) for n in range(size)])
        )
        assert kept in (0, size), f"cut off after {turns} turns, {kept} of {size} writes were kept"


@clause("flag.refused")
@refuses("atomic")
@pytest.mark.asyncio
async def test_writes_together_are_refused_by_name(store: Store) -> None:
    several = [put(record()), put(record(1, ELSEWHERE))]
    await _assert_refused(store.apply(several, together=True), "atomic", store)
    assert await fetch_stored(store) is None


# -- grouped ---------------------------------------------------------------------------


@clause("grouped.together", "flag.works")
@works("grouped")
@needs("conditional")
@pytest.mark.asyncio
async def test_writes_of_one_partition_are_kept_whole_or_not_at_all(store: Store) -> None:
    await apply_all(store, put(record(9)))
    good = await store.apply(
        [*(put(record(n), Absent()) for n in range(3)), delete(9), put(record(8), Absent())], together=True
    )
    assert [o.status for o in good] == ["applied"] * 5
    bad = await store.apply(
        [put(record(3), Absent()), put(record(1), Absent()), delete(2, version=200)], together=True
    )
    assert [o.status for o in bad] == ["skipped", "conflict", "skipped"]
    settled = await store.apply([put(record(4)), Annotate(SAMPLES, key_of(5), at=1)], together=True)
    assert [o.status for o in settled] == ["skipped", "conflict"]
    assert await query_ids(store) == [id_of(n) for n in (0, 1, 2, 8)]
    assert [await fetch_stored(store, n) for n in (3, 4)] == [None, None]


@clause("grouped.together")
@needs("grouped")
@needs("conditional")
@pytest.mark.asyncio
async def test_a_group_that_is_cut_off_is_kept_whole_or_not_at_all(store: Store) -> None:
    for turns in range(24):
        first = turns * 100
        call = asyncio.ensure_future(
            store.apply([put(record(first + n), Absent()) for n in range(10)], together=True)
        )
        for _ in range(turns):
            await asyncio.sleep(0)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        stored = await store.get(SAMPLES, [key_of(first + n) for n in range(10)])
        kept = sum(isinstance(one, Record) for one in stored)
        assert kept in (0, 10), f"cut off after {turns} turns, {kept} of 10 writes were kept"


@clause("flag.refused")
@refuses("grouped")
@pytest.mark.asyncio
async def test_groups_are_refused_by_name_unless_the_store_is_atomic(store: Store) -> None:
    group = store.apply([put(record()), put(record(2))], together=True)
    if store.capabilities.atomic:
        assert [outcome.status for outcome in await group] == ["applied"] * 2
        return
    await _assert_refused(group, "grouped", store)
    assert await fetch_stored(store) is None


# -- fenced ----------------------------------------------------------------------------


@clause("fenced.holds")
@works("fenced")
@pytest.mark.asyncio
async def test_nothing_of_a_lower_generation_comes_to_stand_after_a_raise_was_acknowledged(
    harness: Harness, store: Store
) -> None:
    """Writers race the raise, and some are cancelled in the middle.

    A remaining record of a lower generation existed when the raise was acknowledged.
    """
    writer = await harness.client(store) if store.capabilities.shared else store
    try:
        await writer.open(DECLARED)
        for turn in range(12):
            at = Partition("acme", f"user:{turn}")
            writes = [
                asyncio.ensure_future(one(writer, put(record(n, at, generation=0 if n % 2 else None))))
                for n in range(16)
            ]
            for _ in range(turn):
                await asyncio.sleep(0)
            raised = (await one(store, RaiseGeneration(at))).number
            stood = set(await query_ids(store, within(at)))
            for write in writes[turn % 3 :: 3]:
                write.cancel()
            await asyncio.gather(*writes, return_exceptions=True)
            page = await store.query(Query(SAMPLES, within(at), limit=MAX_LIMIT))
            late = [
                r
                for r in page.records
                if isinstance(r, Record) and r.generation != raised and r.key.id not in stood
            ]
            assert not late, f"of generation {raised} after turn {turn}"
    finally:
        if writer is not store:
            await writer.close()


@clause("fenced.holds")
@refuses("fenced")
@pytest.mark.asyncio
async def test_what_a_writer_that_died_brought_of_an_erased_generation_is_taken_by_one_repeat_of_the_erasure(
    harness: Harness, store: Store
) -> None:
    async def erase_older() -> int:
        older = Lt("generation", 1) if store.capabilities.filter else None
        return await store.delete_matching(Query(SAMPLES, within(HERE), older, roles=frozenset(Role)), 50)

    async def erase() -> None:
        await apply_all(store, RaiseGeneration(HERE))
        assert await erase_older() == 0

    await harness.cut_short(store, put(record(generation=0, texts={"content": "cormorant"})), erase)
    assert (await fetch_record(store)).generation == 0, (
        "it stands: where that cannot be, the store may claim `fenced`"
    )

    assert await erase_older() == 1

    assert isinstance(await fetch_stored(store), Tombstone)
    assert await query_ids(store) == []
    if store.capabilities.lexical:
        assert await hit_ids(store, "cormorant") == set()
    assert await erase_older() == 0


# -- filter, order, tenant_wide --------------------------------------------------------


@clause("flag.works")
@works("filter")
@pytest.mark.asyncio
async def test_a_filter_chooses_records(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": "ab"[n % 2]})) for n in range(6)])
    assert await query_ids(store, part=Eq("type", "b")) == [id_of(n) for n in (1, 3, 5)]


@clause("flag.refused")
@refuses("filter")
@pytest.mark.asyncio
async def test_filters_are_refused_by_name(store: Store) -> None:
    query = Query(SAMPLES, within(HERE), Eq("type", "b"))
    await apply_all(store, put(record()))
    await _assert_refused(store.query(query), "filter", store)
    await _assert_refused(store.count(query), "filter", store)
    await _assert_refused(store.delete_matching(query, 5), "filter", store)
    await _assert_refused(
        store.search(Search(SAMPLES, within(HERE), Words("x"), 5, Eq("type", "b"))), "filter", store
    )
    await fetch_record(store)


@clause("flag.works")
@works("order")
@pytest.mark.asyncio
async def test_an_order_sorts_records(store: Store) -> None:
    await apply_all(store, *[put(record(n, fields={"type": t})) for n, t in enumerate("bca")])
    assert await query_ids(store, order=(Order("type", True),)) == [id_of(n) for n in (1, 0, 2)]


@clause("flag.refused")
@refuses("order")
@pytest.mark.asyncio
async def test_orders_are_refused_by_name(store: Store) -> None:
    await _assert_refused(store.query(Query(SAMPLES, within(HERE), order=(Order("type"),))), "order", store)


@clause("flag.works", "everywhere.all")
@works("tenant_wide")
@pytest.mark.asyncio
async def test_a_whole_tenant_and_everywhere_can_be_asked(store: Store) -> None:
    await apply_all(store, put(record(1)), put(record(2, ELSEWHERE)), put(record(3, FOREIGN)))
    assert set(await query_ids(store, Tenant("acme"))) == {id_of(1), id_of(2, ELSEWHERE)}
    assert set(await query_ids(store, Everywhere())) == {id_of(1), id_of(2, ELSEWHERE), id_of(3, FOREIGN)}


@clause("flag.refused")
@refuses("tenant_wide")
@pytest.mark.asyncio
async def test_whole_tenants_and_everywhere_are_refused_by_name(store: Store) -> None:
    for where in (Tenant("acme"), Under("acme", ("path:a/",)), Everywhere()):
        await _assert_refused(store.query(Query(SAMPLES, where)), "tenant_wide", store)
        await _assert_refused(store.count(Query(SAMPLES, where)), "tenant_wide", store)
        await _assert_refused(store.delete_matching(Query(SAMPLES, where), 5), "tenant_wide", store)
        await _assert_refused(store.search(Search(SAMPLES, where, Words("x"), 5)), "tenant_wide", store)


# -- lexical, semantic, tenant_statistics ----------------------------------------------


@clause("flag.works")
@works("lexical")
@pytest.mark.asyncio
async def test_records_are_found_by_words(store: Store) -> None:
    await apply_all(
        store, put(record(1, texts={"content": "a lantern"})), put(record(2, texts={"content": "a harbour"}))
    )
    assert await hit_ids(store, "lanterns") == {id_of(1)}


@clause("flag.refused")
@refuses("lexical")
@pytest.mark.asyncio
async def test_search_by_words_is_refused_by_name(store: Store) -> None:
    await _assert_refused(store.search(Search(SAMPLES, within(HERE), Words("x"), 5)), "lexical", store)


@clause("flag.works")
@works("semantic")
@pytest.mark.asyncio
async def test_records_are_found_by_meaning(store: Store) -> None:
    await apply_all(
        store, put(record(1, vector=pack_vector([1, 0]))), put(record(2, vector=pack_vector([0, 1])))
    )
    hits = await store.search(Search(SAMPLES, within(HERE), Near(pack_vector([0.1, 1])), 1))
    assert [hit.head.key.id for hit in hits] == [id_of(2)]


@clause("flag.refused")
@refuses("semantic")
@pytest.mark.asyncio
async def test_search_by_meaning_is_refused_by_name(store: Store) -> None:
    await _assert_refused(
        store.search(Search(SAMPLES, within(HERE), Near(pack_vector([1.0])), 5)), "semantic", store
    )


@clause("statistics.own", "flag.works")
@works("tenant_statistics")
@needs("lexical")
@pytest.mark.asyncio
async def test_what_others_store_changes_neither_rank_nor_score(store: Store) -> None:
    mine = [
        "lantern lantern harbour",
        "harbour harbour " + "x " * 30,
        "lantern",
        "tide",
        "tide tide lantern harbour",
    ]
    await apply_all(store, *[put(record(n, texts={"content": text})) for n, text in enumerate(mine)])
    before = [(hit.head.key, hit.score) for hit in await search_hits(store, "lantern harbour tide")]
    assert len(before) == 5

    for at in (FOREIGN, ELSEWHERE):
        await apply_all(
            store, *[put(record(n, at, texts={"content": "lantern " * 40 + "tide"})) for n in range(60)]
        )

    assert [(hit.head.key, hit.score) for hit in await search_hits(store, "lantern harbour tide")] == before


@clause("flag.refused", "isolation.where")
@refuses("tenant_statistics")
@pytest.mark.asyncio
async def test_a_store_of_common_statistics_says_so_and_still_shows_no_one_elses_records(
    store: Store,
) -> None:
    assert store.capabilities.missing(Capabilities(tenant_statistics=True)) == ["tenant_statistics"]
    await apply_all(
        store,
        put(record(1, texts={"content": "lantern"})),
        put(record(2, FOREIGN, texts={"content": "lantern"})),
    )
    if store.capabilities.lexical:
        assert await hit_ids(store, "lantern") == {id_of(1)}
    assert await query_ids(store) == [id_of(1)]
