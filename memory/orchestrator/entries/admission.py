"""What writers of entries ask before a write: whether there is room for it. Quotas
answer (`quotas.py`), which the writers do not import.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from memory.policies.quotas import Quota
from memory.ports.record import Key, Record


@dataclass(frozen=True, slots=True)
class NewEntry:
    """An entry that is to be written. `derived`: its key tells whether it was written
    before, and is none then.
    """

    key: Key
    scope: str
    size: int
    derived: bool

    @classmethod
    def of(cls, record: Record, *, derived: bool) -> NewEntry:
        return cls(
            record.key, record.scope, sum(len(text.encode()) for text in record.texts.values()), derived
        )


class Admission(Protocol):
    """Decides whether new entries may be written."""

    @property
    def quotas(self) -> Sequence[Quota]:
        """The quotas that apply to entries. If there are none, nothing need be asked."""
        ...

    def admit(
        self, tenant: str, new_entries: Sequence[NewEntry], less: int = 0
    ) -> AbstractAsyncContextManager[set[Key]]:
        """Let these be written inside, or raise `QuotaExceeded` before anything is.

        Args:
            tenant: Whose entries they are.
            new_entries: The entries that are to be written.
            less: How many entries the write removes.

        Returns:
            A context whose value the caller fills with the keys that it wrote. Entries
            that are evicted to make room are never among them.
        """
        ...
