"""Checks of `request_id`, and what identifies the request of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from memory.domain import validation
from memory.domain.entry import EntryDraft, PartialDraft
from memory.domain.errors import InvalidInput
from memory.domain.ids import is_id
from memory.facade.write_options import WriteMode
from memory.orchestrator.storage.requests import Request, partition_mark, partition_mark_of
from memory.orchestrator.storage.session_keys import scope_of

MAX_REQUEST_ID_BYTES = 255
_NOT_ASKED = ("consistency", "request_id", "resolve")
"""The options of a write that do not change what it stores, or have no stable text."""


_CONTENT: ContextVar[str | None] = ContextVar("content of a server's request", default=None)


@contextmanager
def requests_with(content: str | None) -> Iterator[None]:
    """Add the content of a server's request to the requests of the calls within.

    A server takes more from it than arguments, such as the text that a function
    returns. So a `request_id` that is used with other content is refused.

    Args:
        content: A digest of the content.
    """
    before = _CONTENT.set(content)
    try:
        yield
    finally:
        _CONTENT.reset(before)


def check_request_id(value: object) -> str | None:
    """Validate a request id: 1 to 255 bytes of any text but NUL."""
    if value is None:
        return None
    checked = validation.identifier("request_id", value)
    if len(checked.encode()) > MAX_REQUEST_ID_BYTES:
        raise InvalidInput(
            "request_id",
            f"exceeds {MAX_REQUEST_ID_BYTES} bytes. Pass a shorter id, such as str(uuid.uuid4())",
        )
    return checked


def request_of(
    operation: str, request_id: object, asked: Mapping[str, Any], about: Iterable[str] = ()
) -> Request | None:
    """Return the request of a call, or None if it has no request id."""
    if (checked := check_request_id(request_id)) is None:
        return None
    if (content := _CONTENT.get()) is not None:
        asked = {**asked, "content": content}
    return Request.of(operation, checked, asked, about)


def request_about(
    operation: str, request_id: object, asked: Mapping[str, Any], *record_ids: str
) -> Request | None:
    """Return the request of a call that names records by their ids."""
    about = [partition_mark_of(one) for one in record_ids if is_id(one)]
    return request_of(operation, request_id, {**asked, "ids": record_ids}, about)


def request_of_writes(
    operation: str, tenant: str, request_id: object, parts: Iterable[tuple[EntryDraft, WriteMode]]
) -> Request | None:
    """Return the request of a call that writes entries."""
    if check_request_id(request_id) is None:
        return None
    asked = [(draft, _request_fields(draft, mode)) for draft, mode in parts]
    about = {partition_mark(tenant, draft.scope.text) for draft, _ in asked}
    return request_of(operation, request_id, {"writes": [said for _, said in asked]}, about)


def session_partition(tenant: str, session_id: str) -> str:
    """Return the text by which the records of requests name a session."""
    return partition_mark(tenant, scope_of(session_id))


def request_of_session(
    operation: str, tenant: str, session_id: str, request_id: object, asked: Mapping[str, Any]
) -> Request | None:
    """Return the request of a call that changes a session."""
    about = [session_partition(tenant, session_id)]
    return request_of(operation, request_id, {**asked, "session": session_id}, about)


def noted_flag(value: bool) -> dict[str, Any]:
    """Return what is noted of a result that is true or false."""
    return {"result": bool(value)}


async def read_flag(noted: Any) -> bool:
    """Return the result of `noted_flag`."""
    return bool(noted["result"])


def noted_number(value: int) -> dict[str, Any]:
    """Return what is noted of a result that is a number."""
    return {"result": int(value)}


async def read_number(noted: Any) -> int:
    """Return the result of `noted_number`."""
    return int(noted["result"])


def _request_fields(draft: EntryDraft, mode: WriteMode) -> dict[str, Any]:
    how = {
        name: value
        for name, value in mode.items()
        if name not in _NOT_ASKED and value not in (None, False, "error", (), [])
    }
    given: dict[str, Any] = {"given": sorted(draft.given_fields)} if isinstance(draft, PartialDraft) else {}
    given |= {} if draft.vector is None else {"vector": draft.vector.hex()}
    said = draft.model_dump(mode="json", exclude={"scope"})
    return {"scope": draft.scope.text, "entry": said, "how": how, **given}
