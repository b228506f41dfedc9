"""Errors over HTTP advise requests, and know neither Python nor views."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import memory.domain.errors
import memory.server.routes as routes
from memory.server.advice import in_http_words

assert routes  # it notes the requests of all calls

SOURCES = ("domain", "facade", "orchestrator")
LIBRARY = re.compile(
    r"\b(?:memory|admin|documents|entries|sessions?|relations|artifacts)\.[a-z_]+\b"
    r"|\b[a-z_]+=(?=[\s,.;)'\"{\[A-Z])|\b(?:timedelta|datetime|Scope|Filter|EntryDraft)\b"
    r"|\bviews?\b|\bpydantic\b|\ba dict\b|\bor None\b"
)
"""What only a caller of the library knows."""
NOT_OVER_HTTP = (
    "Call(",  # a value that only Python can give follows
    "Resolution('merge'",  # a function of the caller
    "a restricted view found",  # a fault: its text is in the log only
    "as out",
    "call export_messages",
    "must be a timedelta, not",
    "needs a length of time that reads restart",  # the server refuses it before
    "not a length of time",
    "has the function",
    "Name a key, such as",
    "is not called. Write filter=",
    "Raise artifacts.max_bytes",  # a setting
)
"""Parts of texts that no request brings up."""


def texts_of_errors() -> Iterator[str]:
    """Every sentence that an error of the library is made with, with X for its values."""
    errors = {name for name, one in vars(memory.domain.errors).items() if isinstance(one, type)}
    for folder in SOURCES:
        for file in Path(memory.__file__).parent.joinpath(folder).rglob("*.py"):
            if "config" in file.parts:
                continue
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") in errors:
                    yield from filter(lambda text: " " in text, map(_text, node.args))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) if isinstance(part, ast.Constant) else "'X'" for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return _text(node.body) if isinstance(node, ast.IfExp) else "X"


def test_no_error_of_the_library_advises_python_over_http() -> None:
    texts = list(texts_of_errors())
    assert len(texts) > 300
    shown = {text: in_http_words(text) for text in texts if not any(one in text for one in NOT_OVER_HTTP)}
    wrong = {text: told for text, told in shown.items() if LIBRARY.search(told)}
    assert wrong == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("erase it with `admin.erase`", "erase it with POST /v1/admin/erase"),
        ("or use memory.admin.erase(scope)", "or use POST /v1/admin/erase"),
        ("read session.state()", "read GET /v1/sessions/{session_id}/state"),
        ("needs age_decay=True. Pass both", "needs age_decay true. Pass both"),
        ("such as Scope.path('teams', 'red').subtree()", "such as path:teams/red/**"),
        ("'session.state' is no key", "'session.state' is no key"),
        ("there is no entry 'a=1'", "there is no entry 'a=1'"),
    ],
)
def test_advice_names_requests(text: str, told: str) -> None:
    assert in_http_words(text) == told
