"""Common parts of requests: ids, conditions, pages and preferences."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final, TypeVar, cast
from urllib.parse import quote, urlencode

from fastapi import Header, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from memory.domain.errors import InvalidInput
from memory.domain.ids import is_id
from memory.domain.versions import ABSENT, is_version
from memory.facade.arguments import length
from memory.facade.search_options import Include as EntryParts
from memory.server.bodies import PARTS_TEXT
from memory.server.callers import Caller
from memory.server.paths import own_path, prefix_of
from memory.server.problems import Problem, bad_request

Limit = Annotated[
    int | None,
    Query(
        description="At most this many results: 1 to 1,000.",
        json_schema_extra={"minimum": 1, "maximum": 1000},
    ),
]
Cursor = Annotated[
    str | None, Query(description="Continue after an earlier page, with the cursor that it returned.")
]
AsOf = Annotated[str | None, Query(description="Show what was true at this moment.")]
KnownAt = Annotated[str | None, Query(description="Show what was stored at this moment.")]
Include = Annotated[list[str] | None, Query(description=PARTS_TEXT)]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        description="Your id for this request. A repeat within 24 hours returns the first outcome.",
    ),
]
UnstoredKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=128,
        description="A second request with this id is refused while the first runs. Afterwards, it runs too.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", description="Act only if the record has this ETag, one of these, or any (*)."),
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match", description="A known ETag, or *.")]
Prefer = Annotated[
    str | None,
    Header(alias="Prefer", description="wait=5 waits up to 5 s for enrichment, and for replicas."),
]
_SHORT_ID: Final = re.compile(r"#?[0-9]{1,18}")
_ETAG: Final = r'(W/)?"([\x21\x23-\x7e\x80-\xff]*)"'
_ETAGS: Final = re.compile(rf"[\s,]*{_ETAG}(\s*,[\s,]*{_ETAG})*[\s,]*")


_LONGEST_NAME: Final = 71
"""A name, a slash and an `Idempotency-Key` fit into the 200 bytes of `commands.run`."""


def request_id_of(caller: Caller, key: str | None) -> str | None:
    """Return the `request_id` of an `Idempotency-Key`: each key has ids of its own."""
    if key is None:
        return None
    name = caller.key_id.encode()
    if len(name) > _LONGEST_NAME:  # the subject of a token, which would leave no room for the key
        return f"{hashlib.sha256(name).hexdigest()}/{key}"
    return f"{caller.key_id}/{key}"


_TARGETS: Final = (
    *("id", "entry_id", "entry_ids", "source_id", "target_id", "supersedes", "scope", "user", "agent"),
    *("session_id", "key", "keys", "source", "name", "run", "to"),
)
_MOST_TARGETS: Final = 50


def targets_of(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the names and ids in the fields of a request, for the audit log.

    A route puts them into its scope as `audit_targets`. The log hashes the names.
    """
    found = list[tuple[str, str]]()
    for name in _TARGETS:
        given = values.get(name)
        several = given if isinstance(given, list) else [given]
        found += [(name, one) for one in several[:_MOST_TARGETS] if isinstance(one, str)]
    return found


async def expected_version(
    if_match: str | None,
    read: Callable[[], Awaitable[str | None]],
    request_id: str | None,
    *,
    creates: bool = False,
) -> str | None:
    """Return the `expected_version` of an `If-Match`; None if any version will do.

    Weak ETags match nothing, and neither do texts that no record has as its ETag.

    Args:
        if_match: The header.
        read: Returns the current version; None if there is no such record. It is called
            if the header leaves open which version the call must find.
        request_id: That of the request. A repeat must find the same version.
        creates: Whether the call creates a record that is missing. `*` forbids it.

    Raises:
        Problem: 412 if nothing matches, and 400 for a header that cannot be checked.
    """
    if if_match is None or (if_match.strip() == "*" and not creates):
        return None
    known = _strong_tags(if_match)
    if known is not None and len(known) < 2:
        if not known:
            raise _no_match()
        return known[0]
    if request_id is not None:
        raise bad_request("If-Match", "must be one ETag in a request with an Idempotency-Key")
    version = await read()
    if version is None or (known is not None and version not in known):
        raise _no_match()
    return version


def _strong_tags(if_match: str) -> list[str] | None:
    """Return the versions in an `If-Match`; None for `*`."""
    if if_match.strip() == "*":
        return None
    if not _ETAGS.fullmatch(if_match):
        raise bad_request("If-Match", 'must be *, or ETags as they were received, such as "abc"')
    return [tag for weak, tag in re.findall(_ETAG, if_match) if not weak and is_version(tag)]


def _no_match() -> Problem:
    return Problem(412, "version_conflict", "If-Match: no ETag in it is that of the record. Read it again")


def expects_absence(if_none_match: str | None) -> Any:
    """Return `ABSENT` for `If-None-Match: *`, and None without the header."""
    if if_none_match is None:
        return None
    if if_none_match.strip() == "*":
        return ABSENT
    raise bad_request("If-None-Match", "must be * in a request that writes")


def etag_of(version: str) -> str:
    """Return the ETag of a version."""
    return f'"{version}"'


def is_unchanged(if_none_match: str | None, version: str) -> bool:
    """Return whether the client knows this version already."""
    if if_none_match is None:
        return False
    if if_none_match.strip() == "*":
        return True
    return any(tag == version for _, tag in re.findall(_ETAG, if_none_match))


