"""TLS: the server's certificate is checked against the CA that the options name, and
its host name too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory.adapters.redis.store import RedisStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, id_of, put, query_ids, record
from tests.support.certificates import NEEDS_OPENSSL, handshake, self_signed
from tests.support.servers import Server
from tests.unit.adapters.redis.conftest import NEEDS_SERVER

pytestmark = [
    pytest.mark.backend("redis"),
    *NEEDS_SERVER,
    NEEDS_OPENSSL,
]


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that speaks TLS alone, and its certificate, made out to localhost."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, _ = self_signed(folder)

    tls = (
        "--tls-cert-file",
        "/given/cert.pem",
        "--tls-key-file",
        "/given/key.pem",
        "--tls-auth-clients",
        "no",
    )
    server = Server(
        "redis",
        handshake(certificate),
        lambda port: ("redis-server", "--port", "0", "--tls-port", str(port), *tls),
        folder=folder,
    )
    yield server, certificate
    server.stop()


async def test_a_server_whose_certificate_is_known_is_used(certified: tuple[Server, Path]) -> None:
    server, certificate = certified
    store = RedisStore(f"rediss://localhost:{server.port}", tls_ca=str(certificate))
    await store.open(DECLARED)
    try:
        await apply_all(store, put(record(1)))
        assert await query_ids(store) == [id_of(1)]
    finally:
        await store.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["unknown certificate", "another host name"])
async def test_a_certificate_that_proves_nothing_is_refused(
    certified: tuple[Server, Path], host: str
) -> None:
    server, certificate = certified
    known: dict[str, Any] = {} if host == "localhost" else {"tls_ca": str(certificate)}
    with pytest.raises(StoreUnavailable):
        await RedisStore(f"rediss://{host}:{server.port}", **known).open(DECLARED)


async def test_plain_text_to_a_tls_port_is_unavailable(certified: tuple[Server, Path]) -> None:
    server, _ = certified
    with pytest.raises(StoreUnavailable):
        await RedisStore(f"redis://127.0.0.1:{server.port}", timeout=2).open(DECLARED)
