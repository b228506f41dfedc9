"""Conversations of Pydantic AI, kept as documents of memory-tiers.

store = DocumentConversationStore(memory, "user:ada")
conversation = await store.load("thread-7") or Conversation(conversation_id="thread-7")
result = await agent.run("Where does Ada live?", conversation=conversation)
await store.save(result)
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, TypeAlias
from uuid import uuid4

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
)
from pydantic_ai.messages import ModelMessage

from memory import ABSENT, Conflict, Document, DocumentDelete, DocumentInfo, DocumentPut, Memory, Scope

Change: TypeAlias = DocumentPut | DocumentDelete
MOST_AT_ONCE = 90
"""Entries of one group of changes, beside the record and its places in the lists."""
ANCESTORS = 32
"""Earlier entries that an entry names, so that a history is read in few calls."""
PAGE = 1_000
MESSAGE = TypeAdapter[ModelMessage](ModelMessage)
RECORD = TypeAdapter(ConversationRecord)


class DocumentConversationStore(ConversationStore):
    """A `ConversationStore` of Pydantic AI over documents of memory-tiers.

    The record of a conversation and up to 90 new entries are stored together or not at
    all. Entries beyond that are stored before, and deleted again after a conflict.

    `delete` deletes the entries of the conversation too, but none that a fork began
    with, and none before it. `memory.erase(scope)` erases everything.

    Args:
        memory: The memory. `memory.for_tenant("acme")` keeps tenants apart. Make it
            with `loop="own"` to use the store from several event loops.
        scope: The scope of memory-tiers that holds all conversations of this store, such
            as `"user:ada"`. The scopes of Pydantic AI are kept within it.
    """

    def __init__(self, memory: Memory, scope: Scope | str) -> None:
        self._documents = memory.documents
        self._scope = scope

    # -- records -----------------------------------------------------------------------

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        found = await self._documents.get(self._scope, _record_key(conversation_id))
        return None if found is None else RECORD.validate_json(found.value)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        records: list[ConversationRecord] = []
        cursor, more = None, limit != 0
        while more:
            most = PAGE if limit is None else min(limit - len(records), PAGE)
            page = await self._documents.list(
                self._scope, prefix=_list_prefix(scope), reverse=True, limit=most, cursor=cursor
            )
            keys = [f"record/{info.key.rpartition('/')[2]}" for info in page.documents]
            found = await self._documents.get_many(self._scope, keys)
            records += [RECORD.validate_json(one.value) for one in found if one is not None]
            cursor = page.cursor
            more = cursor is not None and (limit is None or len(records) < limit)
        return sorted(records, key=lambda record: record.updated_at, reverse=True)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and the new entries of its history, or nothing.

        Raises:
            ConversationConflict: The stored revision is another one, or the history
                begins with an entry that is not stored.
        """
        name = record.conversation_id
        found = await self._documents.get(self._scope, _record_key(name))
        stored = None if found is None else RECORD.validate_json(found.value)
        if (stored and stored.revision) != expected_revision:
            raise ConversationConflict(name)
        owner = found.metadata["owner"] if found else uuid4().hex
        before = await self._known_before(record, new_entries)
        lines = {one.key: one.metadata["line"] for one in before}
        puts = [self._entry_put(entry, owner, lines) for entry in new_entries]
        changes = [*self._record_changes(record, stored, found, owner)]
        if stored is None:  # a fork: nobody deletes what it begins with
            changes += [self._shared(one) for one in before]
        last, early = puts[-MOST_AT_ONCE:], puts[:-MOST_AT_ONCE]
        made: list[DocumentInfo | None] = []
        try:
            for first in range(0, len(early), MOST_AT_ONCE):
                made += await self._documents.apply(early[first : first + MOST_AT_ONCE])
            await self._documents.apply([*last, *changes])
        except Conflict as error:
            for one in filter(None, made):
                await self._documents.delete(self._scope, one.key, expected_version=one.version)
            raise ConversationConflict(name) from error

    async def _known_before(
        self, record: ConversationRecord, entries: Sequence[ConversationEntry]
    ) -> list[Document]:
        """Return the stored entries that the head and the new entries follow."""
        new = {entry.id for entry in entries}
        named = {record.head_id, *(entry.parent_id for entry in entries)} - {None, *new}
        found = await self._documents.get_many(self._scope, [_entry_key(str(name)) for name in named])
        if None in found:
            raise ConversationConflict(record.conversation_id)
        return [one for one in found if one is not None]

    def _entry_put(self, entry: ConversationEntry, owner: str, lines: dict[str, list[str]]) -> DocumentPut:
        line = []
        if entry.parent_id is not None:
            line = [*lines[_entry_key(entry.parent_id)], entry.parent_id][-ANCESTORS:]
        key = _entry_key(entry.id)
        lines[key] = line
        metadata = {"parent": entry.parent_id, "owner": owner, "line": line}
        return DocumentPut(
            self._scope, key, MESSAGE.dump_json(entry.message), metadata, expected_version=ABSENT
        )

    def _shared(self, entry: Document) -> DocumentPut:
        metadata = {**entry.metadata, "shared": True}
        return DocumentPut(self._scope, entry.key, entry.value, metadata, expected_version=entry.version)

    def _record_changes(
        self,
        record: ConversationRecord,
        stored: ConversationRecord | None,
        found: Document | None,
        owner: str,
    ) -> Iterable[Change]:
        """Return the changes of a record, and of its places in the lists by time."""
        places = set(_list_keys(record))
        yield DocumentPut(
            self._scope,
            _record_key(record.conversation_id),
            RECORD.dump_json(record),
            {"owner": owner},
            expected_version=ABSENT if found is None else found.version,
        )
        for key in places:
            yield DocumentPut(self._scope, key, None)
        for key in set(_list_keys(stored)) - places if stored is not None else ():
            yield DocumentDelete(self._scope, key)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Delete a record, and the entries that only its history has.

        Raises:
            ConversationConflict: The stored revision is another one.
        """
        found = await self._documents.get(self._scope, _record_key(conversation_id))
        stored = None if found is None else RECORD.validate_json(found.value)
        if found is None or stored is None or stored.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        gone = [DocumentDelete(self._scope, key) for key in _list_keys(stored)]
        try:
            await self._documents.apply([DocumentDelete(self._scope, found.key, found.version), *gone])
        except Conflict as error:
            raise ConversationConflict(conversation_id) from error
        for tip in (stored.head_id, *stored.branches):
            await self._delete_line(tip, found.metadata["owner"])

    async def _delete_line(self, tip: str | None, owner: str) -> None:
        """Delete the newest entries first, up to one that another conversation has."""
        while tip is not None:
            entry = await self._documents.get(self._scope, _entry_key(tip))
            if entry is None or entry.metadata["owner"] != owner or entry.metadata.get("shared"):
                return
            with suppress(Conflict):
                await self._documents.delete(self._scope, entry.key, expected_version=entry.version)
                tip = entry.metadata["parent"]

    # -- entries -----------------------------------------------------------------------

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Return an entry.

        Raises:
            LookupError: There is none with this id.
        """
        return _entry(entry_id, await self._documents.get(self._scope, _entry_key(entry_id)))

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Return the entries up to `head_id` in order, or only the last of them.

        Raises:
            LookupError: An entry of the history is not stored.
        """
        newest_first: list[ConversationEntry] = []
        names = [] if head_id is None or limit == 0 else [head_id]
        while names:
            if limit is not None:
                names = names[: limit - len(newest_first)]
            keys = [_entry_key(name) for name in names]
            found = await self._documents.get_many(self._scope, keys)
            newest_first += [_entry(name, one) for name, one in zip(names, found, strict=True)]
            last: Any = found[-1]
            names = [] if limit == len(newest_first) or last is None else last.metadata["line"][::-1]
        return newest_first[::-1]


def _entry(name: str, found: Document | None) -> ConversationEntry:
    if found is None:
        raise LookupError(f"entry {name!r} is not stored; its conversation was deleted")
    message = MESSAGE.validate_json(found.value)
    return ConversationEntry(id=name, parent_id=found.metadata["parent"], message=message)


def _record_key(conversation_id: str) -> str:
    return f"record/{_digest(conversation_id)}"


def _entry_key(entry_id: str) -> str:
    return f"entry/{entry_id}"


def _list_keys(record: ConversationRecord) -> list[str]:
    """Return the keys of a record in the list of all, and in that of its scope."""
    moment = record.updated_at.astimezone(UTC).isoformat(timespec="microseconds")
    place = f"{moment}/{_digest(record.conversation_id)}"
    scopes = [None] if record.scope is None else [None, record.scope]
    return [_list_prefix(scope) + place for scope in scopes]


def _list_prefix(scope: str | None) -> str:
    return "all/" if scope is None else f"scope/{_digest(scope)}/"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
