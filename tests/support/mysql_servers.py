"""The MySQL or MariaDB server of the tests, in a container: one each a test process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from tests.support.servers import IMAGES, Server

PASSWORD = "tests own: p@ss/word%"  # noqa: S105
"""With characters that a URL must escape."""

_DROP = "DROP DATABASE IF EXISTS `{0}`"
_CREATE = "CREATE DATABASE IF NOT EXISTS `{0}` CHARACTER SET utf8mb4"
_ACCESS_DENIED = 1045
_KEPT = ("memory_schema_version", "memory_collections", "memory_record_numbers")


@cache
def product() -> str:
    """What the image is: 'MariaDB' or 'MySQL'. Its server's binary says so."""
    import contextlib

    import docker  # type: ignore[import-untyped,unused-ignore]

    with contextlib.closing(docker.from_env(timeout=60)) as client:
        ask = ["-c", "mariadbd --version 2>/dev/null || mysqld --version"]
        said = client.containers.run(IMAGES["mysql"].name, ask, entrypoint="sh", remove=True)
    return "MariaDB" if b"MariaDB" in said else "MySQL"


class MySqlServer(Server):
    """The official image, with these settings beside its own."""

    def __init__(
        self, *settings: str, folder: Path | None = None, small: tuple[str, int] | None = None
    ) -> None:
        given, environment = (
            ("--max-connections=300", "--loose-mysqlx=OFF", *settings),
            {"MYSQL_ROOT_PASSWORD": PASSWORD},
        )
        super().__init__(
            "mysql",
            self._answers,
            lambda port: (f"--port={port}", *given),
            environment=environment,
            folder=folder,
            small=small,
            data=["/var/lib/mysql", "/var/lib/mysql-data"],
        )

    def url(self, database: str = "memory", **options: object) -> str:
        query = urlencode(options)
        return f"mysql://root:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/{database}{'?' if query else ''}{query}"

    def _answers(self, port: int) -> None:
        with ThreadPoolExecutor(1) as apart:  # a loop may be running here
            apart.submit(lambda: asyncio.run(_answer(port))).result()

    async def run_sql(self, sql: str, *values: object, database: str | None = None) -> Sequence[Any]:
        """A statement as any other program sends it; its rows."""
        connection = await _connect(self.port, database)
        try:
            cursor = connection.cursor()
            await cursor.execute(sql, values or None)
            return list(await cursor.fetchall())
        finally:
            connection.close()

    async def fresh(self, database: str) -> None:
        """An empty database of this name."""
        await self.run_sql(_DROP.format(database))
        await self.run_sql(_CREATE.format(database))

    async def drop(self, database: str) -> None:
        await self.run_sql(_DROP.format(database))

    async def emptied(self, database: str) -> None:
        """Nothing in the tables; whoever was left behind in them is gone."""
        await _end_sessions(self, database)
        connection = await _connect(self.port, database)
        try:
            cursor = connection.cursor()
            await cursor.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (database,)
            )
            for (name,) in await cursor.fetchall():
                if name not in _KEPT:
                    await cursor.execute(f"DELETE FROM `{name}`")  # noqa: S608 - TRUNCATE is slow: it makes the table anew
        finally:
            connection.close()


async def _end_sessions(server: MySqlServer, database: str) -> None:
    import asyncmy

    for (session,) in await server.run_sql(
        "SELECT id FROM information_schema.processlist WHERE db = %s", database
    ):
        try:
            await server.run_sql(f"KILL {int(session)}")
        except asyncmy.errors.MySQLError as exc:
            if exc.args[0] != 1094:  # it has ended by itself
                raise


async def _connect(port: int, database: str | None = None, password: str = PASSWORD) -> Any:
    import asyncmy

    return await asyncmy.connect(
        host="127.0.0.1",
        port=port,
        user="root",
        password=password,
        database=database,
        autocommit=True,
        connect_timeout=5,
        read_timeout=60,
    )


async def _answer(port: int) -> None:
    """Raises unless root is let in with the password. An image may have a second root,
    for this host and with none: then the one for every host is left.
    """
    import asyncmy

    try:
        connection = await _connect(port)
    except asyncmy.errors.OperationalError as exc:
        if exc.args[0] != _ACCESS_DENIED:
            raise
        connection = await _connect(port, password="")
        await connection.cursor().execute("DROP USER 'root'@'127.0.0.1'")
    connection.close()


@cache
def container() -> MySqlServer:
    return MySqlServer()


@cache
def with_small_disk() -> MySqlServer:
    """A server of its own with a small disk, for databases."""
    return MySqlServer(small=("/small", 64))


async def on_small_disk(database: str) -> MySqlServer:
    """An empty database on that disk. MariaDB takes a link for a database's folder,
    MySQL 8 does not.
    """
    server = await asyncio.to_thread(with_small_disk)
    await server.drop(database)
    server.make_room()
    ((data,),) = await server.run_sql("SELECT @@datadir")
    server.run("install", "-d", "-o", "mysql", f"/small/{database}")
    server.run("ln", "-sfn", f"/small/{database}", f"{data}{database}")
    await server.run_sql(f"ALTER DATABASE `{database}` CHARACTER SET utf8mb4")
    return server
