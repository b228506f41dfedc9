"""plan, why, sweep and list from the command line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")

RULES = """
tiers = { short = "sqlite:///memory.db", mid = "sqlite:///memory.db", long = "sqlite:///memory.db" }

[[promotion]]
name = "crowded"
on = "sweep"
when = { all = [ { scope_over = { count = 2 } }, { not = { tag = "pinned" } } ] }

[[promotion]]
name = "aged"
on = "sweep"
source = "mid"
target = "long"
when = { older_than = "30d", type = "context" }
"""


@pytest.fixture
def ruled(memory: CommandLine) -> CommandLine:
    (memory.folder / "memory.toml").write_text(RULES)
    return replace(memory, environ={**memory.environ, "MEMORY_CONFIG": "memory.toml", "COLUMNS": "80"})


@pytest.fixture
def ids(ruled: CommandLine) -> list[str]:
    return [
        ruled.json("write", f"The ferry number {n} runs on Sundays only", "-s", "session:andorinha")["id"]
        for n in range(4)
    ]


def test_a_plan_says_what_a_sweep_then_does(ruled: CommandLine, ids: list[str]) -> None:
    plan = ruled.json("plan")
    assert [
        (one["id"], one["action"], one["tier"], one["to"], one["rule"], one["tenant"], one["scope"])
        for one in plan["planned"]
    ] == [
        (entry_id, "move", "short", "mid", "crowded", "default", "session:andorinha") for entry_id in ids[:2]
    ]
    assert plan["waiting"] == []
    shown = ruled.ok("plan")
    assert "move 2 (entries) from short to mid by crowded: beyond the newest 2 of its" in shown
    assert all(entry_id in shown for entry_id in ids[:2])
    assert ids[2] not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert [one["id"] for one in ruled.json("plan")["planned"]] == ids[:2]
    assert ruled.json("sweep")["moved"] == 2
    assert ruled.json("plan")["planned"] == []
    assert "No rule applies to any record now, and nothing has expired." in ruled.ok("plan")
    assert "Nothing to do." in ruled.ok("sweep")


def test_a_plan_names_what_the_end_of_a_session_does_and_what_a_quota_refuses_or_has_go(
    ruled: CommandLine,
) -> None:
    ends = """
[[promotion]]
name = "known"
to_scope = "org:o1"

[[retention]]
name = "quiet"
what = "sessions"
then = "end"
when = { idle_for = "1ms" }

