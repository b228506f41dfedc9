"""What the adapter can do on PostgreSQL at best, and its options: readable without SQLAlchemy or the driver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from memory.ports.capabilities import Capabilities
from memory.ports.options import Count, MaybeText, Seconds, ServerUrl, StoreOptions, Text, Whole
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

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
_LONGEST_NAME = 63  # PostgreSQL cuts longer names silently
_SCHEMA = f"a plain SQL identifier of at most {_LONGEST_NAME} characters that does not begin with 'pg_'"


def _schema(value: str) -> str:
    if not value.isidentifier() or not value.isascii() or value.lower().startswith("pg_") or len(value) > _LONGEST_NAME:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class PostgresConfig(StoreOptions):
    """Where the database is and how it is used. All times are seconds.

    `schema` is the namespace that holds every table; it is made where it is missing. Up to `pool_size` connections are held open;
    a call waits `pool_timeout` for one. `connect_timeout` bounds making a connection, `command_timeout` one call on it: a server that
    does not answer ends every call as `StoreTimeout`. `statement_cache_size` of 0 prepares nothing that outlives a transaction, which
    PgBouncer needs in transaction mode (before its 1.21, or without `max_prepared_statements`).
    """

    where: ClassVar[frozenset[str]] = frozenset({"port", "database", "user"})
    product: ClassVar[str] = "a PostgreSQL store"
    host: Text
    port: int
    database: str
    user: str | None = None
    password: MaybeText = Field(default=None, repr=False)
    schema: Annotated[str, AfterValidator(_schema), Field(description=_SCHEMA)] = "memory"
    ssl: Annotated[SslMode, Field(description=f"one of {', '.join(get_args(SslMode))}")] = "prefer"
    pool_size: Count = 8
    pool_timeout: Seconds = 10.0
    connect_timeout: Seconds = 10.0
    command_timeout: Seconds = 30.0
    statement_cache_size: Whole = 256

    @property
    def place(self) -> str:
        """Where it is, for messages and Health: never a user or a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{self.database}, schema {self.schema}"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> PostgresConfig:
    """The config of `postgresql://user:password@host:5432/database?schema=memory`, with options in the query part or apart.

    `?host=/directory` names the directory of a Unix socket.
    """
    parts = ServerUrl(name, "PostgreSQL", SCHEMES, url)
    found: dict[str, Any] = {"host": "localhost", "port": parts.port or 5432, "database": parts.database, **parts.found}
    return PostgresConfig.read(name, parts.query, options, spelled={"sslmode": "ssl"}, **found)
