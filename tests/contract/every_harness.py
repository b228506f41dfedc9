"""All our harnesses, and those that can run on this machine."""

from __future__ import annotations

from memory.ports.contract.harness import Harness
from tests.contract.file_harnesses import File, FileUnsynced
from tests.contract.harnesses import EMBEDDED, Sqlite
from tests.contract.less_harnesses import WITHOUT
from tests.contract.mongo_harnesses import MongoAlone, MongoReplicaSet
from tests.contract.mysql_harnesses import MariaDb, MySql
from tests.contract.postgres_harnesses import Postgresql, PostgresqlWithVectors
from tests.contract.prefixed import PostgresqlPrefixed
from tests.contract.qdrant_harnesses import QdrantEdge, QdrantLocal, QdrantServer
from tests.contract.redis_harnesses import Redis, RedisCluster, RedisVolatile
from tests.contract.wrapped_harnesses import WrappedInMemory, WrappedRedis
from tests.support.backends import able
from tests.support.depth import FIRST_SEED, NIGHTLY, PROVING

SQL: tuple[type[Harness], ...] = (Postgresql, PostgresqlWithVectors, MariaDb, MySql)
OTHERS: tuple[type[Harness], ...] = (
    MongoAlone,
    MongoReplicaSet,
    Redis,
    RedisVolatile,
    RedisCluster,
    QdrantEdge,
    QdrantLocal,
    QdrantServer,
)

DRIVEN = (*SQL, *OTHERS)
"""Those that need a driver, and most of them a server."""

FILES: tuple[type[Harness], ...] = (File, FileUnsynced)

WRAPPED: tuple[type[Harness], ...] = (WrappedInMemory, *((WrappedRedis,) if able(Redis) else ()))
"""Stores with everything around them that a configuration can put there."""

PREFIXED: tuple[type[Harness], ...] = (PostgresqlPrefixed,) if NIGHTLY and able(Postgresql) else ()
"""What differs is names alone."""

EVERY: tuple[type[Harness], ...] = (*EMBEDDED, *FILES, *DRIVEN, WrappedInMemory, WrappedRedis)
HARNESSES: tuple[type[Harness], ...] = (*EMBEDDED, *WITHOUT, *able(*FILES, *DRIVEN), *PREFIXED, *WRAPPED)

STAND_IN = {"qdrant_local": "qdrant_edge"}
"""What CI asks in full, and nobody's installation is: the client's local mode is for
tests alone, and shares its adapter with Edge.
"""

DEFAULT: type[Harness] = Sqlite
"""Where nothing is configured. In everyone's run the others are asked what it cannot be
asked.
"""


def primary_of(harness: type[Harness]) -> type[Harness] | None:
    """Of a variant, the harness that everyone's run asks in its place; also where that
    cannot run on this machine.
    """
    return next((one for one in EVERY if one.name == (harness.primary or STAND_IN.get(harness.name))), None)


TONIGHT = HARNESSES if PROVING else HARNESSES[FIRST_SEED % 2 :: 2]
"""The stores that `make nightly` asks what CI does not: every second one, as
SIMULATION_FIRST is even or odd. Most stand beside a variant of theirs, so that one of
the two is asked each night. `make prove` asks all.
"""
