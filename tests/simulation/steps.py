"""The steps that the engine names, read from its source, and the operations that take them: what focus seeds aim at."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import memory.orchestrator
from tests.simulation.workload import Kind

_NAMED = re.compile(r"""(?:\bstep|\bwrite|\bwrite_one)\(\s*"([a-z_]+\.[a-z_]+)\"""")

_FAVOURED: dict[str, tuple[Kind, ...]] = {
    "move": (Kind.MOVE, Kind.UPDATE),
    "owed": (Kind.UPDATE, Kind.SWEEP, Kind.DELETE),
    "replica": (Kind.WRITE, Kind.UPDATE),
    "version": (Kind.UPDATE, Kind.DELETE, Kind.KNOWN_AT),
    "delete": (Kind.DELETE, Kind.MOVE),
    "erase": (Kind.DELETE_SCOPE, Kind.WRITE),
    "relation": (Kind.DELETE,),
    "cache": (Kind.GET, Kind.UPDATE),
    "write": (Kind.WRITE, Kind.KEYED, Kind.BATCH),
    "update": (Kind.UPDATE,),
    "promote": (Kind.PROMOTE, Kind.PROMOTE_AWAY),
    "compact": (Kind.COMPACT, Kind.COMPACT_AWAY),
    "sweep": (Kind.SWEEP, Kind.MOVE),
    "read": (Kind.GET, Kind.RETRIEVE),
    "search": (Kind.SEARCH,),
    "key": (Kind.KEYED,),
}


@cache
def named_steps() -> tuple[str, ...]:
    """Every step named anywhere in the engine, in order."""
    folder = Path(memory.orchestrator.__file__).parent
    found = {name for path in sorted(folder.glob("*.py")) for name in _NAMED.findall(path.read_text())}
    return tuple(sorted(found))


def favoured(step: str) -> tuple[Kind, ...]:
    """The operations that are likely to take this step."""
    return _FAVOURED.get(step.partition(".")[0], ())
