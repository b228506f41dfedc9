"""API keys as documents of the reserved tenant: created, listed, rotated, revoked."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from memory.domain.errors import (
    ConfigError,
    Conflict,
    LegalHoldActive,
    NotFound,
    RequestIdReused,
    VersionConflict,
)
from memory.domain.scope import Scope, Subtree
from memory.domain.time import EPOCH, micros_or_none, moment_or_none
from memory.domain.versions import ABSENT
from memory.facade.memory import Memory
from memory.facade.resources.documents import Documents
from memory.server.callers import Role
from memory.server.identity.api_key import ApiKey, Secret, check_overlap, make_key
from memory.server.identity.key_text import is_key_id, new_key_text, parse_key_text
from memory.server.identity.reserved import RESERVED_TENANT

KEYS: Final = Scope.path("keys")
"""The scope of the key documents."""
FRESH_FOR: Final = 1.0
"""Seconds for which a read key is used without another read."""
OVERLAP: Final = timedelta(days=1)
"""How long the earlier text of a rotated key stays valid by default."""
_CACHED: Final = 10_000


class KeyStore:
    """The keys of all tenants, in a durable store.

    A process that has read a key obeys its revocation at the latest after `FRESH_FOR`.

    Args:
        memory: An open memory that is no view. The keys are documents of its tenant
            `~server`.
        now: Returns the time; for tests.
    """

    def __init__(self, memory: Memory, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._memory = memory
        self._now = now
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._unknown: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        """Ids without a key, apart from the others: guesses evict no key."""
        self._reads: dict[str, asyncio.Task[ApiKey | None]] = {}

    @property
    def _documents(self) -> Documents:
        return self._memory.for_tenant(RESERVED_TENANT).documents

    async def create(
        self,
        tenant: str,
        role: Role,
        *,
        scopes: Sequence[Scope | Subtree | str] = (),
        name: str | None = None,
        expires_in: timedelta | None = None,
        key_id: str | None = None,
    ) -> tuple[ApiKey, str]:
        """Create a key, and return it with its text. The text is shown only now.

        For the arguments see `make_key`.

        Raises:
            InvalidInput: An argument is wrong.
            Conflict: A key has this id.
            RequestIdReused: It was created with other arguments.
        """
        key, text = make_key(
            tenant, role, scopes=scopes, name=name, expires_in=expires_in, key_id=key_id, now=self._now()
        )
        await self.add(key)
        return key, text

    async def add(self, key: ApiKey) -> None:
        """Store a key that `make_key` made.

        Raises:
            Conflict: A key has this id.
            RequestIdReused: It was created with other arguments.
        """
        try:
            await self._documents.put(
                KEYS, key.id, _value(key), expected_version=ABSENT, metadata=_index(key)
            )
        except VersionConflict:
            there = await self.get(key.id)
            if there is not None and there.creation != key.creation:
                raise RequestIdReused(key.id) from None
            raise Conflict(
                f"key {key.id} was created before, and its text was shown then. Rotate it for a new text",
                key.id,
            ) from None
        self._forget(key.id)

    async def list(self, tenant: str | None = None) -> list[ApiKey]:
        """Return the keys of a tenant, or of all, oldest first."""
        asked: dict[str, Any] = {} if tenant is None else {"filter": {"metadata.tenant": tenant}}
        found = list[ApiKey]()
        async for one in self._documents.iterate(KEYS, values=True, **asked):
            found.append(_key_of(one.key, one.value))  # type: ignore[attr-defined]
        return sorted(found, key=lambda one: (one.created_at or EPOCH, one.id))

    async def get(self, key_id: str) -> ApiKey | None:
        """Return a key by its id, as it is stored now."""
        found = await self._documents.get(KEYS, key_id) if is_key_id(key_id) else None
        return None if found is None else _key_of(key_id, found.value)

    async def rotate(self, key_id: str, *, overlap: timedelta = OVERLAP) -> tuple[ApiKey, str]:
        """Give a key a new text, and return both. The id stays.

        Args:
            key_id: The id of the key.
            overlap: How long the earlier texts stay valid. Zero ends them at once.

        Raises:
            NotFound: There is no such key, or it is revoked or expired.
        """
        check_overlap(overlap)
        text, now = new_key_text(key_id), self._now()
        until = now + overlap

        def rotate(key: ApiKey) -> ApiKey:
            if not key.is_active(now):
                raise NotFound(key_id, "active key")
            earlier = [
                replace(one, until=until if one.until is None else min(one.until, until))
                for one in key.secrets
                if one.until is None or one.until > now
            ]
            kept = [one for one in earlier if one.until is not None and one.until > now]
            return replace(key, secrets=(*kept, Secret(text.digest)))

        return await self._change(key_id, rotate), text.text

    async def revoke(self, key_id: str) -> ApiKey:
        """End a key. Every process obeys within two seconds.

        Raises:
            NotFound: There is no such key, or it is revoked.
        """

        def revoke(key: ApiKey) -> ApiKey:
            if key.revoked_at is not None:
                raise NotFound(key_id, "active key")
            return replace(key, revoked_at=self._now(), secrets=())

        return await self._change(key_id, revoke)

    async def revoke_all(self, tenant: str, *, but: str | None = None) -> int:
        """End all keys of a tenant that is to be erased, except the one named `but`.

        Returns:
            The number of keys that this call ended.

        Raises:
            LegalHoldActive: The tenant is under legal hold, and cannot be erased.
        """
        holds = await self._memory.for_tenant(tenant).admin.legal_holds.list()
        if held := [hold for hold in holds if hold.over == "tenant"]:
            raise LegalHoldActive(*held)
        ended = 0
        for key in await self.list(tenant):
            if key.revoked_at is None and key.id != but:
                with suppress(NotFound):  # another call has ended it
                    await self.revoke(key.id)
                    ended += 1
        return ended

    async def verify(self, text: str) -> ApiKey | None:
        """Return the key of a text; None if it is no text of an active key."""
        parsed = parse_key_text(text)
        if parsed is None:
            return None
        key = await self._recent(parsed.key_id)
        # an unknown id takes as long as a wrong text
        known = key or ApiKey(parsed.key_id, "", "reader")
        return key if known.accepts(parsed, self._now()) else None

    async def _recent(self, key_id: str) -> ApiKey | None:
        """Return a key as it was at most `FRESH_FOR` ago.

        Concurrent requests share one read. Unknown ids are cached too, so that the
        time of an answer does not tell which ids exist.
        """
        noted = self._known.get(key_id) or self._unknown.get(key_id)
        if noted is not None and time.monotonic() - noted[0] < FRESH_FOR:
            return noted[1]
        read = self._reads.get(key_id)
        if read is None:
            read = asyncio.ensure_future(self._read(key_id))
            self._reads[key_id] = read
            read.add_done_callback(lambda _: self._reads.pop(key_id, None))
        return await asyncio.shield(read)

    async def _read(self, key_id: str) -> ApiKey | None:
        begun = time.monotonic()
        key = await self.get(key_id)
        self._forget(key_id)
        cache = self._known if key is not None else self._unknown
        cache[key_id] = (begun, key)
        while len(cache) > _CACHED:
            cache.popitem(last=False)
        return key

    def _forget(self, key_id: str) -> None:
        """Read a key again for the next request."""
        self._known.pop(key_id, None)
        self._unknown.pop(key_id, None)

    async def _change(self, key_id: str, change: Callable[[ApiKey], ApiKey]) -> ApiKey:
        """Change a stored key, and retry if another process changed it meanwhile."""
        while True:
            found = await self._documents.get(KEYS, key_id) if is_key_id(key_id) else None
            if found is None:
                raise NotFound(key_id, "key")
            key = change(_key_of(key_id, found.value))
            try:
                await self._documents.put(
                    KEYS, key_id, _value(key), expected_version=found.version, metadata=_index(key)
                )
            except VersionConflict:
                continue
            self._forget(key_id)
            return key


async def require_durable(memory: Memory) -> None:
    """Raise `ConfigError` if keys would be lost with the process."""
    for store in await memory.admin.check():
        if "mid" in store.tiers and not store.durable:
            raise ConfigError(
                f"keys and the audit log need a durable store, and '{store.store}' of tier 'mid' is none."
                " Configure another one, or serve with --dev"
            )


def _index(key: ApiKey) -> dict[str, Any]:
    return {"tenant": key.tenant}


def _value(key: ApiKey) -> dict[str, Any]:
    return {
        "tenant": key.tenant,
        "role": key.role,
        "scopes": list(key.scopes),
        "name": key.name,
        "created_at": micros_or_none(key.created_at),
        "expires_at": micros_or_none(key.expires_at),
        "revoked_at": micros_or_none(key.revoked_at),
        "secrets": [{"sha256": one.digest, "until": micros_or_none(one.until)} for one in key.secrets],
    }


def _key_of(key_id: str, value: Any) -> ApiKey:
    return ApiKey(
        key_id,
        value["tenant"],
        value["role"],
        tuple(value["scopes"]),
        value["name"],
        moment_or_none(value["created_at"]),
        moment_or_none(value["expires_at"]),
        moment_or_none(value["revoked_at"]),
        tuple(Secret(one["sha256"], moment_or_none(one["until"])) for one in value["secrets"]),
    )
