"""`memory backup` and `memory restore`, beside writers of this process and of others."""

from __future__ import annotations

import os
import sqlite3
import threading
from pathlib import Path

import pytest

from memory import BlockingMemory, ConfigError, InvalidInput
from tests.support.processes import line_of, started
from tests.unit.cli.conftest import CommandLine

WRITES = """
import sys, time
from memory import BlockingMemory
with BlockingMemory(sys.argv[1], embedder="none") as memory:
    number = 0
    while True:
        time.sleep(0.005)
        print(memory.write(f"fact {number} of another process", scope="user:eve").id, flush=True)
        number += 1
"""


def entries(url: str, scope: str = "user:ada") -> set[str]:
    """The ids of a scope, of a memory whose stores are sound."""
    with BlockingMemory(url, embedder="none") as memory:
        assert all(report.ok for report in memory.admin.check())
        return {entry.id for entry in memory.entries.iterate(scope)}


def test_backups_under_load_hold_every_write_acknowledged_before_they_began(memory: CommandLine) -> None:
    written: list[str] = []
    other = started(WRITES, "sqlite:///memory.db")
    told = [line_of(other)]
    stop = threading.Event()

    def hear() -> None:
        assert other.stdout is not None
        for line in other.stdout:
            told.append(line.strip())

    def write() -> None:
        while not stop.is_set():
            written.append(own.write(f"fact {len(written)}", scope="user:ada").id)

    with BlockingMemory("sqlite:///memory.db", embedder="none") as own:
        session = own.session("s1", user="ada")
        session.append({"role": "user", "content": "said before"})
        threads = [threading.Thread(target=work) for work in (hear, write)]
        for thread in threads:
            thread.start()
        before: dict[str, tuple[set[str], set[str]]] = {}
        for number, made_by in enumerate(("command", "call")):
            before[f"copy{number}.db"] = (set(written), set(told))
            if made_by == "command":
                assert memory.json("backup", f"copy{number}.db")["bytes"] > 0
            else:
                own.admin.backup(f"copy{number}.db")
        stop.set()
        other.kill()
        for thread in threads:
            thread.join()
        other.communicate()
    assert before["copy1.db"][0] > before["copy0.db"][0]
    for copy, (own_ids, other_ids) in before.items():
        assert os.stat(copy).st_mode & 0o777 == 0o600
        assert entries(f"sqlite:///{copy}") >= own_ids
        assert entries(f"sqlite:///{copy}", "user:eve") >= other_ids
        with BlockingMemory(f"sqlite:///{copy}", embedder="none") as opened:
            assert [item.message.text for item in opened.session("s1").history().items] == ["said before"]
    assert not [name for name in os.listdir() if name.startswith(".copy")], "nothing is left of the making"


def test_a_restore_replaces_only_when_asked_and_keeps_what_was_there(memory: CommandLine) -> None:
    first = memory.json("write", "kept in the backup", "-s", "user:ada")["id"]
    memory.ok("backup", "copy.db")
    second = memory.json("write", "written later", "-s", "user:ada")["id"]
    refused = memory("restore", "copy.db")
    assert refused.exit_code == 2
    assert "--replace" in refused.stderr
    assert entries("sqlite:///memory.db") == {first, second}
    kept = memory.json("restore", "copy.db", "--replace")["kept"]
    assert entries("sqlite:///memory.db") == {first}
    assert entries(f"sqlite:///{kept}") == {first, second}
    assert entries("sqlite:///copy.db") == {first}, "the backup can be restored again"


def test_a_restore_beside_an_open_memory_is_refused_and_changes_nothing(memory: CommandLine) -> None:
    with BlockingMemory("sqlite:///memory.db", embedder="none") as own:
        first = own.write("before", scope="user:ada").id
        memory.ok("backup", "copy.db")
        second = own.write("after", scope="user:ada").id
        refused = memory("restore", "copy.db", "--replace")
        assert refused.exit_code == 3
        assert "memory.db is open in another process or memory" in refused.stderr
        third = own.write("the memory goes on", scope="user:ada").id
    assert entries("sqlite:///memory.db") == {first, second, third}


def test_a_restore_takes_the_place_of_a_damaged_file_and_of_a_log_without_its_file(
    memory: CommandLine,
) -> None:
    first = memory.json("write", "kept in the backup", "-s", "user:ada")["id"]
    memory.ok("backup", "copy.db")
    Path("memory.db").write_bytes(b"no database any more" * 500)
    memory.ok("restore", "copy.db", "--replace")
    assert entries("sqlite:///memory.db") == {first}
    with BlockingMemory(
        "sqlite:///memory.db", embedder="none"
    ) as own:  # as a process that was killed leaves it
        own.write("in the log of the file that was there", scope="user:ada")
        log = Path("memory.db-wal").read_bytes()
    Path("memory.db").unlink()
    Path("memory.db-wal").write_bytes(log)
    memory.ok("restore", "copy.db")
    assert entries("sqlite:///memory.db") == {first}


def test_what_is_no_backup_and_where_none_can_be_made_is_refused_by_name(memory: CommandLine) -> None:
    assert "memory.db does not exist" in memory("backup", "copy.db").stderr
    memory.ok("write", "something", "-s", "user:ada")
    Path("text.db").write_text("not a database, and long enough to be looked at as one " * 40)
    sqlite3.connect("foreign.db").execute("CREATE TABLE theirs (a)")
    for name, said in (
        ("missing.db", "does not exist"),
        ("text.db", "not a SQLite database"),
        ("foreign.db", "not a memory"),
        ("memory.db", "own file"),
    ):
        refused = memory("restore", name, "--replace")
        assert refused.exit_code == 2, name
        assert name in refused.stderr
        assert said in refused.stderr
    assert "exists" in memory("backup", "text.db").stderr
    assert "does not exist" in memory("backup", "no/folder/copy.db").stderr
    assert sorted(Path().glob(".*")) == []
    assert "not a database" in Path("text.db").read_text()


@pytest.mark.parametrize(
    "config", ["memory://", {"tiers": {"short": "sqlite:///a.db", "mid": "sqlite:///b.db"}}]
)
def test_a_memory_that_is_not_one_file_names_the_tools_of_its_stores(
    config: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with BlockingMemory(config, embedder="none") as own:  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"one SQLite file, and this one uses .*docs/backends.md"):
            own.admin.backup("copy.db")
        with pytest.raises((InvalidInput, ConfigError)):
            own.admin.backup("")
    assert not Path("copy.db").exists()
