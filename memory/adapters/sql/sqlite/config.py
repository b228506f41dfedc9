"""The adapter's best capabilities, and its options: readable without SQLAlchemy."""

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

# It has no limits of its own: SQLite takes rows of up to 1,000,000,000 bytes.
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
    """The sizes at which the adapter starts another step; each is at least 1.

    Stored data and answers do not depend on them: tests make them tiny.
    """

    writes_together: int = 64
    """The largest number of calls that share a commit; the last waits for the first."""
    rows_at_once: int = 4096
    """The largest number of rows that one statement reads or takes out."""
    deleted_at_once: int = 256
    """The number of rows read at once to replace them with tombstones."""
    block: int = 8192
    """The block size for multiplying vectors, see `memory.ports.unit_vectors`."""
    limits_written_out: int = 0
    """Zero: no limit is written out, as SQLite would then choose other indexes."""
    log_pages: int = 4000
    """The number of pages in the log before it is copied back: 16 MiB.

    A page that is written often in that time is copied once.
    """


THRESHOLDS = Thresholds()


@dataclass(frozen=True, slots=True)
class SqliteConfig(StoreOptions):
    """The path of the file, and how the store uses it.

    `path`: None keeps everything in memory until the store is closed.

    `synchronous`: SQLite's setting. FULL waits for the disk at every commit. Under
    NORMAL the death of a process loses nothing. The death of the machine may lose the
    commits of the last half minute, so such a store does not claim to be durable.

    `busy_timeout`: how many seconds a call waits for other processes' writes before it
    fails with `StoreUnavailable`.

    `cache_bytes`: the upper bound of the memory that searches use for caching.

    `mode`: "ro" opens an existing file to read and search only. A file without write
    permission is opened as "ro" in any case.
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
    """Parse the URL of a SQLite store, with options in its query part or separate.

    The URL is `sqlite:///relative`, `sqlite:////absolute` or `sqlite:///:memory:`; see
    `memory.ports.local_paths`.
    """
    scheme, colon, rest = url.partition(":")
    if scheme != "sqlite" or not colon:
        raise wrong(name, f"the URL of a SQLite store begins with 'sqlite:///', not '{scheme}'")
    place, query = local_path(url), rest.partition("?")[2]
    if place is None:
        raise wrong(name, "write 'sqlite:///' and the path of the file, or 'sqlite:///:memory:'")
    return SqliteConfig.read(name, query, options, path=None if place == ":memory:" else absolute_path(place))
