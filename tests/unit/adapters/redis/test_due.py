"""The sets of what is due and of what is old, over long histories: they say what
questions about everything say, and no audit finds more.
"""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from memory.adapters.redis.keys import address_of, record_key
from memory.adapters.redis.search import aged_up_to
from memory.adapters.redis.store import RedisStore
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, apply_all, key_of, put, record
from memory.ports.due import DuePage, DueRow, due_by_queries
from memory.ports.query import And, Eq, Everywhere, Le, Lt, Or, Order, Query, within
from memory.ports.record import PendingStep, Role, Standing
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    Write,
)
from tests.support.depth import drawn
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

MOMENTS = [T0 + timedelta(days=day, microseconds=micro) for day in (-1, 0, 1) for micro in (0, 1)]
TIERS = ("short", "mid", "größer:als")
STEPS = (PendingStep("1", "deliver", {"to": "long", "n": 2**60}), PendingStep("2", "erase"))
EXPIRED = {SAMPLES: T0, PLAIN: T0 + timedelta(days=1)}


class _Chance(random.Random):
    """A write that may apply to what stands there, more often than not."""

    def moment(self) -> datetime | None:
        return self.choice([None, *MOMENTS])

    def write(self, stands: dict[tuple[str, str], Standing]) -> Write:
        at, n, collection = self.choice((HERE, ELSEWHERE, FOREIGN)), self.randrange(6), self.choice(DECLARED)
        key, stored = key_of(n, at), stands.get((collection.name, key_of(n, at).id))
        version = stored.version if stored else 1
        owed = tuple(self.sample(STEPS, self.randrange(3)))
        settles = frozenset(s.step for s in STEPS) if self.random() < 0.8 else frozenset()
        match self.randrange(9):
            case 0 | 1 | 2:
                made = record(
                    n,
                    at,
                    version=version + 1,
                    role=self.choice(list(Role)),
                    tier=self.choice(TIERS),
                    owed=owed,
                    created_at=self.choice(MOMENTS),
                    updated_at=self.choice(MOMENTS),
                    expires_at=self.moment(),
                )
                return Put(
                    collection, made, self.choice((Absent(), AtVersion(version), Newer(), Always())), settles
                )
            case 3:
                when = self.choice((AtVersion(version), Newer()))
                return Delete(
                    collection, key, version + 1, when, owed, discard_at=self.moment(), settles=settles
                )
            case 4:
                return Release(collection, key, version, "long", owed, self.moment(), settles)
            case 5 | 6:
                settle = tuple(self.sample(["1", "2"], self.randrange(3)))
                role = self.choice((None, Role.HOME, Role.ARRIVING))
                return Annotate(
                    collection,
                    key,
                    version,
                    role=role,
                    tier=self.choice((None, *TIERS)),
                    settle=settle,
                    discard_at=self.moment(),
                )
            case 7:
                return Purge(collection, key, version, self.choice((None, Role.ARRIVING)), settles)
            case _:
                return RaiseGeneration(at)


@pytest.mark.parametrize("seed", range(drawn(3, 1)))
async def test_after_every_history_the_set_says_what_questions_say(store: RedisStore, seed: int) -> None:
    chance = _Chance(seed)
    told = old = 0
    for turn in range(27):
        stands = {
            (c.name, s.key.id): s
            for c in DECLARED
            for s in await store.get(c, _KEYS)
            if s is not None and isinstance(s, Standing)
        }
        await store.apply(
            [chance.write(stands) for _ in range(chance.choice((1, 3, 12)))], together=chance.random() < 0.2
        )
        if turn % 13 == 12:
            await store.delete_matching(
                Query(SAMPLES, within(HERE)), 1, chance.moment(), frozenset({"deliver"})
            )
        now = chance.choice(MOMENTS)
        expected = await due_by_queries(store.query, DECLARED, now, 10_000, None, EXPIRED)
        for limit in (500, 3):
            rows = await _all(store, now, limit)
            assert sorted(map(_flat, rows)) == sorted(map(_flat, expected.rows)), (turn, limit)
        told += len(expected.rows)
        old += sum([await _old_ones(store, tier, now) for tier in TIERS])
    assert (await store.audit()).problems == ()
    assert told > 60, "hardly anything was ever due"
    assert old > 30, "hardly anything was ever old"


async def _old_ones(store: RedisStore, tier: str, at: datetime) -> int:
    """How many are old enough: the same by age and by going through all there are."""
    old = And((Eq("tier", tier), Or((Le("updated_at", at), And((Lt("created_at", at), Eq("owing", True)))))))
    by_age = Query(
        SAMPLES, Everywhere(), old, (Order("created_at"),), roles=frozenset({Role.HOME, Role.ARRIVING})
    )
    assert aged_up_to(by_age) == (tier, at)
    found = sorted(record.key.id for record in (await store.query(by_age)).records)
    assert found == sorted(record.key.id for record in (await store.query(replace(by_age, order=()))).records)
    assert (await store.count(by_age)).records == len(found)
    return len(found)


async def test_where_nothing_is_old_nothing_is_read(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply_all(
        store,
        *[put(record(n, tier="short")) for n in range(5)],
        put(record(9, tier="mid", created_at=MOMENTS[0])),
    )
    asked: list[str] = []
    run = store._connections.run

    async def noted(name: str, *rest: Any, **options: Any) -> list[bytes]:
        asked.append(name)
        return await run(name, *rest, **options)

    monkeypatch.setattr(store._connections, "run", noted)
    query = Query(
        SAMPLES,
        Everywhere(),
        And((Eq("tier", "short"), Le("updated_at", MOMENTS[0]))),
        (Order("created_at"),),
    )
    assert (await store.query(query)).records == ()
    assert (await store.due(MOMENTS[0], expired=EXPIRED)).rows == ()
    assert asked == ["any", "any"]
    query = replace(query, filter=And((Eq("tier", "short"), Le("updated_at", MOMENTS[-1]))))
    assert len((await store.query(query)).records) == 5


async def test_what_cannot_be_read_is_named_among_what_is_old(store: RedisStore) -> None:
    await apply_all(store, put(record(1, tier="short")), put(record(2, tier="short")))
    address = address_of(SAMPLES.name, key_of(1))
    at = record_key(store.config.prefix, address)
    await store._connections.command("SETRANGE", at, 200, "damage")
    query = Query(
        SAMPLES,
        Everywhere(),
        And((Eq("tier", "short"), Le("updated_at", MOMENTS[-1]))),
        (Order("created_at"),),
    )
    for _ in range(2):
        page = await store.query(query)
        assert page.corrupt == (key_of(1),)
        assert [record.key for record in page.records] == [key_of(2)]
    assert (
        await store.query(replace(query, filter=And((Eq("tier", "mid"), Le("updated_at", T0)))))
    ).corrupt == (key_of(1),)


_KEYS = [key_of(n, at) for at in (HERE, ELSEWHERE, FOREIGN) for n in range(6)]


async def _all(store: RedisStore, now: datetime, limit: int) -> list[DueRow]:
    rows: list[DueRow] = []
    page: DuePage | None = None
    while page is None or page.cursor is not None:
        page = await store.due(now, limit, None if page is None else page.cursor, expired=EXPIRED)
        rows += page.rows
    return rows


def _flat(row: DueRow) -> tuple[str, str, str, int, str, str]:
    return (row.collection.name, row.key.tenant, row.key.id, row.version, row.why, row.tier)
