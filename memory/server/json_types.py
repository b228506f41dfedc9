"""Types of the facade's arguments and results, as JSON has them."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, is_typeddict

from pydantic import BaseModel, Json, create_model

from memory.domain import validation
from memory.domain.delegation import DelegatedEntry, Delegation
from memory.domain.error_table import notes_without_details
from memory.domain.filters import Filter
from memory.domain.results import as_json
from memory.domain.scope import Scope, ScopeKind, Subtree
from memory.domain.session import (
    STATUSES,
    DeletedEntry,
    ErasedScope,
    FoundMessage,
    FoundMessages,
    SessionInfo,
    SessionState,
)
from memory.domain.task import RUN_MODES, RUN_STATUSES, TASK_STATUSES
from memory.facade.resources.session import Session

_SCALARS: Final = (bool, int, float, str, type(None))
_AS_TEXT: Final = (Scope, Subtree, datetime)


def field_type(hint: Any, *, in_query: bool = False) -> Any:
    """Return the type of a field that holds this argument.

    Values are checked by the call itself. The type only says which JSON it may be. In a
    query, lists are repeated parameters, objects are texts of JSON, and every other
    value that may be text is text.
    """
    found = list(dict.fromkeys(_types(hint)))
    if Any in found:
        return Any
    if in_query:
        found = [one for one in found if one is not type(None)]
        for kind, shown in ((dict, Json[dict[str, Any]]), (list, None), (str, str)):
            for one in found:
                if (get_origin(one) or one) is kind:
                    return shown or one
    return Union[tuple(found)]  # noqa: UP007 - it is computed


_NAME: Final = {"minLength": 1}
_COUNT: Final = {"minimum": 0}
_RUNS: Final = ("sessions.runs", "session.runs.list", "session.runs.save")
_LIMITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "limit": {"minimum": 1, "maximum": validation.MAX_LIMIT},
    **dict.fromkeys(("offset", "first", "last", "message_count"), _COUNT),
    "n": {"minimum": 1, "maximum": 500},
    "slack": {"minimum": 0, "exclusiveMaximum": 1},
    "min_relevance": {"minimum": 0, "maximum": 1},
    **dict.fromkeys(("user", "agent", "namespace", "session_id", "new_session_id", "key", "name"), _NAME),
    **dict.fromkeys(("child_id", "run_id", "task_id", "at", "trigger_id", "archived_by", "reason"), _NAME),
}
_CHOICES: Final[Mapping[tuple[str, str], Sequence[str]]] = {
    ("sessions.list", "status"): STATUSES,
    ("session.tasks.list", "status"): TASK_STATUSES,
    ("session.tasks.save", "status"): TASK_STATUSES,
    **{
        (call, "status"): RUN_STATUSES for call in ("sessions.runs", "session.runs.list", "session.runs.save")
    },
    **{(call, "mode"): RUN_MODES for call in _RUNS},
    ("scopes.list", "kind"): tuple(ScopeKind),
    ("admin.move", "to"): ("short", "mid", "long"),
}


def limits_of(call: str, name: str) -> dict[str, Any]:
    """Return what clients read about the values of a field. The library checks them."""
    if (choices := _CHOICES.get((call, name))) is not None:
        return {"enum": [str(one) for one in choices]}
    return dict(_LIMITS.get(name, {}))


def _types(hint: Any) -> list[Any]:
    """Return the types of JSON that an argument of this type may be."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _types(get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return [one for part in get_args(hint) for one in _types(part)]
    if origin is Literal:
        return [hint]
    if hint in (Any, object):
        return [Any]
    if hint in _SCALARS:
        return [hint]
    kind = origin or hint
    if not isinstance(kind, type) or kind in (bytes, timedelta) or issubclass(kind, Callable):  # type: ignore[arg-type]
        return []
    if issubclass(kind, _AS_TEXT) or issubclass(kind, Enum):
        return [str]
    if (
        is_typeddict(kind)
        or issubclass(kind, Mapping | Filter | BaseModel)
        or getattr(kind, "_is_protocol", False)
    ):
        return [dict[str, Any]]
    if issubclass(kind, Iterable):
        inner = get_args(hint)
        return [list[field_type(inner[0])]] if inner else [list[Any]]  # type: ignore[misc]
    return []


class _Hits(BaseModel):
    hits: list[FoundMessage]
    degraded: list[str]


class _Erased(BaseModel):
    entries: int
    sessions_left: list[str]
    documents: int
    scopes: int
    held: list[str]


class _State(BaseModel):
    state: dict[str, Any]
    version: str | None
    """None before the first change."""


class _Deleted(BaseModel):
    deleted: bool
    kept: list[str]
    is_complete: bool


class _Delegation(BaseModel):
    entries: list[DelegatedEntry]
    text: str


_MODELS: Final[Mapping[Any, Any]] = {
    Session: SessionInfo,
    FoundMessages: _Hits,
    ErasedScope: _Erased,
    SessionState: _State,
    DeletedEntry: _Deleted,
    Delegation: _Delegation,
}
"""The models of results that are no plain dataclasses."""


def model_of_result(hint: Any, name: str | None, is_needed: bool) -> Any:
    """Return the model of a response.

    Args:
        hint: The return type of the call.
        name: The name of the result in the response, if it is no object.
        is_needed: None is no response, but 404.
    """
    kinds = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    shown = [_MODELS.get(kind, kind) for kind in kinds if not (is_needed and kind is type(None))]
    model: Any = Union[tuple(shown)]  # noqa: UP007 - it is computed
    if name is None:
        return model
    of = getattr(hint, "__name__", "Result").title()
    fields: dict[str, Any] = {name: (model, ...)}
    return create_model(f"{name.title().replace('_', '')}Of{of}", **fields)


def shown_result(result: Any, name: str | None) -> Any:
    """Return the content of a response, as JSON."""
    if isinstance(result, SessionState):
        version = result.version if isinstance(result.version, str) else None
        return {"state": dict(result), "version": version}
    shown = as_json(result) if name is None else {name: as_json(result)}
    if name is None and hasattr(result, "degraded"):
        shown["degraded"] = notes_without_details(result.degraded)
    return shown
