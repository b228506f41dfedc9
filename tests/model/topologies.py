"""Where a run takes place: every placing of the tests, with who may share it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.model.rules import PROMOTION, QUOTAS, RETENTION
from tests.support import quick_folders
from tests.support.placings import ORDINARY, Placing, forget

UNSHARED = frozenset({"in_memory", "qdrant_edge"})
READABLE = frozenset({"sqlite", "file"})
RESUMABLE = frozenset({"sqlite", "file", "qdrant_edge"})


@dataclass(frozen=True)
class Topology:
    """A placing as the model test takes it. Maintenance runs when the run says, not by
    itself.
    """

    placing: Placing

    @property
    def name(self) -> str:
        return self.placing.name

    @property
    def shared(self) -> bool:
        """Whether several memories may be open on it at once, in this process and in
        others.
        """
        return not UNSHARED & set(self.placing.backends)

    @property
    def reopens(self) -> bool:
        """Whether it keeps what it held when it is closed."""
        return "in_memory" not in self.placing.backends

    @property
    def resumable(self) -> bool:
        """Whether all of it is in the folder of the run."""
        return set(self.placing.backends) <= RESUMABLE

    @property
    def readable(self) -> bool:
        """Whether what it keeps lies in files that say what is in them."""
        return set(self.placing.backends) <= READABLE

    def config(self, folder: Path) -> dict[str, Any]:
        return self.placing.config(folder) | {
            "durations": {"sweep_every": 0, "lease": "1ms"},
            "promotion": PROMOTION,
            "retention": RETENTION,
            "quotas": QUOTAS,
        }


TOPOLOGIES = {placing.name: Topology(placing) for placing in ORDINARY}


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one run, on a disk in memory where there is one: how long a disk
    takes is not what is judged.
    """
    folder = quick_folders.new(otherwise=Path(tempfile.gettempdir()))
    try:
        yield folder
    finally:
        remove(folder)


def remove(folder: Path) -> None:
    """With what the stores keep elsewhere."""
    forget(folder)
    shutil.rmtree(folder, ignore_errors=True)
