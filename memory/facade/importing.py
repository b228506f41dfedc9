"""An import: a file is checked as a whole, then written batch by batch, so that it can be cut off anywhere and repeated.

The lines are read twice and never held: what is remembered of them is their ids. What cannot be read twice is copied to a temporary file first.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any, TypeAlias

from memory.domain.entry import Entry
from memory.domain.errors import Conflict, InvalidInput, PartialWrite, Refused
from memory.domain.scope import Scope
from memory.domain.shown import Shown
from memory.domain.time import micros
from memory.facade.access import Access
from memory.facade.transfer import BadLine, Foreign, Ids, Item, Link, Message, Pad, Row, Version, read
from memory.orchestrator.collections import ARTIFACTS, ENTRIES, MESSAGES, SESSIONS
from memory.orchestrator.conversations.artifacts import Chunk
from memory.orchestrator.transfer import Fate, Restored

BATCH = 200
"""Lines that are written together."""
SPELLED_OUT = 1_000
"""Lines of which a report says what was wrong; of the others it has the numbers."""
IN_MEMORY = 8 * 2**20
"""Bytes of what can be read only once that are kept in memory; more is copied to a temporary file."""

Line: TypeAlias = str | bytes | Mapping[str, Any]
Source: TypeAlias = str | os.PathLike[str] | IO[bytes] | Iterable[Line] | AsyncIterable[Line]
"""A file's path, an open file, or lines one after the other: as text, or as the JSON objects they hold."""
Told: TypeAlias = Callable[[int, int], None]
"""Hears after each batch how many lines are safe, and of how many."""


@dataclass(repr=False)
class Imported(Shown):
    """What became of an import, in numbers of lines.

    `messages` are entries and messages read; of these `imported` were written now, `already_there` or `deleted_earlier` after an earlier import.
    `versions`, `relations`, `sessions`, the `events` of their logs and `other_records` were written now; `versions_left_out` are kept versions whose
    entries got new ids. `artifacts_left_out` are entries whose artifact is not here, for no export carries it: they point to none.
    `skipped_lines` are bad ones that were left out, `refused_lines` those whose id is taken or of elsewhere; `problems` says why, of a thousand.
    """

    file: str
    messages: int = 0
    imported: int = 0
    already_there: int = 0
    deleted_earlier: int = 0
    versions: int = 0
    versions_left_out: int = 0
    artifacts_left_out: int = 0
    relations: int = 0
    sessions: int = 0
    events: int = 0
    other_records: int = 0
    skipped_lines: list[int] = field(default_factory=list)
    refused_lines: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


