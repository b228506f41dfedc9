"""What the harnesses of stores in a folder share: a folder of the test's own, which can
be a small disk.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from memory.ports.contract.harness import Harness
from memory.ports.store import Store
from tests.support import quick_folders, small_disk


class InAFolder(Harness):
    """A store in a folder, on a disk in memory where there is one."""

    megabytes: ClassVar[int] = 3
    """Of the small disk, what the store keeps free included."""

    def __init__(self, folder: Path) -> None:
        """Not in the test's folder: that goes with the test, and a store that is lent
        outlives it.
        """

    @cached_property
    def folder(self) -> Path:  # type: ignore[override]  # made for whom it serves: a test that is lent a store needs none
        return quick_folders.new(otherwise=Path(tempfile.gettempdir()))

    @classmethod
    def can_be_cramped(cls) -> bool:
        return small_disk.permitted()

    async def make_with_limited_space(self) -> Store:
        small_disk.mount(self.folder, self.megabytes)
        return await self.make()

    async def make_room(self, store: Store) -> None:
        small_disk.grow(self.folder, self.megabytes + 100)

    async def dispose(self, store: Store) -> None:
        await store.close()
        small_disk.unmount(self.folder)
        shutil.rmtree(self.folder, ignore_errors=True)  # what a restart left open may still write
