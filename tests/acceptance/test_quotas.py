"""Quotas, as they are configured, on every way of placing the tiers, with two writers."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest

from memory import ConfigError, Memory, QuotaExceeded
from tests.acceptance.support import ORG, USER, Clock, contents


def _quota(**given: Any) -> dict[str, Any]:
    return {"quotas": [{"name": "personal", "scope_kinds": ["user"], "entries": 12, **given}]}


@pytest.mark.parametrize("then", ["refuse", "evict"])
async def test_two_writers_stay_within_a_quota_but_for_what_is_under_way(config: dict[str, Any], clock: Clock, then: str) -> None:
    apart = not any(kind in str(config) for kind in ("memory://", "edge"))
    async with AsyncExitStack() as opened:
        first = await opened.enter_async_context(Memory(config, clock=clock, **_quota(then=then)))
        second = await opened.enter_async_context(Memory(config, clock=clock, **_quota(then=then))) if apart else first
        refused: list[QuotaExceeded] = []

        async def writes(memory: Memory, name: str) -> None:
            for n in range(12):
                try:
                    await memory.write(f"{name} {n}", scope=USER)
                except QuotaExceeded as error:
                    refused.append(error)

        await asyncio.gather(writes(first, "a"), writes(second, "b"))
        await first.write("of the org", scope=ORG)
        left = await first.retrieve(USER, limit=100)
        assert 12 <= len(left) <= 13
        if then == "refuse":
            assert len(refused) == 24 - len(left)
            assert {(error.quota, error.most, error.measure) for error in refused} == {("personal", 12, "entries")}
        else:
            assert not refused
            evicted = [(await memory.admin.stats()).evicted.get("personal", 0) for memory in {first, second}]
            assert sum(evicted) == 24 - len(left)
            assert {f"{name} 11" for name in "ab"} <= set(contents(left)), "the newest stay"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"entries": 0}, "quotas.1.entries"),
        ({"bytes": 5}, "quotas.personal.entries: or bytes"),
        ({"thn": "evict"}, "quotas.1.thn: there is no setting 'thn'"),
    ],
    ids=["none", "both", "no-such-setting"],
)
def test_a_quota_that_cannot_be_is_refused_by_name(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Memory(_quota(**given))