async def full_id(
    caller: Caller,
    text: str,
    kind: str = "entry",
    *,
    missing: str | None = None,
    request_id: str | None = None,
) -> str:
    """Return the full id that a path names by a UUID, `42` or `#42`.

    With a `request_id`, a repeat gets the same id, even if its record is deleted.

    Raises:
        Problem: 404 where the text names nothing of this kind, with the text `missing`.
    """
    if is_id(text):
        return text
    if _SHORT_ID.fullmatch(text) and caller.scopes is None:
        found = await caller.memory.short_ids.resolve(text, request_id=request_id)
        if found is not None and found.kind == kind:
            return found.id
    raise Problem(404, "not_found", missing) if missing else not_found(kind, text)


def not_found(kind: str, text: str) -> Problem:
    """Return the problem of an id that names nothing of this kind."""
    return Problem(404, "not_found", f"there is no {kind} {text[:80]!r}")


def outer_cursor(caller: Caller, cursor: str | None) -> str | None:
    """Return the cursor that a client gets: bound to the key that asked."""
    if cursor is None:
        return None
    return base64.urlsafe_b64encode(_binding(caller, cursor) + cursor.encode()).decode().rstrip("=")


def inner_cursor(caller: Caller, cursor: str | None) -> str | None:
    """Return the library's cursor of a client's cursor.

    Raises:
        Problem: The cursor is damaged, or another key received it.
    """
    if cursor is None:
        return None
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        inner = data[_BINDING:].decode()
    except ValueError:
        data, inner = b"", ""
    if not inner or data[:_BINDING] != _binding(caller, inner):
        raise bad_request("cursor", "is damaged, or belongs to another key. Begin again without it")
    return inner


_BINDING: Final = 12


def _binding(caller: Caller, cursor: str) -> bytes:
    return hashlib.sha256(f"{caller.key_id}\0{cursor}".encode()).digest()[:_BINDING]


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """Return the header `Link` to the next page; empty on the last page."""
    if cursor is None:
        return {}
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    path = quote(
        prefix_of(request.scope) + own_path(request.scope), safe="/%"
    )  # "%" begins what `EncodedPaths` left encoded
    return {"Link": f'<{path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'}


_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,4})(?:$|[,;\s])")


def wait_of(prefer: str | None) -> float | None:
    """Return the seconds of `Prefer: wait=5`; None without such a preference."""
    found = None if prefer is None else _WAIT.search(prefer)
    return None if found is None else float(found[1])


def split_list(values: list[str] | None) -> list[str] | None:
    """Return the values of a parameter that is repeated, or divided by commas."""
    if not values:
        return None
    return [part.strip() for value in values for part in value.split(",")]


def with_expiry(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an entry with `expires_in` as its `expires_at`.

    Raises:
        Problem: 400 if both are given, or a refresh without a length of time.
    """
    fields = dict(given)
    if fields.get("refresh_on_read") and fields.get("expires_in") is None:
        raise bad_request("refresh_on_read", "needs expires_in: each read restarts this length of time")
    if "expires_in" in fields:
        duration = fields.pop("expires_in")
        if fields.get("expires_at") is not None:
            raise bad_request("expires_in", "cannot be combined with expires_at. Send one of the two")
        fields["expires_at"] = None if duration is None else length("expires_in", duration)
    return fields


def parts_of(include: list[str] | None) -> EntryParts | None:
    """Return the parts of entries that a parameter names; none if it is empty."""
    if include is None:
        return None
    named = [name for name in split_list(include) or () if name]
    return cast("EntryParts", named)  # the library checks them


_WORDS: Final = {"true": True, "1": True, "on": True, "yes": True}
_WORDS_OF_NO: Final = {"false": False, "0": False, "off": False, "no": False}


def switch(field: str, value: str | None, *, default: bool, expected: str = "on or off") -> bool:
    """Return a parameter that is on or off.

    Raises:
        Problem: 400 for another value.
    """
    if value is None:
        return default
    if (found := (_WORDS | _WORDS_OF_NO).get(value.strip().lower())) is None:
        raise bad_request(field, f"must be {expected}, not {value[:40]!r}")
    return found


@contextmanager
def named_here(**names: str) -> Iterator[None]:
    """Let errors of the library name the fields of this request.

    Args:
        **names: The field of this request, by the library's name; `__` is a dot.
    """
    try:
        yield
    except InvalidInput as error:
        here = {name.replace("__", "."): own for name, own in names.items()}
        if (own := here.get(error.field)) is None:
            raise
        raise InvalidInput(own, error.problem.replace(f" {error.field}:", f" {own}:")) from None


Q = TypeVar("Q", bound=BaseModel)


def described_query(model: type[BaseModel]) -> dict[str, Any]:
    """Return the `openapi_extra` of a route that reads its query by `read_query`.

    FastAPI looks at each parameter for each request, which takes a millisecond for
    twenty. A model is read at once.
    """
    schema = model.model_json_schema()["properties"]
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": field.description,
            "schema": next(one for one in schema[name]["anyOf"] if one != {"type": "null"})
            | (field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}),
        }
        for name, field in model.model_fields.items()
    ]
    return {"parameters": parameters}


def read_query(request: Request, model: type[Q]) -> Q:
    """Return the query of a request as a model of optional fields.

    Raises:
        RequestValidationError: A value has another type.
    """
    values = dict[str, Any]()
    for name, value in request.query_params.multi_items():
        if "list" in str(model.model_fields[name].annotation):
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = [{**one, "loc": ("query", *one["loc"])} for one in error.errors()]
        raise RequestValidationError(found) from None


async def stream_of(request: Request) -> AsyncIterator[bytes]:
    """Yield the body of a request piece by piece, of any size."""
    request.scope["body"].limit = None
    async for piece in request.stream():
        if piece:
            yield piece
