"""URLs and options: what is taken, what is refused, and that the key is never shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory.adapters.qdrant import adapter
from memory.adapters.qdrant.config import (
    EDGE_CLAIMS,
    LOCAL_CLAIMS,
    SERVER_CLAIMS,
    EdgeConfig,
    ServerConfig,
    parse,
)
from memory.adapters.qdrant.store import QdrantStore
from memory.domain.errors import ConfigError
from memory.ports.contract.cells import cells

KEY = "kept-to-ourselves"


@cells(
    "url, config",
    [
        ("qdrant+edge:memory/edge", EdgeConfig(Path("memory/edge").absolute())),
        ("qdrant+edge:///var/memory", EdgeConfig(Path("/var/memory"))),
        ("qdrant+edge:////var/memory", EdgeConfig(Path("/var/memory"))),
        (
            "qdrant:///var/my%20memory?log_bytes=2000000&reserve_bytes=0",
            EdgeConfig(Path("/var/my memory"), 2_000_000, 0),
        ),
        ("qdrant://db.example", ServerConfig("db.example")),
        ("qdrants://db.example:443/qdrant", ServerConfig("db.example", 443, True, "qdrant")),
        (
            "qdrant://[::1]:7000?https=true&collection=agents",
            ServerConfig("::1", 7000, True, collection="agents"),
        ),
        ("qdrant://:memory:", ServerConfig(None)),
        (
            f"qdrant://h?api_key={KEY}&timeout=3&shard_key=eu&shard_number=2&replication_factor=3&write_consistency_factor=2&exact=yes",
            ServerConfig("h", 6333, False, "", KEY, "memory", 3, "eu", 2, 3, 2, True),
        ),
    ],
    shared=True,
)
def test_urls_say_where_and_how(url: str, config: object) -> None:
    assert parse("q", url, {}) == config


def test_options_apart_from_the_url_count_as_well() -> None:
    assert parse("q", "qdrant://h?timeout=3", {"timeout": 3.0, "exact": True}) == ServerConfig(
        "h", timeout=3, exact=True
    )


@cells(
    "url, options, says",
    [
        ("redis://h", {}, "begins with"),
        ("qdrant:h", {}, "begins with"),
        ("qdrant+edge://h", {}, "path of the folder"),
        ("qdrant+edge:///", {}, "path of the folder"),
        ("qdrant+edge:///x", {"api_key": KEY}, "no option 'api_key'"),
        ("qdrant+edge:///x", {"log_bytes": 5}, "log_bytes"),
        ("qdrant://", {}, "qdrant://host"),
        ("qdrant://h:port", {}, "host and port"),
        (f"qdrant://user:{KEY}@h", {}, "api_key"),
        ("qdrant://h", {"timeout": 0}, "timeout"),
        ("qdrant://h", {"timeout": "soon"}, "timeout"),
        ("qdrant://h", {"https": "maybe"}, "https"),
        ("qdrant://h", {"collection": ""}, "collection"),
        ("qdrant://h", {"shard_number": 0}, "shard_number"),
        ("qdrant://h?colour=red", {}, "no option 'colour'"),
        ("qdrant://:memory:", {"timeout": 3}, "no option 'timeout'"),
    ],
    shared=True,
)
def test_what_cannot_be_used_is_refused_by_name(url: str, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        parse("q", url, options)
    assert KEY not in str(caught.value)


def test_a_key_is_in_no_repr() -> None:
    config = parse("q", f"qdrant://h?api_key={KEY}", {})
    store = QdrantStore(f"qdrants://h?api_key={KEY}")
    assert KEY not in repr(config)
    assert KEY not in repr(store) + store.name + repr(vars(store))


@pytest.mark.parametrize(
    ("url", "claims"),
    [("qdrant+edge:///x", EDGE_CLAIMS), ("qdrant://h", SERVER_CLAIMS), ("qdrant://:memory:", LOCAL_CLAIMS)],
    ids=str,
)
def test_claims_follow_from_the_url_before_anything_is_opened(
    url: str, claims: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert adapter.build("q", url, {}).capabilities == claims
    assert list(tmp_path.iterdir()) == []
