"""Routes of sessions, their messages, tasks and runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from memory import CompactionSettings, MessageThreshold, TokenThreshold, TurnThreshold
from memory.domain.error_table import notes_without_details
from memory.domain.errors import Conflict, InvalidInput, NotFound
from memory.domain.message import Message
from memory.domain.results import as_json
from memory.domain.session import Context, HistoryItem, HistoryPage
from memory.domain.versions import ABSENT
from memory.formats import FORMATS, export_messages, system_prompt
from memory.server.bodies import RequestBody
from memory.server.callers import Caller
from memory.server.facade_calls import Values, hints_of
from memory.server.operations import Operation, add_operations
from memory.server.problems import bad_request
from memory.server.routing import ApiRoute

router = APIRouter(tags=["sessions"], route_class=ApiRoute)

ORIGINAL = "original"
_FORMAT = Annotated[
    Literal[(ORIGINAL, *FORMATS)] | None,  # type: ignore[valid-type]
    Field(description=f"The format of the messages: {ORIGINAL!r} as they were appended, or {FORMATS}."),
]
_POLICIES = {
    "tokens": TokenThreshold,
    "messages": MessageThreshold,
    "turns": TurnThreshold,
    "list": CompactionSettings,
}
_SESSION = "/v1/sessions/{session_id:text}"
_MESSAGE = f"{_SESSION}/messages/{{message_id:text}}"


class ShownMessages(BaseModel):
    """Messages in a format, and what the format cannot hold."""

    messages: list[dict[str, Any]]
    system: Any = Field(default=None, description="The system text, in formats that have it apart.")
    without_equivalent: list[str] = Field(default=[], description="Parts that the format cannot hold.")


class ShownContext(ShownMessages):
    """The messages to send to a model, in order."""

    tokens: list[int] = Field(description="The tokens of each message as it is stored.")
    total_tokens: int
    tools_tokens: int
    version: int = Field(description="Counts the changes of the window.")
    window_version: str | None = Field(description="The ETag of the window; null if a part was read.")
    left_out: int = Field(description="Messages of the window that are older or did not fit.")
    over_budget: int
    invalid: list[str] = Field(description="Ids of results without a call.")
    interrupted: list[str] = Field(description="Ids of calls without a result.")
    layers: list[str]
    degraded: list[str]


class ShownHistory(ShownMessages):
    """A page of a history; `items` is empty if a format is given."""

    items: list[HistoryItem]
    cursor: str | None


class CheckpointBody(RequestBody):
    """A checkpoint, as `POST …/checkpoints` returned it."""

    session_id: str
    incarnation: str
    place: int


def _messages_in(messages: Sequence[Message], format: str | None) -> Values:
    """Return messages in a format, as fields of a response."""
    if format is None:
        return {"messages": as_json(list(messages)), "system": None, "without_equivalent": []}
    if format == ORIGINAL:
        originals = [one.raw for one in messages]
        return {
            "messages": [one for one in originals if one is not None],
            "system": None,
            "without_equivalent": [],
        }
    exported = export_messages(messages, format)
    return {
        "messages": list(exported),
        "system": system_prompt(messages),
        "without_equivalent": exported.without_equivalent,
    }


def _show_context(caller: Caller, context: Context, asked: Values) -> Values:
    shown: Values = as_json(context)
    return {
        **shown,
        **_messages_in(context.messages, asked.get("format")),
        "total_tokens": context.total_tokens,
        "degraded": notes_without_details(context.degraded),
    }


def _show_history(caller: Caller, page: HistoryPage, asked: Values) -> Values:
    format = asked.get("format")
    shown = [] if format is None else [item.message for item in page.items]
    items = as_json(page.items) if format is None else []
    return {"items": items, "cursor": page.cursor, **_messages_in(shown, format)}


def _without_format(caller: Caller, values: Values) -> None:
    values.pop("format", None)


def _prepare_append(caller: Caller, values: Values) -> None:
    if values.get("state_version") == repr(ABSENT):
        values["state_version"] = ABSENT


def _prepare_one(caller: Caller, values: Values) -> None:
    values["ids"] = [values.pop("message_id")]


def _show_one(caller: Caller, page: HistoryPage, asked: Values) -> Any:
    if not page.items:
        raise NotFound(asked["message_id"], "message")
    return as_json(page.items[0])


def _prepare_roll_back(caller: Caller, values: Values) -> None:
    values["checkpoint"] = hints_of("session.roll_back")["checkpoint"](**values["checkpoint"].model_dump())


def _prepare_compact(caller: Caller, values: Values) -> None:
    """Make the function that `compact` calls from the summary and what it covers."""
    summary, last = values.pop("summary"), values.pop("last_id")

    def summarise(messages: list[Message]) -> Any:
        if messages and messages[-1].id != last:
            raise Conflict(
                f"last_id: the last message to leave the window is {messages[-1].id!r}, not {last!r}. Read"
                " the window again, and summarise all messages but the last keep_last",
                messages[-1].id,
            )
        return summary

    values["summarise"] = summarise


def _prepare_policy(caller: Caller, values: Values) -> None:
    kind = _POLICIES[values.pop("by")]
    settings = values.pop("settings", None) or {}
    known = [one.name for one in fields(kind)]
    if unknown := [name for name in settings if name not in known]:
        raise bad_request(f"settings.{unknown[0][:80]}", f"is not a setting. Accepted: {', '.join(known)}")
    if kind is TokenThreshold and "max_tokens" not in settings:
        raise bad_request("settings.max_tokens", "is missing")
    try:
        values["policy"] = kind(**settings)
    except InvalidInput as error:
        raise InvalidInput(f"settings.{error.field}", error.problem) from None


_MESSAGES = Annotated[
    list[dict[str, Any]],
    Field(description="Up to 500 messages, each in a format that the library knows."),
]
_FORMATTED = {"format": (_FORMAT, None)}
_VERSION_FIELD = Annotated[
    str | None,
    Field(description="The version that the session's state must have, or ABSENT for no state."),
]
_IDS = Annotated[list[str | None] | None, Field(description="The id of each message, or null.")]
_CHANGES: Values = {
    "content": (str | list[dict[str, Any]], ""),
    "reasoning": (str | None, None),
    "tool_calls": (list[dict[str, Any]], []),
    "usage": (dict[str, Any] | None, None),
    "finish_reason": (str | None, None),
    "metadata": (dict[str, Any], {}),
    "name": (str | None, None),
}
_SUMMARY: Values = {
    "summary": Annotated[str | dict[str, Any], Field(description="The text of the summary, or a message.")],
    "last_id": Annotated[
        str, Field(description="The id of the last message that the summary covers. 409 if others leave.")
    ],
}
_POLICY: Values = {
    "by": Annotated[
        Literal["tokens", "messages", "turns", "list"],
        Field(description="What is counted: tokens, messages, turns, or tokens of a list of messages."),
    ],
    "settings": (Annotated[dict[str, Any] | None, Field(description="Settings of the policy.")], None),
}

OPERATIONS = (
    Operation("POST", "/v1/sessions", "sessions.create", status=201, etag="attributes_version",
              example={"session_id": "trip", "user": "ada", "system": "You are helpful."}),
    Operation("GET", "/v1/sessions", "sessions.list", "reader"),
    Operation("GET", _SESSION, "session.info", "reader", etag="attributes_version"),
    Operation("PATCH", _SESSION, "sessions.update", etag="attributes_version", example={"title": "The trip"}),
    Operation("DELETE", _SESSION, "session.delete", kind="session", result="deleted"),
    Operation("POST", f"{_SESSION}/end", "session.end"),
    Operation("POST", f"{_SESSION}/archive", "session.archive", result="archived"),
    Operation("POST", f"{_SESSION}/resume", "session.resume", result="resumed"),
    Operation("POST", f"{_SESSION}/fork", "session.fork", status=201, etag="attributes_version",
              renames={"new_session_id": "session_id"}),
    Operation("GET", f"{_SESSION}/state", "session.state", "reader", etag="version"),
    Operation("GET", f"{_SESSION}/delegation", "sessions.delegation", "reader"),
    # -- messages
    Operation("POST", f"{_SESSION}/messages", "session.append", status=201, creates=True, result="messages",
              fields={"messages": _MESSAGES, "ids": (_IDS, None), "state_version": (_VERSION_FIELD, None)},
              renames={"messages": "message", "ids": "id", "state_version": "expected_version"},
              omits=("expected_version",), prepare=_prepare_append,
              example={"user": "ada", "messages": [{"role": "user", "content": "Where did I go in May?"}]}),
    Operation("GET", f"{_SESSION}/messages", "session.history", "reader", fields=_FORMATTED,
              prepare=_without_format, show=_show_history, model=ShownHistory),
    Operation("PUT", f"{_SESSION}/window", "session.replace", result="messages",
              fields={"messages": _MESSAGES}),
    Operation("GET", f"{_SESSION}/window", "session.window", "reader", fields=_FORMATTED,
              etag="window_version", prepare=_without_format, show=_show_context, model=ShownContext),
    Operation("GET", f"{_SESSION}/context", "session.context", "reader", fields=_FORMATTED, omits=("tools",),
              prepare=_without_format, show=_show_context, model=ShownContext),
    Operation("POST", f"{_SESSION}/context", "session.context", "reader", fields=_FORMATTED,
              prepare=_without_format, show=_show_context, model=ShownContext,
              example={"budget": 4000, "format": "openai", "tools": []}),
    Operation("POST", f"{_SESSION}/search", "session.search", "reader", example={"query": "trips in May"}),
    Operation("POST", "/v1/messages/search", "memory.search_messages", "reader",
              example={"query": "trips in May", "user": "ada"}),
    Operation("POST", f"{_SESSION}/pop", "session.pop", result="messages"),
    Operation("POST", f"{_SESSION}/clear", "session.clear", result="removed"),
    Operation("POST", f"{_SESSION}/repair-tool-calls", "session.repair_tool_calls", result="messages"),
    Operation("GET", _MESSAGE, "session.history", "reader", kind="message", summary="Return one message.",
              omits=("ids", "first", "last", "roles", "summaries", "archived_by", "order", "limit", "offset",
                     "cursor"),
              prepare=_prepare_one, show=_show_one, model=HistoryItem),
    Operation("PATCH", _MESSAGE, "session.update", fields=_CHANGES, example={"content": "In June?"}),
    Operation("DELETE", _MESSAGE, "session.erase", kind="message", result="erased"),
    Operation("POST", f"{_MESSAGE}/exclude", "session.exclude", result="excluded"),
    Operation("POST", f"{_MESSAGE}/restore", "session.restore", result="restored"),
    # -- its window
    Operation("POST", f"{_SESSION}/checkpoints", "session.checkpoint", status=201),
    Operation("POST", f"{_SESSION}/roll-back", "session.roll_back", result="removed",
              fields={"checkpoint": CheckpointBody}, prepare=_prepare_roll_back),
    Operation("GET", f"{_SESSION}/compactions", "session.compactions", "reader", result="compactions"),
    Operation("POST", f"{_SESSION}/compactions", "session.compact", status=201, fields=_SUMMARY,
              omits=("summarise",), prepare=_prepare_compact),
    Operation("POST", f"{_SESSION}/compact-if-needed", "session.compact_if_needed", result="compaction",
              fields=_POLICY, omits=("policy", "summarise"), prepare=_prepare_policy,
              example={"by": "tokens", "settings": {"max_tokens": 8000}}),
    # -- tasks and runs
    Operation("GET", f"{_SESSION}/tasks", "session.tasks.list", "reader"),
    Operation("PUT", f"{_SESSION}/tasks", "session.tasks.replace_all", result="tasks"),
    Operation("GET", f"{_SESSION}/tasks/{{task_id:text}}", "session.tasks.get", "reader", kind="task"),
    Operation("PUT", f"{_SESSION}/tasks/{{task_id:text}}", "session.tasks.save"),
    Operation("DELETE", f"{_SESSION}/tasks/{{task_id:text}}", "session.tasks.delete", kind="task",
              result="deleted"),
    Operation("GET", f"{_SESSION}/runs", "session.runs.list", "reader"),
    Operation("GET", f"{_SESSION}/runs/{{run_id:text}}", "session.runs.get", "reader", kind="run"),
    Operation("PUT", f"{_SESSION}/runs/{{run_id:text}}", "session.runs.save"),
    Operation("DELETE", f"{_SESSION}/runs/{{run_id:text}}", "session.runs.delete", kind="run",
              result="deleted"),
    Operation("GET", "/v1/runs", "sessions.runs", "reader"),
)  # fmt: skip

add_operations(router, OPERATIONS)
