"""The file adapter's harnesses: as everyone gets it, and without waiting for the disk."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

from memory.adapters.file.store import FileStore
from memory.adapters.file.thresholds import Thresholds
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from tests.contract.in_a_folder import InAFolder


class File(InAFolder):
    """A folder of files."""

    name = "file"
    urls = ("file:///no/such/folder",)
    exact_scores = True
    claims = Capabilities(
        durable=True,
        shared=True,
        conditional=True,
        atomic=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
    )
    options: ClassVar[Mapping[str, JsonValue]] = {}

    def _store(self) -> Store:
        return FileStore(f"file://{self.folder / 'data'}", name=self.name, **self.options)

    async def make(self) -> Store:
        return self._store()

    async def tiny(self) -> Store:
        small = Thresholds(
            writes_together=1,
            waited_for_together=1,
            waited_for_alone=0,
            bytes_apart=1,
            log_bytes=200,
            looks=0,
            questions=0,
        )
        return FileStore(
            f"file://{self.folder / 'data'}", name=self.name, thresholds=small, cache_bytes=0, **self.options
        )

    async def client(self, store: Store) -> Store:
        return self._store()

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return f"file://{self.folder / 'data'}", self.options

    def files(self, store: Store) -> Sequence[Path]:
        return [self.folder]

    async def restart(self, store: Store) -> Store:
        """Another process on what is in the folder; the old one says nothing more. One
        that is killed in earnest is in `test_file_killed.py`.
        """
        return self._store()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        """Flip a bit in the middle of the record's file, and of the version before it."""
        found = list((self.folder / "data").glob(f"*/*/{collection.name}/{key.id}.json*"))
        assert found
        for file in found:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 4
            file.write_bytes(content)


class FileUnsynced(File):
    """The same without waiting for the disk: a process that dies loses nothing, a
    machine may lose the last half minute.
    """

    name = "file_unsynced"
    primary = "file"
    claims = replace(File.claims, durable=False, loss_window=timedelta(seconds=35))
    options: ClassVar[Mapping[str, JsonValue]] = {"fsync": False}

    async def outlast_loss_window(self, store: Store) -> None:
        """No machine ends here."""

    async def restart(self, store: Store) -> Store:
        """The machine starts again: what it held may be lost, and here is not."""
        return _OnAnotherRun(f"file://{self.folder / 'data'}", name=self.name, **self.options)


_RUNS = itertools.count(1)


class _OnAnotherRun(FileStore):
    """The store as after the machine was started again."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._boot = next(_RUNS)

    @property
    def epoch(self) -> str:
        return f"{super().epoch}-again-{self._boot}"
