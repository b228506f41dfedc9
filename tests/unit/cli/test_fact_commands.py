"""Facts that change, from the command line: updated, superseded, ended, linked, and
what they said before.
"""

from __future__ import annotations

import re

import pytest

from memory import StoreUnavailable
from memory.orchestrator.entries.short_ids import ShortIds
from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")


def test_a_fact_is_updated_and_its_history_is_shown(memory: CommandLine) -> None:
    entry = memory.json("write", "Ada lives in Bonn", "-s", "user:ada", "-t", "home", "--key", "home")["id"]
    changed = memory.json("update", entry, "--content", "Ada lives in Bern", "--metadata", '{"sure": true}')
    assert (changed["content"], changed["tags"], changed["metadata"]) == (
        "Ada lives in Bern",
        ["home"],
        {"sure": True},
    )
    again = memory.json(
        "write", "Ada lives in Basel", "-s", "user:ada", "--key", "home", "--if-exists", "replace"
    )
    assert (again["id"], again["content"]) == (entry, "Ada lives in Basel")
    said = [one["content"] for one in memory.json("history", entry)["history"]]
    assert said == ["Ada lives in Bonn", "Ada lives in Bern", "Ada lives in Basel"]
    assert "Ada lives in Bonn" in memory.ok("history", entry)
    assert memory("update", "unknown", "--content", "x").exit_code == 1
    assert memory("write", "y", "-s", "user:ada", "--if-exists", "replace").exit_code == 2, (
        "without a key there is nothing to replace"
    )
    assert memory("write", "y", "-s", "user:ada", "--key", "k", "--if-exists", "upsert").exit_code == 2


def test_a_fact_takes_the_place_of_another_or_ends(memory: CommandLine) -> None:
    old = memory.json("write", "Ada lives in Bonn", "-s", "user:ada")["id"]
    new = memory.json("write", "Ada lives in Bern", "-s", "user:ada", "--supersedes", old)["id"]
    assert [
        one["entry"]["id"] for one in memory.json("search", "Ada lives", "-s", "user:ada")["results"]
    ] == [new]
    assert [one["id"] for one in memory.json("history", new)["history"]] == [old, old, new]
    assert "Ada lives in Bonn" in memory.ok("history", new)
    assert memory.json("invalidate", new) == {"ended": [new], "not_found": []}
    assert memory("invalidate", new).exit_code == 1
    assert memory.json("search", "Ada lives", "-s", "user:ada", code=1)["results"] == []


def test_what_is_near_a_fact_is_said_where_that_is_asked_for(memory: CommandLine) -> None:
    old = memory.json("write", "Ada lives in Bonn", "-s", "user:ada")["id"]
    checked = memory.json("write", "Ada lives in Bern", "-s", "user:ada", "--detect-conflicts")
    assert [one["id"] for one in checked["near"]] == [old]
    assert f"near it: {old}" in memory.ok(
        "write", "Ada lives in Basel", "-s", "user:ada", "--detect-conflicts"
    )
    assert len(memory.json("list", "-s", "user:ada")["entries"]) == 3


def test_facts_are_linked_shown_with_their_links_and_unlinked(memory: CommandLine) -> None:
    bonn, tea, port = [
        memory.json("write", text, "-s", "user:ada", "--title", text)["id"]
        for text in ("Bonn", "tea", "port")
    ]
    link = memory.json("relate", bonn, "supports", tea)
    memory.ok("relate", tea, "refines", port)
    assert (link["source_id"], link["label"], link["target_id"]) == (bonn, "supports", tea)
    assert [node["entry"]["title"] for node in memory.json("related", bonn)["nodes"]] == ["Bonn", "tea"]
    assert [node["depth"] for node in memory.json("related", bonn, "--depth", "2")["nodes"]] == [0, 1, 2]
    assert "supports" in memory.ok("related", bonn)
    assert memory("relate", bonn, "supports", tea).exit_code != 0
    assert memory.json("unrelate", link["id"]) == {"deleted": True}
    assert memory.json("unrelate", link["id"], code=1) == {"deleted": False}


def test_what_is_linked_to_a_fact_is_drawn(memory: CommandLine) -> None:
    old = memory.json("write", "Ada lives in Bonn", "-s", "user:ada")["id"]
    new = memory.json("write", "Ada lives in Bern", "-s", "user:ada", "--supersedes", old)["id"]
    tea = memory.json("write", "tea & <cake>", "-s", "user:ada")["id"]
    port = memory.json("write", "port", "-s", "user:ada")["id"]
    memory.ok("relate", new, "supports", tea)
    memory.ok("relate", tea, "refines", port)
    assert "3 entries and 2 links" in memory.ok("graph", new, "--out", "ada.svg")
    drawn = (memory.folder / "ada.svg").read_text(encoding="utf-8")
    assert all(
        said in drawn
        for said in (
            "Ada lives in Bonn",
            "Ada lives in Bern",
            "tea &amp; &lt;cake&gt;",
            ">supersedes<",
            ">supports<",
        )
    )
    assert "port" not in titles_of(drawn)
    assert memory.ok("graph", new) == drawn, "without a file it goes to standard output"
    assert "4 entries" in memory.ok("graph", new, "-o", "ada.svg", "--depth", "2"), (
        "what stood there is replaced"
    )
    assert "port" in titles_of((memory.folder / "ada.svg").read_text(encoding="utf-8"))
    found = memory.json("graph", new, "--out", "again.svg")
    assert (len(found["nodes"]), len(found["relations"]), found["retired"]) == (3, 2, [old])
    assert (memory.folder / "again.svg").read_text(encoding="utf-8") == drawn
    assert memory.json("graph", old)["retired"] == [old], (
        "a retired one is drawn too, with what superseded it"
    )
    assert memory("graph", "unknown").exit_code == 1
    for command in ("graph", "related"):
        steps = [memory.json(command, new, "--depth", str(depth))["nodes"] for depth in (0, 1, 2, 3)]
        assert [len(found) for found in steps][:1] == [len(steps[1])], (
            f"{command}: fewer than one are one (D117)"
        )
        assert steps[2] == steps[3] != steps[1], f"{command}: more than two are two"
    database = (memory.folder / "memory.db").read_bytes()
    assert memory("graph", new, "--out", "memory.db").exit_code == 2
    assert (memory.folder / "memory.db").read_bytes() == database


