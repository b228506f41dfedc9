"""Conditions: judged as plain Python judges them, asked of stores as filters that let
through all they hold of, told in words, read from tables.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.adapters.in_memory import InMemoryStore
from memory.domain.entry import EntryType
from memory.domain.errors import InvalidInput
from memory.domain.ids import new_id
from memory.domain.scope import ScopeKind
from memory.domain.time import parse_duration
from memory.facade.config.settings import ServingStore
from memory.facade.runtime.build import build_store
from memory.orchestrator.storage.collections import ENTRIES
from memory.policies.condition_tables import MOST_CONDITIONS, MOST_LEVELS, condition_of
from memory.policies.conditions import AllOf, AnyOf, NoneOf, RuleCondition, first_moment
from memory.policies.record_facts import Fields, Rank, RecordFacts
from memory.policies.routing import TIERS
from memory.policies.single_conditions import (
    AccessCountAtLeast,
    ConfidenceAtLeast,
    HasTag,
    IdleFor,
    OlderThan,
    ScopeExceeds,
    ScopeKindIs,
    TenantIs,
    TierIs,
    TypeIs,
)
from memory.ports.contract.cells import cells
from memory.ports.full_scan import scan
from memory.ports.query import SYSTEM_FIELDS, And, Everywhere, Not, Query
from memory.ports.record import Key, Record
from memory.ports.store import Store
from memory.ports.writes import Absent, Annotate, Put
from tests.support.depth import drawn

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DAY = timedelta(days=1)
KNOWN = {name: name for name in SYSTEM_FIELDS | {field.name for field in ENTRIES.fields}}
PLAIN = RecordFacts(
    tier="short",
    type="context",
    tags=("fact", "Pinned"),
    confidence=0.5,
    created_at=NOW - 10 * DAY,
    updated_at=NOW - 2 * DAY,
    accesses=2,
    tenant="acme",
    scope_kind="session",
    rank=Rank(3, 30, 7),
)

# -- drawn -----------------------------------------------------------------------------

SINGLE = st.one_of(
    st.builds(lambda days: {"older_than": f"{days}d"}, st.integers(1, 12)),
    st.builds(lambda days: {"idle_for": f"{days}d"}, st.integers(1, 12)),
    st.builds(lambda times: {"read_at_least": times}, st.integers(1, 3)),
    st.builds(lambda least: {"confidence_at_least": least}, st.sampled_from([0.0, 0.5, 1.0])),
    st.builds(lambda names: {"type": names}, st.sampled_from(["context", ["user"], ["context", "project"]])),
    st.builds(lambda names: {"tag": names}, st.sampled_from(["fact", ["Fact"], ["fact", "pinned"]])),
    st.builds(lambda names: {"tier": names}, st.sampled_from(["short", ["mid", "long"]])),
    st.builds(lambda names: {"scope_kind": names}, st.sampled_from(["session", ["user", "org"]])),
    st.builds(lambda names: {"tenant": names}, st.sampled_from(["acme", ["acme", "other"], "nobody"])),
    st.builds(
        lambda measure, most: {"scope_over": {measure: most}},
        st.sampled_from(["count", "bytes", "tokens"]),
        st.integers(0, 5),
    ),
)
TABLES = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.builds(lambda parts: {"all": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: {"any": parts}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda part: {"not": part}, inner),
    ),
    max_leaves=6,
)
FACTS = st.builds(
    RecordFacts,
    tier=st.sampled_from(TIERS),
    type=st.sampled_from(list(map(str, EntryType))),
    tags=st.sampled_from([(), ("fact",), ("Fact", "pinned")]),
    confidence=st.sampled_from([None, 0.0, 0.5, 1.0]),
    created_at=st.integers(0, 12).map(lambda days: NOW - days * DAY),
    updated_at=st.integers(0, 12).map(lambda days: NOW - days * DAY),
    accesses=st.integers(0, 3),
    tenant=st.sampled_from(["acme", "other"]),
    scope_kind=st.sampled_from(list(map(str, ScopeKind))),
    rank=st.builds(Rank, st.integers(1, 6), st.integers(0, 6), st.integers(0, 6)),
)
SAID: tuple[RuleCondition, ...] = (
    OlderThan(5 * DAY),
    IdleFor(5 * DAY),
    AccessCountAtLeast(2),
    ConfidenceAtLeast(0.5),
    TypeIs("context"),
    HasTag("fact"),
    TierIs("mid"),
    ScopeKindIs("user"),
)
"""What the fields of entries say."""


def holds(table: dict[str, Any], facts: RecordFacts, now: datetime) -> bool:
    """What a table says, worked out without any of the code."""
    rank = facts.rank
    assert rank is not None
    [(name, value)] = table.items()
    names = value if isinstance(value, list) else [value]
    match name:
        case "all":
            return all(holds(part, facts, now) for part in value)
        case "any":
            return any(holds(part, facts, now) for part in value)
        case "not":
            return not holds(value, facts, now)
        case "older_than":
            return facts.created_at <= now - int(value[:-1]) * DAY
        case "idle_for":
            return max(facts.created_at, facts.updated_at) <= now - int(value[:-1]) * DAY
        case "read_at_least":
            return facts.accesses >= int(value)
        case "confidence_at_least":
            return facts.confidence is not None and facts.confidence >= float(value)
        case "tag":
            return bool(set(names) & set(facts.tags))
        case "scope_over":
            [(measure, most)] = value.items()
            return bool({"count": rank.count, "bytes": rank.bytes, "tokens": rank.tokens}[measure] > most)
        case _:
            return {
                "type": facts.type,
                "tier": facts.tier,
                "scope_kind": facts.scope_kind,
                "tenant": facts.tenant,
            }[name] in names


@given(table=TABLES, facts=FACTS)
def test_a_condition_holds_where_its_table_says_so(table: dict[str, Any], facts: RecordFacts) -> None:
    condition = condition_of(table, "rule.when")
    reason = condition.reason(facts, NOW)
    assert (reason is not None) == holds(table, facts, NOW)
    assert reason is None or reason
    assert condition.evaluate(facts, NOW)[1]
    tenants = condition.tenants()
    assert reason is None or tenants is None or facts.tenant in tenants


@given(table=TABLES)
def test_a_condition_can_be_written_down_and_read_again(table: dict[str, Any]) -> None:
    condition = condition_of(table, "rule.when")
    assert condition_of(condition.table(), "rule.when") == condition == condition_of(condition, "rule.when")
    assert condition.describe()


@given(table=TABLES, facts=FACTS)
def test_the_first_moment_is_the_first_at_which_it_holds(table: dict[str, Any], facts: RecordFacts) -> None:
    held = [NOW + days * DAY for days in range(30) if holds(table, facts, NOW + days * DAY)]
    assert first_moment(condition_of(table, "rule.when"), facts, NOW) == (held[0] if held else None)


def test_what_is_made_with_a_later_creation_than_its_last_change_is_idle_from_that_on() -> None:
    ahead = replace(PLAIN, created_at=NOW + DAY, updated_at=NOW)
    idle = IdleFor(2 * DAY)
    assert [idle.evaluate(ahead, NOW + days * DAY)[0] for days in (2, 3)] == [False, True]
    assert first_moment(idle, ahead, NOW) == NOW + 3 * DAY


def test_the_first_moment_may_pass_before_it_comes_again() -> None:
    once = ~OlderThan(3 * DAY) & IdleFor(DAY)
    young = replace(PLAIN, created_at=NOW, updated_at=NOW)
    assert first_moment(once, young, NOW) == NOW + DAY
    assert first_moment(once, young, NOW + 3 * DAY) is None


# -- stores ----------------------------------------------------------------------------


async def filled(store: Store, facts: list[RecordFacts]) -> dict[str, RecordFacts]:
    """A store with a record for each, by id."""
    await store.open([ENTRIES])
    placed = {new_id(one.tenant, f"{one.scope_kind}:x", number): one for number, one in enumerate(facts)}
    records = [
        Record(
            Key(one.tenant, record_id),
            f"{one.scope_kind}:x",
            1,
            one.created_at,
            one.updated_at,
            fields={
                "type": one.type,
                "tags": one.tags,
                "confidence": one.confidence,
                "scope_kind": one.scope_kind,
            },
            tier=one.tier,
        )
        for record_id, one in placed.items()
    ]
    await store.apply([Put(ENTRIES, record, Absent()) for record in records])
    await store.apply(
        [
            Annotate(ENTRIES, r.key, at=1, accessed_at=NOW)
            for r in records
            for _ in range(placed[r.key.id].accesses)
        ]
    )
    return placed


def made(scheme: str, folder: str) -> Store:
    return (
        InMemoryStore("s")
        if scheme == "in_memory"
        else build_store(ServingStore("s", f"sqlite:///{folder}/memory.db"))
    )


async def let_through(store: Store, condition: RuleCondition, known: Fields) -> set[str]:
    query = Query(ENTRIES, Everywhere(), condition.filter(NOW, known), select=frozenset())
    return {head.key.id async for page in scan(store, query) for head in page.heads}


@pytest.mark.parametrize("scheme", ["in_memory", pytest.param("sqlite", marks=pytest.mark.backend("sqlite"))])
@given(facts=st.lists(FACTS, min_size=10, max_size=40), tables=st.lists(TABLES, min_size=10, max_size=40))
@settings(max_examples=drawn(20, 4), deadline=None)
def test_the_filter_lets_through_every_record_of_which_a_condition_holds(
    scheme: str, facts: list[RecordFacts], tables: list[dict[str, Any]]
) -> None:
    async def ask(folder: str) -> None:
        store = made(scheme, folder)
        placed = await filled(store, facts)
        try:
            for condition in [
                condition_of(given, "when") for table in tables for given in (table, {"not": table})
            ]:
                taken = {
                    record_id for record_id, one in placed.items() if condition.reason(one, NOW) is not None
                }
                for known in (KNOWN, {name: name for name in ("created_at", "type")}, {}):
                    assert await let_through(store, condition, known) >= taken, (condition, known)
            for condition in [
                *SAID,
                *(~one for one in SAID),
                AllOf(SAID[:2]),
                AnyOf(SAID[2:4]),
                ~(SAID[0] | SAID[5]),
            ]:  # else a filter of nothing would do
                taken = {
                    record_id for record_id, one in placed.items() if condition.reason(one, NOW) is not None
                }
                assert await let_through(store, condition, KNOWN) == taken, condition
        finally:
            await store.close()

    with TemporaryDirectory() as folder:
        asyncio.run(ask(folder))


def test_what_no_field_says_is_not_asked_nor_its_contrary() -> None:
    for condition in (AccessCountAtLeast(1), TenantIs("acme"), ScopeExceeds(count=1)):
        assert condition.filter(NOW, {}) == (~condition).filter(NOW, {}) == And(())
    assert (~OlderThan(DAY)).filter(NOW, KNOWN) == Not(OlderThan(DAY).filter(NOW, KNOWN))


# -- in Python and in words ------------------------------------------------------------


def test_conditions_are_combined_in_python_as_in_tables() -> None:
    condition = OlderThan(timedelta(days=7)) & ~HasTag("pinned") & TypeIs("context") | ScopeExceeds(
        tokens=500
    )
    table = {
        "any": [
            {"all": [{"older_than": "7d"}, {"not": {"tag": "pinned"}}, {"type": "context"}]},
            {"scope_over": {"tokens": 500}},
        ]
    }
    assert condition == condition_of(table, "when")
    several = condition_of({"older_than": "7d", "tag": ["a", "b"]}, "when")
    assert several == OlderThan(timedelta(days=7)) & HasTag("a", "b")


@cells(
    "condition, words",
    [
        (OlderThan(DAY), "older than 1 day"),
        (IdleFor(timedelta(minutes=90)), "unchanged for 90 minutes"),
        (AccessCountAtLeast(2), "read at least 2 times"),
        (ConfidenceAtLeast(0.8), "confidence at least 0.8"),
        (TypeIs("user", "project"), "of type user or project"),
        (HasTag("a"), "tagged a"),
        (TierIs("mid"), "in tier mid"),
        (ScopeKindIs("session"), "of a scope of kind session"),
        (TenantIs("acme"), "of tenant acme"),
        (ScopeExceeds(count=1_000), "beyond the newest 1,000 of its scope"),
        (ScopeExceeds(bytes=5), "beyond the newest 5 bytes of its scope"),
        ((OlderThan(DAY) | HasTag("a")) & ~HasTag("b"), "(older than 1 day or tagged a) and not tagged b"),
        (~(OlderThan(DAY) & HasTag("a")), "not (older than 1 day and tagged a)"),
    ],
    ids=str,
    shared=True,
)
def test_a_condition_tells_itself_in_words(condition: RuleCondition, words: str) -> None:
    assert condition.describe() == words


@cells(
    "condition, judged",
    [
        (OlderThan(10 * DAY), (True, "older than 10 days")),
        (OlderThan(11 * DAY), (False, "not older than 11 days")),
        (IdleFor(3 * DAY), (False, "not unchanged for 3 days")),
        (AccessCountAtLeast(3), (False, "read 2 times")),
        (ConfidenceAtLeast(0.8), (False, "confidence 0.5 is under 0.8")),
        (HasTag("fact", "x"), (True, "tagged 'fact'")),
        (HasTag("pinned"), (False, "not tagged 'pinned'")),
        (~HasTag("pinned"), (True, "not tagged 'pinned'")),
        (~HasTag("Pinned"), (False, "tagged 'Pinned'")),
        (TypeIs("user"), (False, "of type context")),
        (TierIs("mid"), (False, "in tier short")),
        (TenantIs("acme"), (True, "of tenant acme")),
        (ScopeKindIs("user"), (False, "of a scope of kind session")),
        (ScopeExceeds(count=2), (True, "beyond the newest 2 of its scope")),
        (ScopeExceeds(count=3), (False, "among the newest 3 of its scope")),
        (OlderThan(DAY) & HasTag("fact"), (True, "older than 1 day and tagged 'fact'")),
        (OlderThan(DAY) & HasTag("x") & AccessCountAtLeast(3), (False, "not tagged 'x' and read 2 times")),
        (OlderThan(DAY) | HasTag("x"), (True, "older than 1 day")),
        (OlderThan(99 * DAY) | HasTag("x"), (False, "not older than 99 days and not tagged 'x'")),
    ],
    ids=str,
    shared=True,
)
def test_it_says_why_it_holds_and_why_not(condition: RuleCondition, judged: tuple[bool, str]) -> None:
    assert condition.evaluate(PLAIN, NOW) == judged


def test_what_was_not_looked_at_lies_beyond_nothing() -> None:
    assert ScopeExceeds(count=0).reason(replace(PLAIN, rank=None), NOW) is None
    assert (ScopeExceeds(count=1) & ~(ScopeExceeds(tokens=2) | OlderThan(DAY))).measures() == {
        "count",
        "tokens",
    }
    assert OlderThan(DAY).measures() == frozenset()


@cells(
    "condition, tenants",
    [
        (TenantIs("a") & OlderThan(DAY), ["a"]),
        (TenantIs("a", "b") & TenantIs("b"), ["b"]),
        (TenantIs("a") | TenantIs("b"), ["a", "b"]),
        (TenantIs("a") | OlderThan(DAY), None),
        (~TenantIs("a"), None),
    ],
    ids=str,
    shared=True,
)
def test_it_says_whose_records_alone_it_can_take(condition: RuleCondition, tenants: list[str] | None) -> None:
    assert condition.tenants() == (None if tenants is None else set(tenants))


# -- refused ---------------------------------------------------------------------------


@cells(
    "given, where, problem",
    [
        (
            {"all": [{"tag": "a"}, {"older_then": "7d"}]},
            ".all[1].older_then",
            "is not a condition; did you mean older_than?",
        ),
        ({"not": {"tags": "a"}}, ".not.tags", "did you mean tag?"),
        ({"nonsense": 1}, ".nonsense", "is not a condition; there are older_than, idle_for"),
        ({"older_than": "soon"}, ".older_than", "should be a duration such as '30d'"),
        ({"older_than": "0s"}, ".older_than", "longer than zero and at most 100 years"),
        ({"older_than": "99999w"}, ".older_than", "at most 100 years"),
        ({"older_than": 1e300}, ".older_than", "at most 100 years"),
        ({"idle_for": True}, ".idle_for", "not a boolean"),
        ({"idle_for": ["7d"]}, ".idle_for", "should be a duration"),
        ({"read_at_least": 0}, ".read_at_least", "a whole number, 1 or more"),
        ({"read_at_least": True}, ".read_at_least", "a whole number, 1 or more"),
        ({"confidence_at_least": 1.1}, ".confidence_at_least", "a number from 0 to 1"),
        ({"confidence_at_least": float("nan")}, ".confidence_at_least", "a number from 0 to 1"),
        ({"type": "fact"}, ".type", "choose from user, feedback"),
        ({"tag": []}, ".tag", "should name one or more"),
        ({"tag": ["a", 1]}, ".tag", "must be text, not int"),
        ({"tier": "attic"}, ".tier", "choose from short, mid, long"),
        ({"scope_kind": "team"}, ".scope_kind", "choose from session"),
        ({"tenant": ""}, ".tenant", "must not be empty"),
        ({"scope_over": {"records": 1}}, ".scope_over", "a table of one of count, bytes, tokens"),
        ({"scope_over": {"count": 1, "tokens": 2}}, ".scope_over", "takes one of count, bytes, tokens"),
        ({"scope_over": {"count": -1}}, ".scope_over.count", "a whole number, 0 or more"),
        ({"any": []}, ".any", "a list of one condition or more"),
        ({"any": {"tag": "a"}}, ".any", "a list of one condition or more"),
        ({"any": ["tag"]}, ".any[0]", "should be a table of conditions"),
        ({}, "", 'has no condition. Write one, such as { older_than = "7d" }'),
        ("older_than", "", "should be a table of conditions"),
        ({"any": [{"tag": "a"}] * (MOST_CONDITIONS + 1)}, "", "holds more than 100 conditions"),
    ],
    ids=lambda case: str(case[0])[:60],
    shared=True,
)
def test_what_cannot_be_read_is_refused_by_its_path(given: Any, where: str, problem: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        condition_of(given, "promotion.facts-last.when")
    assert refused.value.field == f"promotion.facts-last.when{where}"
    assert problem in refused.value.problem


def test_conditions_nest_only_so_deep() -> None:
    table: dict[str, Any] = {"tag": "a"}
    condition: RuleCondition = HasTag("a")
    for _ in range(MOST_LEVELS - 1):
        table, condition = {"not": table}, NoneOf(condition)
    assert condition_of(table, "when") == condition_of(condition, "when")
    for deeper in ({"not": table}, NoneOf(condition)):
        with pytest.raises(InvalidInput, match="nests deeper than 10 levels"):
            condition_of(deeper, "when")


def test_what_python_combines_has_to_be_conditions() -> None:
    anything: Any = "older_than"
    for wrong in (
        lambda: AllOf(()),
        lambda: AnyOf((anything,)),
        lambda: NoneOf(anything),
        lambda: OlderThan(DAY) & anything,
        lambda: ScopeExceeds(),
    ):
        with pytest.raises(InvalidInput):
            wrong()
    assert OlderThan(parse_duration("7d")) == OlderThan("7d")  # type: ignore[arg-type]
