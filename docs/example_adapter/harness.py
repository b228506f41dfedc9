"""The harness of the example's store.

Run it with pytest --pyargs memory.ports.contract --memory-harness harness:OneFile
"""

import json
from collections.abc import Sequence
from pathlib import Path

from file_store import FileStore
from file_store import adapter as file_adapter

from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.harness import Harness
from memory.ports.record import Key
from memory.ports.store import Store


class OneFile(Harness):
    name = "one_file"
    claims = Capabilities(durable=True, conditional=True, atomic=True, filter=True, order=True, tenant_wide=True, fenced=True)

    adapter = file_adapter
    urls = ("one-file:///nowhere/store.json",)

    async def make(self) -> Store:
        return FileStore(self.folder / "store.json")

    async def restart(self, store: Store) -> Store:
        return FileStore(self.folder / "store.json")

    def files(self, store: Store) -> Sequence[Path]:
        return [self.folder / "store.json"]

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        file = self.folder / "store.json"
        held = json.loads(file.read_text())
        written = held["slots"][collection.name][json.dumps([key.tenant, key.id])]
        written[1] = written[1].replace("said", "sold", 1)
        file.write_text(json.dumps(held))
