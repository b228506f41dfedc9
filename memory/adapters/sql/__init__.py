"""The SQL adapter, today on SQLite, under the scheme `sqlite`. Importing this loads neither SQLAlchemy nor a driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.adapters.sql.claims import CLAIMS
from memory.ports.adapter import Adapter
from memory.ports.record import JsonValue

if TYPE_CHECKING:
    from memory.adapters.sql.store import SqlStore

__all__ = ["SqlStore", "adapter"]


def _build(name: str, url: str, options: Mapping[str, JsonValue]) -> SqlStore:
    from memory.adapters.sql.store import SqlStore

    return SqlStore(url, name=name, **options)


def __getattr__(name: str) -> Any:
    if name == "SqlStore":
        from memory.adapters.sql.store import SqlStore

        return SqlStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


adapter = Adapter(schemes=("sqlite",), claims=CLAIMS, build=_build)
