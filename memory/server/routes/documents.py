"""Routes of documents: JSON or bytes under keys of scopes.

The scope and the key of a document are in the query. A key may be any text, such as
`..` or `a/b`, and clients and proxies change such texts in a path.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from memory.domain.document import (
    Document,
    DocumentDelete,
    DocumentInfo,
    DocumentPage,
    DocumentPut,
    IfDocumentExists,
)
from memory.domain.error_table import notes_without_details
from memory.domain.errors import InvalidInput, NotFound
from memory.domain.results import as_json
from memory.domain.versions import ABSENT
from memory.server.bodies import RequestBody
from memory.server.callers import Caller, Reader
from memory.server.facade_calls import Values
from memory.server.operations import Operation, add_operations
from memory.server.requests import IfNoneMatch, etag_of, is_unchanged
from memory.server.routes.artifacts import BYTES, INERT
from memory.server.routing import ApiRoute

router = APIRouter(tags=["documents"], route_class=ApiRoute)
_ITEM = "/v1/documents/item"


class ShownDocument(BaseModel):
    """A document. Lists have no value and metadata unless `values` is set."""

    scope: str
    key: str
    version: str = Field(description="The ETag.")
    form: Literal["json", "bytes"]
    size: int = Field(description="The size of the value in bytes.")
    created_at: str
    updated_at: str
    expires_at: str | None
    lifetime: float | None = Field(description="Seconds from a read to the expiry.")
    value: Any = Field(default=None, description="The value: JSON, or bytes in base64.")
    metadata: dict[str, Any] | None = None


class ShownDocuments(BaseModel):
    """A page of documents."""

    documents: list[ShownDocument]
    cursor: str | None
    damaged: int = Field(description="Documents of this page that cannot be read.")
    degraded: list[str]


class FoundDocuments(BaseModel):
    """Documents in the order of the keys; null for a key without a document."""

    documents: list[ShownDocument | None]


class StoredDocuments(BaseModel):
    """For each change the stored document; null for a deletion."""

    documents: list[ShownDocument | None]


class PutOfMany(RequestBody):
    """One document of several that are stored."""

    scope: str
    key: str
    value: Any = None
    value_base64: str | None = Field(default=None, description="The value as bytes.")
    metadata: dict[str, Any] | None = None
    expires_in: float | str | None = None
    refresh_on_read: bool = False
    if_exists: IfDocumentExists = "replace"
    expected_version: str | None = Field(default=None, description="A version, or ABSENT.")


class Change(PutOfMany):
    """One change of a document: a put, or a deletion."""

    op: Literal["put", "delete"]


def _show(document: DocumentInfo | None) -> Any:
    if isinstance(document, Document) and isinstance(document.value, bytes):
        shown = {
            name: as_json(getattr(document, name)) for name in ShownDocument.model_fields if name != "value"
        }
        return {**shown, "value": base64.b64encode(document.value).decode()}
    return as_json(document)


def _show_document(caller: Caller, document: DocumentInfo, asked: Values) -> Any:
    return _show(document)


def _show_page(caller: Caller, page: DocumentPage, asked: Values) -> Values:
    return {
        "documents": [_show(one) for one in page.documents],
        "cursor": page.cursor,
        "damaged": page.damaged,
        "degraded": notes_without_details(page.degraded),
    }


def _show_documents(caller: Caller, documents: list[Any], asked: Values) -> Values:
    return {"documents": [_show(one) for one in documents]}


def _value_of(values: Values, path: str = "") -> Any:
    """Take the value of a put out of its fields: JSON, or bytes in base64."""
    if ("value" in values) == (values.get("value_base64") is not None):
        raise InvalidInput(f"{path}value", "must be given, or value_base64 for bytes. Pass one of the two")
    if "value" in values:
        values.pop("value_base64", None)
        return values.pop("value")
    try:
        return base64.b64decode(values.pop("value_base64"), validate=True)
    except (ValueError, binascii.Error):
        raise InvalidInput(f"{path}value_base64", "is not valid base64") from None


def _prepare_put(caller: Caller, values: Values) -> None:
    values["value"] = _value_of(values)


def _prepare_changes(caller: Caller, values: Values) -> None:
    values["changes"] = [_change(one, f"changes[{at}].") for at, one in enumerate(values["changes"])]


def _prepare_puts(caller: Caller, values: Values) -> None:
    values["puts"] = [_put(_fields_of(one), f"puts[{at}].") for at, one in enumerate(values["puts"])]


def _fields_of(change: PutOfMany) -> Values:
    given = change.sent_fields()
    if given.get("expected_version") == repr(ABSENT):
        given["expected_version"] = ABSENT
    return given


def _put(given: Values, path: str) -> DocumentPut:
    return DocumentPut(value=_value_of(given, path), **given)


def _change(change: Change, path: str) -> DocumentPut | DocumentDelete:
    given = _fields_of(change)
    if given.pop("op") == "put":
        return _put(given, path)
    if unknown := given.keys() - {"scope", "key", "expected_version"}:
        raise InvalidInput(f"{path}{min(unknown)}", "cannot be combined with op=delete")
    return DocumentDelete(**given)


_BASE64 = {
    "value": (Annotated[Any, Field(description="JSON of up to 32 MiB.")], None),
    "value_base64": (Annotated[str | None, Field(description="Bytes in base64, instead of `value`.")], None),
}

OPERATIONS = (
    Operation("GET", "/v1/documents", "documents.list", "reader", show=_show_page, model=ShownDocuments),
    Operation(
        "GET",
        _ITEM,
        "documents.get",
        "reader",
        kind="document",
        etag="version",
        show=_show_document,
        model=ShownDocument,
    ),
    Operation(
        "PUT",
        _ITEM,
        "documents.put",
        etag="version",
        in_query=("scope", "key"),
        fields=_BASE64,
        prepare=_prepare_put,
        show=_show_document,
        model=ShownDocument,
        example={"value": {"theme": "dark"}, "expires_in": "2h"},
    ),
    Operation("DELETE", _ITEM, "documents.delete", kind="document", result="deleted"),
    Operation(
        "POST",
        "/v1/documents/get",
        "documents.get_many",
        "reader",
        show=_show_documents,
        model=FoundDocuments,
        example={"scope": "user:ada", "keys": ["settings", "cache"]},
    ),
    Operation("GET", "/v1/documents/find", "documents.find", "reader", show=_show_page, model=ShownDocuments),
    Operation("POST", "/v1/documents/delete", "documents.delete_many", result="deleted"),
    Operation(
        "POST",
        "/v1/documents/put",
        "documents.put_many",
        fields={"puts": Annotated[list[PutOfMany], Field(description="Up to 1,000 documents.")]},
        prepare=_prepare_puts,
        show=_show_documents,
        model=StoredDocuments,
        example={
            "puts": [
                {"scope": "user:ada", "key": "step:1", "value": {"n": 1}},
                {"scope": "user:ada", "key": "step:2", "value": {"n": 2}},
            ]
        },
    ),
    Operation(
        "POST",
        "/v1/documents/apply",
        "documents.apply",
        fields={"changes": Annotated[list[Change], Field(description="Up to 100 changes.")]},
        prepare=_prepare_changes,
        show=_show_documents,
        model=StoredDocuments,
        example={
            "changes": [
                {"op": "put", "scope": "user:ada", "key": "step:2", "value": {"n": 2}},
                {"op": "delete", "scope": "user:ada", "key": "step:1"},
            ]
        },
    ),
)

add_operations(router, OPERATIONS)


@router.get(
    "/v1/documents/raw",
    response_class=Response,
    responses={200: {"description": "The value", **BYTES}, 304: {"description": "Not modified"}},
)
async def read_document(
    caller: Reader,
    scope: Annotated[str, Query(description="The scope of the document.")],
    key: Annotated[str, Query(description="Its key.")],
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return the value of a document as an attachment: bytes, or a text of JSON."""
    found = await caller.memory.documents.get(scope, key)
    if found is None:
        raise NotFound(key, "document")
    headers = {**INERT, "ETag": etag_of(found.version), "Content-Disposition": "attachment"}
    if is_unchanged(if_none_match, found.version):
        return Response(status_code=304, headers=headers)
    data = found.value
    if not isinstance(data, bytes):
        data = json.dumps(data, ensure_ascii=False).encode()
    return Response(data, headers=headers, media_type="application/octet-stream")
