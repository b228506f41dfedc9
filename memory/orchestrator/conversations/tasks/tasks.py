"""The tasks of sessions.

An id belongs to the task of one session only. The first save of a task claims its id
for the tenant. The claim is put before the task, and again before each put of a task
that does not exist. If no task has followed within `mark_life`, the claim is void. A
claim is deleted with its task, or with its session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.domain import ids
from memory.domain.errors import Conflict, InvalidInput
from memory.domain.task import Task, TaskPage
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.log.log import Log
from memory.orchestrator.conversations.tasks.named_records import NamedRecords, loses
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import CLAIMS, TASKS
from memory.orchestrator.storage.entry_records import copy_json
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_corrupt, raise_if_rejected
from memory.orchestrator.storage.requests import DeletedSince, RequestMark, is_later
from memory.orchestrator.storage.session_keys import session_of
from memory.orchestrator.storage.split import CONVERSATION
from memory.orchestrator.storage.versions import version_at
from memory.ports.collections import Collection
from memory.ports.query import And, Condition, Eq, Lt, Query, within
from memory.ports.record import FieldValue, JsonValue, Key, Partition, PendingStep, Record
from memory.ports.writes import Absent, AtVersion, Delete, Put

UNCLAIM = "unclaim"
"""The pending step of a deleted task: delete the version of its claim that was read."""
CLAIMS_SCOPE = "tasks"
KEEPS = ("title", "result", "metadata")
"""Values of a task that must not be overwritten under legal hold.

