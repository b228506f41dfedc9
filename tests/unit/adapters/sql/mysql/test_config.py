"""The URL, the options, what server it may be, and that no password is ever shown."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from asyncmy import errors as my

from memory.adapters.sql.mysql import adapter
from memory.adapters.sql.mysql.config import parse
from memory.adapters.sql.mysql.errors import translate
from memory.adapters.sql.mysql.flavour import MARIADB, MYSQL, flavour_of
from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.errors import (
    ConfigError,
    InvalidInput,
    StoreError,
    StoreFull,
    StoreTimeout,
    StoreUnavailable,
)
from memory.ports.base import LoginRefused
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import DECLARED

SECRET = "s3cret/word"  # noqa: S105


def test_a_url_names_everything_and_its_parts_are_unescaped() -> None:
    config = parse(
        "s",
        "mysql://ann%40x:s3cret%2Fword@db.example:6543/my%20base?pool_size=3&ssl-mode=required&ssl_ca=/ca.pem",
        {},
    )
    assert (config.user, config.password, config.host, config.port, config.database) == (
        "ann@x",
        SECRET,
        "db.example",
        6543,
        "my base",
    )
    assert (config.pool_size, config.ssl_mode, config.ssl_ca) == (3, "required", "/ca.pem")


def test_options_may_come_apart_and_the_rest_has_defaults() -> None:
    config = parse(
        "s", "mariadb://host/db", {"command_timeout": 2.5, "password": SECRET, "socket": "/run/mysqld.sock"}
    )
    assert (config.port, config.user, config.command_timeout, config.password, config.socket) == (
        3306,
        "root",
        2.5,
        SECRET,
        "/run/mysqld.sock",
    )
    assert (config.pool_size, config.pool_timeout, config.connect_timeout, config.ssl_mode) == (
        8,
        10.0,
        10.0,
        "preferred",
    )


@pytest.mark.parametrize("scheme", adapter.schemes)
def test_every_scheme_builds_a_store(scheme: str) -> None:
    assert isinstance(adapter.build("s", f"{scheme}://host/db", {}), MySqlStore)


@cells(
    "url, options, named",
    [
        ("postgresql://host/db", {}, "mysql://"),
        ("mysql:/host/db", {}, "mysql://"),
        (f"mysql://u:{SECRET}@host:port/db", {}, "cannot be read"),
        ("mysql://host", {}, "name the database"),
        ("mysql://host/a/b", {}, "name the database"),
        ("mysql://u:pass#word@host/db", {}, "%23"),
        ("mysql://host/db?pool_size=0", {}, "pool_size"),
        ("mysql://host/db?pool_size=2.5", {}, "pool_size"),
        ("mysql://host/db", {"pool_size": True}, "pool_size"),
        ("mysql://host/db", {"command_timeout": 0}, "command_timeout"),
        ("mysql://host/db?connect_timeout=soon", {}, "connect_timeout"),
        ("mysql://host/db?ssl_mode=maybe", {}, "ssl_mode"),
        ("mysql://host/db?colour=red", {}, "colour"),
    ],
    shared=True,
)
def test_what_is_wrong_is_named_and_the_password_is_not(
    url: str, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        MySqlStore(url, name="shop", **options)
    assert "shop" in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_config_shows_neither_password_nor_user_where_it_tells_its_place() -> None:
    config = parse("s", f"mysql://ann:{SECRET.replace('/', '%2F')}@[::1]:3307/db", {})
    assert SECRET not in repr(config)
    assert config.place == "[::1]:3307/db"


async def test_nothing_listens_is_unavailable_without_a_secret() -> None:
    store = MySqlStore("mysql://ann:s3cret@127.0.0.1:1/db", connect_timeout=2)
    with pytest.raises(StoreUnavailable) as caught:
        await store.open(DECLARED)
    assert "s3cret" not in f"{caught.value!r} {caught.value}"


async def test_certificates_that_are_not_there_are_named_by_their_option() -> None:
    store = MySqlStore("mysql://host/db?ssl_mode=verify_ca&ssl_ca=/nowhere/ca.pem")
    with pytest.raises(ConfigError, match="ssl_ca"):
        await store.open(DECLARED)


@cells(
    "version, flavour",
    [
        ("10.11.18-MariaDB-0+deb12u1", MARIADB),
        ("5.5.5-10.6.0-MariaDB-log", MARIADB),
        ("11.4.2-MariaDB", MARIADB),
        ("8.0.19", MYSQL),
        ("8.4.3-log", MYSQL),
        ("9.1.0", MYSQL),
    ],
    shared=True,
)
def test_the_version_says_what_the_server_is(version: str, flavour: object) -> None:
    assert flavour_of(version, "s") is flavour


@pytest.mark.parametrize("version", ["8.0.18", "5.7.44", "10.5.26-MariaDB", "5.5.5-10.3.1-MariaDB"])
def test_a_server_that_is_too_old_is_refused_by_name(version: str) -> None:
    with pytest.raises(ConfigError, match=version):
        flavour_of(version, "shop")


@cells(
    "number, ours, retryable",
    [
        (1045, LoginRefused, False),
        (1049, ConfigError, False),
        (1142, ConfigError, False),
        (1114, StoreFull, False),
        (1153, InvalidInput, False),
        (1213, StoreUnavailable, True),
        (1205, StoreUnavailable, True),
        (1040, StoreUnavailable, True),
        (1290, StoreUnavailable, True),
        (2013, StoreUnavailable, True),
        (1969, StoreTimeout, True),
        (3024, StoreTimeout, True),
        (1064, StoreError, False),
        (1366, StoreError, False),
    ],
    shared=True,
)
def test_the_servers_errors_are_ours_and_quote_nothing(
    number: int, ours: type[Exception], retryable: bool
) -> None:
    error = translate("shop", "host:3306/db", my.OperationalError(number, f"at 'said {SECRET}'"))
    assert type(error) is ours
    assert getattr(error, "retryable", False) is retryable
    assert SECRET not in str(error)


def test_what_is_not_the_drivers_is_not_translated() -> None:
    assert translate("s", "p", KeyError("x")) is None


async def test_what_speaks_another_protocol_is_unavailable() -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x05\0\0\0hello")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(StoreUnavailable):
        await MySqlStore(f"mysql://127.0.0.1:{port}/db?connect_timeout=5").open(DECLARED)
    server.close()


async def test_a_password_that_the_driver_cannot_encrypt_is_a_config_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def refuse(
        **_: object,
    ) -> None:  # as the driver does without `cryptography`, where MySQL asks for it
        raise RuntimeError("'cryptography' package is required")

    monkeypatch.setattr("asyncmy.connect", refuse)
    with pytest.raises(ConfigError, match="cryptography"):
        await MySqlStore("mysql://127.0.0.1/db?ssl_mode=disabled").open(DECLARED)
