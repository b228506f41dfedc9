"""How an adapter makes itself known: an object of this type under the entry-point group
`memory.adapters`, named by its URL scheme.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from memory.domain.errors import ConfigError
from memory.ports.capabilities import Capabilities
from memory.ports.record import JsonValue
from memory.ports.store import Store

Build = Callable[[str, str, Mapping[str, JsonValue]], Store]


def built_by(module: str, store: str, *, for_code: Sequence[str] = ()) -> Build:
    """A `build` that loads the store's module, and with it the driver, only when a
    store is built: `store(url, name=…, **options)`.

    `for_code` names what else the constructor takes (thresholds, a client): no
    configuration can give it.
    """

    def build(name: str, url: str, options: Mapping[str, JsonValue]) -> Store:
        make = getattr(import_module(module), store)
        if refused := sorted(options.keys() & {"url", "name", *for_code}):
            raise ConfigError(f"store '{name}': {', '.join(map(repr, refused))} is no option of it")
        made: Store = make(url, name=name, **options)
        return made

    return build


@dataclass(frozen=True, slots=True)
class Adapter:
    """What config needs to build a store: its schemes, what it can do at best (readable
    without the driver), and how.

    `build(name, url, options)` returns an unopened store; it does no I/O, and refuses a
    wrong URL or option as `ConfigError`. `extra` is the extra of this distribution that
    brings the driver. One that is `planned` is announced and not written yet: opening a
    memory on it says so (B3).
    """

    schemes: tuple[str, ...]
    claims: Capabilities
    build: Build
    extra: str = ""
    planned: bool = False
    backup: str = ""
    """Module with `back_up(store, file, to)` and `restore(store, source, file,
    replace=)`; empty if the backend has tools of its own.
    """
