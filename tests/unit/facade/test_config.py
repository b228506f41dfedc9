"""What a configuration accepts, how it refuses, and that it shows no secrets."""

from __future__ import annotations

import os
import stat
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from memory.domain.errors import ConfigError
from memory.domain.time import parse_duration, show_duration
from memory.facade.config.settings import MemoryConfig, default_url
from memory.facade.config.values import mask_url
from memory.policies.promotion import DEFAULT_RULES
from memory.ports.contract.cells import cells

SECRETS = [
    ("redis://app:hunter2@cache:6379/0", "redis://app:***@cache:6379/0"),
    ("redis://:hunter2@cache", "redis://:***@cache"),
    ("postgresql://app:hun/ter2@db/memory", "postgresql://app:***@db/memory"),
    ("mongodb://u:hunter2@a,b/?replicaSet=r", "mongodb://u:***@a,b/?replicaSet=r"),
    ("qdrant://host?api_key=hunter2&x=1", "qdrant://host?api_key=***&x=1"),
    (
        "mongodb://db/m?authMechanismProperties=AWS_SESSION_TOKEN:hunter2",
        "mongodb://db/m?authMechanismProperties=***",
    ),
]


def test_without_anything_all_tiers_share_one_sqlite_file_in_the_users_data_folder() -> None:
    serving = MemoryConfig().serving_stores()
    assert serving["short"] is serving["mid"] is serving["long"]
    assert serving["mid"].url == default_url()
    assert serving["mid"].url.startswith("sqlite:///")
    assert MemoryConfig().promotion == DEFAULT_RULES


@cells("url, shown", SECRETS, shared=True)
def test_secrets_appear_in_no_repr_and_no_listing(url: str, shown: str) -> None:
    assert mask_url(url) == shown
    by_name = MemoryConfig(
        stores={"cache": {"url": url, "options": {"password": "hunter2", "tls": {"key_file": "hunter2"}}}},
        tiers={"short": "cache"},
    )
    by_url = MemoryConfig(tiers={"short": url})
    for config in (by_name, by_url):
        for text in (
            repr(config),
            str(config),
            repr(config.serving_stores()),
            repr(config.stores),
            repr(config.tiers),
            repr(config.leaves()),
        ):
            assert "hunter2" not in text
            assert "ter2@" not in text
    assert by_url.serving_stores()["short"].url == url


def test_urls_without_secrets_are_shown_as_they_are() -> None:
    for url in (
        "sqlite:////srv/a@b/memory.db",
        "memory://",
        "postgresql://app@db/memory",
        "sqlite:///x.db?synchronous=FULL",
    ):
        assert mask_url(url) == url


