"""Durations, limits and retries of the engine."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """Durations and limits of the protocols.

    Attributes:
        mark_life: How long marks are kept. Within this time late copies and late
            readers can be distinguished from fresh ones. It must exceed the longest
            time that a call can be under way (a frozen worker, a late duplicate).
        tombstone_life: How long tombstones are kept. It must exceed the longest time of
            a call, as `mark_life` must.
        expired_grace: How long expired records are kept, hidden, before a sweep deletes
            them. Zero keeps them forever.
        sweep_every: How often an open memory runs maintenance. Zero: never by itself.
        deadline: How long a read waits for a store, and how long a write retries while
            others write the same record.
        advice: How long a search waits for each answer of an advisor or reranker.
        embedding: How long one call of the embedder may take; zero: any time. A search
            waits for it at most as long as for a store.
        search_cache_bytes: How much memory the process uses for the vectors of stores
            without a vector index. Zero: none.
        consistency: When a write returns, unless the call says so itself. See
            `Deliveries`.
        linger: How long a delivery waits for others, up to a `batch` of them.
        queued_records: How many records may be queued for delivery before writers wait.
        queued_bytes: How many bytes may be queued for delivery before writers wait.
        artifact_bytes: The maximum size of an artifact.
        copied_window: The fewest messages of a window of which readers leave a copy in
            the short tier. Zero: they leave none.
        filter_rows: The most rows of each store that one page of a listing checks with
            a filter. The page then ends early, and its cursor continues.
    """

    mark_life: timedelta = timedelta(hours=1)
    tombstone_life: timedelta = timedelta(days=30)
    cache_max_age: timedelta = timedelta(minutes=5)
    expired_grace: timedelta = timedelta(days=1)
    lease: timedelta = timedelta(seconds=30)
    sweep_every: timedelta = timedelta(minutes=5)
    deadline: timedelta = timedelta(seconds=10)
    advice: timedelta = timedelta(seconds=10)
    embedding: timedelta = timedelta(minutes=2)
    attempts: int = 16
    batch: int = 500
    page: int = 500
    search_cache_bytes: int = 256 * 2**20
    consistency: Literal["acknowledged", "replicated"] = "acknowledged"
    linger: timedelta = timedelta(milliseconds=20)
    queued_records: int = 2_000
    queued_bytes: int = 64 * 2**20
    artifact_bytes: int = 2**30
    copied_window: int = 128
    filter_rows: int = 10_000
