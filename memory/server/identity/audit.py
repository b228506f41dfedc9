"""The audit log: who did what, when, and with which outcome. Never any content."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from memory.domain import validation
from memory.domain.error_table import rule_of
from memory.domain.errors import InvalidInput, MemoryTiersError, StoreError
from memory.domain.ids import is_id
from memory.domain.scope import Scope
from memory.domain.time import EPOCH, micros, moment
from memory.facade.memory import Memory
from memory.facade.resources.documents import Documents
from memory.server.identity.key_text import is_key_id
from memory.server.identity.reserved import RESERVED_TENANT

log = logging.getLogger(__name__)

AUDIT: Final = Scope.path("audit")
WRITTEN_EVERY: Final = 0.5
"""Seconds for which records are collected before they are stored together."""
_TOGETHER: Final = 200
"""The most records of one document."""
_MOST_WAITING: Final = 20_000
_PAGE: Final = 100
_NAMES: Final = frozenset(
    {"agent", "key", "keys", "name", "run", "scope", "session", "session_id", "source", "to", "user"}
)
"""Targets that people name. They are hashed even if they look like ids."""
_SHORT_ID: Final = re.compile(r"#?[0-9]{1,18}")
_APART: Final = timedelta(seconds=2)
"""The longest time between the first record of a document and any other one."""


@dataclass(frozen=True)
class AuditRecord:
    """One request, as the audit log keeps it."""

    at: datetime
    tenant: str
    """The tenant of the caller; empty if the request had no valid key."""
    key_id: str
    action: str
    """The method and the path with names in place of ids, or a command."""
    outcome: int
    """The HTTP status."""
    request_id: str
    targets: tuple[str, ...] = ()
    """Ids of records; everything else is hashed, such as `scope#5f0c…`."""
    count: int = 1
    """How many requests it stands for; more than one only without a valid key."""

    def to_dict(self) -> dict[str, Any]:
        """Return the record for display."""
        return {**asdict(self), "at": self.at.isoformat(), "targets": list(self.targets)}


@dataclass(frozen=True)
class AuditPage:
    """Records, newest first, and the cursor of the next page."""

    records: list[AuditRecord]
    cursor: str | None = None


class AuditLog:
    """Stores records of requests as documents of the reserved tenant, by time.

    Records that cannot wait are stored by `store`. Others are collected by `note` and
    stored within a second. Documents expire by themselves after `keep`.

    Args:
        memory: An open memory that is no view.
        keep: How long records are kept.
    """

    def __init__(self, memory: Memory, *, keep: timedelta) -> None:
        self._memory = memory
        self._keep = keep
        self._waiting: list[AuditRecord] = []
        self._lost = 0
        self.unstored = 0
        """How many requests this process could not record."""
        self._writer: asyncio.Task[None] | None = None

    @property
    def _documents(self) -> Documents:
        return self._memory.for_tenant(RESERVED_TENANT).documents

    def note(self, record: AuditRecord) -> None:
        """Store a record within a second."""
        if not record.key_id and self._waiting and _is_alike(self._waiting[-1], record):
            last = self._waiting.pop()
            record = replace(record, count=last.count + record.count)
        if len(self._waiting) >= _MOST_WAITING:
            self._lost += 1  # the store has been away for long; the log below tells of it
            self.unstored += record.count
            return
        self._waiting.append(record)
        if self._writer is None or self._writer.done():
            self._writer = asyncio.ensure_future(self._write_later())

    @property
    def waiting(self) -> int:
        """How many records wait for the store."""
        return len(self._waiting)

    async def store(self, record: AuditRecord) -> None:
        """Store a record now.

        Raises:
            StoreUnavailable: The store did not answer.
        """
        await self._put([record])

    async def flush(self) -> None:
        """Store what waits.

        A record that the store refuses for good is named in the log of the process, and
        counts as `unstored`. The others are stored.

        Raises:
            StoreError: The store did not answer. The waiting records are kept.
            TooMuchContention: The records are kept here too.
            NotOpen: The memory was closed. The records are kept.
        """
        waiting, self._waiting = _put_together(self._waiting), []
        while waiting:
            try:
                await self._put(waiting[0])
            except (MemoryTiersError, ValueError) as error:
                if isinstance(error, StoreError) or rule_of(error).retryable:
                    self._put_back(waiting)
                    raise
                if (half := len(waiting[0]) // 2) > 0:
                    waiting[:1] = [waiting[0][:half], waiting[0][half:]]
                    continue
                self._skip(waiting[0][0], error)
            except BaseException:
                self._put_back(waiting)
                raise
            del waiting[0]
        if self._lost:
            log.error("%d records of the audit log were lost while the store was away", self._lost)
            self._lost = 0

    def _put_back(self, waiting: Sequence[Sequence[AuditRecord]]) -> None:
        self._waiting = [one for together in waiting for one in together] + self._waiting

    def _skip(self, record: AuditRecord, error: Exception) -> None:
        """Name a record that can never be stored, and go on without it."""
        self.unstored += record.count
        log.error(
            "the audit log cannot store the record of request %s (%s, status %d, key %s): %s",
            record.request_id,
            _as_ascii(record.action),
            record.outcome,
            record.key_id or "-",
            _as_ascii(str(error)),
        )

    async def close(self) -> None:
        """Store what waits, and stop."""
        if self._writer is not None:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
        await self.flush()

    async def list(
        self,
        *,
        tenant: str | None = None,
        key_id: str | None = None,
        since: datetime | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> AuditPage:
        """Return records, newest first.

        Records of one second that several processes stored may be in another order.

        Args:
            tenant: Only those of this tenant; of all by default.
            key_id: Only those of this key.
            since: Only those from this moment on.
            limit: At most this many: 1 to 1,000.
            cursor: The cursor that the previous page returned.
        """
        scope = AUDIT.subtree() if tenant is None else _scope_of(tenant)
        limit = validation.whole_limit(limit, default=_PAGE)
        start = None
        if since is not None and since > EPOCH + _APART:
            start = _document_key(since - _APART, "")
        stop, at, skipped = _place_of(cursor)
        found = list[AuditRecord]()
        async for document in self._documents.iterate(
            scope, start=start, stop=stop, reverse=True, values=True
        ):
            records = [_record_of(one) for one in reversed(document.value["records"])]  # type: ignore[attr-defined]
            for number, one in enumerate(records):
                if (document.key == at and number < skipped) or not _passes(one, key_id, since):
                    continue
                if len(found) == limit:
                    return AuditPage(found, f"{document.key}/{number}")
                found.append(one)
        return AuditPage(found)

    async def _write_later(self) -> None:
        while self._waiting:
            await asyncio.sleep(WRITTEN_EVERY)
            try:
                await self.flush()
            except MemoryTiersError as error:
                log.warning("records of the audit log wait for their store: %s", error)

    async def _put(self, records: Sequence[AuditRecord]) -> None:
        """Store records of one tenant and about the same time as one document."""
        key = _document_key(records[0].at, secrets.token_hex(4))
        value = {"records": [_row_of(one) for one in records]}
        await self._documents.put(_scope_of(records[0].tenant), key, value, expires_in=self._keep)


def _put_together(records: Sequence[AuditRecord]) -> list[list[AuditRecord]]:
    """Divide records by documents: one tenant each, and at most `_APART` in time."""
    latest, found = dict[str, list[AuditRecord]](), list[list[AuditRecord]]()
    for one in records:
        together = latest.get(one.tenant)
        if together is None or len(together) >= _TOGETHER or abs(one.at - together[0].at) >= _APART:
            together = latest[one.tenant] = []
            found.append(together)
        together.append(one)
    return found


def target(name: str, value: str, tenant: str) -> str:
    """Return how the log names a target: an id as it is, anything else hashed."""
    if name not in _NAMES and (is_id(value) or _SHORT_ID.fullmatch(value)):
        return value
    if name == "tenant" or (name == "key_id" and is_key_id(value)):
        return f"{name.removesuffix('_id')}:{value[:255]}"
    digest = hashlib.sha256(f"{tenant}\0{value}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{name.removesuffix('_id')}#{digest[:24]}"


def _scope_of(tenant: str) -> Scope:
    return Scope.path("audit", hashlib.sha256(tenant.encode()).hexdigest()[:32])


def _document_key(at: datetime, more: str) -> str:
    return f"{micros(at):020d}{more and '-'}{more}"


def check_cursor(cursor: str | None) -> None:
    """Raise `InvalidInput` unless this is a cursor of the audit log, or None."""
    _place_of(cursor)


def _place_of(cursor: str | None) -> tuple[str | None, str | None, int]:
    """Return the key behind the last document, its own, and how many were read."""
    if cursor is None:
        return None, None, 0
    key, slash, number = cursor.rpartition("/")
    if not slash or not number.isdecimal() or len(number) > 6:
        raise InvalidInput("cursor", "is not a cursor of the audit log. Begin again without one")
    return key + "\x01", key, int(number)


def _passes(record: AuditRecord, key_id: str | None, since: datetime | None) -> bool:
    return (key_id is None or record.key_id == key_id) and (since is None or record.at >= since)


def _is_alike(one: AuditRecord, other: AuditRecord) -> bool:
    return (one.tenant, one.key_id, one.action, one.outcome) == (
        other.tenant,
        other.key_id,
        other.action,
        other.outcome,
    )


def _row_of(record: AuditRecord) -> dict[str, Any]:
    return {**asdict(record), "at": micros(record.at), "targets": list(record.targets)}


def _record_of(value: Mapping[str, Any]) -> AuditRecord:
    return AuditRecord(**{**value, "at": moment(value["at"]), "targets": tuple(value["targets"])})


def _as_ascii(text: str) -> str:
    """Return the text with escapes, since no log can show a lone surrogate."""
    return text.encode("ascii", "backslashreplace").decode("ascii")
