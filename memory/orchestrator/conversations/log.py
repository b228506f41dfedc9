"""One session's log, read and written by one handle: of what it has seen it keeps the fold, which the next put proves right or corrects."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from memory.domain.errors import NotFound
from memory.domain.ids import is_id
from memory.domain.message import Message
from memory.orchestrator.collections import MESSAGES
from memory.orchestrator.conversations.events import FIRST_PLACE, Draft, Event, event_of, place_key, record_of
from memory.orchestrator.conversations.folding import BASE_EVERY, State, is_spoken
from memory.orchestrator.placement import Placement, refused
from memory.orchestrator.steps import step
from memory.orchestrator.turns import Patience
from memory.orchestrator.versions import version_at
from memory.ports.query import And, Eq, Order, Query, within
from memory.ports.record import Key, Partition, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, AtVersion, Outcome, Put, Status

NEWEST = BASE_EVERY + 16
"""Events read at once to know the end of a log: the newest that carries the window is among them, unless one of them is damaged."""
IDS_REMEMBERED = 10_000
TAKEN_FROM_US = 2
"""Places lost to others one after the other before the log is read again, rather than taken in event by event."""


@dataclass(frozen=True, slots=True)
class Life:
    """What identifies a session's life: a session of the same id that is created later has another incarnation, and a later generation."""

    tenant: str
    session_id: str
    scope: str
    incarnation: str
    generation: int
    has_system: bool
    created_at: datetime

    @property
    def partition(self) -> Partition:
        return Partition(self.tenant, self.scope)


@dataclass(slots=True)
class Seen:
    """What a handle has seen of the log."""

    state: State
    events: dict[int, Event] = field(default_factory=dict)
    """The newest ones, by place."""
    ids: dict[str, int] = field(default_factory=dict)
    """The places of the messages that were given ids of their own: of all of them, from place `since` on."""
    since: int = FIRST_PLACE

    def take(self, event: Event) -> None:
        """The next event of the log."""
        self.state = self.state.with_event(event)
        self.keep(event)

    def keep(self, event: Event) -> None:
        self.events[event.place] = event
        if len(self.events) > 2 * NEWEST:
            self.events = {place: self.events[place] for place in sorted(self.events)[-NEWEST:]}
        if event.draft.message is not None and event.draft.message.id is not None:
            self.ids[event.draft.message.id] = event.place
            if len(self.ids) > IDS_REMEMBERED:
                self.since = 1 + self.ids.pop(next(iter(self.ids)))

    def follows(self, earlier: Seen) -> None:
        """What was seen earlier of the same log, up to where this begins, holds still."""
        if earlier.state.place + 1 >= self.since > earlier.since:
            self.ids, self.since = earlier.ids | self.ids, earlier.since


Decide = Callable[[Seen], Sequence[Draft]]
"""What is to be appended to a log of which this was seen. It is asked again whenever others were first; none is nothing to do."""


