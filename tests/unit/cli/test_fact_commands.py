"""Facts that change, from the command line: updated, superseded, ended, linked, and what they said before."""

from __future__ import annotations

import re

import pytest

from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")


def test_a_fact_is_updated_and_its_history_is_shown(memory: CommandLine) -> None:
    entry = memory.json("write", "Ada lives in Bonn", "-s", "user:ada", "-t", "home", "--key", "home")["id"]
    changed = memory.json("update", entry, "--content", "Ada lives in Bern", "--metadata", '{"sure": true}')
    assert (changed["content"], changed["tags"], changed["metadata"]) == ("Ada lives in Bern", ["home"], {"sure": True})
    again = memory.json("write", "Ada lives in Basel", "-s", "user:ada", "--key", "home", "--update")
    assert (again["id"], again["content"]) == (entry, "Ada lives in Basel")
    said = [one["content"] for one in memory.json("history", entry)["history"]]
    assert said == ["Ada lives in Bonn", "Ada lives in Bern", "Ada lives in Basel"]
    assert "Ada lives in Bonn" in memory.ok("history", entry)
    assert memory("update", "unknown", "--content", "x").exit_code == 1
    assert memory("write", "y", "-s", "user:ada", "--update").exit_code == 2, "without a key there is nothing to update"


def test_a_fact_takes_the_place_of_another_or_ends(memory: CommandLine) -> None:
    old = memory.json("write", "Ada lives in Bonn", "-s", "user:ada")["id"]
    new = memory.json("write", "Ada lives in Bern", "-s", "user:ada", "--supersedes", old)["id"]
    assert [one["entry"]["id"] for one in memory.json("search", "Ada lives", "-s", "user:ada")["results"]] == [new]
    assert memory.json("invalidate", new) == {"ended": [new], "not_found": []}
    assert memory("invalidate", new).exit_code == 1
    assert memory.json("search", "Ada lives", "-s", "user:ada", code=1)["results"] == []


def test_what_is_near_a_fact_is_said_where_that_is_asked_for(memory: CommandLine) -> None:
    old = memory.json("write", "Ada lives in Bonn", "-s", "user:ada")["id"]
    checked = memory.json("write", "Ada lives in Bern", "-s", "user:ada", "--check")
    assert [one["id"] for one in checked["near"]] == [old]
    assert f"near it: {old}" in memory.ok("write", "Ada lives in Basel", "-s", "user:ada", "--check")
    assert len(memory.json("list", "-s", "user:ada")["entries"]) == 3


def test_facts_are_linked_shown_with_their_links_and_unlinked(memory: CommandLine) -> None:
    bonn, tea, port = [memory.json("write", text, "-s", "user:ada", "--title", text)["id"] for text in ("Bonn", "tea", "port")]
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
    assert all(said in drawn for said in ("Ada lives in Bonn", "Ada lives in Bern", "tea &amp; &lt;cake&gt;", ">supersedes<", ">supports<"))
    assert "port" not in titles_of(drawn)
    assert memory.ok("graph", new) == drawn, "without a file it goes to standard output"
    assert "4 entries" in memory.ok("graph", new, "-o", "ada.svg", "--depth", "2"), "what stood there is replaced"
    assert "port" in titles_of((memory.folder / "ada.svg").read_text(encoding="utf-8"))
    found = memory.json("graph", new, "--out", "again.svg")
    assert (len(found["nodes"]), len(found["relations"]), found["retired"]) == (3, 2, [old])
    assert (memory.folder / "again.svg").read_text(encoding="utf-8") == drawn
    assert memory.json("graph", old)["retired"] == [old], "a retired one is drawn too, with what superseded it"
    assert memory("graph", "unknown").exit_code == 1
    assert memory("graph", new, "--depth", "3").exit_code == 2
    database = (memory.folder / "memory.db").read_bytes()
    assert memory("graph", new, "--out", "memory.db").exit_code == 2
    assert (memory.folder / "memory.db").read_bytes() == database


def titles_of(drawn: str) -> list[str]:
    return re.findall(r'class="title"[^>]*>([^<]*)<', drawn)


def test_scratchpads_are_appended_to_shown_and_cleared(memory: CommandLine) -> None:
    assert memory("scratchpad", "show").exit_code == 1
    size = memory.json("scratchpad", "append", "the build needs Node 20", "--agent", "builder")["size"]
    shown = memory.json("scratchpad", "show", "-a", "builder")
    assert (shown["size"], shown["exists"], shown["content"].splitlines()[1]) == (size, True, "the build needs Node 20")
    assert "the build needs Node 20" in memory.ok("scratchpad", "show", "-a", "builder")
    assert memory.json("scratchpad", "clear", "-a", "builder") == {"agent": "builder", "cleared": True}
    assert memory.json("scratchpad", "clear", "-a", "builder", code=1)["cleared"] is False
    assert "It is empty." in memory.ok("scratchpad", "show", "-a", "builder")
    assert memory("scratchpad", "append", "x", "-a", "../etc").exit_code == 2
