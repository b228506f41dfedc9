"""Validate and convert arguments of callers: scopes, ids, moments and drafts."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from memory.domain import validation
from memory.domain.corrections import unknown_arguments, unknown_keys
from memory.domain.entry import EntryDraft
from memory.domain.errors import InvalidInput
from memory.domain.message import CHANGEABLE, Message
from memory.domain.model_errors import explain_error
from memory.domain.scope import Scope, ScopeKind, Subtree, is_scope_text, is_subtree_text
from memory.domain.shapes import import_message
from memory.domain.versions import check_expected
from memory.facade.config.values import Duration
from memory.orchestrator.storage.deliveries import CONSISTENCIES, Consistency


class _Dataclass(Protocol):
    __dataclass_fields__: ClassVar[dict[str, Any]]


Metadata: TypeAlias = Mapping[str, Any] | BaseModel | _Dataclass
"""A dict, a pydantic model or a dataclass.

Its values are JSON, dates, UUIDs, decimals, enums, dataclasses and models.
"""

EntryData: TypeAlias = Metadata | list[Any] | tuple[Any, ...]
"""The data of an entry: an object as in `Metadata`, or a list of such values."""

Vector: TypeAlias = Iterable[float] | bytes
"""An embedding: numbers, also as an array, or packed little-endian float32."""

Moment = datetime | str | int | float
"""An aware datetime, ISO 8601 text with a zone, or seconds since 1970, from 10^8."""

_AGENT = re.compile(r"[A-Za-z0-9_-]{1,64}")
F = TypeVar("F", bound=Callable[..., Any])

_LENGTH: TypeAdapter[timedelta] = TypeAdapter(Duration)


def scope_of(value: object) -> Scope:
    """Convert a scope or its text to a scope.

    Raises:
        InvalidInput: It is neither, or a subtree.
    """
    named = scope_or_subtree(value)
    if isinstance(named, Subtree):
        raise InvalidInput(
            "scope",
            f"names one scope here, not the subtree {named.text!r}. Pass its root {named.root.text!r}, or"
            " another scope",
        )
    return named


def scope_or_subtree(value: object) -> Scope | Subtree:
    """Convert a scope, a subtree, or the text of one."""
    if isinstance(value, Scope | Subtree):
        return value
    if isinstance(value, str):
        text = validation.text("scope", value)
        return Subtree.parse(text) if is_subtree_text(text) else Scope.parse(text)
    raise InvalidInput(
        "scope", f"must be a Scope or its text, such as 'user:ada', not {type(value).__name__}"
    )


def draft_of(given: EntryDraft | Mapping[str, Any], as_kind: type[EntryDraft] = EntryDraft) -> EntryDraft:
    """Convert a draft, or the arguments of `write`, to a draft.

    Drafts of imports keep their class.
    """
    if not isinstance(given, EntryDraft | Mapping):
        raise InvalidInput(
            "",
            "must be an EntryDraft, or a dict with the arguments of write, such as"
            f" {{'content': 'Ada likes tea', 'scope': 'user:ada'}}, not {type(given).__name__}",
        )
    # a draft is checked again, because its lists may have changed
    parts = _given_fields(given) if isinstance(given, EntryDraft) else given.items()
    values = {validation.text("draft", name): value for name, value in parts}
    if "scope" not in values:
        raise InvalidInput("scope", "is missing. Say whose entry it is, such as 'scope': 'user:ada'")
    kind = as_kind
    if isinstance(given, EntryDraft) and type(given) is not EntryDraft:
        kind = type(given)
    return kind(**(values | {"scope": scope_of(values["scope"])}))


def _given_fields(draft: EntryDraft) -> list[tuple[str, Any]]:
    """Return the fields that the draft's maker gave, or changed since."""
    fields = type(draft).model_fields
    return [
        (name, value)
        for name, value in draft
        if name in draft.model_fields_set or value != fields[name].get_default(call_default_factory=True)
    ]


def expected_version_of(value: object, *, absent: bool = False) -> int | None:
    """Validate `expected_version`; 0 is `ABSENT`, which only writes may expect."""
    expected = check_expected(value)
    if expected == 0 and not absent:
        raise InvalidInput("expected_version", "cannot be ABSENT here: pass the version of what you read")
    return expected


