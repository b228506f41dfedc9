"""Import a file: check all of it first, then write it batch by batch.

So an import can be interrupted anywhere and repeated. The lines are read twice, and
only their ids stay in memory. A source that can only be read once is first copied to a
temporary file.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
from collections import Counter
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Container,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

from pydantic import BaseModel

from memory.domain import validation
from memory.domain.entry import Entry, ImportedDraft
from memory.domain.errors import (
    Conflict,
    InvalidInput,
    PartialWrite,
    QuotaExceeded,
    RejectedByGate,
    SessionOwnerMismatch,
)
from memory.domain.ids import is_id, keyed_id
from memory.domain.import_reports import ImportReport
from memory.domain.scope import Scope
from memory.domain.time import micros
from memory.domain.versions import version_text
from memory.facade.runtime.access import Access
from memory.facade.transfer.artifact_lines import ArtifactLine, ChunkLine, Sequences
from memory.facade.transfer.lines import (
    BadLine,
    DocumentLine,
    ForeignLine,
    IdMapping,
    ImportOptions,
    Item,
    MessageLine,
    RecordLine,
    RelationLine,
    ScratchpadLine,
    VersionLine,
    last_moment,
    read,
)
from memory.orchestrator.conversations.blobs.large_texts import Chunk
from memory.orchestrator.conversations.sessions import OWNER, other_owner
from memory.orchestrator.entries.admission import NewEntry
from memory.orchestrator.entries.writing import latest_moment
from memory.orchestrator.storage.collections import (
    ARTIFACTS,
    ENTRIES,
    MANIFESTS,
    MESSAGES,
    RUNS,
    SESSIONS,
    TASKS,
)
from memory.orchestrator.storage.entry_records import texts_of
from memory.orchestrator.tiering.quotas import QuotaScope
from memory.orchestrator.transfer.artifact_import import restore_artifact
from memory.orchestrator.transfer.records import Fate, ImportedEntry, RestoreResult
from memory.ports.record import Key, Record

BATCH = 200
"""The number of lines that are written together."""
CHUNKS_AT_ONCE = 2 * 2**20
"""The bytes of artifacts and documents that are read together."""
SPELLED_OUT = 1_000
"""The maximum number of lines whose problems a report describes.

Of further bad lines it only has the line numbers.
"""
IN_MEMORY = 8 * 2**20
"""The maximum number of bytes of a source that are kept in memory.

A larger source that can only be read once is copied to a temporary file.
"""

Line: TypeAlias = str | bytes | Mapping[str, Any] | BaseModel
Source: TypeAlias = str | os.PathLike[str] | IO[bytes] | Iterable[Line] | AsyncIterable[Line]
"""A file's path, an open file, or lines as text or as the objects that they hold."""
Linked = TypeVar("Linked", MessageLine, VersionLine)
"""An item that may point to an artifact."""
Progress: TypeAlias = Callable[[int, int], None]
"""Called after each batch with the number of stored lines and the total."""


class BadFile(BadLine):
    """Raised if lines are bad, so that nothing was imported.

    It names the first bad line and its problem, and counts the others. `problems`
    describes at most 1,000 of them.
    """

    def __init__(self, name: str, line: int, problem: str, problems: Sequence[str], others: int) -> None:
        more = f"; {others:,} more bad line{'s' * (others > 1)}" if others > 0 else ""
        advice = "correct the file, or leave bad lines out (skip_bad, on the command line --skip-bad)"
        super().__init__(name, line, f"{problem}{more}; nothing was imported: {advice}")
        self.problems = problems


