"""After the last fault: nothing may be owed for ever, and the stores must hold exactly
what the history says, and no text beside it.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from memory.adapters.in_memory import InMemoryStore
from memory.domain.scope import Scope
from memory.orchestrator.embeddings.passages import part_id
from memory.orchestrator.storage.collections import (
    ENTRIES,
    ENTRY_PASSAGES,
    ENTRY_VERSIONS,
    OPERATIONS,
    RELATIONS,
)
from memory.orchestrator.storage.entry_records import meaning_of, parts_in, said_at, texts_of
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.past_versions import same_life
from memory.orchestrator.storage.topology import leaves_of
from memory.policies.entry_query import EntryQuery
from memory.policies.text_features import marks_of
from memory.ports.record import Mark, Record, Role, Stored, Tombstone
from tests.simulation.relating import every_link
from tests.simulation.scenes import Kind
from tests.simulation.setback import aftermath, set_back
from tests.simulation.setup import vector_of
from tests.simulation.workload import ALL_SCOPES, TENANTS, Operation

if TYPE_CHECKING:
    from tests.simulation.client import EngineClient
    from tests.simulation.world import World

REPLICATED = Scope.user("ada")
"""A scope whose entries are replicated from the start."""
ROUNDS = 6
"""Sweeps after which nothing may be owed any more when nothing fails."""

_MARKER = re.compile(r"\bm(?:c?\d+(?:\.\d+)?|k\d*-[\w:-]*)")


async def settle(client: EngineClient) -> None:
    """Sweep until nothing is owed, read everything, let all lives end, sweep and read
    again, and look into the stores.
    """
    Inspection(client).look_into_the_cache()
    await sweep_clean(client)
    client.history.settled()
    client.world.agrees(client.engine.generations)
    Inspection(client).before_anything_moves(client)
    if client.world.scenario.setback:
        set_back(client.world)
        await aftermath(client)
        return
    await _read_everything(client)
    await _work_goes_on(client)
    settings = client.engine.settings
    for life in (
        settings.mark_life,
        *3 * [settings.tombstone_life],
    ):  # the last for marks and tombstones that age brought about: moves, expiries
        await asyncio.sleep(life.total_seconds() + 300)
        await sweep_clean(client)
    await _read_everything(client)
    Inspection(client).run()


async def sweep_clean(client: EngineClient) -> None:
    for _ in range(ROUNDS):
        await asyncio.sleep(client.engine.settings.lease.total_seconds() * 3)
        report = await client.engine.maintenance.sweep()
        owed = report.pending_steps > _owed_meanwhile(client)
        if report.ran and not (
            report.finished or owed or report.moved or report.removed_copies or report.waiting
        ):
            return
    client.history.broken(
        "leftover", "-", f"after {ROUNDS} sweeps without a fault there is still work to do: {report}"
    )


def _owed_meanwhile(client: EngineClient) -> int:
    """How many copies owe what waits: for another copy that cannot be read (a move
    whose source was damaged ends when that is deleted), and where a store was set back,
    of what has not arrived, for its healing.
    """
    unreadable, set_back = _unreadable(client.world.stores), bool(client.engine.rollback_detector.known)
    owing = [
        row
        for store in client.world.stores
        for row in store.state.everything(ENTRIES.name)
        if standing_owes(row)
    ]
    return sum(
        row.key.id in unreadable or (set_back and isinstance(row, Record) and row.role is Role.ARRIVING)
        for row in owing
    )


def _unreadable(stores: Iterable[InMemoryStore]) -> set[str]:
    return {key.id for store in stores for _, key in store.state.snapshot().damaged}


async def _read_everything(client: EngineClient) -> None:
    await asyncio.sleep(client.engine.settings.cache_max_age.total_seconds() + 1)
    for tenant in TENANTS:
        for scope in ALL_SCOPES:
            asked = EntryQuery(tenant, (scope,), limit=200)
            await client.answered("final browse", asked, lambda a=asked: client.engine.browser.browse(a))  # type: ignore[misc]
            await client.found("final search", asked)
    for name, entry_id in list(client.world.ids.items()):
        tenant = client.history.registers[name].tenant
        done = await client.attempt("final get", lambda t=tenant, i=entry_id: client.engine.entries.get(t, i))  # type: ignore[misc]
        if done is not None:
            client.sight(name, done[0], tenant, done[1])
        await client.remembered(name, entry_id, len(name), settled=True)
    for tenant in TENANTS:
        await every_link(client, tenant, "final relations")


_REPEATED = (Kind.PROMOTE, Kind.PROMOTE, Kind.UPDATE, Kind.RELATE, Kind.MOVE)


async def _work_goes_on(client: EngineClient) -> None:
    """A few of everything, on what the run left, by a worker that nothing strikes:
    whatever is refused is refused for ever.
    """
    number = len(client.world.scenario.operations)
    names = [name for name in client.world.ids if ">" not in name]
    for name in names[:: max(1, len(names) // 4)]:
        register = client.history.registers[name]
        scope = Scope.parse(register.scope)
        kinds = (Kind.KEYED, *_REPEATED, Kind.DELETE, Kind.KEYED) if name.startswith("k") else _REPEATED
        for kind in kinds:
            number += 1
            client.process.begin(number)
            await client.perform(
                Operation(number, 0, kind, name, register.tenant, scope, 6 * number + 1, 0.0)
            )
    await _delivered_behind(client, number + 1)
    await sweep_clean(client)
    client.history.settled()


async def _delivered_behind(client: EngineClient, number: int) -> None:
    """What is written and edited is found by its meaning before it is delivered, and is
    delivered then, without a sweep.
    """
    for n, tenant in enumerate(TENANTS):
        asked = EntryQuery(tenant, (REPLICATED,), mode="semantic", limit=200)
        for m, kind in enumerate((Kind.WRITE, Kind.UPDATE, Kind.UPDATE), number + 3 * n):
            client.process.begin(m)
            await client.perform(Operation(m, 0, kind, f"d{number}-{n}", tenant, REPLICATED, 6 * m + 1, 0.0))
            await client.found("search before it is delivered", asked)
    await client.engine.deliveries.flush()
    await client.found("search once it is delivered", asked)
    Inspection(client).once_it_is_delivered()


class Inspection:
    """Looks at everything that every store holds, below the port, but for what disks
    damaged: nothing can be told of it.
    """

    def __init__(self, client: EngineClient) -> None:
        self._history = client.history
        self._topology = client.engine.topology
        self._long_texts = client.engine.long_texts
        self._stores = {store.name: store for store in client.world.stores}
        self._homes: dict[str, list[tuple[str, Record]]] = defaultdict(list)
        self._kept: dict[str, dict[int, Record]] = defaultdict(dict)
        self._unreadable = _unreadable(client.world.stores)
        self._living: set[str] = set()
        """What has its home somewhere, or is about to."""
        for name, collection, standing in self._everything():
            if (
                collection == ENTRIES.name
                and isinstance(standing, Record)
                and standing.role in (Role.HOME, Role.ARRIVING)
            ):
                self._living.add(standing.key.id)
            if collection == ENTRIES.name and isinstance(standing, Record) and standing.role is Role.HOME:
                self._homes[standing.key.id].append((name, standing))
            elif collection == ENTRY_VERSIONS.name and isinstance(standing, Record):
                self._kept[str(standing.fields["entry_id"])][standing.version] = standing

    def look_into_the_cache(self) -> None:
        """At any moment a cache holds nothing but copies of what lives in the tier it
        is for, and they owe nothing.
        """
        for name, collection, standing in self._everything():
            if self._stores[name].capabilities.durable or not isinstance(standing, Record):
                continue
            if standing.role is not Role.CACHED or standing.tier != "short" or standing.owed:
                self._broken(
                    "foreign",
                    standing.key.id,
                    f"is no copy for the cache {name}, and is in it as one of {collection}: {standing}",
                )

    def once_it_is_delivered(self) -> None:
        """What nothing struck needs no sweep: every replica stands, and no home owes
        anything.
        """
        self._inspect_replicas(alone=True)
        for name, home in [
            one
            for entry_id, homes in self._homes.items()
            if entry_id not in self._unreadable
            for one in homes
        ]:
            if home.owed:
                self._broken(
                    "leftover",
                    home.key.id,
                    f"owes {[owed.id for owed in home.owed]} in {name}, though nothing failed",
                )

    def before_anything_moves(self, client: EngineClient) -> None:
        """Once nothing is owed any more: a later edit or move would bring a replica
        that is missing now.
        """
        self._no_copy_of_what_is_gone(client)
        self._inspect_replicas(alone=True)

    def _no_copy_of_what_is_gone(self, client: EngineClient) -> None:
        """Once nothing is owed any more a cache has no copy, of those it may serve, of
        what was deleted.
        """
        now, oldest = client.process.clock(), client.engine.settings.cache_max_age
        for name, collection, standing in self._everything():
            store = self._stores[name]
            if (
                store.capabilities.durable
                or not isinstance(standing, Record)
                or standing.key.id in self._unreadable
            ):
                continue
            served = (
                standing.epoch == store.epoch
                and standing.cached_at is not None
                and abs(now - standing.cached_at) <= oldest
            )
            if served and standing.key.id not in self._living:
                self._broken(
                    "leftover",
                    standing.key.id,
                    f"was deleted, and {name} still has a copy of it, of {collection}: {standing}",
                )

    def run(self) -> None:
        for entry_id, homes in self._homes.items():
            if len(homes) > 1 and entry_id not in self._unreadable:
                self._broken(
                    "doubled", entry_id, f"has its home in {' and in '.join(name for name, _ in homes)}"
                )
        for name, collection, standing in self._judged():
            if standing_owes(standing):
                self._broken("leftover", standing.key.id, f"owes in {name}: {standing}")
            if isinstance(standing, Mark | Tombstone):
                self._broken(
                    "leftover",
                    standing.key.id,
                    f"a {type(standing).__name__.lower()} of {collection} is still in {name} after its life",
                )
            elif isinstance(standing, Record):
                self._inspect(name, collection, standing)
        self._inspect_replicas()
        self._inspect_passages()
        self._inspect_pasts()
        for name, store in self._stores.items():
            for partition, generation in store.state.idle() if store.capabilities.durable else ():
                self._broken(
                    "leftover",
                    str(partition),
                    f"nothing stands there any more, and {name} keeps its generation {generation}",
                )

    def _inspect(self, name: str, collection: str, record: Record) -> None:
        about = str(record.fields.get("entry_id") or record.fields.get("part_of") or record.key.id)
        if record.role is Role.ARRIVING:
            self._broken("leftover", about, f"an arriving copy is still in {name}")
        if collection == OPERATIONS.name:
            self._broken("leftover", about, f"an operation is still in {name}: {record}")
        scoped = collection in {kind.collection.name for kind in KINDS.scoped}
        if scoped and (record.generation or 0) < self._stores[name].state.generation(record.partition):
            self._broken(
                "leftover", about, f"is of before an erasure of its scope, and is in {name}: {record}"
            )
        if (
            scoped
            and record.role is not Role.CACHED
            and name not in {leaf.name for leaf in leaves_of(self._topology.home(record.tier))}
        ):
            self._broken("torn", about, f"says that it is in tier {record.tier}, and is in {name}: {record}")
        if collection == RELATIONS.name and not {
            record.fields["source_id"],
            record.fields["target_id"],
        } <= set(self._homes):
            self._broken("leftover", about, f"a relation outlived an end of it in {name}")
        if about not in self._homes and (text := _MARKER.findall(repr(record))):
            self._broken(
                "leftover",
                about,
                f"text {text} of an erased entry is in {name} as a {record.role} of {collection}",
            )
        if collection in (ENTRIES.name, ENTRY_VERSIONS.name):
            self._inspect_what_it_is_found_by(name, record)
            roots = {
                self._history.markers.get(marker, "?").partition(">")[0]
                for marker in _MARKER.findall(repr(record))
            }
            register = self._history.names.get(about)
            if register is not None and roots - {register.partition(">")[0]}:
                self._broken("foreign", register, f"text written for {sorted(roots)} is in {name}: {record}")

    def _inspect_what_it_is_found_by(self, name: str, record: Record) -> None:
        """Words, vector and marks are those of the text, which stands nowhere else."""
        texts, fields = record.texts, dict(record.fields)
        words = texts_of(
            texts.get("title"),
            texts.get("content", ""),
            list(fields.get("tags") or ()),  # type: ignore[arg-type]
            fields.get("source"),  # type: ignore[arg-type]
        )
        meaning = meaning_of(record)
        made = (
            dict(texts) == words
            and record.vector == vector_of(meaning)
            and fields["marks"] == marks_of(meaning)
        )
        if not made or record.body.keys() & {"title", "content"}:
            self._broken("stale", record.key.id, f"in {name} it is found by what it does not say: {record}")

    def _inspect_pasts(self) -> None:
        """What is kept of an entry is each version that one of this life replaced, and
        no other.
        """
        for entry_id, homes in self._homes.items():
            register = self._history.registers.get(self._history.names.get(entry_id, ""))
            if len(homes) != 1 or entry_id in self._unreadable or (register is not None and register.damaged):
                continue
            home = homes[0][1]
            kept, version, chain = self._kept[entry_id], home.previous, set[int]()
            while version is not None and version not in chain:
                chain.add(version)
                if version not in kept:
                    self._broken(
                        "lost",
                        entry_id,
                        f"version {version}, which an edit replaced, is not kept: {sorted(kept)}",
                    )
                    break
                version = kept[version].previous
            for other in kept.keys() - chain:
                self._broken(
                    "leftover",
                    entry_id,
                    f"version {other} is kept, which is none that this life replaced: {kept[other]} of"
                    f" {home}",
                )
            for version in kept.keys() & chain:
                if not same_life(kept[version], home):
                    self._broken(
                        "leftover",
                        entry_id,
                        f"version {version} is of another life: {kept[version]} of {home}",
                    )

    def of_these(self, ids: Sequence[str]) -> None:
        """Look at the replicas and the kept versions of these entries alone."""
        self._homes = defaultdict(list, {i: self._homes[i] for i in ids})
        for entry_id, homes in self._homes.items():
            if len(homes) != 1:
                self._broken(
                    "doubled" if homes else "lost", entry_id, f"has its home in {[name for name, _ in homes]}"
                )
        self._inspect_pasts()
        self._inspect_replicas(alone=True)

    def _inspect_replicas(self, *, alone: bool = False) -> None:
        """Every replica equals its home, and every home that wants one has it. `alone`:
        those without a home are not asked about.
        """
        found: set[tuple[str, str]] = set()
        for name, collection, standing in self._judged():
            if collection == ENTRIES.name and isinstance(standing, Record) and standing.role is Role.REPLICA:
                homes = self._homes.get(standing.key.id, [])
                if not homes and alone:
                    continue
                found.add((name, standing.key.id))
                if not any(home.same_content(standing) for _, home in homes):
                    self._broken(
                        "stale",
                        standing.key.id,
                        f"the replica in {name} is not what its home says: {standing} / {homes}",
                    )
        for entry_id, homes in self._homes.items():
            for name, home in homes if entry_id not in self._unreadable else ():
                for tier in KINDS.of(ENTRIES).replicas(home.tier):
                    target = self._topology.home(tier).name
                    if target != name and (target, entry_id) not in found:
                        self._broken("lost", entry_id, f"has no replica in {target}")

    def _inspect_passages(self) -> None:
        """Every passage is of a part of what its home says, and every part of a long
        text has one, where they belong.
        """
        where = {leaf.name for leaf in leaves_of(self._long_texts.store)}
        wanted = {
            (entry_id, number): (said_at(homes[0][1]), vector_of(part))
            for entry_id, homes in self._homes.items()
            if len(homes) == 1 and entry_id not in self._unreadable
            for number, part in enumerate(parts_in(homes[0][1]))
        }
        for name, collection, standing in self._judged():
            if (
                collection == ENTRY_PASSAGES.name
                and isinstance(standing, Record)
                and standing.fields["part_of"] not in self._unreadable
            ):
                part = (str(standing.fields["part_of"]), int(str(standing.fields["part"])))
                if name not in where or wanted.pop(part, None) != (standing.version, standing.vector):
                    self._broken(
                        "stale",
                        part[0],
                        f"{name} has a passage of what it does not say, or has it twice: {standing}",
                    )
        for entry_id, number in wanted:
            if part_id(entry_id, number) not in self._unreadable:
                self._broken("lost", entry_id, f"has no passage of part {number}")

    def _judged(self) -> Iterator[tuple[str, str, Stored]]:
        """Everything but what stands under a key that cannot be read, and what nobody
        can know of.
        """
        for name, collection, standing in self._everything():
            if standing.key.id not in self._unreadable and not self._cannot_be_known(collection, standing):
                yield name, collection, standing

    def _cannot_be_known(self, collection: str, standing: Stored) -> bool:
        """What was left by an entry that was damaged and then deleted unread.

        That is a kept version that was still on its way; and a replica of an entry that
        was written while its scope was being erased: it is younger than the erasure,
        which takes what it cannot read to be older.
        """
        about = (
            str(standing.fields.get("entry_id") or standing.key.id) if isinstance(standing, Record) else ""
        )
        name = self._history.names.get(about)
        if (
            not isinstance(standing, Record)
            or name is None
            or about in self._homes
            or not self._history.registers[name].damaged
        ):
            return False
        if collection == ENTRY_VERSIONS.name:
            return standing.version in self._history.registers[name].unknown
        return standing.role is Role.REPLICA and (standing.generation or 0) > 0

    def _everything(self) -> Iterator[tuple[str, str, Stored]]:
        for name, store in self._stores.items():
            for collection in KINDS.collections:
                for standing in list(store.state.everything(collection.name)):
                    yield name, collection.name, standing

    def _broken(self, kind: str, entry_id: str, detail: str) -> None:
        self._history.broken(kind, self._history.names.get(entry_id, entry_id), detail)


def of_scope(world: World, tenant: str, scope: str) -> set[tuple[str, str, str, int]]:
    """Every readable record of a scope that stands in a durable store, by the store,
    its collection, its key and its version.
    """
    return {
        (store.name, collection.name, standing.key.id, standing.version)
        for store in world.durable
        for collection in [kind.collection for kind in KINDS.scoped]
        for standing in store.state.everything(collection.name)
        if isinstance(standing, Record) and (standing.key.tenant, standing.scope) == (tenant, scope)
        if not store.state.is_damaged(collection.name, standing.key)
    }


def standing_owes(standing: Stored) -> bool:
    return bool(getattr(standing, "owed", ()))
