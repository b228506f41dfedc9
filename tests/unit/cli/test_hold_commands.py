"""`memory legal-holds`: what may not be deleted until its hold is removed."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")


def test_what_is_held_is_not_deleted_until_it_is_released(memory: CommandLine) -> None:
    entry = memory.json("write", "Ada lives in Bern", "-s", "user:ada")["id"]
    placed = memory.json(
        "legal-holds", "add", "case-17", "--user", "ada", "--reason", "a lawsuit", "--by", "legal"
    )
    assert (placed["name"], placed["over"], placed["of"], placed["placed_by"]) == (
        "case-17",
        "user",
        "ada",
        "legal",
    )
    refused = memory("forget", entry, "--json")
    assert refused.exit_code == 6
    assert "case-17" in refused.stderr
    assert "memory legal-holds remove" in refused.stderr
    assert [hold["name"] for hold in memory.json("legal-holds", "list")] == ["case-17"]
    assert "a lawsuit" in memory("legal-holds", "list").stdout
    assert [hold["of"] for hold in memory.json("legal-holds", "remove", "case-17")] == ["ada"]
    assert memory("forget", entry).exit_code == 0
    assert memory.json("legal-holds", "list") == []


def test_releasing_what_is_not_held_finds_nothing_and_a_hold_names_one_thing(memory: CommandLine) -> None:
    assert memory("legal-holds", "remove", "case-18").exit_code == 1
    none = memory("legal-holds", "add", "case-18", "--reason", "x")
    both = memory("legal-holds", "add", "case-18", "--reason", "x", "--user", "ada", "--whole-tenant")
    assert (none.exit_code, both.exit_code) == (2, 2)
    for refused in (none, both):
        assert "hold: takes exactly one of --scope, --user, --entry and --whole-tenant" in " ".join(
            refused.stderr.split()
        )


@pytest.mark.parametrize(
    ("reason", "problem"),
    [("", "length must be 1..2000"), (" \n", "must not be blank"), ("r" * 2_001, "length must be 1..2000")],
)
def test_a_reason_says_something(memory: CommandLine, reason: str, problem: str) -> None:
    refused = memory("legal-holds", "add", "case-19", "--user", "ada", "--reason", reason)
    assert refused.exit_code == 2
    assert f"reason: {problem}" in " ".join(refused.stderr.split())
    assert memory.json("legal-holds", "list") == []