class Import:
    """One import into a tenant."""

    def __init__(
        self,
        access: Access,
        name: str,
        *,
        scope: Scope | None,
        messages_to: Scope | None,
        same_ids: bool,
        revive: bool,
        skip_bad: bool,
        progress: Progress | None,
    ) -> None:
        if same_ids and scope is not None:
            raise InvalidInput(
                "scope",
                "cannot be combined with same_ids, because an id belongs to one scope. Omit one of them",
            )
        if same_ids and revive:
            raise InvalidInput(
                "revive",
                "cannot be combined with same_ids, because a revived entry is a new one. Omit one of them",
            )
        self._engine, self._tenant, self._sign = access.engine, access.tenant, access.sign_import
        self._access = access
        self._name, self._scope, self._messages_to = name, scope, messages_to
        self._same_ids, self._revive, self._skip_bad = same_ids, revive, skip_bad
        self._progress = progress or (lambda done, total: None)
        self._unread: Mapping[int, str] = {}
        self._now = self._engine.placement.now()
        self._latest: datetime | None = latest_moment(self._engine.placement)
        self._ids = IdMapping(self._tenant, same=same_ids)
        self._report = ImportReport(name)
        self._total = self._done = 0
        self._line = self._within = 0
        """The first line of the current batch, and how many of its lines are done."""
        self._demand = Counter[QuotaScope]()
        self._page: list[MessageLine] = []
        """Entries that are looked up together next."""
        self._first_known = self._last_known = 0
        """The first and last line of entries whose keys exist here."""
        self._last_early = self._first_entry = self._last_entry = self._first_other = 0
        self._sequences = Sequences()
        self._owners: list[Record] = []
        """The sessions of the file, with their owners."""
        self._artifacts: dict[str, str] = {}
        """The imported artifacts by their old ids."""
        self._misplaced: set[tuple[int, int]] = set()
        self._chunks: dict[tuple[str, Chunk], str] = {}
        """Large texts of messages that follow later."""

    async def run(self, stream: IO[bytes], unread: Mapping[int, str]) -> ImportReport:
        """Check the whole file, then write it.

        Artifacts come first, after their sessions. Entries with their kept versions
        follow, then records that refer to any of these. `unread` has the problems of
        lines that could not be copied into the stream.
        """
        self._unread = unread
        start = await asyncio.to_thread(stream.tell)
        await self._check(self._items(stream))
        self._latest = (
            self._latest if self._report.skipped_lines else None
        )  # without bad lines there is nothing to recognise again
        await self._check_owners()
        await self._engine.quotas.check(self._demand)
        if self._last_known and not (self._skip_bad or self._same_ids):
            await asyncio.to_thread(stream.seek, start)
            await self._check_known(self._items(stream, self._first_known))
        try:
            await self._write(stream, start)
        except QuotaExceeded as error:
            raise QuotaExceeded(
                error.quota,
                error.where,
                error.measure,
                error.most,
                error.held,
                error.asked,
                imported=self._name,
                so_far=self._written_so_far(),
            ) from error
        return self._report

    def _written_so_far(self) -> str:
        """Describe how much is imported, for an import that stops in the middle."""
        return (
            f"{self._done + self._within} of {self._total} lines of '{self._name}' are imported; the rest"
            f" begins at line {self._line}"
        )

    async def _write(self, stream: IO[bytes], start: int) -> None:
        if self._last_early:
            await asyncio.to_thread(stream.seek, start)
            await self._early(self._items(stream))
        for write, others, since, until in (
            (self._entries, False, self._first_entry, self._last_entry),
            (self._others, True, self._first_other, sys.maxsize if self._first_other else 0),
        ):
            if until:
                await asyncio.to_thread(stream.seek, start)
                async for batch in self._batches(self._items(stream, since), others, until):
                    self._line = batch[0].line
                    await write(batch)
                    self._done += len(batch)
                    self._progress(self._done, self._total)

    # -- reading -----------------------------------------------------------------------

    async def _items(self, stream: IO[bytes], since: int = 1) -> AsyncGenerator[Item | BadLine, None]:
        """Yield the items of the file; a thread reads and checks a few at a time."""
        tenant = self._tenant if self._same_ids else None
        how = ImportOptions(self._scope, self._messages_to, tenant, self._latest, self._unread)
        items = read(stream, self._name, how, since)
        while part := await asyncio.to_thread(_some, items):
            for item in part:
                yield item

    async def _check(self, items: AsyncIterator[Item | BadLine]) -> None:
        """Read the file without writing: note its ids and its bad lines.

        Raises:
            BadFile: If lines are bad and are not to be skipped.
        """
        waiting: list[Item] = []  # items that need an id which may follow later
        first: BadLine | None = None
        async for item in items:
            if isinstance(item, BadLine):
                first = first or item
                self._skip(item)
                continue
            first = self._in_sequence(item, first)
            if isinstance(item, ArtifactLine | ChunkLine):
                self._last_early = item.line
                continue
            self._total += 1
            self._note_moment(last_moment(item))
            if (
                isinstance(item, RecordLine)
                and item.kind.collection is SESSIONS
                and not self._first_entry
                and not self._first_other
            ):
                self._last_early = item.line
            elif isinstance(item, RelationLine | RecordLine | ScratchpadLine | DocumentLine):
                self._first_other = self._first_other or item.line
            else:
                self._first_entry, self._last_entry = self._first_entry or item.line, item.line
            self._ids.note(item)
            await self._look_up(item)
            if isinstance(item, RecordLine) and item.kind.collection is SESSIONS:
                record = self._ids.row(item).record
                self._owners.append(replace(record, body={"incarnation": record.body["incarnation"]}))
            if self._ids.missing_id(item) is not None:
                waiting.append(item)
        await self._look_up(None)
        first = self._in_sequence(None, first)
        self._total += sum(1 + chunks for chunks in self._sequences.whole.values())
        for item in waiting:
            if isinstance(item, VersionLine):
                self._misplaced.add((item.line, item.as_it_was.version))
            if (problem := self._lacks(item)) is not None:
                self._total -= 1
                bad = BadLine(self._name, item.line, problem)
                first = first if first is not None and first.line < bad.line else bad
                self._skip(bad)
        self._report.skipped_lines.sort()
        if first is not None and not self._skip_bad:
            others = len(self._report.skipped_lines) - 1
            raise BadFile(self._name, first.line, first.problem, self._report.problems, others)

    async def _look_up(self, item: Item | None) -> None:
        """Look up existing entries, and count the quota demand of the others by page.

        The item is None at the end of the file.
        """
        quotas, placement = self._engine.quotas, self._engine.placement
        if (
            isinstance(item, MessageLine)
            and not item.again
            and (quotas.quotas or not (self._skip_bad or self._same_ids))
        ):
            self._page.append(item)
        if not self._page or (item is not None and len(self._page) < BATCH):
            return
        new_entries = {message.line: _new_entry(self._tenant, message) for message in self._page}
        self._page.clear()
        located = await placement.locate_many(ENTRIES, [one.key for one in new_entries.values()])
        for line, there in zip(list(new_entries), located, strict=True):
            if there.record is not None:
                self._first_known, self._last_known = self._first_known or line, line
            if there.record is not None or (there.tombstone is not None and not self._revive):
                del new_entries[line]
        self._demand += quotas.demand(self._tenant, list(new_entries.values()))

    async def _check_known(self, items: AsyncGenerator[Item | BadLine, None]) -> None:
        """Raise `Conflict` if another entry has the key of an entry of the file.

        A write gate decides what is stored. With one, such a conflict only appears when
        the line is written.
        """
        bad, page = list[tuple[int, Conflict]](), list[MessageLine]()
        async for item in items:
            if isinstance(item, MessageLine) and not item.again:
                item = self._ids.message(item)
                page.append(
                    item if item.draft.artifact_id is None else item.pointing_to(None)
                )  # it is recognised by its earlier artifact
            if page and (len(page) == BATCH or item.line >= self._last_known):
                found = await self._engine.entries.writer.conflicts(
                    self._tenant, [message.draft for message in page]
                )
                bad += [(page[position].line, conflict) for position, conflict in found.items()]
                page = []
            if item.line >= self._last_known:
                break
        await items.aclose()
        if bad:
            others = f"; {len(bad) - 1} more such lines" if len(bad) > 1 else ""
            raise self._conflict(*bad[0], f"{others}; nothing was imported")

    def _conflict(self, line: int, conflict: Conflict, imported: str) -> Conflict:
        advice = (
            "it was stored earlier with another text. Give it another id, import into another --session, or"
            " skip bad lines"
        )
        return Conflict(f"{self._name} line {line}: {conflict}{imported}; {advice}", conflict.existing_id)

    async def _check_owners(self) -> None:
        """Raise `SessionOwnerMismatch` if a session id belongs to another owner.

        With `skip_bad` only that session is refused, later.
        """
        archive = self._engine.placement.topology.archive
        for start in range(0, 0 if self._skip_bad else len(self._owners), BATCH):
            part = self._owners[start : start + BATCH]
            for here, there in zip(part, await archive.get(SESSIONS, [one.key for one in part]), strict=True):
                if not isinstance(there, Record) or there.body["incarnation"] == here.body["incarnation"]:
                    continue
                if (field := other_owner(there, here)) is not None:
                    given = here.fields.get(OWNER[field])
                    raise SessionOwnerMismatch(
                        str(here.fields["session_id"]),
                        field,
                        None if given is None else str(given),
                        self._name,
                    )

    def _in_sequence(self, item: Item | None, first: BadLine | None) -> BadLine | None:
        """Note the artifact lines that the next item proves wrong.

        Return the bad line with the lowest number so far.
        """
        bad = [BadLine(self._name, *told) for told in self._sequences.check_next(item)]
        if isinstance(item, ForeignLine) and item.collection is MANIFESTS:
            self._sequences.pass_over(item.id)
        elif isinstance(item, ArtifactLine) and (lacking := self._ids.missing_id(item)) is not None:
            self._sequences.give_up(item)
            bad.append(
                BadLine(self._name, item.line, f"belongs to {lacking}, which is not above it in this file")
            )
        for one in bad:
            self._skip(one)
        return min(filter(None, (first, *bad)), key=lambda one: one.line, default=None)

    def _lacks(self, item: Item) -> str | None:
        """Return why an item of the checked file cannot be imported; None if it can."""
        if isinstance(item, VersionLine):
            misplaced = (item.line, item.as_it_was.version) in self._misplaced
            return (
                f"is a version of entry {item.as_it_was.id}, which is not above it in this file"
                if misplaced
                else None
            )
        lacking = self._ids.missing_id(item)
        return (
            None
            if lacking is None
            else (
                f"{'links entry' if isinstance(item, RelationLine) else 'belongs to'} {lacking}, which is not"
                " in this file"
            )
        )

    async def _batches(
        self, items: AsyncIterator[Item | BadLine], others: bool, until: int
    ) -> AsyncIterator[list[Item]]:
        """Yield the items to write now, in batches."""
        batch, bad, size = list[Item](), frozenset(self._report.skipped_lines), 0
        async for item in items:
            if item.line > until:
                break
            if isinstance(item, BadLine):
                self._is_known(item, bad)
            elif (
                not self._is_early(item)
                and isinstance(item, RelationLine | RecordLine | ScratchpadLine | DocumentLine) == others
                and self._lacks(item) is None
            ):
                batch.append(item)
                size += _bytes_of(item)
                if len(batch) == BATCH or size > CHUNKS_AT_ONCE:
                    yield batch
                    batch, size = [], 0
        if batch:
            yield batch

    def _is_early(self, item: Item) -> bool:
        """Return whether the item was written before entries."""
        is_session = isinstance(item, RecordLine) and item.kind.collection is SESSIONS
        return isinstance(item, ArtifactLine | ChunkLine) or (is_session and item.line <= self._last_early)

    def _is_known(self, bad: BadLine, known: frozenset[int]) -> None:
        if bad.line not in known:
            raise BadLine(self._name, bad.line, f"{bad.problem}; the file changed while it was read")

    def _skip(self, bad: BadLine) -> None:
        self._report.skipped_lines.append(bad.line)
        self._say(str(bad))

    def _note_moment(self, moment: datetime | None) -> None:
        """Count a line that was written after now, by the clock of another machine."""
        if moment is not None and moment > self._now:
            self._report.ahead += 1
            self._report.ahead_until = max(moment, self._report.ahead_until or moment)

    def _say(self, problem: str) -> None:
        if len(self._report.problems) < SPELLED_OUT:
            self._report.problems.append(problem)

    # -- writing -----------------------------------------------------------------------

    async def _early(self, items: AsyncGenerator[Item | BadLine, None]) -> None:
        """Write artifacts, and sessions before the last of them or before all else."""
        bad = frozenset(self._report.skipped_lines)
        async for item in items:
            if item.line > self._last_early:
                break
            if isinstance(item, BadLine):
                self._is_known(item, bad)
            elif isinstance(item, ArtifactLine) and item.line in self._sequences.whole:
                self._line = item.line
                if not self._refused_with_another(item):
                    await self._restore_artifact(item, items, self._sequences.whole[item.line])
                self._done += 1 + self._sequences.whole[item.line]
                self._progress(self._done, self._total)
            elif isinstance(item, RecordLine) and self._is_early(item) and self._lacks(item) is None:
                await self._others([item])
                self._done += 1
                if self._done % BATCH == 0:
                    self._progress(self._done, self._total)
        await items.aclose()
        self._progress(self._done, self._total)

    async def _restore_artifact(
        self, item: ArtifactLine, items: AsyncGenerator[Item | BadLine, None], chunks: int
    ) -> None:
        pieces = self._pieces(item, items, chunks)
        try:
            restored, here = await restore_artifact(
                self._engine.conversations.manifests,
                self._tenant,
                item.session_id,
                item.path,
                item.media_type,
                item.id,
                item.sha256,
                item.size,
                pieces,
                self._access.writer or item.written_by,
            )
        finally:
            await pieces.aclose()
        self._report.artifacts += self._was_written(item, restored)
        if here is not None:
            self._artifacts[item.id] = here

    async def _pieces(
        self, item: ArtifactLine, items: AsyncIterator[Item | BadLine], chunks: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of an artifact from the lines after its own.

        Raises:
            BadLine: If they changed since they were checked.
        """
        digest = sha256()
        while chunks and (part := await anext(items, None)) is not None:
            if isinstance(part, ChunkLine) and part.artifact_id == item.id:
                digest.update(part.data)
                chunks -= 1
                yield part.data
        if chunks or digest.hexdigest() != item.sha256:
            raise BadLine(
                self._name,
                item.line,
                "the bytes of this artifact differ from the first pass; the file changed while it was read",
            )

    async def _link_artifacts(self, items: Sequence[Linked]) -> list[Linked]:
        """Point the entries and kept versions to the imported artifacts.

        An entry whose artifact was not imported points to none, and is reported.
        """
        named = {item.draft.artifact_id for item in items} - {None} - self._artifacts.keys()
        known = (
            await self._engine.conversations.manifests.existing_ids(self._tenant, sorted(map(str, named)))
            if named
            else set()
        )
        return [self._link_artifact(item, known) for item in items]

    def _link_artifact(self, item: Linked, known: Container[str]) -> Linked:
        old = item.draft.artifact_id
        if old is None:
            return item
        here = self._artifacts.get(old, old if old in known else None)
        if here is None:
            self._report.unlinked_lines.append(item.line)
            self._say(
                f"{self._name} line {item.line}: artifact_id: artifact {old} was not imported or was deleted,"
                " so this entry has no artifact"
            )
        return item.pointing_to(here)

    async def _entries(self, batch: list[Item]) -> None:
        """Write entries, then their kept versions, which need the entries."""
        for item in batch:
            if isinstance(item, ForeignLine):
                self._refuse(item, item.problem)
        messages = [item for item in batch if isinstance(item, MessageLine)]
        self._report.messages += len(messages)
        self._report.already_there += sum(message.again for message in messages)
        fresh = [
            self._ids.message(message)
            for message in await self._link_artifacts([message for message in messages if not message.again])
        ]
        fresh = await self._not_deleted(fresh)
        await self._write_drafts([message for message in fresh if message.as_it_was is None])
        await self._restore_entries([message for message in fresh if message.as_it_was is not None])
        versions = [item for item in batch if isinstance(item, VersionLine)]
        if self._same_ids:
            await self._restore_versions(await self._link_artifacts(versions))
        else:
            self._report.versions_left_out += len(versions)

    async def _not_deleted(self, messages: list[MessageLine]) -> list[MessageLine]:
        """Leave out entries of this store that were deleted after the export.

        With `revive` they stay in.
        """
        names = {
            message.line: str(message.draft.key)
            for message in messages
            if isinstance(message.draft, ImportedDraft)
        }
        keys = [Key(self._tenant, name) for name in dict.fromkeys(names.values()) if is_id(name)]
        if self._revive or self._same_ids or not keys:
            return messages
        placement = self._engine.placement
        gone = {
            at.key.id
            for at in await placement.locate_many(ENTRIES, keys)
            if at.record is None and at.tombstone is not None
        }
        self._report.deleted_earlier += sum(name in gone for name in names.values())
        return [message for message in messages if names.get(message.line) not in gone]

    async def _write_drafts(self, messages: list[MessageLine]) -> None:
        started = version_text(micros(self._engine.placement.now()))
        # versions are times: an older one was here before
        entries = await self._write_messages(messages)
        new = sum(entry.version >= started for entry in entries.values())
        self._report.imported += new
        self._report.already_there += len(entries) - new

    async def _write_messages(self, messages: list[MessageLine]) -> dict[int, Entry]:
        """Write messages and return the entries by the position of their message.

        Messages that were deleted earlier or refused have none.
        """
        write = self._engine.entries.write_many
        try:
            return dict(
                enumerate(
                    await write(
                        self._tenant,
                        [self._sign(message.draft) for message in messages],
                        revive=self._revive,
                    )
                )
            )
        except PartialWrite as part:
            for position, conflict in part.conflicts.items():
                if conflict.deleted_at is not None:
                    self._report.deleted_earlier += 1
                elif self._same_ids or self._skip_bad:
                    self._refuse(messages[position], str(conflict))
                else:
                    self._line, self._within = messages[position].line, self._within + len(part.written)
                    raise self._conflict(self._line, conflict, f"; {self._written_so_far()}") from conflict
            return part.written
        except RejectedByGate as refusal:
            if len(messages) > 1:  # write them one by one, so that only the rejected one is refused
                written: dict[int, Entry] = {}
                for position, message in enumerate(messages):
                    self._line, self._within = message.line, position
                    if (entry := (await self._write_messages([message])).get(0)) is not None:
                        written[position] = entry
                self._within = 0
                return written
            self._ids.refuse(ENTRIES, str(messages[0].draft.key))
            self._refuse(messages[0], refusal.reason)
            return {}

    async def _restore_entries(self, messages: list[MessageLine]) -> None:
        entries = [
            self._sign_entry(message.as_it_was) for message in messages if message.as_it_was is not None
        ]
        for message, restored in zip(
            messages, await self._engine.transfer.restore_entries(self._tenant, entries), strict=True
        ):
            self._report.imported += restored.fate is Fate.WRITTEN
            self._report.already_there += restored.fate is Fate.THERE
            self._report.deleted_earlier += restored.fate is Fate.DELETED
            if restored.fate is Fate.REFUSED:
                self._ids.refuse(ENTRIES, str(message.draft.key))
                self._refuse(message, restored.problem)

    async def _restore_versions(self, versions: list[VersionLine]) -> None:
        left = [version for version in versions if not self._refused_with_another(version)]
        for version, restored in zip(
            left,
            await self._engine.transfer.restore_versions(
                self._tenant, [self._sign_entry(version.as_it_was) for version in left]
            ),
            strict=True,
        ):
            self._report.versions += self._was_written(version, restored)

    def _sign_entry(self, entry: ImportedEntry) -> ImportedEntry:
        return replace(entry, draft=self._sign(entry.draft))

    async def _others(self, batch: list[Item]) -> None:
        """Write relations and other records; events of sessions after the sessions."""
        events: list[RecordLine] = []
        for item in batch:
            if self._refused_with_another(item):
                continue
            if isinstance(item, RelationLine):
                link = self._ids.link(item)
                relations, maker = self._engine.relations, self._access.sign_link(link.said)
                self._report.relations += await relations.restore(
                    self._tenant, link.source_id, link.label, link.target_id, link.created_at, maker
                )
            elif isinstance(item, ScratchpadLine):
                await self._restore_pad(item)
            elif isinstance(item, DocumentLine):
                await self._restore_document(item)
            elif isinstance(item, RecordLine) and item.kind.collection is ARTIFACTS:
                said: Mapping[str, Any] = item.record.fields
                self._chunks[item.record.scope, Chunk(said["upload"], said["digest"])] = said["data"].decode()
            elif isinstance(item, RecordLine) and item.kind.collection is MESSAGES:
                events.append(self._sign_record(self._ids.row(item)))
            elif isinstance(item, RecordLine):
                row = self._sign_record(self._ids.row(item))
                restored = await self._restore_record(row)
                is_session = row.kind.collection is SESSIONS
                self._report.sessions += self._was_written(item, restored) and is_session
                self._report.other_records += restored.fate is Fate.WRITTEN and not is_session
                if restored.fate is Fate.REFUSED:
                    self._ids.refuse(item.kind.collection, item.name)
        carrying = self._engine.session_restorer
        for row, restored in zip(
            events, await carrying.restore_events([row.record for row in events], self._chunks), strict=True
        ):
            self._report.events += self._was_written(row, restored)

    async def _restore_record(self, row: RecordLine) -> RestoreResult:
        """Restore a session, a task, a run, or a record in a scope of callers."""
        sessions = self._engine.session_restorer
        if row.kind.collection is SESSIONS:
            return await sessions.restore_session(row.record)
        if row.kind.conversational:
            return await sessions.restore_named(row.kind, row.record, claims=not self._access.hides)
        transfer = self._engine.transfer
        return await transfer.restore(self._tenant, row.kind, row.record, as_it_was=self._same_ids)

    def _sign_record(self, row: RecordLine) -> RecordLine:
        """Return a record of a session with the origin of the importer.

        It is added to the metadata of the system message, of the event's message, or of
        the task or run.
        """
        record = row.record
        if row.kind.collection in (TASKS, RUNS):
            given: Any = record.body.get("metadata")
            signed = self._access.sign_imported_metadata(given)
            body = {**record.body, "metadata": signed} if signed else record.body
            return replace(row, record=replace(record, body=body))
        held = "system" if row.kind.collection is SESSIONS else "message"
        said: Any = record.body.get(held)
        if self._access.writer is None or said is None:
            return row
        signed = {**said, "metadata": self._access.sign_imported_metadata(said.get("metadata"))}
        return replace(row, record=replace(record, body={**record.body, held: signed}))

    async def _restore_pad(self, pad: ScratchpadLine) -> None:
        """Restore a scratchpad if none was ever written here.

        A scratchpad that was cleared since stays empty.
        """
        pads = self._engine.scratchpads
        if await pads.restore(self._tenant, pad.agent, pad.content, self._access.writer):
            self._report.other_records += 1
        elif not (await self._engine.scratchpads.read(self._tenant, pad.agent)).content.startswith(
            pad.content
        ):
            self._refuse(pad, "this scratchpad already has other content here")

    async def _restore_document(self, item: DocumentLine) -> None:
        """Restore a document, unless another is stored under its key.

        A document that was deleted here since stays deleted.
        """
        documents = self._engine.documents
        put = replace(item.put, metadata=self._access.sign_imported_metadata(item.put.metadata))
        fate = await documents.restore(self._tenant, put, revive=self._revive)
        restored = RestoreResult(Fate(fate), "key: another document has it here")
        self._report.documents += self._was_written(item, restored)

    def _was_written(self, item: Item, restored: RestoreResult) -> bool:
        """Return whether the item was written, and report it if it was refused."""
        if restored.fate is Fate.REFUSED:
            self._refuse(item, restored.problem)
        return restored.fate is Fate.WRITTEN

    def _refused_with_another(self, item: Item) -> bool:
        refused = self._ids.refused_id(item)
        if refused is not None:
            self._refuse(item, f"id: belongs to {refused}, which was refused")
        return refused is not None

    def _refuse(self, item: Item, problem: str) -> None:
        self._report.refused_lines.append(item.line)
        self._say(f"{self._name} line {item.line}: {problem}")


def _new_entry(tenant: str, message: MessageLine) -> NewEntry:
    draft, kept = message.draft, message.as_it_was
    scope = draft.scope.text
    key = Key(tenant, keyed_id(tenant, scope, str(draft.identity)) if kept is None else kept.id)
    size = sum(
        len(text.encode()) for text in texts_of(draft.title, draft.content, draft.tags, draft.source).values()
    )
    return NewEntry(key, scope, size, derived=True)


@asynccontextmanager
async def open_source(source: object) -> AsyncIterator[tuple[IO[bytes], Mapping[int, str]]]:
    """Open a source as bytes that can be read twice.

    Yield the stream and the problems of lines that could not be copied, because they
    are not JSON. Seekable binary files are used directly. Lines of other sources are
    copied to a temporary file.
    """
    if isinstance(source, str | os.PathLike):
        with await asyncio.to_thread(_open_file, source) as file:
            yield file, {}
    elif isinstance(source, io.IOBase) and not isinstance(source, io.TextIOBase) and source.seekable():
        yield source, {}  # type: ignore[misc]
    else:
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
            unread = await _copy(source, _Copy(copy))
            copy.seek(0)
            yield copy, unread


def _open_file(path: str | os.PathLike[str]) -> IO[bytes]:
    try:
        return Path(path).open("rb")
    except OSError as error:
        raise InvalidInput(
            "source",
            f"cannot be read: {error}. Text is the path of a file; pass lines as a list, or an open file",
        ) from error


async def _copy(source: object, into: _Copy) -> Mapping[int, str]:
    if isinstance(source, AsyncIterable):
        async for line in source:
            into.write(line)
    elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray | Mapping):
        lines = iter(source)
        while await asyncio.to_thread(_copy_some, lines, into):
            pass
    else:
        raise InvalidInput("source", f"must be a path, an open file or lines, not {type(source).__name__}")
    return into.unread


def _copy_some(lines: Iterator[object], into: _Copy) -> int:
    """Copy some lines and return their number."""
    copied = 0
    for line in islice(lines, BATCH):
        into.write(line)
        copied += 1
    return copied


def _some(items: Iterator[Item | BadLine]) -> list[Item | BadLine]:
    """Return the next items, but only a few bytes of artifacts and documents."""
    part: list[Item | BadLine] = []
    size = 0
    for item in islice(items, BATCH):
        part.append(item)
        size += _bytes_of(item)
        if size > CHUNKS_AT_ONCE:
            break
    return part


def _bytes_of(item: Item | BadLine) -> int:
    if isinstance(item, ChunkLine):
        return len(item.data)
    return item.put.value.size if isinstance(item, DocumentLine) else 0


class _Copy:
    """Writes lines of a source into a file.

    `unread` maps the numbers of lines that cannot be written to their problems.
    """

    def __init__(self, into: IO[bytes]) -> None:
        self._into = into
        self._lines = 0
        self.unread: dict[int, str] = {}

    def write(self, line: object) -> None:
        if not isinstance(line, str | bytes):
            line = self._as_json(line)
        written = line.encode("utf-8", "surrogatepass") if isinstance(line, str) else line
        written = written if written.endswith(b"\n") else written + b"\n"
        self._lines += written.count(b"\n")
        self._into.write(written)

    def _as_json(self, line: object) -> str:
        if not validation.is_object(line):
            raise InvalidInput(
                "source", f"yields a {type(line).__name__}. Each line must be text or a JSON object"
            )
        if isinstance(line, Mapping):
            with suppress(TypeError, ValueError, RecursionError):
                return json.dumps(dict(line), allow_nan=False)
        try:  # Python values: dates, UUIDs, dataclasses and models
            return json.dumps(validation.json_object("line", line, max_bytes=validation.MAX_MESSAGE_BYTES))
        except InvalidInput as error:
            path = error.field.split(".")  # of a path inside a field only the field is named
            self.unread[self._lines + 1] = f"{path[min(1, len(path) - 1)]}: {error.problem}"
            return "null"
