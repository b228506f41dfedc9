"""Translates redis-py's errors, most specific first.

Unknown errors become errors that are not retryable.
"""

from __future__ import annotations

import asyncio
import re

from redis import exceptions as driver
from redis.asyncio.sentinel import MasterNotFoundError

from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.base import LoginRefused
from memory.ports.network_errors import explain_unreachable

_MOVING = "non local key"
_FOR_NOW = (
    "LOADING",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "BUSY ",
    "MISCONF",
    "UNBLOCKED",
)


def translate(store: str, error: BaseException, prefix: str = "memory") -> Exception | None:
    """Return our error for a driver's error; None for any other error."""
    if isinstance(error, driver.NoPermissionError) or (
        isinstance(error, driver.ResponseError) and "NOPERM" in str(error)
    ):
        return StoreError(store, _missing_permission(str(error), prefix))
    if isinstance(error, driver.AuthenticationError):
        return LoginRefused(store, f"refuses the user or the password ({_short(error)}); check the URL")
    if isinstance(error, driver.AuthorizationError):
        return StoreError(store, f"refuses user, password or command ({_short(error)}); check URL and ACL")
    if isinstance(error, driver.OutOfMemoryError):
        return StoreFull(
            store, "the server reached its memory limit; nothing of the call was kept; raise maxmemory"
        )
    if isinstance(error, driver.TimeoutError | asyncio.TimeoutError):
        return StoreTimeout(store, "no answer in time; try again, or raise 'timeout'")
    if isinstance(error, driver.BusyLoadingError):
        return StoreUnavailable(store, "the server is still loading its data; try again")
    if isinstance(error, driver.ConnectionError | OSError) and (problem := _tls_or_sentinel(error)):
        return StoreUnavailable(store, problem)
    if isinstance(error, driver.ConnectionError | OSError):
        return StoreUnavailable(store, f"cannot be reached: {explain_unreachable(error)} ({_short(error)})")
    if isinstance(error, driver.RedisClusterException) and "Cluster mode is not enabled" in str(error):
        return ConfigError(
            f"store '{store}': this server is not part of a cluster; begin the URL with redis:// instead of"
            " redis+cluster://"
        )
    if isinstance(error, driver.RedisClusterException) and "cannot be connected" in str(error):
        return StoreUnavailable(store, f"no node of the cluster can be reached: {explain_unreachable(error)}")
    if isinstance(error, driver.RedisClusterException | driver.RedisError):
        return _refusal(store, error)
    return None


_COMMAND = re.compile(r"run the '([\w|-]{1,40})' command")


def _missing_permission(said: str, prefix: str) -> str:
    """Name the missing permission and how to grant it."""
    if command := _COMMAND.search(said):
        return (
            f"the ACL of this user does not allow the command '{command[1]}'; docs/backends.md lists the"
            " commands and keys that it needs"
        )
    if "key" in said:
        return f"the ACL of this user does not allow the keys of this store: allow the pattern ~{{{prefix}*"
    return (
        "the ACL of this user does not allow this; docs/backends.md lists the commands and keys that it needs"
    )


def _tls_or_sentinel(error: BaseException) -> str:
    """Describe a problem of TLS or of the sentinels; empty if it is a different one."""
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return "the server's certificate is not trusted: name the file of its authority with tls_ca"
    if isinstance(error, MasterNotFoundError):
        if "network:" in str(error):
            return "no sentinel can be reached; check their addresses in the URL, and whether they run"
        return "no sentinel knows a master of this service; check the name of the service in the URL"
    return ""


def _refusal(store: str, error: Exception) -> Exception:
    """Translate a refusal by the server."""
    text = str(error)
    if "No space left" in text:
        return StoreFull(store, "the server's disk is full; nothing of the call was kept; make room there")
    if isinstance(
        error, driver.ClusterError | driver.SlotNotCoveredError | driver.TryAgainError | driver.ReadOnlyError
    ) or text.startswith(_FOR_NOW):
        return StoreUnavailable(store, f"refuses work for now ({_short(error)}); try again")
    if "MISCONF" in text or "OOM " in text:
        return StoreFull(store, f"the server accepts no writes for now ({_short(error)})")
    if _MOVING in text:
        return StoreUnavailable(store, "the slot is moving to another node; try again")
    if "max bulk length" in text or "maximum allowed size" in text:
        return InvalidInput("writes", f"store '{store}' takes no value that large; raise proto-max-bulk-len")
    return StoreError(store, f"the server refused ({type(error).__name__}: {_short(error)})")


def _short(error: BaseException) -> str:
    """Shorten the driver's message and remove the quoted arguments."""
    text = str(error).partition(", with args beginning with")[0].partition(" script: ")[0]
    return text[:160] or type(error).__name__