def flag(field: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidInput(field, f"must be True or False, not {type(value).__name__}")
    return value


def function(field: str, value: F) -> F:
    if not callable(value):
        raise InvalidInput(field, f"must be a function, not {type(value).__name__}")
    return value


def check_names(field: str, given: object, known: Collection[str], example: str) -> None:
    """Raise `InvalidInput` unless it is a dict with known names only."""
    if not isinstance(given, Mapping):
        raise InvalidInput(field, f"must be a dict such as {example}, not {type(given).__name__}")
    if unknown := [str(name) for name in given if name not in known]:
        raise unknown_keys(field, unknown, known, example)


def consistency_of(value: object) -> Consistency | None:
    """Validate when a write returns; None means as configured."""
    if value is None:
        return None
    return validation.one_of("consistency", value, CONSISTENCIES)


def real(field: str, value: object) -> float:
    """Validate a finite number."""
    return float(validation.number(field, value))


def whole(field: str, value: object) -> int:
    """Validate a whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(field, f"must be a whole number, not {type(value).__name__}")
    return value


def length(field: str, value: object) -> timedelta:
    """Convert a positive length of time, in the formats of a configuration."""
    try:
        return _LENGTH.validate_python(value)
    except ValidationError as error:
        raise InvalidInput(field, explain_error(error.errors()[0])) from None


def stages_of(rerank: object) -> int:
    """Return the number of reranking stages."""
    if isinstance(rerank, bool):
        return int(rerank)
    if rerank != "two-stage":
        raise InvalidInput("rerank", "must be True, False or 'two-stage'")
    return 2


def id_of(value: object, field: str = "entry_id") -> str:
    """Validate the id of an entry, an artifact or a relation: the argument `field`.

    A text that looks like a scope is refused, because no such id looks like one.
    """
    if isinstance(value, Scope):
        value = value.text
    checked = validation.record_id(field, value)
    if is_scope_text(checked):
        raise InvalidInput(
            field,
            f"{checked[:80]!r} is a scope, not an id. Read a scope with `retrieve` or `search`, erase its"
            " entries with `admin.erase`, or erase a user with `admin.erase_user` (`memory forget --scope`,"
            " `--user`)",
        )
    return checked


def user_of(value: object) -> str:
    """Validate the id of a user.

    A text that looks like a scope is refused. Pass `Scope.user(id)` for a user whose id
    really looks like one.
    """
    if isinstance(value, Scope):
        if value.kind is not ScopeKind.USER:
            raise InvalidInput(
                "user",
                f"{value.text[:80]!r} is not the scope of a user. Erase the entries of another scope with"
                " `admin.erase`",
            )
        return value.id
    checked = validation.identifier("user", value)
    if is_scope_text(checked):
        kind, _, rest = checked.partition(":")
        right = (
            f"pass the id alone, {rest[:80]!r}"
            if kind == ScopeKind.USER
            else "erase the entries of a scope with `admin.erase`"
        )
        raise InvalidInput(
            "user",
            f"{checked[:80]!r} is a scope, not a user's id: {right}. If a user really has this id, pass"
            f" Scope.user({checked[:80]!r})",
        )
    return checked


def agent_of(value: object) -> str | None:
    """Validate the agent of a scratchpad; None means the scratchpad that all share."""
    if value is None:
        return None
    name = validation.text("agent", value)
    if not _AGENT.fullmatch(name):
        raise InvalidInput("agent", "must have 1 to 64 characters, each one of A-Z, a-z, 0-9, _ and -")
    return name


def ids_of(values: object, field: str = "entry_ids", *, at_most: int | None = None) -> list[str]:
    given = validation.sequence(field, values, at_most=at_most)
    return [id_of(value, f"{field}[{number}]") for number, value in enumerate(given)]


def moment(field: str, value: Moment | None) -> datetime | None:
    return None if value is None else validation.time(field, value)


UNSET: Any = object()
"""The default of an argument whose omission differs from None."""


def changes_of(changes: Mapping[str, Any], called: str = "Session.update") -> dict[str, Any]:
    """Validate changes of a message as every message is validated.

    A whole message, with role and content, is accepted too. Its fields that cannot be
    changed stay as they are stored.
    """
    if changes.keys() >= {"role", "content"}:
        changes = {
            name: value
            for name, value in changes.items()
            if name in CHANGEABLE or name not in Message.model_fields
        }
    for name in changes:
        if name not in CHANGEABLE:
            raise unknown_arguments(called, [name], CHANGEABLE)
    (checked,) = import_message({"role": "assistant", "content": "", **changes})
    return {name: getattr(checked, name) for name in changes}
