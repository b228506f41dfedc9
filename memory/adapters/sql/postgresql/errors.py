"""PostgreSQL's errors as ours, most specific first. What is not known here is not retryable.

Servers quote what they were given: of a server's message only those parts are passed on that cannot hold a value of a record or a secret.
"""

from __future__ import annotations

import asyncpg
from asyncpg import exceptions as pg
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memory.adapters.sql.server.pool import PoolTimeout
from memory.domain.errors import ConfigError, StoreError, StoreFull, StoreTimeout, StoreUnavailable

COLLISIONS = (pg.SerializationError, pg.DeadlockDetectedError)


def original(error: BaseException) -> BaseException:
    """The driver's own error inside SQLAlchemy's."""
    cause: BaseException | None = error.orig if isinstance(error, DBAPIError) else None
    return error if cause is None else cause.__cause__ or cause


def is_collision(error: BaseException) -> bool:
    """Two transactions got in each other's way: nothing of this one was kept, and it may be done again at once."""
    return isinstance(error, COLLISIONS)


def translate(store: str, place: str, error: BaseException) -> Exception | None:
    """Our error for the driver's; None for what is not the driver's."""
    cause = original(error)
    if isinstance(cause, pg.PostgresError):
        return _of_server(store, place, cause)
    if isinstance(cause, asyncpg.InterfaceError | asyncpg.InternalClientError):
        return _of_driver(store, place, cause)
    match cause:
        case PoolTimeout():
            return StoreTimeout(store, "every connection of the pool was busy for too long; raise pool_size, or ask less at once")
        case TimeoutError():
            return StoreTimeout(store, f"{place} did not answer in time")
        case OSError():
            return StoreUnavailable(store, f"{place} cannot be reached ({type(cause).__name__})")
        case SQLAlchemyError():
            return StoreError(store, f"SQLAlchemy refused ({type(cause).__name__})")
        case _:
            return None


_KINDS: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], type[Exception], str], ...] = (
    (pg.InvalidAuthorizationSpecificationError, ConfigError, "{place} refuses the user or the password"),  # a wrong password is a kind of it
    (pg.InvalidCatalogNameError, ConfigError, "there is no such database at {place}; create it, or name another"),
    (pg.InsufficientPrivilegeError, ConfigError, "the user may not do this at {place}; grant it usage and creation in the schema"),
    ((pg.DiskFullError, pg.OutOfMemoryError), StoreFull, "the server has no room left; nothing of the call was kept"),
    (pg.QueryCanceledError, StoreTimeout, "the server ended the call: its statement_timeout or lock_timeout passed, or someone cancelled it"),
    (pg.LockNotAvailableError, StoreTimeout, "another session kept a lock for too long; try again"),
    (COLLISIONS, StoreUnavailable, "other transactions kept getting in the way; nothing of the call was kept; try again"),
    (pg.TooManyConnectionsError, StoreUnavailable, "{place} has no connection to spare; lower pool_size or raise max_connections"),
    (pg.ReadOnlySQLTransactionError, StoreUnavailable, "{place} is read-only just now: a standby, or under maintenance"),
    (
        (pg.PostgresConnectionError, pg.OperatorInterventionError, pg.CannotConnectNowError),
        StoreUnavailable,
        "the connection to {place} was lost or refused",
    ),
)
"""The server's errors, most specific first."""


def _of_server(store: str, place: str, cause: asyncpg.PostgresError) -> Exception:
    for kinds, ours, problem in _KINDS:
        if isinstance(cause, kinds):
            told = problem.format(place=place)
            return ConfigError(f"store '{store}': {told}") if ours is ConfigError else ours(store, told)
    return StoreError(store, f"PostgreSQL refused ({type(cause).__name__}, SQLSTATE {cause.sqlstate})")


def _of_driver(store: str, place: str, cause: BaseException) -> Exception:
    if isinstance(cause, pg.ClientConfigurationError):
        return ConfigError(f"store '{store}': the connection's settings contradict each other; check the URL and ssl")
    if isinstance(cause, pg.DataError | ValueError):  # its message shows the value
        return StoreError(store, f"the driver could not send a value ({type(cause).__name__})")
    return StoreUnavailable(store, f"the connection to {place} was lost ({type(cause).__name__})")
