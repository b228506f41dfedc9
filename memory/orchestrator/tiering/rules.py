"""Evaluation of rules on records, page by page.

It decides for a sweep, the end of a session, or a write. It moves nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.domain.entry import Entry
from memory.domain.errors import StoreError, StoreUnavailable
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.entry_records import entry_of
from memory.orchestrator.storage.placement import Placement
from memory.orchestrator.tiering.dry_run import DryRunState, Walk
from memory.orchestrator.tiering.ranks import OLDEST_FIRST, STANDING, Ranks
from memory.policies.promotion import CustomRule, Decision, Event, PromotionRule, Rule, decide, decide_copies
from memory.policies.record_facts import Fields, Rank, RecordFacts
from memory.policies.routing import TIERS
from memory.ports.collections import Collection
from memory.ports.query import (
    MAX_FILTER_PARTS,
    SYSTEM_FIELDS,
    And,
    Condition,
    Eq,
    Everywhere,
    Head,
    Not,
    Or,
    Page,
    Partitions,
    Query,
    Tenant,
    Where,
)
from memory.ports.record import Corrupt, Key, Record
from memory.ports.store import Store
from memory.ports.tokens import TokenCounter

LOOKED_AT = frozenset(
    {"type", "tags", "confidence", "created_at", "updated_at", "accesses", "expires_at", "scope_kind"}
)
"""The fields that rules use.

