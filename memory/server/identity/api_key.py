"""API keys as values: made, checked and shown. Nothing here uses a store."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final, get_args

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope, Subtree
from memory.facade.arguments import scope_or_subtree
from memory.server.callers import Role
from memory.server.identity.key_text import (
    KeyText,
    new_key_id,
    new_key_text,
    parse_key_text,
)
from memory.server.identity.reserved import check_tenant

ADMINISTRATORS: Final = ("admin", "operator")
"""The roles of keys that cannot have scopes."""
LONGEST: Final = timedelta(days=36_525)
"""The longest time for which a key, or an earlier secret of it, can be valid."""


@dataclass(frozen=True)
class Secret:
    """The digest of one secret of a key, and when it ends."""

    digest: str
    until: datetime | None = None


_NO_SECRET: Final = Secret("0" * 64)
"""A secret that no text has."""


@dataclass(frozen=True)
class ApiKey:
    """A key as it is stored. Its secret is stored nowhere."""

    id: str
    tenant: str
    role: Role
    scopes: tuple[str, ...] = ()
    """The texts of its scopes and subtrees; none for the whole tenant."""
    name: str | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    secrets: tuple[Secret, ...] = ()

    @cached_property
    def scope_objects(self) -> tuple[Scope | Subtree, ...] | None:
        """The scopes and subtrees; None for the whole tenant."""
        return tuple(map(scope_or_subtree, self.scopes)) or None

    @property
    def creation(self) -> tuple[object, ...]:
        """The arguments of the call that created the key."""
        lasts = (
            None if self.expires_at is None or self.created_at is None else self.expires_at - self.created_at
        )
        return (self.tenant, self.role, self.scopes, self.name, lasts)

    def is_active(self, now: datetime) -> bool:
        """Return whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def accepts(self, text: KeyText, now: datetime) -> bool:
        """Return whether a text is a secret of this key, and valid now.

        It takes equally long for every text, even if the key has no secret any more.
        """
        matches, digest = False, text.digest
        for one in self.secrets or (_NO_SECRET,):
            is_same = hmac.compare_digest(one.digest, digest)
            matches |= is_same and (one.until is None or now < one.until)
        return matches and self.is_active(now)

    def to_dict(self) -> dict[str, Any]:
        """Return the key for display, without its digests."""
        shown = {name: getattr(self, name) for name in ("id", "tenant", "role", "name")}
        shown["scopes"] = list(self.scopes)
        for name in ("created_at", "expires_at", "revoked_at"):
            at = getattr(self, name)
            shown[name] = None if at is None else at.isoformat()
        return shown


def make_key(
    tenant: str,
    role: Role,
    *,
    scopes: Sequence[Scope | Subtree | str] = (),
    name: str | None = None,
    expires_in: timedelta | None = None,
    key_id: str | None = None,
    now: datetime,
) -> tuple[ApiKey, str]:
    """Return a new key and its secret, without storing anything.

    Args:
        tenant: The tenant that the key belongs to.
        role: What the key may do.
        scopes: The scopes and subtrees that a reader or a writer sees; the whole
            tenant by default.
        name: A name for people.
        expires_in: How long it is valid; for ever by default.
        key_id: The id; a new one by default.
        now: The moment of the creation.

    Raises:
        InvalidInput: An argument is wrong.
    """
    if expires_in is not None and expires_in <= timedelta():
        raise InvalidInput("expires", "must be longer than zero. Leave it out for a key that never expires")
    if expires_in is not None and expires_in > LONGEST:
        raise InvalidInput("expires", "must be at most 100 years. Leave it out for a key that never expires")
    if scopes and role in ADMINISTRATORS:
        raise InvalidInput("scopes", f"must be left out for the role '{role}', which has the whole tenant")
    text = new_key_text(key_id or new_key_id())
    key = ApiKey(
        text.key_id,
        check_tenant(tenant),
        validation.one_of("role", role, get_args(Role)),
        scopes=tuple(dict.fromkeys(scope_or_subtree(one).text for one in scopes)),
        name=None if name is None else validation.identifier("name", name),
        created_at=now,
        expires_at=None if expires_in is None else now + expires_in,
        secrets=(Secret(text.digest),),
    )
    return key, text.text


def check_overlap(overlap: timedelta) -> timedelta:
    """Return the time for which earlier secrets of a rotated key stay valid.

    Raises:
        InvalidInput: It is negative, or too long.
    """
    if overlap < timedelta():
        raise InvalidInput("overlap", "must not be negative. Pass 0 to end the earlier secret at once")
    if overlap > LONGEST:
        raise InvalidInput("overlap", "must be at most 100 years")
    return overlap


def check_key_id(text: str) -> str:
    """Return the id of a key that a person typed.

    Raises:
        InvalidInput: It is the secret of a key. The error does not show it.
    """
    if (whole := parse_key_text(text)) is not None:
        raise InvalidInput("id", f"got the secret of a key. Pass its id alone: {whole.key_id}")
    return text
