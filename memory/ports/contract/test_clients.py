"""Two clients of one shared store at once: every write is decided atomically."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio

from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED, MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    T0,
    apply_all,
    delete,
    fetch_record,
    fetch_stored,
    key_of,
    one,
    put,
    record,
    release,
    ways,
)
from memory.ports.query import MAX_LIMIT, Eq, Everywhere, Query, RowType, Search, Tenant, Where, within
from memory.ports.record import Mark, Partition, PendingStep, Record, Role, Tombstone, pack_vector
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Newer, Outcome, Purge, RaiseGeneration, Write

WRITERS = 64
NEW = Partition("acme", "session:new")
HOMELY = (HERE, ELSEWHERE, NEW)
PLACES = (*HOMELY, FOREIGN)
Clients = tuple[Store, Store]


@pytest_asyncio.fixture
async def clients(harness: Harness, store: Store) -> AsyncIterator[Clients]:
    """Provide two open clients of the same data."""
    other = await harness.client(store)
    try:
        await other.open(DECLARED)
        yield store, other
    finally:
        await other.close()


async def _at_once(clients: Clients, writes: Sequence[Write]) -> list[Outcome]:
    """Apply each write in its own call, alternating the clients, all at once."""
    return list(await asyncio.gather(*(one(clients[n % 2], write) for n, write in enumerate(writes))))


async def _both_see_the_same(clients: Clients, n: int = 1) -> None:
    assert await fetch_stored(clients[0], n) == await fetch_stored(clients[1], n)


@clause("shared.decides")
@needs("shared", "conditional")
@pytest.mark.asyncio
@pytest.mark.parametrize("stands", [False, True], ids=["creating", "changing"])
async def test_of_many_writers_through_two_clients_exactly_one_wins(clients: Clients, stands: bool) -> None:
    if stands:
        await apply_all(clients[0], put(record(1)))
    writes = [
        put(record(1, version=n + 2, body={"by": n}), AtVersion(1) if stands else Absent())
        for n in range(WRITERS)
    ]

    outcomes = await _at_once(clients, writes)

    (winner,) = [n for n, o in enumerate(outcomes) if o.applied]
    assert (await fetch_record(clients[1])).version == winner + 2
    assert {o.version for o in outcomes} == {winner + 2}, "who lost is told what stands there"
    await _both_see_the_same(clients)


@clause("shared.decides")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_no_increment_through_two_clients_is_lost(clients: Clients) -> None:
    await apply_all(clients[0], put(record(version=1, body={"n": 0})))

    async def increment(client: Store) -> None:
        while True:
            now = await fetch_record(client)
            if (
                await one(
                    client,
                    put(
                        record(version=now.version + 1, body={"n": now.body["n"] + 1}), AtVersion(now.version)
                    ),
                )
            ).applied:
                return

    await asyncio.gather(*(increment(clients[n % 2]) for n in range(24)))
    assert dict((await fetch_record(clients[0])).body) == {"n": 24}


@clause("shared.decides", "write.table")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_of_newer_writes_in_any_order_the_newest_stands(clients: Clients) -> None:
    versions = [n * 29 % WRITERS + 1 for n in range(WRITERS)]
    outcomes = await _at_once(clients, [put(record(version=v, body={"v": v}), Newer()) for v in versions])
    assert (await fetch_record(clients[0])).body["v"] == WRITERS
    assert outcomes[versions.index(WRITERS)].applied
    await _both_see_the_same(clients)


@clause("shared.decides", "generation.counts")
@needs("shared")
@pytest.mark.asyncio
async def test_generations_raised_through_two_clients_are_all_counted(clients: Clients) -> None:
    outcomes = await _at_once(clients, [RaiseGeneration(HERE) for _ in range(WRITERS)])
    assert sorted(o.number or 0 for o in outcomes) == list(range(1, WRITERS + 1))


@clause("shared.decides", "annotate.only")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_accesses_and_settled_steps_through_two_clients_are_all_counted(clients: Clients) -> None:
    steps = tuple(PendingStep(f"deliver:{n}", "deliver", {"n": n}) for n in range(16))
    at = record().created_at
    await apply_all(clients[0], put(record(owed=steps)))
    await _at_once(
        clients, [Annotate(SAMPLES, key_of(1), 1, settle=(step.id,), accessed_at=at) for step in steps[1:]]
    )
    after = await fetch_record(clients[1])
    assert (after.owed, after.accesses) == (steps[:1], 15)
    await _both_see_the_same(clients)


@clause("shared.decides")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_of_a_change_a_release_a_deletion_and_a_purge_at_one_version_exactly_one_is_carried_out(
    clients: Clients,
) -> None:
    """The applied write's result is stored, and nothing of the others."""
    for n in range(24):
        role = Role.HOME if n % 3 else Role.CACHED
        await apply_all(clients[n % 2], put(record(n, role=role)))
        writes: list[Write] = [
            put(record(n, version=2, body={"changed": True}), AtVersion(1)),
            release(n),
            replace(delete(n, version=3), when=AtVersion(1)),
            *([Purge(SAMPLES, key_of(n), 1)] if role is Role.CACHED else []),
        ]
        writes = writes[n % len(writes) :] + writes[: n % len(writes)]
        outcomes = await _at_once(clients, writes)

        carried_out = [write for write, outcome in zip(writes, outcomes, strict=True) if outcome.applied]
        stands = await fetch_stored(clients[0], n)
        purged = [write for write in carried_out if isinstance(write, Purge)]
        others = [write for write in carried_out if not isinstance(write, Purge)]
        assert len(others) <= 1
        left = (
            {"Put": Record, "Release": Mark, "Delete": Tombstone}[type(others[0]).__name__]
            if others
            else type(None)
        )
        assert isinstance(stands, left), f"{carried_out} were carried out, and there stands {stands}"
        assert purged or others
        await _both_see_the_same(clients, n)


