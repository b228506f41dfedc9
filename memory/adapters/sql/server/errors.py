"""Translation of the errors that the adapters of all SQL servers share."""

from __future__ import annotations

from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from memory.adapters.sql.server.pool import PoolTimeout
from memory.domain.errors import StoreError, StoreTimeout, StoreUnavailable
from memory.ports.network_errors import explain_unreachable


def original(error: BaseException) -> BaseException:
    """Return the driver's own error inside SQLAlchemy's."""
    cause: BaseException | None = error.orig if isinstance(error, DBAPIError) else None
    return error if cause is None else cause.__cause__ or cause


def translate_common(store: str, place: str, cause: BaseException) -> Exception | None:
    """Return our error for one of the pool, the network or SQLAlchemy; else None."""
    match cause:
        case PoolTimeout():
            return StoreTimeout(
                store,
                "every connection of the pool was busy for too long; raise pool_size, or make fewer calls at"
                " once",
            )
        case TimeoutError():
            return StoreTimeout(store, f"{place} did not answer in time")
        case OSError():
            return unreachable(store, place, cause)
        case SQLAlchemyError():
            return StoreError(store, f"SQLAlchemy refused ({type(cause).__name__})")
        case _:
            return None


def unreachable(store: str, place: str, cause: BaseException) -> StoreUnavailable:
    """Return the error of a server without a connection."""
    return StoreUnavailable(
        store, f"{place} cannot be reached: {explain_unreachable(cause)}; check the URL and the server"
    )
