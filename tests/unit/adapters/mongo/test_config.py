"""URLs and options: what is read, what is refused, and that no secret shows."""

from __future__ import annotations

from typing import Any

import pytest

from memory.adapters.mongo import adapter
from memory.adapters.mongo.config import parse
from memory.domain.errors import ConfigError
from memory.ports.contract.cells import cells

SECRET = "hun%2Fter2"  # noqa: S105


def test_a_url_alone_is_enough() -> None:
    config = parse("mid", "mongodb://db.example", {})
    assert (config.database, config.prefix, config.timeout, config.connections) == (
        "agent_memory",
        "memory_",
        10.0,
        32,
    )
    assert config.place == "db.example/agent_memory, collections memory_*"
    assert config.uri == "mongodb://db.example/?"


def test_the_database_stands_in_the_path_and_an_option_wins_over_it() -> None:
    assert parse("mid", "mongodb://db/notes", {}).database == "notes"
    assert parse("mid", "mongodb://db/notes?database=query", {}).database == "query"
    assert (
        parse("mid", "mongodb://db/notes?prefix=q_", {"database": "option", "prefix": "q_"}).database
        == "option"
    )
    with pytest.raises(
        ConfigError, match="the option database has one value in the URL and another in options"
    ):
        parse("mid", "mongodb://db/notes?database=query", {"database": "option"})


def test_options_of_ours_leave_the_url_and_those_of_mongodb_stay() -> None:
    config = parse("mid", "mongodb://a:1,b:2/notes?replicaSet=rs0&timeout=3&tls=true&connections=4", {})
    assert config.uri == "mongodb://a:1,b:2/?replicaSet=rs0&tls=true"
    assert (config.hosts, config.timeout, config.connections) == ("a:1,b:2", 3.0, 4)


def test_a_user_is_looked_up_where_the_url_says_also_when_an_option_names_another_database() -> None:
    assert (
        parse("mid", "mongodb://u:p@db/users", {"database": "notes"}).uri
        == "mongodb://u:p@db/?authSource=users"
    )
    assert (
        parse("mid", "mongodb://u:p@db/users?authSource=admin", {}).uri
        == "mongodb://u:p@db/?authSource=admin"
    )
    assert "authSource" not in parse("mid", "mongodb://u:p@db", {"database": "notes"}).uri


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "another scheme": (f"mongo://u:{SECRET}@db", {}),
    "no host": (f"mongodb://u:{SECRET}@/notes", {}),
    "an empty host": (f"mongodb://u:{SECRET}@a,,b", {}),
    "a fragment": (f"mongodb://u:{SECRET}#x@db", {}),
    "an unescaped slash": ("mongodb://u:hun/ter2@db", {}),
    "an unknown option": (f"mongodb://u:{SECRET}@db", {"colour": "red"}),
    "a database with a dot": (f"mongodb://u:{SECRET}@db/a.b", {}),
    "the database admin": (f"mongodb://u:{SECRET}@db/admin", {}),
    "an operator as prefix": (f"mongodb://u:{SECRET}@db", {"prefix": "$where"}),
    "an empty prefix": (f"mongodb://u:{SECRET}@db", {"prefix": ""}),
    "no time": (f"mongodb://u:{SECRET}@db", {"timeout": 0}),
    "endless time": (f"mongodb://u:{SECRET}@db", {"timeout": "inf"}),
    "no number": (f"mongodb://u:{SECRET}@db?connect_timeout=soon", {}),
    "half a connection": (f"mongodb://u:{SECRET}@db", {"connections": 1.5}),
    "a write concern": (f"mongodb://u:{SECRET}@db?w=1", {}),
    "no journal": (f"mongodb://u:{SECRET}@db?journal=false", {}),
    "reads from secondaries": (f"mongodb://u:{SECRET}@db?readPreference=secondary", {}),
    "a timeout of the driver's": (f"mongodb://u:{SECRET}@db?socketTimeoutMS=0", {}),
    "a port that is none": (f"mongodb://u:{SECRET}@db:99999", {}),
    "an option the driver does not know in that form": (
        f"mongodb://u:{SECRET}@db?authMechanism=TELEPATHY",
        {},
    ),
}


@cells("why", WRONG, shared=True)
def test_what_is_wrong_is_refused_by_name_and_shows_no_secret(why: str) -> None:
    url, options = WRONG[why]
    with pytest.raises(ConfigError, match="'mid'") as caught:
        adapter.build("mid", url, options)
    shown = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert "ter2" not in shown


def test_neither_config_nor_store_shows_the_password() -> None:
    config = parse("mid", f"mongodb://u:{SECRET}@db", {})
    store = adapter.build("mid", f"mongodb://u:{SECRET}@db", {})
    assert "ter2" not in f"{config!r} {config.place} {store!r} {store.name} {vars(store)!r}"


def test_a_name_that_dns_resolves_is_not_looked_up_before_the_store_is_opened() -> None:
    assert adapter.build("mid", "mongodb+srv://cluster.example.invalid/notes", {}).name == "mid"
