"""What people read: on 80 columns nothing is torn, and every message says what is kept,
where it lies and what to do.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.cli.command import Cli, run
from memory.domain.errors import StoreFull, StoreUnavailable
from memory.domain.store_reports import Stats
from memory.facade.memory import Memory
from memory.facade.resources.admin import Admin
from memory.facade.runtime.access import engine_of
from memory.orchestrator.entries.entries import Entries
from memory.orchestrator.storage.collections import ENTRIES
from memory.ports.record import Key, PendingStep, Record
from memory.ports.writes import AtVersion, Put
from tests.support.backends import marks_of
from tests.support.placings import PLACINGS
from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")
ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def narrow(memory: CommandLine) -> CommandLine:
    return replace(memory, environ={**memory.environ, "COLUMNS": "80"})


@pytest.mark.parametrize("command", ["doctor", "import", "reindex", "search", "forget", "worker"])
def test_a_narrow_screen_wraps_whole_paragraphs_of_help(narrow: CommandLine, command: str) -> None:
    text = narrow.ok(command, "--help").partition("╭")[0]
    for paragraph in re.split(r"\n\s*\n", text):
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        following = [line.split()[0] for line in lines[1:]]
        assert all(len(line) + len(word) > 76 for line, word in zip(lines, following, strict=False)), lines


def _torn(narrow: str, wide: str) -> set[str]:
    """Words of what is shown on a wide screen that a narrow one does not show in one
    piece; numbers that change from call to call aside.
    """
    words = re.compile(r"[^\W\d_]{2,}")
    return set(words.findall(wide)) - set(words.findall(narrow))


@pytest.fixture
def filled(narrow: CommandLine) -> list[str]:
    ids = [
        narrow.json(
            "write",
            f"The ferry number {n} to Berlenga runs on Sundays only",
            "-s",
            "session:andorinha",
            "-t",
            "fact",
        )["id"]
        for n in range(3)
    ]
    ids += [
        narrow.json(
            "write", "Ines prefers the harbour entrance with northern lighthouses", "-s", "session:andorinha"
        )["id"]
        for _ in range(2)
    ]
    return ids


@pytest.mark.parametrize(
    "words",
    [
        ("stats",),
        ("doctor", "--audit"),
        ("vacuum",),
        ("route", "workspace:andorinha-refit", "--explain"),
        ("search", "ferry lighthouses", "-s", "session:andorinha", "--explain"),
    ],
    ids=lambda words: words[0],
)
def test_no_word_is_torn_on_eighty_columns(
    memory: CommandLine, narrow: CommandLine, filled: list[str], words: tuple[str, ...]
) -> None:
    shown = narrow.ok(*words)
    assert max(map(len, shown.splitlines())) <= 80
    assert _torn(
        shown.replace(str(memory.folder), ""), memory.ok(*words).replace(str(memory.folder), "")
    ) <= set(memory.folder.parts)
    if words[0] == "search":
        assert len(ID.findall(shown)) == 5


def test_ids_are_whole_on_eighty_columns_and_equal_reasons_are_said_once(
    narrow: CommandLine, filled: list[str]
) -> None:
    moved = narrow.ok("promote", *filled, "--tier", "mid")
    assert sorted(ID.findall(moved)) == sorted(filled)
    assert moved.count("5 moved from short to mid") == 1
    again = narrow("promote", *filled, "--tier", "mid")
    assert again.exit_code == 1
    assert sorted(ID.findall(again.stdout)) == sorted(filled)
    assert again.stdout.count(" kept in mid: ") == 1
    copied = narrow.ok("promote", *filled, "--to", "workspace:andorinha-refit")
    assert len(set(ID.findall(copied))) == 10
    shown = narrow.ok("show", filled[0], "--history")
    assert filled[0] in shown
    assert max(map(len, (moved + copied + shown).splitlines())) <= 80


def test_the_demo_reads_on_eighty_columns(narrow: CommandLine) -> None:
    said = replace(narrow, environ={**narrow.environ, "MEMORY__EMBEDDER": "wordllama"}).ok("demo")
    lines = [line for line in said.splitlines() if not line.startswith("Tiers: ")]  # which names a file
    assert max(map(len, lines)) <= 80
    assert said.count("entries of one session are short-term") == 1
    assert said.count("by rule facts-last") == 1
    assert said.count("tagged 'fact'") == 1
    assert "andorinha-31" in said


# -- places ----------------------------------------------------------------------------


def test_doctor_makes_nothing_and_says_where_things_will_lie(memory: CommandLine) -> None:
    for url, path in (
        ("sqlite:///deep/x.db", "deep/x.db"),
        ("file:folder", "folder"),
        ("qdrant+edge:///edge", "edge"),
    ):
        report = memory.json("doctor", "-c", url)
        (store,) = report["stores"]
        assert report["ok"]
        assert Path(store["path"]).is_absolute()
        assert store["path"].endswith(path)
        assert store["detail"].endswith("does not exist yet; the first write creates it")
        assert "does not exist yet" in memory.ok("doctor", "-c", url)
    assert list(memory.folder.iterdir()) == []


def _by_default(folder: Path) -> dict[str, str]:
    return {
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "MEMORY__EMBEDDER": "none",
        "COLUMNS": "80",
    }


def test_the_default_file_is_not_made_by_asking_and_named_when_it_is_made(memory: CommandLine) -> None:
    plain = replace(memory, environ=_by_default(memory.folder))
    report = plain.json("doctor")
    assert report["ok"]
    file = Path(report["stores"][0]["path"])
    assert file == memory.folder / "data" / "memory-tiers" / "memory.db"
    assert list(memory.folder.iterdir()) == []
    first = plain("write", "x", "-s", "user:ada")
    assert (
        f"creating a new memory in {file}; to use another place, set --config or MEMORY_CONFIG, or run"
        " `memory init`" in first.stderr
    )
    assert file.exists()
    assert plain("write", "x", "-s", "user:ada").stderr == ""
    assert plain.json("doctor")["stores"][0]["path"] == str(file)
    assert (
        str(file.relative_to(memory.folder / "data")) in (Path(__file__).parents[3] / "README.md").read_text()
    )


def test_the_path_is_said_to_people_alone(memory: CommandLine) -> None:
    assert (
        replace(memory, environ=_by_default(memory.folder))("write", "x", "-s", "user:ada", "--json").stderr
        == ""
    )


@pytest.mark.skipif(sys.platform == "win32", reason="a terminal is needed")
@pytest.mark.thorough
def test_forget_names_the_store_it_is_about_to_empty(memory: CommandLine) -> None:
    import pty

    memory.ok("write", "x", "-s", "user:ada")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "memory.cli", "forget", "-s", "user:ada", "--tenant", "default"]
    environ = {**os.environ, **memory.environ}
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=memory.folder,
        env=environ,
        text=True,
    ) as process:
        os.write(ours, b"n\n")
        _, said = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 1
    assert (
        f"Delete everything of user:ada in sqlite ({memory.folder / 'memory.db'}), tenant default? This"
        " cannot be undone." in said
    )
    assert memory.json("stats")["by_type"] == {"context": 1}


# -- how things end --------------------------------------------------------------------


def test_a_full_disk_says_what_was_kept_and_what_to_do(capsys: pytest.CaptureFixture[str]) -> None:
    def fails() -> None:
        raise StoreFull("main", "the disk is full")

    assert run(Cli(), fails) == 3
    said = capsys.readouterr().err
    assert (
        said
        == "error: store 'main': the disk is full; nothing of this call was stored; "
        + "free some space (`memory forget`, then `memory vacuum`) and run the command again\n"
    )
    assert run(Cli(kept=["200 of 500 lines are stored"]), fails) == 3
    assert "the disk is full; 200 of 500 lines are stored; free some space" in capsys.readouterr().err


@pytest.mark.parametrize(
    "failure", [StoreUnavailable("main", "gone"), KeyboardInterrupt()], ids=["store", "ctrl-c"]
)
def test_an_import_that_ends_early_says_how_much_is_kept(
    memory: CommandLine, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:

    real, calls = Entries.write_many, iter([None, failure])

    async def failing(self: Entries, tenant: str, drafts: Any, **options: Any) -> Any:
        if (error := next(calls)) is not None:
            raise error
        return await real(self, tenant, drafts, **options)

    monkeypatch.setattr(Entries, "write_many", failing)
    file = memory.write_lines(
        "a.jsonl", *({"role": "user", "content": f"n {n}", "id": n} for n in range(450))
    )
    ended = memory("import", file)
    assert ended.exit_code == (130 if isinstance(failure, KeyboardInterrupt) else 3)
    assert (
        "200 of 450 lines are stored; import the same file again for the rest (no line is written twice)"
        in ended.stderr
    )


# -- upkeep ----------------------------------------------------------------------------


def test_an_audit_finds_nothing_in_a_sound_store_and_is_made_only_when_asked_for(
    memory: CommandLine, filled: list[str]
) -> None:
    assert "audits" not in memory.json("doctor")
    for option in ("--audit", "--repair"):
        report = memory.json("doctor", option)
        assert report["ok"]
        assert [
            (one["store"], one["problems"], one["error"], one["repaired"]) for one in report["audits"]
        ] == [("sqlite", [], "", option == "--repair")]
        assert "indexes and statistics match them" in memory.ok("doctor", option)


def test_vacuum_says_what_each_store_gave_back(memory: CommandLine, filled: list[str]) -> None:
    report = memory.json("vacuum")
    assert [one["store"] for one in report["stores"]] == ["sqlite"]
    assert report["bytes"] == sum(one["bytes"] for one in report["stores"]) >= 0
    assert "Reclaimed space" in memory.ok("vacuum")


@pytest.fixture
def differing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A store whose audit finds two things, until it repairs them."""
    from memory.adapters.sql.sqlite.store import SqliteStore
    from memory.ports.store import Audit

    asked, problems = list[bool](), ["2 dead records have words", "statistics are wrong"]

    async def audit(self: SqliteStore, *, repair: bool = False) -> Audit:
        asked.append(repair)
        found = tuple(problems)
        if repair:
            problems.clear()
        return Audit(12, found)

    monkeypatch.setattr(SqliteStore, "audit", audit)
    return asked


