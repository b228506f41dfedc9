"""A secret is shown nowhere, wherever it was put: not by what a configuration prints or
dumps, not by an error, a report, a log or a file's name.
"""

from __future__ import annotations

import logging
import os
import pickle
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memory.domain.errors import ConfigError, MemoryTiersError
from memory.facade.config.settings import MemoryConfig
from memory.facade.config.values import is_broken_url, mask_options, mask_url
from memory.facade.reports import examine
from memory.facade.runtime.build import build_engine
from memory.ports.clock import system_clock
from memory.ports.contract.cells import cells
from tests.support.depth import drawn

MARK = "hun7er"
"""Stands at both ends of every secret: what shows of one shows one of these."""

secrets = st.text(st.sampled_from("abcXYZ019:@/?#%=;,.+-_~!$*()[] é'\"\\"), max_size=12).map(
    lambda middle: f"{MARK}{middle}{MARK}"
)
schemes = st.sampled_from(
    [
        "redis",
        "rediss+sentinel",
        "postgresql",
        "mysql+asyncmy",
        "mongodb",
        "mongodb+srv",
        "qdrant",
        "nosuch",
        "REDIS",
    ]
)
hosts = st.sampled_from(["host", "host:6379", "a:1,b:2", "[::1]:5432", "127.0.0.1"])
users = st.sampled_from(["", "ann", "u", "ann%40home", "ann.lee_x"])
names = st.sampled_from(
    [
        "password",
        "pw_password",
        "PASSWORD",
        "api_key",
        "token",
        "sslPassword",
        "secret",
        "pwd",
        "%70assword",
        "pass%77ord",
        "p%2561ssword",
    ]
)
around = st.sampled_from(["", " ", "\t", "\n", "  "])


def _encoded(secret: str) -> str:
    return quote(secret, safe="")


@st.composite
def urls(draw: st.DrawFn) -> str:
    """A URL with a secret somewhere in it, as somebody may have written it."""
    secret, scheme, host = draw(secrets), draw(schemes), draw(hosts)
    written = draw(st.sampled_from([secret, _encoded(secret)]))
    where = draw(st.sampled_from(["login", "parameter", "second parameter", "nested"]))
    if where == "login":
        url = f"{scheme}://{draw(users)}:{written}@{host}/db?x=1"
    elif where == "nested":
        url = f"{scheme}://{host}/db?proxy=http://ann:{_encoded(secret)}@proxy/"
    else:
        before = "x=1&" if where == "second parameter" else ""
        url = f"{scheme}://{host}/db?{before}{draw(names)}={written.replace('&', '')}"
    return draw(around) + url + draw(around)


@st.composite
def no_urls(draw: st.DrawFn) -> str:
    """The same with the scheme, or a part of it, forgotten."""
    secret = draw(secrets)
    written = draw(st.sampled_from([secret, _encoded(secret)]))
    user, host = draw(users), draw(hosts)
    broken = [
        f"{user}:{written}@{host}/db",
        f"//{user}:{written}@{host}/db",
        f"mysql:{user}:{written}@{host}",
        f"mysql:/{user}:{written}@{host}/db",
        f"{host.partition(':')[0]}/db?{draw(names)}={written}",
        f"\ufeffredis://{user}:{written}@{host}",
    ]
    return draw(around) + draw(st.sampled_from(broken)) + draw(around)


def _shown(config: MemoryConfig) -> list[str]:
    """Everything that a configuration shows of itself."""
    parts: list[Any] = [
        config,
        config.tiers,
        *config.stores.values(),
        *config.routes,
        *config.stores_in_use(),
    ]
    models = [config, config.tiers, *config.stores.values(), *config.routes]
    dumped = [
        *(model.model_dump() for model in models),
        *(model.model_dump_json() for model in models),
        *(dict(model) for model in models),
    ]
    engine_error = ""
    try:
        build_engine(config, embedder=None, clock=system_clock)
    except MemoryTiersError as error:
        engine_error = f"{error!r} {error}" + "".join(traceback.format_exception(error, limit=0))
    leaves = [config.leaves(), dict(config.origins), config.serving_stores(), config.stores]
    return [*map(repr, parts), *map(str, parts), *map(repr, dumped), *map(repr, leaves), engine_error]


def _assert_hidden(texts: list[str]) -> None:
    for text in texts:
        assert MARK not in text, text


@settings(deadline=None, max_examples=drawn(150))
@example(url="redis://:hun7er@0?hun7er@host/db?x=1")
@given(urls())
def test_a_url_is_used_to_the_letter_and_shown_without_its_secret(url: str) -> None:
    _assert_hidden([mask_url(url), repr(mask_options({"url": url, "deep": [{"dsn": url}], "pair": (url,)}))])
    by_tier = MemoryConfig.load(url)
    by_name = MemoryConfig(
        stores={"a": {"url": url, "options": {"tls": {"key_password": url}, "more": [url]}}},
        tiers={"mid": "a"},
    )
    by_route = MemoryConfig(routes=[{"tiers": ["mid"], "store": url, "tenants": ["t"]}])
    for config in (by_tier, by_name, by_route, MemoryConfig.load(by_name, tenant="other")):
        assert url.strip() in [store.url for store in config.stores_in_use()]
        _assert_hidden(_shown(config))
        assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301


