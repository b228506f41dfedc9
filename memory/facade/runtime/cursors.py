"""Cursors of lists, bound to the list that returned them."""

from __future__ import annotations

from hashlib import blake2b

from memory.domain import validation
from memory.domain.errors import InvalidInput

MAX_CURSOR_BYTES = 16 * 1024
"""A cursor may hold a tenant and the text of a scope, a byte in up to eight."""


class CursorSeal:
    """Adds a digest of a list's arguments to its cursors, and takes it off again.

    Args:
        question: All that must be the same for the next page. The `repr` of each part
            must be the same in every process.
    """

    def __init__(self, *question: object) -> None:
        self._question = question

    def seal(self, cursor: str | None) -> str | None:
        """Return the cursor of a page as a caller gets it."""
        return None if cursor is None else f"{cursor}.{self._digest(cursor)}"

    def unseal(self, given: object) -> str | None:
        """Return the cursor that a caller passes, without the digest.

        Raises:
            InvalidInput: It is damaged, or a list with other arguments returned it.
        """
        if given is None:
            return None
        cursor, _, digest = validation.text("cursor", given, max_bytes=MAX_CURSOR_BYTES).rpartition(".")
        if digest != self._digest(cursor):
            raise InvalidInput(
                "cursor",
                "is damaged, or belongs to another list. Keep all arguments but limit= the same for all"
                " pages, or begin again without a cursor",
            )
        return cursor

    def _digest(self, cursor: str) -> str:
        return blake2b(repr((self._question, cursor)).encode(), digest_size=8).hexdigest()
