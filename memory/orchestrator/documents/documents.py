"""Documents: JSON or bytes under a key of a scope.

A document is one record in the home of its scope: the archive, or a store of the short
tier (`storage/document_homes.py`). Its id derives from its key, so one conditional
put creates, replaces or refuses. A put reads what is stored, unless it only creates.
The conflict of a store shows what is there by then, so the next put decides on that.

A value that is too large for one record is stored in chunks first (`chunks.py`).

A group of changes in one scope is one call of the store, which keeps all of them or
none (`Capabilities.groups`). A store that cannot do that is no home of documents.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from memory.domain import ids
from memory.domain.document import (
    INLINE_BYTES,
    CheckedValue,
    Document,
    DocumentInfo,
    DocumentOrder,
    DocumentPage,
    Form,
    value_from,
)
from memory.domain.errors import (
    Conflict,
    CorruptRecord,
    InvalidInput,
    LegalHoldActive,
    QuotaExceeded,
    StoreError,
    Unsupported,
    VersionConflict,
)
from memory.domain.filters import VALUE, Filter, names
from memory.domain.json_values import is_same_json
from memory.domain.scope import Scope, Subtree
from memory.domain.time import micros, moment
from memory.domain.versions import check_expected, version_conflict, version_text
from memory.orchestrator.documents.chunks import Chunks, Upload, drop_step
from memory.orchestrator.documents.relocation import DocumentRelocation
from memory.orchestrator.entries.admission import Admission, NewEntry
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import DOCUMENT_CHUNKS, DOCUMENTS
from memory.orchestrator.storage.document_homes import DocumentPlace
from memory.orchestrator.storage.entry_records import DELETED_BY, REQUEST, copy_json
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord, deletion_steps
from memory.orchestrator.storage.placement import Placement, rejection_error
from memory.orchestrator.storage.requests import CREATED_OVER, MADE_BY, RequestMark, deleted_since
from memory.orchestrator.storage.steps import step
from memory.orchestrator.storage.topology import part_of
from memory.orchestrator.storage.versions import version_at
from memory.policies.entry_filters import condition_of, satisfies
from memory.policies.entry_query import where_of
from memory.policies.visibility import expiry_after_read, is_expired, unexpired_filter
from memory.ports.concurrency import each_at_once
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.merging import merge_answers, with_sort_values, without_sort_values
from memory.ports.query import (
    Condition,
    Count,
    Eq,
    Everywhere,
    Ge,
    Head,
    IsNull,
    Le,
    Lt,
    Not,
    Or,
    Order,
    Page,
    Query,
    StartsWith,
    Tenant,
    all_of,
    decode_cursor,
    encode_cursor,
)
from memory.ports.record import (
    Corrupt,
    FieldValue,
    JsonValue,
    Key,
    Partition,
    PendingStep,
    Record,
    Stored,
    Tombstone,
)
from memory.ports.rows import json_of
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, AtVersion, Delete, Newer, Outcome, Put, Status

log = logging.getLogger(__name__)
T = TypeVar("T")

PAGE_BYTES = 8 * 2**20
"""A page with values ends once it holds this many bytes."""
NONCE = "nonce"
"""In the body of a document: the call that stored it."""
REMEMBERED = 16
"""For how many of its last requests a document has a mark."""
READS = 5
"""How often a large document is read again if a chunk is missing."""
_READ_AT_ONCE = 50
_ORDERS: Mapping[DocumentOrder, str] = {"key": "key", "updated": "updated_at"}
_DELETED_AT_ONCE = 200
_INFO = frozenset({"key", "form", "size", "created_at", "updated_at", "expires_at", "lifetime", "upload"})
_OF_CHUNKS = deletion_steps(KINDS.of(DOCUMENTS), None)


@dataclass(frozen=True, slots=True)
class PutRequest:
    """A validated put.

    `expected` is the stored version that the caller expects: 0 for an absent document,
    None for any. With `strict`, an existing document is a conflict. With `keeps`, it
    stays as it is.
    """

    scope: str
    key: str
    value: CheckedValue
    metadata: Mapping[str, JsonValue]
    expires_in: timedelta | None = None
    lifetime: timedelta | None = None
    """How long each read keeps the document."""
    expected: int | None = None
    strict: bool = False
    created_at: datetime | None = None
    """When an imported document was created; by default now, or as one it replaces."""
    expires_at: datetime | None = None
    """When an imported document expires."""
    keeps: bool = False

    @property
    def is_large(self) -> bool:
        """Whether the value is stored in chunks."""
        return self.value.size > INLINE_BYTES

    def is_stored_in(self, record: Record) -> bool:
        """Return whether the record has this value and metadata, and neither expires.

        Large values are not compared.
        """
        fields: Mapping[str, Any] = record.fields
        expiries = (self.expires_in, self.lifetime, self.expires_at, record.expires_at)
        if self.is_large or "upload" in fields or any(one is not None for one in expiries):
            return False
        if (fields["form"], fields["size"]) != (self.value.form, self.value.size):
            return False
        if not is_same_json(record.body.get("metadata", {}), self.metadata):
            return False
        if self.value.form == "bytes":
            return bool(fields["data"] == self.value.value)
        return is_same_json(record.body["value"], self.value.value)

    def stored_as(self, record: Record, version: int, updated_at: datetime) -> DocumentInfo:
        """Return the document that this put stored, even if it was replaced since."""
        expires_at = None if self.expires_in is None else updated_at + self.expires_in
        return replace(
            info_of(record),
            version=version_text(version),
            form=self.value.form,
            size=self.value.size,
            updated_at=updated_at,
            expires_at=record.expires_at if record.version == version else expires_at,
            lifetime=self.lifetime,
        )


@dataclass(frozen=True, slots=True)
class DeleteRequest:
    """A validated deletion; `expected` as in `PutRequest`."""

    scope: str
    key: str
    expected: int | None = None


ChangeRequest = PutRequest | DeleteRequest
Restored: TypeAlias = Literal["written", "there", "deleted", "refused"]


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys from `start` until before `stop` that begin with `prefix`.

    `only` is the only key, if it is given.
    """

    prefix: str = ""
    start: str | None = None
    stop: str | None = None
    only: str | None = None

    @property
    def condition(self) -> Condition | None:
        return all_of(
            StartsWith("key", self.prefix) if self.prefix else None,
            None if self.start is None else Ge("key", self.start),
            None if self.stop is None else Lt("key", self.stop),
            None if self.only is None else Eq("key", self.only),
        )