def test_what_an_audit_finds_ends_with_1_and_a_repair_says_what_it_was(
    memory: CommandLine, filled: list[str], differing: list[bool]
) -> None:
    assert memory.json("doctor")["ok"]
    shown = memory("doctor", "--audit")
    assert shown.exit_code == 1
    assert (
        "12 records checked; derived data differed and `memory doctor --repair` rebuilds it from the records:"
        in shown.stdout
    )
    assert "- 2 dead records have words" in shown.stdout
    report = memory.json("doctor", "--repair", code=1)
    assert report["audits"][0]["problems"] == ["2 dead records have words", "statistics are wrong"]
    assert memory.json("doctor", "--audit")["ok"]
    assert differing == [False, True, False]


# -- what is owed ----------------------------------------------------------------------


@pytest.fixture
def owing(narrow: CommandLine) -> str:
    """An entry whose step nobody here knows."""

    async def owe() -> str:
        async with Memory("sqlite:///memory.db", embedder="none") as memory:
            entry = await memory.write("x", scope="user:ada")
            store = engine_of(memory).topology.archive
            (row,) = await store.get(ENTRIES, [Key(memory.tenant, entry.id)])
            assert isinstance(row, Record)
            debts = (PendingStep("of-version-2", "of-version-2", {}),)
            (outcome,) = await store.apply(
                [Put(ENTRIES, replace(row, owed=debts, version=row.version + 1), AtVersion(row.version))]
            )
            assert outcome.applied
            return entry.id

    return asyncio.run(owe())


