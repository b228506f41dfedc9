"""Exit codes: what a program may conclude from how `memory` ended."""

from __future__ import annotations

from memory.domain.errors import (
    CompactionError,
    ConfigError,
    Conflict,
    CorruptRecord,
    InvalidInput,
    InvalidScopePromotion,
    LegalHoldActive,
    MemoryTiersError,
    NotFound,
    QuotaExceeded,
    RejectedByGate,
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
    "Exit codes: 0 done; 1 nothing found, or a check failed; 2 wrong usage or input; 3 a store is unavailable or full; "
    "4 the configuration cannot be used; 5 a record is corrupt; 6 in conflict with what is stored, under legal hold or beyond a quota; 70 a bug; "
    "130 interrupted; 141 the reader of the output went away. "
    'With --json, standard output holds JSON and nothing else; an error is {"error": {"code", "message", "exit"}} there, and one line '
    "on standard error either way."
)

_KINDS: tuple[tuple[type[BaseException], int, str], ...] = (  # the most specific first
    (NotFound, NOTHING, "not_found"),
    (Conflict, CONFLICT, "conflict"),
    (TooMuchContention, CONFLICT, "contended"),
    (LegalHoldActive, CONFLICT, "held"),
    (QuotaExceeded, CONFLICT, "quota_exceeded"),
    (RejectedByGate, CONFLICT, "refused"),
    (CorruptRecord, CORRUPT, "corrupt_record"),
    (StoreError, UNAVAILABLE, "store_unavailable"),
    (ConfigError, CONFIG, "config"),
    (Unsupported, CONFIG, "unsupported"),
    (InvalidScopePromotion, USAGE, "invalid_promotion"),
    (CompactionError, USAGE, "invalid_compaction"),
    (InvalidInput, USAGE, "invalid_input"),
    (MemoryTiersError, BUG, "internal"),
    (OSError, USAGE, "file"),
)


def classify_error(exc: BaseException) -> tuple[int, str]:
    """The exit code of an error and its name for programs."""
    return next(((code, name) for kind, code, name in _KINDS if isinstance(exc, kind)), (BUG, "internal"))