class Documents:
    """Puts, reads, lists and deletes documents."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        erasure: Erasure,
        key_locks: KeyLocks,
        quotas: Admission,
    ) -> None:
        self._placement = placement
        self._outbox = outbox
        self._holds = erasure.holds
        self._key_locks = key_locks
        self._quotas = quotas
        self._chunks = Chunks(placement, outbox)
        self.relocation = DocumentRelocation(placement, outbox, self._chunks)

    def _home(self, tenant: str, scope: str) -> Store:
        return self._placement.topology.documents.of(Partition(tenant, scope))

    # -- reading -----------------------------------------------------------------------

    async def get(self, tenant: str, scope: str, keys: Sequence[str]) -> list[Document | None]:
        """Return the documents under these keys, in their order; None for no document.

        Raises:
            CorruptRecord: A document cannot be read.
        """
        home = self._home(tenant, scope)
        found = await self._read_rows(home, [key_of(tenant, scope, key) for key in keys])
        rows = await self._refresh(home, [self._visible(home, stored) for stored in found])
        return [None if row is None else await self._document(row) for row in rows]

    async def _read_rows(self, home: Store, keys: Sequence[Key]) -> list[Stored | None]:
        with step("document.read"):
            return await home.get(DOCUMENTS, keys)

    def _visible(self, home: Store, stored: Stored | None) -> Record | None:
        """Return the record if it is live and has not expired.

        Raises:
            CorruptRecord: It cannot be read.
        """
        if isinstance(stored, Corrupt):
            raise CorruptRecord(home.name, stored.key.id, stored.problem)
        if not isinstance(stored, Record):
            return None
        return None if is_expired(stored, self._placement.now()) else stored

    async def _refresh(self, home: Store, rows: Sequence[Record | None]) -> Sequence[Record | None]:
        """Move the expiry of documents that reads keep; return them as they are then.

        See `expiry_after_read`. If that fails, the read still succeeds.
        """
        now, moved = self._placement.now(), dict[Key, Record]()
        for row in rows:
            if row is None:
                continue
            if (ends := expiry_after_read(row.expires_at, _lifetime(row.fields), now)) is not None:
                moved[row.key] = replace(row, expires_at=ends)
        if not moved:
            return rows
        writes = [
            Annotate(DOCUMENTS, key, at=row.version, expires_at=row.expires_at) for key, row in moved.items()
        ]
        try:
            outcomes = await self._placement.write("document.refresh", home, *writes)
        except StoreError as error:
            log.info("the expiry of documents was not moved: %s", error)
            return rows
        for write, outcome in zip(writes, outcomes, strict=True):
            if not outcome.applied:
                del moved[write.key]
        return [row if row is None else moved.get(row.key, row) for row in rows]

    async def _document(self, record: Record) -> Document | None:
        """Return the document of a record, with its chunks if it is large.

        A document that is replaced meanwhile is read again. The result is None if it is
        deleted meanwhile.

        Raises:
            CorruptRecord: It cannot be read.
        """
        if record.fields.get("upload") is None:
            return _document_of(record)
        home = self._home(record.key.tenant, record.scope)
        patience, form = RetryDeadline(self._placement, record.key.id), str(record.fields["form"])
        for _ in range(READS):
            data = await self._chunks.data(record)
            if data is not None:
                value = await _apart(len(data), partial(value_from, data, form))
                return Document(**_head_fields(record), value=value, metadata=_metadata(record))
            (now,) = await self._read_rows(home, [record.key])
            row = self._visible(home, now)
            if row is None or row.fields.get("upload") is None:
                return None if row is None else _document_of(row)
            record, form = row, str(row.fields["form"])
            await patience.wait()
        raise CorruptRecord(home.name, record.key.id, f"a chunk of its {form} is missing")

    async def page(
        self,
        tenant: str,
        scope: Scope | Subtree,
        keys: KeyRange,
        *,
        limit: int,
        reverse: bool = False,
        order: DocumentOrder = "key",
        cursor: str | None = None,
        values: bool = False,
        passing: Filter | None = None,
        strict: bool = False,
    ) -> DocumentPage:
        """Return a page of documents in the order of their keys or of their last puts.

        With `values`, a page may end early, so that it holds few large values. With
        `passing`, it has only documents that pass this filter, and may end early too.

        Raises:
            CorruptRecord: With `strict`, a document cannot be read.
        """
        by = Order(_ORDERS[order], descending=reverse)
        if passing is not None:
            return await self._passing_page(
                tenant, scope, keys, passing, limit=limit, by=by, cursor=cursor, values=values, strict=strict
            )
        if not values:
            page = await self._page(self._query(tenant, scope, keys, limit, by, cursor), strict)
            return DocumentPage([info_of_head(head) for head in page.heads], page.cursor, len(page.corrupt))
        found: list[DocumentInfo] = []
        damaged = size = 0
        while True:
            portion = min(limit - len(found), _READ_AT_ONCE)
            query = self._query(tenant, scope, keys, portion, by, cursor)
            page = await self._page(replace(query, select=None), strict)
            damaged += len(page.corrupt)
            for row in page.records:
                try:
                    document = await self._document(row) if isinstance(row, Record) else None
                except CorruptRecord:
                    if strict:
                        raise
                    damaged += 1
                    continue
                if document is not None:
                    found.append(document)
                    size += document.size
            cursor = page.cursor
            if cursor is None or len(found) >= limit or size >= PAGE_BYTES:
                return DocumentPage(found, cursor, damaged)

    async def _passing_page(
        self,
        tenant: str,
        scope: Scope | Subtree,
        keys: KeyRange,
        passing: Filter,
        *,
        limit: int,
        by: Order,
        cursor: str | None,
        values: bool,
        strict: bool,
    ) -> DocumentPage:
        """Return a page of documents that pass a filter. See `page`."""
        found: list[DocumentInfo] = []
        damaged = checked = size = 0
        most = self._placement.settings.filter_rows
        while True:
            query = self._query(tenant, scope, keys, _READ_AT_ONCE, by, cursor, passing)
            page = await self._page(replace(query, select=None), strict)
            damaged, cursor = damaged + len(page.corrupt), page.cursor
            for row in page.records:
                if not isinstance(row, Record):
                    continue
                checked += 1
                try:
                    one = await self._passing_row(row, passing)
                    shown = None if one is None else await self._document(one) if values else info_of(one)
                except CorruptRecord:
                    if strict:
                        raise
                    damaged, shown = damaged + 1, None
                if shown is None:
                    continue
                found.append(shown)
                size += shown.size if values else 0
                if len(found) == limit or size >= PAGE_BYTES:
                    if row is not page.records[-1]:
                        place = str(row.fields["key"]) if by.field == "key" else row.updated_at
                        cursor = encode_cursor((place,), row.key.id)
                    return DocumentPage(found, cursor, damaged)
            if cursor is None:
                return DocumentPage(found, None, damaged)
            if checked >= most:
                note = f"the filter was checked on {checked:,} documents; the cursor continues after them"
                return DocumentPage(found, cursor, damaged, (note,))

    async def _passing_row(self, row: Record, passing: Filter) -> Record | None:
        """Return the record if its document passes the filter.

        A large value is read. If the document is replaced meanwhile, the newer one is
        checked.

        Raises:
            CorruptRecord: A large value cannot be read.
        """
        if not names(passing, VALUE):
            return row if satisfies(passing)(row) else None
        home, patience = self._home(row.key.tenant, row.scope), RetryDeadline(self._placement, row.key.id)
        for _ in range(READS):
            if row.fields.get("upload") is None or row.fields["form"] == "bytes":
                return row if satisfies(passing)(row) else None
            data = await self._chunks.data(row)
            if data is not None:
                whole = {**row.body, VALUE: await _apart(len(data), partial(value_from, data, "json"))}
                return row if satisfies(passing)(replace(row, body=whole)) else None
            (now,) = await self._read_rows(home, [row.key])
            newer = self._visible(home, now)
            if newer is None:
                return None
            row = newer
            await patience.wait()
        raise CorruptRecord(home.name, row.key.id, "a chunk of its value is missing")

    async def _page(self, query: Query, strict: bool = False) -> Page:
        """Return a page, merged if several stores have documents there.

        Raises:
            CorruptRecord: With `strict`, a document cannot be read.
        """
        places = self._placement.topology.documents.places(query.where)
        if len(places) == 1:
            return await self._page_of(places[0], query, strict)
        asked = with_sort_values(query)
        pages = await each_at_once(self._page_of(place, asked, strict) for place in places)
        return without_sort_values(merge_answers(pages, query), query)

    async def _page_of(self, place: DocumentPlace, query: Query, strict: bool) -> Page:
        home, where, only = place
        asked = replace(query, where=where, filter=all_of(query.filter, only))
        page = await self._placement.page("document.list", home, asked)
        if strict and page.corrupt:
            raise CorruptRecord(home.name, page.corrupt[0].id, "its row is damaged")
        return page

    @property
    def _is_live(self) -> Condition:
        return unexpired_filter(self._placement.now())

    def _query(
        self,
        tenant: str,
        scope: Scope | Subtree,
        keys: KeyRange,
        limit: int,
        by: Order,
        cursor: str | None,
        passing: Filter | None = None,
    ) -> Query:
        place = () if cursor is None else decode_cursor(cursor, (by,)).values
        if not all(isinstance(one, str if by.field == "key" else datetime) for one in place):
            raise InvalidInput(
                "cursor", "belongs to another listing. Pass the cursor that the previous page returned"
            )
        return Query(
            DOCUMENTS,
            where_of(tenant, (scope,)),
            all_of(keys.condition, self._is_live, _condition(passing)),
            (by,),
            limit,
            cursor=cursor,
            select=_INFO,
        )

    async def everything(self, tenant: str, scope: Scope | Subtree | None) -> AsyncIterator[Document]:
        """Yield all documents of a scope or of the tenant, with values, in no order.

        Those that cannot be read are left out.
        """
        asked = where_of(tenant, () if scope is None else (scope,))
        for home, where, only in self._placement.topology.documents.places(asked):
            query = Query(DOCUMENTS, where, all_of(self._is_live, only), limit=_READ_AT_ONCE)
            async for page in self._placement.pages("document.list", home, query):
                for row in page.records:
                    try:
                        document = await self._document(row) if isinstance(row, Record) else None
                    except CorruptRecord as error:
                        log.warning("a document is left out: %s", error)
                        continue
                    if document is not None:
                        yield document

    async def count(self, tenant: str) -> Count:
        """Count the documents of a tenant, expired ones too, and their bytes."""
        records = size = 0
        with step("document.count"):
            for home in self._placement.topology.documents.stores:
                documents = await home.count(Query(DOCUMENTS, Tenant(tenant)))
                chunks = await home.count(Query(DOCUMENT_CHUNKS, Tenant(tenant)))
                records, size = records + documents.records, size + documents.bytes + chunks.bytes
        return Count(records, size)

    # -- one document ------------------------------------------------------------------

    async def put(self, tenant: str, asked: PutRequest, request: RequestMark | None = None) -> DocumentInfo:
        """Put a document in place of the one under its key, if there is one.

        A repeat of the request stores nothing, and returns what the first call stored.

        Raises:
            Conflict: A document exists, and the request is strict. Or a repeat finds
                that the document was deleted.
            VersionConflict: It has another version than expected.
        """
        home, key = self._check_home(tenant, asked.scope), key_of(tenant, asked.scope, asked.key)
        patience = RetryDeadline(self._placement, key.id)
        async with self._key_locks.take(DOCUMENTS, key, patience):
            there: Stored | None = None
            if request is not None or asked.is_large or not (asked.strict or asked.expected == 0):
                (there,) = await self._read_rows(home, [key])
                if (done := _find_made(asked, there, request)) is not None:
                    return done
                if (kept := self._find_unchanged(asked, there)) is not None:
                    return info_of(kept)
            async with self._quotas.admit(tenant, _growth([(asked, key, there)])):
                return await self._put_over(tenant, asked, key, there, patience, request)

    async def _put_over(
        self,
        tenant: str,
        asked: PutRequest,
        key: Key,
        there: Stored | None,
        patience: RetryDeadline,
        request: RequestMark | None,
    ) -> DocumentInfo:
        """Put the document; try again if another writer was faster."""
        home, known = self._home(tenant, asked.scope), getattr(there, "version", None)
        (upload,), nonce = await self._store_chunks(tenant, [asked]), self._placement.nonce()
        while True:
            try:
                if (done := _find_made(asked, there, request)) is not None:
                    await self._take_back(tenant, [asked], [upload])
                    return done
                if (kept := self._find_unchanged(asked, there)) is not None:
                    await self._take_back(tenant, [asked], [upload])
                    return info_of(kept)
                write = self._put(asked, key, there, known, upload, nonce, request)
            except (Conflict, CorruptRecord):
                await self._take_back(tenant, [asked], [upload])
                raise
            outcome = await self._placement.write_one("document.put", home, write)
            stored = write.record if outcome.applied else _own(outcome.stored, nonce)
            if stored is not None:
                await self._after([stored], [upload])
                return info_of(stored)
            there, known = await self._meet(home, outcome), outcome.version
            await patience.wait()
            if outcome.status is Status.REJECTED:  # the scope was erased after the chunks were stored
                await self._take_back(tenant, [asked], [upload])
                (upload,) = await self._store_chunks(tenant, [asked])
                (there,) = await self._read_rows(home, [key])
                known = getattr(there, "version", None)

    async def edit(
        self, tenant: str, scope: str, key: str, make: Callable[[Document | None], Awaitable[PutRequest]]
    ) -> DocumentInfo:
        """Put what is made of the stored document, and again if others put meanwhile.

        Raises:
            TooMuchContention: Others were faster until the deadline.
        """
        patience = RetryDeadline(self._placement, key_of(tenant, scope, key).id)
        while True:
            (found,) = await self.get(tenant, scope, [key])
            expected = 0 if found is None else check_expected(found.version)
            asked = replace(await make(found), expected=expected)
            try:
                return await self.put(tenant, asked)
            except VersionConflict:
                await patience.wait()

    async def put_many(
        self, tenant: str, puts: Sequence[PutRequest], requests: Sequence[RequestMark | None]
    ) -> list[DocumentInfo | Conflict]:
        """Put documents with different keys, by one batch of reads and one of writes.

        Large values, and documents that others change meanwhile, are put alone.

        Returns:
            Each document, or the conflict that `put` raises for it.
        """
        by_home = self._by_home(tenant, puts)
        keys, nonce = [key_of(tenant, one.scope, one.key) for one in puts], self._placement.nonce()
        stored: dict[int, Stored | None] = {}
        for home, some in by_home.items():
            stored |= zip(some, await self._read_rows(home, [keys[n] for n in some]), strict=True)
        done: dict[int, DocumentInfo | Conflict] = {}
        writes: dict[int, Put] = {}
        growth: dict[str, list[tuple[ChangeRequest, Key, Stored | None]]] = {}
        async for number, there in iterate_cooperatively(sorted(stored.items())):
            asked, key, mark = puts[number], keys[number], requests[number]
            try:
                if (made := _find_made(asked, there, mark)) is not None:
                    done[number] = made
                    continue
                if (kept := self._find_unchanged(asked, there)) is not None:
                    done[number] = info_of(kept)
                    continue
                known = getattr(there, "version", None)
                if not asked.is_large:
                    writes[number] = self._put(asked, key, there, known, None, nonce, mark)
                growth.setdefault(asked.scope, []).append((asked, key, there))
            except Conflict as refused:
                done[number] = refused
        more = [entry for some in growth.values() for entry in _growth(some)]  # large ones too: all or none
        records: list[Record] = []
        async with self._quotas.admit(tenant, more):
            for home, some in by_home.items():
                here = {number: writes[number] for number in some if number in writes}
                outcomes = await self._placement.write("document.put", home, *here.values()) if here else []
                for (number, write), outcome in zip(here.items(), outcomes, strict=True):
                    record = write.record if outcome.applied else _own(outcome.stored, nonce)
                    if record is not None:
                        records.append(record)
                        done[number] = info_of(record)
        await self._after(records, [None] * len(records))
        for number in range(len(puts)):
            if number not in done:
                await self._put_alone(tenant, number, puts[number], requests[number], done)
        return [done[number] for number in range(len(puts))]

    def _by_home(self, tenant: str, puts: Sequence[PutRequest]) -> dict[Store, list[int]]:
        """Return the positions of the puts by the home of their scope."""
        homes = {scope: self._check_home(tenant, scope) for scope in {one.scope for one in puts}}
        found: dict[Store, list[int]] = {}
        for number, one in enumerate(puts):
            found.setdefault(homes[one.scope], []).append(number)
        return found

    async def _put_alone(
        self,
        tenant: str,
        number: int,
        asked: PutRequest,
        request: RequestMark | None,
        done: dict[int, DocumentInfo | Conflict],
    ) -> None:
        """Make one of many puts, and add its outcome to those of the others.

        Raises:
            QuotaExceeded: Others filled the quota meanwhile.
        """
        try:
            done[number] = await self.put(tenant, asked, request)
        except Conflict as refused:
            done[number] = refused
        except QuotaExceeded as full:
            stored = {n: one for n, one in sorted(done.items()) if isinstance(one, DocumentInfo)}
            raise full.with_written(stored) from None

    async def restore(self, tenant: str, asked: PutRequest, *, revive: bool = False) -> Restored:
        """Put an exported document if nothing is stored under its key.

        Args:
            revive: Put it even if it was deleted here.

        Returns:
            "refused" if another document is stored under the key.
        """
        home = self._home(tenant, asked.scope)
        (there,) = await self._read_rows(home, [key_of(tenant, asked.scope, asked.key)])
        if isinstance(there, Tombstone) and not revive:
            return "deleted"
        live = self._visible(home, there)
        if live is None:
            try:
                await self.put(tenant, replace(asked, expected=0))
            except VersionConflict:
                return await self.restore(tenant, asked, revive=revive)
            return "written"
        found, value = await self._document(live), asked.value
        if found is None or found.form != value.form:
            return "refused"
        same = found.value == value.value if found.form == "bytes" else is_same_json(found.value, value.value)
        return "there" if same else "refused"

    async def delete(self, tenant: str, asked: DeleteRequest, request: RequestMark | None = None) -> bool:
        """Delete a document; false if there was none.

        A repeat of the request deletes nothing that was stored since.

        Raises:
            LegalHoldActive: It is under legal hold.
            VersionConflict: It has another version than expected.
        """
        home, key = self._home(tenant, asked.scope), key_of(tenant, asked.scope, asked.key)
        patience = RetryDeadline(self._placement, key.id)
        async with self._key_locks.take(DOCUMENTS, key, patience):
            (there,) = await self._read_rows(home, [key])
            known: int | None = getattr(there, "version", None)
            while True:
                if request is not None and _was_deleted_by(there, request):
                    return True
                write = self._delete(asked, key, there, known, request)
                if write is None:
                    return False
                if isinstance(there, Record):
                    await self._holds.refuse([there])
                else:
                    await self._holds.refuse_unreadable(tenant)
                outcome = await self._placement.write_one("document.delete", home, write)
                if outcome.applied:
                    await self._finish(home, [write])
                    return True
                there, known = await self._meet(home, outcome), outcome.version
                await patience.wait()

    async def delete_many(
        self,
        tenant: str,
        scope: Scope,
        keys: KeyRange,
        passing: Filter | None = None,
        request: RequestMark | None = None,
    ) -> int:
        """Delete the documents with these keys that exist now; return their number.

        With `passing`, a document is deleted only if it passes this filter then. A
        repeat of the request leaves what was stored after the request began.

        Raises:
            LegalHoldActive: The scope is under legal hold.
        """
        home, deleted, cursor = self._home(tenant, scope.text), 0, None
        until = None if request is None or not request.repeats else micros(request.begun_at)
        while True:
            size = _DELETED_AT_ONCE if passing is None else _READ_AT_ONCE
            query = self._query(tenant, scope, keys, size, Order("key"), cursor, passing)
            if until is not None:
                query = replace(query, filter=all_of(query.filter, Le("version", until)))
            page = await self._page(query if passing is None else replace(query, select=None))
            there: Sequence[Head | Record] = page.heads
            if passing is not None:
                read = list[Record | None]()
                for stored in page.records:
                    if isinstance(stored, Record):
                        with suppress(CorruptRecord):  # its value cannot pass
                            read.append(await self._passing_row(stored, passing))
                there = [one for one in read if one is not None]
            await self._holds.refuse_partition(Partition(tenant, scope.text), whole=False)
            writes = [self._deletion(row.key, row.version, drop_step(row)) for row in there]
            outcomes = await self._placement.write("document.delete", home, *writes) if writes else []
            done = [write for write, outcome in zip(writes, outcomes, strict=True) if outcome.applied]
            await self._finish(home, done)
            deleted += len(done)
            for row, outcome in zip(there, outcomes, strict=True):
                if not outcome.applied and until is None:  # it was changed meanwhile
                    asked = DeleteRequest(scope.text, str(row.fields["key"]))
                    deleted += await self._delete_passing(tenant, asked, passing)
            if (cursor := page.cursor) is None:
                return deleted

    async def _delete_passing(self, tenant: str, asked: DeleteRequest, passing: Filter | None) -> bool:
        """Delete a document if it passes the filter at the version that is deleted."""
        if passing is None:
            return await self.delete(tenant, asked)
        home, key = self._home(tenant, asked.scope), key_of(tenant, asked.scope, asked.key)
        patience = RetryDeadline(self._placement, key.id)
        while True:
            (stored,) = await self._read_rows(home, [key])
            row = self._visible(home, stored)
            one = None if row is None else await self._passing_row(row, passing)
            if one is None:
                return False
            try:
                return await self.delete(tenant, replace(asked, expected=one.version))
            except VersionConflict:
                await patience.wait()

    # -- several documents -------------------------------------------------------------

    async def apply(
        self, tenant: str, changes: Sequence[ChangeRequest], request: RequestMark | None = None
    ) -> list[DocumentInfo | None]:
        """Make all changes of one scope, or none.

        Each key may be named once. A repeat of the request changes nothing, and returns
        what the first call stored.

        Returns:
            For each put, the document; for a deletion, None.

        Raises:
            Conflict: A document exists, and its put is strict.
            LegalHoldActive: A document to delete is under legal hold.
            VersionConflict: A document has another version than expected.
        """
        if not changes:
            return []
        home = self._check_home(tenant, changes[0].scope)
        keys = [key_of(tenant, one.scope, one.key) for one in changes]
        stored = await self._read_rows(home, keys)
        if (done := _find_group(changes, stored, request)) is not None:
            return done
        for one, there in zip(changes, stored, strict=True):
            if isinstance(one, PutRequest):
                self._check_put(one, there)
        async with self._quotas.admit(tenant, _growth(list(zip(changes, keys, stored, strict=True)))):
            return await self._apply(tenant, changes, keys, stored, request)

    async def _apply(
        self,
        tenant: str,
        changes: Sequence[ChangeRequest],
        keys: Sequence[Key],
        stored: Sequence[Stored | None],
        request: RequestMark | None,
    ) -> list[DocumentInfo | None]:
        """Make the changes; read and try again if another writer was faster."""
        home = self._home(tenant, changes[0].scope)
        patience, nonce = RetryDeadline(self._placement, keys[0].id), self._placement.nonce()
        uploads = await self._store_chunks(tenant, changes)
        tried: list[list[Put | Delete | None]] = []
        while True:
            made = _made_before(tried, stored, nonce)
            if made is None:
                try:
                    if (done := _find_group(changes, stored, request)) is not None:
                        await self._take_back(tenant, changes, uploads)
                        return done
                    writes = await self._group(changes, keys, stored, uploads, nonce, request)
                except (Conflict, CorruptRecord, LegalHoldActive):
                    await self._take_back(tenant, changes, uploads)
                    raise
                tried.append(writes)
                sent = [write for write in writes if write is not None]
                outcomes = await self._together(home, sent) if sent else []
                made = writes if all(outcome.applied for outcome in outcomes) else None
            if made is not None:
                return await self._conclude(home, changes, stored, made, uploads)
            for outcome in outcomes:
                if outcome.status is not Status.SKIPPED:
                    await self._meet(home, outcome)
            await patience.wait()
            if any(outcome.status is Status.REJECTED for outcome in outcomes):  # as in `_put_over`
                await self._take_back(tenant, changes, uploads)
                uploads = await self._store_chunks(tenant, changes)
            stored = await self._read_rows(home, keys)

    async def _conclude(
        self,
        home: Store,
        changes: Sequence[ChangeRequest],
        stored: Sequence[Stored | None],
        writes: Sequence[Put | Delete | None],
        uploads: Sequence[Upload | None],
    ) -> list[DocumentInfo | None]:
        """Complete a group that was stored, and return its documents."""
        await self._finish(home, [write for write in writes if isinstance(write, Delete)])
        puts: list[Record] = []
        made: list[Upload | None] = []
        found: list[DocumentInfo | None] = []
        for one, there, write, upload in zip(changes, stored, writes, uploads, strict=True):
            if isinstance(write, Put):
                puts.append(write.record)
                made.append(upload)
                found.append(info_of(write.record))
            elif isinstance(one, PutRequest) and isinstance(there, Record):
                found.append(info_of(there))
            else:
                found.append(None)
        await self._after(puts, made)
        return found

    async def _group(
        self,
        changes: Sequence[ChangeRequest],
        keys: Sequence[Key],
        stored: Sequence[Stored | None],
        uploads: Sequence[Upload | None],
        nonce: str,
        request: RequestMark | None,
    ) -> list[Put | Delete | None]:
        """Return the write of each change over the stored items."""
        writes: list[Put | Delete | None] = []
        ends: list[Record] = []
        for one, key, there, upload in zip(changes, keys, stored, uploads, strict=True):
            known = getattr(there, "version", None)
            if isinstance(one, PutRequest):
                if one.keeps and self._find_unchanged(one, there) is not None:
                    writes.append(None)
                    continue
                writes.append(self._put(one, key, there, known, upload, nonce, request))
                continue
            writes.append(self._delete(one, key, there, known, request))
            ends += [there] if writes[-1] is not None and isinstance(there, Record) else []
        await self._holds.refuse(ends)
        return writes

    async def _together(self, home: Store, writes: Sequence[Put | Delete]) -> Sequence[Outcome]:
        return await self._placement.write("document.apply", home, *writes, together=True)

    async def incomplete(self, home: Store, most: int) -> list[Key]:
        """Return documents in this home that have lost a chunk, at most so many.

        They are of every tenant.
        """
        lost: list[Key] = []
        large = Not(IsNull("chunks"))
        query = Query(DOCUMENTS, Everywhere(), large, limit=self._placement.settings.page)
        async for page in self._placement.pages("document.list", home, query):
            for row in page.records:
                if isinstance(row, Record) and await self._chunks.is_lost(row):
                    lost.append(row.key)
                    if len(lost) == most:
                        return lost
        return lost

    # -- chunks and pending steps ------------------------------------------------------

    async def _store_chunks(self, tenant: str, changes: Sequence[ChangeRequest]) -> list[Upload | None]:
        uploads: list[Upload | None] = []
        for one in changes:
            if isinstance(one, PutRequest) and one.is_large:
                key = key_of(tenant, one.scope, one.key)
                data = await _apart(one.value.size, lambda value=one.value: value.data)  # type: ignore[misc]
                uploads.append(await self._chunks.store(key, one.scope, data))
            else:
                uploads.append(None)
        return uploads

    async def _take_back(
        self, tenant: str, changes: Sequence[ChangeRequest], uploads: Sequence[Upload | None]
    ) -> None:
        for one, upload in zip(changes, uploads, strict=True):
            if upload is not None:
                await self._chunks.take_back(key_of(tenant, one.scope, one.key), one.scope, upload)

    async def _after(self, records: Sequence[Record], uploads: Sequence[Upload | None]) -> None:
        """Confirm the chunks of stored documents, and delete those of earlier ones."""
        for record, upload in zip(records, uploads, strict=True):
            if upload is not None:
                await self._chunks.confirm(upload, record)
        owing = [
            OutboxRecord(DOCUMENTS, self._home(record.key.tenant, record.scope), record)
            for record in records
            if record.owed
        ]
        if owing:
            await self._outbox.finish_all(owing)

    async def _finish(self, home: Store, deletions: Sequence[Delete]) -> None:
        gone = [Tombstone(one.key, one.version, one.owed) for one in deletions if one.owed]
        if gone:
            await self._outbox.finish_all([OutboxRecord(DOCUMENTS, home, one) for one in gone])

    async def _meet(self, home: Store, outcome: Outcome) -> Stored | None:
        """Return what a write found in its way, once its pending steps are done."""
        if (error := rejection_error(home, outcome)) is not None:
            raise error
        stored = outcome.stored
        if isinstance(stored, Tombstone | Record) and stored.owed:
            await self._outbox.finish(OutboxRecord(DOCUMENTS, home, stored))
        return stored

    # -- deciding ----------------------------------------------------------------------

    def _check_home(self, tenant: str, scope: str) -> Store:
        """Return the home of the scope.

        Raises:
            Unsupported: It keeps no groups of changes.
        """
        home = self._home(tenant, scope)
        store = part_of(home, Partition(tenant, scope), DOCUMENTS)
        if not store.capabilities.groups:
            raise Unsupported("grouped", store=store.name)
        return home

    def _check_put(self, asked: PutRequest, stored: Stored | None) -> Record | None:
        """Return the live document that a put replaces.

        Raises:
            Conflict: The stored document is not what the request expects.
            CorruptRecord: It cannot be read, and the request depends on it.
        """
        if isinstance(stored, Corrupt) and asked.expected is None and not (asked.strict or asked.keeps):
            return None
        there = self._visible_to(asked, stored)
        _check(asked, there)
        return there

    def _visible_to(self, asked: ChangeRequest, stored: Stored | None) -> Record | None:
        return None if stored is None else self._visible(self._home(stored.key.tenant, asked.scope), stored)

    def _find_unchanged(self, asked: PutRequest, stored: Stored | None) -> Record | None:
        """Return the stored document if the put would change nothing.

        Raises as `_check_put` does.
        """
        there = self._check_put(asked, stored)
        return there if there is not None and (asked.keeps or asked.is_stored_in(there)) else None

    def _put(
        self,
        asked: PutRequest,
        key: Key,
        stored: Stored | None,
        known: int | None,
        upload: Upload | None,
        nonce: str,
        request: RequestMark | None,
    ) -> Put:
        """Return the write of a put over the stored item.

        `known` is the version under the key, also of an item that cannot be read.
        """
        there, now = self._check_put(asked, stored), self._placement.now()
        if upload is not None:
            self._chunks.check_age(upload, self._home(key.tenant, asked.scope))
        owed = drop_step(stored) if isinstance(stored, Record) else ()
        owed = _OF_CHUNKS if isinstance(stored, Corrupt) else owed
        version = version_at(now, known or 0) if upload is None else max(upload.version, (known or 0) + 1)
        record = Record(
            key=key,
            scope=asked.scope,
            version=version,
            created_at=(asked.created_at or now) if there is None else there.created_at,
            updated_at=now,
            expires_at=asked.expires_at if asked.expires_in is None else now + asked.expires_in,
            fields=_fields(asked, upload),
            body={**_body(asked, nonce), **_marks(stored, request, version, now)},
            generation=None if upload is None else upload.generation,
            tier=self._placement.topology.documents.tier(Partition(key.tenant, asked.scope)),
            owed=owed,
        )
        if isinstance(stored, Corrupt):
            return Put(DOCUMENTS, record, Newer())
        when = AtVersion(stored.version) if isinstance(stored, Record | Tombstone) else Absent()
        return Put(DOCUMENTS, record, when)

    def _delete(
        self,
        asked: DeleteRequest,
        key: Key,
        stored: Stored | None,
        known: int | None,
        request: RequestMark | None = None,
    ) -> Delete | None:
        """Return the write of a deletion, or None if there is nothing to delete."""
        note = {} if request is None else {REQUEST: request.text}
        if isinstance(stored, Corrupt) and asked.expected is None:
            return replace(self._deletion(key, known or 0, _OF_CHUNKS), when=Newer(), note=note)
        there = self._visible_to(asked, stored)
        _check(asked, there)
        if there is None:
            return None
        return replace(self._deletion(key, there.version, drop_step(there)), note=note)

    def _deletion(self, key: Key, version: int, owed: tuple[PendingStep, ...]) -> Delete:
        return Delete(
            DOCUMENTS,
            key,
            version=self._placement.next_version(version),
            when=AtVersion(version),
            owed=owed,
            discard_at=None if owed else self._placement.tombstone_until(),
        )


def _condition(passing: Filter | None) -> Condition | None:
    """Return a condition that every document which passes the filter meets.

    Large values are not in their records, and stores may not compare a text with NUL.
    """
    found = condition_of(passing, DOCUMENTS)
    if found is None or passing is None or not names(passing, VALUE):
        return found
    return Or((found, Not(IsNull("chunks")), Eq("has_nul", True)))


def _check(asked: ChangeRequest, there: Record | None) -> None:
    """Raise if the stored document is not what the request expects."""
    what = f"document {asked.key!r} of scope '{asked.scope}'"
    stored = None if there is None else there.version
    if asked.expected is not None and asked.expected != (stored or 0):
        raise version_conflict(what, asked.expected, stored)
    if isinstance(asked, PutRequest) and asked.strict and there is not None:
        raise Conflict(f"{what} exists already. Use if_exists='replace', or another key")


def _own(stored: Stored | None, nonce: str) -> Record | None:
    """Return the record if the call with this nonce stored it.

    That was an earlier attempt of the call, which seemed to have failed.
    """
    return stored if isinstance(stored, Record) and stored.body.get(NONCE) == nonce else None


def _made_before(
    tried: Sequence[list[Put | Delete | None]], stored: Sequence[Stored | None], nonce: str
) -> list[Put | Delete | None] | None:
    """Return the attempt of a group that was stored, though it seemed to fail."""
    versions = {own.key: own.version for one in stored if (own := _own(one, nonce)) is not None}
    for writes in tried:
        if any(isinstance(one, Put) and versions.get(one.key) == one.record.version for one in writes):
            return writes
    return None


def _marks(
    stored: Stored | None, request: RequestMark | None, version: int, now: datetime
) -> dict[str, JsonValue]:
    """Return what a document's body says of requests, and of a deletion before it."""
    said: dict[str, JsonValue] = {}
    made: list[JsonValue] = []
    if isinstance(stored, Record):
        said = {name: stored.body[name] for name in (CREATED_OVER, DELETED_BY) if name in stored.body}
        made = [*_made_by(stored)]
    elif isinstance(stored, Tombstone):
        said = {CREATED_OVER: stored.version}
        said |= {DELETED_BY: stored.note[REQUEST]} if REQUEST in stored.note else {}
    if request is not None:
        made = [*made, [request.text, version, micros(now)]]
    return said | ({MADE_BY: made[-REMEMBERED:]} if made else {})


