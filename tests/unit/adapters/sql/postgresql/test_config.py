"""The URL, the options, and that no password is ever shown."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

from memory.adapters.sql.postgresql import adapter
from memory.adapters.sql.postgresql.config import parse
from memory.adapters.sql.postgresql.errors import translate
from memory.adapters.sql.postgresql.store import PostgresStore
from memory.domain.errors import ConfigError, StoreError, StoreUnavailable
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED

SECRET = "s3cret/word"  # noqa: S105


def test_a_url_names_everything_and_its_parts_are_unescaped() -> None:
    config = parse(
        "s",
        "postgresql://ann%40x:s3cret%2Fword@db.example:6543/my%20base?schema=tier&pool_size=3&ssl=require",
        {},
    )
    assert (config.user, config.password, config.host, config.port, config.database) == (
        "ann@x",
        SECRET,
        "db.example",
        6543,
        "my base",
    )
    assert (config.schema, config.pool_size, config.ssl) == ("tier", 3, "require")


def test_options_may_come_apart_and_the_rest_has_defaults() -> None:
    config = parse(
        "s", "postgres://host/db", {"command_timeout": 2.5, "password": SECRET, "statement_cache_size": 0}
    )
    assert (
        config.port,
        config.schema,
        config.command_timeout,
        config.password,
        config.statement_cache_size,
    ) == (5432, "memory", 2.5, SECRET, 0)
    assert (config.pool_size, config.pool_timeout, config.connect_timeout) == (8, 10.0, 10.0)


@pytest.mark.parametrize("scheme", adapter.schemes)
def test_every_scheme_builds_a_store(scheme: str) -> None:
    assert isinstance(adapter.build("s", f"{scheme}://host/db", {}), PostgresStore)


def test_a_socket_is_named_by_its_directory() -> None:
    assert parse("s", "postgresql:///db?host=/run/postgresql", {}).host == "/run/postgresql"


@cells(
    "url, options, named",
    [
        ("mysql://host/db", {}, "postgresql://"),
        ("postgresql:/host/db", {}, "postgresql://"),
        (f"postgresql://u:{SECRET}@host:port/db", {}, "cannot be read"),
        ("postgresql://host", {}, "name the database"),
        ("postgresql://host/a/b", {}, "name the database"),
        ("postgresql://u:pass#word@host/db", {}, "%23"),
        ("postgresql://host/db?schema=a-b", {}, "schema"),
        ("postgresql://host/db?schema=pg_mine", {}, "schema"),
        ("postgresql://host/db", {"schema": "x" * 64}, "schema"),
        ("postgresql://host/db?pool_size=0", {}, "pool_size"),
        ("postgresql://host/db?pool_size=2.5", {}, "pool_size"),
        ("postgresql://host/db", {"command_timeout": 0}, "command_timeout"),
        ("postgresql://host/db?connect_timeout=soon", {}, "connect_timeout"),
        ("postgresql://host/db?ssl=maybe", {}, "ssl"),
        ("postgresql://host/db?colour=red", {}, "colour"),
    ],
    shared=True,
)
def test_a_wrong_url_or_option_is_refused_by_name(url: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        adapter.build("s", url, options)
    assert "s3cret" not in str(caught.value)


def test_a_password_is_in_no_representation() -> None:
    store = PostgresStore(f"postgresql://ann:{SECRET.replace('/', '%2F')}@host/db")
    for shown in (
        repr(store),
        repr(store.config),
        str(store.config),
        store.config.place,
        repr(vars(store)),
    ):
        assert "s3cret" not in shown


async def test_a_host_that_answers_nothing_is_unavailable_and_shows_no_password() -> None:
    store = PostgresStore(f"postgresql://ann:{SECRET.replace('/', '%2F')}@127.0.0.1:9/db", connect_timeout=2)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open(DECLARED)
    shown: BaseException | None = caught.value
    while shown is not None:
        assert "s3cret" not in str(shown)
        shown = shown.__cause__


def test_what_the_server_quotes_is_not_passed_on() -> None:
    refusal = asyncpg.exceptions.InvalidTextRepresentationError(
        "invalid input syntax for type bigint: 'what Ann said'"
    )
    told = translate("s", "host", refusal)
    assert isinstance(told, StoreError)
    assert "Ann" not in str(told)
    assert "22P02" in str(told)
    sent = asyncpg.exceptions.DataError("invalid input for query argument $1: 'what Ann said'")
    assert "Ann" not in str(translate("s", "host", sent))
    assert translate("s", "host", KeyError("x")) is None


@cells(
    "url, addresses, session",
    [
        ("postgresql://u:p@a,b:5433/db", [("a", 5432), ("b", 5433)], "read-write"),
        ("postgresql://u@[::1]:5433,b/db?target_session_attrs=any", [("::1", 5433), ("b", 5432)], "any"),
        ("postgresql://u:p%2C@%2Fvar%2Frun%2FPostgres/db", [("/var/run/Postgres", 5432)], "any"),
        ("postgresql://u@/db?host=/var/run/postgresql", [("/var/run/postgresql", 5432)], "any"),
        ("postgresql://u@/db?host=a:1,b:2", [("a", 1), ("b", 2)], "read-write"),
        ("postgresql://a:5433/db", [("a", 5433)], "any"),
    ],
    shared=True,
)
def test_hosts_are_read_as_libpq_reads_them(url: str, addresses: list[tuple[str, int]], session: str) -> None:
    config = parse("pg", url, {})
    assert config.addresses == addresses
    assert config.target_session_attrs == session
    assert "p%2C" not in config.place


def test_what_the_session_is_to_be_comes_with_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGSSLMODE", raising=False)
    config = parse(
        "pg", "postgresql://a/db?application_name=app&options=-c%20work_mem%3D8MB&sslrootcert=ca.pem", {}
    )
    assert (config.application_name, config.options, config.ssl) == ("app", "-c work_mem=8MB", "verify-full")
    monkeypatch.setenv("PGSSLMODE", "require")
    assert parse("pg", "postgresql://a/db", {}).ssl == "require"
    assert parse("pg", "postgresql://a/db?sslmode=disable", {}).ssl == "disable"
    assert parse("pg", "postgresql://a/db", {"ssl": "verify-ca"}).ssl == "verify-ca"
    monkeypatch.setenv("PGSSLMODE", "often")
    with pytest.raises(ConfigError, match="PGSSLMODE is one of disable"):
        parse("pg", "postgresql://a/db", {})


@pytest.mark.parametrize(
    "url", ["postgresql://a,,b/db", "postgresql://a,b:x/db", "postgresql://a,b:99999/db"]
)
def test_a_list_of_hosts_that_cannot_be_read_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="separated by commas"):
        parse("pg", url, {})
