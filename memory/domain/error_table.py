"""One table of errors: the exit code and the HTTP status of each class.

The command line, the HTTP API and the MCP server read it, so that one error means the
same everywhere. The code of an error for programs is its class's `code`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import NamedTuple

from memory.domain.errors import (
    CompactionError,
    ConfigError,
    Conflict,
    CorruptRecord,
    EmbedderTimeout,
    Forbidden,
    InvalidInput,
    InvalidScopePromotion,
    LegalHoldActive,
    MemoryTiersError,
    NotFound,
    NotOpen,
    ProviderFailure,
    QuotaExceeded,
    RejectedByGate,
    RequestIdReused,
    ScratchpadFull,
    StoreAddFailure,
    StoreError,
    StoreFull,
    StoreUnavailable,
    TooMuchContention,
    Unsupported,
)

OK = 0
NOTHING = 1
USAGE = 2
UNAVAILABLE = 3
CONFIG = 4
CORRUPT = 5
CONFLICT = 6
BUG = 70

BAD_REQUEST, FORBIDDEN, NOT_FOUND, CONFLICTING, UNPROCESSABLE = 400, 403, 404, 409, 422
BROKEN, NOT_IMPLEMENTED, BAD_GATEWAY, AWAY, NO_ROOM = 500, 501, 502, 503, 507


log = logging.getLogger(__name__)
_OF_STORE = re.compile(r"(store '[^']*'): ")


class ErrorRule(NamedTuple):
    """The exit code and the HTTP status of a class of errors."""

    kind: type[BaseException]
    exit_code: int
    status: int
    """The HTTP status."""
    retryable: bool = False
    """Whether the same call may succeed later without any change."""


RULES: tuple[ErrorRule, ...] = (  # most specific first
    ErrorRule(NotFound, NOTHING, NOT_FOUND),
    ErrorRule(RequestIdReused, CONFLICT, UNPROCESSABLE),
    ErrorRule(Conflict, CONFLICT, CONFLICTING),
    ErrorRule(TooMuchContention, CONFLICT, CONFLICTING, retryable=True),
    ErrorRule(LegalHoldActive, CONFLICT, CONFLICTING),
    ErrorRule(QuotaExceeded, CONFLICT, CONFLICTING),
    ErrorRule(RejectedByGate, CONFLICT, FORBIDDEN),
    ErrorRule(Forbidden, CONFLICT, FORBIDDEN),
    ErrorRule(ScratchpadFull, CONFLICT, CONFLICTING),
    ErrorRule(CorruptRecord, CORRUPT, BROKEN),
    ErrorRule(StoreUnavailable, UNAVAILABLE, AWAY, retryable=True),
    ErrorRule(EmbedderTimeout, UNAVAILABLE, AWAY, retryable=True),
    ErrorRule(StoreFull, UNAVAILABLE, NO_ROOM),
    ErrorRule(StoreError, UNAVAILABLE, BROKEN),
    ErrorRule(StoreAddFailure, UNAVAILABLE, BAD_GATEWAY),
    ErrorRule(ProviderFailure, UNAVAILABLE, BAD_GATEWAY),
    ErrorRule(ConfigError, CONFIG, BROKEN),
    ErrorRule(Unsupported, CONFIG, NOT_IMPLEMENTED),
    ErrorRule(InvalidScopePromotion, USAGE, BAD_REQUEST),
    ErrorRule(CompactionError, USAGE, BAD_REQUEST),
    ErrorRule(InvalidInput, USAGE, BAD_REQUEST),
    ErrorRule(NotOpen, BUG, AWAY, retryable=True),
    ErrorRule(OSError, USAGE, BROKEN),
    ErrorRule(BaseException, BUG, BROKEN),
)


def rule_of(error: BaseException) -> ErrorRule:
    """Return the row of an error's class; the last row covers bugs."""
    return next(rule for rule in RULES if isinstance(error, rule.kind))


def code_of(error: BaseException) -> str:
    """Return the code of an error for programs, such as `not_found`."""
    if isinstance(error, MemoryTiersError):
        return error.code
    return "file" if isinstance(error, OSError) else "internal"


def notes_without_details(notes: Iterable[str]) -> list[str]:
    """Return the notes of an incomplete answer for callers who do not run the stores.

    The error of a store may name a host, a folder or a process. It goes to the log.
    """
    return list(dict.fromkeys(map(_without_details, notes)))


def text_without_details(error: MemoryTiersError) -> str:
    """Return the text of an error for callers who do not run the stores."""
    return _without_details(str(error)) if isinstance(error, StoreError) else str(error)


def _without_details(text: str) -> str:
    found = _OF_STORE.match(text)
    if found is None:
        return text
    log.warning("a caller was told only that a store failed: %s", text)
    return f"{found[1]} failed; the log has the reason"
