"""What the adapter can do on MySQL and MariaDB at best, and its options: readable
without SQLAlchemy or the driver.
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
"""`max_record_bytes` is the server's to say: it follows from `max_allowed_packet`, read
at open.
"""

SCHEMES = ("mysql", "mariadb", "mysql+asyncmy", "mariadb+asyncmy")
SslMode = Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]


@dataclass(frozen=True, slots=True)
class MySqlConfig(StoreOptions):
    """Where the database is and how it is used. All times are seconds.

    The database must be there; the tables are made, each with `prefix` before its name:
    stores with different prefixes share a database and do not see each other. Up to
    `pool_size` connections are held open; a call waits `pool_timeout` for one.
    `connect_timeout` bounds making a connection, `command_timeout` one statement on it:
    a server that does not answer ends every call as `StoreTimeout`. `ssl_mode` means
    what the servers' own clients mean by it: `preferred` takes TLS where the server
    offers it, without looking at its certificate, and does without where it does not;
    `verify_ca` and `verify_identity` need a certificate that `ssl_ca` (or the system)
    vouches for.
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
        """Where it is, for messages and Health: never a user or a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.socket or f'{host}:{self.port}'}/{self.database}"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MySqlConfig:
    """The config of `mysql://user:password@host:3306/database?ssl_mode=required`, with
    options in the query part or apart.

    `socket=/path` goes through a Unix socket. `ssl-mode`, as the servers' clients write
    it, is understood too.
    """
    parts = ServerUrl(name, "MySQL", SCHEMES, url)
    found: dict[str, Any] = {
        "host": "localhost",
        "port": parts.port or 3306,
        "database": parts.database,
        **parts.host_and_credentials,
    }
    return MySqlConfig.read(name, parts.query, options, spelled={"ssl-mode": "ssl_mode"}, **found)
