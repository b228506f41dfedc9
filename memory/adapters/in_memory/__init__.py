"""Store that keeps records in memory, for tests and disposable data.

Its URL scheme is `memory`.
"""

from __future__ import annotations

from collections.abc import Mapping

from memory.adapters.in_memory.state import Snapshot, State
from memory.adapters.in_memory.store import InMemoryStore
from memory.domain.errors import ConfigError
from memory.ports.adapter import Adapter
from memory.ports.record import JsonValue

__all__ = ["InMemoryStore", "Snapshot", "State", "adapter"]


def _build(name: str, url: str, options: Mapping[str, JsonValue]) -> InMemoryStore:
    """Build a new, separate store from the URL `memory://`. It takes no options."""
    scheme, _, rest = url.partition(":")
    if scheme != "memory" or rest.strip("/"):
        raise ConfigError(f"store '{name}': an in-memory store has the URL 'memory://'; remove all after it")
    if options:
        raise ConfigError(
            f"store '{name}': an in-memory store takes no options; remove {', '.join(sorted(options))}"
        )
    return InMemoryStore(name)


adapter = Adapter(schemes=("memory",), claims=InMemoryStore.claims, build=_build)