@cells(
    "scheme",
    ["redis", "rediss", "redis+cluster", "postgresql", "mysql", "mariadb", "mongodb", "qdrant", "qdrants"],
    shared=True,
)
@cells(
    "login",
    [
        *(f"u:1?{MARK}", f"u:1?{MARK}&b", f"u:1?b&{MARK}=2", f"u:1@0/d?{MARK}&b", f"u:1@0/d?b&{MARK}=2"),
        *(
            f"u:1@0/d?{option}={MARK}"
            for option in (
                "timeout",
                "connect_timeout",
                "sslmode",
                "ssl_mode",
                "pool_size",
                "https",
                "database",
            )
        ),
        *(
            f"u:1/d?{option}={MARK}"
            for option in (
                "timeout",
                "connect_timeout",
                "sslmode",
                "ssl_mode",
                "pool_size",
                "https",
                "database",
            )
        ),
    ],
    shared=True,
)
def test_what_follows_a_question_mark_in_a_password_is_shown_by_no_adapter(scheme: str, login: str) -> None:
    """It is read as options, which adapters name, or as their values."""
    _assert_hidden(_shown(MemoryConfig.load(f"{scheme}://{login}@host/db")))


@settings(deadline=None, max_examples=drawn(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(no_urls())
def test_what_only_resembles_a_url_is_refused_without_being_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_broken_url(text)
    sources: list[Callable[[], object]] = [
        lambda: MemoryConfig.load(text),
        lambda: MemoryConfig.load({"tiers": {"mid": text}}),
        lambda: MemoryConfig.load({"routes": [{"tiers": ["mid"], "store": text, "tenants": ["t"]}]}),
        lambda: MemoryConfig(stores={"a": {"url": text}}),
        lambda: MemoryConfig(accept_loss=(text,)),
        lambda: MemoryConfig.load(text + ".toml"),
    ]
    for source in sources:
        with pytest.raises(ConfigError) as refused:
            source()
        _assert_hidden(
            [str(refused.value), repr(refused.value), repr(refused.value.__cause__), mask_url(text)]
        )
    assert list(tmp_path.iterdir()) == []


@settings(deadline=None, max_examples=drawn(60))
@given(
    secrets,
    st.sampled_from(["password", "db_password", "api_key", "token", "auth", "sslkeyfile"]),
    st.integers(0, 3),
)
def test_an_option_named_like_a_secret_is_hidden_at_every_depth(secret: str, name: str, depth: int) -> None:
    options: Any = {name: secret, "nested": [{name: {"value": secret}}, ({name: [secret]},)]}
    for _ in range(depth):
        options = {"inner": [options]}
    config = MemoryConfig(stores={"a": {"url": "redis://host", "options": options}}, tiers={"mid": "a"})
    assert config.stores["a"].options == options
    _assert_hidden(_shown(config))


SCHEMES = "redis postgresql mysql qdrant redis+cluster redis+sentinel nosuch file sqlite".split()
RESTS = [
    "u:{}@127.0.0.1:1/1",
    "127.0.0.1:1/1?password={}",
    "127.0.0.1:1/1?%70assword={}",
    "u:{}@/",
    "u:{}@127.0.0.1:port/x",
]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("rest", RESTS)
async def test_doctor_and_logs_show_no_secret_of_a_store_that_cannot_be_opened(
    scheme: str, rest: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.DEBUG)
    url = f"{scheme}://{rest.format(MARK)}"
    patient = {"connect_timeout": 1} if scheme in ("redis", "postgresql", "mysql") else {}
    config = MemoryConfig(
        stores={"a": {"url": url, "options": patient}}, tiers=dict.fromkeys(("short", "mid", "long"), "a")
    )
    said = []
    try:
        found = await examine(build_engine(config, embedder=None, clock=system_clock))
    except MemoryTiersError as error:
        said += [str(error), repr(error)]
    else:
        said += [repr(found), repr(found.to_dict()), *(str(problem) for problem in found.problems)]
        assert not found.ok or scheme in ("file", "sqlite")
    _assert_hidden([*said, caplog.text])
    assert [
        name for _, folders, files in os.walk(tmp_path) for name in (*folders, *files) if MARK in name
    ] == []


def test_a_configuration_that_was_dumped_to_be_shown_is_no_configuration() -> None:
    config = MemoryConfig.load("redis://ann:hunter2@host/0")
    with pytest.raises(ConfigError, match=r"is a masked URL: \*\*\* replaces its password"):
        MemoryConfig(**config.model_dump())
    plain = MemoryConfig.load("redis://host/0", tenant="acme")
    assert MemoryConfig(**plain.model_dump()).model_dump() == plain.model_dump()
    assert MemoryConfig.model_validate_json(plain.model_dump_json()).tiers == plain.tiers


def test_spaces_around_a_url_do_not_make_it_a_file() -> None:
    assert MemoryConfig.load(" memory:// \n").tiers.mid == "memory://"


@pytest.mark.parametrize("name", ["ann@home.db", "./u:p@host.db", "a b.db", "/srv/u:p@x/memory.db"])
def test_a_file_is_told_from_a_login_by_how_it_begins(name: str) -> None:
    assert MemoryConfig.load(name).tiers.mid == f"sqlite:///{name}"
