"""What the adapter can do at best, and its options: readable without SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.local import local_path
from memory.ports.record import JsonValue

# No limits of its own: SQLite takes rows of up to 1,000,000,000 bytes.
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

_SYNCHRONOUS = ("NORMAL", "FULL", "EXTRA")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Where the adapter goes on in another step. What is stored and answered does not depend on them: tests make them tiny. Each is at least 1."""

    writes_together: int = 64
    """Calls that share one commit at most: the last of them waits for the first."""
    rows_at_once: int = 4096
    """Rows that one statement reads or takes out at most."""
    buried_at_once: int = 256
    """Rows read at once to leave tombstones in their places."""
    block: int = 8192
    """Numbers of vectors that are multiplied at once: OpenBLAS begins to think of threads at 9,216."""
    statements_kept: int = 512
    """Statements kept a collection. There are some dozens of shapes, unless a caller lists hundreds of values."""
    log_pages: int = 4000
    """Pages in the log before it is copied back, 16 MiB: a page written often in that time is copied once."""


THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class SqliteConfig:
    """Where the file is and how it is used.

    `path` of None keeps everything in memory until the store is closed. `synchronous` is SQLite's: FULL waits for the disk at every commit;
    under NORMAL the death of a process loses nothing, and the death of the machine may cost the commits of the last half minute: such a
    store does not claim to be durable. `busy_timeout` is how many seconds a call waits for other processes' writes before it fails as
    `StoreUnavailable`. `cache_bytes` bounds what searches keep in memory.
    """

    path: Path | None
    synchronous: str = "FULL"
    busy_timeout: float = 10.0
    cache_bytes: int = 256 * 2**20
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> SqliteConfig:
    """The config of `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///:memory:` (see `memory.ports.local`), with options in the query part
    or apart."""
    scheme, colon, rest = url.partition(":")
    if scheme != "sqlite" or not colon:
        raise ConfigError(f"store '{name}': the URL of a SQLite store begins with 'sqlite:///', not '{scheme}'")
    place, query = local_path(url), rest.partition("?")[2]
    if place is None:
        raise ConfigError(f"store '{name}': write 'sqlite:///' and the path of the file, or 'sqlite:///:memory:'")
    given: dict[str, JsonValue] = {**dict(parse_qsl(query, keep_blank_values=True)), **options}
    path = None if place == ":memory:" else Path(place).expanduser()
    config = SqliteConfig(
        path,
        _synchronous(name, given.pop("synchronous", "FULL")),
        _number(name, "busy_timeout", given.pop("busy_timeout", 10.0)),
        int(_number(name, "cache_bytes", given.pop("cache_bytes", 256 * 2**20))),
    )
    if given:
        raise ConfigError(f"store '{name}': a SQLite store has no option {', '.join(map(repr, sorted(given)))}")
    return config


def _synchronous(name: str, value: JsonValue) -> str:
    upper = str(value).upper()
    if upper not in _SYNCHRONOUS:
        raise ConfigError(f"store '{name}': synchronous is one of {', '.join(_SYNCHRONOUS)}, not {value!r}")
    return upper


def _number(name: str, option: str, value: JsonValue) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if not 0 <= number < 2**62:
        raise ConfigError(f"store '{name}': {option} is a number of at least 0, not {value!r}")
    return number
