"""One table of errors: the exit code and the HTTP status of each class.

The command line, the HTTP API and the MCP server read it, so that one error means the
same everywhere. The code of an error for programs is its class's `code`.
"""

from __future__ import annotations

import logging
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


class StoreNote(str):
    """A note of an incomplete answer that has the text of a store's error.

    `public` is the same for callers who do not run the stores. The error of a store may
    name a host, a folder or a process.
    """

    public: str

    def __new__(cls, text: str, public: str) -> StoreNote:
        note = super().__new__(cls, text)
        note.public = public
        return note

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # for copies and pickles
        return str(self), self.public


def store_note(error: StoreError, consequence: str = "") -> StoreNote:
    """Return the note of an answer that lacks what a store did not give."""
    text = f"{error}; {consequence}" if consequence else str(error)
    return StoreNote(text, f"store '{error.store}' failed; {consequence or 'the log has the reason'}")


def notes_without_details(notes: Iterable[str]) -> list[str]:
    """Return the notes of an incomplete answer for callers who do not run the stores.

    The errors of the stores go to the log.
    """
    shown = dict[str, None]()
    for note in notes:
        if isinstance(note, StoreNote):
            log.warning("a caller was told only that a store failed: %s", note)
        shown[note.public if isinstance(note, StoreNote) else note] = None
    return list(shown)


def text_without_details(error: MemoryTiersError) -> str:
    """Return the text of an error for callers who do not run the stores."""
    return notes_without_details([store_note(error) if isinstance(error, StoreError) else str(error)])[0]