def _made_by(record: Record) -> Sequence[Any]:
    """Return the last requests that put the document: mark, version, moment of each."""
    made: Any = record.body.get(MADE_BY, ())
    return list(made)


def _find_made(asked: PutRequest, stored: Stored | None, request: RequestMark | None) -> DocumentInfo | None:
    """Return the document that an earlier attempt of the request put.

    Raises:
        Conflict: It may have been deleted since.
    """
    if request is None:
        return None
    gone: Any = 0
    if isinstance(stored, Record):
        for mark, version, at in _made_by(stored):
            if mark == request.text:
                return asked.stored_as(stored, version, moment(at))
        gone = stored.body.get(CREATED_OVER, 0)
    elif isinstance(stored, Tombstone):
        gone = stored.version
    if request.may_have_made(gone):
        raise deleted_since(f"document {asked.key!r} of scope '{asked.scope}'")
    return None


def _was_deleted_by(stored: Stored | None, request: RequestMark) -> bool:
    """Return whether an earlier attempt of the request has deleted the document."""
    if isinstance(stored, Record):
        return stored.body.get(DELETED_BY) == request.text
    return isinstance(stored, Tombstone) and stored.note.get(REQUEST) == request.text


def _find_group(
    changes: Sequence[ChangeRequest], stored: Sequence[Stored | None], request: RequestMark | None
) -> list[DocumentInfo | None] | None:
    """Return the documents that an earlier attempt of a group put; None if none did.

    Raises:
        Conflict: One of them may have been deleted since.
    """
    if request is None:
        return None
    found: list[DocumentInfo | None] = []
    is_made = False
    for one, there in zip(changes, stored, strict=True):
        if isinstance(one, PutRequest):
            found.append(_find_made(one, there, request))
            is_made = is_made or found[-1] is not None
        else:
            found.append(None)
            is_made = is_made or _was_deleted_by(there, request)
    if not is_made:
        return None
    for number, (one, there) in enumerate(zip(changes, stored, strict=True)):
        if isinstance(one, PutRequest) and one.keeps and isinstance(there, Record):
            found[number] = found[number] or info_of(there)
    return found


