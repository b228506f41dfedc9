"""What the adapter can do on PostgreSQL at best, and its options: readable without SQLAlchemy or the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory.adapters.sql.server.options import Options
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.record import JsonValue

CLAIMS = Capabilities(
    durable=True,
    shared=True,
    conditional=True,
    atomic=True,
    filter=True,
    order=True,
    tenant_wide=True,
    lexical=True,
    semantic=True,
    tenant_statistics=True,
    fenced=True,
    max_vector_dims=16_000,
)
"""With the extension pgvector. Without it `semantic` and the limit that is pgvector's are off once the store is open."""

SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")

_SSL = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
_LONGEST_NAME = 63  # PostgreSQL cuts longer names silently


@dataclass(frozen=True, slots=True)
class PostgresConfig:
    """Where the database is and how it is used. All times are seconds.

    `schema` is the namespace that holds every table; it is made where it is missing. Up to `pool_size` connections are held open;
    a call waits `pool_timeout` for one. `connect_timeout` bounds making a connection, `command_timeout` one call on it: a server that
    does not answer ends every call as `StoreTimeout`. `statement_cache_size` of 0 prepares nothing that outlives a transaction, which
    PgBouncer needs in transaction mode (before its 1.21, or without `max_prepared_statements`).
    """

    host: str
    port: int
    database: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    schema: str = "memory"
    ssl: str = "prefer"
    pool_size: int = 8
    pool_timeout: float = 10.0
    connect_timeout: float = 10.0
    command_timeout: float = 30.0
    statement_cache_size: int = 256

    @property
    def place(self) -> str:
        """Where it is, for messages and Health: never a user or a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}, schema {self.schema}"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> PostgresConfig:
    """The config of `postgresql://user:password@host:5432/database?schema=memory`, with options in the query part or apart.

    `?host=/directory` names the directory of a Unix socket.
    """
    given = Options(name, "PostgreSQL", SCHEMES, url, options)
    config = PostgresConfig(
        host=given.host,
        port=given.port or 5432,
        database=given.database,
        user=given.user,
        password=given.password,
        schema=_schema(name, given.take("schema", "memory")),
        ssl=given.one_of("ssl", "prefer", _SSL, otherwise="sslmode"),
        **given.pooling(statements=256, least_statements=0),
    )
    given.refuse_the_rest()
    return config


def _schema(name: str, value: JsonValue) -> str:
    schema = str(value)
    if not schema.isidentifier() or not schema.isascii() or schema.lower().startswith("pg_") or len(schema) > _LONGEST_NAME:
        raise ConfigError(f"store '{name}': schema is a plain SQL identifier of at most {_LONGEST_NAME} characters that does not begin with 'pg_'")
    return schema
