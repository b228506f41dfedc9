"""Answers that may be incomplete, and how an answer reports stores that failed."""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from memory.domain.error_table import store_note
from memory.domain.errors import StoreError, StoreTimeout, StoreUnavailable
from memory.orchestrator.storage.placement import Placement
from memory.ports.record import Role
from memory.ports.store import Store

T = TypeVar("T")

BROWSED = frozenset({Role.HOME, Role.ARRIVING})
"""The roles of the copies that answer. A replica never does."""


@dataclass(slots=True)
class AnswerGaps:
    """The gaps of an answer.

    They are notes, each given once; the stores that did not answer in time; and the
    times at which indexes had been read.
    """

    notes: dict[str, None] = field(default_factory=dict)
    silent: set[Store] = field(default_factory=set)
    withheld: set[str] = field(default_factory=set)
    """The ids of the results that the recall gate withheld."""
    chosen_from: dict[Store, datetime] = field(default_factory=dict)
    """When the index was read, by store, for stores that were not searched by meaning
    themselves (see `embeddings.partition_indexes`). Later writes may be missing.
    """
    answering: set[Store] = field(default_factory=set)
    """Stores whose last counted call succeeded."""
    failures: dict[Store, StoreError] = field(default_factory=dict)
    """Stores whose last counted call failed, with the error."""

    def say(self, note: str) -> None:
        self.notes[note] = None

    def chose(self, store: Store, read: datetime) -> None:
        """Note that the results for this store come from data read at `read`."""
        self.chosen_from[store] = min(read, self.chosen_from.get(store, read))

    async def try_call(
        self, placement: Placement, store: Store, call: Coroutine[Any, Any, T], *, shows: bool = True
    ) -> T | None:
        """Return the call's answer within the deadline, or None if the store failed.

        The failure is noted in the answer. A store that did not answer in time is not
        asked again. Pass `shows=False` if the result cannot be shown without another
        call: it does not count as an answer.
        """
        if store in self.silent:
            call.close()
            if shows:
                self._note_failure(store, StoreTimeout(store.name, "it did not answer in time"))
            return None
        answer = await placement.answer(store, call)
        if isinstance(answer, StoreError):
            self.say(store_note(answer))
            if isinstance(answer, StoreTimeout):
                self.silent.add(store)
            if shows:
                self._note_failure(store, answer)
            return None
        if lost := getattr(store, "data_loss", ""):
            self.say(lost)
        if shows:
            self.answering.add(store)
            self.failures.pop(store, None)
        return answer

    def _note_failure(self, store: Store, error: StoreError) -> None:
        self.answering.discard(store)
        self.failures.setdefault(store, error)

    def require_answer(self) -> None:
        """Raise if every store that was asked failed.

        An empty answer would look as if there were no results.

        Raises:
            StoreUnavailable: No asked store answered. With one asked store its own
                error.
        """
        if not self.failures or self.answering:
            return
        first, *others = self.failures.values()
        if not others:
            raise first
        names = ", ".join(error.store for error in self.failures.values())
        problems = "; ".join(str(error) for error in self.failures.values())
        raise StoreUnavailable(names, f"no store that could hold results responded: {problems}") from first