[[quotas]]
name = "few"
scope_kinds = ["org"]
entries = 1
"""
    (ruled.folder / "memory.toml").write_text(RULES + ends)
    ruled.ok("session", "import", ruled.write_lines("andorinha.jsonl", {"role": "user", "content": "hello"}))
    entries = [
        ruled.json("write", f"The ferry {n} runs on Sundays only", "-s", "session:andorinha")["id"]
        for n in range(2)
    ]
    plan = ruled.json("plan")
    assert [(one["action"], one["rule"]) for one in plan["planned"]] == [("copy", "known"), ("end", "quiet")]
    assert (plan["planned"][0]["id"], plan["planned"][0]["to"], plan["planned"][0]["depends"]) == (
        entries[0],
        "org:o1",
        [],
    )
    assert [(one["id"], one["action"], one["rule"], one["quota"]) for one in plan["stays"]] == [
        (entries[1], "copy", "known", "few")
    ]
    shown = " ".join(ruled.ok("plan").split())
    assert "copy 1 (entries) from short to org:o1 by known: the rule takes every entry" in shown
    assert "copy to org" in shown
    assert entries[1] in shown.partition("Stays")[2], "and which it is, of whom and where"
    assert "scope 'org:o1'" in shown
    (ruled.folder / "memory.toml").write_text(RULES + ends + 'then = "evict"\n')
    plan = ruled.json("plan")
    assert [(one["action"], one["rule"]) for one in plan["planned"]] == [
        ("copy", "known"),
        ("copy", "known"),
        ("evict", "few"),
        ("end", "quiet"),
    ]
    shown = " ".join(ruled.ok("plan").split())
    assert (
        "evict 1 (entries) in mid for quota few: at most 1 entries per scope (org); beyond it the oldest"
        " entries are evicted" in shown
    )
    assert "Stays" not in shown


def test_people_are_shown_the_first_of_many_that_are_planned_alike(ruled: CommandLine) -> None:
    lines = [{"role": "user", "content": f"The ferry number {n} runs"} for n in range(30)]
    ruled.ok("import", ruled.write_lines("chat.jsonl", *lines), "--scope", "session:andorinha")
    assert len(ruled.json("plan")["planned"]) == 28
    shown = ruled.ok("plan")
    assert "move 28 (entries) from short to mid" in shown
    assert shown.count("session:andorinha") == 20
    assert "and 8 more; --json lists them all" in shown


def test_why_says_which_rules_act_and_when(ruled: CommandLine, ids: list[str]) -> None:
    report = ruled.json("why", ids[0])
    assert (report["tier"], report["next"]["rule"], report["next"]["to"], report["held"]) == (
        "short",
        "crowded",
        "mid",
        [],
    )
    assert [rule["takes"] for rule in report["rules"]] == [True, False]
    assert report["rules"][0]["depends"] == ["what its scope holds"]
    newest = ruled.json("why", ids[3])
    assert newest["next"] is None
    assert newest["rules"][0]["because"] == "among the newest 2 of its scope"
    assert "No sweep moves it unless it changes." in ruled.ok("why", ids[3])
    ruled.ok("promote", ids[0], "--tier", "mid")
    shown = ruled.ok("why", ids[0])
    assert "Next: aged moves it to long with the first sweep at or after" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert ruled.json("why", "01900000-0000-8000-8000-000000000000", code=1)["error"]["exit"] == 1


def test_a_sweep_says_what_it_did(ruled: CommandLine, ids: list[str]) -> None:
    shown = ruled.ok("sweep")
    assert shown.split()[-2:] == ["moved", "2"]


def test_entries_are_listed_page_by_page(ruled: CommandLine, ids: list[str]) -> None:
    first = ruled.json("list", "-s", "session:andorinha", "-n", "3")
    assert [entry["id"] for entry in first["entries"]] == ids[:0:-1]
    rest = ruled.json("list", "-s", "session:andorinha", "-n", "3", "--cursor", first["cursor"])
    assert ([entry["id"] for entry in rest["entries"]], rest["cursor"]) == (ids[:1], None)
    assert [
        entry["id"] for entry in ruled.json("list", "-s", "session:andorinha", "--oldest")["entries"]
    ] == ids
    assert ruled.json("list", "-s", "user:nobody", code=1)["entries"] == []
    shown = ruled.ok("list", "-s", "session:andorinha")
    assert all(entry_id in shown for entry_id in ids)
    assert max(map(len, shown.splitlines())) <= 80
    ruled.ok("write", "tagged", "-s", "session:andorinha", "-t", "fact", "--type", "user")
    assert [
        e["content"]
        for e in ruled.json("list", "-s", "session:andorinha", "-t", "fact", "--type", "user")["entries"]
    ] == ["tagged"]


def test_a_condition_that_is_none_is_named_with_the_file(ruled: CommandLine) -> None:
    (ruled.folder / "memory.toml").write_text(RULES.replace("older_than", "older_then"))
    result = ruled("plan")
    assert result.exit_code != 0
    assert "promotion.aged.when.older_then: is not a condition; did you mean older_than?" in result.stderr
    assert "memory.toml" in result.stderr


def test_doctor_names_the_rules_that_act(ruled: CommandLine) -> None:
    file = ruled.folder / "memory.toml"
    file.write_text(
        RULES + '[[retention]]\nname = "old"\nwhen = { older_than = "90d" }\n\n[[quotas]]\nname ='
        ' "few"\nscope_kinds = ["user"]\nentries = 20\n'
    )
    report = ruled.json("doctor")
    assert report["rules"] == {
        "promotion": ["crowded", "aged"],
        "policies": [],
        "retention": ["old"],
        "quotas": ["few"],
    }
    assert "rules: promotion crowded, aged; retention old; quotas few" in ruled.ok("doctor")
    file.write_text("promotion = []\n" + RULES.partition("[[")[0])
    assert "rules: none" in ruled.ok("doctor")
