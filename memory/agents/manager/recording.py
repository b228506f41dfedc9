"""What is said while an agent runs, told to every store that learns from it: each once,
in order, behind the agent's back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from datetime import timedelta
from typing import Any

from memory.agents.manager.extraction import Extraction, Model, facts_of
from memory.agents.manager.gates import StoreGates
from memory.agents.manager.spans import span
from memory.agents.manager.spool import Numbered, Position, Spool
from memory.agents.manager.stores import NamedStore
from memory.domain.corrections import explain_guesses
from memory.domain.errors import Conflict, ForkedProcess, RejectedByGate
from memory.domain.message import Message, source_of
from memory.domain.provenance import UNSAID, Provenance, origin
from memory.domain.shapes import import_message, import_messages
from memory.facade.resources.session import MessageLike, Session
from memory.policies.extraction import ExtractedFact, MessageFilter, key_of

log = logging.getLogger(__name__)

PATIENCE = 10
"""Failures in a row after which a store is tried more seldom (E75)."""
SELDOM = 3
"""Of so many requests one is tried then."""


class Attachment:
    """One store and one recording: how far the store has come, and how it fares."""

    def __init__(
        self,
        store: NamedStore,
        spool: Spool,
        context: Mapping[str, Any],
        attributes: Mapping[str, str],
        provenance: Provenance = UNSAID,
        gates: StoreGates | None = None,
    ) -> None:
        assert store.learns is not None  # noqa: S101 - others are not attached
        self._store = store
        self._settings: Extraction = store.learns
        self._spool = spool
        self._context = context
        self._attributes = attributes
        self._provenance = provenance
        self._gates = gates or StoreGates()
        self._turn = asyncio.Lock()
        self._turns = 0
        self._come: Position | None = None
        self._owes_note = False
        """Whether it has come further than is noted."""
        self._failures = 0
        self._waited = 0

    def fires(self) -> bool:
        """Whether a turn that is over asks for a save (E62, E63)."""
        self._turns += 1
        return any(self._turns % trigger.turns == 0 for trigger in self._settings.triggers)  # type: ignore[union-attr]

    async def save(self, *, whatever: bool = False) -> None:
        """Tell the store what it has not; never two at once, so nothing overtakes (E70,
        E73). A failure is logged, and the same is told again the next time; a store
        that failed ten times in a row is tried at every third request, or `whatever` is
        (E75, E78).
        """
        async with self._turn:
            if not whatever and self._failures >= PATIENCE:
                self._waited += 1
                if self._waited % SELDOM:
                    return
            try:
                with span("extract_memory", self._attributes) as describe:
                    describe("gen_ai.memory.record.count", await self._deliver_pending())
            except ForkedProcess:
                raise
            except Exception as error:  # noqa: BLE001 - a store and a model are anybody's
                self._failures += 1
                why = f"{type(error).__name__}: {error}"
                log.warning(
                    "messages were not delivered to memory store '%s', %d times in a row: %s",
                    self._store.name,
                    self._failures,
                    why,
                )

    async def _deliver_pending(self) -> int:
        """Tell everything since the mark; how many messages."""
        if self._come is None:
            self._come = await self._spool.position(self._store.name)
        count = 0
        while True:
            mark, until = self._come.mark, self._come.until
            if self._owes_note:
                await self._spool.commit(self._store.name, mark)
                self._owes_note = False
            batch, behind = await self._spool.since(mark, until)
            if behind == mark:
                return count
            kept = [
                (number, left) for number, message in batch if (left := self._left_of(message)) is not None
            ]
            if kept and until is None and self._settings.extractor is not None:
                self._come = await self._spool.begin_delivery(self._store.name, mark, behind)
                if (self._come.mark, self._come.until) != (mark, behind):
                    continue
            if kept:
                await self._deliver(
                    kept, range(mark, behind), self._came_of([message for _, message in batch])
                )
                self._failures = self._waited = 0
                count += len(kept)
            self._come, self._owes_note = Position(behind), True

    def _left_of(self, message: Message) -> Message | None:
        """What the filter leaves: a copy, so that neither a filter nor a store changes
        what others are told, or this one again (E64, E67).
        """
        leaves = self._settings.filter
        return leaves(message if isinstance(leaves, MessageFilter) else message.model_copy(deep=True))

    def _came_of(self, heard: Sequence[Message]) -> Provenance:
        """Where facts of these messages come from: what tools brought is among it also
        where it is left out, for others repeat it.
        """
        sources = [
            origin("source", source) for message in heard if (source := source_of(message)) is not None
        ]
        return self._provenance.then(Provenance(origins=tuple(sources)))

    async def _deliver(self, batch: Sequence[Numbered], of: range, provenance: Provenance) -> None:
        messages = [message for _, message in batch]
        if self._settings.extractor is None:
            told = {name: value for name, value in self._context.items() if name != "model"}
            await self._store.call(
                "add_messages", messages, {**told, "sequence_numbers": [number for number, _ in batch]}
            )
            return
        facts = await facts_of(self._settings.extractor, messages, self._context)
        with await self._spool.track_source(of):
            results = await asyncio.gather(
                *(self._add_fact(fact, of, provenance) for fact in facts), return_exceptions=True
            )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _add_fact(self, fact: ExtractedFact, of: range, provenance: Provenance) -> None:
        """Keep a fact; by a key where the store takes one, so that it is kept once
        however often it is told (decision E71).
        """
        key = key_of(self._context["run_id"], of, fact.content) if self._store.takes_keys else None
        try:
            await self._gates.add(self._store, fact.content, fact.metadata or None, provenance, key=key)
        except RejectedByGate:
            log.info(
                "the write gate refused a fact, so memory store '%s' does not store it", self._store.name
            )
        except Conflict as error:
            if error.deleted_at is None:
                raise
            log.info(
                "a fact was deleted earlier, so memory store '%s' does not store it again", self._store.name
            )


@explain_guesses
class Recording:
    """One run of an agent, as `MemoryManager.record` gives it out: what is said is
    added, and after each turn stores are told, as their triggers say.

        recording = await manager.record(session=session)
        await recording.add([user_message, answer])
        await recording.turn_ended()

    Stores are told behind the agent's back, and what fails is told again: no failure
    reaches the agent (E72). What goes to one store goes in order, each message once
    unless a failure leaves in doubt whether it arrived (E9); what another store does is
    no matter (E74).
    """

    def __init__(
        self,
        context: dict[str, Any],
        spool: Spool,
        attachments: Sequence[Attachment],
        *,
        behind: Callable[[Coroutine[Any, Any, None]], None],
        leaves: Callable[[], None],
        lets_go: Callable[[timedelta], Awaitable[bool]],
    ) -> None:
        self._context = context
        self._spool = spool
        self._attachments = attachments
        self._behind = behind
        self._leaves = leaves
        self._lets_go = lets_go
        self._stays: timedelta | None = None
        """How long its session is kept once every store has everything; None where that
        is not for the manager to say.
        """

    @property
    def run_id(self) -> str:
        return str(self._context["run_id"])

    def take(self, model: Model | None) -> None:
        """Let this model read what is said, where there is no other."""
        self._context["model"] = self._context["model"] or model

    async def add(self, message: MessageLike | Sequence[MessageLike]) -> None:
        """Note what was said, a message or several, in any shape. Where the recording
        is of a session it is appended there: do not do both.

        From here on nothing is lost, whatever becomes of the caller's own list (E65),
        and where the manager has a memory, of this process. A call that failed can be
        repeated, before anything else is added, as `Session.append` has it.
        """
        await self._spool.add(
            import_messages(message) if isinstance(message, list | tuple) else import_message(message)
        )

    async def turn_ended(self) -> None:
        """A turn of the agent is over: stores whose triggers fire are told, behind its
        back.
        """
        self._behind(self._waits())
        for attachment in self._attachments:
            if attachment.fires():
                self._behind(attachment.save())

    async def _is_of(self, session: Session | None) -> bool:
        """Whether it is of the life that this session has, and not of one of its id
        that was deleted.
        """
        return await self._spool.is_of(session)

    async def _waits(self) -> None:
        """What is appended past the recording waits too."""
        try:
            await self._spool.wait()
        except Exception as error:  # noqa: BLE001 - no failure reaches the agent
            log.warning(
                "pending messages of run '%s' could not be noted: %s: %s",
                self.run_id,
                type(error).__name__,
                error,
            )

    async def flush(self) -> None:
        """Tell every store everything, whatever its triggers and its failures say;
        comes back even where a store fails (E78, E79).
        """
        await asyncio.gather(*(attachment.save(whatever=True) for attachment in self._attachments))

    async def close(self) -> bool:
        """Tell every store everything, and end; whether every store has it, and it was
        noted. What one did not take waits in the session, or is gone where there is
        none. Until it is closed a recording is kept by its manager, whose own `close`
        closes it.
        """
        self._leaves()
        await self.flush()
        try:
            if (
                await self._spool.is_delivered()
                and self._stays is not None
                and await self._lets_go(self._stays)
            ):
                return True
            return await self._spool.close()
        except Exception as error:  # noqa: BLE001 - no failure reaches the agent
            log.warning(
                "the delivery positions of run '%s' could not be noted: %s: %s",
                self.run_id,
                type(error).__name__,
                error,
            )
            return False
