"""Exit codes of `memory`, and which error ends with which code."""

from __future__ import annotations

from memory.domain.errors import (
    CompactionError,
    ConfigError,
    Conflict,
    CorruptRecord,
    Forbidden,
    InvalidInput,
    InvalidScopePromotion,
    LegalHoldActive,
    MemoryTiersError,
    NotFound,
    ProviderFailure,
    QuotaExceeded,
    RejectedByGate,
    ScratchpadFull,
    StoreAddFailure,
    StoreError,
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
INTERRUPTED = 130
PIPE_CLOSED = 141

EPILOG = (
    "Exit codes: 0 done; 1 nothing found, or a check failed; 2 wrong usage or input; 3 a store is unavailable"
    " or full; 4 the configuration cannot be used; 5 a record is corrupt; 6 a conflict with stored data, a"
    " legal hold, a quota or a gate; 70 a bug; 130 interrupted; 141 the reader of the output closed it. With"
    " --json, standard output holds only JSON. An error is printed in one line on standard error and, with"
    ' --json, on standard output as {"error": {"code", "message", "exit"}}.'
)

_EXITS: tuple[tuple[type[BaseException], int], ...] = (  # most specific first
    (NotFound, NOTHING),
    (Conflict, CONFLICT),
    (TooMuchContention, CONFLICT),
    (LegalHoldActive, CONFLICT),
    (QuotaExceeded, CONFLICT),
    (RejectedByGate, CONFLICT),
    (Forbidden, CONFLICT),
    (ScratchpadFull, CONFLICT),
    (CorruptRecord, CORRUPT),
    (StoreError, UNAVAILABLE),
    (StoreAddFailure, UNAVAILABLE),
    (ProviderFailure, UNAVAILABLE),
    (ConfigError, CONFIG),
    (Unsupported, CONFIG),
    (InvalidScopePromotion, USAGE),
    (CompactionError, USAGE),
    (InvalidInput, USAGE),
    (OSError, USAGE),
)


def classify_error(exc: BaseException) -> tuple[int, str]:
    """Return the exit code of an error, and its code for programs."""
    foreign = "file" if isinstance(exc, OSError) else "internal"
    code = exc.code if isinstance(exc, MemoryTiersError) else foreign
    return next((exit_code for kind, exit_code in _EXITS if isinstance(exc, kind)), BUG), code
