"""Translates pymongo's errors, most specific first.

Unknown errors become errors that are not retryable. Servers quote their input, so only
the code and name of a server's message are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator

from bson.errors import BSONError
from pymongo import errors as driver

from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.base import LoginRefused
from memory.ports.network_errors import explain_text, explain_unreachable

_REFUSED = {11000, 13113, 241}
"""Codes of refused writes.

The document exists, or does not (for `$merge`), or one of our conditions failed, which
raises a conversion error.
"""
_REFUSED_USER = {18, 11}
_NOT_ALLOWED = {13}
_FULL = {14031, 12501}
_TOO_LARGE = {10334, 17419, 17420, 2}
_EXPIRED = {50, 262, 64, 24}
_FOR_NOW = {6, 7, 89, 91, 112, 189, 9001, 10107, 11600, 11602, 13435, 13436, 46, 251, 225, 244, 267, 292}


def is_refused(error: BaseException) -> bool:
    """Whether the stored data or the generation differs from the write's condition.

    Nothing was changed then.
    """
    return isinstance(error, driver.OperationFailure) and bool(_REFUSED & set(_codes(error)))


def is_only_refusals(error: driver.BulkWriteError) -> bool:
    """Whether each write of a bulk was applied, or failed its own condition."""
    details = error.details
    return not details.get("writeConcernErrors") and all(
        e.get("code") in _REFUSED for e in details.get("writeErrors", ())
    )


def is_collision(error: BaseException) -> bool:
    """Whether a transaction conflicted with another one, or its primary stepped down.

    Nothing was applied, and the transaction may be repeated at once.
    """
    return isinstance(error, driver.PyMongoError) and error.has_error_label("TransientTransactionError")


def translate(store: str, place: str, error: BaseException) -> Exception | None:
    """Return our error for a driver's error; None for any other error."""
    match error:
        case driver.ConfigurationError():
            return ConfigError(
                f"store '{store}': the driver refuses the URL's options; check them ({type(error).__name__})"
            )
        case driver.WaitQueueTimeoutError():
            return StoreTimeout(
                store, "all connections were busy for too long; raise 'connections', or call less at once"
            )
        case driver.ServerSelectionTimeoutError():
            return StoreUnavailable(store, _nobody(place, str(error)))
        case driver.NetworkTimeout() | driver.ExecutionTimeout() | driver.WTimeoutError():
            return StoreTimeout(store, f"{place} did not answer in time; try again, or raise 'timeout'")
        case driver.DocumentTooLarge():
            return InvalidInput("record", f"store '{store}' takes no document that large; shorten it")
        case driver.OperationFailure():
            return _refusal(store, place, error)
        case driver.ConnectionFailure():
            return StoreUnavailable(
                store, f"the connection to {place} was lost or refused: {explain_unreachable(error)}"
            )
        case driver.PyMongoError() if error.timeout:
            return StoreTimeout(store, f"{place} did not answer in time; try again, or raise 'timeout'")
        case driver.PyMongoError() | BSONError():
            return StoreError(store, f"the driver refused ({type(error).__name__})")
        case UnicodeEncodeError():
            return InvalidInput("text", "contains an unpaired surrogate, which is not a character; remove it")
        case OSError():
            return StoreUnavailable(
                store,
                f"{place} cannot be reached: {explain_unreachable(error)}; check the URL and the server",
            )
        case _:
            return None


def _nobody(place: str, said: str) -> str:
    """Explain why no server could be used, as far as the driver tells."""
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return f"the certificate of {place} is not trusted: name its authority with tlsCAFile=FILE in the URL"
    if "SSL handshake failed" in said:
        return f"{place} offers no TLS, and the URL asks for it (tls=true, mongodb+srv)"
    reason = explain_text(said)
    problem = f"no server that takes writes answers at {place}" + (f": {reason}" if reason else "")
    return f"{problem}; check the URL and the server"


def _refusal(store: str, place: str, error: driver.OperationFailure) -> Exception:
    """Translate a refusal by the server."""
    codes = set(_codes(error))
    named = f"code {error.code}"
    if codes & _REFUSED_USER:
        return LoginRefused(store, f"{place} refuses the user or the password; correct them")
    if codes & _NOT_ALLOWED:
        return ConfigError(
            f"store '{store}': the user may not do this at {place}; grant it readWrite on the database"
        )
    if codes & _FULL:
        return StoreFull(store, "the server has no room left; nothing of the call was kept; make room there")
    if error.timeout or codes & _EXPIRED:
        return StoreTimeout(store, f"{place} did not finish in time; try again, or raise 'timeout'")
    if is_collision(error) or error.has_error_label("RetryableWriteError") or codes & _FOR_NOW:
        return StoreUnavailable(
            store, f"refuses work for now, or other calls kept conflicting ({named}); try again"
        )
    if codes & _TOO_LARGE and "too large" in str(error).lower():
        return InvalidInput("record", f"store '{store}' takes no document that large; shorten it")
    return StoreError(store, f"the server refused ({type(error).__name__}, {named})")


def _codes(error: driver.OperationFailure) -> Iterator[int]:
    """Yield the error's own code and those of its writes."""
    yield error.code or 0
    details = error.details or {}
    for written in details.get("writeErrors", ()):
        yield int(written.get("code", 0))
    for concern in details.get("writeConcernErrors", ()):
        yield int(concern.get("code", 0))
