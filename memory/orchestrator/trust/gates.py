"""Gates: functions of the caller that decide what may be written and shown.

An entry is neither written nor shown if its gate refuses it, fails, or does not answer
within the deadline.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from threading import Event
from typing import Any, TypeAlias, TypeVar

from memory.domain.entry import Entry, EntryDraft, check_patch, with_changes
from memory.domain.errors import InvalidInput, RejectedByGate
from memory.domain.provenance import ORIGIN_KINDS, Provenance
from memory.orchestrator.storage.callbacks import is_async
from memory.orchestrator.storage.placement import Placement
from memory.ports.concurrency import each_at_once
from memory.ports.cooperative import iterate_cooperatively

Verdict: TypeAlias = bool | str | Mapping[str, Any] | None
"""The answer of a write gate. True accepts the entry. False refuses it; a text refuses
it and is the reason. A mapping replaces values: content, title, type, tags, metadata,
data and expires_at.
"""
WriteGate: TypeAlias = Callable[[EntryDraft, Provenance], "Verdict | Awaitable[Verdict]"]
RecallGate: TypeAlias = Callable[[Entry], "bool | Awaitable[bool]"]

Draft = TypeVar("Draft", bound=EntryDraft)

_SAID = frozenset({*ORIGIN_KINDS, "origins"})
LATE = "it did not answer in time"
AT_ONCE = 8
"""Concurrent calls of one gate that blocks."""


class Gates:
    """The gates of a memory, if it has any."""

    def __init__(
        self, placement: Placement, write: WriteGate | None = None, recall: RecallGate | None = None
    ) -> None:
        self._writing, self._recalling = (GateRunner(placement.settings.deadline) for _ in range(2))
        self.write = write
        self.recall = recall

    async def let_in(self, drafts: Sequence[Draft]) -> list[Draft]:
        """Return the drafts as they are to be written.

        Raises:
            RejectedByGate: For the first draft that the gate refuses.
        """
        if self.write is None:
            return list(drafts)
        changes = await self.changes(drafts)
        return [
            _apply_changes(draft, changes[position], position)
            async for position, draft in iterate_cooperatively(list(enumerate(drafts)))
        ]

    async def changes(self, drafts: Sequence[EntryDraft]) -> list[dict[str, Any]]:
        """Return the gate's changes of each draft.

        Raises:
            RejectedByGate: For the first draft that the gate refuses.
        """
        if self.write is None:
            return [{} for _ in drafts]
        asked = [
            (draft.model_copy(deep=True), provenance_of(draft))
            async for draft in iterate_cooperatively(drafts)
        ]
        return [
            changes_of(answer, position)
            for position, answer in enumerate(await self._writing.answers_of(self.write, asked))
        ]

    async def lets_out(self, entries: Sequence[Entry]) -> list[bool]:
        """Return which of the entries may be shown."""
        if self.recall is None or not entries:
            return [True] * len(entries)
        asked = [(entry.model_copy(deep=True),) async for entry in iterate_cooperatively(entries)]
        return [lets_out(answer) for answer in await self._recalling.answers_of(self.recall, asked)]


class GateRunner:
    """Calls one gate.

    A gate that blocks runs in threads of its own, so a gate that does not return blocks
    no other call.
    """

    def __init__(self, within: timedelta) -> None:
        self._within = within
        self._threads = ThreadPoolExecutor(AT_ONCE, "memory-gate")

    async def answers_of(self, gate: Callable[..., Any], asked: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the gate's answer to each call, or the error."""
        given: dict[int, Any] = {}
        late = Event()

        async def await_answer(number: int, answer: Awaitable[Any]) -> None:
            try:
                given[number] = await answer
            except Exception as error:  # noqa: BLE001 - a gate may raise anything
                given[number] = error

        def called_all() -> None:
            for number, args in enumerate(asked):
                if late.is_set():
                    return
                try:
                    given[number] = gate(*args)
                except Exception as error:  # noqa: BLE001 - as above
                    given[number] = error

        async def collect_answers() -> None:
            if is_async(gate):
                await each_at_once(await_answer(number, gate(*args)) for number, args in enumerate(asked))
            else:
                await asyncio.get_running_loop().run_in_executor(
                    self._threads, contextvars.copy_context().run, called_all
                )
                await each_at_once(
                    await_answer(number, answer)
                    for number, answer in list(given.items())
                    if inspect.isawaitable(answer)
                )

        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._within.total_seconds()):
                    await collect_answers()
        finally:
            late.set()
        answers = [given.get(number, TimeoutError(LATE)) for number in range(len(asked))]
        return [TimeoutError(LATE) if inspect.isawaitable(answer) else answer for answer in answers]


def lets_out(answer: Any) -> bool:
    """Return whether a recall gate's answer shows the entry."""
    return not isinstance(answer, Exception) and bool(answer)


def provenance_of(draft: EntryDraft) -> Provenance:
    """Return the provenance of a draft."""
    return Provenance(draft.source, draft.agent, draft.run, tuple(draft.origins), draft.conversation_id)


def changes_of(answer: Any, position: int = 0) -> dict[str, Any]:
    """Return the changes in a write gate's answer.

    Raises:
        RejectedByGate: The answer refuses the entry, or is no valid answer.
    """
    if answer is True:
        return {}
    if isinstance(answer, Mapping):
        try:
            changes = check_patch(dict(answer))
        except InvalidInput as error:
            raise RejectedByGate(f"the write gate returned invalid values: {error}", position) from None
        if said := sorted(changes.keys() & _SAID):
            raise RejectedByGate(
                f"the write gate must not change the origin of an entry ({', '.join(said)})", position
            )
        return changes
    if isinstance(answer, Exception):
        raise RejectedByGate(
            f"the write gate failed: {LATE if isinstance(answer, TimeoutError) else type(answer).__name__}",
            position,
        ) from answer
    raise RejectedByGate(
        answer if isinstance(answer, str) and answer.strip() else "the write gate refuses it", position
    )


def _apply_changes(draft: Draft, changes: Mapping[str, Any], position: int) -> Draft:
    if not changes:
        return draft
    try:
        return with_changes(draft, changes)
    except InvalidInput as error:
        raise RejectedByGate(f"the write gate returned invalid values: {error}", position) from None
