"""Where a month runs: every placing of the tests, with who may share it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.placings import MONTHS, Placing

UNSHARED = frozenset({"in_memory", "qdrant_edge"})
RESUMABLE = frozenset({"sqlite", "file", "qdrant_edge"})


@dataclass(frozen=True)
class Topology:
    """A placing as the month takes it. Maintenance runs when the month says, not by itself."""

    placing: Placing

    @property
    def name(self) -> str:
        return self.placing.name

    @property
    def shared(self) -> bool:
        """Whether several memories may be open on it at once, in this process and in others."""
        return not UNSHARED & set(self.placing.backends)

    @property
    def reopens(self) -> bool:
        """Whether it keeps what it held when it is closed."""
        return "in_memory" not in self.placing.backends

    @property
    def resumable(self) -> bool:
        """Whether all of it is in the folder of the run."""
        return set(self.placing.backends) <= RESUMABLE

    def config(self, folder: Path) -> dict[str, Any]:
        return self.placing.config(folder) | {"durations": {"sweep_every": 0}}


TOPOLOGIES = {placing.name: Topology(placing) for placing in MONTHS}
