"""The log of one session, as one handle reads and writes it.

The handle keeps the fold of the events that it has seen. The next put confirms or
corrects that state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from memory.domain.errors import Conflict, CorruptRecord, NotFound, StoreTimeout, StoreUnavailable
from memory.domain.ids import is_id
from memory.domain.message import Message
from memory.domain.time import micros, moment
from memory.orchestrator.conversations.blobs.large_texts import (
    Artifacts,
    chunks_of,
    large_texts,
    restore_large_texts,
    uploads_of,
)
from memory.orchestrator.conversations.blobs.uploads import StaleGeneration, Uploads
from memory.orchestrator.conversations.log.events import (
    ERASED_ID,
    FIRST_PLACE,
    Draft,
    Event,
    EventType,
    erased_id,
    event_of,
    place_key,
    record_of,
)
from memory.orchestrator.conversations.log.folding import State, is_spoken
from memory.orchestrator.conversations.log.incarnation import SessionIncarnation
from memory.orchestrator.conversations.log.passages import Passages
from memory.orchestrator.conversations.log.seen import (
    NEWEST,
    REMEMBERED_FOR,
    ForeignCopy,
    LogSnapshot,
    WindowCopy,
    edited_while_read,
    has_gap,
    is_another,
    wanted_of,
)
from memory.orchestrator.conversations.log.window_copies import CopyExtent, WindowCopies
from memory.orchestrator.storage.collections import MESSAGES
from memory.orchestrator.storage.key_locks import RetryDeadline
from memory.orchestrator.storage.placement import Placement, raise_if_rejected
from memory.orchestrator.storage.places import NOWHERE, Places
from memory.orchestrator.storage.requests import RequestMark
from memory.orchestrator.storage.versions import version_at
from memory.ports.cooperative import iterate_cooperatively
from memory.ports.query import And, Condition, Eq, Ge, In, Le, Order, Query, within
from memory.ports.record import Key, PendingStep, Record, Stored
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Put, Status

log = logging.getLogger(__name__)

LOOKED_AT = 8
"""Places that a refresh reads: the last known one, and those after it.

The last known place shows whether its event is still there. If all places after it are
taken, the end of the log is read again.
"""
ROWS = 100
"""Rows that are parsed before other tasks get a turn."""
TAKEN_FROM_US = 2
"""Consecutive places lost to other writers before the log is read again.

Before that, the handle takes in the other writers' events one by one.
"""


Decide = Callable[[LogSnapshot], Sequence[Draft]]
"""Decides which events to append to a log in this state; an empty list appends nothing.