def _body(asked: PutRequest, nonce: str) -> dict[str, JsonValue]:
    body: dict[str, JsonValue] = {NONCE: nonce}
    if asked.metadata:
        body["metadata"] = dict(asked.metadata)
    if asked.value.form == "json" and not asked.is_large:
        body["value"] = asked.value.value
    return body


def _growth(changes: Sequence[tuple[ChangeRequest, Key, Stored | None]]) -> list[NewEntry]:
    """Return by how much changes of one scope enlarge it as a whole, for quotas."""
    more = 0
    for asked, _, stored in changes:
        if isinstance(asked, PutRequest):
            more += asked.value.size + len(asked.key.encode()) + _json_size(asked.metadata)
        if isinstance(stored, Record):
            fields: Mapping[str, Any] = stored.fields
            more -= fields["size"] + len(fields["key"].encode()) + _json_size(stored.body.get("metadata", {}))
    return [NewEntry(changes[0][1], changes[0][0].scope, more, derived=False)] if more > 0 else []


def _json_size(metadata: Mapping[str, JsonValue]) -> int:
    return len(json_of(metadata).encode()) if metadata else 0


def _fields(asked: PutRequest, upload: Upload | None) -> dict[str, FieldValue]:
    fields: dict[str, FieldValue] = {"key": asked.key, "form": asked.value.form, "size": asked.value.size}
    if asked.lifetime is not None:
        fields["lifetime"] = asked.lifetime // timedelta(microseconds=1)
    if asked.value.has_nul:
        fields["has_nul"] = True
    if upload is not None:
        return {**fields, "upload": upload.name, "chunks": len(upload.chunks)}
    if asked.value.form == "bytes":
        fields["data"] = asked.value.value
    return fields


