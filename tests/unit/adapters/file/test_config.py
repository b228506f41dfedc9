"""URLs and options."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.file import adapter
from memory.adapters.file.config import CLAIMS, FileConfig, parse
from memory.domain.errors import ConfigError
from memory.ports.contract.cells import cells


@cells(
    "url, path",
    [
        ("file:///var/lib/memory", "/var/lib/memory"),
        ("file:////var/lib/memory", "/var/lib/memory"),
        ("file://localhost/var/lib", "/var/lib"),
        ("file:/var/lib", "/var/lib"),
        ("file:notes/memory", "notes/memory"),
        ("file:///with%20space", "/with space"),
    ],
    shared=True,
)
def test_a_url_names_a_folder(url: str, path: str) -> None:
    assert parse("mid", url, {}) == FileConfig(Path(path).absolute())


def test_options_stand_in_the_url_or_apart() -> None:
    config = FileConfig(Path("/m"), fsync=False, lock_timeout=2.5, cache_bytes=1000)
    assert parse("mid", "file:///m?fsync=false&lock_timeout=2.5&cache_bytes=1000", {}) == config
    assert parse("mid", "file:///m", {"fsync": False, "lock_timeout": 2.5, "cache_bytes": 1000}) == config


@cells(
    "url, options, named",
    [
        ("sqlite:///x", {}, "file:"),
        ("file", {}, "file:"),
        ("file://", {}, "folder"),
        ("file:///", {}, "folder"),
        ("file://server/share", {}, "this machine"),
        ("file:///a%00b", {}, "folder"),
        ("file:///m", {"fsync": "perhaps"}, "fsync"),
        ("file:///m?lock_timeout=-1", {}, "lock_timeout"),
        ("file:///m", {"lock_timeout": True}, "lock_timeout"),
        ("file:///m", {"cache_bytes": "nan"}, "cache_bytes"),
        ("file:///m?colour=red", {}, "colour"),
    ],
    shared=True,
)
def test_what_cannot_be_used_is_refused_by_name(url: str, options: dict[str, object], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        adapter.build("mid", url, options)


def test_other_systems_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.adapters.file.config.sys.platform", "win32")
    with pytest.raises(ConfigError, match="Windows"):
        parse("mid", "file:///m", {})


def test_without_fsync_it_is_not_durable_and_says_what_may_be_lost(tmp_path: Path) -> None:
    store = adapter.build("mid", f"file://{tmp_path}/data", {"fsync": False})
    assert (store.capabilities.durable, store.capabilities.loss_window) == (False, timedelta(seconds=35))
    assert adapter.build("mid", f"file://{tmp_path}/data", {}).capabilities == CLAIMS == adapter.claims
    assert not (tmp_path / "data").exists(), "building does no I/O"
