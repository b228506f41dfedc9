"""The server's settings, read at open.

They decide whether acknowledged writes are safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta

from memory.adapters.sql.postgresql.connection import Connection
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.record import JsonValue

_READ = """SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding'),
current_setting('fsync'), current_setting('synchronous_commit'), (SELECT setting::int FROM pg_settings WHERE name = 'wal_writer_delay'),
pg_postmaster_start_time(), pg_is_in_recovery() OR current_setting('transaction_read_only')::bool"""
OLDEST = 130_000


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings at one moment. `started` names the run of the server."""

    version: str
    fsync: str
    synchronous_commit: str
    wal_writer_delay: timedelta
    started: str
    read_only: bool
    """Whether the server takes no writes: a standby, or one set to be read only."""

    @staticmethod
    async def read(connection: Connection, store: str) -> Settings:
        """Read the settings; a server that cannot be used is refused by name."""
        number, version, encoding, fsync, synchronous, delay, started, read_only = await connection.fetchrow(
            _READ
        )
        if number < OLDEST:
            raise ConfigError(
                f"store '{store}': the server is PostgreSQL {version}; version 13 or later is needed"
            )
        if encoding != "UTF8":
            raise ConfigError(
                f"store '{store}': the database's encoding is {encoding}; create it with ENCODING 'UTF8'"
            )
        return Settings(
            version.split()[0],
            fsync,
            synchronous,
            timedelta(milliseconds=delay),
            started.isoformat(),
            bool(read_only),
        )

    @property
    def facts(self) -> Mapping[str, JsonValue]:
        return {"fsync": self.fsync, "synchronous_commit": self.synchronous_commit}

    def limit(self, claims: Capabilities) -> Capabilities:
        """Return the claims that these settings allow.

        Where the server does not wait for the disk, acknowledged writes may be lost.
        """
        if self.fsync != "on":
            return replace(claims, durable=False, loss_window=None)
        if self.synchronous_commit == "off":
            return replace(claims, durable=False, loss_window=3 * self.wal_writer_delay)
        return claims
