"""Batch sizes of the adapter.

Results do not depend on them, and stores with different ones can share data. Tests make
all of them tiny. Each is at least 1, unless its text allows 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits besides the option `FileConfig.cache_bytes`."""

    writes_together: int = 64
    """Most calls that share a commit. The first of them waits for the last."""
    waited_for_together: int = 16
    waited_for_alone: int = 3
    """Files that are synced concurrently, and files that are too few for it.

    A disk syncs several in the time of one.
    """
    bytes_apart: int = 64 * 2**10
    """Size from which a bytes field has a file of its own.

    In the record, base64 takes about 8 microseconds per KiB; a file waits for the disk.
    """
    log_bytes: int = 4 * 2**20
    """Size after which the log starts again, so that everything is read again."""
    looks: int = 4
    questions: int = 3
    """Attempts of reads by key, and of queries, while others may write.

    After that they hold the lock, so that others wait.
    """


THRESHOLDS = Thresholds()
