"""The server's settings, read at open.

They decide whether acknowledged writes are safe, how large a record may be, and whether
the server is strict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.flavour import Flavour, flavour_of
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.record import JsonValue

_READ = """SELECT VERSION(), @@SESSION.sql_mode, @@SESSION.time_zone, @@max_allowed_packet, @@innodb_flush_log_at_trx_commit,
@@innodb_flush_log_at_timeout, @@log_bin, @@sync_binlog, UNIX_TIMESTAMP()"""
_UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"
_BINLOG_FORMAT = "SHOW VARIABLES LIKE 'binlog_format'"
_BESIDES = 65_536
"""The bytes of a packet beside the record: names, bookkeeping, the protocol."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings at one moment. `started` names the run of the server."""

    flavour: Flavour
    version: str
    sql_mode: str
    packet: int
    flush: int
    flush_every: timedelta
    binlog: bool
    sync_binlog: int
    started: str

    @staticmethod
    async def read(connection: Connection, store: str) -> Settings:
        """Read the settings; an unusable server or session is refused by name."""
        for _ in range(10):
            ((version, mode, zone, packet, flush, every, binlog, sync, now),) = await connection.fetch(_READ)
            ((_, uptime),) = await connection.fetch(_UPTIME)
            again = await connection.fetchval("SELECT UNIX_TIMESTAMP()")
            if now == again:  # both are of one second, so the difference is exact
                break
        version, mode = version.decode(), mode.decode()
        if "STRICT_ALL_TABLES" not in mode.split(",") or zone != b"+00:00":
            raise ConfigError(
                f"store '{store}': the server did not set strict mode and UTC for a session; check whether a"
                " proxy changes its settings"
            )
        if binlog and [bytes(value) for _, value in await connection.fetch(_BINLOG_FORMAT)] == [b"STATEMENT"]:
            raise ConfigError(
                f"store '{store}': binlog_format = STATEMENT cannot log writes under READ COMMITTED; set it"
                " to ROW or MIXED"
            )
        started = datetime.fromtimestamp(int(now) - int(uptime), UTC).isoformat()
        return Settings(
            flavour_of(version, store),
            version,
            mode,
            packet,
            flush,
            timedelta(seconds=every),
            bool(binlog),
            sync,
            started,
        )

    @property
    def advice(self) -> str:
        """Say which settings to change for safe writes; empty where none is needed."""
        if self.flush != 1:
            return (
                f"innodb_flush_log_at_trx_commit = {self.flush} may lose the last second of acknowledged"
                " writes: set it to 1"
            )
        if self.binlog and self.sync_binlog != 1:
            return (
                f"sync_binlog = {self.sync_binlog} may lose acknowledged writes when the machine fails: set"
                " it to 1"
            )
        return ""

    @property
    def facts(self) -> Mapping[str, JsonValue]:
        facts: dict[str, JsonValue] = {
            "strict": self.sql_mode,
            "max_allowed_packet": self.packet,
            "innodb_flush_log_at_trx_commit": self.flush,
            "sync_binlog": self.sync_binlog if self.binlog else "no binary log",
        }
        return {**facts, "advice": self.advice} if self.advice else facts

    def limit(self, claims: Capabilities) -> Capabilities:
        """Return the claims that these settings allow.

        A record takes up to a third more in a packet than its own size: tags are quoted
        there.
        """
        limited = replace(claims, max_record_bytes=max(0, self.packet - _BESIDES) * 3 // 4)
        if not self.advice:
            return limited
        return replace(limited, durable=False, loss_window=self.flush_every if self.flush != 1 else None)
