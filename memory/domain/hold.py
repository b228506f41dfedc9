"""Legal holds: what may not be deleted until its hold is removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.shown import Shown

Over: TypeAlias = Literal["tenant", "scope", "user", "entry"]


@dataclass(frozen=True, slots=True, repr=False)
class LegalHold(Shown):
    """A hold by its name, such as that of a case, over one thing: what it is `over`,
    and `of` which (a scope, a user, an entry's id, the tenant).

    Nothing under it is deleted: not by a caller, a rule, a quota or its own expiry, and
    by no erasure. Nothing is overwritten of which no earlier version is kept: entries
    may be edited, since they keep theirs; messages, a session's system message, title
    and metadata, the title, result and metadata of a task, and the metadata of a run
    may not. A user's hold is over the scope `user:<id>` and over the sessions with that
    user, with what was said in them, their tasks and runs, and the entries of their
    scopes. That of a session's scope is over all of these of it too.
    """

    name: str
    over: Over
    of: str
    reason: str
    placed_by: str | None
    placed_at: datetime

    @property
    def target(self) -> str:
        return self.over if self.over == "tenant" else f"{self.over} {self.of}"
