"""The PostgreSQL servers of the tests: one in a container, and one with pgvector from
the package `pgserver`. One each a test process.
"""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote, urlencode

from tests.support import quick_folders
from tests.support.servers import Server

if TYPE_CHECKING:
    import psutil

PASSWORD = "tests' own: p@ss/word%"  # noqa: S105
"""With characters that a URL must escape."""


class Postgres(Protocol):
    """A server that tests may kill and freeze."""

    @property
    def settings(self) -> dict[str, Any]:
        """What asyncpg connects with, to the database `postgres`."""
        ...

    def url(self, schema: str = "memory", **options: object) -> str: ...

    def kill(self) -> None:
        """It dies without a goodbye (SIGKILL). Its disk stays."""
        ...

    def revive(self) -> None: ...

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...


class InContainer(Server):
    """The official image."""

    def __init__(self, *more: str, small: tuple[str, int] | None = None) -> None:
        settings = ("max_connections=300", "shared_buffers=64MB", "jit=off", *more)

        def command(port: int) -> Sequence[str]:
            return [word for setting in (f"port={port}", *settings) for word in ("-c", setting)]

        super().__init__(
            "postgres",
            self._answers,
            command,
            environment={"POSTGRES_PASSWORD": PASSWORD},
            small=small,
            data=["/var/lib/postgresql/data"],
        )

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "host": "127.0.0.1",
            "port": self.port,
            "user": "postgres",
            "password": PASSWORD,
            "database": "postgres",
            "ssl": False,
        }

    def url(self, schema: str = "memory", **options: object) -> str:
        query = urlencode({"schema": schema, **options})
        return f"postgresql://postgres:{quote(PASSWORD, safe='')}@127.0.0.1:{self.port}/postgres?{query}"

    def _answers(self, port: int) -> None:
        with ThreadPoolExecutor(1) as apart:  # a loop may be running here
            apart.submit(lambda: asyncio.run(_answer(**{**self.settings, "port": port}))).result()


async def _answer(**settings: Any) -> None:
    import asyncpg

    connection = await asyncpg.connect(timeout=2, **settings)
    await connection.close(timeout=2)


class WithPgvector:
    """PostgreSQL 16 from the package `pgserver`, which brings pgvector: processes of
    this machine, reached through a socket in a folder.
    """

    def __init__(self) -> None:
        self._folder = quick_folders.new(otherwise=Path(tempfile.gettempdir()))
        self._folder.chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about where it keeps its lock
            from pgserver.postgres_server import get_server

        self._server = get_server(self._folder, cleanup_mode="delete")

    @property
    def settings(self) -> dict[str, Any]:
        info = self._server.get_postmaster_info()
        return {"host": str(info.socket_dir), "user": "postgres", "password": None, "database": "postgres"}

    def url(self, schema: str = "memory", **options: object) -> str:
        return f"postgresql://postgres@/postgres?{urlencode({'host': self.settings['host'], 'schema': schema, **options})}"

    def kill(self) -> None:
        import psutil

        psutil.wait_procs(self._each("kill"), timeout=30)

    def revive(self) -> None:
        self._server.ensure_postgres_running()

    def freeze(self) -> None:
        self._each("suspend")

    def thaw(self) -> None:
        self._each("resume")

    def _each(self, do: str) -> list[psutil.Process]:
        import psutil

        processes = self._processes()
        for process in processes:
            with suppress(
                psutil.NoSuchProcess
            ):  # those that serve a connection come and go, and end with the first
                getattr(process, do)()
        return processes

    def _processes(self) -> list[psutil.Process]:
        """The server's own, the parent first: it must not start new ones."""
        import psutil

        parent = psutil.Process(self._server.get_pid())
        return [parent, *parent.children(recursive=True)]


@cache
def container() -> InContainer:
    return InContainer()


@cache
def with_small_tables() -> InContainer:
    """A server of its own whose new tables stand on a small disk; its log does not, for
    without room for that PostgreSQL dies.
    """
    server = InContainer(small=("/small", 64))
    with ThreadPoolExecutor(1) as apart:
        apart.submit(lambda: asyncio.run(_tables_in(server, "/small/tables"))).result()
    return server


async def _tables_in(server: InContainer, folder: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(**server.settings)
    try:
        server.run("install", "-d", "-o", "postgres", folder)
        await connection.execute(f"CREATE TABLESPACE small LOCATION '{folder}'")
        await connection.execute("ALTER DATABASE postgres SET default_tablespace = small")
    finally:
        await connection.close()


@cache
def with_pgvector() -> WithPgvector:
    return WithPgvector()
