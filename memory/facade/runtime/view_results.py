"""Removes the ids of outside records from the results of a restricted view."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from memory.domain.entry import Entry
from memory.domain.errors import MemoryTiersError
from memory.domain.ids import is_id
from memory.domain.promotion_report import PromotionReport
from memory.domain.provenance import parts_of
from memory.domain.session import DeletedEntries, DeletedEntry, ErasedScope

if TYPE_CHECKING:
    from memory.facade.runtime.access import Access

T = TypeVar("T")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def hide_outside(access: Access, result: T) -> T:
    """Return the result of a call without the ids of records outside of the view.

    Entries of the result are changed in place: they are copies of the caller's own.

    Raises:
        MemoryTiersError: The result has an entry outside of the view. This is a fault
            of the library, and nothing is shown.
    """
    view = access.view
    if view is None or view.scopes is None:
        return result
    entries = list(_entries_in(result))
    if any(not view.contains(entry.scope) for entry in entries):
        raise MemoryTiersError("a restricted view found an entry outside of its scopes. Report this fault")
    if entries:
        await _hide_in_entries(access, entries)
    changed: Any = result
    match changed:
        case DeletedEntry():
            kept = await access.inside(changed.kept)
            changed = DeletedEntry(
                int(changed), [one for one in changed.kept if one in kept], changed.is_complete
            )
        case DeletedEntries():
            inside = await access.inside((*changed.kept, *changed.held))
            changed = dataclasses.replace(
                changed,
                kept=tuple(one for one in changed.kept if one in inside),
                held=tuple(one for one in changed.held if one in inside),
            )
        case ErasedScope():
            visible = await access.visible_sessions(changed.sessions_left)
            left = [one for one in changed.sessions_left if one in visible]
            inside = await access.inside(changed.held)
            held = [one for one in changed.held if one in inside]
            changed = ErasedScope(int(changed), left, changed.documents, changed.scopes, held)
        case PromotionReport():
            await _hide_in_report(access, changed)
    return changed  # type: ignore[no-any-return]


def _entries_in(value: Any) -> Iterator[Entry]:
    """Yield every entry in a result, at any depth."""
    if isinstance(value, Entry):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _entries_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _entries_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            yield from _entries_in(getattr(value, one.name, None))


def _record_ids_of(entry: Entry) -> Iterator[str]:
    """Yield the ids of other entries that an entry names."""
    if entry.promoted_from_id is not None:
        yield entry.promoted_from_id
    yield from entry.compacted_from_ids or ()
    yield from (one.entry_id for one in entry.contributors or ())
    yield from (name for one in entry.origins or () if is_id(name := parts_of(one)[1]))


async def _hide_in_entries(access: Access, entries: list[Entry]) -> None:
    inside = await access.inside({one for entry in entries for one in _record_ids_of(entry)})
    sessions = await access.visible_sessions(
        {entry.conversation_id for entry in entries if entry.conversation_id is not None}
    )
    artifacts = await access.visible_artifacts(
        {entry.artifact_id for entry in entries if entry.artifact_id is not None}
    )
    for entry in entries:
        if entry.promoted_from_id not in inside:
            entry.promoted_from_id = None
        entry.compacted_from_ids = [o for o in entry.compacted_from_ids or () if o in inside] or None
        entry.contributors = [o for o in entry.contributors or () if o.entry_id in inside] or None
        kept = [o for o in entry.origins or () if not is_id(name := parts_of(o)[1]) or name in inside]
        entry.origins = kept or None
        if entry.conversation_id not in sessions:
            entry.conversation_id = entry.number_in_conversation = None
        if entry.artifact_id not in artifacts:
            entry.artifact_id = entry._artifact = None


async def _hide_in_report(access: Access, report: PromotionReport) -> None:
    """Remove what happened to entries outside of the view."""
    in_texts = {one for text in report.waiting for one in _ID.findall(text)}
    named = {one.entry_id for one in report.moved} | {one.entry_id for one in report.kept}
    named |= {one for copy in report.copied for one in (copy.entry_id, copy.copy_id)}
    inside = await access.inside(named | in_texts | set(report.derived))
    report.moved = [one for one in report.moved if one.entry_id in inside]
    report.kept = [one for one in report.kept if one.entry_id in inside]
    report.copied = [one for one in report.copied if {one.entry_id, one.copy_id} <= inside]
    report.derived = [one for one in report.derived if one in inside]
    report.waiting = [text for text in report.waiting if inside.issuperset(_ID.findall(text))]
