"""Request ids: a call that is repeated under its id changes nothing twice.

Each request has a record in the archive. It is put before the call changes anything,
and holds no content: only a digest of the request, its status, and then the ids and
versions of the result. All that the call stores carries a mark of the request, or an id
that derives from it. So a repeat finds it, even if the call was cut off before it noted
its result.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from memory.domain import ids
from memory.domain.errors import Conflict, RequestIdReused, StoreError
from memory.domain.time import micros, moment
from memory.orchestrator.storage.collections import REQUESTS
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.versions import CLOCK_SKEW, version_at
from memory.policies.visibility import is_expired
from memory.ports.query import Has, Query, within
from memory.ports.record import Corrupt, JsonValue, Key, Partition, Record, Stored, Tombstone
from memory.ports.writes import Absent, AtVersion, Delete, Newer, Put, When

log = logging.getLogger(__name__)
T = TypeVar("T")

REQUESTS_SCOPE = "requests"
BEGUN, DONE = "begun", "done"
MADE_BY, MOST_MARKS = "requests", 32
"""In the body of a session's, a task's or a run's record, and in the data of a message:
the marks of the last requests that created or changed it. These records keep no earlier
versions.
"""
CREATED_OVER = "created_over"
"""In the body of a session or document whose id a deleted one had: the version of the
deletion.
"""
ERASED = "erased"
"""In the note of a request's tombstone: what the request was about was erased."""
UNDONE = "undone"
"""In the note of a tombstone: the record was not confirmed, and the call that made it
failed. So the call can be repeated.
"""
KEPT = timedelta(hours=24)
"""How long a request id is known."""
MAX_RESULT_BYTES = 64 * 1024
"""A longer result is not noted. A repeat then finds what was stored by its marks."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call that changes something, with the caller's id for it."""

    operation: str
    request_id: str
    digest: str
    """The SHA-256 of all that the call asks for."""
    about: tuple[str, ...]
    """The digests of the partitions that it is about; see `partition_mark`."""
    caller: str = ""
    """The restricted view that makes the call; its request ids are its own."""

    @classmethod
    def of(
        cls, operation: str, request_id: str, asked: Mapping[str, Any], about: Iterable[str] = ()
    ) -> Request:
        """Return the request of these arguments, JSON or values with stable texts."""
        text = json.dumps(asked, sort_keys=True, ensure_ascii=False, default=str)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(operation, request_id, digest, tuple(sorted(set(about))))

    @property
    def mark(self) -> str:
        """The text of the request's mark; see `RequestMark`."""
        named = json.dumps([self.operation, self.request_id, self.digest, *self._of_caller])
        return hashlib.sha256(named.encode()).hexdigest()[:32]

    @property
    def record_name(self) -> tuple[str, ...]:
        """The texts from which the id of the request's record derives."""
        return (self.operation, self.request_id, *self._of_caller)

    @property
    def _of_caller(self) -> tuple[str, ...]:
        return (self.caller,) if self.caller else ()


@dataclass(frozen=True, slots=True)
class RequestMark:
    """Recognises what an earlier attempt of a request has stored."""

    text: str
    name: str
    """The request id, for messages."""
    since: int
    """No version before this one carries the mark."""
    repeats: bool
    """Whether the request had begun before."""

    @property
    def begun_at(self) -> datetime:
        """When the request began. All attempts of it have the same moment."""
        return moment(self.since) + CLOCK_SKEW

    def may_have_made(self, gone_at: int) -> bool:
        """Return whether an earlier attempt may have made a thing that is deleted.

        `gone_at` is the version of its deletion.
        """
        return self.repeats and gone_at > micros(self.begun_at)

    def part(self, number: int) -> RequestMark:
        """Return the mark of one of several things that the request stores."""
        return replace(self, text=f"{self.text}:{number}")


@dataclass(frozen=True, slots=True)
class BegunRequest:
    """A request with its stored record."""

    record: Record
    mark: RequestMark
    result: Any = None
    """The noted result of an earlier attempt; None if there is none."""


class DeletedSince(Conflict):
    """The result of the first attempt may be deleted, and a repeat would restore it."""


def deleted_since(what: str) -> DeletedSince:
    """Return the conflict of a repeat that would store a deleted thing again."""
    return DeletedSince(
        f"{what} was deleted after this request began. Use a new request_id to store it again"
    )


