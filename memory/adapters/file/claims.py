"""What the adapter can do at best, and its options."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from memory.adapters.file.thresholds import THRESHOLDS, Thresholds
from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.local import local_path
from memory.ports.record import JsonValue

CLAIMS = Capabilities(
    durable=True,
    shared=True,
    conditional=True,
    atomic=True,
    filter=True,
    order=True,
    tenant_wide=True,
    lexical=True,
    semantic=True,
    tenant_statistics=True,
    fenced=True,
)

_SWITCH = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class FileConfig:
    """Where the folder is and how it is used.

    With `fsync`, a write is acknowledged when the disk has it; without, the death of the machine may cost the last half minute, that of a
    process nothing. `lock_timeout` is how many seconds a call waits for other processes' writes before it fails as `StoreUnavailable`.
    `cache_bytes` bounds what queries and searches keep in memory.
    """

    path: Path
    fsync: bool = True
    lock_timeout: float = 10.0
    cache_bytes: int = 256 * 2**20
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> FileConfig:
    """The config of `file:///absolute/folder` or `file:relative/folder` (see `memory.ports.local`), with options in the query part or apart."""
    if sys.platform == "win32":
        raise ConfigError(f"store '{name}': the file store needs the file locks of Linux, macOS or BSD; use sqlite:/// on Windows")
    scheme, colon, rest = url.partition(":")
    if scheme != "file" or not colon:
        raise ConfigError(f"store '{name}': the URL of a file store begins with 'file:', not '{scheme}'")
    place, query = local_path(url), rest.partition("?")[2]
    if place is None:
        raise ConfigError(f"store '{name}': a file store is a folder on this machine: write 'file:///absolute/folder' or 'file:relative/folder'")
    folder = unquote(place)
    if not folder.strip("/") or "\0" in folder:
        raise ConfigError(f"store '{name}': write 'file:///' and the path of a folder of its own, or 'file:relative/folder'")
    given: dict[str, JsonValue] = {**dict(parse_qsl(query, keep_blank_values=True)), **options}
    config = FileConfig(
        Path(folder).expanduser(),
        _switch(name, "fsync", given.pop("fsync", True)),
        _number(name, "lock_timeout", given.pop("lock_timeout", 10.0)),
        int(_number(name, "cache_bytes", given.pop("cache_bytes", 256 * 2**20))),
    )
    if given:
        raise ConfigError(f"store '{name}': a file store has no option {', '.join(map(repr, sorted(given)))}")
    return config


def _switch(name: str, option: str, value: JsonValue) -> bool:
    chosen = _SWITCH.get(str(value).lower())
    if chosen is None:
        raise ConfigError(f"store '{name}': {option} is true or false, not {value!r}")
    return chosen


def _number(name: str, option: str, value: JsonValue) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, bool) or not 0 <= number < 2**62:
        raise ConfigError(f"store '{name}': {option} is a number of at least 0, not {value!r}")
    return number
