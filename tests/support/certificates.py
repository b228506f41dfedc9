"""Certificates that tests make for their servers."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

NEEDS_OPENSSL = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the command 'openssl', which makes the certificate, is not here"
)


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate made out to `localhost`, and its key, readable by whoever a server
    runs as.
    """
    certificate, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    for path in (folder, certificate, key):
        path.chmod(0o755)
    return certificate, key


def handshake(certificate: Path) -> Callable[[int], None]:
    """What fails as long as no server with this certificate speaks TLS on a port."""

    def shakes_hands(port: int) -> None:
        context = ssl.create_default_context(cafile=str(certificate))
        with (
            socket.create_connection(("localhost", port), timeout=2) as bare,
            context.wrap_socket(bare, server_hostname="localhost"),
        ):
            pass

    return shakes_hands
