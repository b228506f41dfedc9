"""URLs and options: what is read from them, what is refused, and that no message tells
a secret.
"""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions

from memory.adapters.redis import adapter
from memory.adapters.redis.config import RedisConfig, parse
from memory.adapters.redis.errors import translate
from memory.domain.errors import ConfigError
from memory.ports.base import LoginRefused
from memory.ports.contract.cells import cells

READ: dict[str, dict[str, Any]] = {
    "redis://localhost": {
        "kind": "single",
        "nodes": (("localhost", 6379),),
        "tls": False,
        "username": None,
        "password": None,
        "database": 0,
    },
    "redis://[::1]:7000/2": {"nodes": (("::1", 7000),), "database": 2},
    "valkey://db": {"kind": "single", "nodes": (("db", 6379),), "tls": False},
    "valkeys://db": {"tls": True},
    "rediss://ann:s%40cret@db:1": {"tls": True, "username": "ann", "password": "s@cret"},
    "redis://:pw@db": {"username": None, "password": "pw"},
    "redis+sentinel://a,b:5/main/3": {
        "kind": "sentinel",
        "nodes": (("a", 26379), ("b", 5)),
        "service": "main",
        "database": 3,
    },
    "redis+cluster://a:1,b:2": {"kind": "cluster", "nodes": (("a", 1), ("b", 2))},
    "rediss+cluster://a": {"kind": "cluster", "tls": True},
    "redis://db?prefix=p&timeout=1.5&connections=7&grace=0&tls_check_hostname=False": {
        "prefix": "p",
        "timeout": 1.5,
        "connections": 7,
        "grace": 0.0,
        "tls_check_hostname": False,
    },
}


@cells("url", READ, shared=True)
def test_a_url_says_where_the_server_is_and_how_it_is_used(url: str) -> None:
    config = parse("r", url, {})
    assert {name: getattr(config, name) for name in READ[url]} == READ[url]


def test_an_option_given_in_the_url_and_apart_says_the_same() -> None:
    assert parse("r", "redis://db?timeout=9", {"timeout": 9}).timeout == 9
    with pytest.raises(
        ConfigError, match="the option timeout has one value in the URL and another in options"
    ):
        parse("r", "redis://db?timeout=1", {"timeout": 9})


REFUSED = [
    "redis:/db", "http://db", "redis://", "redis://a,b", "redis://db:99999", "redis://db/x", "redis://db/1/2", "redis+sentinel://a", "redis+cluster://a/1",
    "redis://db?timeout=0", "redis://db?timeout=nan", "redis://db?timeout=soon", "redis://db?connections=0", "redis://db?connections=1.5",
    "redis://db?prefix=", "redis://db?prefix={x}", "redis://db?prefix=a*", "redis://db?grace=-1", "redis://db?colour=red", "redis://db?tls_check_hostname=maybe",
    "redis://db?tls_ca=", "redis://a b", "redis://[x",
]  # fmt: skip


@cells("url", REFUSED, shared=True)
def test_what_is_wrong_is_refused_when_the_store_is_built(url: str) -> None:
    with pytest.raises(ConfigError, match="store 'r'"):
        adapter.build("r", url, {})


@pytest.mark.parametrize(
    "url",
    [
        "redis://ann:hunter2@db:99999",
        "redis://ann:hunter2@db?colour=1",
        "http://ann:hunter2@db",
        "redis://ann:hunter2@a b",
    ],
)
def test_no_complaint_repeats_a_password(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("r", url, {})
    assert "hunter2" not in str(caught.value)


def test_a_config_shows_no_password() -> None:
    config = parse("r", "redis+sentinel://ann:hunter2@db/main", {"sentinel_password": "hunter3"})
    assert isinstance(config, RedisConfig)
    assert "hunter" not in repr(config) + config.place


@pytest.mark.parametrize(
    "error",
    [
        exceptions.AuthenticationError("invalid username-password pair or user is disabled."),
        exceptions.AuthenticationError("Authentication required."),
    ],
)
def test_a_refused_login_is_a_wrong_configuration_when_it_is_opened(error: Exception) -> None:
    ours = translate("cache", error)
    assert isinstance(ours, LoginRefused)
    assert "store 'cache': refuses the user or the password" in str(ours)
