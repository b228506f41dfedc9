"""The adapter's best capabilities on PostgreSQL, and its options.

This module is readable without SQLAlchemy or the driver.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, get_args
from urllib.parse import unquote

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from memory.adapters.sql.naming import DEFAULT_PREFIX, TablePrefix
from memory.ports.capabilities import Capabilities
from memory.ports.options import Count, MaybeText, Seconds, ServerUrl, StoreOptions, Text, Whole, wrong
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
"""The capabilities with the extension pgvector.

Without it, `semantic` and pgvector's limit are off once the store is open.
"""

SCHEMES = ("postgresql", "postgres", "postgresql+asyncpg")

SslMode = Literal["disable", "allow", "prefer", "require", "verify-ca", "verify-full"]
SessionAttributes = Literal["any", "primary", "standby", "read-write", "read-only", "prefer-standby"]
_LONGEST_NAME = 63  # PostgreSQL cuts longer names silently
_SCHEMA = f"a plain SQL identifier of at most {_LONGEST_NAME} characters that does not begin with 'pg_'"


def _schema(value: str) -> str:
    if (
        not value.isidentifier()
        or not value.isascii()
        or value.lower().startswith("pg_")
        or len(value) > _LONGEST_NAME
    ):
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class PostgresConfig(StoreOptions):
    """The address of the database, and how the store uses it. All times are seconds.

    `schema` is the namespace of every table; it is made where it is missing. `prefix`
    begins the name of each table: stores with different prefixes share a schema and do
    not see each other.

    Up to `pool_size` connections are held open; a call waits `pool_timeout` seconds for
    one. `connect_timeout` bounds making a connection, `command_timeout` one call on it.
    A server that does not answer ends every call with `StoreTimeout`.

    A `statement_cache_size` of 0 prepares nothing that outlives a transaction.
    PgBouncer needs that in transaction mode (before its 1.21, or without
    `max_prepared_statements`).

    `host` may list several servers, separated by commas. Each is a name, `name:port`,
    `[IPv6]:port` or the folder of a Unix socket. They are tried in order, and
    `target_session_attrs` says which one is taken. With several servers, the default is
    the one that takes writes.

    In an address, `ssl` (or `sslmode`) defaults to PGSSLMODE. Without that it is
    `verify-full` with an `sslrootcert`, else `prefer`. `options` are settings of the
    session, as `-c name=value`.
    """

    where: ClassVar[frozenset[str]] = frozenset({"port", "database", "user"})
    product: ClassVar[str] = "a PostgreSQL store"
    host: Text
    port: int
    database: str
    user: str | None = None
    password: MaybeText = Field(default=None, repr=False)
    prefix: TablePrefix = DEFAULT_PREFIX
    schema: Annotated[str, AfterValidator(_schema), Field(description=_SCHEMA)] = "memory"
    ssl: Annotated[SslMode, Field(description=f"one of {', '.join(get_args(SslMode))}")] = "prefer"
    sslrootcert: MaybeText = None
    sslcert: MaybeText = None
    sslkey: MaybeText = None
    target_session_attrs: Annotated[
        SessionAttributes, Field(description=f"one of {', '.join(get_args(SessionAttributes))}")
    ] = "any"
    application_name: Text = "memory-tiers"
    options: MaybeText = None
    pool_size: Count = 8
    pool_timeout: Seconds = 10.0
    connect_timeout: Seconds = 10.0
    command_timeout: Seconds = 30.0
    statement_cache_size: Whole = 256

    @property
    def place(self) -> str:
        """The address for messages and Health, without user or password."""
        hosts = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.addresses
        )
        return f"{hosts}/{self.database}, schema {self.schema}"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each server, in the order in which they are tried."""
        return [_address(part, self.port) for part in self.host.split(",")]


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> PostgresConfig:
    """Parse the URL of a PostgreSQL store, with options in its query part or separate.

    The URL is `postgresql://user:password@host:5432/database?schema=memory`. Commas
    separate several hosts. `?host=/directory` names the directory of a Unix socket;
    `%2Fdirectory` in the place of the host does too.
    """
    hosts, single = _hosts_apart(url)
    parts = ServerUrl(name, "PostgreSQL", SCHEMES, single)
    found: dict[str, Any] = {
        "host": "localhost",
        "port": parts.port or 5432,
        "database": parts.database,
        **parts.host_and_credentials,
    }
    if hosts:
        found["host"] = hosts
    config = PostgresConfig.read(
        name, parts.query, options, spelled={"sslmode": "ssl"}, **(_from_environment(name) | found)
    )
    try:
        several = len(config.addresses) > 1
    except ValueError:
        raise wrong(
            name,
            "a host is written as 'name', 'name:port', '[IPv6]:port' or the folder of a socket; several are"
            " separated by commas",
        ) from None
    given = parts.query_options.keys() | options.keys()
    changes: dict[str, Any] = {}
    if several and "target_session_attrs" not in given:
        changes["target_session_attrs"] = "read-write"
    if config.sslrootcert and not given & {"ssl", "sslmode"} and "PGSSLMODE" not in os.environ:
        changes["ssl"] = "verify-full"
    return replace(config, **changes) if changes else config


def _from_environment(name: str) -> dict[str, str]:
    """Return the TLS mode that the environment sets.

    The driver reads libpq's other variables by itself.
    """
    mode = os.environ.get("PGSSLMODE")
    if mode and mode not in get_args(SslMode):
        raise wrong(name, f"PGSSLMODE is one of {', '.join(get_args(SslMode))}, not {mode!r}")
    return {"ssl": mode} if mode else {}


def _hosts_apart(url: str) -> tuple[str, str]:
    """Return the hosts that Python's URL parser rejects, and the URL without them.

    The hosts come in the form of the option `host`.
    """
    scheme, separator, rest = url.partition("://")
    end = min([at for at in (rest.find(mark) for mark in "/?#") if at >= 0], default=len(rest))
    authority, behind = rest[:end], rest[end:]
    credentials, at, hosts = authority.rpartition("@")
    if not separator or ("," not in hosts and not hosts.lower().startswith("%2f")):
        return "", url
    return unquote(hosts), f"{scheme}://{credentials}{at}{behind}"


def _address(text: str, port: int) -> tuple[str, int]:
    """Return host and port.

    Raises:
        ValueError: The text is neither.
    """
    if text.startswith("/") or (text.count(":") > 1 and not text.startswith("[")):
        return text, port
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        given = rest.removeprefix(":")
    else:
        host, _, given = text.partition(":")
    if not host or (given and not 0 < int(given) < 65_536):
        raise ValueError
    return host, int(given) if given else port
