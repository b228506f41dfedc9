"""Reports of imports."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memory.domain.results import ResultMixin


@dataclass(repr=False)
class ImportReport(ResultMixin):
    """The result of an import, in numbers of lines.

    - `messages`: entries and messages that were read. `imported` of them were written
      now; `already_there` and `deleted_earlier` were imported before.
    - `versions`, `relations`, `sessions`, `events` of their logs, `artifacts`,
      `documents` and `other_records`: written now.
    - `versions_left_out`: kept versions whose entries got new ids.
    - `skipped_lines`: bad lines that were left out.
    - `refused_lines`: lines whose id is taken or belongs elsewhere.
    - `unlinked_lines`: entries whose artifact was not imported, so they point to none.
    - `ahead`: lines with moments ahead of this machine's clock, up to `ahead_until`.
      They keep their moments.
    - `problems`: the reasons, for at most 1,000 lines.
    """

    file: str
    messages: int = 0
    imported: int = 0
    already_there: int = 0
    deleted_earlier: int = 0
    versions: int = 0
    versions_left_out: int = 0
    relations: int = 0
    sessions: int = 0
    events: int = 0
    artifacts: int = 0
    documents: int = 0
    other_records: int = 0
    skipped_lines: list[int] = field(default_factory=list)
    refused_lines: list[int] = field(default_factory=list)
    unlinked_lines: list[int] = field(default_factory=list)
    ahead: int = 0
    ahead_until: datetime | None = None
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, repr=False)
class ChatImport(ResultMixin):
    """The result of importing a chat file into a session.

    `messages` is the number of messages read. `new` were appended, and `already_there`
    were stored before. `left_out` were erased or edited in the session, or their
    session was deleted; `revive` writes them.
    """

    session_id: str
    messages: int
    new: int
    left_out: int = 0
    already_there: int = 0


@dataclass(repr=False)
class GraphImportReport(ResultMixin):
    """The result of an import, in numbers.

    `entities`, `relations` and `observations` were stored now; the observations are
    those that existing entities got. `already_there` counts the lines that changed
    nothing. `skipped_lines` are bad lines that were left out. `problems` has their
    reasons, for at most 1,000 lines.
    """

    file: str
    entities: int = 0
    relations: int = 0
    observations: int = 0
    already_there: int = 0
    skipped_lines: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
