"""Import and export from the command line, on a real database file."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory import BlockingMemory, StoreUnavailable
from memory.facade.resources.admin import Admin
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.kinds import KINDS, Kind
from memory.ports.collections import Collection, Field, FieldType
from tests.unit.cli.conftest import CommandLine

HELLO = {"role": "user", "content": "hello", "time": "2026-01-31T09:30:00Z", "id": "m1"}
REPLY = {"role": "assistant", "content": "good day", "tags": ["greeting"]}


def count(memory: CommandLine) -> int:
    return sum(tier["entries"] for tier in memory.json("stats")["tiers"])


def test_importing_again_imports_nothing_twice_and_says_so(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", HELLO, REPLY)
    assert memory.ok("import", file) == "chat.jsonl: 2 imported\n"
    assert (
        memory.ok("import", file) == "chat.jsonl: 0 imported; 2 already existed and were not imported again\n"
    )
    assert count(memory) == 2


def test_a_longer_version_of_the_file_adds_only_what_is_new(memory: CommandLine) -> None:
    memory.ok("import", memory.write_lines("chat.jsonl", HELLO))
    report = memory.json("import", memory.write_lines("chat.jsonl", HELLO, REPLY))
    none = dict.fromkeys(
        (
            "deleted_earlier",
            "versions",
            "versions_left_out",
            "relations",
            "sessions",
            "events",
            "artifacts",
            "documents",
            "other_records",
        ),
        0,
    )
    assert report == {
        "file": "chat.jsonl",
        "messages": 2,
        "imported": 1,
        "already_there": 1,
        **none,
        "skipped_lines": [],
        "refused_lines": [],
        "unlinked_lines": [],
        "ahead": 0,
        "ahead_until": None,
        "problems": [],
    }


def test_what_was_deleted_since_an_import_is_not_imported_again_unless_told_so(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", HELLO, REPLY)
    memory.ok("import", file)
    hit, _beside = memory.json("search", "hello", "-s", "session:chat")["results"]
    memory.ok("forget", hit["entry"]["id"], "--yes")
    said = (
        "chat.jsonl: 0 imported; 1 already existed and were not imported again; "
        "1 were deleted earlier and were not imported (--revive imports them)\n"
    )
    assert memory.ok("import", file) == said
    assert count(memory) == 1
    report = memory.json("import", file, "--revive")
    assert (report["imported"], report["already_there"], report["deleted_earlier"]) == (1, 1, 0)
    assert count(memory) == 2
    memory.ok("forget", "--scope", "session:chat", "--yes")
    report = memory.json("import", file)
    assert (report["imported"], report["already_there"], report["deleted_earlier"]) == (0, 0, 2)
    assert count(memory) == 0


def test_a_window_of_a_conversation_imported_again_further_on_writes_nothing_twice(
    memory: CommandLine,
) -> None:
    turns = [{"role": "user", "name": "Ada", "content": f"turn {n}", "id": f"m{n}"} for n in range(4)]
    memory.ok("import", memory.write_lines("monday.jsonl", *turns[:3]), "--scope", "user:ada")
    report = memory.json("import", memory.write_lines("tuesday.jsonl", *turns[1:]), "--scope", "user:ada")
    assert (report["imported"], report["already_there"]) == (1, 2)
    found = memory.json("search", "turn", "-s", "user:ada")["results"]
    places = sorted(
        (hit["entry"]["conversation_id"], hit["entry"]["number_in_conversation"]) for hit in found
    )
    assert places == [("monday.jsonl", 1), ("monday.jsonl", 2), ("monday.jsonl", 3), ("tuesday.jsonl", 3)]
    assert {hit["entry"]["speaker"] for hit in found} == {"Ada"}


def test_an_import_in_conflict_names_the_line_and_writes_nothing(memory: CommandLine) -> None:
    memory.ok("import", memory.write_lines("chat.jsonl", HELLO | {"id": "m1"}))
    file = memory.write_lines(
        "chat.jsonl", REPLY | {"id": "m0"}, HELLO | {"id": "m1", "content": "otherwise"}, REPLY | {"id": "m2"}
    )
    refused = memory("import", file)
    assert refused.exit_code == 6
    assert "chat.jsonl line 2: key 'm1'" in refused.stderr
    assert count(memory) == 1


def test_many_batches_are_acknowledged_one_by_one(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", *({"role": "user", "content": f"turn {n}"} for n in range(230)))
    result = memory("import", file, "--acks")
    assert [json.loads(line)["committed"] for line in result.stderr.splitlines()] == [200, 230]
    assert count(memory) == 230


def test_messages_go_to_the_session_named_after_the_file_unless_told(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", HELLO)
    memory.ok("import", file)
    memory.ok("import", file, "--session", "other")
    memory.ok("import", file, "--scope", "user:ada")
    for scope in ("session:chat", "session:other", "user:ada"):
        (hit,) = memory.json("search", "hello", "-s", scope)["results"]
        assert hit["entry"]["created_at"] == "2026-01-31T09:30:00Z"
        assert hit["entry"]["metadata"] == {"role": "user"}
    assert memory("import", file, "--session", "a", "--scope", "user:b").exit_code == 2


def test_standard_input_is_imported_into_the_session_named(memory: CommandLine) -> None:
    data = json.dumps([HELLO, REPLY])
    assert memory.json("import", "-", "--session", "s1", stdin=data)["imported"] == 2
    refused = memory("import", "-", stdin=data)
    assert refused.exit_code == 2
    assert "--session or --scope" in refused.stderr


def test_a_bad_line_is_named_and_nothing_is_imported(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", HELLO, {"role": "user"}, {"content": "x"})
    result = memory("import", file, "--json")
    error = json.loads(result.stdout)["error"]
    assert result.exit_code == 2
    assert error["line"] == 2
    assert "chat.jsonl line 2: content: is missing; 1 more bad line; nothing was imported" in error["message"]
    assert "bad: chat.jsonl line 3: role: is missing" in result.stderr
    assert count(memory) == 0


def test_bad_lines_are_left_out_when_asked_and_each_is_named(memory: CommandLine) -> None:
    file = memory.write_lines("chat.jsonl", HELLO, {"role": "user"}, REPLY, 7)
    result = memory("import", file, "--skip-bad")
    assert result.exit_code == 0
    assert result.stdout == "chat.jsonl: 2 imported; 2 bad lines left out (2, 4)\n"
    assert "left out: chat.jsonl line 4: holds int" in result.stderr
    assert memory.json("import", file, "--skip-bad")["skipped_lines"] == [2, 4]


def test_an_id_that_was_stored_with_another_text_is_named_with_its_line(memory: CommandLine) -> None:
    memory.ok("import", memory.write_lines("chat.jsonl", HELLO))
    result = memory("import", memory.write_lines("chat.jsonl", REPLY, {**HELLO, "content": "changed"}))
    assert result.exit_code == 6
    assert "chat.jsonl line 2: key 'm1' was used" in result.stderr
    assert "Give it another id" in result.stderr


def test_a_message_from_the_future_is_named_with_its_line(memory: CommandLine) -> None:
    result = memory(
        "import", memory.write_lines("chat.jsonl", HELLO, {**REPLY, "time": "2999-01-01T00:00:00Z"})
    )
    assert result.exit_code == 2
    assert "chat.jsonl line 2: created_at: lies in the future" in result.stderr


def test_an_empty_file_is_exit_code_1_and_a_missing_one_2(memory: CommandLine) -> None:
    assert memory("import", memory.write_lines("empty.jsonl")).exit_code == 1
    missing = memory("import", "nowhere.jsonl")
    assert (missing.exit_code, missing.stderr) == (2, "error: nowhere.jsonl: No such file or directory\n")


def test_an_export_can_be_imported_elsewhere(memory: CommandLine, tmp_path: Path) -> None:
    memory.ok("import", memory.write_lines("chat.jsonl", HELLO, REPLY))
    memory.ok("write", "é prefers tea", "-s", "user:ada", "--title", "t", "--type", "user")
    exported = [json.loads(line) for line in memory.ok("export").splitlines()]
    assert [line["content"] for line in exported] == ["hello", "good day", "é prefers tea"]
    assert memory.ok("export", "-o", "all.jsonl") == "all.jsonl: 3 exported\n"
    assert memory.json("import", "all.jsonl", "--config", "elsewhere.db")["imported"] == 3
    assert memory.json("import", "all.jsonl", "--config", "elsewhere.db")["already_there"] == 3
    again = [json.loads(line) for line in memory.ok("export", "--config", "elsewhere.db").splitlines()]
    own = {"id", "updated_at", "version", "noted"}
    assert [{k: v for k, v in line.items() if k not in own} for line in again] == [
        {k: v for k, v in line.items() if k not in own} for line in exported
    ]


@pytest.mark.behaviour("A5")
def test_an_import_of_an_export_rewrites_every_reference_and_keeps_what_was_true_when(
    memory: CommandLine,
) -> None:
    first = memory.json("write", "Ada drinks coffee", "-s", "session:s1")["id"]
    promoted = memory.json("promote", first, "--to", "user:ada")["promoted"][0]["id"]
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "sqlite:///memory.db"), "embedder": "none"}
    ) as here:
        tea = here.write("Ada drinks tea", scope="user:ada", tags=["fact"])
        here.relations.relate(tea.id, "supersedes", promoted)
        here.entries.invalidate(promoted)
        merged = here.compact(
            [first, here.write("Ada sings", scope="session:s1").id],
            lambda entries: "Ada drinks coffee and sings",
        )
        before = {e.id: e for e in here.entries.iterate(include_retired=True)}
    memory.ok("export", "-o", "all.jsonl")

    result = memory.json("import", "all.jsonl", "--config", "elsewhere.db")
    assert (result["imported"], result["relations"]) == (len(before), 1)
    again = memory.json("import", "all.jsonl", "--config", "elsewhere.db")
    assert (again["imported"], again["already_there"], again["relations"]) == (0, len(before), 0)

    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "sqlite:///elsewhere.db"), "embedder": "none"}
    ) as there:
        after = {e.content: e for e in there.entries.iterate(include_retired=True)}
        (relation,) = there.relations.find()
        assert not {e.id for e in after.values()} & set(before)
        retired = [e for e in there.entries.iterate(include_retired=True) if e.valid_to is not None]
        assert [(e.content, e.valid_from, e.valid_to) for e in retired] == [
            (e.content, e.valid_from, e.valid_to) for e in before.values() if e.valid_to is not None
        ]
        assert [e.content for e in there.retrieve("user:ada")] == ["Ada drinks tea"]
        assert (relation.source_id, relation.target_id) == (after["Ada drinks tea"].id, retired[0].id)
        assert after[merged.content].compacted_from_ids is not None
        ids = {e.id for e in there.entries.iterate(include_retired=True)}
        assert set(after[merged.content].compacted_from_ids or ()) <= ids
        assert retired[0].promoted_from_id in ids


def test_importing_again_after_an_end_of_a_relation_was_deleted_brings_neither_back_and_does_not_stop(
    memory: CommandLine,
) -> None:
    one, two, three = (memory.json("write", f"note {n}", "-s", "user:ada")["id"] for n in range(3))
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "sqlite:///memory.db"), "embedder": "none"}
    ) as here:
        here.relations.relate(one, "supports", two)
        here.relations.relate(two, "supports", three)
    memory.ok("export", "-o", "all.jsonl")
    assert memory.json("import", "all.jsonl", "--config", "elsewhere.db")["relations"] == 2
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "sqlite:///elsewhere.db"), "embedder": "none"}
    ) as there:
        there.delete(next(e.id for e in there.entries.iterate() if e.content == "note 0"))
        again = memory.json("import", "all.jsonl", "--config", "elsewhere.db")
        assert (again["imported"], again["relations"]) == (0, 0)
        assert sorted(e.content for e in there.entries.iterate()) == ["note 1", "note 2"]
        assert len(there.relations.find()) == 1


def test_an_export_overwrites_no_file_and_may_be_of_one_scope(memory: CommandLine) -> None:
    memory.ok("write", "x", "-s", "user:ada")
    memory.ok("write", "y", "-s", "user:bob")
    counts = {"exported": 1, "versions": 0, "sessions": 0, "artifacts": 0, "documents": 0}
    said = {"file": "ada.jsonl", **counts}
    assert memory.json("export", "-o", "ada.jsonl", "--scope", "user:ada") == said
    refused = memory("export", "-o", "ada.jsonl")
    assert refused.exit_code == 2
    assert "--output: 'ada.jsonl' exists. Name a new file" in refused.stderr
    refused = memory("export", "-o", "nowhere/ada.jsonl")
    assert refused.exit_code == 2
    assert "there is no folder 'nowhere'" in refused.stderr
    assert memory("export", "--scope", "user:nobody").exit_code == 1


def test_an_export_that_fails_leaves_no_file(memory: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    memory.ok("write", "x", "-s", "user:ada")
    before = sorted(memory.folder.iterdir())

    async def fail_in_the_middle(*_: Any, **__: Any) -> AsyncIterator[dict[str, Any]]:
        yield {"format": "x"}
        raise StoreUnavailable("main", "the disk is gone")

    monkeypatch.setattr(Admin, "export", fail_in_the_middle)
    assert memory("export", "-o", "all.jsonl").exit_code == 3
    assert sorted(memory.folder.iterdir()) == before


def test_documents_are_exported_also_where_there_is_nothing_else(memory: CommandLine) -> None:
    with BlockingMemory("memory.db", embedder="none") as stored:
        stored.documents.put("user:ada", "settings", {"theme": "dark"})
    assert memory.ok("export", "-o", "all.jsonl") == "all.jsonl: 0 exported, 1 documents\n"
    assert memory("export", "-s", "user:ada").exit_code == 0
    assert memory("export", "-s", "user:bob").exit_code == 1


def test_sessions_are_exported_and_imported_also_where_there_are_no_entries(memory: CommandLine) -> None:
    with BlockingMemory("memory.db", embedder="none") as stored:
        stored.session("s1", user="ada").append(
            [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "good day"}]
        )
    assert memory.ok("export", "-o", "all.jsonl") == "all.jsonl: 0 exported, 1 sessions\n"
    assert (
        memory.ok("import", "all.jsonl", "--config", "elsewhere.db", "--same-ids")
        == "all.jsonl: 0 imported; 1 sessions with 2 events\n"
    )
    with BlockingMemory("elsewhere.db", embedder="none") as there:
        assert [item.message.text for item in there.session("s1", create=False).history().items] == [
            "hello",
            "good day",
        ]


def test_an_import_with_the_same_ids_brings_what_ids_and_moments_kept_elsewhere_name(
    memory: CommandLine,
) -> None:
    first = memory.json("write", "Ada drinks tea", "-s", "user:ada")
    with BlockingMemory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "sqlite:///memory.db"), "embedder": "none"}
    ) as here:
        here.update(first["id"], content="Ada drinks coffee")
    exported = memory.ok("export")
    assert memory.ok("export", "-o", "all.jsonl") == "all.jsonl: 1 exported, 1 earlier versions\n"
    assert (
        memory.ok("import", "all.jsonl", "--config", "new.db")
        == "all.jsonl: 1 imported; 1 earlier versions left out (--same-ids keeps them)\n"
    )
    said = memory.ok("import", "all.jsonl", "--same-ids", "--config", "elsewhere.db")
    assert said == "all.jsonl: 1 imported; 1 earlier versions\n"
    assert memory.ok("export", "--config", "elsewhere.db") == exported
    shown = memory.json("show", first["id"], "--known-at", first["updated_at"], "--config", "elsewhere.db")
    assert shown["content"] == "Ada drinks tea"
    again = memory.json("import", "-", "--same-ids", "--config", "elsewhere.db", stdin=exported)
    assert (again["imported"], again["already_there"], again["versions"]) == (0, 1, 0)


def test_a_line_whose_id_is_of_elsewhere_is_refused_by_number_and_the_end_is_a_conflict(
    memory: CommandLine,
) -> None:
    memory.ok("write", "Ada drinks tea", "-s", "user:ada")
    lines = [json.loads(line) for line in memory.ok("export").splitlines()]
    file = memory.write_lines("all.jsonl", lines[0] | {"scope": "user:bob"}, lines[0])
    refused = memory("import", file, "--same-ids", "--config", "elsewhere.db")
    assert (refused.exit_code, refused.stdout) == (6, "all.jsonl: 1 imported; 1 lines refused (1)\n")
    said = (
        "left out: all.jsonl line 1: id: belongs to another tenant or scope. Import without same_ids"
        " (--same-ids) to assign a new one\n"
    )
    assert refused.stderr.endswith(said)
    report = memory.json("import", file, "--same-ids", "--config", "elsewhere.db", code=6)
    assert (report["refused_lines"], report["already_there"], len(report["problems"])) == ([1], 1, 1)
    for excluded in (("--scope", "user:ada"), ("--revive",)):
        assert memory("import", file, "--same-ids", *excluded).exit_code == 2


@pytest.mark.parametrize("scope", [(), ("--scope", "user:ada")], ids=["every scope", "one scope"])
def test_records_of_a_kind_more_are_carried_from_one_store_to_another(
    memory: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scope: tuple[str, ...]
) -> None:
    notes = Collection(
        "margin_notes", (Field("about_id", FieldType.TEXT, indexed=True), Field("seal", FieldType.BYTES))
    )
    entries = replace(KINDS.of(ENTRIES), children=(*KINDS.of(ENTRIES).children, (notes, "about_id")))
    monkeypatch.setattr(KINDS, "_of", {**KINDS._of, ENTRIES: entries, notes: Kind(notes)})
    at = {"scope": "user:ada", "created_at": "2026-01-31T09:30:00Z"}
    entry = {"format": "memory-entry/1", "id": "e1", "content": "a river", **at}
    moments = {"created_at": 1_769_851_800_000_001, "updated_at": 1_769_851_800_000_001, "expires_at": None}
    note: dict[str, Any] = {
        "format": "memory-record/1",
        "kind": "margin_notes",
        "id": "n1",
        "scope": "user:ada",
        **moments,
    }
    note |= {"fields": {"about_id": "e1", "seal": "AP8="}, "body": {"n": [1]}, "texts": {}}
    file = memory.write_lines("all.jsonl", entry, note)

    assert memory.json("import", file)["other_records"] == 1
    assert memory.json("import", file)["other_records"] == 0
    assert memory.json("doctor")["ok"]
    exported = [json.loads(line) for line in memory.ok("export", *scope).splitlines()]
    assert [line["format"] for line in exported] == ["memory-entry/3", "memory-record/2"]
    assert exported[1]["fields"] == {"about_id": exported[0]["id"], "seal": "AP8="}
    assert {name: exported[1][name] for name in ("body", "created_at")} == {
        "body": {"n": [1]},
        "created_at": moments["created_at"],
    }

    lines = memory.ok("export", "-o", "some.jsonl") and (memory.folder / "some.jsonl").read_text()
    for imported in (1, 0):
        report = memory.json("import", "some.jsonl", "--same-ids", "--config", "elsewhere.db")
        assert (report["imported"], report["other_records"], report["problems"]) == (imported, imported, [])
    assert memory.ok("export", "--config", "elsewhere.db") == lines
    other = memory.write_lines("other.jsonl", exported[0], exported[1] | {"body": {"n": [2]}})
    assert memory.json("import", other, "--same-ids", "--config", "elsewhere.db", code=6)[
        "refused_lines"
    ] == [2]

    memory.ok("forget", exported[0]["id"], "--yes")
    assert memory("export").stdout == ""
    for line, said in (
        (note, "which is not in this file"),
        (note | {"kind": "nothing"}, "kind: is not known"),
        ({**note, "fields": 3}, "is not a valid record"),
    ):
        assert said in memory("import", memory.write_lines("bad.jsonl", line)).stderr
