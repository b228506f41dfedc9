"""Lying stores: about what is due."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from memory.adapters.in_memory import InMemoryStore
from memory.ports.collections import Collection
from memory.ports.due import DuePage, DueReason, DueRow, due_by_queries
from memory.ports.query import Page, Query, RowType
from memory.ports.record import Role
from tests.contract.faulty.registry import faulty_adapter

EXACT = "test_everything_due_is_told_with_why_and_nothing_else"
ALONE = "test_one_thing_alone_is_told_whatever_it_is_due_for"
SEEN_TO = "test_what_has_been_seen_to_is_due_no_longer"
PAGES = "test_pages_of_what_is_due_are_together_what_is_told_at_once"
BETWEEN = "test_what_is_seen_to_between_two_pages_hides_nothing_behind_it"


class _Tells(InMemoryStore):
    """Tells something else of what it has found."""

    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        raise NotImplementedError

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        return replace(found, rows=self.told(found.rows))


class _Asks(InMemoryStore):
    """Asks itself something else."""

    def asked(self, query: Query) -> Query:
        raise NotImplementedError

    async def _asking(self, query: Query) -> Page:
        return await self.query(self.asked(query))

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await due_by_queries(
            self._asking, tuple(self._collections.values()), now, limit, cursor, expired
        )


@faulty_adapter(EXACT)
class TellsOfTheOldestVersion(_Tells):
    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        return tuple(replace(row, version=1) for row in rows)


@faulty_adapter(EXACT)
class TellsNoTier(_Tells):
    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        return tuple(replace(row, tier="") for row in rows)


@faulty_adapter(EXACT)
class TellsOneReasonOnly(_Tells):
    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        return tuple({(row.collection.name, row.key): row for row in rows}.values())


@faulty_adapter(EXACT)
class KnowsOneTenant(_Tells):
    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        return tuple(row for row in rows if row.key.tenant == "acme")


@faulty_adapter(EXACT)
class LooksIntoOneCollection(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await due_by_queries(
            self.query, tuple(self._collections.values())[:1], now, limit, cursor, expired
        )


@faulty_adapter(EXACT)
class TellsOfReplicas(_Asks):
    def asked(self, query: Query) -> Query:
        return replace(query, roles=query.roles | {Role.REPLICA}) if Role.HOME in query.roles else query


@faulty_adapter(EXACT)
class ForgetsThatMarksOwe(_Asks):
    def asked(self, query: Query) -> Query:
        return replace(query, types=query.types - {RowType.MARK} or query.types)


@faulty_adapter(EXACT)
class ForgetsThatArrivingCopiesOwe(_Asks):
    def asked(self, query: Query) -> Query:
        return replace(query, roles=query.roles - {Role.ARRIVING} or query.roles)


@faulty_adapter(EXACT)
class DiscardsAtTheVeryMoment(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await super()._due(now + timedelta(microseconds=1), limit, cursor, expired)


@faulty_adapter(EXACT)
class TellsWhatExpiredUnasked(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await super()._due(now, limit, cursor, dict.fromkeys(self._collections.values(), now))


@faulty_adapter(EXACT)
class DiscardsWhatOwes(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        also = tuple(
            replace(row, why=DueReason.DISCARD)
            for row in found.rows
            if row.why is DueReason.OWES and not row.tier
        )
        return replace(found, rows=found.rows + also)


@faulty_adapter(ALONE)
class LooksFirstWhetherSomethingOwes(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        return found if any(row.why is DueReason.OWES for row in found.rows) else DuePage()


@faulty_adapter(SEEN_TO)
class RemembersWhatIsDue(_Tells):
    """Like a list of what is due that nothing is ever taken from."""

    def told(self, rows: tuple[DueRow, ...]) -> tuple[DueRow, ...]:
        self._remembered = dict.fromkeys((*getattr(self, "_remembered", ()), *rows))
        return tuple(self._remembered)


@faulty_adapter(PAGES)
class HasOnePage(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return replace(await super()._due(now, limit, cursor, expired), cursor=None)


@faulty_adapter(PAGES)
class IsLongerThanAsked(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        return await super()._due(now, limit + 1, cursor, expired)


@faulty_adapter(PAGES)
class NeverEnds(InMemoryStore):
    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        found = await super()._due(now, limit, cursor, expired)
        return replace(found, cursor=found.cursor or "0:") if limit < 500 else found


@faulty_adapter(BETWEEN)
class CountsRowsInItsCursors(InMemoryStore):
    """An offset: what was seen to moves the rest forward, past it."""

    async def _due(
        self, now: datetime, limit: int, cursor: str | None, expired: Mapping[Collection, datetime]
    ) -> DuePage:
        rows = (await super()._due(now, 10_000, None, expired)).rows
        behind = int(cursor or 0) + limit
        return DuePage(rows[behind - limit : behind], str(behind) if behind < len(rows) else None)
