"""The harnesses of the SQL adapter on PostgreSQL, their claims pinned: a server in a
container, and one that has pgvector.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from memory.adapters.sql.naming import DEFAULT_PREFIX
from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from tests.contract.served import HURRY, ROOM, OneSchema
from tests.support import postgres_servers
from tests.support.postgres_servers import Postgres

_EMPTY = """DO $$ DECLARE name text; BEGIN
PERFORM pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'memory-tiers' AND pid <> pg_backend_pid();
FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{0}' AND tablename NOT IN ('{1}schema_version', '{1}collections')
LOOP EXECUTE 'DELETE FROM {0}.' || quote_ident(name); END LOOP; END $$"""


class Postgresql(OneSchema):
    """PostgreSQL as it comes, in a container."""

    name = "postgresql"
    urls = ("postgresql://user:hunter2-cormorant@127.0.0.1:1/memory",)
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
        fenced=True,
    )
    secrets = (postgres_servers.PASSWORD, quote(postgres_servers.PASSWORD, safe=""))
    hurry = HURRY
    schema, prefix = "memory", DEFAULT_PREFIX

    def running(self) -> Postgres:
        return postgres_servers.container()

    def store(self, *, thresholds: Any = None, **options: Any) -> Store:
        from memory.adapters.sql.postgresql.store import PostgresStore
        from memory.adapters.sql.postgresql.thresholds import THRESHOLDS

        url = self.running().url(**options)
        store: Store = PostgresStore(url, name=self.name, thresholds=thresholds or THRESHOLDS)
        return store

    async def tiny(self) -> Store:
        from memory.adapters.sql.postgresql.thresholds import Thresholds

        await self.make()
        small = Thresholds(
            partitions_known=1,
            partitions_forgotten=1,
            statements_kept=1,
            values_written_out=1,
            writes_shared=2,
            limits_written_out=1,
            rows_at_once=2,
            rows_in_one=3,
            rows_at_ends=1,
            bytes_at_once=20,
            deleted_at_once=1,
            embedded_at_once=1,
            audited_at_once=2,
            lexemes_asked=2,
        )
        return self.store(thresholds=small, statement_cache_size=1)

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return self.running().url(self.schema), {"prefix": self.prefix}

    async def emptied(self) -> None:
        await self._run(_EMPTY.format(self.schema, self.prefix))

    async def _run(self, statement: str, *values: object) -> str:
        """Behind every store's back. Returns what the server says of it."""
        import asyncpg

        connection = await asyncpg.connect(**self.running().settings)
        try:
            said: str = await connection.execute(statement, *values)
            return said
        finally:
            await connection.close()

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        changed = f'UPDATE {self.schema}.{self.prefix}{collection.name} SET body = \'{{"not": "said"}}\' WHERE tenant = $1 AND id = $2'  # noqa: S608
        assert await self._run(changed, key.tenant, key.id) == "UPDATE 1"

    async def make_with_limited_space(self) -> Store:
        from memory.adapters.sql.postgresql.store import PostgresStore

        server = await asyncio.to_thread(postgres_servers.with_small_tables)
        store: Store = PostgresStore(server.url(), name=self.name)
        await store.open(DECLARED)
        await store.close()
        server.cramp(ROOM)
        return store

    async def make_room(self, store: Store) -> None:
        postgres_servers.with_small_tables().make_room()


class PostgresqlWithVectors(Postgresql):
    """The server of the package `pgserver`, which brings pgvector. It is not filled up:
    the adapter's other server is.
    """

    make_with_limited_space = Harness.make_with_limited_space
    name = "postgresql_pgvector"
    primary = "postgresql"
    claims = replace(Postgresql.claims, semantic=True, max_vector_dims=16_000)

    def running(self) -> Postgres:
        return postgres_servers.with_pgvector()
