"""The URL, the options, and files that cannot be used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.adapters.sql.sqlite import adapter
from memory.adapters.sql.sqlite.config import parse
from memory.adapters.sql.sqlite.store import SqliteStore
from memory.domain.errors import ConfigError
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, fetch_record, put, record, search_hits
from tests.unit.adapters.sql.sqlite.helping import raw


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert parse("s", "sqlite:///a/b.db", {}).path == Path("a/b.db").absolute()
    assert parse("s", "sqlite:////a/b.db", {}).path == Path("/a/b.db")
    assert parse("s", "sqlite:///:memory:", {}).path is None


def test_options_come_from_the_url_or_apart() -> None:
    config = parse("s", "sqlite:///a.db?synchronous=full&busy_timeout=2.5", {"cache_bytes": 1000})
    assert (config.synchronous, config.busy_timeout, config.cache_bytes) == ("FULL", 2.5, 1000)


@cells(
    "url, options, named",
    [
        ("sqlite://a.db", {}, "sqlite:///"),
        ("sqlite:///", {}, "sqlite:///"),
        ("postgresql://host/db", {}, "postgresql"),
        ("sqlite:///a.db?synchronous=OFF", {}, "synchronous"),
        ("sqlite:///a.db", {"busy_timeout": -1}, "busy_timeout"),
        ("sqlite:///a.db", {"cache_bytes": "many"}, "cache_bytes"),
        ("sqlite:///a.db?colour=red", {}, "colour"),
    ],
    shared=True,
)
def test_a_wrong_url_or_option_is_refused_by_name(url: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        adapter.build("s", url, options)


async def test_a_missing_directory_a_directory_and_a_file_of_another_kind_are_refused(tmp_path: Path) -> None:
    other = tmp_path / "letter.txt"
    other.write_text("Dear reader, this is no database. " * 100)
    astray = tmp_path / "astray.db"
    astray.symlink_to(tmp_path / "nowhere" / "a.db")
    for path, problem in (
        (astray, "cannot be opened"),
        (tmp_path / "no" / "a.db", "does not exist"),
        (other / "a.db", "is a file, not a directory"),
        (tmp_path, "is a directory"),
        (other, "is not a SQLite database"),
    ):
        with pytest.raises(ConfigError, match=problem):
            await SqliteStore(f"sqlite:///{path}").open(DECLARED)
    assert other.read_text().startswith("Dear reader")


async def test_a_failed_open_can_be_repeated(tmp_path: Path) -> None:
    store = SqliteStore(f"sqlite:///{tmp_path / 'later' / 'a.db'}")
    with pytest.raises(ConfigError):
        await store.open(DECLARED)
    (tmp_path / "later").mkdir()
    await store.open(DECLARED)
    await apply_all(store, put(record()))
    await store.close()


async def test_a_store_in_memory_works_and_claims_neither_to_last_nor_to_be_shared() -> None:
    store = SqliteStore("sqlite:///:memory:")
    await store.open(DECLARED)
    assert (store.capabilities.durable, store.capabilities.shared, store.capabilities.atomic) == (
        False,
        False,
        True,
    )
    await apply_all(store, put(record(texts={"title": "hello"})))
    assert (await fetch_record(store)).texts == {"title": "hello"}
    assert len(await search_hits(store, "hello")) == 1
    await store.close()


async def test_pragmas_are_as_promised(store: SqliteStore, file: Path) -> None:
    def pragmas(session: Any) -> dict[str, Any]:
        return {
            p: session.row(f"PRAGMA {p}")[0]
            for p in ("journal_mode", "synchronous", "secure_delete", "foreign_keys", "busy_timeout")
        }

    assert await store.driver.write(pragmas) == {
        "journal_mode": "wal",
        "synchronous": 2,
        "secure_delete": 1,
        "foreign_keys": 1,
        "busy_timeout": 10000,
    }


async def test_deleted_text_is_gone_from_the_table(store: SqliteStore, file: Path) -> None:
    from memory.ports.contract.support import delete

    await apply_all(
        store, put(record(texts={"content": "abracadabra"}, body={"said": "abracadabra"})), delete()
    )
    await store.close()
    with raw(file) as connection:
        rows = (
            connection.execute("SELECT * FROM samples").fetchall()
            + connection.execute("SELECT * FROM samples_words").fetchall()
        )
    assert rows
    assert "abracadabra" not in repr(rows)
