"""TLS: what each `ssl_mode` asks of the server and of its certificate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from memory.adapters.sql.mysql.connection import Connection
from memory.adapters.sql.mysql.store import MySqlStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import PLAIN
from tests.support.certificates import NEEDS_OPENSSL, self_signed
from tests.support.mysql_servers import PASSWORD, MySqlServer
from tests.unit.adapters.sql.mysql.conftest import ON_SERVER

pytestmark = [
    *ON_SERVER,
    NEEDS_OPENSSL,
]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MySqlServer, Path]]:
    """A server that offers TLS, and its certificate, made out to localhost."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, _ = self_signed(folder)
    server = MySqlServer("--ssl-cert=/given/cert.pem", "--ssl-key=/given/key.pem", folder=folder)
    yield server, certificate
    server.stop()


@pytest_asyncio.fixture
async def url(certified: tuple[MySqlServer, Path]) -> str:
    await certified[0].fresh("tls")
    return certified[0].url("tls")


async def _cipher(store: MySqlStore) -> bytes:
    async def ask(connection: Connection) -> bytes:
        ((_, cipher),) = await connection.fetch("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        return bytes(cipher)

    await store.open((PLAIN,))
    try:
        return await store.with_connection(ask)
    finally:
        await store.close()


@pytest.mark.parametrize("mode", ["preferred", "required", "verify_ca", "verify_identity"])
async def test_every_mode_but_disabled_is_encrypted_where_the_server_can(
    certified: tuple[MySqlServer, Path], url: str, mode: str
) -> None:
    ca: dict[str, Any] = {"ssl_ca": str(certified[1])} if mode.startswith("verify") else {}
    assert await _cipher(MySqlStore(url.replace("127.0.0.1", "localhost"), ssl_mode=mode, **ca)) != b""


async def test_disabled_is_not_encrypted(url: str) -> None:
    assert await _cipher(MySqlStore(url, ssl_mode="disabled")) == b""


async def test_a_name_that_the_certificate_does_not_hold_is_refused_only_where_the_identity_is_asked(
    certified: tuple[MySqlServer, Path], url: str
) -> None:
    assert await _cipher(MySqlStore(url, ssl_mode="verify_ca", ssl_ca=str(certified[1]))) != b""
    with pytest.raises(StoreUnavailable):
        await MySqlStore(url, ssl_mode="verify_identity", ssl_ca=str(certified[1])).open((PLAIN,))


async def test_a_certificate_that_nobody_vouches_for_is_refused_and_nothing_is_sent(
    url: str, tmp_path: Path
) -> None:
    other, _ = self_signed(tmp_path)
    more: tuple[dict[str, Any], ...] = ({}, {"ssl_ca": str(other)})
    for options in more:
        with pytest.raises(StoreUnavailable) as caught:
            await MySqlStore(url, ssl_mode="verify_ca", **options).open((PLAIN,))
        assert PASSWORD not in str(caught.value)
