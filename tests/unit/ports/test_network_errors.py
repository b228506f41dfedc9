"""Why a server cannot be reached is said in words, whatever the driver wraps it in."""

from __future__ import annotations

import errno
import socket

from memory.ports.contract.cells import cells
from memory.ports.network_errors import explain_text, explain_unreachable, find_reason


def _wrapped(cause: BaseException) -> BaseException:
    outer = RuntimeError("the driver failed")
    outer.__cause__ = ExceptionGroup("all attempts failed", [cause]) if isinstance(cause, Exception) else None
    return outer


REASONS = [
    (socket.gaierror(socket.EAI_NONAME, "x"), "the host name cannot be resolved"),
    (socket.gaierror(socket.EAI_AGAIN, "x"), "the name server does not answer"),
    (ConnectionRefusedError(errno.ECONNREFUSED, "x"), "the connection was refused"),
    (OSError(errno.EHOSTUNREACH, "x"), "there is no route to the host"),
    (TimeoutError(errno.ETIMEDOUT, "x"), "did not answer in time"),
    (
        OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1)"),
        "the connection was refused",
    ),
    (RuntimeError("Error -2 connecting to x:1. Name or service not known."), "cannot be resolved"),
]


@cells("error, reason", REASONS, ids=lambda case: repr(case[0]), shared=True)
def test_the_reason_is_found_in_the_error_and_in_what_it_wraps(error: Exception, reason: str) -> None:
    assert reason in explain_unreachable(error)
    assert reason in explain_unreachable(_wrapped(error))


def test_without_a_reason_the_error_is_named() -> None:
    assert find_reason(KeyError("x")) is None
    assert explain_unreachable(KeyError("x")) == "KeyError"
    assert explain_text("the answer was wrong") is None


def test_errors_that_name_each_other_end() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert find_reason(one) is None