Texts are read only of records that move, or if a rule measures them or a policy runs.
"""


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """A record and the decisions of the rules about it."""

    row: Head | Record
    decision: Decision
    copies: tuple[Decision, ...] = ()

    @property
    def created_at(self) -> datetime:
        created_at: Any = (
            self.row.created_at if isinstance(self.row, Record) else self.row.fields["created_at"]
        )
        return created_at  # type: ignore[no-any-return]

    @property
    def is_left(self) -> bool:
        return self.decision.target is None and not self.copies


@dataclass(slots=True)
class EvaluationGaps:
    """Stores and records that could not be evaluated.

    These are stores that did not answer, damaged records, and records on which a policy
    failed.
    """

    stores: list[str]
    records: list[tuple[Key, str, str]]
    """Each with its tier, if known, and the reason."""
    away: set[str] = field(default_factory=set)
    """The names of the stores that did not answer."""


class RuleEvaluator:
    """Runs the rules and the policies on records."""

    def __init__(
        self,
        placement: Placement,
        counter: TokenCounter,
        rules: Sequence[PromotionRule],
        policies: Sequence[CustomRule],
    ) -> None:
        self._placement = placement
        self._counter = counter
        self.rules = tuple(rules)
        self.policies = tuple(policies)

    def of_tier(self, tier: str) -> list[Rule]:
        """Return the rules and policies that take from this tier; all if empty."""
        everyone: tuple[Rule, ...] = (*self.rules, *self.policies)
        return [rule for rule in everyone if tier in ("", rule.source)]

    @property
    def reads_texts(self) -> bool:
        """Whether some rule or policy uses the texts of entries."""
        return any(isinstance(rule, CustomRule) or rule.measures - {"count"} for rule in self.of_tier(""))

    def of(self, event: Event, tier: str = "") -> list[Rule]:
        """Return the rules and policies for this event."""
        return [rule for rule in self.of_tier(tier) if rule.answers(event)]

    async def everywhere(
        self, now: datetime, missed: EvaluationGaps, ahead: DryRunState | None = None
    ) -> AsyncIterator[tuple[Collection, list[RuleMatch]]]:
        """Yield the decisions of a sweep for the records of every tenant.

        The last tier comes first, so that a record that enters a tier is not evaluated
        there again.
        """
        for tier in reversed(TIERS):
            asked = self.of("sweep", tier)
            named = [None if rule.condition is None else rule.condition.tenants() for rule in asked]
            tenants = sorted({tenant for names in named if names is not None for tenant in names})
            wheres: Sequence[Where] = (
                [Everywhere()] if None in named else [Tenant(tenant) for tenant in tenants]
            )
            for where in wheres if asked else ():
                async for judged in self.matches(
                    "sweep", where, [self._placement.topology.home(tier)], now, missed, tier, ahead
                ):
                    yield judged

    async def matches(
        self,
        event: Event,
        where: Where,
        stores: Sequence[Store],
        now: datetime,
        missed: EvaluationGaps,
        tier: str = "",
        ahead: DryRunState | None = None,
    ) -> AsyncIterator[tuple[Collection, list[RuleMatch]]]:
        """Yield every record once, page by page.

        With a tier, only records that some rule takes from it are included. With
        `ahead`, the planned state is evaluated. Stores are visited in the direction of
        moves, and no record is evaluated twice: a record that has moved is met again in
        a later store.
        """
        for collection in [kind.collection for kind in self._placement.kinds.movable]:
            asked_about = set[Key]()
            for store in stores:
                try:
                    async for page in self._in_store(
                        collection, event, where, store, now, missed, tier, ahead
                    ):
                        fresh = [one for one in page if one.row.key not in asked_about]
                        asked_about |= {one.row.key for one in fresh}
                        yield collection, fresh
                except StoreError as error:
                    missed.stores.append(str(error))
                    missed.away |= {error.store} if isinstance(error, StoreUnavailable) else set()

    async def _in_store(
        self,
        collection: Collection,
        event: Event,
        where: Where,
        store: Store,
        now: datetime,
        missed: EvaluationGaps,
        tier: str,
        ahead: DryRunState | None,
    ) -> AsyncIterator[list[RuleMatch]]:
        """Yield the decisions for one store, page by page."""
        asked = self.of(event, tier)
        measures = frozenset().union(*(rule.measures for rule in asked))
        texts = bool(measures - {"count"}) or any(isinstance(rule, CustomRule) for rule in asked)
        texts = texts or (
            ahead is not None and event == "session_end" and ahead.keeps.texts
        )  # other rules may have to measure planned entries
        walk = None if ahead is None else Walk(ahead, collection, where, store, tier)
        if measures:
            ranks = Ranks(self._placement, self._counter, collection, store, measures, ahead)
            least = min(rule.from_rank for rule in asked) if tier else 0
            rows = self._ranked_rows(collection, where, store, ranks, least, missed, tier, walk, texts=texts)
        else:
            condition = _of_tier(tier, _rules_filter(asked, now, fields_of(collection))) if tier else None
            rows = self._unranked_rows(collection, where, store, condition, missed, walk, texts=texts)
        async for page in rows:
            yield [
                self._judge(asked, event, row, rank, now, missed)
                for row, rank in page
                if not _is_expired(row, now)
            ]

    async def _unranked_rows(
        self,
        collection: Collection,
        where: Where,
        store: Store,
        condition: Condition | None,
        missed: EvaluationGaps,
        walk: Walk | None,
        *,
        texts: bool,
    ) -> AsyncIterator[list[tuple[Head | Record, Rank | None]]]:
        async for page in self._pages(collection, where, store, condition, missed, texts=texts):
            yield [(row, None) for row in _rows(page, walk)]

    async def _ranked_rows(
        self,
        collection: Collection,
        where: Where,
        store: Store,
        ranks: Ranks,
        least: int,
        missed: EvaluationGaps,
        tier: str,
        walk: Walk | None,
        *,
        texts: bool,
    ) -> AsyncIterator[list[tuple[Head | Record, Rank | None]]]:
        """Yield every record with its rank, regardless of the rules' conditions.

        A single scope ends when no more record reaches the rank `least`, which the
        rules need.
        """
        scope = where.partitions[0] if isinstance(where, Partitions) and len(where.partitions) == 1 else None
        if scope is not None and tier and (await ranks.scope_total(scope, tier)).count < least:
            return
        async for page in self._pages(
            collection, where, store, _of_tier(tier) if tier else None, missed, texts=texts
        ):
            ranked = [(row, await ranks.of(row)) for row in _rows(page, walk)]
            yield [(row, rank) for row, rank in ranked if rank.count >= least]
            if scope is not None and ranked and ranked[-1][1].count < least:
                return

    def _judge(
        self,
        asked: Sequence[Rule],
        event: Event,
        row: Head | Record,
        rank: Rank | None,
        now: datetime,
        missed: EvaluationGaps,
    ) -> RuleMatch:
        facts = facts_of(row, rank)
        decision, copies = (
            decide(self.rules, event, facts, now),
            tuple(decide_copies(self.rules, event, facts, now)),
        )
        if decision.target is None and isinstance(row, Record):
            decision = self._by_policies(asked, entry_of(row), facts, now, decision, missed)
        return RuleMatch(row, decision, copies)

    def _by_policies(
        self,
        asked: Sequence[Rule],
        entry: Entry,
        facts: RecordFacts,
        now: datetime,
        decision: Decision,
        missed: EvaluationGaps,
    ) -> Decision:
        """Return the decision of the first policy that makes one.

        A policy that fails affects only this record.
        """
        for policy in asked:
            if isinstance(policy, CustomRule) and policy.source == facts.tier:
                try:
                    said = policy.decide(entry, facts, now)
                except Exception as error:  # noqa: BLE001 - the policy is not ours
                    problem = f"policy '{policy.name}' failed: {type(error).__name__}: {error}"
                    missed.records.append((Key(facts.tenant, entry.id), facts.tier, problem))
                    return Decision(None, policy.name, problem)
                if said is not None:
                    return said
        return decision

    async def _pages(
        self,
        collection: Collection,
        where: Where,
        store: Store,
        condition: Condition | None,
        missed: EvaluationGaps,
        *,
        texts: bool,
    ) -> AsyncIterator[Page]:
        """Yield the records of a store, page by page."""
        whole = texts and collection is ENTRIES
        select = None if whole else frozenset(name for name in LOOKED_AT if name in fields_of(collection))
        query = Query(
            collection,
            where,
            condition,
            OLDEST_FIRST,
            self._placement.settings.page,
            roles=STANDING,
            select=select,
        )
        async for page in self._placement.pages("promotion.scan", store, query):
            corrupt = [*page.corrupt, *(row.key for row in page.records if isinstance(row, Corrupt))]
            missed.records += [
                (key, "", f"its record in store '{store.name}' is corrupt") for key in dict.fromkeys(corrupt)
            ]
            yield page

    async def facts(self, record: Record, store: Store) -> RecordFacts:
        """Return the facts of one record, with its rank if a rule needs it."""
        measures = frozenset().union(*(rule.measures for rule in self.of_tier(record.tier)))
        ranks = Ranks(self._placement, self._counter, ENTRIES, store, measures)
        return facts_of(record, await ranks.of_one(record) if measures else None)


def fields_of(collection: Collection) -> Fields:
    """Return the fields by which records of a collection can be queried."""
    return {name: name for name in SYSTEM_FIELDS | {field.name for field in collection.fields}}


def facts_of(row: Head | Record, rank: Rank | None = None) -> RecordFacts:
    """Return the facts of a record for rules."""
    fields: Any = row.fields
    own: Any = (
        {name: getattr(row, name) for name in ("created_at", "updated_at", "accesses")}
        if isinstance(row, Record)
        else fields
    )
    return RecordFacts(
        tier=row.tier,
        type=fields.get("type") or "",
        tags=tuple(fields.get("tags") or ()),
        confidence=fields.get("confidence"),
        created_at=own["created_at"],
        updated_at=own["updated_at"],
        accesses=own["accesses"],
        tenant=row.key.tenant,
        scope_kind=fields.get("scope_kind") or "",
        rank=rank,
    )


def _rows(page: Page, walk: Walk | None) -> Iterable[Head | Record]:
    rows: list[Head | Record] = [*page.heads, *(row for row in page.records if isinstance(row, Record))]
    return rows if walk is None else walk.page(rows, is_last=page.cursor is None)


def _is_expired(row: Head | Record, now: datetime) -> bool:
    expires_at: Any = row.expires_at if isinstance(row, Record) else row.fields.get("expires_at")
    return expires_at is not None and expires_at < now


def _rules_filter(rules: Sequence[Rule], now: datetime, known: Fields) -> Condition | None:
    """Return the filter of all rules; None if it is too large for a store."""
    taken = Or(tuple(rule.takes(now, known) for rule in rules))
    return taken if _parts(taken) + 2 <= MAX_FILTER_PARTS else None


def _of_tier(tier: str, taken: Condition | None = None) -> Condition:
    return And((Eq("tier", tier), *(() if taken is None else (taken,))))


def _parts(part: Condition) -> int:
    match part:
        case And(parts) | Or(parts):
            return 1 + sum(map(_parts, parts))
        case Not(inner):
            return 1 + _parts(inner)
        case _:
            return 1