@cells(
    "settings, message",
    [
        ({"tires": {}}, "there is no setting 'tires' at the top; did you mean 'tiers'?"),
        ({"tiers": {"shrot": "main"}}, "there is no setting 'shrot' in [tiers]; did you mean 'short'?"),
        (
            {"stores": {"a": {"url": "sqlite:///x", "opts": {}}}},
            "there is no setting 'opts' in [stores.a]; did you mean 'options'?",
        ),
        ({"durations": {"tombstone_live": "3d"}}, "did you mean 'tombstone_life'?"),
        ({"promotion": [{"name": "x", "tag": ["fact"]}]}, "did you mean 'tags'?"),
        (
            {"tiers": {"long": "mian"}},
            "tiers.long: names no store 'mian' (and is no URL); did you mean 'main'?",
        ),
        (
            {"tiers": {"long": "/srv/long.db"}},
            "tiers.long: names no store (and is no URL). Write the path of a SQLite file as a URL",
        ),
        ({"stores": {"a": {}}}, "stores.a.url: is missing"),
        (
            {"stores": {"a": {"urls": "memory://"}}},
            "there is no setting 'urls' in [stores.a]; did you mean 'url'?",
        ),
        (
            {"stores": {"a": "memory://"}},
            "stores.a: must be a table of settings: timeout, retry, breaker, url",
        ),
        ({"stores": "memory://"}, "stores: must be a table"),
        ({"indexes": "metadata.price"}, "indexes: must be a list"),
        ({"stores": {"a": {"url": "memory.db"}}}, "stores.a.url: is not a URL with a scheme"),
        ({"stores": {"Big": {"url": "memory://"}}}, "'Big' is not a valid store name"),
        ({"tenant": ""}, "tenant: must not be empty"),
        ({"tenant": "x" * 513}, "tenant: exceeds 512 bytes"),
        ({"embedder": "openai"}, "embedder.use: must be 'wordllama', 'none' or 'folder'"),
        ({"embedder": {"use": "folder"}}, "embedder.path: is missing. Set it to the folder of the encoder"),
        (
            {"embedder": {"use": "none", "path": "encoder"}},
            "embedder.path: applies only to use = \"folder\", not to 'none'",
        ),
        (
            {"embedder": {"use": "folder", "pth": "encoder"}},
            "there is no setting 'pth' in [embedder]; did you mean 'path'?",
        ),
        ({"durations": {"lease": "soon"}}, "durations.lease: should be a duration such as '30d'"),
        ({"durations": {"lease": "0s"}}, "durations.lease: should be longer than zero"),
        (
            {"promotion": [{"name": "back", "source": "long", "target": "mid"}]},
            "promotion.back.target: must be a later tier than 'long'",
        ),
        ({"promotion": [{"name": "a"}, {"name": "a"}]}, "promotion: two rules are named 'a'"),
        ({"promotion": {"name": "a"}}, "promotion: should be a list of rules"),
        ({"promotion": [{"name": "a", "min_confidence": 2}]}, "promotion.1.min_confidence: "),
        (
            {"promotion": [{"name": "a"}, {"name": "b", "idle_for": "7x"}]},
            "promotion.2.idle_for: should be a duration such as '30d'",
        ),
        (
            {"promotion": [{"name": "a", "older_than": True}]},
            "promotion.1.older_than: should be a duration such as '30d'",
        ),
        ({"promotion": [{"name": "a", "min_accesses": True}]}, "promotion.1.min_accesses: "),
        ({"promotion": [{"name": "a", "min_confidence": True}]}, "promotion.1.min_confidence: "),
        (
            {"retention": [{"name": "a", "what": "versions", "versions_for": "7x"}]},
            "retention.1.versions_for: should be a duration such as '30d'",
        ),
        (
            {"retention": [{"name": "a", "what": "versions", "versions_for": "900000d"}]},
            "retention.a.versions_for: should be longer than zero and at",
        ),
        (
            {"retention": [{"name": "a", "what": "versions", "keep_versions": True}]},
            "retention.1.keep_versions: ",
        ),
        (
            {"retention": [{"name": "a", "when": {"older_than": "99999999999999d"}}]},
            "retention.a.when.older_than: should be at most 100 years",
        ),
        ({"durations": {"lease": "99999999999999d"}}, "durations.lease: should be at most 100 years"),
        ({"durations": {"expired_grace": "900000d"}}, "durations.expired_grace: should be at most 100 years"),
        (
            {"durations": {"tombstone_life": "P900000D"}},
            "durations.tombstone_life: should be at most 100 years",
        ),
        ({"quotas": {"name": "a", "entries": 1}}, "quotas: should be a list of quotas ([[quotas]] in TOML)"),
        ({"quotas": [{"name": "a", "entries": True}]}, "quotas.1.entries: "),
        ({"quotas": [{"name": "a", "entries": 1, "tenants": [""]}]}, "quotas.a.tenants: must not be empty"),
        ({"policies": "decided"}, "policies: should be a list of names"),
        ({"indexes": ["price"]}, "indexes: should be at most 16 paths such as 'metadata.price'"),
        ({"indexes": ["metadata"]}, "indexes: should be at most 16 paths such as 'metadata.price'"),
        ({"indexes": ["metadata..a"]}, "indexes: has an empty key between dots"),
        ({"indexes": "metadata.price"}, "indexes: "),
        ({"indexes": [f"metadata.a{n}" for n in range(17)]}, "indexes: should be at most 16 paths"),
        (
            {"promotion": [{"name": "c", "to_scope": "session:other"}]},
            "promotion.c.to_scope: must be broader than a session",
        ),
        (
            {"promotion": [{"name": "c", "when": {"tier": "mid"}}]},
            "promotion.c.when: 'in tier mid' is never true of entries in source = 'short'",
        ),
        ({"promotion": [{"name": "c", "tags": [""]}]}, "promotion.c.tags: length must be 1..64 chars"),
        ({"promotion": [{"name": "c", "tenants": [""]}]}, "promotion.c.tenants: must not be empty"),
        (
            {"retention": [{"name": "c", "when": {"tag": "x"}, "tenants": [""]}]},
            "retention.c.tenants: must not be empty",
        ),
        ({"promotion": [{"name": " "}]}, "promotion.1.name: must not be blank"),
        (
            {"retention": [{"name": "a\nb", "when": {"tag": "x"}}]},
            "retention.1.name: must not hold control characters",
        ),
        (
            {"quotas": [{"name": "n" * 201, "entries": 1}]},
            "quotas.1.name: length must be 1..200 chars, not 201",
        ),
        (
            {"promotion": [{"name": "a", "nmae": 1}]},
            "promotion.1.nmae: there is no setting 'nmae' in [promotion.1]; did you mean 'name'?",
        ),
        (
            {"quotas": "name=a"},
            "quotas: should be a list of quotas ([[quotas]] in TOML, JSON in the environment: ",
        ),
    ],
    shared=True,
)
def test_what_cannot_be_used_is_refused_by_name(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        MemoryConfig(**settings)
    assert message in str(refused.value)


def test_an_error_does_not_repeat_the_secret_it_was_given() -> None:
    with pytest.raises(ConfigError) as refused:
        MemoryConfig(stores={"a": {"url": "hunter2@host"}})
    assert "hunter2" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


@pytest.mark.parametrize(
    "broken",
    ["mysql:/ann:hunter2@host/db", "mysql//ann:hunter2@host/db", "mysql:ann:hunter2@host/db?pool_size=2"],
)
def test_a_url_that_lost_its_slashes_is_not_repeated(broken: str) -> None:
    for source in (
        broken,
        {"tiers": {"mid": broken}},
        {"routes": [{"tiers": ["mid"], "store": broken, "tenants": ["a"]}]},
    ):
        with pytest.raises(ConfigError, match="not a URL") as refused:
            MemoryConfig.load(source)
        assert "hunter2" not in str(refused.value)


def test_a_file_may_have_an_at_sign_in_its_name() -> None:
    assert MemoryConfig.load("ann@home.db").tiers.mid == "sqlite:///ann@home.db"


def test_configuration_is_frozen() -> None:
    config = MemoryConfig()
    with pytest.raises(ValidationError):
        config.tenant = "other"  # type: ignore[misc]


def test_tiers_with_the_same_url_get_one_store_and_others_their_own() -> None:
    serving = MemoryConfig(
        tiers={"short": "memory://", "mid": "sqlite:///a.db", "long": "sqlite:///a.db"}
    ).serving_stores()
    assert serving["mid"] is serving["long"]
    assert [serving[tier].name for tier in ("short", "mid")] == ["memory", "sqlite"]


def test_a_tier_that_repeats_a_named_stores_url_is_served_by_that_store() -> None:
    serving = MemoryConfig(
        stores={"agent": {"url": "sqlite:///a.db"}},
        tiers={"short": "agent", "mid": "sqlite:///a.db", "long": "sqlite:///b.db"},
    ).serving_stores()
    assert serving["short"] is serving["mid"]
    assert serving["short"].name == "agent"
    assert serving["long"].name == "sqlite"


def test_durations_are_read_and_shown_as_people_write_them() -> None:
    config = MemoryConfig(
        durations={"mark_life": "1h30m", "tombstone_life": "2w", "cache_max_age": 90, "lease": "PT45S"}
    )
    assert config.engine.mark_life == timedelta(minutes=90)
    shown = {
        name: config.leaves()[f"durations.{name}"]
        for name in ("mark_life", "tombstone_life", "cache_max_age", "lease")
    }
    assert shown == {"mark_life": "1h30m", "tombstone_life": "14d", "cache_max_age": "1m30s", "lease": "45s"}


def test_a_shown_duration_reads_back_as_itself() -> None:
    for length in (
        timedelta(microseconds=1),
        timedelta(days=400, hours=5, seconds=1),
        timedelta(milliseconds=1500),
    ):
        assert parse_duration(show_duration(length)) == length


def test_rules_take_durations_as_text() -> None:
    config = MemoryConfig(promotion=[{"name": "week", "on": "sweep", "idle_for": "7d"}])
    assert config.promotion[0].idle_for == timedelta(days=7)


def test_the_default_folder_is_created_for_its_owner_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    MemoryConfig().prepare()
    folder = Path(default_url().removeprefix("sqlite:///")).parent
    assert folder.is_relative_to(tmp_path)
    if os.name == "posix":
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_no_folder_is_created_where_the_default_file_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    MemoryConfig(stores={"main": {"url": "sqlite:///x.db"}}).prepare()
    assert not (tmp_path / "data").exists()


def test_how_much_searches_keep_in_memory_is_a_setting() -> None:
    assert MemoryConfig().leaves()["search.cache_bytes"] == 256 * 2**20
    assert MemoryConfig(search={"cache_bytes": 0}).engine.search_cache_bytes == 0
    with pytest.raises(ConfigError, match=r"search\.cache_bytes"):
        MemoryConfig(search={"cache_bytes": -1})


def test_every_setting_has_a_line_where_all_are_shown() -> None:
    lists = {
        "routes": "routes.1",
        "stores": "stores.other.url",
        "promotion": "promotion.1",
        "retention": "retention.1",
        "quotas": "quotas.1",
    }
    config = MemoryConfig(
        stores={"other": {"url": "sqlite:///x.db"}},
        routes=[{"tiers": ["mid"], "store": "other", "tenants": ["a"]}],
        policies=["decided"],
        retention=[{"name": "old", "when": {"older_than": "1d"}}],
        quotas=[{"name": "few", "entries": 1}],
    )
    shown = config.leaves()
    for name in MemoryConfig.model_fields:
        assert lists.get(name, name) in shown or any(line.startswith(f"{name}.") for line in shown), name


def test_a_misspelt_setting_is_refused_without_a_value_too() -> None:
    with pytest.raises(ConfigError, match="no setting 'embeder' at the top; did you mean 'embedder'"):
        MemoryConfig.load({}, embeder=None)
    assert MemoryConfig.load({}, tenant=None, quotas=None).tenant == "default"
