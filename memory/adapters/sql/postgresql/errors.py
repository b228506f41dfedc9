"""Translation of PostgreSQL's errors into ours, most specific first.

An error that is unknown here is not retryable. Servers quote their input, so only some
parts of a server's message are passed on. These cannot hold a value of a record or a
secret.
"""

from __future__ import annotations

import re
import ssl

import asyncpg
from asyncpg import exceptions as pg

from memory.adapters.sql.postgresql.connection import UnusableFile
from memory.adapters.sql.server.errors import original, translate_common
from memory.domain.errors import ConfigError, StoreError, StoreFull, StoreTimeout, StoreUnavailable
from memory.ports.base import LoginRefused

MAY_NOT_WRITE = (pg.InsufficientPrivilegeError, pg.ReadOnlySQLTransactionError)
"""Errors of a change by a role with SELECT only, or by any role on a standby."""
COLLISIONS = (pg.SerializationError, pg.DeadlockDetectedError)


def is_collision(error: BaseException) -> bool:
    """Whether two transactions collided.

    Nothing of this one was kept, and it may be repeated at once.
    """
    return isinstance(error, COLLISIONS)


def translate(store: str, place: str, error: BaseException) -> Exception | None:
    """Return our error for the driver's; None if the error is not the driver's."""
    cause = original(error)
    if isinstance(cause, pg.PostgresError):
        return _of_server(store, place, cause)
    if isinstance(cause, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return _of_driver(store, place, cause)
    match cause:
        case UnusableFile():
            return ConfigError(f"store '{store}': {cause}")
        case ssl.SSLError():
            return ConfigError(
                f"store '{store}': TLS with {place} failed ({_short(cause)}); set sslrootcert to the file of"
                " the authority to trust"
            )
        case ConnectionError() if "SSL" in str(cause):
            return ConfigError(
                f"store '{store}': {place} offers no TLS, and ssl (sslmode, PGSSLMODE) requires it; "
                "turn ssl on at the server, or use ssl=prefer on a network you trust"
            )
        case _:
            return translate_common(store, place, cause)


_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], type[Exception], str], ...] = (
    (
        pg.InvalidAuthorizationSpecificationError,
        LoginRefused,
        "{place} refuses the user or the password",
    ),  # includes a wrong password
    (
        pg.InvalidCatalogNameError,
        ConfigError,
        "there is no such database at {place}; create it, or name another",
    ),
    (
        pg.InsufficientPrivilegeError,
        ConfigError,
        "the role may not do this at {place}{denied}; docs/backends.md lists the grants it needs",
    ),
    (
        (pg.InvalidSQLStatementNameError, pg.DuplicatePreparedStatementError),
        ConfigError,
        (
            "a pooler gives statements of one session to several connections of {place} (PgBouncer in"
            " transaction mode): set statement_cache_size=0"
        ),
    ),
    (
        pg.ReadOnlySQLTransactionError,
        StoreUnavailable,
        "{place} takes no writes: it is a standby, or a failover is under way; try again",
    ),
    (
        pg.TooManyConnectionsError,
        StoreUnavailable,
        (
            "{place} takes no more connections (max_connections, or the role's limit); lower pool_size or"
            " raise it there"
        ),
    ),
    (
        (pg.DiskFullError, pg.OutOfMemoryError),
        StoreFull,
        "the server has no room left; nothing of the call was kept; make room there, then try again",
    ),
    (
        pg.QueryCanceledError,
        StoreTimeout,
        "the server ended the call: its statement_timeout or lock_timeout passed, or someone cancelled it",
    ),
    (pg.LockNotAvailableError, StoreTimeout, "another session kept a lock for too long; try again"),
    (
        COLLISIONS,
        StoreUnavailable,
        "other transactions kept colliding with the call; nothing of it was kept; try again",
    ),
    (
        (pg.PostgresConnectionError, pg.OperatorInterventionError),
        StoreUnavailable,
        "the connection to {place} was lost or refused; check the server, and try again",
    ),
)
"""The server's errors, most specific first."""


def _of_server(store: str, place: str, cause: asyncpg.PostgresError) -> Exception:
    if isinstance(cause, pg.ProtocolViolationError) and "statement pooling mode" in str(cause):
        return ConfigError(
            f"store '{store}': {place} is PgBouncer in statement mode, which has no transactions: use"
            " pool_mode = transaction"
        )
    for kinds, ours, problem in _KINDS:
        if isinstance(cause, kinds):
            told = problem.format(place=place, denied=_missing_permission(cause))
            return ConfigError(f"store '{store}': {told}") if ours is ConfigError else ours(store, told)
    return StoreError(store, f"PostgreSQL refused ({type(cause).__name__}, SQLSTATE {cause.sqlstate})")


_DENIED = re.compile(
    r"^(permission denied for \w[\w ]{0,40} \"?[\w$.-]{1,128}\"?|must be owner of \w[\w ]{0,40}"
    r" \"?[\w$.-]{1,128}\"?)$"
)
"""The server's message of a missing permission: it names our object, and no value."""


def _missing_permission(cause: BaseException) -> str:
    """Return the missing permission, in the server's words."""
    said = _DENIED.match(str(cause))
    return f" ({said[1]})" if said else ""


def _short(cause: BaseException) -> str:
    """Return OpenSSL's reason, without its numbers."""
    return str(getattr(cause, "verify_message", "") or getattr(cause, "reason", "") or type(cause).__name__)


def _of_driver(store: str, place: str, cause: BaseException) -> Exception:
    if isinstance(cause, pg.ClientConfigurationError) and "root certificate" in str(cause):
        return ConfigError(
            f"store '{store}': ssl asks for a check of the server's certificate, and no authority is named:"
            " set sslrootcert=FILE"
        )
    if isinstance(cause, pg.TargetServerAttributeNotMatched):
        return StoreUnavailable(
            store,
            f"no server of {place} matches target_session_attrs; perhaps none takes writes; try again",
        )
    if isinstance(cause, pg.ClientConfigurationError):
        return ConfigError(
            f"store '{store}': the connection's settings contradict each other; check the URL and ssl"
        )
    if isinstance(cause, pg.DataError | ValueError):  # its message shows the value
        return StoreError(store, f"the driver could not send a value ({type(cause).__name__})")
    return StoreUnavailable(store, f"the connection to {place} was lost ({type(cause).__name__})")
