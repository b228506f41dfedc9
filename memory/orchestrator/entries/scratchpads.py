"""Scratchpads: plain text to which agents append.

Each agent of a tenant has one, and the agents share one more.

A scratchpad is a log. An append is one row, put at the place after the last one if that
is free. The row has the total size at that point. So every writer, in any process,
knows the text of the others, and none exceeds the cap. Clearing is a row too: it
removes the rows that it saw, and deletes them as a pending step. If the outcome of a
write is unknown, the same row is put again at the same place.

A text that is too long for a row is stored as parts, which are put before it. A writer
that learns that its row was not stored drops them. Each part also has a pending step
that looks for its row: a sweep carries it out if the writer died before, or could not
know.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from memory.domain import ids
from memory.domain.errors import (
    Conflict,
    LegalHoldActive,
    ScratchpadFull,
    StoreError,
    StoreUnavailable,
    TooMuchContention,
)
from memory.domain.provenance import WRITTEN_BY
from memory.domain.scratchpad import Scratchpad
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import SCRATCHPADS
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.key_locks import KeyLocks, RetryDeadline
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.split import SCRATCHPAD
from memory.orchestrator.storage.versions import version_at
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Eq,
    Gt,
    Head,
    IsNull,
    Le,
    Order,
    Query,
    Tenant,
    within,
)
from memory.ports.record import FieldValue, Key, Partition, PendingStep, Record, Tombstone
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Newer, Outcome, Put, Status

log = logging.getLogger(__name__)

CAP = 4 * 2**20
"""The maximum size of a scratchpad in bytes of UTF-8, with headers."""
PART_BYTES = 2**20
"""Bytes of a text in one record. Every store takes as many."""
CLEAR, PART = "scratchpad.clear", "scratchpad.part"
"""The step by which a clearing deletes its rows, and the step that deletes a part whose
row is missing.
"""
TICK = timedelta(microseconds=1)

_TOLD = frozenset({"place", "cleared", "size", "created_at"})
READS = 3
"""How often a read starts again because the scratchpad is cleared meanwhile."""


@dataclass(frozen=True, slots=True)
class _ScratchpadTail:
    """The last row of a scratchpad. All values are empty if there is none."""

    place: int = 0
    cleared: int = 0
    size: int = 0
    version: int = 0
    created_at: datetime | None = None
    generation: int | None = None


Says = Callable[[_ScratchpadTail], Awaitable[dict[str, FieldValue]]]
"""Returns the fields of a row after this end."""


class _ClearedByAnother(Exception):
    """Raised if another call has cleared a scratchpad first."""


class _Repeated(Exception):
    """Raised if a call has put its row before."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.size = size


