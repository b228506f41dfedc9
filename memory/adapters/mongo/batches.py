"""Several writes. In a transaction where the server has them: then all are kept or none. Without: in order, run by run.

A run is writes to different keys with no raised generation among them, so the order within it cannot be seen and it goes to the server in bulk.
A later run sees the earlier ones. Without transactions a call that is cut off leaves the runs before as they are, and of the last one any part.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from pymongo.asynchronous.mongo_client import AsyncMongoClient
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from memory.adapters.mongo.documents import address
from memory.adapters.mongo.errors import is_collision, is_duplicate
from memory.adapters.mongo.partitions import Announcement
from memory.adapters.mongo.runs import Run, is_blind
from memory.adapters.mongo.turns import Turn
from memory.adapters.mongo.values import Document, text_of
from memory.adapters.mongo.writing import Busy, Desk, raise_generation
from memory.ports.deciding import KeyedWrite
from memory.ports.record import Key, Partition
from memory.ports.storable import Unstorable, encode_integer
from memory.ports.writes import Outcome, Put, RaiseGeneration, Status, Write

_COMMITS = 5
_NOBODY = Announcement({})


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
        announcement = await self._announce(keyed)
        done = Run(self._desk, keyed, announcement, announcement.generations, None)
        if is_blind(keyed):
            await done.insert()
        await done.decide()
        await self._desk.registry.finish(announcement)
        self._outcomes |= done.outcomes
        return {i: write for i, write in run.items() if i not in done.outcomes}

    # -- in a transaction ---------------------------------------------------------------------------------------------

    async def in_transaction(self, client: AsyncMongoClient[Document], together: bool) -> list[Outcome]:
        refused = self._outcomes
        if together and refused:
            return [refused.get(i, Outcome(Status.SKIPPED)) for i in range(len(refused) + len(self._writes))]
        async with self._turn() as turn:
            return await self._tried(client, together, turn)

    async def _tried(self, client: AsyncMongoClient[Document], together: bool, turn: Turn) -> list[Outcome]:
        """Try until nobody gets in the way."""
        refused = dict(self._outcomes)
        announcement: Announcement | None = None
        for attempt in count():
            if turn.is_late:
                break
            self._outcomes = dict(refused)
            if announcement is None:
                announcement = await self._announce(self._writes)
            try:
                async with client.start_session() as session:
                    await session.start_transaction(ReadConcern("snapshot"), WriteConcern("majority", j=True))
                    await self._carry_out(announcement, session, attempt == 0, together)
                    await _commit(session)
            except NotTogether:
                outcomes = [self._outcomes[i] for i in sorted(self._outcomes)]
                await self._desk.registry.finish(announcement)
                return [Outcome(Status.SKIPPED) if o.applied else o for o in outcomes]
            except (Collided, PyMongoError) as exc:
                if not (isinstance(exc, Collided) or is_collision(exc) or is_duplicate(exc)):
                    raise
                if not is_collision(exc):  # or a generation was raised, and keeps out what was announced before
                    await self._desk.registry.finish(announcement)
                    announcement = None
                await turn.take()
                if attempt:  # in whose way it is now is another process
                    await asyncio.sleep(random.uniform(0, min(0.002 * 2**attempt, 0.1)))  # noqa: S311 - so that the two do not meet again
                continue
            await self._desk.registry.finish(announcement)
            for write in self._writes.values():
                if isinstance(write, RaiseGeneration) and write.to != 0:
                    await self._desk.registry.fence(write.partition)
            return [self._outcomes[i] for i in sorted(self._outcomes)]
        if announcement is not None:
            await self._desk.registry.finish(announcement)
        raise Busy

    async def _carry_out(self, announcement: Announcement, session: Any, blindly: bool, together: bool) -> None:
        current = dict(announcement.generations)
        written: set[tuple[str, Key]] = set()
        for run in _runs(self._writes):
            keyed: dict[int, KeyedWrite] = {}
            for i, write in run.items():
                if isinstance(write, RaiseGeneration):
                    number = await self._desk.registry.raise_to(write.partition, write.to, session)
                    current[write.partition] = number
                    self._outcomes[i] = Outcome(Status.APPLIED, number=number)
                else:
                    keyed[i] = write
            done = Run(self._desk, keyed, announcement, current, session, written)
            if blindly and is_blind(keyed):
                await done.insert()
            await done.decide()
            if len(done.outcomes) < len(keyed):
                raise Collided
            self._outcomes |= done.outcomes
        if together and not all(outcome.applied for outcome in self._outcomes.values()):
            raise NotTogether

    async def _announce(self, writes: Mapping[int, Write]) -> Announcement:
        announced: dict[Partition, dict[tuple[str, str], None]] = {}
        for write in writes.values():
            if isinstance(write, Put):
                name = self._desk.shelf(write.collection).name
                announced.setdefault(write.record.partition, {})[(name, text_of(write.key.id))] = None
        if not announced:
            return _NOBODY
        return await self._desk.registry.announce({partition: list(keys) for partition, keys in announced.items()})


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
