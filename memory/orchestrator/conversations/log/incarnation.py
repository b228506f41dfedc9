"""The life of a session, from its creation to its deletion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memory.domain.time import micros
from memory.orchestrator.storage.versions import version_at
from memory.ports.record import FieldValue, Partition


@dataclass(frozen=True, slots=True)
class SessionIncarnation:
    """The identity of a session's life.

    A later session of the same id has another incarnation, and a later generation.
    """

    tenant: str
    session_id: str
    scope: str
    incarnation: str
    generation: int
    has_system: bool
    created_at: datetime
    whose: Mapping[str, FieldValue] = field(default_factory=dict)
    """The session's user, agent and namespace, which never change."""

    def version_at(self, now: datetime, stored: int = 0) -> int:
        """Return the version of a write at this moment.

        It is never older than the session, even if a clock is wrong.
        """
        return version_at(now, max(stored, micros(self.created_at)))

    @property
    def user(self) -> str | None:
        """The session's user."""
        subject = self.whose.get("subject")
        return None if subject is None else str(subject)

    def writers_of(self, user: str | None) -> tuple[str, ...]:
        """Return the authors to store for a write by this user.

        Empty if that is the session's own user, or unknown.
        """
        return () if user is None or user == self.user else (user,)

    def writers_after(self, before: tuple[str, ...], user: str | None) -> tuple[str, ...]:
        """Return the authors after a change by this user; `before` are those stored."""
        known = before or (() if self.user is None else (self.user,))
        return before if user is None or user in known else (*known, user)

    @property
    def partition(self) -> Partition:
        return Partition(self.tenant, self.scope)