class Scratchpads:
    """Reads, appends to and clears scratchpads."""

    def __init__(
        self,
        placement: Placement,
        *,
        outbox: Outbox,
        key_locks: KeyLocks,
        erasure: Erasure,
        generations: Generations,
    ) -> None:
        self._placement = placement
        self._generations = generations
        self._holds = erasure.holds
        self._outbox = outbox
        self._key_locks = key_locks
        outbox.register(CLEAR, self._drop_cleared)
        outbox.register_for_records(PART, self._look_for_row)
        erasure.also.append(self._begin_anew)

    async def append(
        self,
        tenant: str,
        agent: str | None,
        text: str,
        request: RequestMark | None = None,
        writer: str | None = None,
    ) -> int:
        """Append a text under a header with the current time.

        `writer` is the caller of a server that appends it; its row notes it.

        A repeat of a request appends nothing, and returns the first size.

        Returns:
            The size of the scratchpad in bytes.

        Raises:
            ScratchpadFull: There is no room for the text.
        """
        partition = Partition(tenant, scope_of(agent))
        at = self._placement.now() if request is None else request.begun_at
        data = f"{header(at)}{text}\n".encode()

        async def append_fields(end: _ScratchpadTail) -> dict[str, FieldValue]:
            if request is not None:
                await self._refuse_repeat(partition, request.text)
            if end.size + len(data) > CAP:
                raise ScratchpadFull(agent, CAP, end.size, len(data))
            return self._says(end, data)

        nonce = None if request is None else request.text
        try:
            return _number(await self._append(partition, data, append_fields, nonce, writer), "size")
        except _Repeated as repeated:
            return repeated.size

    async def _refuse_repeat(self, partition: Partition, nonce: str) -> None:
        """Raise `_Repeated` if the row of this nonce was put before.

        The end of the scratchpad was read before. So the row of a concurrent call is
        found here, or takes the next place.
        """
        put = And((Eq("nonce", nonce), Gt("place", 0)))
        query = Query(SCRATCHPADS, within(partition), put, limit=1, select=_TOLD)
        page = await self._placement.page("scratchpad.find", self._placement.topology.archive, query)
        if page.heads:
            raise _Repeated(_number(page.heads[0], "size"))

    async def restore(self, tenant: str, agent: str | None, content: str, writer: str | None = None) -> bool:
        """Fill a scratchpad that was never written with exported content.

        Returns:
            False if something was appended to it already.
        """
        partition, data = Partition(tenant, scope_of(agent)), content.encode()

        async def restore_fields(end: _ScratchpadTail) -> dict[str, FieldValue]:
            if end.place:
                raise Conflict("the scratchpad is in use")
            return self._says(end, data)

        try:
            await self._append(partition, data, restore_fields, writer=writer)
        except Conflict:
            return False
        return True

    async def agents(self, tenant: str) -> AsyncIterator[str | None]:
        """Yield the agents that have scratchpads; None for the shared one."""
        archive = self._placement.topology.archive
        async for partition, _ in self._placement.partitions(
            "scratchpad.list", archive, Tenant(tenant), f"{SCRATCHPAD}:"
        ):
            yield partition.scope.partition(":")[2] or None

    async def clear(self, tenant: str, agent: str | None, request: RequestMark | None = None) -> bool:
        """Clear a scratchpad. Texts that are appended meanwhile stay.

        So do texts that were appended after the request began, if it is repeated.

        Returns:
            False if it is empty, or another call has cleared it.

        Raises:
            LegalHoldActive: The tenant is under legal hold.
        """
        partition = Partition(tenant, scope_of(agent))
        await self._holds.refuse_partition(partition, whole=False)
        seen = await self._end(partition)
        last = seen.place
        if request is not None and request.repeats:
            try:
                await self._refuse_repeat(partition, request.text)
            except _Repeated:
                return True
            last = (await self._end(partition, request.begun_at)).place
        if seen.size == 0 or last <= seen.cleared:
            return False

        nonce = self._placement.nonce() if request is None else request.text

        async def clear_fields(end: _ScratchpadTail) -> dict[str, FieldValue]:
            upto = max(last, end.cleared)
            if upto == end.cleared:
                await self._refuse_repeat(partition, nonce)
                raise _ClearedByAnother
            return {"cleared": upto, "bytes": 0, "size": await self._size_behind(partition, upto)}

        try:
            row = await self._put(partition, nonce, clear_fields)
        except _Repeated:
            return True
        except _ClearedByAnother:
            return False
        await self._outbox.finish(OutboxRecord(SCRATCHPADS, self._placement.topology.archive, row))
        return True

    async def read(self, tenant: str, agent: str | None) -> Scratchpad:
        """Return the current content."""
        partition = Partition(tenant, scope_of(agent))
        for _ in range(READS):
            end = await self._end(partition)
            rows, corrupt = await self._rows(partition, end)
            missing = end.place - end.cleared - len(rows)
            if corrupt or not missing:
                break
        data = [one for row in rows for one in await self._data(row)]
        content = b"".join(one for one in data if one is not None)
        writers = dict.fromkeys(str(row.body[WRITTEN_BY]) for row in rows if WRITTEN_BY in row.body)
        return Scratchpad(
            agent,
            end.place > 0,
            content.decode(),
            len(content),
            end.created_at,
            missing + data.count(None),
            tuple(writers),
        )

    @staticmethod
    def _says(end: _ScratchpadTail, data: bytes) -> dict[str, FieldValue]:
        """Return the fields of a text's row after this end."""
        said: dict[str, FieldValue] = {
            "cleared": end.cleared,
            "bytes": len(data),
            "size": end.size + len(data),
        }
        return (
            {**said, "data": data}
            if len(data) <= PART_BYTES
            else {**said, "parts": -(-len(data) // PART_BYTES)}
        )

    async def _append(
        self,
        partition: Partition,
        data: bytes,
        of: Says,
        nonce: str | None = None,
        writer: str | None = None,
    ) -> Record:
        nonce, parts = nonce or self._placement.nonce(), list[Record]()
        if len(data) > PART_BYTES:
            await of(await self._end(partition))  # refuses a text without room before anything is put
            parts = await self._lay(partition, nonce, data)
        try:
            row = await self._put(partition, nonce, of, writer)
        except (
            ScratchpadFull,
            Conflict,
            TooMuchContention,
        ):  # raised only if no row was put, or none that was put is stored or can come
            await self._take_back(nonce, parts)
            raise
        await self._stand(parts, row)
        return row

    # -- rows --------------------------------------------------------------------------

    async def _put(self, partition: Partition, nonce: str, of: Says, writer: str | None = None) -> Record:
        """Put a row after the last one.

        `of` is called again for its fields if another writer was faster.
        """
        archive = self._placement.topology.archive
        patience = RetryDeadline(self._placement, partition.scope)
        async with self._key_locks.take(SCRATCHPADS, Key(partition.tenant, partition.scope), patience):
            while True:
                end = await self._end(partition)
                said, now = await of(end), self._placement.now()
                place, when = (
                    end.place + 1,
                    now if end.created_at is None else max(now, end.created_at + TICK),
                )
                owed = () if said["bytes"] else (PendingStep(CLEAR, CLEAR, {"upto": said["cleared"]}),)
                row = Record(
                    key=Key(
                        partition.tenant,
                        ids.derived_id(partition.tenant, partition.scope, "place", str(place)),
                    ),
                    scope=partition.scope,
                    version=version_at(now, end.version),
                    created_at=when,
                    updated_at=when,
                    fields={"place": place, "nonce": nonce, **said},
                    body={} if writer is None else {WRITTEN_BY: writer},
                    # an erasure of the row that it follows refuses it, and it is put
                    # again
                    generation=end.generation,
                    tier="mid",
                    owed=owed,
                )
                outcome = await self._at_its_place(row)
                if outcome.applied or (
                    isinstance(outcome.stored, Record) and outcome.stored.fields.get("nonce") == nonce
                ):
                    return replace(
                        row, version=outcome.version or row.version
                    )  # it may be stored over the tombstone of an erasure
                raise_if_rejected(archive, outcome)
                if outcome.status is Status.REJECTED:
                    await self._generations.lives_on(
                        row, archive
                    )  # the row that it follows lives on too, if it does
                    if (there := await self._there(row)) is not None:
                        return there  # it was put before the erasure, and the caller got no answer
                await patience.wait()

    async def _at_its_place(self, row: Record) -> Outcome:
        """Put the row if its place is free, or has the tombstone of an erasure.

        It is put a second time if the store did not report the outcome. It is not put
        over the tombstone of a clearing: a slow writer then finds its place taken,
        cleared and deleted, and its row would be before the cleared ones.
        """
        archive = self._placement.topology.archive
        put = Put(SCRATCHPADS, row, Absent(), erases=not row.fields["bytes"])  # a full store takes a clearing
        try:
            outcome = await self._placement.write_one("scratchpad.put", archive, put)
        except StoreUnavailable:
            outcome = await self._placement.write_one("scratchpad.put", archive, put)
        if isinstance(gone := outcome.stored, Tombstone) and (await self._end(row.partition)).place < _number(
            row, "place"
        ):
            later = replace(row, version=max(row.version, gone.version + 1))
            put = replace(put, record=later, when=AtVersion(gone.version))
            outcome = await self._placement.write_one("scratchpad.put", archive, put)
        return outcome

    async def _end(self, partition: Partition, until: datetime | None = None) -> _ScratchpadTail:
        """Return the last row, or the last one until a moment."""
        newest = Query(
            SCRATCHPADS,
            within(partition),
            Gt("place", 0) if until is None else And((Gt("place", 0), Le("created_at", until))),
            (Order("created_at", descending=True),),
            1,
            select=_TOLD,
        )
        page = await self._placement.page("scratchpad.end", self._placement.topology.archive, newest)
        if not page.heads:
            return _ScratchpadTail()
        head = page.heads[0]
        made: Any = head.fields["created_at"]
        return _ScratchpadTail(
            _number(head, "place"),
            _number(head, "cleared"),
            _number(head, "size"),
            head.version,
            made,
            head.generation,
        )

    async def _rows(self, partition: Partition, end: _ScratchpadTail) -> tuple[list[Record], int]:
        """Return the rows in order, and the number of damaged ones."""
        standing = Query(
            SCRATCHPADS,
            within(partition),
            Gt("place", end.cleared),
            (Order("created_at"),),
            self._placement.settings.page,
        )
        rows, corrupt = list[Record](), 0
        async for page in self._placement.pages(
            "scratchpad.read", self._placement.topology.archive, standing
        ):
            rows += [
                row for row in page.records if isinstance(row, Record) and _number(row, "place") <= end.place
            ]
            corrupt += len(page.corrupt)
        return rows, corrupt

    async def _data(self, row: Record) -> list[bytes | None]:
        """Return the data of an append; None if it cannot be read."""
        if not row.fields.get("parts"):
            return [data] if isinstance(data := row.fields.get("data"), bytes) else []
        keys = [
            _part_key(row.partition, str(row.fields["nonce"]), number)
            for number in range(_number(row, "parts"))
        ]
        parts = await self._placement.read(
            "scratchpad.read", self._placement.topology.archive, SCRATCHPADS, keys
        )
        said = b"".join(
            data
            for part in parts
            if isinstance(part, Record) and isinstance(data := part.fields.get("data"), bytes)
        )
        return [said if len(said) == _number(row, "bytes") else None]

    async def _lay(self, partition: Partition, nonce: str, data: bytes) -> list[Record]:
        """Put the parts of a text, each with the step that looks for its row."""
        archive, laid = self._placement.topology.archive, list[Record]()
        for number, start in enumerate(range(0, len(data), PART_BYTES)):
            now = self._placement.now()
            fields: dict[str, FieldValue] = {"nonce": nonce, "data": data[start : start + PART_BYTES]}
            part = Record(
                key=_part_key(partition, nonce, number),
                scope=partition.scope,
                version=version_at(now),
                created_at=now,
                updated_at=now,
                fields=fields,
                tier="mid",
                owed=(PendingStep(PART, PART, {}),),
            )
            outcome = await self._placement.write_one(
                "scratchpad.part", archive, Put(SCRATCHPADS, part, Absent())
            )
            raise_if_rejected(archive, outcome)
            laid.append(part)
        return laid

    async def _stand(self, parts: list[Record], row: Record) -> None:
        """Confirm the parts of a stored row.

        They are put again with the version of the row, and without pending steps. That
        restores parts that a sweep deleted because it found no row. It also restores
        parts that the erasure of a tenant took for older ones. If the row is gone, the
        parts are deleted with it.
        """
        archive = self._placement.topology.archive
        for part in parts:
            later = max(row.version, part.version + 1)  # both may be of the same microsecond
            put = Put(SCRATCHPADS, replace(part, version=later, owed=()), Newer(), settles=frozenset({PART}))
            outcome = await self._placement.write_one("scratchpad.part", archive, put)
            if isinstance(gone := outcome.stored, Tombstone) and await self._there(row) is not None:
                put = Put(
                    SCRATCHPADS, replace(part, version=gone.version + 1), AtVersion(gone.version)
                )  # with the pending step, since the row may be deleted yet
                outcome = await self._placement.write_one("scratchpad.part", archive, put)
            raise_if_rejected(archive, outcome)

    async def _take_back(self, nonce: str, parts: list[Record]) -> None:
        """Delete parts that get no row.

        If that fails now, a sweep deletes them once they are old.
        """
        if not parts:
            return
        try:
            await self._delete(self._placement.topology.archive, parts[-1], _parts_of(nonce))
        except StoreError as error:
            log.info("a sweep will delete a text that exceeded a scratchpad: %s", error)

    async def _there(self, row: Record) -> Record | None:
        """Return this row if it is stored at its place, otherwise None."""
        there = await self._placement.read_one(
            "scratchpad.read", self._placement.topology.archive, SCRATCHPADS, row.key
        )
        return (
            there if isinstance(there, Record) and there.fields.get("nonce") == row.fields["nonce"] else None
        )

    async def _size_behind(self, partition: Partition, place: int) -> int:
        behind = Query(
            SCRATCHPADS,
            within(partition),
            Gt("place", place),
            limit=self._placement.settings.page,
            select=frozenset({"bytes"}),
        )
        size = 0
        async for page in self._placement.pages("scratchpad.size", self._placement.topology.archive, behind):
            size += sum(_number(head, "bytes") for head in page.heads)
        return size

    async def _drop_cleared(self, pending: OutboxRecord, owed: PendingStep) -> bool:
        """Delete the rows that a clearing removed, and their parts before them.

        While the tenant is under legal hold, the step stays pending.
        """
        row = pending.owner
        if not isinstance(row, Record):
            return True
        try:
            await self._holds.refuse_partition(row.partition, whole=False)
        except LegalHoldActive:
            return False
        taken = Le("place", owed.data["upto"])
        in_parts = Query(
            SCRATCHPADS,
            within(row.partition),
            And((taken, Gt("parts", 0))),
            limit=MAX_LIMIT,
            select=frozenset({"nonce"}),
        )
        async for page in self._placement.pages("scratchpad.drop", pending.store, in_parts):
            for head in page.heads:
                await self._delete(pending.store, row, _parts_of(str(head.fields["nonce"])))
        await self._delete(pending.store, row, taken)
        return True

    async def _begin_anew(self, partition: Partition, generation: int) -> None:
        """Treat the rows before those that an erasure spared as cleared."""
        if not partition.scope.startswith(f"{SCRATCHPAD}:"):
            return
        oldest = Query(
            SCRATCHPADS, within(partition), Gt("place", 0), (Order("created_at"),), 1, select=_TOLD
        )
        page = await self._placement.page("scratchpad.end", self._placement.topology.archive, oldest)
        upto = _number(page.heads[0], "place") - 1 if page.heads else 0
        if upto <= (await self._end(partition)).cleared:
            return

        async def clear_fields(end: _ScratchpadTail) -> dict[str, FieldValue]:
            return {
                "cleared": max(upto, end.cleared),
                "bytes": 0,
                "size": await self._size_behind(partition, max(upto, end.cleared)),
            }

        row = await self._put(partition, self._placement.nonce(), clear_fields)
        await self._outbox.finish(OutboxRecord(SCRATCHPADS, self._placement.topology.archive, row))

    async def _look_for_row(self, part: Record, store: Store, owed: PendingStep) -> bool:
        """Delete a part if its row has not come within `mark_life`."""
        nonce = str(part.fields["nonce"])
        named = Query(
            SCRATCHPADS,
            within(part.partition),
            And((Eq("nonce", nonce), Gt("parts", 0))),
            limit=1,
            select=frozenset(),
        )
        if (await self._placement.page("scratchpad.find", store, named)).heads:
            return True
        if self._placement.now() - part.created_at <= self._placement.settings.mark_life:
            return False
        # It stays if its row has come since: see `_stand`.
        await self._delete(store, part, And((_parts_of(nonce), Le("version", part.version))))
        return True

    async def _delete(self, store: Store, row: Record, what: Condition) -> None:
        await self._placement.delete_matching(
            "scratchpad.drop",
            store,
            Query(SCRATCHPADS, within(row.partition), what),
            row.version,
            frozenset(),
        )


def scope_of(agent: str | None) -> str:
    """Return the scope of a scratchpad's rows. No agent has an empty name."""
    return f"{SCRATCHPAD}:{agent or ''}"


def header(at: datetime) -> str:
    """Return the header of an append."""
    return f"## {at.isoformat(timespec='seconds').replace('+00:00', 'Z')}\n"


def _number(row: Record | Head, field: str) -> int:
    return int(str(row.fields[field]))


def _part_key(partition: Partition, nonce: str, number: int) -> Key:
    return Key(
        partition.tenant, ids.derived_id(partition.tenant, partition.scope, "part", nonce, str(number))
    )


def _parts_of(nonce: str) -> Condition:
    """Return the condition for the parts that were put for a row."""
    return And((Eq("nonce", nonce), IsNull("place")))
