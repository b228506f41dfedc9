"""What a search asks the engine for, whichever of its doors it came by."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory import Memory, Scope
from memory.domain.search_results import SearchResult
from memory.policies.entry_query import EntryQuery
from memory.policies.ranking.preferences import Preferences
from memory.policies.routing import TIERS
from memory.sync.blocking import BlockingMemory

ADA = Scope.user("ada")
CONFIG = {
    "tiers": dict.fromkeys(TIERS, "memory://"),
    "accept_loss": True,
    "embedder": "none",
    "tenant": "acme",
}
PLAIN = EntryQuery("acme", (ADA,), limit=10)
MOMENT = datetime(2026, 5, 1, tzinfo=UTC)
CASES: dict[str, tuple[dict[str, Any], EntryQuery]] = {
    "nothing but a query": ({}, PLAIN),
    "boosts": (
        {"boost": {"types": ["user"], "tags": ("a", "a", "b")}},
        replace(PLAIN, preferred=Preferences(types=("user",), tags=("a", "b"))),
    ),
    "a filter": (
        {"filter": {"types": ["user"], "tags": ["a", "a"], "since": MOMENT.isoformat()}},
        replace(PLAIN, types=("user",), tags=("a",), since=MOMENT),
    ),
    "both": (
        {"boost": {"types": ["user"]}, "filter": {"types": ["project"]}},
        replace(PLAIN, types=("project",), preferred=Preferences(types=("user",))),
    ),
    "a mode and a least relevance": (
        {"mode": "lexical", "min_relevance": 1},
        replace(PLAIN, mode="lexical", min_relevance=1.0),
    ),
    "a conversation": (
        {"boost": {"conversation_id": "c1"}},
        replace(PLAIN, preferred=Preferences(conversation_id="c1")),
    ),
    "no intent": ({"intent": False}, replace(PLAIN, preferred=Preferences(intent=False))),
    "no ageing": ({"age_decay": False}, replace(PLAIN, preferred=Preferences(age_decay=False))),
    "days of a half-life": (
        {"half_life": 7, "decay_floor": 0.25},
        replace(PLAIN, preferred=Preferences(half_life=7.0, floor=0.25)),
    ),
    "a half-life": ({"half_life": timedelta(hours=36)}, replace(PLAIN, preferred=Preferences(half_life=1.5))),
}


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> list[EntryQuery]:
    """What the engine was asked."""
    asked: list[EntryQuery] = []

    async def search(self: Any, what: EntryQuery, text: str, *, explain: bool) -> SearchResult:
        asked.append(what)
        return SearchResult()

    monkeypatch.setattr("memory.orchestrator.retrieval.search.EntrySearch.search", search)
    return asked


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory(CONFIG) as opened:
        yield opened


@pytest.mark.parametrize("case", CASES)
async def test_the_engine_is_asked_for_what_the_caller_wants(
    memory: Memory, heard: list[EntryQuery], case: str
) -> None:
    given, wanted = CASES[case]
    await memory.search("tea", scope=ADA, **given)
    await memory.scoped(ADA).search("tea", **given)
    assert heard == [wanted, wanted]


def test_the_blocking_twin_asks_the_same(heard: list[EntryQuery]) -> None:
    with BlockingMemory(CONFIG) as memory:
        for given, _ in CASES.values():
            memory.search("tea", scope=ADA, **given)
            memory.scoped(ADA).search("tea", **given)
    assert heard == [wanted for _, wanted in CASES.values() for _ in range(2)]
