"""init, config show, stats, doctor and route."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from memory.facade.config.settings import MemoryConfig, load
from tests.unit.cli.conftest import CommandLine


def test_init_writes_a_file_that_means_the_defaults_with_a_local_database(
    memory: CommandLine, tmp_path: Path
) -> None:
    assert "wrote" in memory.ok("init")
    config = load(environ={}, folder=tmp_path)
    assert {store.url for store in config.serving_stores().values()} == {f"sqlite:///{tmp_path}/memory.db"}
    assert (config.tenant, config.embedder.use, config.promotion, config.durations) == (
        "default",
        "wordllama",
        MemoryConfig().promotion,
        MemoryConfig().durations,
    )


def test_what_init_comments_out_would_be_accepted(memory: CommandLine, tmp_path: Path) -> None:
    memory.ok("init")
    file = tmp_path / "memory.toml"
    lines = [
        line.removeprefix("# ") if " = " in line and line.startswith("# ") else line
        for line in file.read_text().splitlines()
    ]
    settings = [
        line.removeprefix("# ") if line.startswith("# [") else line
        for line in lines
        if not line.startswith("on = ")
    ]
    file.write_text("\n".join(settings))
    config = load(environ={}, folder=tmp_path)
    assert config.stores["main"].options == {"synchronous": "FULL"}
    assert config.durations == MemoryConfig().durations


def test_init_never_overwrites_without_force(memory: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "memory.toml").write_text("# mine")
    refused = memory("init")
    assert refused.exit_code == 2
    assert "already exists; use --force to replace it" in refused.stderr
    assert (tmp_path / "memory.toml").read_text() == "# mine"
    assert memory.json("init", "--force") == {"written": str(tmp_path / "memory.toml")}
    assert "tenant" in (tmp_path / "memory.toml").read_text()
    assert memory("init", "--config", "x.db").exit_code == 2


def test_config_show_tells_where_each_value_came_from(memory: CommandLine) -> None:
    shown = memory.json("config", "show", "--origin", "--tenant", "acme")
    assert shown["tenant"] == {"value": "acme", "origin": "argument"}
    assert shown["embedder"] == {"value": "none", "origin": "MEMORY__EMBEDDER"}
    assert shown["tiers.mid"] == {"value": "sqlite:///memory.db", "origin": "MEMORY_CONFIG"}
    assert shown["durations.lease"] == {"value": "30s", "origin": "default"}
    assert "MEMORY__EMBEDDER" in memory.ok("config", "show", "--origin")
    assert memory.json("config", "show")["tenant"] == "default"


def test_config_show_hides_passwords(memory: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text('[tiers]\nshort = "redis://app:hunter2@cache/0"\n')
    for words in (
        ("config", "show", "-c", "secret.toml"),
        ("config", "show", "--json", "-c", "secret.toml"),
        ("stats", "-c", "secret.toml"),
    ):
        result = memory(*words)
        assert "hunter2" not in result.stdout + result.stderr
    assert "redis://app:***@cache/0" in memory.ok("config", "show", "-c", "secret.toml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            '[tires]\nshort = "main"\n',
            "error: wrong.toml:2: tires: there is no setting 'tires' at the top; did you mean 'tiers'?",
        ),
        ("tenant = \n", "error: wrong.toml: Invalid value"),
        ('[tiers]\nlong = "gopher://hole"\n', "error: Unsupported memory store type: gopher"),
    ],
)
def test_a_wrong_configuration_is_exit_code_4_and_names_the_setting(
    memory: CommandLine, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "wrong.toml").write_text(content)
    result = memory("stats", "--config", "wrong.toml", "--json")
    assert result.exit_code == 4
    assert message in result.stderr.replace(f"{tmp_path}/", "")
    assert json.loads(result.stdout)["error"]["code"] == "invalid_config"


def test_stats_count_each_tier_and_type(memory: CommandLine) -> None:
    memory.ok("write", "x", "-s", "user:ada", "--type", "user")
    memory.ok("write", "y", "-s", "session:s")
    stats = memory.json("stats")
    assert {tier["tier"]: tier["entries"] for tier in stats["tiers"]} == {"short": 1, "mid": 1, "long": 0}
    assert stats["by_type"] == {"user": 1, "context": 1}
    assert stats["pending_steps"] == 0
    text = memory.ok("stats")
    assert all(word in text for word in ("short", "mid", "long", "context", " B "))


def test_stats_and_doctor_count_what_a_store_has_in_quarantine(memory: CommandLine) -> None:
    entry = memory.json("write", "The ferry runs on Sundays only", "-s", "user:ada")
    assert (memory.json("stats")["quarantined"], memory.json("doctor")["stores"][0]["quarantined"]) == ({}, 0)
    with closing(sqlite3.connect(next(memory.folder.glob("*.db")))) as connection, connection:
        assert connection.execute("UPDATE entries SET text_content = 'forged'").rowcount == 1
    assert memory("why", entry["id"]).exit_code != 0
    stats, [store] = memory.json("stats"), memory.json("doctor")["stores"]
    assert (stats["quarantined"], store["quarantined"]) == ({store["store"]: 1}, 1)
    assert "has 1 damaged records of all tenants in quarantine" in memory.ok("stats")
    assert "1 damaged records are in quarantine" in memory.ok("doctor")


@pytest.mark.parametrize("kind", ["sqlite", "file"])
def test_an_audit_names_damaged_records_that_nobody_has_met(
    memory: CommandLine, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "data" if kind == "file" else tmp_path / "memory.db"
    (tmp_path / "kept.toml").write_text(
        f'[tiers]\nshort = "{kind}:///{place}"\nmid = "{kind}:///{place}"\nlong = "{kind}:///{place}"\n'
    )
    options = ("-c", "kept.toml")
    entry = memory.json("write", "The ferry runs on Sundays only", "-s", "user:ada", *options)
    other = memory.json("write", "The bakery closes at noon", "-s", "user:ada", *options)
    if kind == "file":
        (file,) = place.glob(f"*/*/entries/{entry['id']}.json")
        file.write_text(file.read_text().replace("Sundays", "Mondays"))
    else:
        with closing(sqlite3.connect(place)) as connection, connection:
            changed = "UPDATE entries SET text_content = 'forged' WHERE text_content LIKE '%Sundays%'"
            assert connection.execute(changed).rowcount == 1
    for _ in range(2):
        result = memory("doctor", "--audit", *options)
        assert result.exit_code == 1
        assert "these records are damaged" in result.stdout
        assert f"- entries {entry['id']} of tenant default" in result.stdout
        assert other["id"] not in result.stdout
    assert list(memory.json("stats", *options)["quarantined"].values()) == [1]
    memory.ok("forget", entry["id"], "--yes", *options)
    assert memory("doctor", "--audit", *options).exit_code == 0
    assert memory.json("stats", *options)["quarantined"] == {}


def test_doctor_says_how_every_store_is(memory: CommandLine, tmp_path: Path) -> None:
    memory.ok("init")
    report = memory.json("doctor", "-c", "memory.toml")
    assert report["ok"] is True
    assert report["config_files"] == [str(tmp_path / "memory.toml")]
    (store,) = report["stores"]
    assert (store["store"], store["tiers"], store["ok"], store["durable"]) == (
        "main",
        ["short", "mid", "long"],
        True,
        True,
    )
    assert "does not exist yet" in memory.ok("doctor", "-c", "memory.toml")
    memory.ok("stats", "-c", "memory.toml")
    assert "SQLite" in memory.ok("doctor", "-c", "memory.toml")


def test_doctor_lists_a_store_that_does_not_open_beside_those_that_do(
    memory: CommandLine, tmp_path: Path
) -> None:
    (tmp_path / "poem.db").write_bytes(b"no database, whatever its name says. " * 100)
    (tmp_path / "memory.toml").write_text(
        '[tiers]\nshort = "sqlite:///poem.db"\nmid = "sqlite:///good.db"\nlong = "sqlite:///good.db"\n'
    )
    report = memory.json("doctor", "-c", "memory.toml", code=1)
    assert report["ok"] is False
    assert {
        s["detail"].partition("poem.db ")[2] or "fine": (s["ok"], s["tiers"]) for s in report["stores"]
    } == {
        "is not a SQLite database; name another file": (False, ["short"]),
        "fine": (True, ["mid", "long"]),
    }
    shown = memory("doctor", "-c", "memory.toml")
    assert shown.exit_code == 1
    assert "failed" in shown.stdout


def test_doctor_names_what_the_stores_lack_together(memory: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "memory.toml").write_text(
        '[tiers]\nshort = "memory://"\nmid = "memory://"\nlong = "sqlite:///good.db"\n'
    )
    report = memory.json("doctor", "-c", "memory.toml", code=1)
    assert [s["ok"] for s in report["stores"]] == [True, True]
    (problem,) = report["problems"]
    assert problem.startswith(
        "tier 'short' on store 'memory' lacks durable; tier 'mid' on store 'memory' lacks durable; "
    )
    assert problem.endswith("accept_loss = ['memory']")


def test_route_says_where_a_record_would_go_and_why(memory: CommandLine) -> None:
    report = memory.json("route", "user:ada", "--explain")
    assert (report["tier"], report["store"], report["replicas"]) == ("mid", "sqlite", {"long": "sqlite"})
    assert report["because"][0].startswith("user entries outlive their session")
    assert "because" not in memory.json("route", "user:ada")
    assert "- user entries outlive" in memory.ok("route", "user:ada", "--explain")
    assert memory("route", "user:ada", "--collection", "entry").exit_code == 2
    assert memory("route", "nobody").exit_code == 2


def test_route_makes_no_store(memory: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "memory.toml").write_text(
        '[tiers]\nshort = "sqlite:///a.db"\nmid = "file:notes"\nlong = "sqlite:///a.db"\n'
    )
    before = {path.name for path in tmp_path.iterdir()}
    assert memory.json("route", "user:ada", "-c", "memory.toml")["tier"] == "mid"
    assert {path.name for path in tmp_path.iterdir()} == before
    memory.ok("stats", "-c", "memory.toml")
    assert memory.json("route", "session:s", "-c", "memory.toml")["tier"] == "short"


def test_a_file_that_is_no_database_is_exit_code_4(memory: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "poem.db").write_bytes(b"no database, whatever its name says. " * 100)
    result = memory("stats", "--config", "poem.db")
    assert result.exit_code == 4
    assert "poem.db is not a SQLite database" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_store_that_does_not_answer_is_exit_code_3(memory: CommandLine, tmp_path: Path) -> None:
    memory.ok("stats")
    with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as other:
        other.execute("begin exclusive")
        result = memory(
            "write", "x", "-s", "user:ada", "--json", "--config", "sqlite:///memory.db?busy_timeout=0.05"
        )
    assert result.exit_code == 3
    assert json.loads(result.stdout)["error"]["code"] == "store_unavailable"
