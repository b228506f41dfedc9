"""Tokens of an identity provider: JWTs, checked by its public keys."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import jwt

from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.scope import Scope, Subtree
from memory.facade.arguments import scope_or_subtree
from memory.facade.config.identity import JwtSettings
from memory.server.callers import Role, Unauthenticated
from memory.server.identity.api_key import ADMINISTRATORS
from memory.server.identity.reserved import check_tenant
from memory.server.problems import Problem

log = logging.getLogger(__name__)

ALGORITHMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "OKP",
}
"""The accepted algorithms, each with the type of its keys. All are asymmetric."""
LEAST_BETWEEN: Final = 30.0
"""The fewest seconds between two readings of the keys."""
FRESH_FOR: Final = 600.0
"""Seconds after which the keys are read again."""
_TIMEOUT: Final = 5.0
_MOST_BYTES: Final = 1024 * 1024
_REQUIRED: Final = ["exp", "iss", "aud", "sub"]


@dataclass(frozen=True)
class TokenClaims:
    """The claims of a valid token about its holder."""

    subject: str
    tenant: str
    role: Role
    scopes: tuple[Scope | Subtree, ...] | None


class TokenVerifier:
    """Verifies tokens by the public keys of their issuer.

    An unknown key id makes it read the keys again, but not more often than every
    `LEAST_BETWEEN` seconds. If they cannot be read, it goes on with those it has.

    Args:
        settings: The section `[server.jwt]`.
        clock: Returns seconds that only grow; for tests.
        read: Returns the JWKS as text; for tests. By default it is read from the file
            or the address of the settings.
    """

    def __init__(
        self,
        settings: JwtSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        read: Callable[[], str] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._read = read or (lambda: _read_jwks(settings.jwks))
        self._keys: dict[str, jwt.PyJWK] = {}
        self._tried_at: float | None = None
        self._read_at: float | None = None
        self._lock = asyncio.Lock()

    async def verify(self, token: str) -> TokenClaims:
        """Return the claims of a token.

        Raises:
            Unauthenticated: The token is not valid. The error does not say why, and the
                log does.
            Problem: 503, because the keys of the issuer could not be read yet.
        """
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            kind = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
            if kind is None or not isinstance(key_id, str):
                raise jwt.InvalidTokenError("the algorithm is not accepted, or the token names no key")
            key = await self._key(key_id)
            if key is None or key.key_type != kind or key.algorithm_name != algorithm:
                raise jwt.InvalidTokenError("no key of the issuer fits the token")
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=self._settings.leeway.total_seconds(),
                options={"require": _REQUIRED},
            )
            return self._claims_of(claims)
        except (jwt.PyJWTError, InvalidInput, ValueError, TypeError) as error:
            log.warning("a token was refused: %s", error)
            raise Unauthenticated from None

    def _claims_of(self, claims: Mapping[str, Any]) -> TokenClaims:
        """Return the claims that this server uses.

        Raises:
            InvalidInput: One of them is missing or wrong.
        """
        settings = self._settings
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 128 or not subject.isprintable():
            raise InvalidInput("sub", "must be a printable text of 1 to 128 characters")
        role = claims.get(settings.role_claim, settings.default_role)
        if role not in settings.roles:
            raise InvalidInput(settings.role_claim, f"must be one of {', '.join(settings.roles)}")
        named = claims.get(settings.scopes_claim)
        if named is None and settings.require_scopes and role not in ADMINISTRATORS:
            raise InvalidInput(settings.scopes_claim, "is missing")
        if named is not None and (not isinstance(named, list) or not named):
            raise InvalidInput(settings.scopes_claim, "must be a list with at least one scope")
        if named is not None and role in ADMINISTRATORS:
            raise InvalidInput(settings.scopes_claim, f"must be left out for the role '{role}'")
        scopes = None if named is None else tuple(map(scope_or_subtree, named))
        return TokenClaims(subject, check_tenant(claims.get(settings.tenant_claim)), role, scopes)

    async def _key(self, key_id: str) -> jwt.PyJWK | None:
        """Return a public key of the issuer; None if it has no such key."""
        if not self._is_fresh() or key_id not in self._keys:
            async with self._lock:
                if (not self._is_fresh() or key_id not in self._keys) and self._may_read():
                    await self._refresh()
        if self._read_at is None:
            raise Problem(
                503,
                "issuer_unavailable",
                "the keys of the identity provider could not be read",
                headers={"Retry-After": str(round(LEAST_BETWEEN))},
            )
        return self._keys.get(key_id)

    def _is_fresh(self) -> bool:
        return self._read_at is not None and self._clock() - self._read_at < FRESH_FOR

    def _may_read(self) -> bool:
        return self._tried_at is None or self._clock() - self._tried_at >= LEAST_BETWEEN

    async def _refresh(self) -> None:
        self._tried_at = self._clock()
        try:
            self._keys = _keys_of(await asyncio.to_thread(self._read))
        except (OSError, HTTPException, ValueError, jwt.PyJWTError) as error:
            log.warning("the keys of the identity provider could not be read: %s", error)
        else:
            self._read_at = self._clock()


def _keys_of(text: str) -> dict[str, jwt.PyJWK]:
    """Return the usable keys of a JWKS by their ids. Symmetric keys are left out."""
    found = {}
    given = json.loads(text)
    if not isinstance(given, dict) or not isinstance(given.get("keys"), list):
        raise ValueError("the JWKS has no list 'keys'")
    for one in given["keys"]:
        if not isinstance(one, dict) or one.get("kty") == "oct" or one.get("use", "sig") != "sig":
            continue
        try:
            key = jwt.PyJWK.from_dict(one)
        except jwt.PyJWTError as error:
            log.info("a key of the identity provider is not used (%s)", type(error).__name__)
            continue
        if key.key_id is not None and key.algorithm_name in ALGORITHMS:
            found[key.key_id] = key
    return found


def _read_jwks(place: str) -> str:
    """Read a JWKS from a file or an address."""
    if "://" not in place:
        return Path(place).read_text("utf-8")
    request = urllib.request.Request(place, headers={"Accept": "application/json"})  # noqa: S310 - see below
    with _OPENER.open(request, timeout=_TIMEOUT) as response:
        data: bytes = response.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise ValueError(f"the JWKS has more than {_MOST_BYTES} bytes")
    return data.decode("utf-8")


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it could leave HTTPS, or reach a machine inside."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER: Final = urllib.request.build_opener(_NoRedirects)


def check_jwt_settings(settings: JwtSettings) -> None:
    """Raise `ConfigError` if the keys of a file cannot be read."""
    if "://" in settings.jwks:
        return
    try:
        keys = _keys_of(_read_jwks(settings.jwks))
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise ConfigError(f"server.jwt.jwks: the file cannot be read: {error}") from None
    if not keys:
        raise ConfigError("server.jwt.jwks: the file has no public key with a kid for signatures")
