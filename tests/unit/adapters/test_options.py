"""What a store's constructor takes from code alone is no option that a configuration
could give.
"""

from __future__ import annotations

import math
import re
from importlib.metadata import entry_points

import pytest

from memory.domain.errors import ConfigError
from memory.ports.adapter import Adapter

DRIVERS = {
    "sqlite:////no/such.db": "sqlalchemy",
    "file:///no/such": "json",
    "redis://127.0.0.1:1": "redis",
    "mongodb://127.0.0.1:1": "pymongo",
    "postgresql://127.0.0.1:1/memory": "asyncpg",
    "mysql://127.0.0.1:1/memory": "asyncmy",
    "qdrant+edge:////no/such": "qdrant_edge",
    "qdrant://127.0.0.1:1": "qdrant_client",
}
"""What each store needs to be built, by its URL."""


@pytest.mark.parametrize("option", ["thresholds", "client", "name", "url"])
@pytest.mark.parametrize("url", DRIVERS)
def test_configuration_gives_nothing_that_is_for_code(url: str, option: str) -> None:
    pytest.importorskip(DRIVERS[url])
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    with pytest.raises(ConfigError, match=rf"'{option}'"):
        adapter.build("mid", url, {option: 5})


@pytest.mark.parametrize("url", DRIVERS)
def test_an_option_that_does_not_exist_is_answered_with_those_that_do(url: str) -> None:
    pytest.importorskip(DRIVERS[url])
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    with pytest.raises(ConfigError, match=r"no option 'nosuch'.* Its options are \w+, \w+"):
        adapter.build("mid", f"{url}?nosuch=1", {})


def test_a_misspelt_option_is_corrected() -> None:
    (point,) = entry_points(group="memory.adapters", name="redis")
    adapter: Adapter = point.load()
    with pytest.raises(ConfigError, match="no option 'timeot'; did you mean 'timeout'"):
        adapter.build("mid", "redis://127.0.0.1:1?timeot=1", {})


NUMBERS = {
    "sqlite:////no/such.db": ("busy_timeout", "cache_bytes"),
    "file:///no/such": ("lock_timeout", "cache_bytes"),
    "redis://127.0.0.1:1": ("timeout", "connect_timeout", "connections", "grace", "cache_bytes"),
    "mongodb://127.0.0.1:1": ("timeout", "connect_timeout", "connections"),
    "postgresql://127.0.0.1:1/memory": ("pool_size", "pool_timeout", "command_timeout"),
    "mysql://127.0.0.1:1/memory": ("pool_size", "connect_timeout", "statement_cache_size"),
    "qdrant+edge:////no/such": ("log_bytes", "reserve_bytes"),
    "qdrant://127.0.0.1:1": ("timeout", "shard_number", "replication_factor"),
}


@pytest.mark.parametrize("value", [True, False, math.nan, math.inf, "nan", "inf", "ten", "", [5]])
@pytest.mark.parametrize("url", NUMBERS)
def test_what_is_no_number_is_refused_as_one(url: str, value: object) -> None:
    pytest.importorskip(DRIVERS[url])
    (point,) = entry_points(group="memory.adapters", name=url.partition(":")[0])
    adapter: Adapter = point.load()
    for option in NUMBERS[url]:
        with pytest.raises(ConfigError, match=re.escape(f"store 'mid': {option} ")):
            adapter.build("mid", url, {option: value})
