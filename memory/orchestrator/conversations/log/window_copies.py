"""Copies of windows in the short tier, for processes that have not read a session yet.

A window of a thousand messages is a thousand records of the mid tier. A reader leaves
its messages in one record of the short tier's store, after its answer. Another process
reads that record beside the end of the log, which it reads anyway. The copy names the
newest event of the log at that time, by its nonce. It is used if that event is still
there and all later events are known. Messages that these events edit or erase are read
from the log. So a copy decides nothing: without it, the same window takes longer.

A copy has the role `CACHED`, an expiry and the generation of its session. The erasure
of the session deletes it like every record of the conversation, and the generation
refuses late ones. Its version is the moment of its newest event, and these moments only
grow along the log. The erasure of a message leaves a tombstone with the moment of its
own event. So no copy that may have the message is stored afterwards.
"""

from __future__ import annotations

import asyncio
import json
import logging
import zlib
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pydantic import TypeAdapter

from memory.domain import ids
from memory.domain.errors import StoreError, StoreTimeout
from memory.domain.message import Message
from memory.domain.time import micros
from memory.orchestrator.conversations.log.events import Event, event_of_row, row_of, size_of
from memory.orchestrator.conversations.log.folding import State
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.log.seen import WindowCopy, is_cacheable
from memory.orchestrator.storage.collections import ARTIFACTS, MESSAGES
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.placement import Placement, raise_if_rejected, rejection_error
from memory.orchestrator.storage.topology import leaves_of, part_of
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import Everywhere, Lt, Query
from memory.ports.record import Key, Record, Role
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Delete, Newer, Purge, Put, When

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_FOR = timedelta(hours=1)
"""How long after its read from the log a message may be in copies.

An editor that dies between the message and its edit event has acknowledged nothing. A
copy may show the earlier text for this time.
"""
PATIENCE = 0.25
"""Seconds that a reader waits for a copy when it has its answer from home."""
AWAY_FOR = timedelta(seconds=10)
"""How long a store that failed is not asked for copies."""
LINGER = 0.02
"""Seconds between an answer and the work on the copy."""
MOST_AT_ONCE = 4
"""The copies that one process writes at once; others are not written."""
MOST_CHARACTERS = 2 * 2**20
"""The most characters of one copy. It has the newest messages then."""
EVENT_CHARACTERS = 200
"""The approximate size of an event besides its message."""
PORTION, PACKED = 250, 2**18
"""The messages that are encoded or decoded, and the bytes that are compressed, before
other tasks get a turn.
"""
FORMAT = 1
_MESSAGES = TypeAdapter(list[Message])


@dataclass(frozen=True, slots=True)
class CopyExtent:
    """The extent of a copy: the place of the log, and the messages that were read."""

    place: int
    read: int
    version: int
    read_since: datetime

    @classmethod
    def of(cls, copy: WindowCopy) -> CopyExtent:
        return cls(copy.place, copy.read, copy.version, copy.read_since)


def copy_key(life: SessionIncarnation) -> Key:
    """Return the key of the copy of a session's window."""
    return Key(life.tenant, ids.beside(life.incarnation, "window"))


