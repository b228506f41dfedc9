"""The Redis and Valkey adapter: single servers, Sentinel and Cluster. Importing this does not load redis-py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.adapters.redis.claims import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter
from memory.ports.record import JsonValue

if TYPE_CHECKING:
    from memory.adapters.redis.store import RedisStore

__all__ = ["RedisStore", "adapter"]


def _build(name: str, url: str, options: Mapping[str, JsonValue]) -> RedisStore:
    from memory.adapters.redis.store import RedisStore

    return RedisStore(url, name=name, **options)


def __getattr__(name: str) -> Any:
    if name == "RedisStore":
        from memory.adapters.redis.store import RedisStore

        return RedisStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


adapter = Adapter(schemes=SCHEMES, claims=CLAIMS, build=_build, extra="redis")
