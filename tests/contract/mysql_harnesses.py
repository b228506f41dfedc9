"""The harnesses of the SQL adapter on MariaDB and MySQL, their claims pinned: one
server in a container, which the image decides on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import UUID

from memory.ports.capabilities import Capabilities
from memory.ports.collections import Collection
from memory.ports.record import JsonValue, Key
from memory.ports.store import Store
from tests.contract.served import HURRY, OneSchema
from tests.support import mysql_servers
from tests.support.mysql_servers import MySqlServer

DATABASE = "memory"


class MariaDb(OneSchema):
    """MariaDB as it comes. It is not filled up here: where a larger call finds no room
    for its roll-back the server ends itself.
    """

    name = "mariadb"
    urls = ("mysql://user:hunter2-cormorant@127.0.0.1:1/memory",)
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
        max_record_bytes=(16 * 2**20 - 65_536) * 3 // 4,  # of MariaDB's default max_allowed_packet
    )
    secrets = (mysql_servers.PASSWORD, quote(mysql_servers.PASSWORD, safe=""))
    hurry = HURRY

    def running(self) -> MySqlServer:
        return mysql_servers.container()

    def store(self, **options: Any) -> Store:
        from memory.adapters.sql.mysql.store import MySqlStore

        store: Store = MySqlStore(self.running().url(DATABASE, **options), name=self.name)
        return store

    async def tiny(self) -> Store:
        from memory.adapters.sql.mysql.store import MySqlStore
        from memory.adapters.sql.mysql.thresholds import Thresholds

        await self.make()
        small = Thresholds(
            partitions_known=1,
            partitions_forgotten=1,
            statements_kept=1,
            values_written_out=1,
            writes_shared=2,
            limits_written_out=1,
            listed=2,
            rows_at_once=2,
            numbers_at_once=1,
            ranked_at_once=1,
            audited_at_once=2,
            segment=2,
            postings=1,
            word_rows_at_once=2,
            words_told=20,  # of a record of more, each of 512 buckets is looked through
            waiting_taken_up=3,
            waiting_read=1,
            waiting_rounds=1,
            waiting_characters=60,
        )
        store: Store = MySqlStore(
            self.running().url(DATABASE, statement_cache_size=1), name=self.name, thresholds=small
        )
        return store

    async def begin(self) -> None:
        await self.running().fresh(DATABASE)

    def address(self, store: Store) -> tuple[str, Mapping[str, JsonValue]]:
        return self.running().url(DATABASE), {}

    async def emptied(self) -> None:
        await self.running().emptied(DATABASE)

    async def damage(self, store: Store, collection: Collection, key: Key) -> None:
        where, these = "WHERE tenant = %s AND id = %s", (key.tenant, UUID(key.id).bytes)
        changed = f'UPDATE memory_{collection.name} SET body = \'{{"not": "said"}}\' {where}'  # noqa: S608
        kept = f"SELECT body FROM memory_{collection.name} {where}"  # noqa: S608
        await self.running().run_sql(changed, *these, database=DATABASE)
        assert await self.running().run_sql(kept, *these, database=DATABASE) == [('{"not": "said"}',)]


class MySql(MariaDb):
    """The same on MySQL 8, whose default lets larger packets through."""

    name = "mysql"
    primary = "mariadb"
    claims = replace(MariaDb.claims, max_record_bytes=(64 * 2**20 - 65_536) * 3 // 4)