class WindowCopies:
    """Reads, writes and removes copies of windows.

    Does nothing where one store holds the short tier and the sessions. A failure of the
    short store fails no read.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._least = placement.settings.copied_window
        self._tasks: set[asyncio.Task[None]] = set()
        self._writing: set[Key] = set()
        self._hurry = asyncio.Event()
        self._away_until: datetime | None = None

    def _store(self, life: SessionIncarnation) -> Store | None:
        """Return the store of the copies; None if it also has the messages."""
        topology = self._placement.topology
        short = topology.serving["short"]
        if not self._placement.holds_window_copies(short) or part_of(
            short, life.partition, ARTIFACTS
        ) is part_of(topology.archive, life.partition, MESSAGES):
            return None
        return short

    @property
    def least(self) -> int:
        """The fewest messages that are worth a copy."""
        return self._least

    def run_of(self, life: SessionIncarnation) -> str | None:
        """Return the current run of the store; None if copies are not used now.

        A copy is not written in a later run than that in which its read began. A
        volatile store forgets in between which copies it must refuse.
        """
        store = self._store(life)
        if store is None or (self._away_until is not None and self._placement.now() < self._away_until):
            return None
        return store.epoch

    # -- reading -----------------------------------------------------------------------

    async def find_beside(
        self, life: SessionIncarnation, home: Coroutine[Any, Any, T]
    ) -> tuple[T, WindowCopy | None]:
        """Return the answer of a read of the log, and the copy that was read meanwhile.

        A copy that is not there soon after the answer is not waited for.
        """
        finding = asyncio.create_task(self.find(life))
        try:
            answer = await home
            await asyncio.wait({finding}, timeout=PATIENCE)
        finally:
            is_late = finding.cancel()
        if is_late and (store := self._store(life)) is not None:
            self._note_failure(store, StoreTimeout(store.name, f"no copy within {PATIENCE} s"))
        return answer, None if is_late else finding.result()

    async def find(self, life: SessionIncarnation) -> WindowCopy | None:
        """Return the copy of a window; None if there is none that can be used."""
        store, now = self._store(life), self._placement.now()
        if store is None:
            return None
        try:
            row = await self._placement.read_one("copies.read", store, ARTIFACTS, copy_key(life))
        except Exception as error:  # noqa: BLE001 - no failure of the store fails the read
            self._note_failure(store, error)
            return None
        if (
            not isinstance(row, Record)
            or row.role is not Role.CACHED
            or (row.scope, row.generation, row.epoch) != (life.scope, life.generation, store.epoch)
            or row.cached_at is None
            or abs(now - row.cached_at) >= KEPT_FOR
        ):
            return None
        try:
            return await _decode(row)
        except (ValueError, TypeError, KeyError, zlib.error) as error:
            log.info("a copy of a window in store '%s' cannot be read: %s", store.name, type(error).__name__)
            return None

    # -- writing -----------------------------------------------------------------------

    def is_due(self, copy: WindowCopy, before: CopyExtent | None, *, whole: bool) -> bool:
        """Return whether a copy is worth writing.

        It must have enough more than the copy that was met before, or replace one that
        expires soon. After a read of a part of the window, it must also not have fewer
        messages.
        """
        if copy.read < self._least or before is None:
            return copy.read >= self._least
        if copy.place < before.place or (copy.read < before.read and not whole):
            return False
        more = max(1, self._least // 4)
        return (
            copy.place - before.place >= more
            or copy.read - before.read >= more
            or copy.read_since - before.read_since >= KEPT_FOR / 2
        )

    def write(
        self, life: SessionIncarnation, copy: WindowCopy, before: CopyExtent | None, run: str
    ) -> CopyExtent | None:
        """Write the copy in the background, unless too many are being written.

        Args:
            run: The run of the store when the read began.

        Returns the extent of the copy that is expected to be stored then.
        """
        store, key = self._store(life), copy_key(life)
        if store is None or self.run_of(life) != run:
            return before
        if key in self._writing or len(self._writing) >= MOST_AT_ONCE:
            return before
        replaces = before is not None and before.version == copy.version
        when: When = AtVersion(copy.version, role=Role.CACHED) if replaces else Newer()
        self._writing.add(key)
        self._spawn(self._write(store, life, copy, when, run), key)
        return CopyExtent.of(copy)

    def discard(self, life: SessionIncarnation, copy: WindowCopy) -> None:
        """Remove a copy that does not belong to the log, in the background."""
        store, key = self._store(life), copy_key(life)
        if store is not None and key not in self._writing and len(self._writing) < MOST_AT_ONCE:
            self._writing.add(key)
            self._spawn(self._apply("copies.discard", store, Purge(ARTIFACTS, key, at=copy.version)), key)

    def _spawn(self, work: Coroutine[Any, Any, None], key: Key) -> None:
        def end(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            self._writing.discard(key)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a copy of a window was not written: %s", error)

        task = asyncio.create_task(work, name="memory-window-copy")
        self._tasks.add(task)
        task.add_done_callback(end)

    async def _write(
        self, store: Store, life: SessionIncarnation, copy: WindowCopy, when: When, run: str
    ) -> None:
        try:
            async with asyncio.timeout(LINGER):
                await self._hurry.wait()
        except TimeoutError:
            pass
        data = await _encode(_newest(copy.events.values()).values())
        now = self._placement.now()
        record = Record(
            copy_key(life),
            life.scope,
            copy.version,
            now,
            now,
            expires_at=copy.read_since + KEPT_FOR,
            fields={"conversation_id": life.session_id, "data": data},
            body={"format": FORMAT, "place": copy.place, "nonce": copy.nonce, "read": copy.read},
            generation=life.generation,
            role=Role.CACHED,
            tier="short",
            cached_at=copy.read_since,
            epoch=run,
        )
        if store.epoch != run:
            return
        await self._apply("copies.write", store, Put(ARTIFACTS, record, when))

    async def _apply(self, name: str, store: Store, write: Put | Purge) -> None:
        answer = await self._placement.answer(store, self._placement.write_one(name, store, write))
        if isinstance(answer, StoreError):
            self._note_failure(store, answer)
        elif (error := rejection_error(store, answer)) is not None:
            self._note_failure(store, error)

    def _note_failure(self, store: Store, error: Exception) -> None:
        self._away_until = self._placement.now() + AWAY_FOR
        log.info("store '%s' is not asked for copies of windows for a while: %s", store.name, error)

    # -- erasing -----------------------------------------------------------------------

    async def fence(self, life: SessionIncarnation, state: State) -> None:
        """Remove the copy, and refuse all copies that were read before this state.

        A later copy was read after it, and has only what the window has since.

        Raises:
            StoreError: The store failed. The copy may still be there.
        """
        if (store := self._store(life)) is None:
            return
        until = self._placement.now() + 2 * self._placement.settings.mark_life
        fence = Delete(ARTIFACTS, copy_key(life), micros(state.created_at), Newer(), discard_at=until)
        outcome = await self._placement.write_one("copies.fence", store, fence)
        raise_if_rejected(store, outcome)

    async def purge_expired(self, hold: LeaseCheck) -> int:
        """Remove expired copies from stores that do not do so themselves.

        Returns their number. A store that fails keeps its copies until the next sweep.
        """
        topology, purged = self._placement.topology, 0
        short = topology.serving["short"]
        for leaf in leaves_of(short) if self._placement.holds_window_copies(short) else ():
            if leaf in leaves_of(topology.archive) or leaf.capabilities.ttl:
                continue
            try:
                purged += await self._purge_expired_in(leaf, hold)
            except StoreError as error:
                log.info("expired copies of windows stay in store '%s': %s", leaf.name, error)
        return purged

    async def _purge_expired_in(self, leaf: Store, hold: LeaseCheck) -> int:
        purged = 0
        query = Query(
            ARTIFACTS,
            Everywhere(),
            Lt("expires_at", self._placement.now()),
            limit=self._placement.settings.page,
            roles=frozenset({Role.CACHED}),
            select=frozenset(),
        )
        async for page in self._placement.pages("copies.expired", leaf, query):
            if page.heads:
                await hold(len(page.heads))
                purges = [Purge(ARTIFACTS, head.key, at=head.version) for head in page.heads]
                outcomes = await self._placement.write("copies.purge", leaf, *purges)
                purged += sum(outcome.applied for outcome in outcomes)
        return purged

    async def close(self) -> None:
        """Finish the copies that are being written."""
        self._hurry.set()
        while self._tasks:
            await asyncio.wait(self._tasks)
        self._hurry = asyncio.Event()

    def cancel(self) -> None:
        """Give up the copies that are still being written."""
        for task in self._tasks:
            task.cancel()


def _newest(events: Iterable[Event]) -> dict[int, Event]:
    """Return the newest events with messages that fit into one copy."""
    found, left = dict[int, Event](), MOST_CHARACTERS
    for event in sorted(events, key=lambda event: event.place, reverse=True):
        if event.draft.message is None or event.draft.artifacts or not is_cacheable(event):
            continue  # a large text is read from the log
        left -= EVENT_CHARACTERS + size_of(event.draft.message)
        if left < 0:
            break
        found[event.place] = event
    return found


async def _encode(events: Iterable[Event]) -> bytes:
    """Return events as compressed JSON: a line of rows, and one of messages."""
    rows, said = list[str](), list[str]()
    async for event in iterate_cooperatively(events, PORTION):
        if event.draft.message is not None:
            rows.append(json.dumps(row_of(event), separators=(",", ":")))
            said.append(event.draft.message.model_dump_json(exclude_defaults=True))
    text = f"[{','.join(rows)}]\n[{','.join(said)}]".encode()
    packer, packed = zlib.compressobj(1), list[bytes]()
    async for start in iterate_cooperatively(range(0, len(text), PACKED), 1):
        packed.append(packer.compress(text[start : start + PACKED]))
    return b"".join((*packed, packer.flush()))


async def _decode(record: Record) -> WindowCopy:
    """Return the copy in a record.

    Raises:
        ValueError, TypeError, KeyError, zlib.error: The record has another form.
    """
    body, data, read_since = record.body, record.fields.get("data"), record.cached_at
    if body["format"] != FORMAT or not isinstance(data, bytes) or read_since is None:
        raise ValueError(f"format {body['format']}")
    rows, _, said = zlib.decompress(data).partition(b"\n")
    told = zip(json.loads(rows), _MESSAGES.validate_json(said), strict=True)
    events = [
        event_of_row(record.key.tenant, row, message)
        async for row, message in iterate_cooperatively(told, PORTION)
    ]
    return WindowCopy(
        int(body["place"]),
        str(body["nonce"]),
        record.version,
        read_since,
        {event.place: event for event in events},
        int(body["read"]),
    )
