"""Backup and restore of a memory that is one SQLite file."""

from __future__ import annotations

import asyncio
from importlib import import_module
from os import PathLike
from pathlib import Path
from typing import Any, Protocol, cast

from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.store_reports import Backup, RestoreReport
from memory.facade.config.settings import MemoryConfig
from memory.facade.config.values import scheme_of
from memory.facade.runtime.build import adapter_for
from memory.facade.runtime.store_paths import path_of
from memory.ports.local_paths import absolute_path


class _Tools(Protocol):
    """The functions of an adapter's backup module."""

    def back_up(self, store: str, file: Path, to: Path) -> int: ...

    def restore(self, store: str, source: Path, file: Path, *, replace: bool) -> Path | None: ...


async def back_up(config: MemoryConfig, file: str | PathLike[str]) -> Backup:
    """Copy the memory's file to a new file. Other processes may use it meanwhile."""
    store, path, tools = _single_file(config)
    to = _path("file", file)
    return Backup(str(to), await asyncio.to_thread(tools.back_up, store, path, to))


async def restore(config: MemoryConfig, file: str | PathLike[str], *, replace: bool = False) -> RestoreReport:
    """Replace the memory's file with a backup. No process may have the memory open."""
    store, path, tools = _single_file(config)
    source = _path("file", file)
    config.prepare()
    kept = await asyncio.to_thread(tools.restore, store, source, path, replace=replace)
    return RestoreReport(str(path), None if kept is None else str(kept))


def _path(field: str, given: Any) -> Path:
    if not isinstance(given, str | PathLike) or not str(given).strip():
        raise InvalidInput(field, "must be the path of a file")
    return absolute_path(given)


def _single_file(config: MemoryConfig) -> tuple[str, Path, _Tools]:
    """Return the name and file of the memory's only store, and its backup tools."""
    stores = config.stores_in_use()
    tools = adapter_for(scheme_of(stores[0].url) or "", stores[0].name).backup
    path = path_of(stores[0]) if tools else None
    if len(stores) > 1 or path is None:
        kinds = ", ".join(f"'{store.name}' ({scheme_of(store.url)})" for store in stores)
        raise ConfigError(
            f"backup and restore copy a memory in one SQLite file, and this one uses {kinds}."
            " docs/backends.md, 'Backups', names the tool for each"
        )
    return stores[0].name, path, cast("_Tools", import_module(tools))
