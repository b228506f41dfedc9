"""Deliver messages of a running agent to the stores that learn from them.

Each store receives each message once and in order, in the background.
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
from memory.domain.message import Message, origins_of
from memory.domain.provenance import UNSAID, Provenance
from memory.domain.shapes import import_message, import_messages
from memory.facade.resources.session import MessageLike, Session
from memory.policies.extraction import ExtractedFact, MessageFilter, key_of
from memory.ports.concurrency import each_at_once, outcomes_at_once

log = logging.getLogger(__name__)

PATIENCE = 10
"""After this many failures in a row a store is tried less often."""
SELDOM = 3
"""Then only one of this many requests is tried."""


class Attachment:
    """The delivery state of one store in one recording."""

    def __init__(
        self,
        store: NamedStore,
        spool: Spool,
        context: Mapping[str, Any],
        attributes: Mapping[str, str],
        provenance: Provenance = UNSAID,
        gates: StoreGates | None = None,
    ) -> None:
        assert store.learns is not None  # noqa: S101 - other stores are not attached
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
        """Whether the position has advanced beyond the stored one."""
        self._failures = 0
        self._waited = 0

    @property
    def is_busy(self) -> bool:
        """Whether a delivery to the store is under way."""
        return self._turn.locked()

    @property
    def store_name(self) -> str:
        return self._store.name

    def fires(self) -> bool:
        """Count an ended turn and return whether a trigger asks for a save."""
        self._turns += 1
        return any(self._turns % trigger.turns == 0 for trigger in self._settings.triggers)  # type: ignore[union-attr]

    async def save(self, *, whatever: bool = False) -> None:
        """Deliver pending messages to the store, one call at a time and in order.

        A failure is logged, and the same messages are delivered again next time. After
        ten failures in a row only every third call tries, unless `whatever` is True.
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
            except Exception as error:  # noqa: BLE001 - stores and models may raise anything
                self._failures += 1
                why = f"{type(error).__name__}: {error}"
                log.warning(
                    "messages were not delivered to memory store '%s', %d times in a row: %s",
                    self._store.name,
                    self._failures,
                    why,
                )

    async def _deliver_pending(self) -> int:
        """Deliver all messages after the position and return their number."""
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
        """Return the filtered message, or None if the filter leaves it out.

        The filter gets a copy, so it cannot change what other stores receive.
        """
        leaves = self._settings.filter
        return leaves(message if isinstance(leaves, MessageFilter) else message.model_copy(deep=True))

    def _came_of(self, heard: Sequence[Message]) -> Provenance:
        """Return the provenance of facts from these messages.

        It includes results of tools that the filter left out: other messages may repeat
        them.
        """
        sources = [one for message in heard for one in origins_of(message)]
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
            results = await outcomes_at_once(self._add_fact(fact, of, provenance) for fact in facts)
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _add_fact(self, fact: ExtractedFact, of: range, provenance: Provenance) -> None:
        """Add a fact to the store.

        If the store takes keys, the fact has one, so a repeated delivery stores it
        once.
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
    """A recording of one run of an agent, returned by `MemoryManager.record`.

    Add messages to it. After each turn the stores whose triggers fire receive them.

        recording = await manager.record(session=session)
        await recording.add([user_message, answer])
        await recording.turn_ended()

    Delivery runs in the background, and failed deliveries are repeated. No failure
    reaches the agent. Each store receives the messages in order, and each of them once.
    Only a delivery that a failure left in doubt is repeated. Stores do not affect each
    other.
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
        """How long the session is kept after full delivery.

        None if the manager does not own the session.
        """

    @property
    def run_id(self) -> str:
        """The name of the run in keys and contexts."""
        return str(self._context["run_id"])

    def take(self, model: Model | None) -> None:
        """Use this model to read messages if there is no other."""
        self._context["model"] = self._context["model"] or model

    async def add(self, message: MessageLike | Sequence[MessageLike]) -> None:
        """Add one or several messages, in any supported shape.

        With a session they are appended to it, so do not append them yourself too.
        Later changes of the caller's list have no effect. If the manager has a memory,
        the messages also survive this process. A failed call can be repeated before
        anything else is added, as with `Session.append`.
        """
        await self._spool.add(
            import_messages(message) if isinstance(message, list | tuple) else import_message(message)
        )

    async def turn_ended(self) -> None:
        """Count the end of a turn, and save to the stores whose triggers fire.

        The saves run in the background.
        """
        self._behind(self._waits())
        for attachment in self._attachments:
            if attachment.fires():
                self._behind(attachment.save())

    @property
    def _busy_stores(self) -> list[str]:
        """The names of the stores to which a delivery is under way."""
        return [one.store_name for one in self._attachments if one.is_busy]

    async def _is_of(self, session: Session | None) -> bool:
        """Return whether the recording is of this session.

        A deleted session with the same id is another session.
        """
        return await self._spool.is_of(session)

    async def _waits(self) -> None:
        """Store that messages which others appended to the session are pending."""
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
        """Deliver everything to every store, despite triggers and earlier failures.

        Failures are logged, not raised.
        """
        await each_at_once(attachment.save(whatever=True) for attachment in self._attachments)

    async def close(self) -> bool:
        """Deliver everything to every store and end the recording.

        Undelivered messages wait in the session; without a session they are lost. The
        manager keeps a recording until it is closed, and closes it in its own `close`.

        Returns:
            Whether every store has everything and this was stored.
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
