"""What the adapter can do on PostgreSQL at best, and its options: readable without SQLAlchemy or the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, unquote, urlsplit

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

    `?host=/directory` names the directory of a Unix socket. What is wrong is named; the URL itself is never repeated, it may hold a password.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ConfigError(
            f"store '{name}': the URL cannot be read; write postgresql://user:password@host:5432/database, special characters as %23 for #"
        ) from None
    if parts.scheme not in SCHEMES or not url.startswith(f"{parts.scheme}://"):
        raise ConfigError(f"store '{name}': the URL of a PostgreSQL store begins with 'postgresql://', not '{parts.scheme}'")
    if parts.fragment:
        raise ConfigError(f"store '{name}': the URL has a '#' in it; write it as %23")
    given: dict[str, JsonValue] = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **options}
    database = unquote(parts.path[1:])
    if not database or "/" in database:
        raise ConfigError(f"store '{name}': name the database in the URL: postgresql://user:password@host:5432/database")
    password = given.pop("password", None)
    config = PostgresConfig(
        host=str(given.pop("host", None) or parts.hostname or "localhost"),
        port=port or 5432,
        database=database,
        user=unquote(parts.username) if parts.username else None,
        password=str(password) if password is not None else unquote(parts.password) if parts.password is not None else None,
        schema=_schema(name, given.pop("schema", "memory")),
        ssl=_one_of(name, "ssl", given.pop("ssl", given.pop("sslmode", "prefer")), _SSL),
        pool_size=_whole(name, "pool_size", given.pop("pool_size", 8), 1, 1_000),
        pool_timeout=_seconds(name, "pool_timeout", given.pop("pool_timeout", 10.0)),
        connect_timeout=_seconds(name, "connect_timeout", given.pop("connect_timeout", 10.0)),
        command_timeout=_seconds(name, "command_timeout", given.pop("command_timeout", 30.0)),
        statement_cache_size=_whole(name, "statement_cache_size", given.pop("statement_cache_size", 256), 0, 10_000),
    )
    if given:
        raise ConfigError(f"store '{name}': a PostgreSQL store has no option {', '.join(map(repr, sorted(given)))}")
    return config


def _schema(name: str, value: JsonValue) -> str:
    schema = str(value)
    if not schema.isidentifier() or not schema.isascii() or schema.lower().startswith("pg_") or len(schema) > _LONGEST_NAME:
        raise ConfigError(f"store '{name}': schema is a plain SQL identifier of at most {_LONGEST_NAME} characters that does not begin with 'pg_'")
    return schema


def _one_of(name: str, option: str, value: JsonValue, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise ConfigError(f"store '{name}': {option} is one of {', '.join(allowed)}, not {value!r}")
    return str(value)


def _whole(name: str, option: str, value: JsonValue, least: int, most: int) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = least - 1
    if not least <= number <= most or isinstance(value, float | bool):
        raise ConfigError(f"store '{name}': {option} is a whole number from {least} to {most}, not {value!r}")
    return number


def _seconds(name: str, option: str, value: JsonValue) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise ConfigError(f"store '{name}': {option} is a number of seconds above 0, at most a day, not {value!r}")
    return seconds
