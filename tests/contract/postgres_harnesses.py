"""The harnesses of the SQL adapter on PostgreSQL, their claims pinned: a server in a container, and one that has pgvector."""

from __future__ import annotations

from typing import Any, ClassVar
from urllib.parse import quote

from memory.ports.capabilities import Capabilities
from memory.ports.collections import COLLECTIONS, Collection
from memory.ports.record import Key
from memory.ports.store import Store
from tests.contract.served import Served
from tests.support import postgres_servers
from tests.support.postgres_servers import Postgres

_EMPTY = """DO $$ DECLARE name text; BEGIN
PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'memory-tiers' AND pid <> pg_backend_pid();
FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'memory' AND tablename NOT IN ('memory_schema_version', 'memory_collections')
LOOP EXECUTE 'DELETE FROM memory.' || quote_ident(name); END LOOP; END $$"""


class Postgresql(Served):
    """One server a test process. The first store makes the schema; the others find it emptied, because making it takes longer than most tests."""

    name = "postgresql"
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
        tenant_statistics=True,
    )
    secrets = (postgres_servers.PASSWORD, quote(postgres_servers.PASSWORD, safe=""))
    _made: ClassVar[set[str]] = set()

    def server(self) -> Postgres:
        return postgres_servers.container()

    def running(self) -> Postgres:
        return self.server()

    def _store(self, **options: Any) -> Store:
        from memory.adapters.sql.postgresql.store import PostgresStore

        store: Store = PostgresStore(self.server().url(**options), name=self.name)
        return store

    async def make(self) -> Store:
        if self.name in self._made:
            await self._run(_EMPTY)
        else:
            store = self._store()
            await store.open(COLLECTIONS)
            await store.close()
            self._made.add(self.name)
        return self._store()

    async def _run(self, statement: str, *values: object) -> str:
        """Behind every store's back. Returns what the server says of it."""
        import asyncpg

        connection = await asyncpg.connect(**self.server().settings)
        try:
            said: str = await connection.execute(statement, *values)
            return said
        finally:
            await connection.close()

    async def client(self, store: Store) -> Store:
        return self._store()

    async def hurried(self, store: Store) -> Store:
        return self._store(command_timeout=1, connect_timeout=1, pool_timeout=1)

    async def spoil(self, store: Store, collection: Collection, key: Key) -> None:
        changed = f'UPDATE memory.{collection.name} SET body = \'{{"not": "said"}}\' WHERE tenant = $1 AND id = $2'  # noqa: S608
        assert await self._run(changed, key.tenant, key.id) == "UPDATE 1"

    async def restart(self, store: Store) -> Store:
        self.server().kill()
        self.server().revive()
        return self._store()


class PostgresqlWithVectors(Postgresql):
    """The server of the package `pgserver`, which brings pgvector."""

    name = "postgresql_pgvector"
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
        max_vector_dims=16_000,
    )

    def server(self) -> Postgres:
        return postgres_servers.with_pgvector()