def test_doctor_tells_what_is_owed_and_why_it_cannot_be_done(narrow: CommandLine, owing: str) -> None:
    report = narrow.json("doctor")
    assert report["pending_steps"] == 1
    (said,) = report["overdue"]
    assert said.startswith(f"of-version-2 of {owing} of tenant 'default': ")
    assert report["healed"] == []
    shown = narrow.ok("doctor")
    assert max(map(len, shown.splitlines())) <= 80
    assert "not completed: 1 record has pending steps" in shown
    assert owing in shown
    assert "a newer version of the library left" in " ".join(shown.split())


def test_doctor_finds_nothing_owed_where_nothing_is(narrow: CommandLine, filled: list[str]) -> None:
    report = narrow.json("doctor")
    assert (report["pending_steps"], report["overdue"], report["healed"]) == (0, [], [])
    assert "pending steps" not in narrow.ok("doctor")


def test_stats_tell_what_is_owed_and_where_to_ask_why(narrow: CommandLine, owing: str) -> None:
    report = narrow.json("stats")
    assert (report["pending_steps"], report["stuck"], report["degraded"]) == (1, [], [])
    shown = narrow.ok("stats")
    assert max(map(len, shown.splitlines())) <= 80
    assert (
        "1 record has pending steps; sweeps complete them, and `memory doctor` names those that cannot be"
        " completed" in " ".join(shown.split())
    )


