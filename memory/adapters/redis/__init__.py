"""Redis and Valkey adapter: single servers, Sentinel and Cluster.

Importing this package does not load redis-py.

Modules beyond those of every adapter:

- `keys`: names of keys
- `scripts` and the folder `lua`: code that runs on the server
- `indexes`: reading of indexes
- `forms`: cached data of searched partitions
- `due`, `audit`, `cluster`, `inspection`
- `settings`: how safely a server stores acknowledged writes
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
