"""A third party's harness, as the documentation shows it: one file, outside the library
and outside this checkout's tests.
"""

from memory.adapters.in_memory import InMemoryStore
from memory.ports.capabilities import Capabilities
from memory.ports.contract.harness import Harness
from memory.ports.store import Store


class Mine(Harness):
    name = "mine"
    claims = Capabilities(
        conditional=True,
        atomic=True,
        grouped=True,
        filter=True,
        order=True,
        tenant_wide=True,
        lexical=True,
        semantic=True,
        tenant_statistics=True,
        fenced=True,
    )

    async def make(self) -> Store:
        return InMemoryStore("mine")

    async def restart(self, store: Store) -> Store:
        assert isinstance(store, InMemoryStore)
        store.restart(keep=False)
        return store


class Lying(Mine):
    """Claims what it has not."""

    name = "lying"
    claims = Capabilities(durable=True)