class BadFile(BadLine):
    """An import of which nothing was written because lines are bad: the first by number, and what is wrong with it. `problems` says so of each."""

    def __init__(self, name: str, line: int, problem: str, problems: Sequence[str]) -> None:
        others = len(problems or ()) - 1
        more = f"; {others} more bad line{'s' * (others > 1)}" if others > 0 else ""
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
        told: Told | None,
    ) -> None:
        if same_ids and scope is not None:
            raise InvalidInput("scope", "and same_ids exclude each other: an id belongs to one scope")
        if same_ids and revive:
            raise InvalidInput("revive", "and same_ids exclude each other: what is revived begins anew")
        self._engine, self._tenant = access.engine, access.tenant
        self._name, self._scope, self._messages_to = name, scope, messages_to
        self._same_ids, self._revive, self._skip_bad = same_ids, revive, skip_bad
        self._told = told or (lambda done, total: None)
        self._ids = Ids(self._tenant, same=same_ids)
        self._report = Imported(name)
        self._total = self._done = 0
        self._last_entry = self._first_other = 0
        self._misplaced: set[tuple[int, int]] = set()
        self._chunks: dict[tuple[str, Chunk], str] = {}
        """Large texts of messages that stand further down."""

    async def run(self, stream: IO[bytes]) -> Imported:
        """Check all, then write all: entries and their kept versions, then what may name any of them."""
        start = await asyncio.to_thread(stream.tell)
        await self._check(self._items(stream))
        for write, others, since, until in (
            (self._entries, False, 1, self._last_entry),
            (self._others, True, self._first_other, sys.maxsize if self._first_other else 0),
        ):
            if until:
                await asyncio.to_thread(stream.seek, start)
                async for batch in self._batches(self._items(stream, since), others, until):
                    await write(batch)
                    self._done += len(batch)
                    self._told(self._done, self._total)
        return self._report

    # -- reading ------------------------------------------------------------------------------------------------------

    async def _items(self, stream: IO[bytes], since: int = 1) -> AsyncIterator[Item | BadLine]:
        """What the file holds; it is read and checked in a thread, a little at a time."""
        tenant = self._tenant if self._same_ids else None
        items = read(stream, self._name, self._scope, messages_to=self._messages_to, same_ids_of=tenant, since=since)
        while part := await asyncio.to_thread(lambda: list(islice(items, BATCH))):
            for item in part:
                yield item

    async def _check(self, items: AsyncIterator[Item | BadLine]) -> None:
        """Go through the file without writing: which ids it holds, which lines are bad. Bad ones are refused unless to be skipped."""
        waiting: list[Item] = []  # for an id that stands further down, if at all
        first: BadLine | None = None
        async for item in items:
            if isinstance(item, BadLine):
                first = first or item
                self._skip(item)
                continue
            self._total += 1
            if isinstance(item, Link | Row | Pad):
                self._first_other = self._first_other or item.line
            else:
                self._last_entry = item.line
            self._ids.note(item)
            if self._ids.lacking(item) is not None:
                waiting.append(item)
        for item in waiting:
            if isinstance(item, Version):
                self._misplaced.add((item.line, item.as_it_was.version))
            if (problem := self._lacks(item)) is not None:
                self._total -= 1
                bad = BadLine(self._name, item.line, problem)
                first = first if first is not None and first.line < bad.line else bad
                self._skip(bad)
        self._report.skipped_lines.sort()
        if first is not None and not self._skip_bad:
            raise BadFile(self._name, first.line, first.problem, self._report.problems)

    def _lacks(self, item: Item) -> str | None:
        """Why an item of the whole file cannot be imported; None where it can."""
        if isinstance(item, Version):
            misplaced = (item.line, item.as_it_was.version) in self._misplaced
            return f"is a version of entry {item.as_it_was.id}, which does not stand above it in this file" if misplaced else None
        lacking = self._ids.lacking(item)
        return None if lacking is None else f"{'links entry' if isinstance(item, Link) else 'belongs to'} {lacking}, which is not in this file"

    async def _batches(self, items: AsyncIterator[Item | BadLine], others: bool, until: int) -> AsyncIterator[list[Item]]:
        """What is to be written now, so many at a time."""
        batch, bad = list[Item](), frozenset(self._report.skipped_lines)
        async for item in items:
            if item.line > until:
                break
            if isinstance(item, BadLine):
                if item.line not in bad:
                    raise BadLine(self._name, item.line, f"{item.problem}; the file changed while it was read")
            elif isinstance(item, Link | Row | Pad) == others and self._lacks(item) is None:
                batch.append(item)
                if len(batch) == BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch

    def _skip(self, bad: BadLine) -> None:
        self._report.skipped_lines.append(bad.line)
        self._say(str(bad))

    def _say(self, problem: str) -> None:
        if len(self._report.problems) < SPELLED_OUT:
            self._report.problems.append(problem)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def _entries(self, batch: list[Item]) -> None:
        """Entries first, then their kept versions: a version is kept of what stands."""
        for item in batch:
            if isinstance(item, Foreign):
                self._refuse(item, item.problem)
        messages = [item for item in batch if isinstance(item, Message)]
        self._report.messages += len(messages)
        self._report.already_there += sum(message.again for message in messages)
        fresh = await self._without_artifacts([self._ids.message(message) for message in messages if not message.again])
        await self._write_drafts([message for message in fresh if message.as_it_was is None])
        await self._restore_entries([message for message in fresh if message.as_it_was is not None])
        versions = [item for item in batch if isinstance(item, Version)]
        if self._same_ids:
            await self._restore_versions(versions)
        else:
            self._report.versions_left_out += len(versions)

    async def _without_artifacts(self, messages: list[Message]) -> list[Message]:
        """The messages, each without the artifact that it names where there is no such here."""
        named = {message.draft.artifact_id for message in messages} - {None}
        known = await self._engine.conversations.manifests.known(self._tenant, [one for one in named if one is not None]) if named else set()
        lacking = {message.line for message in messages if message.draft.artifact_id is not None and message.draft.artifact_id not in known}
        self._report.artifacts_left_out += len(lacking)
        return [message.without_artifact() if message.line in lacking else message for message in messages]

    async def _write_drafts(self, messages: list[Message]) -> None:
        started = micros(self._engine.placement.now())  # versions are moments: what is older was here before
        entries = await self._written(messages)
        new = sum(entry.version >= started for entry in entries.values())
        self._report.imported += new
        self._report.already_there += len(entries) - new

    async def _written(self, messages: list[Message]) -> dict[int, Entry]:
        """The entries by the position of their message; those that were deleted earlier, or refused, have none."""
        write = self._engine.entries.write_many
        try:
            return dict(enumerate(await write(self._tenant, [message.draft for message in messages], revive=self._revive)))
        except PartialWrite as part:
            for position, conflict in part.conflicts.items():
                if conflict.deleted_at is not None:
                    self._report.deleted_earlier += 1
                elif self._same_ids:
                    self._refuse(messages[position], str(conflict))
                else:
                    advice = "it was stored with another text before; give it another id, or import into another --session"
                    raise Conflict(f"{self._name} line {messages[position].line}: {conflict}; {advice}") from conflict
            return part.written
        except Refused as refusal:
            if len(messages) > 1:  # one by one, so that it is refused alone
                return {position: entry for position, message in enumerate(messages) for entry in (await self._written([message])).values()}
            self._ids.refuse(ENTRIES, str(messages[0].draft.key))
            self._refuse(messages[0], refusal.reason)
            return {}
        except InvalidInput:
            for message in messages:  # one by one, to name the line
                try:
                    await write(self._tenant, [message.draft], revive=self._revive)
                except InvalidInput as exc:
                    raise BadLine(self._name, message.line, str(exc)) from exc
                except (PartialWrite, Refused):
                    continue
            raise

    async def _restore_entries(self, messages: list[Message]) -> None:
        entries = [message.as_it_was for message in messages if message.as_it_was is not None]
        for message, restored in zip(messages, await self._engine.transfer.restore_entries(self._tenant, entries), strict=True):
            self._report.imported += restored.fate is Fate.WRITTEN
            self._report.already_there += restored.fate is Fate.THERE
            self._report.deleted_earlier += restored.fate is Fate.DELETED
            if restored.fate is Fate.REFUSED:
                self._ids.refuse(ENTRIES, str(message.draft.key))
                self._refuse(message, restored.problem)

    async def _restore_versions(self, versions: list[Version]) -> None:
        left = [version for version in versions if not self._refused_with_another(version)]
        for version, restored in zip(
            left, await self._engine.transfer.restore_versions(self._tenant, [version.as_it_was for version in left]), strict=True
        ):
            self._report.versions += self._counted(version, restored)

    async def _others(self, batch: list[Item]) -> None:
        """Relations and other records; the events of sessions behind the sessions."""
        events: list[Row] = []
        for item in batch:
            if self._refused_with_another(item):
                continue
            if isinstance(item, Link):
                link = self._ids.link(item)
                relations = self._engine.relations
                self._report.relations += await relations.restore(
                    self._tenant, link.source_id, link.label, link.target_id, link.created_at, link.said
                )
            elif isinstance(item, Pad):
                await self._restore_pad(item)
            elif isinstance(item, Row) and item.kind.collection is ARTIFACTS:
                said: Mapping[str, Any] = item.record.fields
                self._chunks[item.record.scope, Chunk(said["upload"], said["digest"])] = said["data"].decode()
            elif isinstance(item, Row) and item.kind.collection is MESSAGES:
                events.append(self._ids.row(item))
            elif isinstance(item, Row):
                row = self._ids.row(item)
                if row.kind.collection is SESSIONS:
                    restored = await self._engine.conversations.carrying.restore_session(row.record)
                else:
                    restored = await self._engine.transfer.restore(self._tenant, row.kind, row.record, as_it_was=self._same_ids)
                self._report.sessions += self._counted(item, restored) and row.kind.conversational
                self._report.other_records += restored.fate is Fate.WRITTEN and not row.kind.conversational
                if restored.fate is Fate.REFUSED:
                    self._ids.refuse(item.kind.collection, item.name)
        carrying = self._engine.conversations.carrying
        for row, restored in zip(events, await carrying.restore_events([row.record for row in events], self._chunks), strict=True):
            self._report.events += self._counted(row, restored)

    async def _restore_pad(self, pad: Pad) -> None:
        """A scratchpad as it was, where none was ever written; what was cleared since stays so."""
        if await self._engine.scratchpads.restore(self._tenant, pad.agent, pad.content):
            self._report.other_records += 1
        elif not (await self._engine.scratchpads.read(self._tenant, pad.agent)).content.startswith(pad.content):
            self._refuse(pad, "this scratchpad is in use here, and says something else")

    def _counted(self, item: Item, restored: Restored) -> bool:
        """Whether it was written; where it was refused that is told."""
        if restored.fate is Fate.REFUSED:
            self._refuse(item, restored.problem)
        return restored.fate is Fate.WRITTEN

    def _refused_with_another(self, item: Item) -> bool:
        refused = self._ids.refused(item)
        if refused is not None:
            self._refuse(item, f"id: what it belongs to, {refused}, was refused")
        return refused is not None

    def _refuse(self, item: Item, problem: str) -> None:
        self._report.refused_lines.append(item.line)
        self._say(f"{self._name} line {item.line}: {problem}")


