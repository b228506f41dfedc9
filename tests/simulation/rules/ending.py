"""After the last fault: two workers make rounds of maintenance in turn, as small as
there are in some runs; then nothing stays that a rule covers, and nothing is left of
what has gone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from memory.domain.errors import NotFound
from memory.orchestrator.storage.budgets import UNLIMITED, Allowance
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MESSAGES, RELATIONS, SESSIONS
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.record import Key, Partition, Record, Role
from tests.simulation.loop import OWNER, seeded
from tests.simulation.rules.acts import Worker
from tests.simulation.rules.given import (
    CROWD,
    MOST_OF_A_USER,
    NEWEST,
    PAST,
    RULED,
    TENANTS,
    USER,
    WORKSPACE,
    crowded,
    deletes,
    expires,
    is_pinned,
    settles,
)
from tests.simulation.rules.given import SESSIONS as OF_SESSIONS
from tests.simulation.rules.promises import at, broken, expired, replaced_at
from tests.simulation.rules.told import Told

if TYPE_CHECKING:
    from tests.simulation.rules.run import Run

LONG_ENOUGH, SINCE = timedelta(hours=4), timedelta(hours=1)
"""So long that rules may take most of what was written; then some of it is edited,
which makes it younger for some rules, and time passes.
"""
ROUNDS, QUIET_ROUNDS = 120, 4
BETWEEN = 60.0
"""Seconds between rounds: longer than the lease of a worker that has died."""


async def in_the_end(world: Run) -> None:
    told = world.told
    workers = [Worker(world, world.process(f"auditor {number}", calm=True)) for number in (1, 2)]
    OWNER.set(workers[0])
    for worker in workers:
        await worker.engine.open()
    world.watch.look()
    await asyncio.sleep(LONG_ENOUGH.total_seconds())
    going_on = _not_ended(world) - _of_logs(world)  # what a session's own record says may be behind its log
    waiting = {record.key for record in world.watch.entries().values() if record.partition in going_on}
    await asyncio.gather(workers[1].maintain(UNLIMITED), _edited(world, workers[0]))
    world.watch.look()
    await asyncio.sleep(SINCE.total_seconds())
    await rounds_in_turn(world, workers, Allowance(timedelta(0)) if world.seed % 3 == 1 else UNLIMITED, "")
    told.broken += ended_by_rule(world, waiting)
    await _ended_again(world, workers[0])
    await _one_more(world, workers[1])
    for hold in told.holds:
        await workers[0].release(hold)
    await rounds_in_turn(world, workers, UNLIMITED, "once nothing is held, ")
    told.broken += [f"in the end {what}" for what in nothing_is_left(world)]
    told.broken += broken(told, crowded=crowded(world.seed))


async def rounds_in_turn(world: Run, workers: Sequence[Worker], allowance: Allowance, when: str) -> None:
    """Until several found nothing more; then what was covered when they began is gone."""
    begun, quiet = world.told.now(), 0
    slices = (
        len(list(world.watch.rows(ENTRY_VERSIONS))) // RULED.page
    )  # of kept versions each process goes through one a round
    for number in range(ROUNDS):
        await asyncio.sleep(BETWEEN)
        quiet = 0 if await workers[number % 2].maintain(allowance) else quiet + 1
        world.watch.look()
        if quiet == QUIET_ROUNDS + 2 * slices:
            break
    world.say(f"--- {number + 1} rounds ---")
    world.told.broken += [
        f"after {number + 1} rounds, {when}{what}" for what in nothing_covered_stays(world, begun)
    ]


def ended_by_rule(world: Run, waited: Set[Key]) -> Iterator[str]:
    """The entries of sessions that have ended by rule are no longer where they waited
    for that.
    """
    for key in waited:
        if (
            (record := world.watch.entries().get(key)) is not None
            and record.tier == "short"
            and not expired(record, world.told.now())
        ):
            yield f"the session of {key.id} has ended by rule, and it is where it was: {record}"


def _of_logs(world: Run) -> set[Partition]:
    """The scopes of the sessions in whose logs there is anything: nothing is said in
    them, so that is their end.
    """
    return {
        Partition(row.key.tenant, f"session:{row.scope.partition(':')[2]}")
        for row in world.watch.rows(MESSAGES)
    }


def _not_ended(world: Run) -> set[Partition]:
    """The scopes of the sessions that nobody has ended."""
    rows = [row for row in world.watch.rows(SESSIONS) if row.fields["status"] != "ended"]
    return {Partition(row.key.tenant, f"session:{row.fields['session_id']!s}") for row in rows}


async def _edited(world: Run, worker: Worker) -> None:
    """Every other entry; while a sweep is about to delete some of them, after it has
    asked for what it may delete mostly.
    """
    await asyncio.sleep(seeded(world.seed, 12).random() * 0.06)
    for key in sorted(world.watch.entries(), reverse=True)[::2]:
        with suppress(NotFound):  # it has expired, or is gone
            await worker.edit(key, f"last of {key.id}")


async def _ended_again(world: Run, worker: Worker) -> None:
    """The sessions are over: a second end copies nothing more."""
    for tenant in TENANTS:
        for session in OF_SESSIONS:
            await worker.end(tenant, session)
            world.watch.look()
            again = await worker.end(tenant, session)
            if again.copied or again.moved:
                world.told.broken.append(
                    f"the end of {session} of {tenant} has more to do when it is repeated: {again}"
                )
            world.watch.look()


async def _one_more(world: Run, worker: Worker) -> None:
    """Behind a write what is too much has gone, but for what may not."""
    for tenant in TENANTS:
        before = {record.key for record in world.watch.in_scope(tenant, USER.text)}
        await worker.write_some(tenant, USER, f"last of {tenant}", seeded(world.seed, 11))
        world.watch.look()
        there = world.watch.in_scope(tenant, USER.text)
        free = [
            record
            for record in there
            if record.key in before
            and not is_pinned(record)
            and not _is_held(world.told, record, world.told.now())
        ]
        if len(there) > MOST_OF_A_USER and free:
            world.told.broken.append(
                f"{len(there)} entries are in {USER} of {tenant}, and these may go: {free}"
            )


# -- what a rule covers ----------------------------------------------------------------


def nothing_covered_stays(world: Run, since: float) -> Iterator[str]:
    """What a rule covered at that moment, and nothing has held since."""
    then, told = at(since), world.told
    free = [record for record in world.watch.entries().values() if not _is_held(told, record, since)]
    for record in free:
        if deletes(record, then) or expires(record, then):
            yield f"{record.key.id} is there, though a rule covers it: {record}"
        if record.tier == "mid" and settles(record, then):
            yield f"{record.key.id} is in '{record.tier}', though a rule moves it: {record}"
    for record in _crowd(world) if crowded(world.seed) else ():
        if record in free and not is_pinned(record):
            yield f"{record.key.id} is beyond the newest of its scope: {record}"
    yield from _versions(world, since)
    for partition in _not_ended(world):
        yield f"{partition} has not ended"


def _is_held(told: Told, record: Record, since: float) -> bool:
    return any(hold.possible(since, told.now()) and hold.holds(record) for hold in told.holds)


def _crowd(world: Run) -> Iterator[Record]:
    """What is beyond the newest of each workspace; of the same age, whichever."""
    for tenant in TENANTS:
        there = sorted(
            world.watch.in_scope(tenant, WORKSPACE.text),
            key=lambda record: (record.tier, record.created_at, record.key.id),
            reverse=True,
        )
        of_tier = Counter[str]()
        for record in there:
            of_tier[record.tier] += 1
            if of_tier[record.tier] > CROWD:
                yield record


def _versions(world: Run, since: float) -> Iterator[str]:
    kept: dict[Key, list[Record]] = defaultdict(list)
    for version in world.watch.rows(ENTRY_VERSIONS):
        if not _is_held(world.told, version, since):
            kept[Key(version.key.tenant, str(version.fields["entry_id"]))].append(version)
    for key, versions in kept.items():
        old = [version for version in versions if at(since) - PAST >= replaced_at(version)]
        if key.tenant == "acme" and len(versions) > NEWEST:
            yield f"{len(versions)} versions of {key.id} are kept"
        elif key.tenant == "zeta" and old:
            yield f"versions of {key.id} are kept for too long: {old}"


# -- what is left ----------------------------------------------------------------------


def nothing_is_left(world: Run) -> Iterator[str]:
    """Of what has gone, in any store; and nothing is owed."""
    homes = set(world.watch.entries())
    for row in world.watch.rows(ENTRIES, Role.REPLICA, Role.ARRIVING):
        if row.key not in homes or row.role is Role.ARRIVING:
            yield f"a copy of {row.key.id} is left: {row}"
    for row in world.watch.rows(ENTRY_VERSIONS):
        if Key(row.key.tenant, str(row.fields["entry_id"])) not in homes:
            yield f"a version of {row.fields['entry_id']!s} is left: {row}"
    for row in world.watch.rows(RELATIONS):
        if not {Key(row.key.tenant, str(row.fields[name])) for name in ("source_id", "target_id")} <= homes:
            yield f"a relation is left without an end: {row}"
    for store in world.durable:
        for collection in KINDS.collections:
            for standing in store.state.everything(collection.name):
                if standing.owed:
                    yield f"{standing.key.id} of {collection.name} owes in {store.name}: {standing}"