No earlier version of them is kept.
"""


@dataclass(frozen=True, slots=True)
class TaskDraft:
    """A task as a caller passes it, after its checks."""

    id: str
    title: str = ""
    status: str = "pending"
    parent_id: str | None = None
    result: str | None = None
    metadata: Mapping[str, Any] | None = None


class Tasks:
    """The repository of tasks."""

    def __init__(self, placement: Placement, *, outbox: Outbox, erasure: Erasure) -> None:
        self._placement = placement
        self._holds = erasure.holds
        self._beside = NamedRecords(placement, outbox, erasure.holds, TASKS)
        outbox.register(UNCLAIM, self._unclaim_noted)
        erasure.also.append(self._unclaim_all)

    @property
    def collection(self) -> Collection:
        return TASKS

    async def save(
        self,
        log: Log,
        draft: TaskDraft,
        user: str | None = None,
        request: RequestMark | None = None,
        *,
        claims: bool = True,
    ) -> Task:
        """Save a task of the session, by this `user`; its `created_at` stays.

        A repeat of the request returns the task as it is now. Without `claims`, other
        sessions may have a task of this id too.

        Raises:
            Conflict: another session has a task of this id. Or a repeat finds that the
                task was deleted.
            LegalHoldActive: a title, a result or metadata under legal hold would be
                overwritten.
        """

        async def claim_id(key: Key) -> None:
            await self.claim(log.life, draft.id, key)

        fields: dict[str, FieldValue] = {
            "task_id": draft.id,
            "status": draft.status,
            "parent_id": draft.parent_id,
        }
        body: dict[str, JsonValue] = {
            "title": draft.title,
            "result": draft.result,
            "metadata": dict(draft.metadata or {}),
        }
        return _task_of(
            await self._beside.save(
                log,
                draft.id,
                fields,
                body,
                claim_id if claims else None,
                user=user,
                keeps=KEEPS,
                request=request,
            )
        )

    async def refuse_circle(self, log: Log, draft: TaskDraft) -> None:
        """Raise `InvalidInput` if the new parent of a task is a part of the task."""
        above, seen = draft.parent_id, set[str]()
        while above is not None and above not in seen:
            seen.add(above)
            key = self._beside.key(log.life.tenant, log.life.scope, above)
            stored = await self._beside.fetch_stored(key)
            fields: Mapping[str, Any] = stored.fields if isinstance(stored, Record) else {}
            above = fields.get("parent_id")
            if above == draft.id:
                raise part_of_itself(draft.id)

    async def get(self, log: Log, task_id: str) -> Task | None:
        record = await self._beside.get(log, task_id)
        return None if record is None else _task_of(record)

    async def delete(self, log: Log, task_id: str, request: RequestMark | None = None) -> bool:
        """Delete a task and free its id; false if there was none.

        Its parts are not deleted.
        """
        claim_key = _claim_key(log.life.tenant, task_id)

        async def unclaim(key: Key) -> tuple[PendingStep, ...]:
            archive = self._placement.topology.archive
            claim = await self._placement.read_one("claims.read", archive, CLAIMS, claim_key)
            if not isinstance(claim, Record) or claim.fields.get("task_key") != key.id:
                return ()
            return (PendingStep(UNCLAIM, UNCLAIM, {"claim": claim_key.id, "version": claim.version}),)

        return await self._beside.delete(log, task_id, unclaim, request)

    async def list(
        self,
        log: Log,
        asked: Sequence[Condition],
        *,
        descending: bool = False,
        limit: int,
        cursor: str | None = None,
    ) -> TaskPage:
        """Return a page of the session's tasks, ordered by creation."""
        page = await self._beside.page(
            within(log.life.partition), asked, descending=descending, limit=limit, cursor=cursor
        )
        return TaskPage(
            [_task_of(record) for record in page.records if isinstance(record, Record)], page.cursor
        )

    async def replace_all(
        self,
        log: Log,
        drafts: Sequence[TaskDraft],
        user: str | None = None,
        request: RequestMark | None = None,
        *,
        claims: bool = True,
    ) -> Sequence[Task]:
        """Replace all tasks of the session.

        A task that another process saves meanwhile stays. A repeat of the request
        completes the first call: tasks that were created or deleted since the request
        began stay as they are. Raises `LegalHoldActive`,
        before any change, if the session is under legal hold and a task would be
        deleted or overwritten.
        """
        kept, before, loses, cursor = {draft.id: draft for draft in drafts}, set[str](), False, None
        while True:
            page = await self.list(log, (), limit=self._placement.settings.page, cursor=cursor)
            before |= {task.id for task in page.tasks if not is_later(task.created_at, request)} - kept.keys()
            loses = loses or any(_loses(task, kept[task.id]) for task in page.tasks if task.id in kept)
            if (cursor := page.cursor) is None:
                break
        if before or loses:
            await self._holds.refuse_partition(log.life.partition)
        saved: list[Task] = []
        for draft in drafts:
            try:
                saved.append(await self.save(log, draft, user, request, claims=claims))
            except DeletedSince:
                continue
        for task_id in sorted(before):
            await self.delete(log, task_id, request)
        return sorted(saved, key=lambda task: task.created_at)

    # -- claims ------------------------------------------------------------------------

    async def claim(self, life: SessionIncarnation, task_id: str, task_key: Key) -> None:
        """Claim a task's id for the session, before the task is put under its key.

        Raises:
            Conflict: another session has the id.
        """
        store, patience, stands = self._placement.topology.archive, RetryDeadline(self._placement, task_id), 0
        key, now = _claim_key(life.tenant, task_id), self._placement.now()
        said: dict[str, FieldValue] = {
            "session_id": life.session_id,
            "session_generation": life.generation,
            "task_key": task_key.id,
        }
        while True:
            claim = Record(key, CLAIMS_SCOPE, version_at(now, stands), now, now, fields=said, tier="mid")
            put = Put(CLAIMS, claim, AtVersion(stands) if stands else Absent())
            outcome = await self._placement.write_one("claims.put", store, put)
            if outcome.applied:
                return
            raise_if_rejected(store, outcome)
            there = outcome.stored
            raise_if_corrupt(store, there)
            if (
                isinstance(there, Record)
                and there.fields["session_id"] != life.session_id
                and not await self._is_nobodys(there)
            ):
                raise Conflict(
                    f"Task ID collision detected: {task_id} is a task of session"
                    f" {there.fields['session_id']!s}. Use another id"
                )
            if stands:
                await patience.wait()
            stands = outcome.version or 0

    async def _is_nobodys(self, claim: Record) -> bool:
        """Return whether a claim is void: its task has not arrived in time."""
        task = await self._beside.fetch_stored(Key(claim.key.tenant, str(claim.fields["task_key"])))
        return (
            not isinstance(task, Record)
            and self._placement.now() - claim.updated_at > self._placement.settings.mark_life
        )

    async def _unclaim_noted(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        await self._unclaim(Key(pending.owner.key.tenant, owed.data["claim"]), owed.data["version"])
        return True

    async def _unclaim(self, key: Key, version: int) -> None:
        """Delete a claim of this version. Another version belongs to a newer task."""
        until = self._placement.tombstone_until()
        gone = Delete(
            CLAIMS,
            key,
            version=self._placement.next_version(version),
            when=AtVersion(version),
            discard_at=until,
        )
        outcome = await self._placement.write_one("claims.delete", self._placement.topology.archive, gone)
        raise_if_rejected(self._placement.topology.archive, outcome)

    async def _unclaim_all(self, partition: Partition, generation: int) -> None:
        """Delete the claims of a deleted session's lives before this generation."""
        kind, _, session_id = partition.scope.partition(":")
        if kind != CONVERSATION:
            return
        asked = And((Eq("session_id", session_id), Lt("session_generation", generation)))
        query = Query(
            CLAIMS,
            within(Partition(partition.tenant, CLAIMS_SCOPE)),
            asked,
            limit=self._placement.settings.page,
            select=frozenset(),
        )
        async for page in self._placement.pages("claims.find", self._placement.topology.archive, query):
            for head in page.heads:
                await self._unclaim(head.key, head.version)


def part_of_itself(task_id: str) -> InvalidInput:
    """Return the error for a task that would be its own parent, directly or not."""
    return InvalidInput(
        "parent_id",
        f"would make the task {task_id!r} a part of itself. Name a task that is no part of it, or None",
    )


def _loses(task: Task, draft: TaskDraft) -> bool:
    """Return whether a value of the task would be overwritten."""
    return any(loses(getattr(task, name), getattr(draft, name)) for name in KEEPS)


def _claim_key(tenant: str, task_id: str) -> Key:
    return Key(tenant, ids.keyed_id(tenant, CLAIMS_SCOPE, task_id))


def _task_of(record: Record) -> Task:
    fields: Mapping[str, Any] = record.fields
    body: Mapping[str, Any] = record.body
    return Task(
        id=fields["task_id"],
        session_id=session_of(record.scope),
        title=body.get("title", ""),
        status=fields["status"],
        parent_id=fields.get("parent_id"),
        result=body.get("result"),
        metadata=copy_json(body.get("metadata") or {}),
        created_at=record.created_at,
        updated_at=record.updated_at,
    )