def test_stats_tell_what_is_stuck_and_what_did_not_answer(
    narrow: CommandLine, owing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Admin.stats

    async def after_a_sweep(admin: Admin) -> Stats:
        await admin.sweep()
        return replace(await counted(admin), degraded=("store 'long': nobody listens",))

    monkeypatch.setattr(Admin, "stats", after_a_sweep)
    report = narrow.json("stats")
    assert [owing in said for said in report["stuck"]] == [True]
    assert report["degraded"] == ["store 'long': nobody listens"]
    shown = narrow.ok("stats")
    assert max(map(len, shown.splitlines())) <= 80
    assert f"- of-version-2 of {owing}: " in " ".join(shown.split())
    assert "- store 'long': nobody listens" in shown


# -- meaning ---------------------------------------------------------------------------


def test_route_and_doctor_tell_which_store_serves_meaning(memory: CommandLine) -> None:
    meant = replace(memory, environ={**memory.environ, "MEMORY__EMBEDDER": "wordllama"})
    assert set(meant.json("doctor")["meaning"].values()) == {"by meaning in sqlite"}
    assert any(
        sentence.endswith("; by meaning in sqlite")
        for sentence in meant.json("route", "user:ada", "--explain")["because"]
    )
    assert set(memory.json("doctor")["meaning"].values()) == {
        "not found by meaning: no embedder is configured"
    }
    assert meant.json("doctor")["messages"] == "by meaning in sqlite"
    assert any(
        sentence.endswith("; by meaning in sqlite")
        for sentence in meant.json("route", "session:s1", "--collection", "messages", "--explain")["because"]
    )
    assert memory.json("doctor")["messages"] == "not found by meaning: no embedder is configured"
    off = replace(meant, environ={**meant.environ, "MEMORY__CONVERSATIONS__MEANING": "off"})
    assert off.json("doctor")["messages"] == "not found by meaning: conversations.meaning is 'off'"
    assert "messages: not found by meaning: conversations.meaning is 'off'" in off.ok("doctor")


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(placing.config, marks=marks_of(*placing.backends))
        for placing in PLACINGS
        if placing.name == "postgres-only"
    ],
)
def test_route_and_doctor_tell_what_is_done_where_no_store_has_an_index_for_meaning(
    memory: CommandLine, place: Any
) -> None:
    url = place(memory.folder)["tiers"]["mid"]
    meant = replace(memory, environ={"MEMORY_CONFIG": url, "COLUMNS": "200"})
    fallback = "by meaning in 'postgresql', without an index: no configured store has a vector index"
    assert any(fallback in sentence for sentence in meant.json("route", "user:ada", "--explain")["because"])
    assert set(meant.json("doctor")["meaning"].values()) == {fallback}
    assert "tiers short, mid, long: " + fallback in meant.ok("doctor")


def test_an_expiry_may_be_a_length_of_time(memory: CommandLine) -> None:
    entry = memory.json("write", "x", "-s", "user:ada", "--expires", "1h30m")
    assert entry["expires_at"] > entry["created_at"]
    assert (
        memory.json("write", "x", "-s", "user:ada", "--expires", "2999-01-01T00:00:00Z")["expires_at"]
        == "2999-01-01T00:00:00Z"
    )
    refused = memory("write", "x", "-s", "user:ada", "--expires", "3600")
    assert refused.exit_code == 2
    assert (
        "'3600' is neither a length of time such as 30d or 1h30m, nor a time such as 2026" in refused.stderr
    )
