"""The backends that tests run on: which there are, how docs/backends.md shows them, and
why one cannot run on this machine.

A test says what it runs on with `@pytest.mark.backend("sqlite")`, or takes a parameter
from `every_backend()`, which carries the mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from memory.ports.contract.harness import Harness
from tests.support import mysql_servers, servers


def _always() -> str | None:
    return None


@cache
def _not_installed(module: str, package: str) -> str | None:
    return None if find_spec(module) else f"the package '{package}' is not installed"


def _no_mysql(product: str) -> str | None:
    """Both go by one protocol and one image name; which of them an image is, its server
    says.
    """
    reason = _not_installed("asyncmy", "asyncmy") or servers.missing("mysql")
    if reason is not None:
        return reason
    found = mysql_servers.product()
    return None if found == product else f"the image is {found} (name one of {product} in MEMORY_MYSQL_IMAGE)"


@dataclass(frozen=True)
class Backend:
    """One backend. `missing()` says in a few words why it cannot run here, or None;
    `url(folder)` opens one that is the test's own.

    One without `url` is tested by its contract and its own tests alone. `shown` and
    `engine` are for the table of docs/backends.md: the URL as people write it, and what
    the tests run on. What has no `shown` is no store.
    """

    name: str
    url: Callable[[Path], str] | None = None
    missing: Callable[[], str | None] = _always
    needs_server: bool = False
    shown: str = ""
    engine: str = ""


def _on_server(name: str, shown: str, image: str, package: str = "") -> Backend:
    """A backend on a server's image, whose driver may be a package."""

    def missing() -> str | None:
        return (package and _not_installed(package, package)) or servers.missing(image)

    return Backend(name, missing=missing, needs_server=True, shown=shown, engine=image)


BACKENDS: dict[str, Backend] = {
    b.name: b
    for b in (
        Backend(
            "sqlite",
            url=lambda folder: f"sqlite:///{folder / 'memory.db'}",
            shown="`sqlite:///memory.db`",
            engine="SQLite of this Python",
        ),
        Backend("in_memory", url=lambda _folder: "memory://", shown="`memory://`", engine="nothing else"),
        Backend(
            "file",
            url=lambda folder: f"file://{folder / 'data'}",
            shown="`file:///folder`",
            engine="the disk",
        ),
        Backend("file_unsynced", shown="`file:///folder?fsync=false`", engine="the disk"),
        _on_server("postgresql", "`postgresql://…`", "postgres", "asyncpg"),
        Backend(
            "postgresql_pgvector",
            missing=lambda: _not_installed("asyncpg", "asyncpg") or _not_installed("pgserver", "pgserver"),
            shown="`postgresql://…` with pgvector",
            engine="PostgreSQL 16 of the package `pgserver`",
        ),
        Backend(
            "mariadb",
            missing=lambda: _no_mysql("MariaDB"),
            needs_server=True,
            shown="`mysql://…` on MariaDB",
            engine="MariaDB 10.11, as `mysql:8` here",
        ),
        Backend(
            "mysql",
            missing=lambda: _no_mysql("MySQL"),
            needs_server=True,
            shown="`mysql://…` on MySQL 8",
            engine="MySQL 8: the image here is MariaDB's",
        ),
        _on_server("mongo", "`mongodb://…`, one server", "mongo", "pymongo"),
        _on_server("mongo_replica_set", "`mongodb://…`, a replica set", "mongo", "pymongo"),
        _on_server("redis", "`redis://…`, appendfsync always", "redis"),
        _on_server("redis_volatile", "`redis://…` as most run it", "redis"),
        _on_server("redis_cluster", "`redis+cluster://…`", "redis"),
        Backend(
            "qdrant_edge",
            missing=lambda: _not_installed("qdrant_edge", "qdrant-edge-py"),
            shown="`qdrant+edge:///folder`",
            engine="Qdrant Edge 0.9, in process",
        ),
        Backend(
            "qdrant_local",
            missing=lambda: _not_installed("qdrant_client", "qdrant-client"),
            shown="`qdrant://:memory:`",
            engine="local mode of qdrant-client, for tests",
        ),
        _on_server("qdrant_server", "`qdrant://…`", "qdrant"),
        Backend("image", missing=servers.no_base, needs_server=True),  # the worker's, which runs as a server
    )
}


def every_backend() -> Iterable[Any]:
    """Parameters, one a backend, each marked with its name; a backend that this machine
    lacks is skipped and says why.
    """
    for backend in BACKENDS.values():
        if backend.url is not None:
            yield pytest.param(backend, id=backend.name, marks=marks_of(backend.name))


def marks_of(*names: str) -> list[pytest.MarkDecorator]:
    """The marks of a test that runs on these backends together: it is skipped, and says
    why, where one is missing.
    """
    backends = [BACKENDS[name] for name in names]
    marks = [pytest.mark.backend(*names)]
    if any(backend.needs_server for backend in backends):
        marks.append(pytest.mark.server)
    if reasons := [f"{backend.name}: {reason}" for backend in backends if (reason := backend.missing())]:
        marks.append(pytest.mark.skip(reason="; ".join(reasons)))
    return marks


def run_here(*names: str) -> bool:
    """Whether these backends can all run on this machine: for tables that would skip a
    thousand times what the report says last once.
    """
    return all(BACKENDS[name].missing() is None for name in names)


def able(*harnesses: type[Harness]) -> tuple[type[Harness], ...]:
    """The contract harnesses whose backend can run on this machine.

    A contract test may not be skipped: where a server is missing there is none, the
    report says last why, and MEMORY_REQUIRE makes that a failure.
    """
    return tuple(harness for harness in harnesses if BACKENDS[harness.name].missing() is None)
