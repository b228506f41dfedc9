"""What a session is told apart by from all others, former ones of its id among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memory.domain.time import micros
from memory.orchestrator.storage.versions import version_at
from memory.ports.record import FieldValue, Partition


@dataclass(frozen=True, slots=True)
class SessionIncarnation:
    """What identifies a session's life: a session of the same id that is created later
    has another incarnation, and a later generation.
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
        """The version of what is stored in it now: nothing that a session has is older
        than the session, whatever a clock says.
        """
        return version_at(now, max(stored, micros(self.created_at)))

    @property
    def user(self) -> str | None:
        """The session's user."""
        subject = self.whose.get("subject")
        return None if subject is None else str(subject)

    def writers_of(self, user: str | None) -> tuple[str, ...]:
        """Whom something names that this user wrote: none where that is the session's
        own, or nobody is known.
        """
        return () if user is None or user == self.user else (user,)

    def writers_after(self, before: tuple[str, ...], user: str | None) -> tuple[str, ...]:
        """Whom something names that named these before, once this user has changed it."""
        known = before or (() if self.user is None else (self.user,))
        return before if user is None or user in known else (*known, user)

    @property
    def partition(self) -> Partition:
        return Partition(self.tenant, self.scope)
