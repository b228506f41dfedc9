"""Qdrant adapter, under the schemes `qdrant`, `qdrants` and `qdrant+edge`.

Importing this package loads no driver.
"""

from __future__ import annotations

from memory.adapters.qdrant.config import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=SCHEMES,
    claims=CLAIMS,
    build=built_by("memory.adapters.qdrant.store", "QdrantStore", for_code=("thresholds", "client")),
    extra="qdrant",
)
