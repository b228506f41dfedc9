"""The registration of an adapter.

An adapter is an `Adapter` object in the entry-point group `memory.adapters`, named by
its URL scheme.
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
    """Return a `build` that imports the store's module when a store is built.

    The driver is imported then too. The constructor is called as `store(url, name=…,
    **options)`.

    Args:
        for_code: Further arguments of the constructor (thresholds, a client) that no
            configuration can set.
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
    """The schemes, the capabilities and the constructor of an adapter.

    The capabilities are the most that it can do, readable without the driver.
    `build(name, url, options)` returns an unopened store. It does no I/O, and raises
    `ConfigError` for a wrong URL or option. `extra` names the extra of this
    distribution that installs the driver.

    An adapter with `planned` is announced but not written yet. Opening a memory on it
    says so.
    """

    schemes: tuple[str, ...]
    claims: Capabilities
    build: Build
    extra: str = ""
    planned: bool = False
    backup: str = ""
    """The name of the module that backs up and restores the store.

    It has `back_up(store, file, to)` and `restore(store, source, file, replace=)`.
    Empty if the backend has tools of its own.
    """