def key_of(tenant: str, scope: str, key: str) -> Key:
    """Return the key of a document's record."""
    return Key(tenant, ids.derived_id(tenant, scope, "document", key))


def info_of(record: Record) -> DocumentInfo:
    return DocumentInfo(**_head_fields(record))


def info_of_head(head: Head) -> DocumentInfo:
    fields: Mapping[str, Any] = head.fields
    return DocumentInfo(
        head.scope,
        fields["key"],
        version_text(head.version),
        _form(fields["form"]),
        fields["size"],
        fields["created_at"],
        fields["updated_at"],
        fields.get("expires_at"),
        _lifetime(fields),
    )


def _document_of(record: Record) -> Document:
    """Return the document of a record that holds its value."""
    fields: Mapping[str, Any] = record.fields
    value = fields["data"] if fields["form"] == "bytes" else copy_json(record.body["value"])
    return Document(**_head_fields(record), value=value, metadata=_metadata(record))


def _metadata(record: Record) -> dict[str, Any]:
    copied: dict[str, Any] = copy_json(record.body.get("metadata", {}))
    return copied


async def _apart(size: int, work: Callable[[], T]) -> T:
    """Run the work, in a thread if its data are so large that it would take long."""
    return await asyncio.to_thread(work) if size > 2**20 else work()


def _head_fields(record: Record) -> dict[str, Any]:
    fields: Mapping[str, Any] = record.fields
    return {
        "scope": record.scope,
        "key": fields["key"],
        "version": version_text(record.version),
        "form": _form(fields["form"]),
        "size": fields["size"],
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "expires_at": record.expires_at,
        "lifetime": _lifetime(fields),
    }


def _lifetime(fields: Mapping[str, Any]) -> timedelta | None:
    micros = fields.get("lifetime")
    return None if micros is None else timedelta(microseconds=micros)


def _form(form: object) -> Form:
    return "bytes" if form == "bytes" else "json"
