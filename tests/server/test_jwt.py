"""Tokens of an identity provider: which are accepted, and what they may do."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError

from memory import Memory
from memory.domain.errors import ConfigError
from memory.facade.config.identity import JwtSettings
from memory.ports.contract.cells import cells
from memory.server.callers import Unauthenticated
from memory.server.identity import RESERVED_TENANT, TokenVerifier
from memory.server.identity.jwt import LEAST_BETWEEN, check_jwt_settings
from memory.server.problems import Problem
from tests.server.callers import key_server

ISSUER, AUDIENCE = "https://login.example.com/", "memory"
ENTRIES = "/v1/memory/entries"


@cache
def key(name: str) -> Any:
    if name.startswith("rsa"):
        return rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return ed25519.Ed25519PrivateKey.generate() if name == "ed" else ec.generate_private_key(ec.SECP256R1())


ALGORITHM = {"rsa": "RS256", "rsa2": "RS256", "ec": "ES256", "ed": "EdDSA"}


def jwks(*names: str, **more: Any) -> str:
    found = []
    for name in names:
        algorithm = jwt.get_algorithm_by_name(ALGORITHM[name])
        found.append({**json.loads(algorithm.to_jwk(key(name).public_key())), "kid": name, **more})
    return json.dumps({"keys": [*found, {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"}]})


def token(name: str = "rsa", *, drop: tuple[str, ...] = (), header: Any = None, **claims: Any) -> str:
    now = int(time.time())
    given = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + 60, "iat": now, "sub": "ada", "tenant": "acme"}
    given = {key: value for key, value in (given | claims).items() if key not in drop}
    headers = {"kid": name, **(header or {})}
    return jwt.encode(given, key(name), ALGORITHM[name], {k: v for k, v in headers.items() if v is not None})


def settings(**given: Any) -> JwtSettings:
    return JwtSettings(**{"issuer": ISSUER, "audience": AUDIENCE, "jwks": "unused.json", **given})


def verifier(**given: Any) -> TokenVerifier:
    return TokenVerifier(settings(**given), read=lambda: jwks("rsa", "ec", "ed"))


@pytest.mark.parametrize("name", ["rsa", "ec", "ed"])
async def test_a_good_token_says_who_its_holder_is(name: str) -> None:
    claims = await verifier().verify(token(name))
    assert (claims.subject, claims.tenant, claims.role, claims.scopes) == ("ada", "acme", "reader", None)
    scoped = await verifier().verify(
        token(name, role="writer", memory_scopes=["user:ada", "path:teams/red/**"])
    )
    assert scoped.role == "writer"
    assert (await verifier().verify(token(name, role="admin"))).role == "admin"
    assert [one.text for one in scoped.scopes or ()] == ["user:ada", "path:teams/red/**"]


def _public_pem() -> bytes:
    pem: bytes = key("rsa").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _hs256_with_the_public_key() -> str:
    claims = jwt.decode(token(), options={"verify_signature": False})
    signing = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    part = [
        jwt.utils.base64url_encode(json.dumps(one).encode())
        for one in ({"alg": "HS256", "kid": "rsa"}, claims)
    ]
    message = b".".join(part)
    return (message + b"." + jwt.utils.base64url_encode(signing.sign(message, _public_pem()))).decode()


def _unsigned(algorithm: str) -> str:
    claims = jwt.decode(token(), options={"verify_signature": False})
    parts = ({"alg": algorithm, "kid": "rsa"}, claims)
    return ".".join(jwt.utils.base64url_encode(json.dumps(one).encode()).decode() for one in parts) + "."


NOW = int(time.time())
WEAK: dict[str, Callable[[], str]] = {
    "alg none": lambda: _unsigned("none"),
    "alg None": lambda: _unsigned("None"),
    "no alg": lambda: _unsigned(""),
    "HS256 with the public key": _hs256_with_the_public_key,
    "HS256 with a shared key of the set": lambda: jwt.encode(
        jwt.decode(token(), options={"verify_signature": False}), "secret" * 8, "HS256", {"kid": "shared"}
    ),
    "signature of another key": lambda: token("rsa2", header={"kid": "rsa"}),
    "signature removed": lambda: token().rpartition(".")[0] + ".",
    "claims changed": lambda: ".".join(
        [*token().split(".")[:1], token(tenant="b").split(".")[1], token().split(".")[2]]
    ),
    "unknown kid": lambda: token("rsa2"),
    "kid of another type": lambda: token("ec", header={"kid": "rsa"}),
    "no kid": lambda: token(header={"kid": None}),
    "PS256 for a key of RS256": lambda: jwt.encode(
        jwt.decode(token(), options={"verify_signature": False}), key("rsa"), "PS256", {"kid": "rsa"}
    ),
    "expired": lambda: token(exp=NOW - 3600),
    "not yet valid": lambda: token(nbf=NOW + 3600),
    "issued later": lambda: token(iat=NOW + 3600),
    "exp is text": lambda: token(exp="soon"),
    "no exp": lambda: token(drop=("exp",)),
    "no iss": lambda: token(drop=("iss",)),
    "no aud": lambda: token(drop=("aud",)),
    "no sub": lambda: token(drop=("sub",)),
    "no tenant": lambda: token(drop=("tenant",)),
    "another issuer": lambda: token(iss=ISSUER + "x"),
    "another audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=[]),
    "reserved tenant": lambda: token(tenant=RESERVED_TENANT),
    "tenant of the library": lambda: token(tenant="~memory"),
    "tenant is a list": lambda: token(tenant=["acme"]),
    "blank tenant": lambda: token(tenant=""),
    "role operator": lambda: token(role="operator"),
    "unknown role": lambda: token(role="root"),
    "role is a list": lambda: token(role=["admin"]),
    "role is null": lambda: token(role=None),
    "scopes are text": lambda: token(memory_scopes="user:ada"),
    "no scopes at all": lambda: token(memory_scopes=[]),
    "wrong scopes": lambda: token(memory_scopes=["user:ada", "nonsense"]),
    "scopes of an admin": lambda: token(role="admin", memory_scopes=["user:ada"]),
    "scopes of another type": lambda: token(memory_scopes=[1]),
    "subject is a number": lambda: token(sub=""),
    "long subject": lambda: token(sub="x" * 1000),
    "subject with a line end": lambda: token(sub="a\nb"),
    "no token": lambda: "x",
    "three points": lambda: "a.b.c.d",
    "points": lambda: "..",
}


@cells("name", WEAK, shared=True)
async def test_a_weak_token_is_refused_without_a_reason(name: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await verifier().verify(WEAK[name]())
    assert refused.value.detail == Unauthenticated().detail


async def test_settings_can_ask_for_scopes_and_let_operators_in() -> None:
    with pytest.raises(Unauthenticated):
        await verifier(require_scopes=True).verify(token())
    admin = await verifier(require_scopes=True).verify(token(role="admin"))
    assert (admin.role, admin.scopes) == ("admin", None)
    assert (await verifier(roles=("operator",)).verify(token(role="operator"))).role == "operator"
    assert (await verifier(tenant_claim="org").verify(token(org="b"))).tenant == "b"
    assert (await verifier(default_role="writer").verify(token())).role == "writer"


async def test_unknown_key_ids_do_not_read_the_keys_again_and_again() -> None:
    reads, at = [0], [0.0]
    known = ["rsa"]

    def read() -> str:
        reads[0] += 1
        return jwks(*known)

    tokens = TokenVerifier(settings(), read=read, clock=lambda: at[0])
    for _ in range(50):
        with pytest.raises(Unauthenticated):
            await tokens.verify(token("ec"))
    assert reads[0] == 1
    known.append("ec")  # the issuer rotates its keys
    at[0] += LEAST_BETWEEN
    assert (await tokens.verify(token("ec"))).tenant == "acme"
    assert reads[0] == 2
    known.remove("rsa")
    at[0] += 3600
    with pytest.raises(Unauthenticated):
        await tokens.verify(token("rsa"))


async def test_an_issuer_that_is_away_is_no_wrong_token() -> None:
    broken, at = [True], [0.0]

    def read() -> str:
        if broken[0]:
            raise OSError("no route")
        return jwks("rsa")

    tokens = TokenVerifier(settings(), read=read, clock=lambda: at[0])
    with pytest.raises(Problem) as away:
        await tokens.verify(token())
    assert (away.value.status_code, away.value.headers) == (503, {"Retry-After": "30"})
    broken[0], at[0] = False, LEAST_BETWEEN
    assert await tokens.verify(token())
    broken[0], at[0] = True, 10_000
    assert await tokens.verify(token())  # by the keys that it has


async def test_keys_come_from_an_address_or_a_file(tmp_path: Path) -> None:
    class Serve(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302 if self.path == "/moved" else 200)
            self.send_header("Location", "/jwks")
            self.end_headers()
            self.wfile.write(b"x" * 2_000_000 if self.path == "/large" else jwks("rsa").encode())

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Serve)
    Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}"
    try:
        assert await TokenVerifier(settings(jwks=f"{base}/jwks")).verify(token())
        for path in ("/large", "/moved"):
            with pytest.raises(Problem, match="503"):
                await TokenVerifier(settings(jwks=base + path)).verify(token())
    finally:
        server.shutdown()
        server.server_close()
    file = tmp_path / "jwks.json"
    with pytest.raises(ConfigError, match=r"server\.jwt\.jwks"):
        check_jwt_settings(settings(jwks=str(file)))
    file.write_text(jwks())
    with pytest.raises(ConfigError, match="no public key"):
        check_jwt_settings(settings(jwks=str(file)))
    file.write_text(jwks("rsa"))
    check_jwt_settings(settings(jwks=str(file)))
    assert await TokenVerifier(settings(jwks=str(file))).verify(token())


@pytest.mark.parametrize("place", ["http://login.example.com/jwks", "file:///etc/passwd", "ftp://x/y"])
def test_keys_come_over_https(place: str) -> None:
    with pytest.raises(ValidationError, match="https"):
        settings(jwks=place)


@pytest.fixture
async def memory() -> AsyncIterator[Memory]:
    async with Memory("memory://", embedder="none") as memory:
        yield memory


async def test_tokens_work_beside_keys(memory: Memory) -> None:
    async with key_server(memory, tokens=verifier()) as server:
        body = {"scope": "user:ada", "content": "tea"}
        reader = await server.call(token(), "POST", ENTRIES, json=body)
        assert reader.status_code == 403
        made = await server.call(token(role="writer", memory_scopes=["user:ada"]), "POST", ENTRIES, json=body)
        assert made.status_code == 201, made.text
        assert made.json()["origins"] == ["source:key:jwt:ada"]
        seen = await server.call(await server.key("acme", "reader"), "GET", f"{ENTRIES}/{made.json()['id']}")
        assert seen.json()["content"] == "tea"
        assert (await server.call(WEAK["alg none"](), "GET", ENTRIES)).status_code == 401
    async with key_server(memory) as without:
        assert (await without.call(token(), "GET", ENTRIES)).status_code == 401