@clause("shared.erases")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_nothing_of_an_erased_generation_outlives_its_erasure_through_another_client(
    clients: Clients,
) -> None:
    writing, erasing = clients
    stop = asyncio.Event()
    applied = 0

    async def write(worker: int) -> None:
        nonlocal applied
        n = 0
        while not stop.is_set():
            known = (await one(writing, RaiseGeneration(HERE, 0))).number or 0
            outcomes = await writing.apply(
                [put(record(1000 * worker + n + i, generation=known), Absent()) for i in range(1 + n % 3)]
            )
            applied += sum(o.applied for o in outcomes)
            n += 3
            await asyncio.sleep(0)  # let the other client erase; no call waits for anything

    writers = [asyncio.ensure_future(write(worker)) for worker in range(1, 5)]
    try:
        for version in range(100, 108):
            raised = (await one(erasing, RaiseGeneration(HERE))).number
            await erasing.delete_matching(Query(SAMPLES, within(HERE)), version)
            page = await erasing.query(Query(SAMPLES, within(HERE), limit=MAX_LIMIT))
            assert all(isinstance(r, Record) and r.generation == raised for r in page.records)
            before = applied
            async with asyncio.timeout(30):
                while applied == before:  # noqa: ASYNC110 - let the others write
                    await asyncio.sleep(0.001)
    finally:
        stop.set()
        await asyncio.gather(*writers)
    assert applied


@clause("shared.decides", "erase.carries")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_of_two_clients_that_delete_what_matches_one_counts_each_record(clients: Clients) -> None:
    owed = (PendingStep("step:1", "deliver"),)
    for number in range(20):
        keys = [50 * number + n for n in range(3)]
        await apply_all(clients[0], *(put(record(n, owed=owed)) for n in keys))
        counts = await asyncio.gather(
            *(
                client.delete_matching(Query(SAMPLES, within(HERE)), 50 + n, T0, frozenset({"deliver"}))
                for n, client in enumerate(clients)
            )
        )
        assert sum(counts) == len(keys), counts
        for n in keys:
            left = await fetch_stored(clients[0], n)
            assert isinstance(left, Tombstone)
            assert left.version in (50, 51)
            assert left.owed == owed


