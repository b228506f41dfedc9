"""`memory search --explain`: how a hit came to its place, for people on 80 columns and
for programs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from memory import Entry, FoundEntry, Scope, SearchResult
from tests.unit.cli.conftest import CommandLine

AT = datetime(2026, 5, 1, 10, tzinfo=UTC)
TEA = Entry(
    id="0198b2a0-1111-8222-9333-444455556666",
    tenant="default",
    scope=Scope.user("ada"),
    content="Ada prefers green tea in the morning, and black tea with milk in the afternoon",
    created_at=AT,
    updated_at=AT,
    valid_from=AT,
    version="0000000000001",
    tier="mid",
)
WHOLE: dict[str, Any] = {
    "rank": 1,
    "order": 2.1456,
    "ranks": {"lexical": 2, "semantic": None, "score": 3},
    "terms": {
        "lexical": 1.0,
        "own_lexical": 0.201,
        "semantic": 0.7,
        "own_semantic": 0.1,
        "speaker": 0.0,
        "asks": -0.2,
        "session": 0.15,
        "length": 0.26,
        "answers": -0.02,
    },
    "multipliers": {"type": 1.3, "tag": 1.0, "local": 1.25, "age": 0.9},
    "tier": "mid",
    "store": "postgresql",
}
LEFT = {"beyond_limit": 12, "changed_since": ["a", "b"]}
Explained = Callable[[dict[str, Any]], str]


def _answering(monkeypatch: pytest.MonkeyPatch, explanation: dict[str, Any]) -> None:
    async def search(*args: object, explain: bool) -> SearchResult:
        return SearchResult([FoundEntry(TEA, 0.8123, explanation, 0.64)], left_out=LEFT)

    monkeypatch.setattr("memory.orchestrator.retrieval.search.EntrySearch.search", search)


@pytest.fixture
def explained(memory: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Explained:
    """What is shown under a hit that is explained so, in one line, on 80 columns."""
    narrow = replace(memory, environ={**memory.environ, "COLUMNS": "80"})

    def shown(explanation: dict[str, Any]) -> str:
        _answering(monkeypatch, explanation)
        text = narrow.ok("search", "tea", "-s", "user:ada", "--explain")
        assert max(map(len, text.splitlines())) <= 80
        assert TEA.id in text
        said, _, left = text.partition("10:00")[2].partition("not shown: ")
        assert left.split() == "12 beyond limit, 2 changed since".split()
        return " ".join(said.split())

    return shown


def test_the_largest_terms_are_named_and_what_changes_nothing_is_left_out(explained: Explained) -> None:
    assert (
        explained(WHOLE)
        == "lexical #2 · score #3 lexical 1.00 + semantic 0.70 + length 0.26 + own lexical 0.20 − asks 0.20 +"
        " others 0.23 × type 1.30 × local 1.25 × age 0.90 = 2.15 in postgresql"
    )


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ({}, ""),
        ({"rank": 1, "tier": "mid"}, ""),
        ({"store": "sqlite"}, "in sqlite"),
        ({"order": 0.5}, "= 0.50"),
        ({"terms": {}, "multipliers": {}, "order": 0.01}, "= 0.01"),
        ({"terms": {"asks": -0.2, "lexical": 0.1}}, "− asks 0.20 + lexical 0.10"),
        ({"terms": {"lexical": 0.0}, "multipliers": {"age": 1.0}}, ""),
        ({"multipliers": {"age": 0.5}, "store": "sqlite"}, "× age 0.50 in sqlite"),
    ],
    ids=str,
)
def test_what_is_not_told_is_not_shown(explained: Explained, told: dict[str, Any], shown: str) -> None:
    assert explained(told) == shown


def test_programs_get_the_explanation_as_it_is(memory: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, WHOLE)
    answer = memory.json("search", "tea", "-s", "user:ada", "--explain")
    (hit,) = answer["results"]
    assert answer["left_out"] == LEFT
    assert hit["explanation"] == WHOLE
    assert hit["score"] == 0.8123


def test_the_part_of_a_long_text_is_told_that_was_nearest(explained: Explained) -> None:
    assert (
        explained({"part": {"number": 3, "of": 48, "characters": [500, 740]}, "store": "main"})
        == "nearest in part 3 of 48, from character 500 in main"
    )


def test_what_a_store_is_called_is_shown_as_text(explained: Explained) -> None:
    assert explained({"store": "[red]a\x1b[0m"}) == "in [red]a [0m"


def test_of_vectors_that_the_process_keeps_their_age_is_told(explained: Explained) -> None:
    assert explained({"store": "main", "vectors_age": 12.3}) == "in main, its vectors as of 12 s ago"
