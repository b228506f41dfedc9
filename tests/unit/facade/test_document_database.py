"""Which source names a document database's server, database and prefix (B85)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.adapters.mongo.config import MongoConfig, parse
from memory.domain.errors import ConfigError
from memory.facade.config.settings import MemoryConfig, load

pytestmark = pytest.mark.behaviour("B85")

ENVIRONMENT = {
    "MONGODB_URI": "mongodb://from-env:27017/uri_path",
    "MONGODB_DB": "env_db",
    "MONGODB_COLLECTION_PREFIX": "env_",
}


def found(config: MemoryConfig) -> MongoConfig:
    """What the adapter makes of the mid store."""
    store = config.serving_stores()["mid"]
    return parse(store.name, store.url, store.options)


def loaded(url: str, environ: dict[str, str], tmp_path: Path, **options: Any) -> MongoConfig:
    return found(
        load(
            {"tiers": {"mid": "m"}, "stores": {"m": {"url": url, "options": options}}},
            environ=environ,
            folder=tmp_path,
        )
    )


def test_what_is_set_beats_the_environment(tmp_path: Path) -> None:
    config = loaded("mongodb://said:27017", ENVIRONMENT, tmp_path, database="said_db", prefix="said_")
    assert (config.hosts, config.database, config.prefix) == ("said:27017", "said_db", "said_")
    config = loaded("mongodb://said:27017/?database=said_db&prefix=said_", ENVIRONMENT, tmp_path)
    assert (config.hosts, config.database, config.prefix) == ("said:27017", "said_db", "said_")


def test_arguments_beat_the_file_and_the_file_beats_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "memory.toml"
    file.write_text(
        '[tiers]\nmid = "m"\n[stores.m]\nurl = "mongodb://file:1"\noptions = { database = "file_db" }\n'
    )
    config = load(file, {"stores": {"m": {"options": {"database": "argument_db"}}}}, environ=ENVIRONMENT)
    assert (found(config).hosts, found(config).database, found(config).prefix) == (
        "file:1",
        "argument_db",
        "env_",
    )
    assert found(load(file, environ=ENVIRONMENT)).database == "file_db"


def test_the_environment_names_server_database_and_prefix(tmp_path: Path) -> None:
    config = loaded("mongodb://", ENVIRONMENT, tmp_path)
    assert (config.hosts, config.database, config.prefix) == ("from-env:27017", "env_db", "env_")


def test_the_database_is_that_of_the_path_then_the_default(tmp_path: Path) -> None:
    only_uri = {"MONGODB_URI": ENVIRONMENT["MONGODB_URI"]}
    assert loaded("mongodb://", only_uri, tmp_path).database == "uri_path"
    assert loaded("mongodb://said:1/path_db", {"MONGODB_DB": "env_db"}, tmp_path).database == "env_db"
    bare = loaded("mongodb://said:1", {}, tmp_path)
    assert (bare.database, bare.prefix) == ("agent_memory", "memory_")


def test_urls_of_tiers_and_routes_are_completed_too(tmp_path: Path) -> None:
    route = {"tiers": ["mid"], "store": "mongodb://", "tenants": ["acme"]}
    config = load(
        {"tiers": {"mid": "mongodb://", "long": "memory://"}, "routes": [route]},
        environ=ENVIRONMENT,
        folder=tmp_path,
    )
    assert route["store"] == "mongodb://"
    assert {s.url.partition("?")[0] for s in config.stores_in_use() if s.url.startswith("mongodb")} == {
        "mongodb://from-env:27017/uri_path"
    }


def test_what_is_shown_says_where_it_came_from_and_hides_the_password(tmp_path: Path) -> None:
    environ = {"MONGODB_URI": "mongodb://ann:hunter2@from-env/x"}
    config = load(
        {"tiers": {"mid": "m"}, "stores": {"m": {"url": "mongodb://"}}}, environ=environ, folder=tmp_path
    )
    assert config.origins["stores.m.url"] == "MONGODB_URI"
    assert "hunter2" not in repr(config) + str(config.leaves())


def test_no_server_named_anywhere_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="store 'm': name the host"):
        loaded("mongodb://", {}, tmp_path)