class Log:
    """The log of one life of a session."""

    def __init__(self, placement: Placement, life: Life, renewed: Callable[[Life], Awaitable[Life]]) -> None:
        self._placement = placement
        self.life = life
        self._renewed = renewed
        """The life as its session's record tells it now. Raises `NotFound` where it has ended."""
        self._seen: Seen | None = None
        self._turn = asyncio.Lock()

    @property
    def store(self) -> Store:
        return self._placement.topology.archive

    @property
    def seen(self) -> Seen | None:
        """What this handle has seen of the log; None where it has not read it yet."""
        return self._seen

    def key(self, place: int) -> str:
        return place_key(self.life.tenant, self.life.incarnation, place).id

    def begun(self) -> None:
        """The session has just been created here: nothing stands in its log yet."""
        self._seen = Seen(State.born(self.life.has_system, self.life.created_at))

    # -- reading ------------------------------------------------------------------------------------------------------

    async def load(self) -> Seen:
        """The end of the log as it is now."""
        query = Query(MESSAGES, within(self.life.partition), order=(Order("created_at", descending=True),), limit=NEWEST)
        page = await self._placement.page("log.load", self.store, query)
        events = {event.place: event for event in self.events_of(page.records)}
        seen = Seen(State.born(self.life.has_system, self.life.created_at))
        if events:
            newest = events[max(events)]
            base = newest.after.base
            missing = [p for p in range(max(base, FIRST_PLACE), newest.place) if p not in events]
            events |= await self.at(missing)
            if base >= FIRST_PLACE and base not in events:  # damaged: what it told is told by all that came before
                events |= await self.at(range(FIRST_PLACE, base))
            if base in events and (window := events[base].window) is not None:
                seen.state = State(base, events[base].after, window, events[base].created_at)
                seen.keep(events[base])
            for place in sorted(events):
                if place > seen.state.place:
                    seen.take(events[place])
                else:
                    seen.keep(events[place])
            seen.since = min(events)
        if self._seen is not None:
            seen.follows(self._seen)
        if self._seen is None or self._seen.state.place <= seen.state.place:
            self._seen = seen
        return seen

    def _event(self, stored: object) -> Event | None:
        """The event of a record of this life; None for what is left of another."""
        if not isinstance(stored, Record):
            return None
        event = event_of(stored)
        return event if stored.key.id == self.key(event.place) else None

    def events_of(self, records: Iterable[object]) -> list[Event]:
        """The events of records that were read, in their order."""
        return [event for event in map(self._event, records) if event is not None]

    async def at(self, places: Iterable[int]) -> dict[int, Event]:
        """The events at these places, those that can be read."""
        keys = [place_key(self.life.tenant, self.life.incarnation, place) for place in places]
        most, found = self._placement.settings.page, dict[int, Event]()
        for start in range(0, len(keys), most):
            with step("log.read"):
                rows = await self.store.get(MESSAGES, keys[start : start + most])
            found |= {event.place: event for event in self.events_of(rows)}
        return found

    async def of(self, keys: Sequence[Key]) -> list[Event]:
        """The events of these records, those that can be read."""
        with step("log.read"):
            return self.events_of(await self.store.get(MESSAGES, keys)) if keys else []

    async def window(self) -> tuple[State, list[Event]]:
        """The log's state as it is now, and the messages of its window by place; damaged ones are left out."""
        seen = await self.load()
        there = seen.events | await self.at([place for place in seen.state.window if place not in seen.events])
        return seen.state, [there[place] for place in seen.state.window if place in there]

    async def window_at(self, place: int) -> list[Event]:
        """The messages of the window as it was right after this place, by place; damaged ones are left out."""
        there = await self.at([place])
        if place not in there:
            return []
        base = there[place].after.base
        there |= await self.at(range(max(base, FIRST_PLACE), place))
        if base >= FIRST_PLACE and base not in there:  # damaged, as in `load`
            there |= await self.at(range(FIRST_PLACE, base))
        begun = there.get(base)
        state = State.born(self.life.has_system, self.life.created_at)
        if begun is not None and begun.window is not None:
            state = State(base, begun.after, begun.window, begun.created_at)
        for number in sorted(there):
            if number > state.place:
                state = state.with_event(there[number])
        there |= await self.at([each for each in state.window if each not in there])
        return [there[each] for each in state.window if each in there]

    async def find(self, message_id: str, *, as_seen: bool = False) -> Event | None:
        """The message of this id as it is now: one that was given it, or the one whose record has it. None where the log has none.

        With `as_seen`, where the log had none when this handle last saw it: enough for who appends, and meets what came since.
        """
        seen = self._seen or await self.load()
        if (place := seen.ids.get(message_id)) is not None:
            return (await self.at([place])).get(place)
        if is_id(message_id):
            with step("log.read"):
                (row,) = await self.store.get(MESSAGES, [Key(self.life.tenant, message_id)])
            if (event := self._event(row)) is not None and is_spoken(event):
                return event
        if as_seen and seen.since <= FIRST_PLACE:
            return None
        asked = And((Eq("conversation_id", self.life.session_id), Eq("message_id", message_id)))
        page = await self._placement.page("log.find", self.store, Query(MESSAGES, within(self.life.partition), asked, limit=2))
        return next(iter(self.events_of(page.records)), None)

    # -- writing ------------------------------------------------------------------------------------------------------

    async def append(self, decide: Decide) -> list[Event]:
        """Put what is decided at the next places: all of it there in order, or what others put there first is taken in and it is decided again.

        Several are kept whole or not at all where the store is `atomic`; elsewhere one after the other, so that a crash leaves the first of them.
        Raises `NotFound` where the session was deleted, `Contended` where others were faster for all of the deadline.
        """
        async with self._turn:
            return await self._append(decide)

    async def _append(self, decide: Decide) -> list[Event]:
        seen = self._seen or await self.load()
        patience, lost, done = Patience(self._placement, self.life.session_id), 0, list[Event]()
        left = [self._named(draft) for draft in decide(seen)]
        together = self.store.capabilities.atomic and len(left) <= (self.store.capabilities.max_batch or len(left))
        while left:
            events = self._events(seen.state, left if together else left[:1])
            writes = [Put(MESSAGES, self.record_of(event), Absent()) for event in events]
            outcomes = await self._placement.write("log.append", self.store, *writes, together=len(writes) > 1)
            if all(self._is_ours(outcome, event) for outcome, event in zip(outcomes, events, strict=True)):
                for event in events:
                    seen.take(event)
                done, left = [*done, *events], left[len(events) :]
                continue
            await self._meet(seen, outcomes, events)
            lost += 1
            if lost % TAKEN_FROM_US == 0:
                await patience.wait()
                seen = await self.load()
            if not done:  # what was begun is ended: a later decision is about what is left of it
                left = [self._named(draft) for draft in decide(seen)]
        return done

    def _named(self, draft: Draft) -> Draft:
        return replace(draft, nonce=f"{self._placement.random_bits(64):016x}")

    def _events(self, state: State, drafts: Sequence[Draft]) -> list[Event]:
        events: list[Event] = []
        now = self._placement.now()
        for draft in drafts:
            event = state.next(draft, tenant=self.life.tenant, incarnation=self.life.incarnation, now=now, version=version_at(now))
            events.append(event)
            state = state.with_event(event)
        return events

    def record_of(self, event: Event) -> Record:
        return record_of(event, conversation_id=self.life.session_id, scope=self.life.scope, generation=self.life.generation)

    def _is_ours(self, outcome: Outcome, event: Event) -> bool:
        """Whether the event stands at its place: put just now, or by a put whose answer was lost."""
        if outcome.applied:
            return True
        there = self._event(outcome.stored)
        return there is not None and there.draft.nonce == event.draft.nonce

    async def _meet(self, seen: Seen, outcomes: Sequence[Outcome], events: Sequence[Event]) -> None:
        """Take in what stands at the place instead. Raises where nothing is to be put there at all."""
        for outcome, event in zip(outcomes, events, strict=True):
            if (error := refused(self.store, outcome)) is not None:
                raise error
            if outcome.status is Status.REJECTED:
                await self._renew()
                break
            if outcome.status is Status.CONFLICT and event.place == seen.state.place + 1:
                there = self._event(outcome.stored)
                if there is not None:
                    seen.take(there)
                else:
                    seen.state = seen.state.past(event.place)

    async def _renew(self) -> None:
        """After a put that was refused for its generation. Raises `NotFound` where the session was deleted: only its generation may have been raised,
        as that of a store is which was set back."""
        life = await self._renewed(self.life)
        if life.generation <= self.life.generation:
            raise NotFound(self.life.session_id, "session")
        self.life = life

    async def change(self, event: Event, message: Message, tokens: int | None) -> Event | None:
        """Let the message at its place say this instead; None where it is no longer what it was when it was read."""
        now = self._placement.now()
        new = event.changed(message, tokens, version=version_at(now, event.version), now=now)
        outcome = await self._placement.write_one("log.change", self.store, Put(MESSAGES, self.record_of(new), AtVersion(event.version)))
        if (error := refused(self.store, outcome)) is not None:
            raise error
        if outcome.status is Status.REJECTED:
            await self._renew()
        if not outcome.applied:
            return None
        if self._seen is not None and event.place in self._seen.events:
            self._seen.keep(new)
        return new
