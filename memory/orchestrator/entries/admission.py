"""The interface by which writers of entries ask for room.

Quotas implement it (`quotas.py`); writers do not import them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from memory.policies.entry_filters import UNSEARCHED
from memory.policies.quotas import Quota
from memory.ports.record import Key, Record
from memory.ports.rows import json_of

_JSON = ("metadata", "data", UNSEARCHED)
"""The values in the body of an entry that count as its size."""


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry that is to be written.

    `derived` means that its key derives from its request. If that key exists already,
    the entry is a repeat, and not new.
    """

    key: Key
    scope: str
    size: int
    derived: bool
    is_new: bool = True
    """False for an entry or document that exists and grows by `size`."""

    @classmethod
    def of(cls, record: Record, *, derived: bool) -> NewEntry:
        return cls(record.key, record.scope, _size(record), derived)

    @classmethod
    def growth(cls, before: Record, after: Record) -> list[NewEntry]:
        """Return the growth of an entry by an edit; an empty list without growth."""
        more = _size(after) - _size(before)
        return [cls(after.key, after.scope, more, derived=False, is_new=False)] if more > 0 else []


def _size(record: Record) -> int:
    texts = [*record.texts.values(), *(json_of(record.body[name]) for name in _JSON if name in record.body)]
    return sum(len(text.encode()) for text in texts)


class Admission(Protocol):
    """Decides whether new entries may be written."""

    @property
    def quotas(self) -> Sequence[Quota]:
        """The quotas that apply to entries. If there are none, no call is needed."""
        ...

    def admit(
        self, tenant: str, new_entries: Sequence[NewEntry], less: int = 0
    ) -> AbstractAsyncContextManager[set[Key]]:
        """Admit these entries for writing in the context.

        Args:
            tenant: The tenant of the entries.
            new_entries: The entries that are to be written.
            less: How many entries the write removes.

        Returns:
            A context whose value the caller fills with the keys that it wrote. Entries
            that are evicted to make room are never among them.

        Raises:
            QuotaExceeded: There is no room; nothing was written.
        """
        ...
