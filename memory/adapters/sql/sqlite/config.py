"""What the adapter can do at best, and its options: readable without SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from memory.adapters.sql.thresholds import SqlThresholds
from memory.ports.capabilities import Capabilities
from memory.ports.local_paths import absolute_path, local_path
from memory.ports.options import SecondsOrZero, Shouted, StoreOptions, Whole, wrong
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

Mode = Annotated[Literal["rw", "ro"], Field(description="one of rw, ro")]
Synchronous = Annotated[
    Literal["NORMAL", "FULL", "EXTRA"], Shouted, Field(description="one of NORMAL, FULL, EXTRA")
]


@dataclass(frozen=True, slots=True)
class Thresholds(SqlThresholds):
    """Where the adapter goes on in another step. What is stored and answered does not
    depend on them: tests make them tiny. Each is at least 1.
    """

    writes_together: int = 64
    """Calls that share one commit at most: the last of them waits for the first."""
    rows_at_once: int = 4096
    """Rows that one statement reads or takes out at most."""
    deleted_at_once: int = 256
    """Rows read at once to leave tombstones in their places."""
    block: int = 8192
    """Numbers of vectors that are multiplied at once, see `memory.ports.unit_vectors`."""
    limits_written_out: int = 0
    """None is: SQLite chooses other indexes where it knows the limit."""
    log_pages: int = 4000
    """Pages in the log before it is copied back, 16 MiB: a page written often in that
    time is copied once.
    """


THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class SqliteConfig(StoreOptions):
    """Where the file is and how it is used.

    `path` of None keeps everything in memory until the store is closed. `synchronous`
    is SQLite's: FULL waits for the disk at every commit; under NORMAL the death of a
    process loses nothing, and the death of the machine may cost the commits of the last
    half minute: such a store does not claim to be durable. `busy_timeout` is how many
    seconds a call waits for other processes' writes before it fails as
    `StoreUnavailable`. `cache_bytes` bounds what searches keep in memory. `mode=ro`
    opens an existing file to read and search only; a file that may not be written is
    opened so without being asked.
    """

    where: ClassVar[frozenset[str]] = frozenset({"path", "thresholds"})
    product: ClassVar[str] = "a SQLite store"
    path: Path | None
    synchronous: Synchronous = "FULL"
    mode: Mode = "rw"
    busy_timeout: SecondsOrZero = 10.0
    cache_bytes: Whole = 256 * 2**20
    thresholds: Thresholds = THRESHOLDS


def parse(name: str, url: str, options: Mapping[str, JsonValue]) -> SqliteConfig:
    """The config of `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///:memory:`
    (see `memory.ports.local_paths`), with options in the query part or apart.
    """
    scheme, colon, rest = url.partition(":")
    if scheme != "sqlite" or not colon:
        raise wrong(name, f"the URL of a SQLite store begins with 'sqlite:///', not '{scheme}'")
    place, query = local_path(url), rest.partition("?")[2]
    if place is None:
        raise wrong(name, "write 'sqlite:///' and the path of the file, or 'sqlite:///:memory:'")
    return SqliteConfig.read(name, query, options, path=None if place == ":memory:" else absolute_path(place))
