"""Scopes: whose memory it is.

The ids of five kinds of scope are opaque. The sixth kind, the path, has labels: its
subtree is the path and everything below it.
"""

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
    PATH = "path"


PROMOTABLE: dict[ScopeKind, frozenset[ScopeKind]] = {
    ScopeKind.SESSION: frozenset(ScopeKind) - {ScopeKind.SESSION},
    ScopeKind.USER: frozenset({ScopeKind.WORKSPACE, ScopeKind.ORG}),
    ScopeKind.WORKSPACE: frozenset({ScopeKind.ORG}),
    ScopeKind.ORG: frozenset(),
    ScopeKind.OBJECT: frozenset({ScopeKind.USER, ScopeKind.WORKSPACE, ScopeKind.ORG}),
    ScopeKind.PATH: frozenset({ScopeKind.ORG}),
}
"""The kinds of scope that an entry of each kind may be promoted to."""
MAX_LABELS, MAX_LABEL_BYTES, MAX_PATH_BYTES = 16, 128, 1_024
"""The limits of a path: of labels, of the bytes of each, and of its canonical form."""
_BELOW = "**"
"""Ends the text of a subtree. No canonical form of a path ends so."""


class Scope(validation.ValidatedModel):
    """A scope says whose memory an entry is.

    Make one with `Scope.user("ada")`, `Scope.session("s1")`, `Scope.object("ticket",
    "t1")`, `Scope.path("teams", "red")` and so on, or with `Scope.parse("user:ada")`.
    Two scopes are the same if their kind, their id and, for objects, their type are
    exactly equal. The id of a path is its labels, each followed by `/`.

    Raises:
        InvalidInput: the kind, the id or the type is wrong.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: ScopeKind
    id: str = Field(strict=True)
    object_type: str | None = Field(default=None, strict=True)

    @model_validator(mode="after")
    def _check_fields(self) -> Scope:
        if self.kind is ScopeKind.PATH:
            _check_labels(self.id, _labels_of(self.id))
        else:
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

    @classmethod
    def path(cls, *labels: str) -> Scope:
        """Return the path with these labels, from the root down.

        A path has 1 to 16 labels of 1 to 128 bytes each, of any text without NUL. Its
        canonical form has at most 1,024 bytes.

        Raises:
            InvalidInput: A label or the number of labels is wrong.
        """
        for label in labels:
            if not isinstance(label, str):
                raise InvalidInput(
                    "labels", f"must be texts, not {type(label).__name__}, as in Scope.path('teams', 'red')"
                )
        _check_labels("".join(map(_encode, labels)), labels)
        return cls(kind=ScopeKind.PATH, id="".join(map(_encode, labels)))

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The labels of a path, from the root down; empty for the other kinds."""
        return _labels_of(self.id) if self.kind is ScopeKind.PATH else ()

    def subtree(self) -> Subtree:
        """Return the subtree of a path: the path itself and all paths below it.

        Raises:
            InvalidInput: The scope is no path.
        """
        return Subtree(root=self)

    @cached_property
    def text(self) -> str:
        """The canonical form: `user:ada`, `object:ticket:t1` or `path:teams/red/`.

        The type of an object is percent-encoded, and so are `/` and `%` in labels. Each
        scope has one form, and no two share one.
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
                "scope",
                f"{text[:40]!r} should look like user:ada, session:s1, object:ticket:t1 or path:teams/red/",
            )
        object_type, _, object_id = rest.partition(":")
        try:
            if kind != ScopeKind.OBJECT:
                return cls.of(kind, rest)
            return cls.of(kind, object_id, unquote(object_type, errors="strict"))
        except UnicodeDecodeError:  # read as U+FFFD, other types would be the same one
            raise InvalidInput(
                "scope", f"{text[:40]!r} is no scope: the object type is not percent-encoded UTF-8"
            ) from None
        except InvalidInput as error:  # its field is a part of the text, and no argument of the caller
            part = "id" if error.field.endswith("_id") else error.field.replace("_", " ")
            said = error.problem if part == "scope kind" else f"the {part} {error.problem}"
            raise InvalidInput("scope", f"{text[:40]!r} is no scope: {said}") from None

    def __str__(self) -> str:
        return self.text


class Subtree(validation.ValidatedModel):
    """A path and all paths below it, as returned by `Scope.path("teams").subtree()`.

    Calls that read, erase or hold several scopes take it in place of a scope. Its text
    is `path:teams/**`. Only whole labels match: the subtree of `tenant/acme` has
    `tenant/acme/notes` and not `tenant/acme-corp`.

    Raises:
        InvalidInput: The root is no path.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: Scope

    @model_validator(mode="after")
    def _check_root(self) -> Subtree:
        if self.root.kind is not ScopeKind.PATH:
            raise InvalidInput(
                "subtree",
                f"{self.root.text!r} has none. Paths have one, such as Scope.path('teams', 'red').subtree()",
            )
        return self

    @property
    def kind(self) -> ScopeKind:
        """The kind of all scopes of a subtree."""
        return self.root.kind

    @cached_property
    def prefix(self) -> str:
        """The text with which the canonical forms of exactly these scopes begin."""
        return self.root.text

    @cached_property
    def text(self) -> str:
        """The canonical form, such as `path:teams/**`."""
        return self.prefix + _BELOW

    @classmethod
    def parse(cls, text: str) -> Subtree:
        """Return the subtree with this canonical form.

        Raises:
            InvalidInput: The text is not the canonical form of a subtree.
        """
        if not is_subtree_text(text):
            raise InvalidInput("subtree", f"{text[:40]!r} should look like path:teams/**")
        return cls(root=Scope.parse(text.removesuffix(_BELOW)))

    def contains(self, scope: Scope | Subtree) -> bool:
        """Return whether a scope, or every scope of a subtree, is in this subtree."""
        root = scope.root if isinstance(scope, Subtree) else scope
        return root.text.startswith(self.prefix)

    def __str__(self) -> str:
        return self.text


