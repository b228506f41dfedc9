"""The drivers' errors as ours, most specific first. Nothing of a request, where a key
could stand, gets into a message.
"""

from __future__ import annotations

from memory.domain.errors import InvalidInput, StoreError, StoreFull, StoreUnavailable


class EdgeFailure(Exception):
    """What Edge raised: it knows only bare exceptions with a text, and panics."""


class PartialBatch(Exception):
    """A call failed after a part of it was stored: whether it took place is neither yes
    nor no.
    """


_FULL = ("no space left", "os error 28", "disk quota", "storagefull", "out of disk")


def translate_edge(store: str, error: Exception) -> Exception | None:
    if isinstance(error, UnicodeEncodeError):
        return InvalidInput("text", "holds half of a surrogate pair, which is no character")
    if isinstance(error, PartialBatch):
        return StoreUnavailable(store, str(error))
    if not isinstance(error, EdgeFailure | OSError):
        return None
    text = " ".join(str(error).split())[:300]
    if any(sign in text.lower() for sign in _FULL):
        return StoreFull(store, f"no room left for its folder ({text})")
    if "wouldblock" in text.lower():
        return StoreUnavailable(store, "its folder is open elsewhere")
    return StoreError(store, text)
