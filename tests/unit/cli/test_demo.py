"""The demo: the main job on the bundled conversation, on a real database file with the
real embedder.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest

from memory.cli.demo.run import asset, turns
from tests.unit.cli.conftest import CommandLine


@pytest.fixture
def demo(memory: CommandLine) -> CommandLine:
    return CommandLine(memory.folder, {"COLUMNS": "200"})


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What one run says; tests only read it."""
    with contextlib.chdir(tmp_path_factory.mktemp("demo")):
        return CommandLine(Path.cwd(), {"COLUMNS": "200"}).json("demo")


def test_every_question_finds_its_evidence_among_the_first_five(shown: Any) -> None:
    assert len(shown["answers"]) == 5
    for answer in (*shown["answers"], shown["asked_again"]):
        assert answer["found_at"] is not None, answer["question"]
        assert answer["found_at"] <= 5
        (evidence,) = [hit for hit in answer["hits"] if hit["evidence"]]
        assert evidence["turn"] in answer["expected"]
    assert shown["all_found"] is True


def test_two_questions_share_no_word_with_their_evidence_and_are_found_by_meaning_alone(shown: Any) -> None:
    by_meaning = [answer for answer in shown["answers"] if not answer["shared_words"]]
    assert len(by_meaning) >= 2
    for answer in by_meaning:
        (evidence,) = [hit for hit in answer["hits"] if hit["evidence"]]
        assert evidence["lexical_rank"] is None
        assert evidence["semantic_rank"] <= 5
    assert any(answer["shared_words"] for answer in shown["answers"])


def test_what_the_end_of_the_session_moves_is_what_the_rule_says(shown: Any) -> None:
    def taken(turn: Any) -> bool:
        return "fact" in turn.draft.tags or turn.draft.metadata.get("confidence", 0) >= 0.8

    moved, kept = shown["promotion"]["moved"], shown["promotion"]["kept"]
    assert {item["turn"] for item in moved} == {turn.draft.key for turn in turns() if taken(turn)}
    assert {item["turn"] for item in kept} == {turn.draft.key for turn in turns() if not taken(turn)}
    assert {(item["from_tier"], item["to_tier"], item["rule"]) for item in moved} == {
        ("short", "long", "facts-last")
    }
    assert {tier["tier"]: tier["entries"] for tier in shown["tiers"]["tiers"]} == {
        "short": len(kept),
        "mid": 5,
        "long": len(moved),
    }
    assert shown["tiers"]["pending_steps"] == 0
    assert {hit["tier"] for hit in shown["asked_again"]["hits"] if hit["evidence"]} == {"long"}


def test_the_rule_decides_also_when_it_is_another_one(demo: CommandLine) -> None:
    rules = json.dumps([{"name": "health-only", "source": "short", "target": "mid", "tags": ["health"]}])
    shown = CommandLine(demo.folder, {"MEMORY__PROMOTION": rules}).json("demo")
    assert [(item["turn"], item["to_tier"]) for item in shown["promotion"]["moved"]] == [
        ("andorinha-25", "mid")
    ]


def test_each_kind_of_record_says_where_it_went_and_why(shown: Any) -> None:
    assert {row["scope"].partition(":")[0]: row["tier"] for row in shown["routes"]} == {
        "session": "short",
        "user": "mid",
        "workspace": "mid",
        "org": "mid",
        "object": "mid",
    }
    assert all(row["because"] for row in shown["routes"])


def test_the_agent_s_window_is_compacted_and_nothing_is_forgotten(shown: Any) -> None:
    found = shown["window"]
    assert len(found["compactions"]) >= 3
    assert found["window"]["tokens"] <= found["largest_window"] <= found["budget"]
    assert (found["kept"], found["said"]) == (60, 60)
    assert sum(one["archived"] for one in found["compactions"]) + found["window"]["messages"] >= 61
    gone = [one for one in found["recalled"] if not one["in_window"]]
    assert len(gone) >= 2
    assert all(one["found_at"] is not None for one in gone)


def test_people_see_the_conversation_remembered_searched_and_moved(demo: CommandLine) -> None:
    text = demo.ok("demo")
    for words in (
        "60 imported",
        "Which berth did the harbour give us?",
        "✓",
        "lexical #1 · semantic #1",
        "facts-last",
        "tagged 'fact'",
        "44 stay in",
        "the history has 60 of 60",
        "5 of 5 answers found",
    ):
        assert words in text


def test_a_kept_demo_can_be_looked_at_and_run_again(demo: CommandLine, tmp_path: Path) -> None:
    assert "To explore it: memory --config kept.db" in demo.ok("demo", "--keep", "kept.db")
    again = demo.json("demo", "--keep", "kept.db")
    assert again["remembered"] == {"turns": 60, "imported": 0, "already_there": 60, "known_before": 5}
    assert again["promotion"]["moved"] == []
    assert again["window"]["kept"] == 60
    assert [one["id"] for one in demo.json("session", "list", "--config", "kept.db")["sessions"]] == [
        "andorinha-refit"
    ]
    assert demo.json("search", "dark blue", "-s", "session:andorinha", "--config", "kept.db")["results"]
    assert {path.name for path in tmp_path.iterdir()} >= {"kept.db"}


def test_the_demo_leaves_nothing_behind_and_runs_on_configured_stores_when_told(
    demo: CommandLine, tmp_path: Path
) -> None:
    assert demo.json("demo", "--config", "memory://")["all_found"]
    assert list(tmp_path.iterdir()) == []
    assert demo("demo", "--config", "memory://", "--keep", "x.db").exit_code == 2


def test_evidence_that_is_not_found_is_said_and_ends_with_1(demo: CommandLine) -> None:
    blind = CommandLine(demo.folder, {"MEMORY__EMBEDDER": "none", "COLUMNS": "200"})
    result = blind("demo")
    assert result.exit_code == 1
    assert "✗ the evidence (andorinha-25) is not among the first" in result.stdout


def test_the_bundled_conversation_is_sixty_turns_over_several_days() -> None:
    found = turns()
    assert len(found) == len(asset("conversation.jsonl").splitlines()) == 60
    assert {turn.draft.metadata["role"] for turn in found} == {"user", "assistant"}
    times = [turn.draft.created_at for turn in found if turn.draft.created_at is not None]
    assert times == sorted(times)
    assert len({time.date() for time in times}) >= 5
