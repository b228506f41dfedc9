"""Translates errors of MySQL and MariaDB to this library's, most specific first.

Unknown errors are not retryable. Messages of a server quote its input, so only the
error's number is passed on: it cannot contain a secret or a value of a record.
"""

from __future__ import annotations

import re

from asyncmy import errors as my

from memory.adapters.sql.server.errors import original, translate_common, unreachable
from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.base import LoginRefused
from memory.ports.network_errors import find_reason

DUPLICATE, NO_VALUE, NO_COLUMN, MALFORMED = 1062, 1048, 1054, 2027
COLLISIONS = frozenset({1213, 1205, 1020})
"""A deadlock, a lock timeout, or a record that changed since it was read.

Only MariaDB with `innodb_snapshot_isolation` reports the last one.
"""
LOST = range(2000, 2100)
"""The driver's own errors: it has no connection, or has lost it."""


class UntrustedCertificate(Exception):
    """The certificate is of another host, or no trusted authority has issued it."""


def number_of(error: BaseException) -> int:
    """Return the number of a server's or the driver's error, 0 where it has none."""
    cause = original(error)
    return (
        cause.args[0]
        if isinstance(cause, my.MySQLError) and cause.args and isinstance(cause.args[0], int)
        else 0
    )


def server_said(error: BaseException) -> bool:
    """Whether the server answered with an error: the connection is still usable."""
    return 1000 <= number_of(error) < 2000 or number_of(error) >= 3000


def is_collision(error: BaseException) -> bool:
    """Whether two transactions collided.

    This one keeps nothing, and may be repeated at once.
    """
    return number_of(error) in COLLISIONS


READ_ONLY = frozenset({1290, 1792, 1836, 3707})
NO_ROOM = frozenset({1040, 1203, 1226})


DENIED = frozenset({1044, 1142, 1143, 1227, 1370})


def is_denied(error: BaseException) -> bool:
    """Whether the user lacks a right that the call needs."""
    return number_of(error) in DENIED


def is_read_only(error: BaseException) -> bool:
    """Whether the server rejects writes; after a failover, another one takes them."""
    return number_of(error) in READ_ONLY


def no_room(error: BaseException) -> bool:
    """Whether the server, or the user's limit, allows no more connections."""
    return number_of(error) in NO_ROOM


def translate(store: str, place: str, error: BaseException) -> Exception | None:
    """Return this library's error for a driver's; None for any other error."""
    cause = original(error)
    if isinstance(cause, my.MySQLError):
        return _of_number(store, place, cause)
    if isinstance(cause, UntrustedCertificate):
        return StoreUnavailable(
            store,
            f"the certificate of {place} is not trusted: set ssl_ca to the file of its authority",
        )
    if isinstance(cause, EOFError):
        return unreachable(store, place, cause)
    return translate_common(store, place, cause)


_KINDS: tuple[tuple[frozenset[int], type[Exception], str], ...] = (
    (
        DENIED,
        ConfigError,
        "the user may not do this at {place}{denied}; docs/backends.md lists the rights it needs",
    ),
    (
        frozenset({1045, 1698, 1251, 2049, 2059, 2061, 1862, 3118}),
        LoginRefused,
        "{place} refuses the user or the password",
    ),
    (frozenset({1049}), ConfigError, "there is no such database at {place}; create it, or name another"),
    (
        frozenset({1021, 1037, 1038, 1041, 1114, 3019}),
        StoreFull,
        "the server has no room left; nothing of the call was kept; make room there, then try again",
    ),
    (
        frozenset({1153, 1301}),
        InvalidInput,
        "is larger than the server's max_allowed_packet; raise it there",
    ),
    (
        frozenset({1969, 3024, 1317}),
        StoreTimeout,
        "the server ended the call: it took too long, or someone killed it",
    ),
    (
        COLLISIONS,
        StoreUnavailable,
        "other transactions kept colliding with the call; nothing of it was kept; try again",
    ),
    (
        NO_ROOM | {1461},
        StoreUnavailable,
        "{place} has no connection or statement to spare; lower pool_size or raise its limits",
    ),
    (READ_ONLY, StoreUnavailable, "{place} is read-only (a replica, or maintenance); try again"),
    (
        frozenset({1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1927, *LOST}),
        StoreUnavailable,
        "the connection to {place} was lost or refused{reason}; check the server, and try again",
    ),
)
"""Errors by number, most specific first."""


_DENIED = re.compile(r"^([A-Z][A-Z ,]{2,60}) command denied to user .* for table ([\w`'.$-]{1,200})$")
"""The server's message on a missing right.

It names a command and a table of this library, and no value.
"""


def _missing_permission(cause: my.MySQLError) -> str:
    """Return the missing right: the command, and the table it is refused for."""
    said = _DENIED.match(str(cause.args[1])) if len(cause.args) > 1 else None
    return f" ({said[1]} is denied for table {said[2]})" if said else ""


def _of_number(store: str, place: str, cause: my.MySQLError) -> Exception:
    number = number_of(cause)
    for numbers, ours, problem in _KINDS:
        if number in numbers:
            reason = find_reason(cause)
            told = problem.format(
                place=place, denied=_missing_permission(cause), reason=f": {reason}" if reason else ""
            )
            if ours is InvalidInput:
                return InvalidInput("record", told)
            return ConfigError(f"store '{store}': {told}") if ours is ConfigError else ours(store, told)
    return StoreError(store, f"the server refused ({type(cause).__name__}, error {number})")
