"""Legal holds: they protect records from deletion until the hold is removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeAlias

from memory.domain.results import ResultMixin

Over: TypeAlias = Literal["tenant", "scope", "user", "entry"]


@dataclass(frozen=True, slots=True, repr=False)
class LegalHold(ResultMixin):
    """A hold over one target. Its name is, for example, that of a legal case.

    `over` is the kind of the target, and `of` names it: a scope, a user, the id of an
    entry, or the tenant.

    Nothing under the hold is deleted: not by a caller, a rule, a quota, its own expiry
    or an erasure. Data without kept versions is not overwritten either:

    - messages;
    - the system message, title and metadata of a session;
    - the title, result and metadata of a task;
    - the metadata of a run.

    Entries can be edited, because they keep their earlier versions.

    A hold over a user covers the scope `user:<id>` and the sessions with that user. It
    includes the messages, tasks and runs of these sessions, and the entries of their
    scopes. A hold over the scope of a session covers all of these of that session too.
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
