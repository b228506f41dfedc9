"""Several stores in one database on a server, each with a prefix of its own, and
databases from before there were prefixes.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from memory import Memory
from memory.adapters.sql.naming import BARE_FORM, LONGEST_PREFIX, TableNames
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection
from memory.ports.contract.cells import cells
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.support import apply_all, fetch_record, hit_ids, id_of, put, query_ids, record
from memory.ports.query import Everywhere
from memory.ports.store import Store
from tests.support import mysql_servers, postgres_servers
from tests.support.backends import BACKENDS, marks_of

MORE = Collection("more")
_places = itertools.count()


class Place:
    """An empty database, or a schema in one."""

    def __init__(self) -> None:
        self.name = f"prefixes_{next(_places)}"

    def url(self, **options: object) -> str:
        raise NotImplementedError

    async def raw(self, sql: str) -> Sequence[Any]:
        raise NotImplementedError

    def store(self, **options: object) -> Store:
        raise NotImplementedError

    async def tables(self) -> list[str]:
        """The names of all tables."""
        raise NotImplementedError

    async def rename(self, old: str, new: str) -> None:
        raise NotImplementedError

    async def made_before_prefixes(self) -> None:
        """Give the tables of the default prefix the names that they had before."""
        names = ("partitions", "quarantine", "schema_version", "collections")
        for table in await self.tables():
            bare = table.removeprefix("memory_")
            if bare == "record_numbers":
                await self.rename(table, "memory_numbers")
            elif bare not in names and not bare.startswith("words_"):
                await self.rename(table, bare)
        await self.raw(
            f"UPDATE {self.qualified('memory_schema_version')} SET version_num = '{BARE_FORM}' WHERE version_num NOT LIKE 'format %'"  # noqa: S608
        )

    def qualified(self, table: str) -> str:
        return table


class MySqlPlace(Place):
    def url(self, **options: object) -> str:
        return mysql_servers.container().url(self.name, **options)

    async def raw(self, sql: str) -> Sequence[Any]:
        return await mysql_servers.container().run_sql(sql, database=self.name)

    def store(self, **options: object) -> Store:
        from memory.adapters.sql.mysql.store import MySqlStore

        store: Store = MySqlStore(self.url(**options))
        return store

    async def tables(self) -> list[str]:
        return sorted(name for (name,) in await self.raw("SHOW TABLES"))

    async def rename(self, old: str, new: str) -> None:
        await self.raw(f"RENAME TABLE {old} TO {new}")


class PostgresPlace(Place):
    def url(self, **options: object) -> str:
        return postgres_servers.container().url(schema=self.name, **options)

    async def raw(self, sql: str) -> Sequence[Any]:
        connection: Any = await asyncpg.connect(timeout=10, **postgres_servers.container().settings)
        try:
            rows: Sequence[Any] = await connection.fetch(sql)
            return rows
        finally:
            await connection.close()

    def store(self, **options: object) -> Store:
        from memory.adapters.sql.postgresql.store import PostgresStore

        store: Store = PostgresStore(self.url(**options))
        return store

    async def tables(self) -> list[str]:
        return sorted(
            name
            for (name,) in await self.raw(f"SELECT tablename FROM pg_tables WHERE schemaname = '{self.name}'")  # noqa: S608
        )

    async def rename(self, old: str, new: str) -> None:
        await self.raw(f"ALTER TABLE {self.qualified(old)} RENAME TO {new}")
        indexes = f"SELECT indexname FROM pg_indexes WHERE schemaname = '{self.name}' AND tablename = '{new}'"  # noqa: S608
        for (index,) in await self.raw(indexes):
            await self.raw(f"ALTER INDEX {self.qualified(index)} RENAME TO {index.removeprefix('memory_')}")

    def qualified(self, table: str) -> str:
        return f"{self.name}.{table}"


MYSQL = "mysql" if BACKENDS["mysql"].missing() is None else "mariadb"


@pytest_asyncio.fixture(
    params=[
        pytest.param(MySqlPlace, marks=marks_of(MYSQL), id=MYSQL),
        pytest.param(PostgresPlace, marks=marks_of("postgresql")),
    ]
)
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    made: Place = request.param()
    kind = "DATABASE" if isinstance(made, MySqlPlace) else "SCHEMA"
    if kind == "DATABASE":
        await mysql_servers.container().fresh(made.name)
    else:
        await made.raw(f"CREATE SCHEMA {made.name}")
    yield made
    await made.raw(f"DROP {kind} {made.name}{' CASCADE' if kind == 'SCHEMA' else ''}")


async def _opened(store: Store, *collections: Collection) -> Store:
    await store.open((SAMPLES, *collections))
    return store


async def test_stores_with_different_prefixes_do_not_see_each_other(place: Place) -> None:
    stores = [
        await _opened(place.store(**options))
        for options in ({}, {"prefix": "a_"}, {"prefix": "z" * LONGEST_PREFIX})
    ]
    for n, store in enumerate(stores):
        await apply_all(
            store,
            put(record(1, texts={"content": f"lantern{n}"})),
            put(record(10 + n, texts={"content": "lantern"})),
        )
    for n, store in enumerate(stores):
        assert sorted(await query_ids(store)) == [id_of(1), id_of(10 + n)]
        assert (await fetch_record(store)).texts["content"] == f"lantern{n}"
        assert await hit_ids(store, "lantern") == {id_of(10 + n)}
        assert len((await store.partitions(Everywhere())).partitions) == 1
        audit, health = await store.audit(), await store.check()
        assert (audit.checked, audit.problems, health.ok) == (2, (), True)
        await store.close()


async def test_a_database_from_before_prefixes_is_used_as_it_is(place: Place) -> None:
    store = await _opened(place.store())
    await apply_all(store, put(record(1, texts={"content": "lantern"})))
    await store.close()
    await place.made_before_prefixes()
    before = await place.tables()
    assert {"samples", "memory_samples"} & set(before) == {"samples"}
    again, other = await _opened(place.store(), MORE), await _opened(place.store(prefix="a_"))
    assert [await query_ids(store) for store in (again, other)] == [[id_of(1)], []]
    assert await hit_ids(again, "lantern") == {id_of(1)}
    await apply_all(again, put(record(2, texts={"content": "candle"})), put(record(3), collection=MORE))
    await apply_all(other, put(record(4)))
    assert sorted(await query_ids(again)) == [id_of(1), id_of(2)]
    assert await query_ids(again, collection=MORE) == [id_of(3)]
    assert [name for name in await place.tables() if not name.startswith("a_")] == sorted([*before, "more"])
    audit, health = await again.audit(), await again.check()
    assert (audit.problems, health.ok) == ((), True)
    for each in (again, other):
        await each.close()


@pytest.mark.parametrize(
    ("first", "second", "table"),
    [
        ({"prefix": "a_b_"}, {"prefix": "a_"}, "a_b_samples"),
        ({"prefix": "a_"}, {"prefix": "a_b_"}, "a_b_samples"),
    ],
)
async def test_a_table_of_a_store_with_another_prefix_is_refused_before_anything_is_made(
    place: Place, first: dict[str, str], second: dict[str, str], table: str
) -> None:
    collections = {
        "a_b_": SAMPLES,
        "a_": Collection(
            "b_samples", SAMPLES.fields, SAMPLES.texts, SAMPLES.vector, SAMPLES.indexes, SAMPLES.orders
        ),
    }
    stands = place.store(**first)
    await stands.open((collections[first["prefix"]],))
    await stands.close()
    before = await place.tables()
    with pytest.raises(
        ConfigError,
        match=f"has a table '{table}' of the store with the prefix '{first['prefix']}'; nothing was created",
    ):
        await place.store(**second).open((collections[second["prefix"]],))
    assert await place.tables() == before


async def test_a_memory_lives_beside_tables_of_an_application(place: Place) -> None:
    theirs = [
        f"CREATE TABLE {place.qualified(name)} (id INT PRIMARY KEY, theme VARCHAR(20))"
        for name in ("settings", "entries")
    ]
    for sql in theirs:
        await place.raw(sql)
    async with Memory(place.url()) as memory:
        await memory.write("Ada likes tea", scope="user:ada")
        assert [entry.content for entry in await memory.retrieve("user:ada")] == ["Ada likes tea"]
    assert {name for name in await place.tables() if not name.startswith("memory_")} == {
        "settings",
        "entries",
    }
    assert [
        len(await place.raw(f"SELECT * FROM {place.qualified(name)}"))  # noqa: S608
        for name in ("settings", "entries")
    ] == [0, 0]
    await place.raw(f"CREATE TABLE {place.qualified('b_sagas')} (id INT)")
    await place.raw(f"CREATE TABLE {place.qualified('b_entries')} (id INT)")
    before = await place.tables()
    with pytest.raises(
        ConfigError,
        match=r"has a table 'b_entries' that is not of this program.*nothing was created: use another prefix",
    ):
        async with Memory(place.url(prefix="b_")):
            pass
    assert await place.tables() == before
    await place.raw(
        f"CREATE VIEW {place.qualified('c_entries')} AS SELECT id FROM {place.qualified('settings')}"  # noqa: S608
    )
    before = await place.tables()
    with pytest.raises(
        ConfigError,
        match=r"has a view 'c_entries' that is not of this program; nothing was created: use another prefix",
    ):
        async with Memory(place.url(prefix="c_")):
            pass
    assert await place.tables() == before


@cells(
    "prefix",
    ["", "Memory_", "1_", "a-b", "a`b", 'a"b', "größe_", "x" * (LONGEST_PREFIX + 1), "a_\n"],
    shared=True,
)
@cells("url", ["mysql://localhost/app", "postgresql://localhost/app"], shared=True)
def test_a_prefix_that_no_table_can_have_is_refused(url: str, prefix: str) -> None:
    from memory.adapters.sql.mysql import config as mysql
    from memory.adapters.sql.postgresql import config as postgresql

    parse: Any = mysql.parse if url.startswith("mysql") else postgresql.parse
    with pytest.raises(ConfigError, match=f"prefix is 1 to {LONGEST_PREFIX} lower-case"):
        parse("store", url, {"prefix": prefix})


@cells(
    "name",
    [
        "partitions",
        "quarantine",
        "collections",
        "schema_version",
        "record_numbers",
        "words_notes",
        "memory_notes",
    ],
    shared=True,
)
def test_a_collection_with_the_name_of_an_own_table_is_refused(name: str) -> None:
    assert TableNames().is_taken(name)
    assert TableNames(form=BARE_FORM).is_taken(name) == name.startswith("memory_")
    assert not TableNames().is_taken(f"my_{name}")
