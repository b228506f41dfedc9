"""`memory sources`: what is found by nobody, and what is taken
back.
"""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")
WEB = ("--source", "web:example.com")


def test_a_blocked_source_is_hidden_until_it_is_unblocked(memory: CommandLine) -> None:
    memory.json("write", "poisoned tea", "-s", "user:ada", *WEB)
    [placed] = memory.json("sources", "block", *WEB, "--reason", "a poisoned page", "--by", "ops")
    assert (placed["origin"], placed["later_writes"], placed["blocked_by"]) == (
        "source:web:example.com",
        "refused",
        "ops",
    )
    assert memory("search", "tea", "-s", "user:ada").exit_code == 1
    refused = memory("write", "more tea", "-s", "user:ada", *WEB, "--json")
    assert (refused.exit_code, "refused" in refused.stderr) == (6, True)
    assert "a poisoned page" in memory("sources", "list").stdout
    assert [one["origin"] for one in memory.json("sources", "unblock", *WEB)] == ["source:web:example.com"]
    assert len(memory.json("search", "tea", "-s", "user:ada")["results"]) == 1
    assert "No source is blocked." in memory("sources", "list").stdout
    assert memory("sources", "unblock", *WEB).exit_code == 1


def test_a_dry_run_says_what_a_roll_back_then_does(memory: CommandLine) -> None:
    entry = memory.json("write", "poisoned tea", "-s", "user:ada", *WEB)["id"]
    planned = memory.json("sources", "revert", *WEB, "--dry-run")
    assert (planned["dry_run"], planned["counts"]["retired"]) == (True, 1)
    assert memory.json("show", entry)["content"] == "poisoned tea"
    done = memory.json("sources", "revert", *WEB)
    assert done == {**planned, "dry_run": False}
    assert memory("show", entry).exit_code != 0
    assert "0 retired" in memory("sources", "revert", *WEB).stdout
    shown = memory("sources", "revert", *WEB, "--erase", "--since", "2026-01-01T00:00:00Z")
    assert entry in shown.stdout
    assert "1 erased" in shown.stdout


def test_a_roll_back_names_somebody(memory: CommandLine) -> None:
    assert memory("sources", "revert").exit_code == memory("sources", "block", "--reason", "r").exit_code == 2


def test_what_is_written_later_is_kept_back_if_asked(memory: CommandLine) -> None:
    memory.json(
        "sources",
        "block",
        "--agent",
        "helper",
        "--run",
        "r1",
        "--reason",
        "r",
        "--keep-back",
        "--since",
        "2026-01-01T00:00:00Z",
    )
    assert [one["later_writes"] for one in memory.json("sources", "list")] == ["kept_back", "kept_back"]
    assert "kept back" in memory("sources", "list").stdout
