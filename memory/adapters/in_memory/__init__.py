"""A store in memory, under the scheme `memory`: for tests, and for memory that may be
forgotten.
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
    """A store of its own each time. The URL is `memory://` and nothing more; there are
    no options.
    """
    scheme, _, rest = url.partition(":")
    if scheme != "memory" or rest.strip("/"):
        raise ConfigError(f"store '{name}': a store in memory has the URL 'memory://' and nothing after it")
    if options:
        raise ConfigError(
            f"store '{name}': a store in memory takes no options; remove {', '.join(sorted(options))}"
        )
    return InMemoryStore(name)


adapter = Adapter(schemes=("memory",), claims=InMemoryStore.claims, build=_build)
