"""No error of a driver leaves an adapter: whatever its driver may raise, and its
driver's drivers, is one of ours.
"""

from __future__ import annotations

import importlib
import inspect
from contextlib import suppress
from typing import Any

import httpx

from memory.domain.errors import MemoryTiersError
from memory.ports.base import BaseStore
from memory.ports.contract.cells import cells

DRIVERS = {
    "qdrant": (
        "qdrant.store.QdrantStore",
        "qdrant://h",
        ["qdrant_client.http.exceptions", "qdrant_client.common.client_exceptions", "httpx"],
    ),
    "redis": ("redis.store.RedisStore", "redis://h", ["redis.exceptions"]),
    "mongo": ("mongo.store.MongoStore", "mongodb://h", ["pymongo.errors", "bson.errors"]),
    "postgresql": ("sql.postgresql.store.PostgresStore", "postgresql://h/db", ["asyncpg.exceptions"]),
    "mysql": ("sql.mysql.store.MySqlStore", "mysql://h/db", ["asyncmy.errors"]),
}
_NO_ERRORS = {"ChildDeadlockedError", "IncorrectPolicyType"}
"""Of redis: for its own threads and its own configuration; no call raises them."""
_ARGUMENTS: tuple[tuple[Any, ...], ...] = (
    ("x",),
    ("x", 1),
    ("x", 1, {}),
    ({},),
    ({}, True),
    (ValueError("x"),),
    ("x", "x", 1),
    (500, "reason", b"no JSON", httpx.Headers()),
)


def _raised(kind: type[Exception]) -> Exception:
    for arguments in _ARGUMENTS:
        with suppress(Exception):
            return kind(*arguments)
    return kind.__new__(kind)


@cells("driver", DRIVERS, shared=True)
def test_every_exception_of_a_driver_is_translated(driver: str) -> None:
    path, url, modules = DRIVERS[driver]
    module, _, name = path.rpartition(".")
    store = getattr(importlib.import_module(f"memory.adapters.{module}"), name)(url)
    assert isinstance(store, BaseStore)
    kinds = {
        kind
        for where in modules
        for _, kind in inspect.getmembers(importlib.import_module(where), inspect.isclass)
        if issubclass(kind, Exception)
        and not issubclass(kind, Warning)
        and kind.__module__.split(".")[0] == where.split(".")[0]
    }
    assert len(kinds) > 5
    leaking = [
        k.__qualname__
        for k in kinds
        if k.__name__ not in _NO_ERRORS and not isinstance(store._translate(_raised(k)), MemoryTiersError)
    ]
    assert leaking == []
