"""Where the adapter goes on in another step. What is answered does not depend on it,
and any store reads what one with others stored: tests make all of it tiny. Each is at
least 1, unless it says that 0 is something.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Beside these `FileConfig.cache_bytes`, which is an option."""

    writes_together: int = 64
    """How many calls share a commit at most: the first of them waits for the last."""
    waited_for_together: int = 16
    waited_for_alone: int = 3
    """So many files are waited for together: a disk keeps several in the time of one.
    So few are not worth the threads.
    """
    bytes_apart: int = 64 * 2**10
    """A field of so many bytes has a file of its own: as base64 in the record's each
    KiB costs some 8 microseconds, a file waits for the disk.
    """
    log_bytes: int = 4 * 2**20
    """A larger log of changes is begun anew, and everyone looks at everything again."""
    looks: int = 4
    questions: int = 3
    """How often keys are looked up, and a question is asked, while others may write:
    then with the lock, so that they wait.
    """


THRESHOLDS = Thresholds()
