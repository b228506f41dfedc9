"""What is derived from records is compared with them, and made anew from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from memory.adapters.redis.store import RedisStore
from tests.support.servers import Server
from tests.unit.adapters import auditing
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [pytest.mark.backend("redis"), *NEEDS_SERVER]


def _named(client: Any, prefix: str, index: str) -> bytes:
    """An index of samples that has members."""
    return max(client.keys(f"*{prefix}*:{index}:samples*"), key=client.zcard)  # type: ignore[no-any-return]


def _one_member_less(index: str) -> Callable[[Any, str], object]:
    return lambda client, prefix: client.zpopmin(_named(client, prefix, index))


def _one_member_for_another(client: Any, prefix: str) -> None:
    """A live record stands among the marks and tombstones."""
    member = client.zrange(_named(client, prefix, "a"), 0, 0)[0]
    client.zadd(_named(client, prefix, "g"), {member[:-48]: 0})


def _one_due_that_is_not(client: Any, prefix: str) -> None:
    member = client.zrange(_named(client, prefix, "a"), 0, 0)[0]
    client.zadd(_due(client, prefix), {b"0" * 16 + member[:-48] + b"osamples": 0})


def _due(client: Any, prefix: str) -> bytes:
    """The set of what is due that has members."""
    return max(client.keys(f"*{prefix}*:d"), key=client.zcard)  # type: ignore[no-any-return]


def _one_in_another_place(client: Any, prefix: str) -> None:
    member = client.zrange(_named(client, prefix, "t"), 0, 0)[0]
    client.zadd(_named(client, prefix, "t"), {b"0" * 16 + member[16:]: 0})


DAMAGE: dict[str, Callable[[Any, str], object]] = {
    "a partition's index lost a record": _one_member_less("t"),
    "the index over all lost a record": _one_member_less("a"),
    "the index of marks and tombstones lost one": _one_member_less("g"),
    "a partition's index is gone": lambda client, prefix: client.delete(_named(client, prefix, "t")),
    "a partition's index is about to go": lambda client, prefix: client.expire(
        _named(client, prefix, "t"), 100
    ),
    "the names of partitions are gone": lambda client, prefix: client.delete(*client.keys(f"*{prefix}*:e")),
    "a partition's collections are gone": lambda client, prefix: client.delete(
        *client.keys(f"*{prefix}*:s:*")
    ),
    "a partition's collections are about to go": lambda client, prefix: client.expire(
        client.keys(f"*{prefix}*:s:*")[0], 100
    ),
    "what is due lost one": lambda client, prefix: client.zpopmin(_due(client, prefix)),
    "what expires lost one": _one_member_less("x"),
    "what is not due stands among what is": _one_due_that_is_not,
    "a partition's marks are gone": lambda client, prefix: client.delete(*client.keys(f"*{prefix}*:m:*")),
    "a live record stands among the dead": _one_member_for_another,
    "a record stands in two places": _one_in_another_place,
}


async def test_nothing_is_found_where_nothing_is_wrong(store: RedisStore) -> None:
    await auditing.nothing_is_found_where_nothing_is_wrong(store)


@pytest.mark.parametrize("what", list(DAMAGE))
async def test_damage_is_named_and_mended_beside_running_writers(
    store: RedisStore, server: Server, prefix: str, what: str
) -> None:
    async def damage() -> None:
        with redis.Redis(port=server.port, socket_timeout=10) as client:
            DAMAGE[what](client, prefix)

    await auditing.damage_is_named_and_mended(
        store, damage, by_readers=what == "a live record stands among the dead"
    )


async def test_ten_thousand_records_are_audited_page_by_page(store: RedisStore) -> None:
    await auditing.many_records_are_audited_page_by_page(store)
