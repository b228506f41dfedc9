"""How long things last and how hard the engine tries."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Durations of the protocols.

    `mark_life` and `tombstone_life` must exceed the longest time a call can be under
    way (a frozen worker, a late duplicate): within it late copies and late readers are
    told apart from fresh ones. `sweep_every` is how often an open memory does
    maintenance; zero: never by itself. `deadline` is how long a read waits for a store,
    and how long a write tries where others are writing the same record. `expired_grace`
    is how long what has expired is kept, hidden, before a sweep deletes it; zero: for
    ever. `advice` is how long a search waits for an advisor's or a reranker's answer,
    each time it asks. `search_cache_bytes` is how much the process keeps of the vectors
    of stores that have no index for meaning; nought: nothing. `consistency`: when a
    write returns, unless it says so itself; see `Deliveries`. What is delivered behind
    it waits `linger` for others to go with, as many together as are a `batch`; while so
    many records or bytes are queued, writers wait. `artifact_bytes` is how large an
    artifact may be.
    """

    mark_life: timedelta = timedelta(hours=1)
    tombstone_life: timedelta = timedelta(days=30)
    cache_max_age: timedelta = timedelta(minutes=5)
    expired_grace: timedelta = timedelta(days=1)
    lease: timedelta = timedelta(seconds=30)
    sweep_every: timedelta = timedelta(minutes=5)
    deadline: timedelta = timedelta(seconds=10)
    advice: timedelta = timedelta(seconds=10)
    attempts: int = 16
    batch: int = 500
    page: int = 500
    search_cache_bytes: int = 256 * 2**20
    consistency: Literal["acknowledged", "replicated"] = "acknowledged"
    linger: timedelta = timedelta(milliseconds=20)
    queued_records: int = 2_000
    queued_bytes: int = 64 * 2**20
    artifact_bytes: int = 2**30
