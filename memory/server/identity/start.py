"""The checks before a server with keys may listen, and its application."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from memory.domain.errors import ConfigError
from memory.domain.scope import Scope
from memory.facade.config.identity import LOOPBACK
from memory.facade.config.server import ServerSettings
from memory.facade.memory import Memory
from memory.server.app import create_app
from memory.server.identity.audit import AuditLog
from memory.server.identity.authenticator import KeyAuthenticator
from memory.server.identity.jwt import TokenVerifier, check_jwt_settings
from memory.server.identity.key_store import KeyStore, require_durable


def check_exposure(settings: ServerSettings, *, dev: bool) -> None:
    """Raise `ConfigError` for an address that would show the memory to others."""
    has_tls = settings.tls_cert is not None and settings.tls_key is not None
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise ConfigError("memory serve: --tls-cert and --tls-key go together. Pass both, or neither")
    if settings.tls_cert is not None and settings.tls_key is not None:
        _check_certificate(settings.tls_cert, settings.tls_key)
    if settings.host in LOOPBACK:
        return
    if dev:
        raise ConfigError(
            f"memory serve: --dev has no keys, so it listens on 127.0.0.1 only, not on {settings.host}. Leave"
            " --dev out, and create keys with `memory keys create`"
        )
    if not has_tls and not settings.behind_proxy:
        raise ConfigError(
            f"memory serve: keys would cross the network of {settings.host} unencrypted. Pass --tls-cert and"
            " --tls-key, or --behind-proxy if a proxy in front of the server terminates TLS"
        )


def _check_certificate(certificate: str, key: str) -> None:
    """Raise `ConfigError` unless a server can use the files of a certificate."""
    for option, file in (("--tls-cert", certificate), ("--tls-key", key)):
        if not Path(file).is_file():
            raise ConfigError(f"memory serve: {option}: there is no file {file}")
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except OSError as error:
        raise ConfigError(
            f"memory serve: {certificate} and {key} are not a PEM certificate and its key: {error}"
        ) from None


def tls_options(settings: ServerSettings) -> dict[str, Any]:
    """Return the options of uvicorn for HTTPS; none without a certificate."""
    if settings.tls_cert is None:
        return {}
    return {"ssl_certfile": settings.tls_cert, "ssl_keyfile": settings.tls_key}


async def create_keyed_app(memory: Memory, settings: ServerSettings, default_scope: Scope | None) -> FastAPI:
    """Return the application of an open memory, whose callers need a key or a token.

    Raises:
        ConfigError: Keys would not be durable, or there is neither a key nor
            `[server.jwt]`.
    """
    await require_durable(memory)
    keys = KeyStore(memory)
    tokens = None
    if settings.jwt is not None:
        check_jwt_settings(settings.jwt)
        tokens = TokenVerifier(settings.jwt)
    elif not any(one.is_active(datetime.now(UTC)) for one in await keys.list()):
        raise ConfigError(
            "memory serve: no key exists yet, so the server would refuse every request. Create one with"
            " `memory keys create --role operator`, or pass --dev"
        )
    authenticator = KeyAuthenticator(memory, keys, tokens=tokens, default_scope=default_scope)
    audit = AuditLog(memory, keep=settings.audit.keep)
    return create_app(memory, settings, authenticator, keys=keys, audit=audit)
