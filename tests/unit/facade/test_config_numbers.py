"""Numbers and durations of a configuration: a boolean and an infinite number are refused."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import timedelta
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel

from memory.domain.errors import ConfigError
from memory.facade.config.settings import MemoryConfig, StoreConfig

JWT = {"issuer": "https://idp", "audience": "memory", "jwks": "keys.json"}
STORE = {"url": "sqlite:///a.db"}


def numbers_of(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the dotted name and the type of each number and duration of a table."""
    for name, field in model.model_fields.items():
        kinds: list[object] = [field.annotation]
        while kinds:
            kind = kinds.pop()
            if kind in (int, float, timedelta):
                yield prefix + name, kind
            elif isinstance(kind, type) and issubclass(kind, BaseModel):
                yield from numbers_of(kind, f"{prefix}{name}.")
            elif get_origin(kind) in (Annotated, Union, UnionType):
                kinds += get_args(kind)


NUMBERS = [*numbers_of(MemoryConfig), *numbers_of(StoreConfig, "stores.a.")]


def settings_with(path: str, value: object) -> dict[str, Any]:
    tree: dict[str, Any] = {"server": {"jwt": dict(JWT)}, "stores": {"a": dict(STORE)}}
    *tables, name = path.split(".")
    table = tree
    for part in tables:
        table = table.setdefault(part, {})
    table[name] = value
    return tree


def test_the_numbers_of_all_tables_are_found() -> None:
    paths = {path for path, _ in NUMBERS}
    assert {
        "server.port",
        "server.jwt.leeway",
        "mcp.token_budget",
        "durations.sweep_every",
        "stores.a.retry.attempts",
        "stores.a.breaker.cool_down",
        "stores.a.timeout",
    } <= paths


@pytest.mark.parametrize(
    "value", [True, False, math.nan, math.inf, -math.inf, "nan", "inf", "", "ten", None, [5], {}, b"x"]
)
def test_what_is_no_number_is_refused_with_its_path(value: object) -> None:
    for path, _ in NUMBERS:
        if value is None and path in ("mcp.token_budget", "stores.a.timeout"):
            continue  # None is the default
        with pytest.raises(ConfigError) as refused:
            MemoryConfig(**settings_with(path, value))
        assert str(refused.value).startswith(f"{path}: "), path


def test_a_whole_number_has_no_fraction() -> None:
    for path, kind in NUMBERS:
        if kind is int:
            with pytest.raises(ConfigError, match="must be a whole number"):
                MemoryConfig(**settings_with(path, 5000.5))


@pytest.mark.parametrize("table", ["retry", "breaker"])
def test_a_table_given_as_its_number_takes_no_truth_value(table: str) -> None:
    with pytest.raises(ConfigError, match=rf"stores\.a\.{table}\.\w+: must be a whole number"):
        MemoryConfig(stores={"a": {**STORE, table: True}})


def test_numbers_in_texts_are_read_as_environment_variables_give_them() -> None:
    config = MemoryConfig(server={"port": "9000", "rate": "2.5"}, stores={"a": {**STORE, "retry": "4"}})
    assert (config.server.port, config.server.rate) == (9000, 2.5)
    assert config.stores["a"].retry is not None
    assert config.stores["a"].retry.attempts == 4
    assert config.telemetry is False


def test_truth_values_stay_truth_values() -> None:
    config = MemoryConfig(telemetry=True, accept_loss=True, server={"behind_proxy": True})
    assert config.telemetry
    assert config.accept_loss is True
    assert config.server.behind_proxy