@clause("shared.erases", "generation.binds")
@needs("shared")
@pytest.mark.asyncio
async def test_a_generation_another_client_raised_a_moment_ago_binds_every_write(clients: Clients) -> None:
    """It does not matter what this client has read, or how it writes.

    It writes alone, in batches, and with the record's own generation.
    """
    writing, raising = clients
    conditional = writing.capabilities.conditional
    await apply_all(
        writing,
        put(record(1)),
        RaiseGeneration(HERE, 0),
        *([put(record(1), Absent(), MORE_SAMPLES)] if conditional else []),
    )
    for now in range(1, 4):
        assert (await one(raising, RaiseGeneration(HERE))).number == now
        late = await writing.apply(
            [
                put(record(100 + now, generation=now - 1)),
                put(record(200 + now)),
                put(record(300 + now, generation=now)),
            ]
        )
        assert [(o.status, o.reason, o.generation) for o in late] == [
            ("rejected", "generation", None),
            ("applied", "", now),
            ("applied", "", now),
        ]
        if conditional:
            refused = await one(writing, put(record(400 + now, generation=now - 1), Absent(), MORE_SAMPLES))
            assert (refused.status, refused.reason) == ("rejected", "generation")
            stamped = await one(writing, put(record(500 + now), Absent(), MORE_SAMPLES))
            assert stamped.generation == now
        assert (await fetch_record(raising, 200 + now)).generation == now
        assert await fetch_stored(raising, 100 + now) is None
    await apply_all(raising, RaiseGeneration(HERE, 9))
    assert not (await one(writing, put(record(600, generation=8)))).applied, "alone too"
    await apply_all(raising, RaiseGeneration(HERE, 12))
    assert (await apply_all(writing, put(record(601))))[0].generation == 12


@clause("shared.erases", "generation.binds")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_a_generation_another_client_raised_binds_one_that_does_nothing_but_create(
    clients: Clients,
) -> None:
    """It has no put and no raise of its own in between."""
    writing, raising = clients
    await apply_all(writing, put(record(1), Absent(), MORE_SAMPLES))
    await apply_all(raising, RaiseGeneration(HERE, 3))
    refused = await one(writing, put(record(2, generation=0), Absent(), MORE_SAMPLES))
    assert (refused.status, refused.reason) == ("rejected", "generation")
    stamped = await one(writing, put(record(3), Absent(), MORE_SAMPLES))
    assert stamped.generation == 3
    assert (await fetch_record(raising, 3, collection=MORE_SAMPLES)).generation == 3


async def _snapshot(client: Store) -> list[object]:
    """Return the answers of every question on partitions, a tenant and everywhere."""
    roles, can = frozenset(Role), client.capabilities
    wide: list[Where] = [Tenant(HERE.tenant), Tenant(FOREIGN.tenant), Everywhere()] if can.tenant_wide else []
    seen: list[object] = [
        await client.get(c, [key_of(n, at) for at in PLACES for n in range(5)]) for c in (SAMPLES, PLAIN)
    ]
    for where in (within(HERE), within(HERE, ELSEWHERE, NEW), within(FOREIGN), *wide):
        for collection in (SAMPLES, PLAIN):
            everything = Query(collection, where, roles=roles, limit=MAX_LIMIT)
            page, count = await client.query(everything), await client.count(everything)
            assert count.records == len(page.records)
            seen += [page, count.records]
            seen += (
                [(await client.query(replace(everything, filter=Eq("tier", "long")))).records]
                if can.filter
                else []
            )
        hits = [
            await client.search(Search(SAMPLES, where, by, 20, roles=roles))
            for by in ways(client, "lantern", 1.0, 0.0)
        ]
        seen += [[(hit.head, round(hit.score, 5)) for hit in some] for some in hits]
    if can.tenant_wide:
        seen += [
            await client.query(Query(c, Everywhere(), types=frozenset({kind}), limit=MAX_LIMIT))
            for c in (SAMPLES, PLAIN)
            for kind in RowType
        ]
    return [*seen, sorted(await client.idle_partitions())]