@asynccontextmanager
async def opened(source: object) -> AsyncIterator[IO[bytes]]:
    """The bytes of a source, which can be read twice: of an open file as it is, of what gives lines one after the other from a temporary file."""
    if isinstance(source, str | os.PathLike):
        with await asyncio.to_thread(Path(source).open, "rb") as file:
            async with opened(file) as stream:
                yield stream
    elif isinstance(source, io.IOBase) and not isinstance(source, io.TextIOBase) and source.seekable():
        yield source  # type: ignore[misc]
    else:
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as copy:
            await _copy(source, copy)
            copy.seek(0)
            yield copy


async def _copy(source: object, into: IO[bytes]) -> None:
    if isinstance(source, AsyncIterable):
        async for line in source:
            into.write(_as_bytes(line))
    elif isinstance(source, Iterable) and not isinstance(source, bytes | bytearray | Mapping):
        lines = iter(source)
        while part := await asyncio.to_thread(lambda: [_as_bytes(line) for line in islice(lines, BATCH)]):
            into.writelines(part)
    else:
        raise InvalidInput("source", f"must be a path, an open file or lines, not {type(source).__name__}")


def _as_bytes(line: object) -> bytes:
    if isinstance(line, Mapping):
        line = json.dumps(dict(line))
    if isinstance(line, str):
        line = line.encode("utf-8", "surrogatepass")
    if not isinstance(line, bytes):
        raise InvalidInput("source", f"gives a {type(line).__name__} where a line is expected: text, or a JSON object")
    return line if line.endswith(b"\n") else line + b"\n"
