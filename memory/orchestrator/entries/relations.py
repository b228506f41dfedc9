"""Relations: directed, labelled links between two entries of one tenant."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from memory.domain import ids
from memory.domain.errors import Conflict, InvalidInput, NotFound, StoreUnavailable
from memory.domain.provenance import WRITTEN_BY
from memory.domain.relation import Relation, RelationPage
from memory.domain.relation_labels import SUPERSEDES
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.entries.orphans import existing_keys, parents_of
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.orchestrator.storage.entry_records import REQUEST
from memory.orchestrator.storage.generations import Generations
from memory.orchestrator.storage.outbox import Outbox, OutboxRecord
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.requests import RequestMark, deleted_since
from memory.ports.query import Eq, Order, Query, Tenant, Where, all_of, covers, encode_cursor
from memory.ports.record import JsonValue, Key, Record, Tombstone
from memory.ports.writes import Absent, AtVersion, Put, Status

MADE_BY, NOTE = "made_by", "note"
"""In the body of a link that an advisor made: its model, and its explanation."""
LIST_LIMIT = 200
SAID_OF_LINKS = (MADE_BY, NOTE, WRITTEN_BY)


@dataclass(frozen=True, slots=True)
class RelationVisibility:
    """Which ends of relations must be visible, and when.

    They must be visible now, unless a moment is given, as in `Entries.get`.
    """

    as_of: datetime | None = None
    known_at: datetime | None = None
    superseded: bool = False
    """Whether a `supersedes` counts if one of its ends is visible."""


class Relations:
    """The repository of relations."""

    def __init__(
        self,
        placement: Placement,
        *,
        entries: Entries,
        erasure: Erasure,
        generations: Generations,
        outbox: Outbox,
    ) -> None:
        self._placement = placement
        self._entries = entries
        self._erasure = erasure
        self._generations = generations
        self._outbox = outbox

    async def relate(
        self,
        tenant: str,
        source_id: str,
        label: str,
        target_id: str,
        *,
        restored_from: datetime | None = None,
        said: Mapping[str, JsonValue] | None = None,
        request: RequestMark | None = None,
    ) -> Relation:
        """Link two active entries. A repeat of a request returns the link that it made.

        Args:
            restored_from: When an exported link was made. Its ends may be retired now.
            said: See `make`.

        Raises:
            Conflict: The link exists already. The error names it.
            InvalidInput: An entry is missing, or is not active, or both are the same.
        """
        if source_id == target_id:
            raise InvalidInput("target_id", "self-loops not allowed")
        if request is not None:
            said = {**(said or {}), REQUEST: request.text}
            if request.repeats and ids.is_id(source_id):
                key = _link_key(Key(tenant, source_id), label, target_id)
                if (made := await self._made_by(key, request)) is not None:
                    return made
                gone = (await self._placement.locate(RELATIONS, key)).tombstone
                if gone is not None and request.may_have_made(gone.version):
                    raise deleted_since(f"the relation {label!r} of entry {source_id}")
        try:
            source = await self._entries.confirmed_record(tenant, source_id, active=restored_from is None)
            await self._entries.confirmed_record(tenant, target_id, active=restored_from is None)
        except NotFound:
            raise InvalidInput(
                "relation", "both entries must exist, be active and belong to this tenant"
            ) from None
        try:
            return await self.make(source, label, target_id, restored_from, said)
        except Conflict:
            made = None
            if request is not None:
                made = await self._made_by(_link_key(source.key, label, target_id), request)
            if made is None:
                raise
            return made

    async def _made_by(self, key: Key, request: RequestMark) -> Relation | None:
        """Return the link if an earlier call of the request made it."""
        there = (await self._placement.locate(RELATIONS, key)).record
        return None if there is None or there.body.get(REQUEST) != request.text else relation_of(there)

    async def get(self, tenant: str, relation_id: str) -> Relation | None:
        """Return a relation by its id; None if there is none."""
        there = (await self._placement.locate(RELATIONS, Key(tenant, relation_id))).record
        return None if there is None else relation_of(there)

    async def make(
        self,
        source: Record,
        label: str,
        target_id: str,
        made: datetime | None = None,
        said: Mapping[str, JsonValue] | None = None,
    ) -> Relation:
        """Link an entry as it was read, although it may have expired since.

        `said` names the maker and its explanation (`SAID_OF_LINKS`). See `relate`.

        Raises:
            InvalidInput: An entry was deleted.
            NotFound: The source was deleted.
        """
        tenant = source.key.tenant
        record = await self._put(tenant, source, label, target_id, made, said)
        await self._check_ends(tenant, record, source.key.id, target_id)
        return relation_of(record)

    async def restore(
        self,
        tenant: str,
        source_id: str,
        label: str,
        target_id: str,
        made: datetime,
        said: Mapping[str, JsonValue] | None = None,
    ) -> bool:
        """Link two entries as they were linked in an export, also retired ones.

        Returns:
            False if they are linked already, or if one of them is gone: expired since,
            or deleted after an earlier import.
        """
        try:
            await self.relate(tenant, source_id, label, target_id, restored_from=made, said=said)
        except Conflict:
            return False
        except InvalidInput as refused:
            if refused.field != "relation":
                raise
            return False
        return True

    async def _put(
        self,
        tenant: str,
        source: Record,
        label: str,
        target_id: str,
        made: datetime | None,
        said: Mapping[str, JsonValue] | None,
    ) -> Record:
        """Put the link into the archive, if there is none, or over its tombstone."""
        archive, tombstone = self._placement.topology.archive, 0
        for _ in range(self._placement.settings.attempts):
            record = self.link(source, label, target_id, after=tombstone, made=made, said=said)
            condition = AtVersion(tombstone) if tombstone else Absent()
            outcome = await self._placement.write_one(
                "relate.home", archive, Put(RELATIONS, record, condition)
            )
            if outcome.applied:
                return record
            raise_if_rejected(archive, outcome)
            if (
                outcome.status is Status.REJECTED
            ):  # its scope was erased, or the source's store is behind the archive
                home = (await self._placement.locate(ENTRIES, source.key)).home()
                if home is None or not await self._generations.lives_on(*home):
                    break
                source = await self._entries.live_record(tenant, source.key.id, active=made is None)
            elif isinstance(outcome.stored, Record) or outcome.version is None:
                raise Conflict("relation already exists", record.key.id)
            else:
                tombstone = outcome.version
                if isinstance(outcome.stored, Tombstone) and await self._outbox.finish(
                    OutboxRecord(RELATIONS, archive, outcome.stored)
                ):
                    raise StoreUnavailable(
                        archive.name,
                        "the deletion of this link is not complete. The link can be made again after that;"
                        " try again",
                    )
        raise InvalidInput("relation", "both entries must exist, be active and belong to this tenant")

    async def _check_ends(self, tenant: str, record: Record, *ends: str) -> None:
        """Delete the link if an entry was deleted while it was being linked."""
        located = await self._placement.locate_many(ENTRIES, [Key(tenant, end) for end in ends])
        if any(at.record is None for at in located):
            await self._erasure.delete(RELATIONS, record.key, at=record.version, held="deleted")
            raise InvalidInput("relation", "both entries must exist, be active and belong to this tenant")

    def link(
        self,
        source: Record,
        label: str,
        target_id: str,
        *,
        after: int = 0,
        made: datetime | None = None,
        said: Mapping[str, JsonValue] | None = None,
    ) -> Record:
        """Return the record of a link.

        It is newer than version `after`. It was made now, unless `made` is given.
        """
        now = made or self._placement.now()
        return Record(
            key=_link_key(source.key, label, target_id),
            scope=source.scope,
            version=self._placement.next_version(after),
            created_at=now,
            updated_at=now,
            fields={"source_id": source.key.id, "target_id": target_id, "relation": label},
            body=dict(said or {}),
            generation=source.generation,
            tier="mid",
        )

    async def find(
        self,
        tenant: str,
        *,
        source_id: str | None = None,
        target_id: str | None = None,
        label: str | None = None,
        limit: int = LIST_LIMIT,
        shown: RelationVisibility | None = None,
        within: Where | None = None,
        cursor: str | None = None,
    ) -> RelationPage:
        """Return a page of the relations that match, newest first.

        Relations of erased entries are gone. Those of retired entries are included,
        unless `shown` restricts them. With `within`, both ends are in this place.
        """
        given = {"source_id": source_id, "target_id": target_id, "relation": label}
        condition = all_of(*(Eq(name, value) for name, value in given.items() if value is not None))
        query = Query(
            RELATIONS,
            within or Tenant(tenant),
            condition,
            (Order("created_at", descending=True),),
            limit if shown is None and within is None else max(limit, 100),
            cursor,
        )
        found, is_more = list[Record](), False
        async for page in self._placement.pages("relation.list", self._placement.topology.archive, query):
            rows = [r for r in page.records if isinstance(r, Record)]
            visible = await self._visible_rows(tenant, rows, shown)
            found += await self._rows_within(tenant, visible, within)
            is_more = len(found) > limit or page.cursor is not None
            if len(found) >= limit:
                break
        last = found[limit - 1] if is_more and len(found) >= limit else None
        behind = None if last is None else encode_cursor((last.created_at,), last.key.id)
        return RelationPage(map(relation_of, found[:limit]), behind)

    async def _visible_rows(
        self, tenant: str, rows: Sequence[Record], shown: RelationVisibility | None
    ) -> list[Record]:
        """Return the relations whose ends exist or, with `shown`, are visible.

        A `supersedes` needs only one visible end, because it hides the other.
        """
        if shown is None:
            there = await self._ends_there(rows)
            return [row for row in rows if _ends(row) <= there]
        ends = {end.id for row in rows for end in _ends(row)}
        visible = {
            Key(tenant, one)
            for one in await self._entries.get_many(tenant, ends, as_of=shown.as_of, known_at=shown.known_at)
        }
        made = [row for row in rows if shown.known_at is None or row.created_at <= shown.known_at]
        superseding = [row for row in made if shown.superseded and row.fields["relation"] == SUPERSEDES]
        there = await self._ends_there(superseding)
        dimmed = {row.key for row in superseding if _ends(row) & visible and _ends(row) <= there}
        return [row for row in made if _ends(row) <= visible or row.key in dimmed]

    async def _rows_within(self, tenant: str, rows: Sequence[Record], within: Where | None) -> list[Record]:
        """Return the relations of which both ends are in a place.

        A relation is in the partition of its source.
        """
        if within is None:
            return list(rows)
        targets = {str(row.fields["target_id"]) for row in rows}
        located = await self._placement.locate_many(ENTRIES, [Key(tenant, one) for one in targets])
        inside = {
            at.record.key.id
            for at in located
            if at.record is not None and covers(within, at.record.partition)
        }
        return [
            row for row in rows if covers(within, row.partition) and str(row.fields["target_id"]) in inside
        ]

    async def is_outside(self, tenant: str, relation_id: str, within: Where) -> bool:
        """Return whether there is such a relation with an end outside of a place."""
        there = None
        if ids.is_id(relation_id):
            there = (await self._placement.locate(RELATIONS, Key(tenant, relation_id))).record
        return there is not None and not await self._rows_within(tenant, [there], within)

    async def everything(self, tenant: str, within: Where | None = None) -> AsyncIterator[Relation]:
        """Yield every relation of a tenant whose ends still exist, in no order.

        With `within`, both ends are in this place.
        """
        query = Query(RELATIONS, within or Tenant(tenant), limit=self._placement.settings.page)
        async for page in self._placement.pages("relation.list", self._placement.topology.archive, query):
            rows = [r for r in page.records if isinstance(r, Record)]
            there = await self._ends_there(rows)
            for row in await self._rows_within(tenant, rows, within):
                if _ends(row) <= there:
                    yield relation_of(row)

    async def _ends_there(self, rows: Sequence[Record], *, partial: bool = False) -> set[Key]:
        """Return the ends of these relations that still exist.

        With `partial`, ends that no store can decide now are included.
        """
        return await existing_keys(
            self._placement, ENTRIES, {end for row in rows for end in _ends(row)}, partial=partial
        )

    async def unlink(self, source: Key, label: str, target_id: str, made: datetime) -> None:
        """Delete a link if it exists, and was made at this moment."""

        async def is_that(link: Record) -> bool:
            return link.created_at == made

        await self._erasure.delete(
            RELATIONS, _link_key(source, label, target_id), held="deleted", only_if=is_that
        )

    async def unrelate(self, tenant: str, relation_id: str, request: RequestMark | None = None) -> bool:
        """Delete a relation. A repeat of a request that has deleted it deletes nothing.

        Returns:
            True once, then false. Also false if the relation was only left over from an
            end that is gone.
        """
        if not ids.is_id(relation_id):
            return False
        key = Key(tenant, relation_id)
        there = await self._placement.locate(RELATIONS, key)
        row, tombstone = there.record, there.tombstone
        if request is not None and tombstone is not None and tombstone.note.get(REQUEST) == request.text:
            return True
        left_over = row is not None and not _ends(row) <= await self._ends_there([row], partial=True)
        note: dict[str, JsonValue] | None = None if request is None else {REQUEST: request.text}
        is_deleted = await self._erasure.delete(RELATIONS, key, note=note)
        if request is not None and not is_deleted:  # perhaps by the same request just now
            gone = (await self._placement.locate(RELATIONS, key)).tombstone
            return gone is not None and gone.note.get(REQUEST) == request.text
        return is_deleted and not left_over


def _link_key(source: Key, label: str, target_id: str) -> Key:
    return Key(source.tenant, ids.beside(source.id, "relation", label, target_id))


def _ends(relation: Record) -> set[Key]:
    return parents_of(relation, ("source_id", "target_id"))


def relation_of(record: Record) -> Relation:
    """Return the relation of a record."""
    fields, said = (
        record.fields,
        {name: None if (value := record.body.get(name)) is None else str(value) for name in SAID_OF_LINKS},
    )
    return Relation(
        record.key.id,
        str(fields["source_id"]),
        str(fields["target_id"]),
        str(fields["relation"]),
        record.created_at,
        **said,
    )
