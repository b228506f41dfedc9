"""How an adapter makes itself known: an object of this type under the entry-point group `memory.adapters`, named by its URL scheme."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from memory.ports.capabilities import Capabilities
from memory.ports.record import JsonValue
from memory.ports.store import Store


@dataclass(frozen=True, slots=True)
class Adapter:
    """What config needs to build a store: its schemes, what it can do at best (readable without the driver), and how.

    `build(name, url, options)` returns an unopened store; it does no I/O, and refuses a wrong URL or option as `ConfigError`.
    `extra` is the extra of this distribution that brings the driver.
    """

    schemes: tuple[str, ...]
    claims: Capabilities
    build: Callable[[str, str, Mapping[str, JsonValue]], Store]
    extra: str = ""
