"""Say in words why a server cannot be reached.

Drivers wrap the error of the system, or quote it.
"""

from __future__ import annotations

import errno
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final

_NOT_RESOLVED: Final = "the host name cannot be resolved"
_NO_ANSWER: Final = "the host did not answer in time"
_REASONS: Final = {
    errno.ECONNREFUSED: "the connection was refused",
    errno.ECONNRESET: "the server closed the connection",
    errno.EPIPE: "the server closed the connection",
    errno.ECONNABORTED: "the connection was closed on this machine",
    errno.ETIMEDOUT: _NO_ANSWER,
    errno.EHOSTUNREACH: "there is no route to the host",
    errno.ENETUNREACH: "there is no route to the network",
    errno.EADDRNOTAVAIL: "this machine has no free port or address for a connection",
    errno.EMFILE: "this process has too many open files; raise its limit (ulimit -n)",
    errno.ENFILE: "this machine has too many open files",
    errno.ENOENT: "there is no such socket file",
    errno.EACCES: "the system does not permit the connection",
    errno.EPERM: "the system does not permit the connection",
}
_RESOLVER: Final = {
    socket.EAI_AGAIN: "the host name cannot be resolved now: the name server does not answer",
}
_QUOTED: Final = re.compile(r"\bErr(?:no|or) (-?\d{1,3})\b")
_UNRESOLVED: Final = re.compile(r"name or service not known|name resolution|nodename nor servname", re.I)
_LATE: Final = re.compile(r"timed out|timeout", re.I)
_DEEPEST: Final = 12


def explain_unreachable(error: BaseException) -> str:
    """Return why a server cannot be reached, or the name of the error if unknown."""
    return find_reason(error) or type(error).__name__


def find_reason(error: BaseException) -> str | None:
    """Return why a server cannot be reached; None if the error does not say it.

    Args:
        error: The driver's error. Errors that it wraps or quotes are looked at too.
    """
    chain = list(_chain(error))
    reasons = [*map(_reason, chain), *(explain_text(str(one)) for one in chain)]
    return next((reason for reason in reasons if reason is not None), None)


def explain_text(said: str) -> str | None:
    """Return the reason that a driver's message quotes; None if it quotes none."""
    number = _QUOTED.search(said)
    if number is not None and (reason := _of_number(int(number[1]))) is not None:
        return reason
    if _UNRESOLVED.search(said):
        return _NOT_RESOLVED
    return _NO_ANSWER if _LATE.search(said) else None


def _reason(error: BaseException) -> str | None:
    if isinstance(error, socket.gaierror):
        return _RESOLVER.get(error.errno or 0, _NOT_RESOLVED)
    if isinstance(error, ssl.SSLError) or not isinstance(error, OSError) or error.errno is None:
        return None
    return _of_number(error.errno)


def _of_number(number: int) -> str | None:
    if number < 0:
        return _RESOLVER.get(number, _NOT_RESOLVED)
    return _REASONS.get(number)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it wraps, outermost first."""
    waiting = [error]
    for _ in range(_DEEPEST):
        if not waiting:
            return
        one = waiting.pop(0)
        if isinstance(one, BaseException):
            yield one
            waiting += getattr(one, "exceptions", ())
            waiting += [getattr(one, "orig", None), getattr(one, "source", None)]
            waiting += [one.__cause__, one.__context__]
            waiting = [other for other in waiting if isinstance(other, BaseException)]
