"""One connection: the server prepares statements, and values travel apart from them.

They use the binary protocol, so no caller's value is ever part of a statement's text.
Every statement ends in time; one that does not leaves the connection closed. Text comes
back as bytes: a row with damaged text must not spoil the rows beside it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncmy

from memory.adapters.sql.mysql.config import MySqlConfig
from memory.adapters.sql.mysql.errors import LOST, MALFORMED, UntrustedCertificate, number_of
from memory.adapters.sql.server.pool import connect_shielded
from memory.domain.errors import ConfigError

SQL_MODE = "STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
SORTED_BYTES = 65_536
"""The number of bytes of a text that decide its order (servers' default: 1,024)."""
_GOODBYE = 2.0
"""The seconds that a connection may take to close in good order."""


class Connection:
    """A connection that commits by itself outside a transaction."""

    def __init__(self, raw: Any, config: MySqlConfig) -> None:
        self.raw = raw
        self._timeout = config.command_timeout
        self._most = config.statement_cache_size
        self._prepared: dict[str, Any] = {}
        self._in_transaction = False

    # -- statements --------------------------------------------------------------------

    async def fetch(self, sql: str, *values: Any) -> Sequence[tuple[Any, ...]]:
        """Return all rows, with text as bytes."""
        rows: Sequence[tuple[Any, ...]] = (await self._run(sql, values)).rows
        return rows

    async def fetchrow(self, sql: str, *values: Any) -> tuple[Any, ...] | None:
        """Return the first row, or None where there is none."""
        rows = await self.fetch(sql, *values)
        return rows[0] if rows else None

    async def fetchval(self, sql: str, *values: Any) -> Any:
        """Return the first value of the first row, or None where there is none."""
        row = await self.fetchrow(sql, *values)
        return None if row is None else row[0]

    async def change(self, sql: str, *values: Any) -> int:
        """Execute a statement; return the number of changed rows.

        A row updated by an insert counts twice, an unchanged row not at all.
        """
        return int((await self._run(sql, values)).affected_rows)

    async def send(self, sql: str, values: Sequence[Any]) -> None:
        """Execute a statement."""
        await self._run(sql, values)

    async def insert_id(self, sql: str, *values: Any) -> int:
        """Execute a statement that sets LAST_INSERT_ID; return the id."""
        return int((await self._run(sql, values)).insert_id)

    async def tell(self, command: str) -> None:
        """Execute a command of our own without values: transactions and settings."""
        async with asyncio.timeout(self._timeout):
            await self.raw.query(command)

    async def _run(self, sql: str, values: Sequence[Any]) -> Any:
        async with asyncio.timeout(self._timeout):
            statement = self._prepared.pop(sql, None)
            if statement is None:
                statement = await self.raw.prepare(sql)
                if len(self._prepared) >= self._most:
                    await self._prepared.pop(next(iter(self._prepared))).close()
            self._prepared[sql] = statement  # the most recently used is last
            return await statement.execute(values)

    # -- transactions ------------------------------------------------------------------

    async def begin(self) -> None:
        self._in_transaction = True
        await self.tell("BEGIN")

    async def commit(self) -> None:
        await self.tell("COMMIT")
        self._in_transaction = False

    async def rollback(self) -> None:
        await self.tell("ROLLBACK")
        self._in_transaction = False

    def is_in_transaction(self) -> bool:
        return self._in_transaction

    # -- its end -----------------------------------------------------------------------

    def is_closed(self) -> bool:
        """Whether either side has ended it."""
        return not self.raw.connected or bool(self.raw._stream_broken)

    def terminate(self) -> None:
        self.raw.close()

    async def goodbye(self) -> None:
        """Close in good order, or at once where that takes too long."""
        try:
            async with asyncio.timeout(_GOODBYE):
                await self.raw.ensure_closed()
        except Exception:  # noqa: BLE001 - it is gone either way
            self.terminate()


# -- one ahead -------------------------------------------------------------------------


class StatementPipeline:
    """Statements one after another.

    While the server works on one, the caller makes the next.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._under_way: asyncio.Task[None] | None = None

    async def send(self, sql: str, values: Sequence[Any]) -> None:
        """Send a statement once the one before is answered.

        The next call raises its error, or the end does.
        """
        await self.wait()
        self._under_way = asyncio.ensure_future(self._connection.send(sql, values))
        await asyncio.sleep(0)  # lets it go out

    async def wait(self) -> None:
        under_way, self._under_way = self._under_way, None
        if under_way is not None:
            await under_way

    def give_up(self) -> None:
        """End the statement under way, and with it the connection."""
        if self._under_way is not None:
            self._under_way.cancel()


@contextlib.asynccontextmanager
async def ahead(connection: Connection) -> AsyncIterator[StatementPipeline]:
    """Send statements without waiting for each; all are answered at the end."""
    sending = StatementPipeline(connection)
    try:
        yield sending
    except Exception:
        with contextlib.suppress(Exception):  # the first of two errors is raised
            await sending.wait()
        raise
    except BaseException:
        sending.give_up()
        raise
    await sending.wait()


# -- making one ------------------------------------------------------------------------


async def connect(config: MySqlConfig) -> Connection:
    """Return a new connection with the session's settings, in time."""
    return await connect_shielded(_open_connection(config))


async def _open_connection(config: MySqlConfig) -> Connection:
    async with asyncio.timeout(config.connect_timeout):
        connection = Connection(await dial(config), config)
        try:
            await _settle(connection, config)
        except BaseException:
            connection.terminate()
            raise
        return connection


async def dial(config: MySqlConfig, **more: Any) -> Any:
    """Return the driver's connection, encrypted as the config asks."""
    mode = config.ssl_mode
    if config.socket is not None or mode == "disabled":
        return await _dial(config, None, **more)
    context = await asyncio.to_thread(
        _context, config
    )  # reads the certificates of all authorities that this machine trusts
    try:
        return await _dial(config, context, **more)
    except Exception as exc:
        if number_of(exc) not in LOST or not isinstance(exc.__cause__, ssl.SSLError):
            raise
        if isinstance(exc.__cause__, ssl.SSLCertVerificationError):
            raise UntrustedCertificate from exc
        if mode != "preferred":
            raise ConfigError(f"{config.place} offers no TLS, and ssl_mode={mode} requires it") from exc
    return await _dial(config, None, **more)  # the server offers none


async def _dial(config: MySqlConfig, context: ssl.SSLContext | None, **more: Any) -> Any:
    given = {"use_unicode": False, "autocommit": True, **more}
    try:
        return await asyncmy.connect(
            host=config.host,
            port=config.port,
            unix_socket=config.socket,
            user=config.user,
            password=config.password.encode(),
            database=config.database,
            ssl=context,
            charset="utf8mb4",
            connect_timeout=config.connect_timeout,
            program_name="memory-tiers",
            **given,
        )
    except RuntimeError as exc:  # MySQL's default authentication, without TLS
        raise ConfigError(
            "password: the server accepts this user's password only over TLS or encrypted. Set ssl_mode to"
            " use TLS, or install the package that encrypts the password: pip install cryptography"
        ) from exc
    except (struct.error, IndexError) as exc:  # the server speaks another protocol
        raise asyncmy.errors.OperationalError(MALFORMED, "Malformed packet") from exc


def _context(config: MySqlConfig) -> ssl.SSLContext:
    """Return the TLS context of the config.

    A mode that only encrypts does not load this machine's trusted authorities: that
    takes longer than all the rest of a connection.
    """
    checks = config.ssl_mode not in ("preferred", "required")
    try:
        context = (
            ssl.create_default_context(cafile=config.ssl_ca)
            if checks or config.ssl_ca
            else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        )
        if config.ssl_cert:
            context.load_cert_chain(config.ssl_cert, config.ssl_key)
    except OSError as exc:
        raise ConfigError(
            f"the files that ssl_ca, ssl_cert and ssl_key name cannot be used ({type(exc).__name__})"
        ) from None
    context.check_hostname = config.ssl_mode == "verify_identity"
    if not checks:
        context.verify_mode = ssl.CERT_NONE
    return context


async def _settle(connection: Connection, config: MySqlConfig) -> None:
    """Apply the session's settings.

    The session is strict and in UTC. Each statement sees the commits from before it
    began. Waiting for a lock has an end.
    """
    patience = max(1, int(config.command_timeout / 2))
    await connection.tell(
        f"SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', innodb_lock_wait_timeout = {patience},"
        f" max_sort_length = {SORTED_BYTES}"
    )
    await connection.tell("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    sort_buffer = await connection.fetchval("SELECT @@sort_buffer_size")
    if sort_buffer < 32 * SORTED_BYTES:
        with contextlib.suppress(Exception):
            await connection.tell(f"SET SESSION sort_buffer_size = {32 * SORTED_BYTES}")
