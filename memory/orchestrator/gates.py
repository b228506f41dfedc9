"""Gates: functions of the caller's that are asked of what is to be written and of what is to be shown. What they refuse, do not answer within the
deadline, or fail over, is not written, and not shown.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeAlias, TypeVar

from memory.domain.entry import Entry, EntryDraft, check_patch
from memory.domain.errors import InvalidInput, Refused
from memory.domain.provenance import ORIGIN_KINDS, Provenance
from memory.orchestrator.placement import Placement
from memory.ports.pace import paced

Verdict: TypeAlias = bool | str | Mapping[str, Any] | None
"""True lets it be written; False refuses it, and so does a text, which says why. What is given of content, title, type, tags, metadata and expires_at
is written instead."""
WriteGate: TypeAlias = Callable[[EntryDraft, Provenance], "Verdict | Awaitable[Verdict]"]
RecallGate: TypeAlias = Callable[[Entry], "bool | Awaitable[bool]"]

Draft = TypeVar("Draft", bound=EntryDraft)

_SAID = frozenset({*ORIGIN_KINDS, "origins"})
LATE = "it did not answer in time"


class Gates:
    """The gates of a memory, where it has them."""

    def __init__(self, placement: Placement, write: WriteGate | None = None, recall: RecallGate | None = None) -> None:
        self._within = placement.settings.deadline
        self.write = write
        self.recall = recall

    async def let_in(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The drafts as they are to be written. Raises `Refused` for the first that is not."""
        if self.write is None:
            return list(drafts)
        changes = await self.changes(drafts)
        return [_changed(draft, changes[position], position) async for position, draft in paced(list(enumerate(drafts)))]

    async def changes(self, drafts: Sequence[EntryDraft]) -> list[dict[str, Any]]:
        """What the gate changes of each draft. Raises `Refused` for the first that it refuses."""
        if self.write is None:
            return [{} for _ in drafts]
        asked = [(draft.model_copy(deep=True), provenance_of(draft)) async for draft in paced(drafts)]
        return [changes_of(answer, position) for position, answer in enumerate(await answers_of(self.write, asked, self._within))]

    async def lets_out(self, entries: Sequence[Entry]) -> list[bool]:
        """Which of the entries may be shown."""
        if self.recall is None or not entries:
            return [True] * len(entries)
        return [lets_out(answer) for answer in await answers_of(self.recall, [(entry.model_copy(deep=True),) for entry in entries], self._within)]


async def answers_of(gate: Callable[..., Any], asked: Sequence[tuple[Any, ...]], within: timedelta) -> list[Any]:
    """What a gate answers of each, or why it does not. One that blocks runs in a thread."""
    given: dict[int, Any] = {}

    async def awaited(number: int, answer: Awaitable[Any]) -> None:
        try:
            given[number] = await answer
        except Exception as error:  # noqa: BLE001 - a gate is anybody's
            given[number] = error

    def called_all() -> None:
        for number, args in enumerate(asked):
            try:
                given[number] = gate(*args)
            except Exception as error:  # noqa: BLE001 - as above
                given[number] = error

    with suppress(TimeoutError):
        async with asyncio.timeout(within.total_seconds()):
            if _is_async(gate):
                await asyncio.gather(*(awaited(number, gate(*args)) for number, args in enumerate(asked)))
            else:
                await asyncio.to_thread(called_all)
                await asyncio.gather(*(awaited(number, answer) for number, answer in list(given.items()) if inspect.isawaitable(answer)))
    answers = [given.get(number, TimeoutError(LATE)) for number in range(len(asked))]
    return [TimeoutError(LATE) if inspect.isawaitable(answer) else answer for answer in answers]


def lets_out(answer: Any) -> bool:
    """Whether a recall gate's answer shows what it was asked of."""
    return not isinstance(answer, Exception) and bool(answer)


def provenance_of(draft: EntryDraft) -> Provenance:
    """What a draft says of where it comes from."""
    return Provenance(draft.source, draft.agent, draft.run, tuple(draft.origins), draft.conversation_id)


def _is_async(gate: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(gate) or inspect.iscoroutinefunction(getattr(type(gate), "__call__", None))  # noqa: B004


def changes_of(answer: Any, position: int = 0) -> dict[str, Any]:
    """What a write gate's answer changes. Raises `Refused` where it refuses, or is none."""
    if answer is True:
        return {}
    if isinstance(answer, Mapping):
        try:
            changes = check_patch(dict(answer))
        except InvalidInput as error:
            raise Refused(f"the write gate asks for what cannot be: {error}", position) from None
        if said := sorted(changes.keys() & _SAID):
            raise Refused(f"the write gate cannot change where it comes from ({', '.join(said)})", position)
        return changes
    if isinstance(answer, Exception):
        raise Refused(f"the write gate failed: {LATE if isinstance(answer, TimeoutError) else type(answer).__name__}", position) from answer
    raise Refused(answer if isinstance(answer, str) and answer.strip() else "the write gate refuses it", position)


def _changed(draft: Draft, changes: Mapping[str, Any], position: int) -> Draft:
    if not changes:
        return draft
    try:
        return type(draft)(**{**dict(draft), **changes})
    except InvalidInput as error:
        raise Refused(f"the write gate asks for what cannot be: {error}", position) from None