class Requests:
    """The records of requests."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement

    async def begin(self, tenant: str, request: Request) -> BegunRequest:
        """Note that a request begins, or find what is known about it.

        Raises:
            Conflict: Another request was made under the id.
        """
        archive, stands = self._placement.topology.archive, 0
        key = Key(tenant, ids.derived_id(tenant, REQUESTS_SCOPE, *request.record_name))
        patience = RetryDeadline(self._placement, key.id)
        when: When = Absent()
        while True:
            now = self._placement.now()
            record = Record(
                key,
                REQUESTS_SCOPE,
                version_at(now, stands),
                now,
                now,
                expires_at=now + KEPT,
                fields={"status": BEGUN, "about": request.about},
                body={"digest": request.digest},
                tier="mid",
            )
            outcome = await self._placement.write_one("request.begin", archive, Put(REQUESTS, record, when))
            if outcome.applied:
                record = replace(record, generation=outcome.generation)
                return BegunRequest(record, _mark(request, record, repeats=False))
            raise_if_rejected(archive, outcome)
            there = outcome.stored
            if isinstance(there, Record) and not is_expired(there, now):
                if there.body.get("digest") != request.digest:
                    raise RequestIdReused(request.request_id)
                return BegunRequest(there, _mark(request, there, repeats=True), there.body.get("result"))
            if isinstance(there, Tombstone) and ERASED in there.note and moment(there.version) > now - KEPT:
                raise deleted_since(f"the result of request_id {request.request_id!r}")
            when = (
                Newer()
                if isinstance(there, Corrupt)  # it is lost, and no call fails for that
                else Absent()
                if there is None
                else AtVersion(there.version)
            )
            stands = outcome.version or 0
            await patience.wait()

    async def once(
        self,
        tenant: str,
        request: Request | None,
        work: Callable[[RequestMark | None], Awaitable[T]],
        note: Callable[[T], Mapping[str, Any]],
        read: Callable[[Any], Awaitable[T]],
        check: Callable[[RequestMark], Awaitable[object]] | None = None,
    ) -> T:
        """Do a call; a repeat of it returns the first result.

        Args:
            work: Does the call. It must find what an earlier attempt has stored.
            note: Returns the ids and versions of the result, as JSON.
            read: Returns the result of a request that is done, from its note.
            check: Called before `read`. It raises if the target of the call is gone.

        Raises:
            Conflict: Another request was made under the id.
        """
        if request is None:
            return await work(None)
        begun = await self.begin(tenant, request)
        if begun.result is not None:
            if check is not None:
                await check(begun.mark)
            return await read(begun.result)
        done = await work(begun.mark)
        await self.finish(begun, note(done))
        return done

    async def once_marked(
        self,
        tenant: str,
        request: Request | None,
        work: Callable[[RequestMark | None], Awaitable[T]],
        unchanged: T,
    ) -> T:
        """Do a call that leaves its mark wherever it changes anything.

        A repeat does the work again, which then finds the mark. After a call that
        changed nothing, a repeat does nothing.

        Args:
            work: Does the call. With the mark of a repeat, it first looks for what an
                earlier attempt has stored.
            unchanged: The result of a call that changed nothing.

        Raises:
            Conflict: Another request was made under the id.
        """
        if request is None:
            return await work(None)
        begun = await self.begin(tenant, request)
        if begun.result is not None and not begun.result["changed"]:
            return unchanged
        done = await work(begun.mark)
        if begun.result is None:
            await self.finish(begun, {"changed": done != unchanged})
        return done

    async def finish(self, begun: BegunRequest, result: Mapping[str, Any]) -> None:
        """Note the result of a request. The call has its answer even if this fails."""
        text = json.dumps(result)
        if len(text) > MAX_RESULT_BYTES:
            return
        archive, before = self._placement.topology.archive, begun.record
        record = replace(
            before,
            version=self._placement.next_version(before.version),
            updated_at=self._placement.now(),
            fields={**before.fields, "status": DONE},
            body={**before.body, "result": json.loads(text)},
        )
        try:
            put = Put(REQUESTS, record, AtVersion(before.version))
            outcome = await self._placement.write_one("request.end", archive, put)
            raise_if_rejected(archive, outcome)
        except StoreError as error:
            log.warning("the result of request %s was not noted: %s", before.key.id, error)

    async def forget(self, partition: Partition, generation: int) -> None:
        """Delete the records about an erased partition.

        Their tombstones make a repeat fail, so that it does not store again what was
        erased.
        """
        archive = self._placement.topology.archive
        query = Query(
            REQUESTS,
            within(Partition(partition.tenant, REQUESTS_SCOPE)),
            Has("about", partition_mark(partition.tenant, partition.scope)),
            limit=self._placement.settings.page,
            select=frozenset(),
        )
        async for page in self._placement.pages("request.find", archive, query):
            gone = [
                Delete(
                    REQUESTS,
                    head.key,
                    version=self._placement.next_version(head.version),
                    when=AtVersion(head.version),
                    note={ERASED: True},
                    discard_at=max(self._placement.tombstone_until(), self._placement.now() + KEPT),
                )
                for head in page.heads
            ]
            if gone:
                await self._placement.write("request.forget", archive, *gone)


def marks_of(record: Record) -> list[str]:
    """Return the marks of the last requests that created or changed a record."""
    marks: Any = record.body.get(MADE_BY, ())
    return list(marks)


def was_made_by(record: Record, request: RequestMark) -> bool:
    """Return whether the request has created or changed a record that keeps marks."""
    return request.text in marks_of(record)


def marks_with(record: Record, request: RequestMark) -> list[str]:
    """Return the latest marks of a record, and that of the request."""
    return [*marks_of(record), request.text][-MOST_MARKS:]


def with_marks(record: Record, there: Stored | None, request: RequestMark | None) -> Record:
    """Return the record with the marks of the one that it replaces, and a new one."""
    marks = marks_of(there) if isinstance(there, Record) else []
    marks = marks if request is None else [*marks, request.text][-MOST_MARKS:]
    return replace(record, body={**record.body, MADE_BY: list[JsonValue](marks)}) if marks else record


def is_later(created_at: datetime, request: RequestMark | None) -> bool:
    """Return whether a thing was created after the request that is repeated began."""
    return request is not None and request.repeats and created_at > request.begun_at


def with_made_by(record: Record, request: RequestMark) -> Record:
    """Return the record with the mark of a request that creates or changes it."""
    return replace(record, body={**record.body, MADE_BY: list(marks_with(record, request))})


def partition_mark(tenant: str, scope: str) -> str:
    """Return the text by which the records of requests name a partition.

    It is the digest that the partition's ids contain.
    """
    return f"{ids.partition_digest(tenant, scope):08x}"


def partition_mark_of(record_id: str) -> str:
    """Return the text by which a record's partition is named."""
    return f"{ids.digest_of(record_id):08x}"


def _mark(request: Request, record: Record, *, repeats: bool) -> RequestMark:
    return RequestMark(request.mark, request.request_id, micros(record.created_at - CLOCK_SKEW), repeats)
