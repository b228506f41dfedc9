"""The set of what is due, over long histories: it says what questions about everything say, and the audit finds nothing wrong."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pytest

from memory.adapters.redis.store import RedisStore
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, key_of, record
from memory.ports.due import Due, DueRow, due_by_queries
from memory.ports.query import Query, within
from memory.ports.record import Owed, Role, Standing
from memory.ports.writes import Absent, Always, Annotate, AtVersion, Delete, Newer, Purge, Put, RaiseGeneration, Release, Write
from tests.support.depth import drawn
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]

MOMENTS = [T0 + timedelta(days=day, microseconds=micro) for day in (-1, 0, 1) for micro in (0, 1)]
STEPS = (Owed("1", "deliver", {"to": "long", "n": 2**60}), Owed("2", "erase"))
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
                made = record(n, at, version=version + 1, role=self.choice(list(Role)), owed=owed, expires_at=self.moment())
                return Put(collection, made, self.choice((Absent(), AtVersion(version), Newer(), Always())), settles)
            case 3:
                when = self.choice((AtVersion(version), Newer()))
                return Delete(collection, key, version + 1, when, owed, discard_at=self.moment(), settles=settles)
            case 4:
                return Release(collection, key, version, "long", owed, self.moment(), settles)
            case 5 | 6:
                settle = tuple(self.sample(["1", "2"], self.randrange(3)))
                role = self.choice((None, Role.HOME, Role.ARRIVING))
                return Annotate(collection, key, version, role=role, settle=settle, discard_at=self.moment())
            case 7:
                return Purge(collection, key, version, self.choice((None, Role.ARRIVING)), settles)
            case _:
                return RaiseGeneration(at)


@pytest.mark.parametrize("seed", range(drawn(3, 1)))
async def test_after_every_history_the_set_says_what_questions_say(store: RedisStore, seed: int) -> None:
    chance = _Chance(seed)
    told = 0
    for turn in range(27):
        stands = {(c.name, s.key.id): s for c in DECLARED for s in await store.get(c, _KEYS) if s is not None and isinstance(s, Standing)}
        await store.apply([chance.write(stands) for _ in range(chance.choice((1, 3, 12)))], together=chance.random() < 0.2)
        if turn % 13 == 12:
            await store.delete_matching(Query(SAMPLES, within(HERE)), 1, chance.moment(), frozenset({"deliver"}))
        now = chance.choice(MOMENTS)
        expected = await due_by_queries(store.query, DECLARED, now, 10_000, None, EXPIRED)
        for limit in (500, 3):
            rows = await _all(store, now, limit)
            assert sorted(map(_flat, rows)) == sorted(map(_flat, expected.rows)), (turn, limit)
        told += len(expected.rows)
    assert (await store.audit()).problems == ()
    assert told > 60, "hardly anything was ever due"


_KEYS = [key_of(n, at) for at in (HERE, ELSEWHERE, FOREIGN) for n in range(6)]


async def _all(store: RedisStore, now: datetime, limit: int) -> list[DueRow]:
    rows: list[DueRow] = []
    page: Due | None = None
    while page is None or page.cursor is not None:
        page = await store.due(now, limit, None if page is None else page.cursor, expired=EXPIRED)
        rows += page.rows
    return rows


def _flat(row: DueRow) -> tuple[str, str, str, int, str, str]:
    return (row.collection.name, row.key.tenant, row.key.id, row.version, row.why, row.tier)
