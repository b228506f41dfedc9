"""Scopes: whose memory it is. There are exactly five kinds; their ids are opaque."""

from __future__ import annotations

from enum import StrEnum
from functools import cached_property
from urllib.parse import quote, unquote

from pydantic import ConfigDict, Field, model_validator

from memory.domain import validation
from memory.domain.errors import InvalidInput, InvalidScopePromotion


class ScopeKind(StrEnum):
    SESSION = "session"
    USER = "user"
    WORKSPACE = "workspace"
    ORG = "org"
    OBJECT = "object"


PROMOTABLE: dict[ScopeKind, frozenset[ScopeKind]] = {
    ScopeKind.SESSION: frozenset({ScopeKind.USER, ScopeKind.WORKSPACE, ScopeKind.ORG, ScopeKind.OBJECT}),
    ScopeKind.USER: frozenset({ScopeKind.WORKSPACE, ScopeKind.ORG}),
    ScopeKind.WORKSPACE: frozenset({ScopeKind.ORG}),
    ScopeKind.ORG: frozenset(),
    ScopeKind.OBJECT: frozenset({ScopeKind.USER, ScopeKind.WORKSPACE, ScopeKind.ORG}),
}
"""The kinds of scope that an entry of each kind may be promoted to."""


class Scope(validation.ValidatedModel):
    """A scope says whose memory an entry is.

    Make one with `Scope.user("ada")`, `Scope.session("s1")`, `Scope.object("ticket",
    "t1")` and so on, or with `Scope.parse("user:ada")`. Two scopes are the same if
    their kind, their id and, for objects, their type are exactly equal.

    Raises:
        InvalidInput: the kind, the id or the type is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ScopeKind
    id: str = Field(strict=True)
    object_type: str | None = Field(default=None, strict=True)

    @model_validator(mode="after")
    def _check_fields(self) -> Scope:
        validation.identifier(f"{self.kind}_id", self.id)
        if self.kind is ScopeKind.OBJECT:
            validation.identifier("object_type", self.object_type)
        elif self.object_type is not None:
            raise InvalidInput("object_type", f"belongs to object scopes, not to a {self.kind} scope")
        return self

    @classmethod
    def of(cls, kind: str, id: str, object_type: str | None = None) -> Scope:
        validation.one_of("scope kind", kind, ScopeKind)
        if not isinstance(id, str):
            raise InvalidInput(f"{ScopeKind(kind)}_id", f"must be text, not {type(id).__name__}")
        return cls(kind=ScopeKind(kind), id=id, object_type=object_type)

    @classmethod
    def session(cls, session_id: str) -> Scope:
        return cls.of(ScopeKind.SESSION, session_id)

    @classmethod
    def user(cls, user_id: str) -> Scope:
        return cls.of(ScopeKind.USER, user_id)

    @classmethod
    def workspace(cls, workspace_id: str) -> Scope:
        return cls.of(ScopeKind.WORKSPACE, workspace_id)

    @classmethod
    def org(cls, org_id: str) -> Scope:
        return cls.of(ScopeKind.ORG, org_id)

    @classmethod
    def object(cls, object_type: str, object_id: str) -> Scope:
        return cls.of(ScopeKind.OBJECT, object_id, object_type)

    @cached_property
    def text(self) -> str:
        """The canonical form: `user:ada`, or `object:ticket:t1`.

        The type is percent-encoded. Each scope has one form, and no two share one.
        """
        if self.kind is ScopeKind.OBJECT:
            return f"object:{quote(self.object_type or '', safe='')}:{self.id}"
        return f"{self.kind}:{self.id}"

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope with this canonical form.

        Raises:
            InvalidInput: the text is not the canonical form of a scope.
        """
        if not isinstance(text, str):
            raise InvalidInput("scope", f"must be text, not {type(text).__name__}")
        kind, colon, rest = text.partition(":")
        if not colon:
            raise InvalidInput(
                "scope", f"{text[:40]!r} should look like user:ada, session:s1 or object:ticket:t1"
            )
        if kind != ScopeKind.OBJECT:
            return cls.of(kind, rest)
        object_type, _, object_id = rest.partition(":")
        return cls.of(kind, object_id, unquote(object_type))

    def __str__(self) -> str:
        return self.text


def is_scope_text(text: str) -> bool:
    """Return whether a text looks like a canonical scope, such as `user:ada`."""
    return text.partition(":")[0] in tuple(ScopeKind) and ":" in text


def check_promotion(source: Scope, target: Scope) -> None:
    """Raise `InvalidScopePromotion` unless `PROMOTABLE` allows the promotion."""
    if target.kind not in PROMOTABLE[source.kind]:
        raise InvalidScopePromotion(source.kind, target.kind)
