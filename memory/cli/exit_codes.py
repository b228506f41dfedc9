"""Exit codes of `memory`, and which error ends with which code."""

from __future__ import annotations

from memory.domain.error_table import (
    BUG,
    CONFIG,
    CONFLICT,
    CORRUPT,
    NOTHING,
    OK,
    UNAVAILABLE,
    USAGE,
    code_of,
    rule_of,
)

__all__ = (
    "BUG",
    "CONFIG",
    "CONFLICT",
    "CORRUPT",
    "EPILOG",
    "INTERRUPTED",
    "NOTHING",
    "OK",
    "PIPE_CLOSED",
    "UNAVAILABLE",
    "USAGE",
    "classify_error",
)

INTERRUPTED = 130
PIPE_CLOSED = 141

EPILOG = (
    "Exit codes: 0 done; 1 nothing found, or a check failed; 2 wrong usage or input; 3 a store is unavailable"
    " or full; 4 the configuration cannot be used; 5 a record is corrupt; 6 a conflict with stored data, a"
    " legal hold, a quota or a gate; 70 a bug; 130 interrupted; 141 the reader of the output closed it. With"
    " --json, standard output holds only JSON. An error is printed in one line on standard error and, with"
    ' --json, on standard output as {"error": {"code", "message", "exit"}}.'
)


def classify_error(exc: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and its code for programs."""
    return rule_of(exc).exit_code, code_of(exc)
