"""Gates: functions of the caller's that are asked of what is to be written and of what
is to be shown. What they refuse, do not answer within the deadline, or fail over, is
not written, and not shown.
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

from memory.domain.entry import Entry, EntryDraft, check_patch
from memory.domain.errors import InvalidInput, RejectedByGate
from memory.domain.provenance import ORIGIN_KINDS, Provenance
from memory.orchestrator.storage.callbacks import is_async
from memory.orchestrator.storage.placement import Placement
from memory.ports.cooperative import iterate_cooperatively

Verdict: TypeAlias = bool | str | Mapping[str, Any] | None
"""True lets it be written; False refuses it, and so does a text, which says why. What
is given of content, title, type, tags, metadata and expires_at is written instead.
"""
WriteGate: TypeAlias = Callable[[EntryDraft, Provenance], "Verdict | Awaitable[Verdict]"]
RecallGate: TypeAlias = Callable[[Entry], "bool | Awaitable[bool]"]

Draft = TypeVar("Draft", bound=EntryDraft)

_SAID = frozenset({*ORIGIN_KINDS, "origins"})
LATE = "it did not answer in time"
AT_ONCE = 8
"""Calls of one gate that blocks."""


class Gates:
    """The gates of a memory, where it has them."""

    def __init__(
        self, placement: Placement, write: WriteGate | None = None, recall: RecallGate | None = None
    ) -> None:
        self._writing, self._recalling = (GateRunner(placement.settings.deadline) for _ in range(2))
        self.write = write
        self.recall = recall

    async def let_in(self, drafts: Sequence[Draft]) -> list[Draft]:
        """The drafts as they are to be written. Raises `RejectedByGate` for the first that is
        not.
        """
        if self.write is None:
            return list(drafts)
        changes = await self.changes(drafts)
        return [
            _apply_changes(draft, changes[position], position)
            async for position, draft in iterate_cooperatively(list(enumerate(drafts)))
        ]

    async def changes(self, drafts: Sequence[EntryDraft]) -> list[dict[str, Any]]:
        """What the gate changes of each draft. Raises `RejectedByGate` for the first that it
        refuses.
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
        """Which of the entries may be shown."""
        if self.recall is None or not entries:
            return [True] * len(entries)
        asked = [(entry.model_copy(deep=True),) async for entry in iterate_cooperatively(entries)]
        return [lets_out(answer) for answer in await self._recalling.answers_of(self.recall, asked)]


class GateRunner:
    """Asks one gate. One that blocks runs in threads of its own, so that one that does
    not return keeps nothing else from running.
    """

    def __init__(self, within: timedelta) -> None:
        self._within = within
        self._threads = ThreadPoolExecutor(AT_ONCE, "memory-gate")

    async def answers_of(self, gate: Callable[..., Any], asked: Sequence[tuple[Any, ...]]) -> list[Any]:
        """What a gate answers of each, or why it does not."""
        given: dict[int, Any] = {}
        late = Event()

        async def await_answer(number: int, answer: Awaitable[Any]) -> None:
            try:
                given[number] = await answer
            except Exception as error:  # noqa: BLE001 - a gate is anybody's
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
                await asyncio.gather(
                    *(await_answer(number, gate(*args)) for number, args in enumerate(asked))
                )
            else:
                await asyncio.get_running_loop().run_in_executor(
                    self._threads, contextvars.copy_context().run, called_all
                )
                await asyncio.gather(
                    *(
                        await_answer(number, answer)
                        for number, answer in list(given.items())
                        if inspect.isawaitable(answer)
                    )
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
    """Whether a recall gate's answer shows what it was asked of."""
    return not isinstance(answer, Exception) and bool(answer)


def provenance_of(draft: EntryDraft) -> Provenance:
    """What a draft says of where it comes from."""
    return Provenance(draft.source, draft.agent, draft.run, tuple(draft.origins), draft.conversation_id)


def changes_of(answer: Any, position: int = 0) -> dict[str, Any]:
    """What a write gate's answer changes. Raises `RejectedByGate` where it refuses, or is
    none.
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
        return type(draft)(**{**dict(draft), **changes})
    except InvalidInput as error:
        raise RejectedByGate(f"the write gate returned invalid values: {error}", position) from None
