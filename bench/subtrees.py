"""What a search of a subtree costs: 1,000 scopes with ten entries each, beside the same
entries in one scope. At the port for each store, and at the facade for each topology.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from importlib.metadata import entry_points
from pathlib import Path

from bench.measure import Figure, side_by_side
from bench.placed import on_each
from bench.texts import questions, sentences
from memory import Memory, Scope
from memory.domain.ids import new_id
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS
from memory.policies.ranking.fields import SELECT
from memory.ports.adapter import Adapter
from memory.ports.candidates import Candidates
from memory.ports.query import Near, Search, Under, Where, Words, within
from memory.ports.record import Key, Partition, Record, pack_vector
from memory.ports.store import Store
from memory.ports.text import query_words
from memory.ports.writes import Newer, Put
from tests.support import postgres_servers
from tests.support.placings import ORDINARY, Placing

NAMES = ("default", "postgres-only", "redis-postgres-edge", "mongo-only")
SCOPES, EACH, CALLS, DIMENSIONS = 1_000, 10, 30, 256
AT_ONCE = 500
START = datetime(2024, 1, 1, tzinfo=UTC)
TREE = Scope.path("teams")
PLACE = Under("acme", (TREE.text,))
ONE = Partition("acme", "user:ada")
ALONE = ("default", "files-only", "postgres-only", "mariadb-only", "mongo-only", "redis-only", "edge-only")
"""Topologies of a single store, which is measured at its port."""


async def subtrees(folder: Path, rounds: int) -> list[Figure]:
    chosen = {placing.name: placing for placing in ORDINARY}
    at_port, whole = folder / "port", folder / "whole"
    at_port.mkdir()
    whole.mkdir()
    return [
        *await on_each([chosen[name] for name in ALONE], at_port, "subtrees at the port", _at_port),
        *await on_each([chosen[name] for name in NAMES], whole, "subtrees", _at_the_facade),
    ]


async def _at_port(placing: Placing, folder: Path) -> list[Figure]:
    store = _store(placing.config(folder)["tiers"]["mid"])
    await store.open(KINDS.collections)
    try:
        await _fill(store)
        await _settle(placing)
        return await _figures(placing.backends[0], store)
    finally:
        await store.close()


async def _settle(placing: Placing) -> None:
    """Have PostgreSQL do what it does within a minute by itself after so many writes."""
    if "postgresql" not in placing.backends:
        return
    import asyncpg

    connection = await asyncpg.connect(**postgres_servers.container().settings)
    try:
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()


def _store(url: str) -> Store:
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    return adapter.build("bench", url, {})


async def _fill(store: Store) -> None:
    """Keep every entry twice: in its scope of the tree, and in the one scope."""
    chance = random.Random(31)  # noqa: S311 - repeatable, not secret
    contents = sentences(SCOPES * EACH, seed=31)
    vectors = [pack_vector([chance.gauss(0, 1) for _ in range(DIMENSIONS)]) for _ in contents]
    for start in range(0, len(contents), AT_ONCE):
        for in_tree in (True, False):
            puts = []
            for n in range(start, start + AT_ONCE):
                at = Partition("acme", f"{TREE.text}{n % SCOPES:04}/") if in_tree else ONE
                puts.append(Put(ENTRIES, _record(n, at, contents[n], vectors[n], chance), Newer()))
            await store.apply(puts)


def _record(n: int, at: Partition, content: str, vector: bytes, chance: random.Random) -> Record:
    key = Key(at.tenant, new_id(at.tenant, at.scope, n * 1_000_000, chance.getrandbits))
    when = START + timedelta(seconds=n)
    return Record(
        key,
        at.scope,
        n + 1,
        when,
        when,
        None,
        {"type": "fact"},
        {"content": content},
        {"content": content},
        vector,
    )


async def _figures(name: str, store: Store) -> list[Figure]:
    chance = random.Random(32)  # noqa: S311 - repeatable, not secret
    texts = questions(CALLS + 3, seed=32)
    near = [pack_vector([chance.gauss(0, 1) for _ in range(DIMENSIONS)]) for _ in texts]

    def candidates(where: Where) -> Callable[[int], Awaitable[object]]:
        return lambda n: store.candidates(
            Candidates(
                ENTRIES, where, texts[n], near[n], 50, counted=tuple(query_words(texts[n])), select=SELECT
            )
        )

    def search(where: Where, by: Words | Near) -> Awaitable[object]:
        return store.search(Search(ENTRIES, where, by, 50, select=SELECT))

    def by_words(where: Where) -> Callable[[int], Awaitable[object]]:
        return lambda n: search(where, Words(texts[n]))

    def by_meaning(where: Where) -> Callable[[int], Awaitable[object]]:
        return lambda n: search(where, Near(near[n]))

    ways = {"candidates": candidates}
    ways |= {"search by words": by_words} if store.capabilities.lexical else {}
    ways |= {"search by meaning": by_meaning} if store.capabilities.semantic else {}
    figures = []
    for way, asking in ways.items():
        tree, one = asking(PLACE), asking(within(ONE))
        await side_by_side(3, tree, one)
        ours, raw = await side_by_side(CALLS, tree, one)
        figures.append(_figure(f"{name}: {way} of a subtree, at the port", ours, raw))
    return figures


def _figure(name: str, ours: float, raw: float) -> Figure:
    return Figure(name, ours * 1000, "ms", raw=raw * 1000, ratio_target=2.0, note="raw: in one scope")


async def _at_the_facade(placing: Placing, folder: Path) -> list[Figure]:
    contents = sentences(SCOPES * EACH, seed=31)
    asked = questions(CALLS + 5, seed=32)
    async with Memory(placing.config(folder) | {"durations": {"sweep_every": 0}}) as memory:
        for start in range(0, len(contents), AT_ONCE):
            numbered = list(enumerate(contents[start : start + AT_ONCE], start))
            await memory.write_many([{"content": c, "scope": Scope.user("ada")} for _, c in numbered])
            await memory.write_many(
                [{"content": c, "scope": Scope.path("teams", f"{n % SCOPES:04}")} for n, c in numbered]
            )

        await _settle(placing)

        def tree(n: int) -> Awaitable[object]:
            return memory.search(asked[n], scope=TREE.subtree(), limit=10)

        def one(n: int) -> Awaitable[object]:
            return memory.search(asked[n], scope=Scope.user("ada"), limit=10)

        await side_by_side(5, tree, one)
        ours, raw = await side_by_side(CALLS, tree, one)
    return [_figure(f"{placing.name}: search of a subtree", ours, raw)]
