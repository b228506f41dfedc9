"""TLS: the server's certificate is checked against the CA that the URL names, and its
host name too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from memory.adapters.mongo.store import MongoStore
from memory.domain.errors import StoreUnavailable
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.support import apply_all, id_of, put, query_ids, record
from tests.support.certificates import NEEDS_OPENSSL, handshake, self_signed
from tests.support.servers import Server
from tests.unit.adapters.mongo.conftest import ALONE

pytestmark = [
    *ALONE,
    NEEDS_OPENSSL,
]


TLS = (
    "--tlsMode",
    "requireTLS",
    "--tlsCertificateKeyFile",
    "/given/both.pem",
    "--tlsCAFile",
    "/given/cert.pem",
)
PASSWORDS_WILL_DO = "--tlsAllowConnectionsWithoutCertificates"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that speaks TLS alone, and its certificate, made out to localhost."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = self_signed(folder)
    both = folder / "both.pem"  # as MongoDB wants them
    both.write_bytes(certificate.read_bytes() + key.read_bytes())
    both.chmod(0o755)

    server = Server(
        "mongo",
        handshake(certificate),
        lambda port: ("mongod", "--port", str(port), *TLS, PASSWORDS_WILL_DO),
        folder=folder,
    )
    yield server, certificate
    server.stop()


def store(host: str, port: int, patience: float, **asked_for: str) -> MongoStore:
    return MongoStore(
        f"mongodb://{host}:{port}/tls?{'&'.join(f'{name}={quote(value)}' for name, value in asked_for.items())}",
        timeout=patience,
    )


async def test_a_server_whose_certificate_is_known_is_used(certified: tuple[Server, Path]) -> None:
    server, certificate = certified
    known = store("localhost", server.port, 60, tls="true", tlsCAFile=str(certificate))
    await known.open(DECLARED)
    try:
        await apply_all(known, put(record(1)))
        assert await query_ids(known) == [id_of(1)]
    finally:
        await known.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"], ids=["unknown certificate", "another host name"])
async def test_a_certificate_that_proves_nothing_is_refused(
    certified: tuple[Server, Path], host: str
) -> None:
    server, certificate = certified
    named = {} if host == "localhost" else {"tlsCAFile": str(certificate)}
    with pytest.raises(StoreUnavailable, match="tlsCAFile"):
        await store(host, server.port, 3, tls="true", **named).open(DECLARED)


async def test_plain_text_to_a_tls_port_is_unavailable(certified: tuple[Server, Path]) -> None:
    server, _ = certified
    with pytest.raises(StoreUnavailable):
        await store("127.0.0.1", server.port, 3).open(DECLARED)