It is called again whenever another writer was first.
"""

AT_ONCE = 100
"""Events that are prepared before other tasks get a turn."""


class _FoundMade(Exception):
    """An earlier attempt of the request has appended its event already."""

    def __init__(self, event: Event) -> None:
        super().__init__(event)
        self.event = event


class _MayBeMade(Exception):
    """Events that were not looked at may include that of the request."""


class Log:
    """The log of one session, from its creation to its deletion."""

    def __init__(
        self,
        placement: Placement,
        uploads: Uploads,
        passages: Passages,
        life: SessionIncarnation,
        renewed: Callable[[SessionIncarnation], Awaitable[SessionIncarnation]],
        copies: WindowCopies,
    ) -> None:
        self._placement = placement
        self._uploads = uploads
        self._passages = passages
        self.life = life
        self.copies = copies
        self.messages = 0
        """The messages of the history by the session's record, which may be behind."""
        self._copied: CopyExtent | None = None
        """The copy of the window in the short tier, as this handle last met it."""
        self._renewed = renewed
        """Loads the current life from the session's record.

        Raises `NotFound` if that life has ended.
        """
        self._seen: LogSnapshot | None = None
        self._turn = asyncio.Lock()
        self._unsure: list[Event] = []
        """The events of the last put, if the store never confirmed it."""
        self._being_said: dict[str, Event] = {}
        """Messages that are not final, as last put here.

        Another process may have changed them.
        """
        self._lost = NOWHERE
        """Places whose event was read here and is gone or replaced since."""

    @property
    def store(self) -> Store:
        return self._placement.topology.archive

    @property
    def snapshot(self) -> LogSnapshot | None:
        """The log's state as this handle has seen it; None before the first read."""
        return self._seen

    @property
    def gaps(self) -> Places:
        """Places whose event was lost, as far as this handle has noticed.

        Such a place is empty, or holds another event since the store was restored.
        """
        return self._lost if self._seen is None else Places.of((*self._lost, *self._seen.gaps))

    @property
    def cached_snapshot(self) -> LogSnapshot | None:
        """The known state, if it was complete within the last `REMEMBERED_FOR`."""
        seen = self._seen
        return (
            seen
            if seen is not None and timedelta(0) <= self._placement.now() - seen.as_of < REMEMBERED_FOR
            else None
        )

    def forget(self) -> None:
        """Discard everything that this handle knows of the log."""
        self._seen = None
        self._being_said.clear()

    def key(self, place: int) -> str:
        return place_key(self.life.tenant, self.life.incarnation, place).id

    def mark_empty(self) -> None:
        """Cache an empty log, because the session was just created here."""
        now = self._placement.now()
        self._seen = LogSnapshot(
            State.initial(self.life.has_system, self.life.created_at), read_since=now, as_of=now
        )

    # -- reading -----------------------------------------------------------------------

    async def load(self) -> LogSnapshot:
        """Return the current end of the log."""
        seen = self._seen
        if seen is None:
            return await self._read_end()
        await self._refresh(())
        return self._seen or seen

    async def _refresh(self, places: Iterable[int]) -> dict[int, Event]:
        """Return the current events at these places, and take in newer events.

        Cached events are not read again. After a writer has changed an event, it
        appends an edit event, which this method finds among the newer events. If the
        writer crashed before it appended the edit event, the outdated cached event is
        used for at most `REMEMBERED_FOR`.
        """
        seen, now = self._seen or await self._read_end(), self._placement.now()
        before, nonce = seen.state.place, seen.nonce
        is_old = not timedelta(0) <= now - seen.read_since < REMEMBERED_FOR
        ahead = range(before + 1, before + LOOKED_AT)
        wanted, known = list(places), {} if is_old else seen.events
        read = list(
            dict.fromkeys(
                [*(place for place in wanted if place not in known), *([before] if nonce else []), *ahead]
            )
        )
        rows = dict(zip(read, await self._rows(read), strict=True))
        found = {event.place: event async for event in self._paced_events(rows.values())}
        found |= await self.at(edited_while_read(found))
        if is_old:
            seen.events, seen.read_since, seen.copied_since = {}, now, None
        if nonce and is_another(rows[before], nonce):
            await self._start_over(before)
            return found
        seen.as_of = now
        if rows[ahead[-1]] is not None or has_gap([rows[place] for place in ahead]):
            await self._read_end()
        elif rows[ahead[0]] is not None:
            new = seen.copy()
            for place in range(new.state.place + 1, ahead[-1]):  # others may have taken in some
                if place in found:
                    new.take(found[place])
                elif rows.get(place) is not None:
                    new.pass_over(place)
                else:
                    break
            self._update_snapshot(new)
            before = new.state.place
        latest = self._seen or seen
        if latest.state.place == before:  # otherwise a new event may be an edit of one of them
            for event in found.values():
                if event.place < ahead[0]:
                    latest.keep(event)
        return {place: latest.events[place] for place in wanted if place in latest.events} | found

    async def _start_over(self, place: int) -> None:
        """Read the log again after its newest known event, at this place, disappeared.

        The store was restored to an earlier state. Raises `NotFound` if instead the
        session was deleted.
        """
        await self._renewed(self.life)
        self.forget()
        at = (await self._read_end()).state.place
        self._lost = Places.of((*self._lost, *range(min(at, place - 1) + 1, place + 1)))
        log.warning(
            "session %s is shorter than when it was read here: its store '%s' was restored to an earlier"
            " state",
            self.life.session_id,
            self.store.name,
        )

    def _update_snapshot(self, seen: LogSnapshot) -> None:
        """Replace this handle's state, unless it has a newer one."""
        if self._seen is None or self._seen.state.place <= seen.state.place:
            self._seen = seen

    async def _read_end(self) -> LogSnapshot:
        now = self._placement.now()
        query = Query(
            MESSAGES, within(self.life.partition), order=(Order("created_at", descending=True),), limit=NEWEST
        )
        page = await self._placement.page("log.load", self.store, query)
        events = {event.place: event for event in self.events_of(page.records)}
        seen = LogSnapshot(
            State.initial(self.life.has_system, self.life.created_at), read_since=now, as_of=now
        )
        if events:
            newest = events[max(events)]
            base = newest.after.base
            missing = [
                p for p in range(max(min(base, *events), FIRST_PLACE), newest.place) if p not in events
            ]
            rows = await self._rows(missing)
            seen.gaps = Places.of(place for place, row in zip(missing, rows, strict=True) if row is None)
            events |= {event.place: event for event in self.events_of(rows)}
            if (
                base >= FIRST_PLACE and base not in events
            ):  # damaged: its totals follow from all earlier events
                events |= await self.at(range(FIRST_PLACE, base))
            if base in events and (window := events[base].window) is not None:
                seen.state = State(
                    base, events[base].after, window, events[base].created_at, events[base].pinned
                )
                seen.nonce = events[base].draft.nonce
                seen.keep(events[base])
            for place in sorted(events):
                if place > seen.state.place:
                    seen.take(events[place])
                else:
                    seen.keep(events[place])
            seen.since = min(events)
            unread = [place for place in missing if place not in events]
            seen.complete_from = max(seen.complete_from, seen.since, *[place + 1 for place in unread])
        if self._seen is not None:
            seen.follows(self._seen)
        self._update_snapshot(seen)
        return seen

    def _event(self, stored: object) -> Event | None:
        """Return the event of a record; None if it belongs to another life."""
        if not isinstance(stored, Record):
            return None
        event = event_of(stored)
        return event if stored.key.id == self.key(event.place) else None

    def events_of(self, records: Iterable[object]) -> list[Event]:
        """Return the events of records, in their order."""
        return [event for event in map(self._event, records) if event is not None]

    async def at(self, places: Iterable[int]) -> dict[int, Event]:
        """Return the readable events at these places."""
        return {event.place: event async for event in self._paced_events(await self._rows(list(places)))}

    async def _paced_events(self, rows: Iterable[object]) -> AsyncIterator[Event]:
        """Yield the events of rows, with turns for other tasks."""
        async for row in iterate_cooperatively(rows, ROWS):
            if (event := self._event(row)) is not None:
                yield event

    async def _rows(self, places: Sequence[int]) -> list[Stored | None]:
        """Return the rows at these places."""
        keys, most = (
            [place_key(self.life.tenant, self.life.incarnation, place) for place in places],
            self._placement.settings.page,
        )
        found: list[Stored | None] = []
        for start in range(0, len(keys), most):
            found += await self._placement.read("log.read", self.store, MESSAGES, keys[start : start + most])
        return found

    async def of(self, keys: Sequence[Key]) -> list[Event]:
        """Return the readable events of these records."""
        return (
            self.events_of(await self._placement.read("log.read", self.store, MESSAGES, keys)) if keys else []
        )

    async def window(self, newest: int | None = None) -> tuple[State, dict[int, Event]]:
        """Return the log's current state, and the messages of its window by place.

        With `newest`, these are the pinned messages and that many of the newest.
        Damaged messages are left out.
        """
        seen, run = self._seen, self.copies.run_of(self.life)
        before = None if seen is None else seen.state.place
        if run is not None and self._wants_copy(seen, newest):
            seen, there = await self._read_beside_copy(seen)
        elif seen is None:
            seen = await self._read_end()
            there = dict(seen.events)
        else:
            there = await self._refresh(wanted_of(seen.state, newest))
            seen = self._seen or seen
        state = seen.state  # read it once: an append that ends during the next read changes it
        copy = None if run is None else self._copy_of(seen, before)
        wanted = wanted_of(state, newest)
        there |= await self.at([place for place in wanted if place not in there])
        found = {place: there[place] for place in wanted if place in there}
        if run is not None and copy is not None:
            copy = replace(copy, events=seen.current_of(found), read=len(found))
            self._leave_copy(copy, run, whole=newest is None)
        return state, found

    # -- copies of the window ----------------------------------------------------------

    def _wants_copy(self, seen: LogSnapshot | None, newest: int | None) -> bool:
        """Return whether a copy of the window would spare a large part of its read."""
        least = self.copies.least
        if seen is None:
            return self.messages >= least and (newest is None or newest >= least)
        is_old = not timedelta(0) <= self._placement.now() - seen.read_since < REMEMBERED_FOR
        missing = sum(place not in seen.events for place in wanted_of(seen.state, newest))
        return missing >= least and not is_old

    async def _read_beside_copy(self, seen: LogSnapshot | None) -> tuple[LogSnapshot, dict[int, Event]]:
        """Read the end of the log and the copy of its window at once.

        Returns the log's current state, and the events that are known then.
        """
        if seen is None:
            now, copy = await self.copies.find_beside(self.life, self._read_end())
        else:
            _, copy = await self.copies.find_beside(self.life, self._refresh(()))
            now = self._seen or seen
        found: dict[int, Event] = {}
        self._copied = None
        if copy is not None:
            try:
                found = now.take_copy(copy) or {}
                self._copied = CopyExtent.of(copy)
            except ForeignCopy:
                self.copies.discard(self.life, copy)
        return now, found | now.events

    def _copy_of(self, seen: LogSnapshot, before: int | None) -> WindowCopy | None:
        """Return a copy of this state, without messages yet.

        Returns None if an edit since the place `before` may be unknown.
        """
        if not seen.nonce or (before is not None and seen.complete_from > before + 1):
            return None
        return WindowCopy(seen.state.place, seen.nonce, micros(seen.state.created_at), seen.origin, {})

    def _leave_copy(self, copy: WindowCopy, run: str, *, whole: bool) -> None:
        """Leave a copy of the window for other processes, if it is worth it."""
        if self.copies.is_due(copy, self._copied, whole=whole):
            self._copied = self.copies.write(self.life, copy, self._copied, run)

    async def window_at(self, place: int) -> list[Event]:
        """Return the messages of the window right after this place, ordered by place.

        Damaged messages are left out.
        """
        there = await self.at([place])
        if place not in there:
            return []
        state = await self._state_at(there)
        there |= await self.at([each for each in state.window if each not in there])
        return [there[each] for each in state.window if each in there]

    async def state_at(self, place: int) -> State:
        """Return the log's state right after this place, as far as it is readable."""
        if place < FIRST_PLACE:
            return State.initial(self.life.has_system, self.life.created_at)
        while not (there := await self.at([place])) and place > FIRST_PLACE:
            place -= 1  # damaged: its change is unknown
        return await self._state_at(there)

    async def _state_at(self, there: dict[int, Event]) -> State:
        """Return the log's state after the only event in `there`.

        The events that are read for it are added to `there`.
        """
        place = max(there, default=FIRST_PLACE - 1)
        base = there[place].after.base if there else place
        there |= await self.at(range(max(base, FIRST_PLACE), place))
        if base >= FIRST_PLACE and base not in there:  # damaged, as in `load`
            there |= await self.at(range(FIRST_PLACE, base))
        begun = there.get(base)
        state = State.initial(self.life.has_system, self.life.created_at)
        if begun is not None and begun.window is not None:
            state = State(base, begun.after, begun.window, begun.created_at, begun.pinned)
        for number in sorted(there):
            if number > state.place:
                state = state.with_event(there[number])
        return state

    async def find(self, message_id: str, *, as_seen: bool = False, redacted: bool = False) -> Event | None:
        """Return the current message with this id; None if the log has none.

        `message_id` is the id that the caller gave, or the id of the record.

        Args:
            as_seen: Also return None if the log had no such message when this handle
                last read it. An append needs no more, because it reads newer events.
            redacted: Find an erased message too, by the id of its record.
        """
        seen = self._seen or await self.load()
        if (place := seen.ids.get(message_id)) is not None:
            event = (await self.at([place])).get(place)
            if event is None or not event.is_redacted:
                return event
            seen.keep(event)  # erased since, perhaps by a process that crashed: its id is free
        if is_id(message_id):
            row = await self._placement.read_one(
                "log.read", self.store, MESSAGES, Key(self.life.tenant, message_id)
            )
            if (event := self._event(row)) is not None and is_spoken(event):
                return event if redacted or not event.is_redacted else None
        if as_seen and seen.since <= FIRST_PLACE:
            return None
        asked = And((Eq("conversation_id", self.life.session_id), Eq("message_id", message_id)))
        page = await self._placement.page(
            "log.find", self.store, Query(MESSAGES, within(self.life.partition), asked, limit=2)
        )
        return next(iter(self.events_of(page.records)), None)

    async def find_many(self, message_ids: Iterable[str]) -> dict[str, Event]:
        """Return the current messages with these ids, each under its id; see `find`.

        Erased messages are left out. All are read together.
        """
        seen, left = self._seen or await self.load(), dict.fromkeys(message_ids)
        places = {name: seen.ids[name] for name in left if name in seen.ids}
        there = await self.at(set(places.values())) if places else {}
        found = {name: there[place] for name, place in places.items() if place in there}
        keys = [Key(self.life.tenant, name) for name in left if name not in found and is_id(name)]
        found |= {event.key.id: event for event in await self.of(keys) if is_spoken(event)}
        names, most = [name for name in left if name not in found], self._placement.settings.page
        for start in range(0, len(names), most):
            given = In("message_id", tuple(names[start : start + most]))
            asked = And((Eq("conversation_id", self.life.session_id), given))
            query = Query(MESSAGES, within(self.life.partition), asked, limit=most)
            async for page in self._placement.pages("log.find", self.store, query):
                found |= {str(event.given_id): event for event in self.events_of(page.records)}
        return {name: event for name, event in found.items() if not event.is_redacted}

    async def whole(self, events: Iterable[Event], *, strict: bool = False) -> list[Event]:
        """Return the events with the complete texts of their messages.

        A message that was changed or erased during the read is returned in its newer
        form. A text's damaged or missing parts are marked in place. With `strict` they
        raise `CorruptRecord`; use it before the message is written again.
        """
        given = list(events)
        return given if all(event.draft.is_whole for event in given) else await self._whole(given, strict)

    async def _whole(self, given: Sequence[Event], strict: bool) -> list[Event]:
        found: dict[int, Event] = {}
        left = [event for event in given if not event.draft.is_whole]
        patience = RetryDeadline(self._placement, self.life.session_id)
        while True:
            texts = await self._uploads.texts(
                self.life, [artifact for event in left for artifact in event.draft.artifacts]
            )
            lacking = {
                e.place for e in left if not all(chunk in texts for chunk in chunks_of(e.draft.artifacts))
            }
            now = await self.at(sorted(lacking)) if lacking else {}
            changed = [now[e.place] for e in left if e.place in now and now[e.place].version != e.version]
            others = {event.place for event in changed}
            for event in left:
                if event.place not in others and event.draft.message is not None:
                    if strict and event.place in lacking:
                        raise CorruptRecord(
                            self.store.name,
                            event.key.id,
                            "one of its large texts is damaged or missing. Erase the message",
                        )
                    found[event.place] = event.with_texts(
                        restore_large_texts(event.draft.message, event.draft.artifacts, texts)
                    )
            found |= {event.place: event for event in changed if event.draft.is_whole}
            left = [event for event in changed if not event.draft.is_whole]
            if not left:
                return [event if event.draft.is_whole else found[event.place] for event in given]
            await patience.wait()

    async def erased_ids(self, message_ids: Iterable[str]) -> set[str]:
        """Return the ids under which messages were erased."""
        return {name async for name, _ in self.erasures_of(message_ids)}

    async def erasures_of(self, message_ids: Iterable[str]) -> AsyncIterator[tuple[str, Event]]:
        """Yield the erased messages that had one of these ids, with the id."""
        hashes = {erased_id(self.life.session_id, name): name for name in message_ids}
        names, most = list(hashes), self._placement.settings.page
        for start in range(0, len(names), most):
            asked = And(
                (
                    Eq("conversation_id", self.life.session_id),
                    In("message_id", tuple(names[start : start + most])),
                )
            )
            query = Query(MESSAGES, within(self.life.partition), asked, limit=most)
            async for page in self._placement.pages("log.erased", self.store, query):
                for event in self.events_of(page.records):
                    if event.is_redacted:
                        yield hashes[str(event.draft.data[ERASED_ID])], event

    async def find_made(self, request: RequestMark | None) -> Event | None:
        """Return the event that an earlier attempt of the request appended, or None.

        Only a repeat reads anything: the events since the request began.
        """
        if request is None or not request.repeats:
            return None
        async for event in self.events_where("log.made", Ge("created_at", moment(request.since))):
            if event.draft.nonce == request.text:
                return event
        return None

    async def events_where(self, name: str, *asked: Condition) -> AsyncIterator[Event]:
        """Yield the events that match all conditions, oldest first, as a named step."""
        matching = And((Eq("conversation_id", self.life.session_id), *asked))
        oldest, most = (Order("created_at"),), self._placement.settings.page
        query = Query(MESSAGES, within(self.life.partition), matching, oldest, most)
        async for page in self._placement.pages(name, self.store, query):
            for event in self.events_of(page.records):
                yield event

    async def first(self, asked: Condition) -> Event | None:
        """Return the first event that matches the condition."""
        of_it = And((Eq("conversation_id", self.life.session_id), asked))
        query = Query(MESSAGES, within(self.life.partition), of_it, (Order("created_at"),), limit=1)
        page = await self._placement.page("log.first", self.store, query)
        return next(iter(self.events_of(page.records)), None)

    async def any_erased(self, first: int, last: int) -> bool:
        """Return whether a message from number `first` to `last` was erased."""
        numbers = (Ge("number_in_conversation", first), Le("number_in_conversation", last))
        of_them = And((Eq("conversation_id", self.life.session_id), *numbers))
        query = Query(MESSAGES, within(self.life.partition), of_them, limit=self._placement.settings.page)
        pages = self._placement.pages("log.numbers", self.store, query)
        return any([event.is_redacted async for page in pages for event in self.events_of(page.records)])

    def at_hand(self, message_id: str) -> Event | None:
        """Return the cached message of this given id; None if it is not cached."""
        if message_id in self._being_said or self._seen is None:
            return self._being_said.get(message_id)
        return self._seen.events.get(self._seen.ids.get(message_id, 0))

    def _note_put(self, event: Event) -> None:
        """Update the caches with an event that this handle has just put."""
        self._passages.note(event)
        message, given = event.draft.message, event.given_id
        if message is not None and given is not None and not message.is_final:
            self._being_said[given] = event

    def _note_change(self, event: Event) -> None:
        """Update the caches with an event that this handle has just changed."""
        self._note_put(event)
        if self._seen is not None and event.place in self._seen.events:
            self._seen.keep(event)

    # -- writing -----------------------------------------------------------------------

    async def append_once(self, decide: Decide, request: RequestMark | None) -> list[Event]:
        """Append like `append`, but at most once for a request.

        `decide` returns at most one event, which gets the request's mark as its nonce.
        A repeat of the request returns the event that an earlier attempt appended.
        """
        if request is None:
            return await self.append(decide)
        patience = RetryDeadline(self._placement, self.life.session_id)
        while True:
            looked_at = (self._seen or await self.load()).state.place
            if (made := await self.find_made(request)) is not None:
                return [made]
            try:
                return await self.append(_deciding_once(decide, request, looked_at))
            except _FoundMade as found:
                return [found.event]
            except _MayBeMade:
                request = replace(request, repeats=True)
                await patience.wait()

    async def append(self, decide: Decide) -> list[Event]:
        """Append the events that `decide` returns, at the next places in order.

        If another writer was first, the log takes in that writer's events and calls
        `decide` again. On an `atomic` store, several events are stored together or not
        at all. On other stores they are stored in order, so after a crash only the
        first of them may exist.

        Raises:
            NotFound: the session was deleted.
            TooMuchContention: other writers were faster until the deadline.
        """
        async with self._turn:
            events = await self._append(decide)
        return await self._hold_large_texts(events)

    async def _append(self, decide: Decide) -> list[Event]:
        laid: dict[int, tuple[Message, Artifacts]] = {}
        done: list[Event] = []
        try:
            await self._append_laying(decide, laid, done)
        finally:
            named = {
                upload for event in (*done, *self._unsure) for upload in uploads_of(event.draft.artifacts)
            }
            left = tuple(
                one
                for _, artifacts in laid.values()
                for one in artifacts
                if not named.issuperset(uploads_of([one]))
            )
            if left:
                await self._uploads.give_up(self.life, left)
        return done

    async def _append_laying(
        self, decide: Decide, laid: dict[int, tuple[Message, Artifacts]], done: list[Event]
    ) -> None:
        """Append like `append`, without a turn.

        `laid` and `done` receive the stored large texts and events, even if this
        raises.
        """
        seen, drafts = await self._decide_drafts(decide)
        patience, lost = RetryDeadline(self._placement, self.life.session_id), 0
        there, left = await self._find_stored_drafts([self._with_nonce(draft) for draft in drafts])
        done += there
        left = await self._store_large_texts(left, laid)
        together = self.store.capabilities.atomic and len(left) <= (
            self.store.capabilities.max_batch or len(left)
        )
        while left:
            events = self._events(seen.state, left if together else left[:1])
            outcomes = await self._put(events)
            if all(self._is_ours(outcome, event) for outcome, event in zip(outcomes, events, strict=True)):
                events = [
                    self._as_stored(outcome, event) for outcome, event in zip(outcomes, events, strict=True)
                ]
                for event in events:
                    seen.take(event)
                    self._note_put(event)
                seen.as_of = self._placement.now()
                done += events
                left = left[len(events) :]
                continue
            await self._meet(seen, outcomes, events)
            lost += 1
            if lost % TAKEN_FROM_US == 0:
                await patience.wait()
                seen = await self.load()
            if not done:  # an append that has begun is finished; only others decide again
                seen, drafts = await self._decide_drafts(decide)
                left = await self._store_large_texts([self._with_nonce(draft) for draft in drafts], laid)
        self._update_snapshot(seen)

    async def _decide_drafts(self, decide: Decide) -> tuple[LogSnapshot, Sequence[Draft]]:
        """Return the known state, and the drafts to append to it.

        If there are none, or `decide` raises `Conflict`, the log is read first, because
        no put would detect newer events.
        """
        if (seen := self._seen) is not None:
            with suppress(Conflict):
                if drafts := decide(seen):
                    return seen, drafts
        seen = await self.load()
        return seen, decide(seen)

    async def _store_large_texts(
        self, drafts: list[Draft], laid: dict[int, tuple[Message, Artifacts]]
    ) -> list[Draft]:
        """Return the drafts with the large texts of their messages stored.

        `laid` has the messages whose texts are stored already.
        """
        new = [
            m
            for draft in drafts
            if (m := draft.message) is not None
            and id(m) not in laid
            and not draft.artifacts
            and large_texts(m)
        ]
        if new:
            said = any(
                draft.type is EventType.MESSAGE for draft in drafts
            )  # a quota does not block a compaction
            found = await self._lay([(message, ()) for message in new], refuses=said)
            laid |= {id(message): (message, artifacts) for message, artifacts in zip(new, found, strict=True)}
        return (
            [
                replace(draft, artifacts=laid[id(draft.message)][1]) if id(draft.message) in laid else draft
                for draft in drafts
            ]
            if laid
            else drafts
        )

    async def _lay(self, messages: Sequence[tuple[Message, Artifacts]], *, refuses: bool) -> list[Artifacts]:
        while True:
            try:
                return await self._uploads.lay(self.life, messages, refuses=refuses)
            except StaleGeneration:
                await self.renew()

    async def _hold_large_texts(self, events: list[Event], before: Artifacts = ()) -> list[Event]:
        """Return the stored events once their large texts are certain to stay.

        `before` has the large texts that a message had earlier.
        """
        new = sorted(
            {upload for event in events for upload in uploads_of(event.draft.artifacts)}
            - set(uploads_of(before))
        )
        if not new or await self._uploads.hold(self.life, new):
            return events
        if len(events) > 1:
            return [held for event in events for held in await self._hold_large_texts([event])]
        (event,) = events
        assert event.draft.message is not None  # noqa: S101 - only messages have large texts
        return [
            await self.change(event, event.draft.message, event.draft.tokens, anew=True) or event
        ]  # if None, another writer has changed it since

    async def _put(self, events: list[Event]) -> list[Outcome]:
        """Put events at their places.

        If the store does not answer, the put is repeated once. At most one of the two
        is stored, and its nonce identifies it.
        """
        writes = [
            Put(MESSAGES, self.record_of(e), Absent(), erases=e.draft.belongs_to_erasure)
            async for e in iterate_cooperatively(events, AT_ONCE)
        ]
        self._unsure = events
        try:
            outcomes = await self._placement.write(
                "log.append", self.store, *writes, together=len(writes) > 1
            )
        except StoreTimeout:
            raise  # the caller waited that long, and decides whether to wait again
        except StoreUnavailable:
            outcomes = await self._placement.write(
                "log.append", self.store, *writes, together=len(writes) > 1
            )
        self._unsure = []
        return outcomes

    async def _find_stored_drafts(self, drafts: list[Draft]) -> tuple[list[Event], list[Draft]]:
        """Split the drafts into stored events and drafts that are still to be put.

        A draft counts as stored if the last put had the same messages, and the store
        never confirmed it. Only messages can be doubled; other events depend on the
        log's state.
        """
        unsure, given = (
            [e for e in self._unsure if e.type is EventType.MESSAGE],
            [d for d in drafts if d.type is EventType.MESSAGE],
        )
        if not unsure or [replace(draft, nonce="", artifacts=()) for draft in given] != [
            event.as_given() for event in unsure
        ]:
            return [], drafts
        there = await self.at([event.place for event in unsure])
        self._unsure = []
        landed = {
            e.place: there[e.place]
            for e in unsure
            if e.place in there and there[e.place].draft.nonce == e.draft.nonce
        }
        others = [draft for draft in drafts if draft.type is not EventType.MESSAGE]
        return await self.whole(landed.values()), [
            *others,
            *[event.draft for event in unsure if event.place not in landed],
        ]

    def _with_nonce(self, draft: Draft) -> Draft:
        nonce = draft.nonce or self._placement.nonce()
        return replace(draft, nonce=nonce, owed=(*draft.owed, *self._passages.owed_by(draft)))

    def _events(self, state: State, drafts: Sequence[Draft]) -> list[Event]:
        events: list[Event] = []
        now = self._placement.now()
        for draft in drafts:
            event = state.next(
                draft,
                tenant=self.life.tenant,
                incarnation=self.life.incarnation,
                now=now,
                version=self.life.version_at(now),
            )
            events.append(event)
            state = state.with_event(event)
        return events

    def record_of(self, event: Event) -> Record:
        life = self.life
        return record_of(
            event,
            of_session={"conversation_id": life.session_id, **life.whose},
            scope=life.scope,
            generation=life.generation,
        )

    def _is_ours(self, outcome: Outcome, event: Event) -> bool:
        """Return whether the event is stored at its place.

        The event may have been stored now, or by an earlier put whose answer was lost.
        """
        if outcome.applied:
            return True
        there = self._event(outcome.stored)
        return there is not None and there.draft.nonce == event.draft.nonce

    def _as_stored(self, outcome: Outcome, event: Event) -> Event:
        """Return an own event as stored: perhaps by another attempt of its request."""
        there = None if outcome.applied else self._event(outcome.stored)
        return event if there is None or there.version == event.version else there

    async def _meet(self, seen: LogSnapshot, outcomes: Sequence[Outcome], events: Sequence[Event]) -> None:
        """Take in the events that occupy the places.

        Raises if nothing can be put there at all.
        """
        for outcome, event in zip(outcomes, events, strict=True):
            raise_if_rejected(self.store, outcome)
            if outcome.status is Status.REJECTED:
                await self.renew()
                break
            if outcome.status is Status.CONFLICT and event.place == seen.state.place + 1:
                there = self._event(outcome.stored)
                if there is not None:
                    seen.take(there)
                else:
                    seen.pass_over(event.place)

    async def renew(self) -> None:
        """Load the session's life again after a put was rejected for its generation.

        The generation may have risen because the store was restored. Raises `NotFound`
        if the session was deleted instead.
        """
        life = await self._renewed(self.life)
        if life.generation <= self.life.generation:
            raise NotFound(self.life.session_id, "session")
        self.life = life

    async def change(
        self,
        event: Event,
        message: Message,
        tokens: int | None,
        *,
        anew: bool = False,
        said_by: tuple[str, ...] | None = None,
        request: RequestMark | None = None,
    ) -> Event | None:
        """Change the message at its place; None if it has changed since it was read.

        The change takes two writes: the message, and then an edit event, at which
        caches drop the old message.
        Large texts that are stored already are not stored again, unless `anew` is set.
        Large texts that the message no longer has are dropped.
        """
        before = event.draft.artifacts
        artifacts: Artifacts = ()
        if large_texts(message):
            (artifacts,) = await self._lay([(message, () if anew else before)], refuses=False)
        now = self._placement.now()
        version = version_at(now, event.version)
        owed = self._uploads.drop_steps(self.life, before, artifacts, message, version)
        new = event.with_message(
            message, tokens, artifacts=artifacts, owed=owed, said_by=said_by, version=version, now=now
        )
        new = new if request is None else new.with_made_by(request)
        changed = await self._put_over(
            event, new.with_pending_steps(self._passages.owed_by(new.draft, new.parts))
        )
        if changed is None:
            await self._uploads.give_up(self.life, artifacts, kept=before)
            return None
        (held,) = await self._hold_large_texts([changed], before)
        return await self._drop_large_texts(held, owed) if owed else held

    async def _drop_large_texts(self, event: Event, owed: tuple[PendingStep, ...]) -> Event:
        """Try to drop large texts; return the event with the steps that are left."""
        left = await self._uploads.drop(self.store, replace(self.record_of(event), owed=owed))
        settled = replace(event, owed=tuple([one for one in event.owed if one not in owed or one in left]))
        self._note_change(settled)
        return settled

    async def enter(self, event: Event, number: int) -> Event | None:
        """Give a message a number in the history; None if it has changed since.

        The event must be whole.
        """
        now = self._placement.now()
        new = event.with_number(number, version=version_at(now, event.version), now=now)
        return await self._put_over(
            event, new.with_pending_steps(self._passages.owed_by(new.draft, new.parts))
        )

    async def redact(
        self, event: Event, owed: tuple[PendingStep, ...], request: RequestMark | None = None
    ) -> Event | None:
        """Erase the content of a message; None if it has changed since it was read.

        The event gets the pending steps `owed`, and the mark of the request.
        """
        now = self._placement.now()
        version = version_at(now, event.version)
        owed = (*owed, *self._uploads.drop_steps(self.life, event.draft.artifacts, (), None, version))
        new = event.as_redacted(owed, self.life.session_id, version=version, now=now)
        new = new if request is None else new.with_made_by(request)
        return await self._put_over(event, new, erases=True)

    async def _put_over(self, event: Event, new: Event, *, erases: bool = False) -> Event | None:
        self._being_said.pop(event.given_id or "", None)
        put = Put(MESSAGES, self.record_of(new), AtVersion(event.version), erases=erases)
        outcome = await self._placement.write_one("log.change", self.store, put)
        raise_if_rejected(self.store, outcome)
        if outcome.status is Status.REJECTED:
            await self.renew()
        if not outcome.applied:
            return None
        self._note_change(new)
        if event.draft.message is None or event.draft.message.is_final:  # others are in no cache
            await self.tell_edit(new)
        return new

    async def ensure_edit_told(self, event: Event) -> None:
        """Append an edit event, unless the log has one for this version.

        The writer of the version may have been cut off before it.
        """
        seen = self._seen or await self.load()
        if seen.edits.get(event.place, 0) >= event.version:
            return
        async for other in self.events_where("log.made", Ge("created_at", event.updated_at)):
            data = other.draft.data
            if other.type is EventType.EDITED and (data["place"], data.get("version")) == (
                event.place,
                event.version,
            ):
                return
        await self.tell_edit(event)

    async def tell_edit(self, event: Event) -> None:
        """Append an event that makes caches read the message at its place again."""
        data = {"place": event.place, "version": event.version}
        await self.append(
            lambda _: [Draft(EventType.EDITED, data=data, belongs_to_erasure=event.is_redacted)]
        )


def _deciding_once(decide: Decide, request: RequestMark, looked_at: int) -> Decide:
    """Return `decide` for a request, whose event is not up to the place `looked_at`."""

    def decide_once(seen: LogSnapshot) -> Sequence[Draft]:
        for event in seen.events.values():
            if event.draft.nonce == request.text:
                raise _FoundMade(event)
        if any(place not in seen.events for place in range(looked_at + 1, seen.state.place + 1)):
            raise _MayBeMade
        return [replace(draft, nonce=request.text) for draft in decide(seen)]

    return decide_once
