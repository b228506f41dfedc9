"""How the contract gets hold of the example's store: pytest --pyargs memory.ports.contract --memory-harness harness:OneFile"""

from file_store import FileStore

from memory.ports.capabilities import Capabilities
from memory.ports.contract.harness import Harness
from memory.ports.store import Store


class OneFile(Harness):
    name = "one_file"
    claims = Capabilities(durable=True, conditional=True, atomic=True, filter=True, order=True, tenant_wide=True)

    async def make(self) -> Store:
        return FileStore(self.folder / "store.json")

    async def restart(self, store: Store) -> Store:
        return FileStore(self.folder / "store.json")
