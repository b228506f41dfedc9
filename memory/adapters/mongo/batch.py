"""Several writes. In a transaction where the server has them: then all are kept or none. Without: in order, run by run.

A run is writes to different keys with no raised generation among them, so the order within it cannot be seen and it goes to the server in bulk.
A later run sees the earlier ones. Without transactions a call that is cut off leaves the runs before as they are, and of the last one any part.

Generations are looked at before, and again when everything stands (see `partitions`): records of a generation that was raised over meanwhile are
taken back and decided again, of a call that is kept whole everything.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.codec import address
from memory.adapters.mongo.errors import is_collision, is_refused
from memory.adapters.mongo.runs import Change, Run, is_blind
from memory.adapters.mongo.turns import Turn
from memory.adapters.mongo.values import Document, text_of
from memory.adapters.mongo.writing import Busy, Desk, raise_generation
from memory.ports.deciding import KeyedWrite
from memory.ports.record import Key, Partition
from memory.ports.storable import Unstorable, encode_integer
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

_COMMITS = 5


class Collided(Exception):
    """Undoes a transaction that another client got in the way of; to be done again."""


class NotTogether(Exception):
    """Undoes a batch that was to be kept whole."""


class Batch:
    """One call's writes."""

    def __init__(self, desk: Desk, writes: Sequence[Write]) -> None:
        self._desk = desk
        self._outcomes: dict[int, Outcome] = {}
        self._writes: dict[int, Write] = {}
        for i, write in enumerate(writes):
            try:
                self._check(write)
                self._writes[i] = write
            except Unstorable as exc:
                self._outcomes[i] = Outcome(Status.REJECTED, reason=str(exc))

    def _check(self, write: Write) -> None:
        """Refuse what no document can hold before anything is sent. Raises `Unstorable`."""
        if isinstance(write, RaiseGeneration):
            text_of(write.partition.tenant), text_of(write.partition.scope)
            encode_integer("generation", write.to or 0)
            return
        address(write.key)
        if isinstance(write, Put):
            text_of(write.record.scope)

    # -- without transactions -----------------------------------------------------------------------------------------

    async def in_order(self) -> list[Outcome]:
        async with self._turn() as turn:
            for run in _runs(self._writes):
                left = await self._round(run)
                while left:
                    await turn.take()
                    if turn.is_late:
                        raise Busy
                    left = await self._round(left)
        return [self._outcomes[i] for i in sorted(self._outcomes)]

    def _turn(self) -> Turn:
        return self._desk.turns.of(self._writes.values(), self._desk.patience)

    async def _round(self, run: Mapping[int, Write]) -> dict[int, Write]:
        """Do a run; what others got in the way of is left."""
        first = next(iter(run.values()))
        if isinstance(first, RaiseGeneration):
            self._outcomes |= {i: await raise_generation(self._desk, write) for i, write in run.items() if isinstance(write, RaiseGeneration)}
            return {}
        keyed = {i: write for i, write in run.items() if not isinstance(write, RaiseGeneration)}
        generations = await self._generations(keyed)
        done = Run(self._desk, keyed, generations, None)
        if is_blind(keyed):
            await done.insert()
        await done.decide()
        self._outcomes |= done.outcomes
        left = await self._taken_back(await self._void(generations, done.changes))
        return {i: write for i, write in run.items() if i in left or i not in done.outcomes}

    async def _generations(self, writes: Mapping[int, Write]) -> dict[Partition, int]:
        """Those that records are put under."""
        return await self._desk.registry.generations([w.record.partition for w in writes.values() if isinstance(w, Put)])

    async def _void(self, generations: Mapping[Partition, int], changes: Mapping[int, Change]) -> dict[int, Change]:
        """Which of these brought a record of a generation that has been raised since, or went on from one that did."""
        raised = await self._desk.registry.raised_since(generations)
        void: dict[int, Change] = {}
        places: set[tuple[str, Key]] = set()
        for i, change in changes.items():
            if change.place in places or change.is_void(raised):
                places.add(change.place)
                void[i] = change
        return void

    async def _taken_back(self, void: dict[int, Change]) -> list[int]:
        """The writes that are to be decided again. What others have replaced or deleted meanwhile was applied."""
        return sorted([i for i in reversed(void) if await void[i].take_back()])

    # -- in a transaction ---------------------------------------------------------------------------------------------

    async def in_transaction(self, client: AsyncMongoClient[Document], together: bool) -> list[Outcome]:
        refused = self._outcomes
        if together and refused:
            return [refused.get(i, Outcome(Status.SKIPPED)) for i in range(len(refused) + len(self._writes))]
        async with self._turn() as turn:
            return await self._tried(client, together, turn)

    async def _tried(self, client: AsyncMongoClient[Document], together: bool, turn: Turn) -> list[Outcome]:
        """Try until nobody gets in the way."""
        decided, left = dict(self._outcomes), self._writes
        for attempt in count():
            if turn.is_late:
                break
            self._outcomes = dict(decided)
            changes: dict[int, Change] = {}
            generations = await self._generations(left)
            try:
                async with _transaction(client) as session:
                    await self._carry_out(left, generations, changes, session, attempt == 0, together)
            except NotTogether:
                outcomes = [self._outcomes[i] for i in sorted(self._outcomes)]
                return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]
            except (Collided, PyMongoError) as exc:
                if not (isinstance(exc, Collided) or is_collision(exc) or is_refused(exc)):
                    raise
                await turn.take()
                if attempt:  # in whose way it is now is another process
                    await asyncio.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.1)))  # noqa: S311 - so that the two do not meet again
                continue
            void = await self._void(generations, changes)
            if not void or (together and not await self._all_taken_back(client, changes, void)):
                return [self._outcomes[i] for i in sorted(self._outcomes)]
            if together:
                continue
            left = {i: left[i] for i in await self._taken_back(void)}
            decided = {i: outcome for i, outcome in self._outcomes.items() if i not in left}
        raise Busy

    async def _carry_out(
        self,
        writes: Mapping[int, Write],
        generations: dict[Partition, int],
        changes: dict[int, Change],
        session: Any,
        blindly: bool,
        together: bool,
    ) -> None:
        """Decide and send all of it. Generations that it raises itself are noted in `generations`, what it changes in `changes`."""
        for run in _runs(writes):
            keyed: dict[int, KeyedWrite] = {}
            for i, write in run.items():
                if isinstance(write, RaiseGeneration):
                    number = await self._desk.registry.raise_to(write.partition, write.to, session)
                    generations[write.partition] = number
                    self._outcomes[i] = Outcome(Status.APPLIED, number=number)
                else:
                    keyed[i] = write
            done = Run(self._desk, keyed, generations, session)
            if blindly and is_blind(keyed):
                await done.insert()
            await done.decide()
            if len(done.outcomes) < len(keyed):
                raise Collided
            self._outcomes |= done.outcomes
            changes |= done.changes
        if together and not all(outcome.applied for outcome in self._outcomes.values()):
            raise NotTogether

    async def _all_taken_back(self, client: AsyncMongoClient[Document], changes: dict[int, Change], void: dict[int, Change]) -> bool:
        """Undo a call that is kept whole, last things first; False where the erasure has taken all that is void: then the call was before it.

        Where others went on from it in another way, what is void goes, and how the call ended is unknown.
        """
        try:
            async with _transaction(client) as session:
                for i in reversed(changes):
                    if not await changes[i].take_back(session):
                        raise NotTogether
        except (NotTogether, PyMongoError) as exc:
            if isinstance(exc, PyMongoError) and not (is_collision(exc) or is_refused(exc)):
                raise
            if await self._taken_back(void):
                raise Busy from exc
            return False
        return True


@asynccontextmanager
async def _transaction(client: AsyncMongoClient[Document]) -> AsyncIterator[Any]:
    async with client.start_session() as session:
        await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority", j=True))
        yield session
        await _commit(session)


async def _commit(session: Any) -> None:
    """Commit; again, where the answer was lost and it may have happened or not."""
    for attempt in range(_COMMITS):
        try:
            await session.commit_transaction()
            return
        except PyMongoError as exc:
            if not exc.has_error_label("UnknownTransactionCommitResult") or exc.timeout or attempt == _COMMITS - 1:
                raise


def _runs(writes: Mapping[int, Write]) -> Iterator[dict[int, Write]]:
    run: dict[int, Write] = {}
    seen: set[tuple[str, Key]] = set()
    for i, write in writes.items():
        if isinstance(write, RaiseGeneration):
            if run:
                yield run
            yield {i: write}
            run, seen = {}, set()
            continue
        place = (write.collection.name, write.key)
        if place in seen:
            yield run
            run, seen = {}, set()
        run[i] = write
        seen.add(place)
    if run:
        yield run
