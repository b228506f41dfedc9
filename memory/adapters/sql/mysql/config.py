"""The adapter's best capabilities on MySQL and MariaDB, and its options.

This module is readable without SQLAlchemy or the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field
from pydantic.dataclasses import dataclass

from memory.adapters.sql.naming import DEFAULT_PREFIX, TablePrefix
from memory.ports.capabilities import Capabilities
from memory.ports.options import Count, MaybeText, Seconds, ServerUrl, StoreOptions, Text
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
    tenant_statistics=True,
    fenced=True,
)
"""The server decides `max_record_bytes`, by its `max_allowed_packet`, read at open."""

SCHEMES = ("mysql", "mariadb", "mysql+asyncmy", "mariadb+asyncmy")
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


@dataclass(frozen=True, slots=True)
class MySqlConfig(StoreOptions):
    """The address of the database, and how the store uses it. All times are seconds.

    The database must exist. The store makes the tables, each with `prefix` before its
    name: stores with different prefixes share a database and do not see each other.

    Up to `pool_size` connections are held open; a call waits `pool_timeout` seconds for
    one. `connect_timeout` bounds making a connection, `command_timeout` one statement
    on it. A server that does not answer ends every call with `StoreTimeout`.

    `ssl_mode` has the meaning that it has in the servers' own clients. `preferred` uses
    TLS where the server offers it, without checking its certificate, and does without
    otherwise. `verify_ca` and `verify_identity` need a certificate that `ssl_ca` (or
    the system) vouches for.
    """

    where: ClassVar[frozenset[str]] = frozenset({"port", "database", "user"})
    product: ClassVar[str] = "a MySQL store"
    host: Text
    port: int
    database: str
    user: str = "root"
    password: str = Field(default="", repr=False, description="a text")
    prefix: TablePrefix = DEFAULT_PREFIX
    socket: MaybeText = None
    ssl_mode: Annotated[SslMode, Field(description=f"one of {', '.join(get_args(SslMode))}")] = "preferred"
    ssl_ca: MaybeText = None
    ssl_cert: MaybeText = None
    ssl_key: MaybeText = None
    pool_size: Count = 8
    pool_timeout: Seconds = 10.0
    connect_timeout: Seconds = 10.0
    command_timeout: Seconds = 30.0
    statement_cache_size: Count = 200

    @property
    def place(self) -> str:
        """The address for messages and Health, without user or password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.socket or f'{host}:{self.port}'}/{self.database}"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MySqlConfig:
    """Parse the URL of a MySQL store, with options in its query part or separate.

    The URL is `mysql://user:password@host:3306/database?ssl_mode=required`.
    `socket=/path` goes through a Unix socket. `ssl-mode`, as in the servers' clients,
    works too.
    """
    parts = ServerUrl(name, "MySQL", SCHEMES, url)
    found: dict[str, Any] = {
        "host": "localhost",
        "port": parts.port or 3306,
        "database": parts.database,
        **parts.host_and_credentials,
    }
    return MySqlConfig.read(name, parts.query, options, spelled={"ssl-mode": "ssl_mode"}, **found)
