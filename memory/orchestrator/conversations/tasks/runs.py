"""The runs of sessions: work that one session gave to another session.

The messages of that work are in the other session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain.task import Run, RunPage
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.tasks.named_records import NamedRecords
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import RUNS
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.outbox import Outbox
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.session_keys import session_of
from memory.ports.collections import Collection
from memory.ports.query import Condition, Where
from memory.ports.record import FieldValue, JsonValue, Record


@dataclass(frozen=True, slots=True)
class RunDraft:
    """A run as a caller passes it, after its checks."""

    id: str
    child_id: str
    status: str = "queued"
    mode: str = "foreground"
    message_count: int = 0
    metadata: Mapping[str, Any] | None = None


class Runs:
    """The repository of runs."""

    def __init__(self, placement: Placement, *, outbox: Outbox, erasure: Erasure) -> None:
        self._beside = NamedRecords(placement, outbox, erasure.holds, RUNS)

    @property
    def collection(self) -> Collection:
        return RUNS

    async def save(
        self, log: Log, draft: RunDraft, user: str | None = None, request: RequestMark | None = None
    ) -> Run:
        """Save a run of the session, by this `user`.

        Its `created_at` stays, and the last save wins. A repeat of the request returns
        the run as it is now.
        """
        fields, body = _fields_and_body(draft)
        saved = await self._beside.save(
            log, draft.id, fields, body, user=user, keeps=("metadata",), request=request
        )
        return _run_of(saved)

    async def change(
        self, log: Log, run_id: str, draft: Callable[[Run | None], RunDraft | None]
    ) -> Run | None:
        """Save a run computed from the stored one, without a concurrent save.

        None if `draft` returns None. The run stays as it is then.
        """

        def change_fields(
            record: Record | None,
        ) -> tuple[Mapping[str, FieldValue], Mapping[str, JsonValue]] | None:
            changed = draft(None if record is None else _run_of(record))
            return None if changed is None else _fields_and_body(changed)

        record = await self._beside.change(log, run_id, change_fields)
        return None if record is None else _run_of(record)

    async def get(self, log: Log, run_id: str) -> Run | None:
        record = await self._beside.get(log, run_id)
        return None if record is None else _run_of(record)

    async def delete(self, log: Log, run_id: str, request: RequestMark | None = None) -> bool:
        return await self._beside.delete(log, run_id, request=request)

    async def list(
        self,
        where: Where,
        asked: Sequence[Condition],
        *,
        descending: bool = False,
        limit: int,
        cursor: str | None = None,
    ) -> RunPage:
        """Return a page of the runs of one session, or of all, ordered by creation."""
        page = await self._beside.page(where, asked, descending=descending, limit=limit, cursor=cursor)
        return RunPage(
            [_run_of(record) for record in page.records if isinstance(record, Record)], page.cursor
        )


def _fields_and_body(draft: RunDraft) -> tuple[Mapping[str, FieldValue], Mapping[str, JsonValue]]:
    fields: dict[str, FieldValue] = {
        "run_id": draft.id,
        "child_id": draft.child_id,
        "status": draft.status,
        "mode": draft.mode,
        "message_count": draft.message_count,
    }
    return fields, {"metadata": dict(draft.metadata or {})}


def _run_of(record: Record) -> Run:
    fields: Mapping[str, Any] = record.fields
    body: Mapping[str, Any] = record.body
    return Run(
        id=fields["run_id"],
        session_id=session_of(record.scope),
        child_id=fields["child_id"],
        status=fields["status"],
        mode=fields["mode"],
        message_count=fields["message_count"],
        metadata=copy_json(body.get("metadata") or {}),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
