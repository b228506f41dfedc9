"""Translates the drivers' errors, most specific first.

No message contains parts of a request, which may include a key.
"""

from __future__ import annotations

from memory.domain.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable


class EdgeFailure(Exception):
    """Edge raised an exception. It has only plain ones with a text, and panics."""


class PartialBatch(Exception):
    """A call failed after a part of it was stored."""


_FULL = ("no space left", "os error 28", "disk quota", "storagefull", "out of disk")


def translate_edge(store: str, error: Exception) -> Exception | None:
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("text", "contains an unpaired surrogate, which is not a character; remove it")
    if isinstance(error, PartialBatch):
        return StoreUnavailable(store, str(error))
    if not isinstance(error, EdgeFailure | OSError):
        return None
    text = " ".join(str(error).split())[:300]
    if any(sign in text.lower() for sign in _FULL):
        return StoreFull(store, f"no space left for its folder ({text})")
    if "wouldblock" in text.lower():
        return StoreUnavailable(store, "its folder is open in another process; stop it first")
    return StoreError(store, text)