def titles_of(drawn: str) -> list[str]:
    return re.findall(r'class="title"[^>]*>([^<]*)<', drawn)


@pytest.mark.behaviour("D114")
def test_entries_are_named_by_the_numbers_they_are_shown_with(memory: CommandLine) -> None:
    bonn, tea = [
        memory.json("write", text, "-s", "user:ada", "--title", text)["id"] for text in ("Bonn", "tea")
    ]
    assert memory.json("list", "-s", "user:ada")["entries"][0]["id"] == tea
    assert memory("show", "#1").exit_code == 1, "programs are shown none, so none is given"
    listed = memory.ok("list", "-s", "user:ada")
    assert f"#1 · {bonn}" in listed
    assert f"#2 · {tea}" in listed
    assert f"#2 · {tea}" in memory.ok("search", "tea", "-s", "user:ada")
    assert memory.json("update", "2", "--content", "green tea")["id"] == tea
    assert "#2" in memory.ok("show", "# 2")
    assert [one["content"] for one in memory.json("history", "#2")["history"]] == ["tea", "green tea"]
    assert memory.json("relate", "#1", "supports", "2")["target_id"] == tea
    assert [node["entry"]["id"] for node in memory.json("related", "#1")["nodes"]] == [bonn, tea]
    assert [node["entry"]["id"] for node in memory.json("graph", "#1", "--out", "bonn.svg")["nodes"]] == [
        bonn,
        tea,
    ]
    assert memory.json("why", "#1")["entry_id"] == bonn
    assert memory.json("promote", "#1", "--to", "org:o")["promoted"][0]["promoted_from_id"] == bonn
    assert memory.json("legal-holds", "add", "case", "--reason", "r", "--entry", "#1")["of"] == bonn
    memory.ok("legal-holds", "remove", "case")
    assert memory.json("write", "Berlin", "-s", "user:ada", "--supersedes", "#1")["content"] == "Berlin"
    assert memory.json("invalidate", "#2", "#9", code=1) == {"ended": [tea], "not_found": ["#9"]}
    assert memory.json("forget", "#2", "7", code=1) == {
        "deleted": [tea],
        "not_found": ["7"],
        "kept": {},
        "incomplete": [],
    }
    assert memory("show", "#2").exit_code == 1
    assert memory("show", "#two").exit_code == 2


def test_entries_are_shown_without_numbers_where_none_can_be_had(
    memory: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = memory.json("write", "tea", "-s", "user:ada")["id"]

    async def fails(*_: object) -> dict[str, int]:
        raise StoreUnavailable("main", "is read only")

    monkeypatch.setattr(ShortIds, "of", fails)
    result = memory("list", "-s", "user:ada")
    assert (result.exit_code, entry in result.stdout, "short ids are not shown" in result.stderr) == (
        0,
        True,
        True,
    )


def test_scratchpads_are_appended_to_shown_and_cleared(memory: CommandLine) -> None:
    assert memory("scratchpad", "show").exit_code == 1
    size = memory.json("scratchpad", "append", "the build needs Node 20", "--agent", "builder")["size"]
    shown = memory.json("scratchpad", "show", "-a", "builder")
    assert (shown["size"], shown["exists"], shown["content"].splitlines()[1]) == (
        size,
        True,
        "the build needs Node 20",
    )
    assert "the build needs Node 20" in memory.ok("scratchpad", "show", "-a", "builder")
    long = "a line of more than a screen's width " * 20 + "ends here"
    memory.ok("scratchpad", "append", long, "-a", "writer")
    assert long in memory.ok("scratchpad", "show", "-a", "writer").splitlines(), "a line stays one"
    assert memory.json("scratchpad", "clear", "-a", "builder") == {"agent": "builder", "cleared": True}
    assert memory.json("scratchpad", "clear", "-a", "builder", code=1)["cleared"] is False
    assert "It is empty." in memory.ok("scratchpad", "show", "-a", "builder")
    assert memory("scratchpad", "append", "x", "-a", "../etc").exit_code == 2


def test_a_fact_is_changed_at_the_version_that_was_read(memory: CommandLine) -> None:
    def written(*options: str) -> int:
        return memory("write", "Basel", "-s", "user:ada", "--key", "home", *options).exit_code

    assert written("--expected-version", "absent") == 0
    assert written("--expected-version", "absent") == 6
    made = memory.json("list", "-s", "user:ada")["entries"][0]
    assert made["key"] == "home"
    assert (
        memory("update", made["id"], "--title", "Home", "--expected-version", made["version"]).exit_code == 0
    )
    stale = memory("update", made["id"], "--title", "House", "--expected-version", made["version"])
    assert (stale.exit_code, "has version" in stale.output) == (6, True)
    assert written("--if-exists", "update", "--expected-version", made["version"]) == 6
    assert written("--if-exists", "keep") == 0