async def _generations(client: Store) -> list[int | None]:
    """Return the generations; call it last.

    Only a write can ask for them, and a client may reread everything when it writes.
    """
    return [(await one(client, RaiseGeneration(at, 0))).number for at in PLACES]


@clause("shared.sees", "get.latest", "everywhere.all")
@needs("shared", "conditional")
@pytest.mark.asyncio
async def test_a_client_sees_all_that_another_did_a_moment_ago(clients: Clients) -> None:
    """One client asks every question repeatedly while the other makes every write.

    The writes also reach scopes, tenants and collections that were empty at opening.
    """
    writing, looking = clients

    def text_and_vector(word: str) -> dict[str, Any]:
        return {
            "texts": {"content": word},
            "vector": pack_vector([1.0, 0.0]) if writing.capabilities.semantic else None,
        }

    turns: list[tuple[Write, ...]] = [
        (put(record(1, **text_and_vector("lantern"))), put(record(2, **text_and_vector("lantern")))),
        (Annotate(SAMPLES, key_of(1), 1, tier="long", accessed_at=T0),),
        (put(record(1, version=2, **text_and_vector("harbour")), AtVersion(1)),),
        (
            put(record(1, NEW, **text_and_vector("lantern"))),
            put(record(1, FOREIGN, **text_and_vector("lantern"))),
        ),
        (
            RaiseGeneration(ELSEWHERE, 4),
            RaiseGeneration(NEW),
            put(record(4, ELSEWHERE, **text_and_vector("lantern"))),
        ),
        (put(record(1), collection=PLAIN), put(record(2, FOREIGN), collection=PLAIN)),
        (release(2), delete(3, 5)),
        (
            delete(1, at=FOREIGN),
            delete(4, 2, at=ELSEWHERE),
            put(record(4, version=2, **text_and_vector("lantern")), Absent()),
        ),
        (Annotate(SAMPLES, key_of(3), 5, discard_at=T0), Annotate(SAMPLES, key_of(2), 1, discard_at=T0)),
        (Purge(SAMPLES, key_of(2), 1), Purge(SAMPLES, key_of(3), 5), Purge(SAMPLES, key_of(1, FOREIGN), 100)),
        (put(record(2, version=9)), delete(1, 50)),
    ]
    await _generations(looking)
    await _snapshot(looking)
    for writes in turns:
        await apply_all(writing, *writes)
        assert await _snapshot(looking) == await _snapshot(writing), writes
    assert await _generations(looking) == await _generations(writing)
    await _snapshot(looking)
    for at, erased in ((HERE, (2, 1)), (NEW, (1, 0)), (FOREIGN, (0, 1))):
        assert (
            tuple(
                [
                    await writing.delete_matching(Query(c, within(at), roles=frozenset(Role)), 70)
                    for c in (SAMPLES, PLAIN)
                ]
            )
            == erased
        )
        assert await _snapshot(looking) == await _snapshot(writing)
    assert await writing.forget_partitions(await writing.idle_partitions()) >= 1
    assert await _snapshot(looking) == await _snapshot(writing)
    assert (await looking.count(Query(SAMPLES, within(*HOMELY)))).records == 0


@clause("shared.sees", "epoch.tells")
@needs("shared")
@pytest.mark.asyncio
async def test_two_clients_are_of_one_run(clients: Clients) -> None:
    assert clients[0].epoch == clients[1].epoch
    assert [(await client.check()).epoch for client in clients] == [clients[0].epoch] * 2
