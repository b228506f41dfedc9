"""All our harnesses, and those that can run on this machine."""

from __future__ import annotations

from memory.ports.contract.harness import Harness
from tests.contract.harnesses import EMBEDDED
from tests.contract.postgres_harnesses import Postgresql, PostgresqlWithVectors
from tests.contract.qdrant_harnesses import QdrantEdge, QdrantLocal, QdrantServer
from tests.contract.redis_harnesses import Redis, RedisCluster, RedisVolatile
from tests.support.backends import able

DRIVEN: tuple[type[Harness], ...] = (Postgresql, PostgresqlWithVectors, Redis, RedisVolatile, RedisCluster, QdrantEdge, QdrantLocal, QdrantServer)
"""Those that need a driver, and most of them a server."""

HARNESSES: tuple[type[Harness], ...] = (*EMBEDDED, *able(*DRIVEN))
