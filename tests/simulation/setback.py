"""A durable store is taken back to an earlier moment, as from a backup, or replaced by
an empty one; and what is still promised then.

What was acknowledged since that moment may be gone, and what was erased since may be
back. But sweeps come to an end, everything can be written, changed, linked, moved and
read as if nothing had been, and an erasure erases: nothing of the scope is left in any
store.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from memory.domain.entry import EntryDraft
from memory.domain.scope import Scope
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.orchestrator.storage.standings import DifferenceKind
from memory.orchestrator.tiering.moves import MoveResult
from memory.policies.entry_query import EntryQuery
from memory.ports.record import Key, Partition, Record
from tests.simulation.faults import Fault, FaultPlan
from tests.simulation.loop import OWNER, seeded
from tests.simulation.workload import ALL_SCOPES, TENANTS

if TYPE_CHECKING:
    from tests.simulation.client import EngineClient
    from tests.simulation.world import World


MOST_MEANWHILE = 40
"""How many entries others write while somebody heals."""


def set_back(world: World) -> None:
    """One durable store, drawn from the seed, loses what it acknowledged since a moment
    of the run, or everything.
    """
    random = seeded(world.scenario.seed, 6)
    store = world.durable[int(random.random() * len(world.durable))]
    earlier = world.remembered.get(store.name, [])
    if earlier and random.random() < 0.6:
        store.state.restore(random.choice(earlier))
        world.say("operator", f"--- {store.name} is restored from a backup ---")
    else:
        store.state.wipe()
        world.say("operator", f"--- {store.name} is replaced by an empty one ---")


async def aftermath(client: EngineClient) -> None:
    """Work goes on in every scope, and then every scope is erased. Who heals a store
    dies of it now and then, while others write.
    """
    from tests.simulation.audit import Inspection, sweep_clean

    await sweep_clean(client)
    if seeded(client.world.scenario.seed, 10).random() < 0.5:
        await _heal(client)
        await sweep_clean(client)
    new: list[str] = []
    if seeded(client.world.scenario.seed, 9).random() < 0.5:
        new = [
            entry_id
            for tenant in TENANTS
            for scope in ALL_SCOPES
            for entry_id in await _healers_die(client, tenant, scope)
        ]
    new += [
        entry_id
        for tenant in TENANTS
        for scope in ALL_SCOPES
        for entry_id in await _goes_on(client, tenant, scope)
    ]
    await sweep_clean(client)
    Inspection(client).of_these(new)
    for tenant in TENANTS:
        for scope in ALL_SCOPES:
            await client.engine.erasure.erase_scope(tenant, scope)
    await sweep_clean(client)
    for tenant in TENANTS:
        left = await client.engine.browser.browse(EntryQuery(tenant, ALL_SCOPES, limit=200))
        if left:
            _broken(
                client,
                "resurrected",
                f"after the erasure of every scope there is {[e.content for e in left]}",
            )
    for store in client.world.stores:
        for collection in (ENTRIES, ENTRY_VERSIONS, RELATIONS):
            for standing in store.state.everything(collection.name):
                if isinstance(standing, Record) and (
                    store.capabilities.durable or standing.cached_at is None
                ):
                    _broken(
                        client, "leftover", f"after the erasure of every scope {store.name} holds {standing}"
                    )


async def _heal(client: EngineClient) -> None:
    """As by `memory doctor --repair`: then nothing differs any more but what nobody can
    say.
    """
    came = await client.engine.repair.compare(repair=True)
    left = await client.engine.repair.compare()
    if came.error or left.error or left.differs.keys() - {DifferenceKind.UNSURE}:
        _broken(client, "order", f"what was set back does not heal: {came}, then {left}")


async def _healers_die(client: EngineClient, tenant: str, scope: Scope) -> list[str]:
    """Where stores disagree about a scope: one process after the other writes there,
    and dies when it has raised a store that is behind.
    """
    from tests.simulation.audit import sweep_clean

    partition = Partition(tenant, scope.text)
    new: list[str] = []
    for _ in range(2):  # a cache is raised before the others
        if len({store.state.generation(partition) for store in client.world.durable}) > 1:
            new += await _healer_dies(client, tenant, scope)
    if new:
        await sweep_clean(client)
    for entry_id in new:
        await _moves_on(client, tenant, entry_id, scope)
    return new


async def _healer_dies(client: EngineClient, tenant: str, scope: Scope) -> list[str]:
    """What others write while it heals: what is born once it has looked for what is to
    be stamped anew, nobody but it would know of.
    """
    world = client.world
    healer = world.process("healer")
    healer.plan = FaultPlan(world.scenario.seed, rate=0.0, lures={0: ("generation.raise", Fault.CRASH_AFTER)})
    theirs = type(client)(world, healer, world.stores_for(healer)).engine

    async def heal() -> None:
        OWNER.set(healer)
        await theirs.open()
        written = await theirs.entries.write(tenant, EntryDraft(scope=scope, content="after nought"))
        await theirs.entries.update(tenant, written.id, {"content": "after nought, edited"})
        await theirs.tier_mover.move(ENTRIES, Key(tenant, written.id), "long")

    task = asyncio.create_task(heal())
    healer.on_death = task.cancel
    new: list[str] = []

    async def write() -> None:
        while not task.done() and not any(  # noqa: ASYNC110
            step == "generation.restamp" for step, _ in healer.plan.coverage.chances
        ):
            await asyncio.sleep(0.0001)
        while not task.done() and len(new) < MOST_MEANWHILE:
            new.append(
                (await client.engine.entries.write(tenant, EntryDraft(scope=scope, content="meanwhile"))).id
            )

    async with asyncio.TaskGroup() as writers:
        for _ in range(3):
            writers.create_task(write())
    await asyncio.wait([task])
    return new


async def _moves_on(client: EngineClient, tenant: str, entry_id: str, scope: Scope) -> None:
    result = await client.engine.tier_mover.move(ENTRIES, Key(tenant, entry_id), "long")
    if (
        result is MoveResult.POSTPONED
    ):  # it found out that the store is behind, and owes a replica until the next try
        result = await client.engine.tier_mover.move(ENTRIES, Key(tenant, entry_id), "long")
    if result not in (MoveResult.MOVED, MoveResult.ALREADY):
        _broken(client, "order", f"a new entry of {scope.text} does not move on: {result}")


async def _goes_on(client: EngineClient, tenant: str, scope: Scope) -> list[str]:
    engine, entries = client.engine, client.engine.entries
    first = await entries.write(tenant, EntryDraft(scope=scope, content="after one"))
    other = await entries.write(tenant, EntryDraft(scope=scope, content="after other"))
    match (
        client.world.scenario.seed % 3
    ):  # what the setback left is met by a move first, by a relation, or by an update
        case 0:
            await _moves_on(client, tenant, other.id, scope)
        case 1:
            await engine.relations.relate(tenant, other.id, "refines", first.id)
    await entries.update(tenant, first.id, {"content": "after two"})
    link = await engine.relations.relate(tenant, first.id, "supports", other.id)
    for again in range(2):
        told = [e.content for e in await entries.history(tenant, first.id)]
        if told != ["after one", "after two"]:
            _broken(client, "wrong past", f"of a new entry of {scope.text} is told {told}")
        if link.id not in {r.id for r in await engine.relations.find(tenant, source_id=first.id)}:
            _broken(client, "lost", f"a new relation in {scope.text} is not listed")
        seen = {e.id for e in await engine.browser.browse(EntryQuery(tenant, (scope,), limit=200))}
        if not {first.id, other.id} <= seen:
            _broken(client, "lost", f"new entries of {scope.text} are not browsed")
        if not again:
            await asyncio.sleep(1)
            await _moves_on(client, tenant, first.id, scope)
    return [first.id, other.id]


def _broken(client: EngineClient, kind: str, why: str) -> None:
    client.history.broken(kind, "after a setback", why)
