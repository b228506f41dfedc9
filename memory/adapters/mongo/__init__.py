"""MongoDB adapter: single servers, replica sets and sharded clusters.

Importing this package does not load pymongo.
"""

from __future__ import annotations

from memory.adapters.mongo.config import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=SCHEMES,
    claims=CLAIMS,
    build=built_by("memory.adapters.mongo.store", "MongoStore", for_code=("thresholds",)),
    extra="mongodb",
)
