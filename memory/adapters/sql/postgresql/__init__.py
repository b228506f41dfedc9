"""The SQL adapter on PostgreSQL, under the schemes `postgresql` and `postgres`. Importing this loads neither SQLAlchemy nor a driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.adapters.sql.postgresql.claims import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter
from memory.ports.record import JsonValue

if TYPE_CHECKING:
    from memory.adapters.sql.postgresql.store import PostgresStore

__all__ = ["PostgresStore", "adapter"]


def _build(name: str, url: str, options: Mapping[str, JsonValue]) -> PostgresStore:
    from memory.adapters.sql.postgresql.store import PostgresStore

    return PostgresStore(url, name=name, **options)


def __getattr__(name: str) -> Any:
    if name == "PostgresStore":
        from memory.adapters.sql.postgresql.store import PostgresStore

        return PostgresStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


adapter = Adapter(schemes=SCHEMES, claims=CLAIMS, build=_build, extra="postgresql")
