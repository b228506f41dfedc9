"""Errors of the library in words of HTTP: requests in place of calls and views."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from memory.domain.model_errors import json_words

_REQUESTS: Final[dict[str, str]] = {
    "memory.write_many": "POST /v1/memory/entries/batch",
    "memory.retrieve": "GET /v1/memory/entries",
    "memory.search": "POST /v1/memory/search",
    "memory.session": "POST /v1/sessions/{session_id}/messages",
    "artifacts.stream": "GET /v1/memory/artifacts/{artifact_id}/raw",
}
"""The requests of calls. Routes of the tables are added as they are made."""
_PHRASES: Final[tuple[tuple[re.Pattern[str], str], ...]] = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (
            r"write timedelta\([^()]*\), for a moment a datetime with a zone",
            "send expires_in, for a moment text with a zone",
        ),
        (r"write a datetime with a zone, or ISO 8601 text", "send ISO 8601 text"),
        (r"such as hashlib\.sha256\(text\.encode\(\)\)\.hexdigest\(\)", "such as its SHA-256"),
        (r"such as str\(uuid\.uuid4\(\)\)", "such as a UUID"),
        (r"\ba Scope(?: or|,) its text", "a scope"),
        (r"Pass a timedelta or days", "Pass days"),
        (r"\bexpected_version=ABSENT\b", "If-None-Match: *"),
        (r"\. Scope\.path\('teams', 'red'\) writes it", ""),
        (r"\bScope\.path\('(\w+)', '(\w+)'\)\.subtree\(\)", r"path:\1/\2/**"),
        (r"\bScope\.path\('(\w+)', '(\w+)'\)", r"path:\1/\2/"),
        (r"\bScope\.path\('(\w+)'\)", r"path:\1/"),
        (r"\bScope\.(\w+)\('([^']*)'\)", r"\1:\2"),
        (r"~?\bFilter\.\w+\([^()]*\)(?:\.\w+\([^()]*\))* or ", ""),
        (r" or Filter\.metadata\([^()]*\)", ""),
        (r"\ba Filter or a dict such as", "an object such as"),
        (
            r"\ban EntryDraft, or a dict with the arguments of write,",
            "an object with the fields of an entry,",
        ),
        (r"\ba dict such as", "an object such as"),
        (r"`memory ([a-z-]+)( --[a-z-]+)?`", r"the operator's command `memory \1\2`"),
        (r"Call the memory, or a view that is restricted by role alone", "Use a key without scopes"),
        (r"which no restricted view reaches\. Call the memory", "which this key does not reach"),
        (r"Use a (?:view with role 'writer'|writer's)", "Use a key with role writer"),
        (r"restrict the view to the session's scope too", "use a key that has the session's scope too"),
        (r"outside of its scopes\. Report this fault", "outside of its scopes"),
        (r"\b(this|the|a) view\b", r"\1 key"),
    )
)


def note_request(call: str, method: str, path: str) -> None:
    """Note which request makes a call of the facade, such as `admin.erase`."""
    _REQUESTS.setdefault(call, f"{method} {path.replace(':text}', '}')}")
    _call_pattern.cache_clear()


def in_http_words(text: str) -> str:
    """Return the text of an error for a client that knows the HTTP API only.

    Calls of the library become requests, views become keys, and Python becomes JSON.
    """
    text = _call_pattern().sub(_request_of, json_words(text))
    for pattern, words in _PHRASES:
        text = pattern.sub(words, text)
    return text


@cache
def _call_pattern() -> re.Pattern[str]:
    """Return the pattern of a call: in backticks, of the memory, or of a resource."""
    arguments = r"(?:\([^()]*\))?"
    known = sorted(_REQUESTS, key=len, reverse=True)
    short = [name.removeprefix("memory.") for name in known]
    resources = [name for name in known if not name.startswith("memory.")]
    any_name, a_resource = ("|".join(map(re.escape, names)) for names in (short, resources))
    forms = (
        rf"`(?:memory\.)?({any_name}){arguments}`",
        rf"\bmemory\.({any_name}){arguments}(?:\.append{arguments})?",
        rf"(?<![\w.`'\"])({a_resource}){arguments}(?![\w.])",
    )
    return re.compile("|".join(forms))


def _request_of(found: re.Match[str]) -> str:
    name = next(filter(None, found.groups()))
    return _REQUESTS.get(name) or _REQUESTS[f"memory.{name}"]
