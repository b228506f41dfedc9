"""The Redis and Valkey adapter: single servers, Sentinel and Cluster. Importing this
does not load redis-py.

Beside the files that every adapter has: `keys` (names), `scripts` and `lua` (what is
done on the server), `indexes`, `forms` (what is kept of the partitions that are
searched), `due`, `audit`, `cluster`, `inspection` and `settings` (how safely a server
keeps what it acknowledged).
"""

from __future__ import annotations

from memory.adapters.redis.config import CLAIMS, SCHEMES
from memory.ports.adapter import Adapter, built_by

__all__ = ["adapter"]

adapter = Adapter(
    schemes=SCHEMES,
    claims=CLAIMS,
    build=built_by("memory.adapters.redis.store", "RedisStore", for_code=("thresholds",)),
    extra="redis",
)