def is_subtree_text(text: str) -> bool:
    """Return whether a text looks like a canonical subtree, such as `path:teams/**`."""
    return text.startswith(f"{ScopeKind.PATH}:") and text.endswith(f"/{_BELOW}")


def ancestors_of(text: str) -> list[str]:
    """Return the canonical forms of the paths above a scope, from the root down.

    They are empty for the other kinds of scope.
    """
    kind, _, rest = text.partition(":")
    if kind != ScopeKind.PATH:
        return []
    ends = [at for at, char in enumerate(rest, 1) if char == "/" and at < len(rest)]
    return [f"{kind}:{rest[:end]}" for end in ends]


def _encode(label: str) -> str:
    return label.replace("%", "%25").replace("/", "%2F") + "/"


def _labels_of(path: str) -> tuple[str, ...]:
    """Return the labels of a path's id; none if it is not the canonical form."""
    parts = path.split("/")
    labels = tuple(part.replace("%2F", "/").replace("%25", "%") for part in parts[:-1])
    return labels if "".join(map(_encode, labels)) == path else ()


def _check_labels(path: str, labels: tuple[str, ...]) -> None:
    if path and not labels:
        raise InvalidInput(
            "path",
            f"{path[:40]!r} should end each label with '/', as in path:teams/red/. Scope.path('teams', 'red')"
            " writes it",
        )
    if not 1 <= len(labels) <= MAX_LABELS:
        raise InvalidInput("path", f"must have 1 to {MAX_LABELS} labels, not {len(labels)}")
    for number, label in enumerate(labels):
        field = f"label {number + 1}"
        if not validation.text(field, label, max_bytes=MAX_LABEL_BYTES):
            raise InvalidInput(field, "must not be empty")
    validation.text("path", f"{ScopeKind.PATH}:{path}", max_bytes=MAX_PATH_BYTES)


def is_scope_text(text: str) -> bool:
    """Return whether a text looks like a canonical scope, such as `user:ada`."""
    return text.partition(":")[0] in tuple(ScopeKind) and ":" in text


def check_promotion(source: Scope, target: Scope) -> None:
    """Raise `InvalidScopePromotion` unless `PROMOTABLE` allows the promotion."""
    if target.kind not in PROMOTABLE[source.kind]:
        raise InvalidScopePromotion(source.kind, target.kind)
