"""Retention by rule: finds matching records, and carries out or plans the decisions.

Stores are queried rule by rule. If a query has more than one page, tenants take turns
with one page each. The first turn goes to the tenant after the one that the last sweep
served. So no tenant's backlog delays another tenant. Records under legal hold stay.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

from memory.domain.errors import LegalHoldActive, NotFound, StoreError
from memory.domain.plan import Forecast
from memory.domain.promotion_report import PromotionReport
from memory.domain.scope import Scope, ScopeKind
from memory.domain.time import micros, moment
from memory.orchestrator.conversations.conversations import Conversations
from memory.orchestrator.conversations.sessions import END, SessionDraft
from memory.orchestrator.conversations.window_exits import LEAVE
from memory.orchestrator.erasure.erasure import Erasure
from memory.orchestrator.storage.collections import ENTRIES, ENTRY_VERSIONS, MESSAGES, SESSIONS
from memory.orchestrator.storage.lease import LeaseCheck
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.storage.rounds import Round
from memory.orchestrator.storage.steps import step
from memory.orchestrator.tiering.dry_run import DryRunState, Walk
from memory.orchestrator.tiering.plan import PlanBuilder
from memory.orchestrator.tiering.promotion import Promotion
from memory.orchestrator.tiering.ranks import OLDEST_FIRST, STANDING, Ranks
from memory.orchestrator.tiering.rules import LOOKED_AT, facts_of, fields_of
from memory.policies.conditions import first_moment
from memory.policies.record_facts import RecordFacts
from memory.policies.retention import (
    RetentionDecision,
    RetentionRule,
    Then,
    What,
    decide_retention,
    decide_version,
)
from memory.ports.collections import Collection
from memory.ports.query import (
    HOMES,
    Condition,
    Eq,
    Everywhere,
    Head,
    In,
    Lt,
    Order,
    Page,
    Query,
    Tenant,
    Where,
    all_of,
    encode_partition,
    within,
)
from memory.ports.record import Key, Partition, Record, Role
from memory.ports.store import Store
from memory.ports.tokens import TokenCounter

log = logging.getLogger(__name__)

TOGETHER = 50
"""The number of records deleted in one call."""
BEHIND_ALL = "\U0010ffff"
"""Sorts after every scope of a tenant."""
_COLLECTIONS: Mapping[What, Collection] = {
    "entries": ENTRIES,
    "sessions": SESSIONS,
    "versions": ENTRY_VERSIONS,
}
_VERSIONS = frozenset({"entry_id", "stored_version", "replaced_version"})
_SESSIONS = {"created_at": "created_at", "updated_at": "touched_at", "tags": "tags"}
"""The fields of a session that can be queried, by the facts that they hold."""


@dataclass(frozen=True, slots=True)
class RetentionMatch:
    """A record that a rule takes, in the state that the rule saw."""

    row: Head | Record
    decision: RetentionDecision
    in_rounds: bool = False
    """Whether the record is a version that has too many newer versions.

    A sweep finds such versions only in its own slice of all kept versions.
    """

    @property
    def then(self) -> Then:
        """The next action: an active session is ended before it is deleted."""
        return "end" if self.row.fields.get("status", "ended") != "ended" else self.decision.then


@dataclass(frozen=True, slots=True)
class RetentionBatch:
    """Some matches from one store."""

    what: What
    store: Store
    some: Sequence[RetentionMatch]


@dataclass(slots=True)
class RetentionReport:
    """How many records were deleted, ended, or stay under legal hold.

    `waiting` has the errors of stores that could not be queried or changed.
    """

    deleted: int = 0
    ended: int = 0
    dropped_versions: int = 0
    held: int = 0
    waiting: list[str] = field(default_factory=list)


class Retention:
    """Evaluates the retention rules, and carries them out."""

    def __init__(
        self,
        placement: Placement,
        *,
        erasure: Erasure,
        conversations: Conversations,
        counter: TokenCounter,
        promotion: Promotion,
        rules: Sequence[RetentionRule],
    ) -> None:
        self._placement = placement
        self._erasure = erasure
        self._conversations = conversations
        self._counter = counter
        self._end_session: Callable[[str, Scope], Awaitable[PromotionReport]] = promotion.end_session
        self._plan_end = promotion.plan_end
        self.rules = tuple(rules)
        self._served: dict[str, str] = {}
        """The tenant that a sweep served last, by rule."""
        self._versions = Round(placement)

    @property
    def reads_texts(self) -> bool:
        """Whether a rule for entries needs their texts to be evaluated."""
        return any(rule.measures - {"count"} for rule in self.rules if rule.what == "entries")

    # -- carried out -------------------------------------------------------------------

    async def by_sweep(self, away: set[str], hold: LeaseCheck, report: RetentionReport) -> None:
        """Carry out the rules on every tenant's records."""
        now = self._placement.now()
        async for portion in self._due_portions(now, report.waiting, self._some_versions):
            try:
                free = await self._free(portion)
                report.held += len(portion.some) - len(free.some)
                await hold(len(free.some))
                if free.some:
                    await self._carry_out(free, away, report)
            except StoreError as error:
                report.waiting.append(str(error))
        report.waiting = list(dict.fromkeys(report.waiting))

    async def _free(self, portion: RetentionBatch) -> RetentionBatch:
        """Return the portion without records under legal hold.

        Sessions to be ended stay in it, because that deletes nothing. A deletion checks
        the holds again.
        """
        held = await self._erasure.holds.over([one.row for one in portion.some])
        return replace(
            portion, some=[one for one in portion.some if one.row.key not in held or one.then == "end"]
        )

    async def _carry_out(self, portion: RetentionBatch, away: set[str], report: RetentionReport) -> None:
        if portion.what == "sessions":
            for one in portion.some:
                await self._with_session(one, report)
            return
        at = {one.row.key: one.row.version for one in portion.some}
        if portion.what == "versions":
            came = await self._erasure.delete_versions(at)
            report.dropped_versions += sum(one is True for one in came.values())
        else:
            came = await self._erasure.delete_at(ENTRIES, at, portion.store, away)
            report.deleted += sum(one is True for one in came.values())
        report.held += sum(isinstance(one, LegalHoldActive) for one in came.values())
        report.waiting += [str(one) for one in came.values() if isinstance(one, StoreError)]

    async def _with_session(self, one: RetentionMatch, report: RetentionReport) -> None:
        """End a session, or delete one that has ended.

        An active session is only ended. A session with pending steps is not deleted.
        Entries have rules of their own.
        """
        tenant, session_id = one.row.key.tenant, str(one.row.fields["session_id"])
        try:
            if one.then == "end":
                waiting = await self._end(tenant, session_id)
                report.ended += not waiting
                report.waiting += waiting
            elif not await self._leaves(one.row.partition):
                await self._erasure.erase(one.row.partition, older_than=(one.row.generation or 0) + 1)
                report.deleted += 1
        except LegalHoldActive:
            report.held += 1
        except NotFound:
            pass  # deleted meanwhile

    async def _end(self, tenant: str, session_id: str) -> list[str]:
        """End a session after its entries have moved.

        If a crash or a store prevents that, the session stays active, and the next
        sweep does the rest.
        """
        conversation = await self._conversations.open(tenant, SessionDraft(session_id), create=False)
        if waiting := (await self._end_session(tenant, Scope.session(session_id))).waiting:
            return waiting
        await conversation.close("ended", is_promoted=True)
        return []

    async def _leaves(self, partition: Partition, settled: Set[tuple[Key, str]] = frozenset()) -> bool:
        """Return whether the session has pending steps that a deletion would prevent.

        Such a step needs the session's text, or follows from the session's end.
        `settled` has steps that will be complete by the deletion.
        """
        query = Query(MESSAGES, within(partition), Eq("owing", True), limit=self._placement.settings.page)
        pages = self._placement.pages("onward.owed", self._placement.topology.archive, query)
        rows = [row async for page in pages for row in page.records if isinstance(row, Record)]
        return any(
            owed.step in (LEAVE, END) and (row.key, owed.step) not in settled
            for row in rows
            for owed in row.owed
        )

    # -- told --------------------------------------------------------------------------

    async def plan(self, planning: PlanBuilder) -> None:
        """Plan the actions of `by_sweep`.

        The plan covers all kept versions, although one sweep checks only a slice of
        them. If a rule ends a session, the plan lists the actions that the end causes
        before the end itself.
        """
        comes_round: tuple[str, ...] | None = None
        async for portion in self._due_portions(
            planning.now, planning.plan.waiting, self._all_versions, planning.ahead
        ):
            try:
                free = {one.row.key for one in (await self._free(portion)).some}
                if comes_round is None and any(one.in_rounds for one in portion.some):
                    comes_round = await self._comes_round()
                for one in portion.some:
                    depends = comes_round or () if one.in_rounds else ()
                    why = (
                        await self._plan_one(portion.what, one, depends, planning)
                        if one.row.key in free
                        else "it is under legal hold"
                    )
                    if why:
                        planning.leaves(one.then, _COLLECTIONS[portion.what], one.row, one.decision.rule, why)
            except StoreError as error:
                planning.waits(str(error))

    async def _plan_one(
        self, what: What, one: RetentionMatch, depends: tuple[str, ...], planning: PlanBuilder
    ) -> str:
        """Plan one action; return the reason if it is prevented."""
        row, ahead = one.row, planning.ahead
        if what == "versions" and ahead.is_gone(ENTRIES, Key(row.key.tenant, str(row.fields["entry_id"]))):
            return ""  # it is deleted with its entry
        if what == "sessions" and one.then == "end":
            if away := await self._plan_end(
                row.key.tenant, Scope.session(str(row.fields["session_id"])), planning
            ):
                planning.waits(*away)
                return "its entries cannot move to their target: " + "; ".join(dict.fromkeys(away))
        elif what == "sessions" and await self._leaves(row.partition, ahead.settled):
            return "its messages or entries are still to be processed"
        if what == "entries":
            ahead.goes(ENTRIES, row)
        planning.does(
            one.then, _COLLECTIONS[what], row, one.decision.rule, one.decision.because, depends=depends
        )
        return ""

    async def _comes_round(self) -> tuple[str, ...]:
        """Return why versions beyond a rule's number wait; empty if they do not wait.

        A slice is one page of kept versions. If there are more versions than fit in a
        slice, each sweep checks one slice, and the next sweep checks the next one.
        """
        with step("retention.round"):
            there = (
                await self._placement.topology.archive.count(Query(ENTRY_VERSIONS, Everywhere()))
            ).records
        a_slice = self._placement.settings.page
        return () if there <= a_slice else (f"when a sweep reaches it: each sweep checks {a_slice:,}",)

    async def forecast(self, record: Record, store: Store, now: datetime) -> list[Forecast]:
        """Forecast each entry rule's action for this entry in its current state."""
        rules = [rule for rule in self.rules if rule.what == "entries"]
        measures = frozenset().union(*(rule.measures for rule in rules))
        rank = (
            await Ranks(self._placement, self._counter, ENTRIES, store, measures).of_one(record)
            if measures
            else None
        )
        facts, found = facts_of(record, rank), list[Forecast]()
        for number, rule in enumerate(rules):
            when = now if rule.condition is None else first_moment(rule.condition, facts, now)
            holds, because = rule.evaluate(facts, now if when is None else when)
            first = decide_retention(rules[:number], "entries", facts, now if when is None else when)
            if holds and first.rule:
                holds, when, because = False, None, f"rule '{first.rule}' comes first"
            depends = () if rule.condition is None else tuple(sorted(rule.condition.depends()))
            found.append(
                Forecast(
                    rule.name, rule.then, "sweep", "", holds and rule.then == "delete", when, because, depends
                )
            )
        return found

    # -- decided -----------------------------------------------------------------------

    async def _due_portions(
        self,
        now: datetime,
        waiting: list[str],
        versions: Callable[[datetime], AsyncIterator[Page]],
        ahead: DryRunState | None = None,
    ) -> AsyncIterator[RetentionBatch]:
        """Yield the matches of the rules, some at a time.

        With `ahead`, the planned state is evaluated, and the turns of tenants are not
        noted. A failed store affects only its own matches.
        """
        served = self._served if ahead is None else dict(self._served)
        walks = [
            self._entries(rule, store, now, served, ahead)
            for rule in self._active_rules("entries")
            for store in self._placement.topology.homes
        ]
        walks += [self._sessions(rule, now, served) for rule in self._active_rules("sessions")]
        walks += [
            self._versions_gone(rule, now, served)
            for rule in self._active_rules("versions")
            if rule.versions_for is not None
        ]
        walks += (
            [self._versions_beyond(versions, now)]
            if any(rule.keep_versions is not None for rule in self.rules)
            else []
        )
        for walk in walks:
            try:
                async for portion in walk:
                    yield portion
            except StoreError as error:
                waiting.append(str(error))

    def _active_rules(self, what: What) -> list[RetentionRule]:
        return [rule for rule in self.rules if rule.what == what and rule.then != "keep"]

    def _kept_before(
        self, rule: RetentionRule, now: datetime, known: Mapping[str, str]
    ) -> list[Condition | None]:
        """Return conditions for records that the earlier rules do not keep."""
        before = self.rules[: self.rules.index(rule)]
        return [
            other.leaves(now, known)
            for other in before
            if other.what == rule.what and other.then == "keep" and not other.measures
        ]

    async def _entries(
        self,
        rule: RetentionRule,
        store: Store,
        now: datetime,
        served: dict[str, str],
        ahead: DryRunState | None,
    ) -> AsyncIterator[RetentionBatch]:
        known = fields_of(ENTRIES)
        measures = frozenset().union(*(other.measures for other in self.rules if other.what == "entries"))
        ranks = Ranks(self._placement, self._counter, ENTRIES, store, measures, ahead) if measures else None
        if ranks is None:
            asked = all_of(rule.takes(now, known), *self._kept_before(rule, now, known))
            query = self._query(ENTRIES, asked, LOOKED_AT & known.keys(), HOMES)
        else:  # to find what exceeds a scope's limit, every record is visited
            query = self._query(
                ENTRIES, None, None if ranks.reads_texts else LOOKED_AT & known.keys(), STANDING
            )
        walked: dict[Where, Walk] = {}
        async for where, page in self._in_turn(rule, "retention.scan", store, query, served):
            going: list[RetentionMatch] = []
            rows = _rows(page)
            if ahead is not None:
                walk = walked.setdefault(where, Walk(ahead, ENTRIES, where, store, ""))
                rows = walk.page(rows, is_last=page.cursor is None)
            for row in rows:
                decision = decide_retention(
                    self.rules, "entries", facts_of(row, None if ranks is None else await ranks.of(row)), now
                )
                if decision.then == "delete" and decision.rule == rule.name and row.role is Role.HOME:
                    going.append(RetentionMatch(row, decision))
            for some in _portions(going):
                yield RetentionBatch("entries", store, some)

    async def _sessions(
        self, rule: RetentionRule, now: datetime, served: dict[str, str]
    ) -> AsyncIterator[RetentionBatch]:
        """Yield sessions, judged by their logs, because their records may be behind."""
        archive = self._placement.topology.archive
        statuses = In(
            "status",
            rule.statuses or (("active",) if rule.then == "end" else ("active", "archived", "ended")),
        )
        asked = all_of(rule.takes(now, _SESSIONS), statuses, *self._kept_before(rule, now, _SESSIONS))
        query = self._query(SESSIONS, asked, None, HOMES)
        async for _, page in self._in_turn(rule, "retention.sessions", archive, query, served):
            for row in page.records:
                goes = await self._judged_session(row, now) if isinstance(row, Record) else None
                if goes is not None and goes.decision.rule == rule.name:
                    yield RetentionBatch("sessions", archive, [goes])

    async def _judged_session(self, row: Record, now: datetime) -> RetentionMatch | None:
        sessions = self._conversations.sessions
        if sessions.is_over(row):
            return None  # its expiry deletes it
        state = (await sessions.log(row).load()).state
        fields: Any = {
            **row.fields,
            "status": state.after.status,
            "touched_at": max(row.fields["touched_at"], state.created_at),  # type: ignore[type-var]
        }
        if fields["touched_at"] >= now:
            return None  # this sweep has just ended it; the next sweep decides again
        facts = RecordFacts(
            row.tier,
            "",
            tuple(fields.get("tags") or ()),
            None,
            row.created_at,
            fields["touched_at"],
            tenant=row.key.tenant,
            scope_kind=ScopeKind.SESSION.value,
        )
        decision = decide_retention(self.rules, "sessions", facts, now, fields["status"])
        told = Head(row.key, row.scope, row.version, row.role, row.tier, row.generation or 0, fields)
        return None if decision.then == "keep" else RetentionMatch(told, decision)

    # -- kept versions -----------------------------------------------------------------

    async def _versions_gone(
        self, rule: RetentionRule, now: datetime, served: dict[str, str]
    ) -> AsyncIterator[RetentionBatch]:
        """Yield versions that were replaced long enough ago.

        Their position among an entry's versions does not matter.
        """
        replaced = Lt("replaced_version", micros(now - (rule.versions_for or timedelta())))
        known = {
            name: said for name, said in fields_of(ENTRY_VERSIONS).items() if name in ("type", "scope_kind")
        }
        asked = all_of(replaced, rule.takes(now, known), *self._kept_before(rule, now, known))
        query = self._query(ENTRY_VERSIONS, asked, LOOKED_AT | _VERSIONS, HOMES)
        archive = self._placement.topology.archive
        async for _, page in self._in_turn(rule, "retention.versions", archive, query, served):
            going = [
                RetentionMatch(head, decision)
                for head in page.heads
                if (decision := self._judged_version(head, 0, now)).then == "delete"
            ]
            for some in _portions(going):
                yield RetentionBatch("versions", archive, some)

    async def _versions_beyond(
        self, versions: Callable[[datetime], AsyncIterator[Page]], now: datetime
    ) -> AsyncIterator[RetentionBatch]:
        """Yield versions that have too many newer versions of their entry."""
        archive, seen = self._placement.topology.archive, set[Key]()
        async for page in versions(now):
            named = {Key(head.key.tenant, str(head.fields["entry_id"])) for head in page.heads} - seen
            seen |= named
            for tenant in dict.fromkeys(key.tenant for key in sorted(named)):
                going = [
                    goes
                    async for goes in self._beyond(
                        tenant, [key.id for key in named if key.tenant == tenant], now
                    )
                ]
                for some in _portions(going):
                    yield RetentionBatch("versions", archive, some)

    async def _beyond(
        self, tenant: str, entry_ids: Sequence[str], now: datetime
    ) -> AsyncIterator[RetentionMatch]:
        order = (Order("entry_id"), Order("stored_version", descending=True))
        select = frozenset(name for name in LOOKED_AT | _VERSIONS if name in fields_of(ENTRY_VERSIONS))
        page, of_entries = self._placement.settings.page, In("entry_id", tuple(sorted(entry_ids)))
        query = Query(ENTRY_VERSIONS, Tenant(tenant), of_entries, order, page, select=select)
        entry, newer = "", count()
        async for found in self._placement.pages(
            "retention.versions", self._placement.topology.archive, query
        ):
            for head in found.heads:
                if head.fields["entry_id"] != entry:
                    entry, newer = str(head.fields["entry_id"]), count()
                decision = self._judged_version(head, next(newer), now)
                if (
                    decision.then == "delete" and self._judged_version(head, 0, now).then == "keep"
                ):  # otherwise it is deleted by its age
                    yield RetentionMatch(head, decision, in_rounds=True)

    def _judged_version(self, head: Head, newer: int, now: datetime) -> RetentionDecision:
        replaced: Any = head.fields["replaced_version"]
        return decide_version(self.rules, facts_of(head), newer, moment(replaced), now)

    async def _some_versions(self, now: datetime) -> AsyncIterator[Page]:
        """Yield a slice of all kept versions, after the last sweep's slice."""
        query = Query(
            ENTRY_VERSIONS, Everywhere(), limit=self._placement.settings.page, select=frozenset({"entry_id"})
        )
        async for page in self._versions.slice("retention.round", self._placement.topology.archive, query):
            yield page

    async def _all_versions(self, now: datetime) -> AsyncIterator[Page]:
        query = Query(
            ENTRY_VERSIONS, Everywhere(), limit=self._placement.settings.page, select=frozenset({"entry_id"})
        )
        async for page in self._placement.pages("retention.round", self._placement.topology.archive, query):
            yield page

    # -- in turn -----------------------------------------------------------------------

    def _query(
        self, collection: Any, asked: Condition | None, select: frozenset[str] | None, roles: frozenset[Role]
    ) -> Query:
        known = fields_of(collection)
        select = None if select is None else frozenset(name for name in select if name in known)
        return Query(
            collection,
            Everywhere(),
            asked,
            OLDEST_FIRST,
            self._placement.settings.page,
            roles=roles,
            select=select,
        )

    async def _in_turn(
        self, rule: RetentionRule, name: str, store: Store, query: Query, by_rule: dict[str, str]
    ) -> AsyncIterator[tuple[Where, Page]]:
        """Yield the pages of a query over the tenants of a rule.

        If one page holds all records, it is one query. Otherwise tenants take turns.

        Args:
            by_rule: The tenant that each rule served last. It is updated.
        """
        tenants = rule.of_tenants
        if tenants is None:
            page = await self._placement.page(name, store, query)
            if page.cursor is None:
                yield query.where, page
                return
            tenants = frozenset([tenant async for tenant in self._tenants(store)])
        served = by_rule.get(rule.name, "")
        first_first = sorted(tenants, key=lambda tenant: (tenant <= served, tenant))
        turns: deque[tuple[str, str | None]] = deque((tenant, None) for tenant in first_first)
        while turns:
            tenant, cursor = turns.popleft()
            page = await self._placement.page(name, store, _of(query, Tenant(tenant), cursor))
            yield Tenant(tenant), page
            by_rule[rule.name] = tenant
            if page.cursor is not None:
                turns.append((tenant, page.cursor))

    async def _tenants(self, store: Store) -> AsyncIterator[str]:
        """Yield every tenant with data in a store, with one query for each."""
        cursor: str | None = None
        while True:
            with step("retention.tenants"):
                page = await store.partitions(Everywhere(), limit=1, cursor=cursor)
            if not page.partitions:
                return
            tenant = page.partitions[0][0].tenant
            yield tenant
            cursor = encode_partition(Partition(tenant, BEHIND_ALL))


def _of(query: Query, where: Where, cursor: str | None) -> Query:
    return replace(query, where=where, cursor=cursor)


def _rows(page: Page) -> list[Head | Record]:
    return [*page.heads, *(row for row in page.records if isinstance(row, Record))]


def _portions(going: Sequence[RetentionMatch]) -> list[Sequence[RetentionMatch]]:
    return [going[start : start + TOGETHER] for start in range(0, len(going), TOGETHER)]
