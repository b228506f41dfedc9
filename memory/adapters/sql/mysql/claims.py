"""What the adapter can do on MySQL and MariaDB at best, and its options: readable without SQLAlchemy or the driver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from memory.adapters.sql.server.options import Options
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
    tenant_statistics=True,
    fenced=True,
)
"""`max_record_bytes` is the server's to say: it follows from `max_allowed_packet`, read at open."""

SCHEMES = ("mysql", "mariadb", "mysql+asyncmy", "mariadb+asyncmy")
SSL_MODES = ("disabled", "preferred", "required", "verify_ca", "verify_identity")


@dataclass(frozen=True, slots=True)
class MySqlConfig:
    """Where the database is and how it is used. All times are seconds.

    The database must be there; the tables are made. Up to `pool_size` connections are held open; a call waits `pool_timeout` for one.
    `connect_timeout` bounds making a connection, `command_timeout` one statement on it: a server that does not answer ends every call as
    `StoreTimeout`. `ssl_mode` means what the servers' own clients mean by it: `preferred` takes TLS where the server offers it, without
    looking at its certificate, and does without where it does not; `verify_ca` and `verify_identity` need a certificate that `ssl_ca` (or the
    system) vouches for.
    """

    host: str
    port: int
    database: str
    user: str = "root"
    password: str = field(default="", repr=False)
    socket: str | None = None
    ssl_mode: str = "preferred"
    ssl_ca: str | None = None
    ssl_cert: str | None = None
    ssl_key: str | None = None
    pool_size: int = 8
    pool_timeout: float = 10.0
    connect_timeout: float = 10.0
    command_timeout: float = 30.0
    statement_cache_size: int = 200

    @property
    def place(self) -> str:
        """Where it is, for messages and Health: never a user or a password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.socket or f'{host}:{self.port}'}/{self.database}"


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> MySqlConfig:
    """The config of `mysql://user:password@host:3306/database?ssl_mode=required`, with options in the query part or apart.

    `socket=/path` goes through a Unix socket. `ssl-mode`, as the servers' clients write it, is understood too.
    """
    given = Options(name, "MySQL", SCHEMES, url, options)
    config = MySqlConfig(
        host=given.host,
        port=given.port or 3306,
        database=given.database,
        user=given.user or "root",
        password=given.password or "",
        socket=given.text("socket"),
        ssl_mode=given.one_of("ssl_mode", "preferred", SSL_MODES, otherwise="ssl-mode"),
        ssl_ca=given.text("ssl_ca"),
        ssl_cert=given.text("ssl_cert"),
        ssl_key=given.text("ssl_key"),
        **given.pooling(statements=200, least_statements=1),
    )
    given.refuse_the_rest()
    return config
