"""The Qdrant adapter, under the schemes `qdrant`, `qdrants` and `qdrant+edge`. Importing this loads no driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.adapters.qdrant.claims import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter
from memory.ports.record import JsonValue

if TYPE_CHECKING:
    from memory.adapters.qdrant.store import QdrantStore

__all__ = ["QdrantStore", "adapter"]


def _build(name: str, url: str, options: Mapping[str, JsonValue]) -> QdrantStore:
    from memory.adapters.qdrant.store import QdrantStore

    return QdrantStore(url, name=name, **options)


def __getattr__(name: str) -> Any:
    if name == "QdrantStore":
        from memory.adapters.qdrant.store import QdrantStore

        return QdrantStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


adapter = Adapter(schemes=SCHEMES, claims=CLAIMS, build=_build, extra="qdrant")
