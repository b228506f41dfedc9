"""Two small stores on editable plain files: a JSON file and a folder of Markdown.

Use them for notes beside an agent, and as examples of custom stores. Their methods
block, so a manager calls them in a thread. Each call reads the files again. Only one
process may write at a time.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import unicodedata
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol
from weakref import WeakValueDictionary

from memory.agents.manager.stores import content_of
from memory.domain import validation
from memory.domain.agent_results import StoreEntry
from memory.domain.corrections import explain_arguments
from memory.domain.errors import CorruptRecord, InvalidInput
from memory.ports.local_paths import absolute_path

FOLDER = Path("~/.memory-tiers")
LONGEST_SLUG = 50
_UNFIT = re.compile(r"\.\.+|[^\w.-]", re.ASCII)
_LOOKING = threading.Lock()
_TURNS: WeakValueDictionary[Path, Any] = WeakValueDictionary()
"""A lock for each path on which this process has a store."""


class Strategy(Protocol):
    """A custom search for a store.

    `index` receives every added text. `search` returns ids with their scores, the best
    first.
    """

    def index(self, entry_id: str, content: str) -> object: ...
    def search(self, query: str, limit: int) -> Sequence[tuple[str, float]]: ...


@dataclass(frozen=True, slots=True)
class _Text:
    """One text of a store."""

    id: str
    content: str
    metadata: Mapping[str, Any] | None
    at: float


@explain_arguments
class JsonStore:
    """A store in one JSON file, or in memory without a path.

    `JsonStore.at_home("notes")` uses a file in the home folder. No file is touched
    before the first call.
    """

    def __init__(self, path: Path | str | None = None, *, strategy: Strategy | None = None) -> None:
        self._path = None if path is None else absolute_path(path)
        self._strategy = strategy
        self._held: list[dict[str, Any]] = []
        self._turn = _turn_of(self._path)

    @classmethod
    def at_home(cls, name: str, *, strategy: Strategy | None = None) -> JsonStore:
        """Open the store at `~/.memory-tiers/<name>.json`.

        Characters that are not allowed in a file name become `_`.
        """
        if not validation.identifier("name", name).strip():
            raise InvalidInput("name", "must not be blank")
        return cls(FOLDER / f"{_UNFIT.sub('_', name).lstrip('.') or '_'}.json", strategy=strategy)

    def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Add a text and return its id. The same text again returns the same id."""
        text = content_of(content)
        about = None if metadata is None else validation.json_object("metadata", metadata)
        with self._turn:
            records = self._read()
            for record in records:
                if record["content"] == text:
                    return str(record["id"])
            made = str(uuid.uuid4())
            self._write(
                [
                    *records,
                    {
                        "id": made,
                        "content": text,
                        "metadata": about,
                        "created_at": datetime.now(UTC).isoformat(),
                    },
                ]
            )
            if self._strategy is not None:
                self._strategy.index(made, text)
        return made

    def search(self, query: str, *, limit: int = 3) -> list[StoreEntry]:
        """Return entries by the number of query words that they have, best first.

        Ties are ordered from the newest. Entries without any of the words are left out.
        The score is in the metadata.
        """
        with self._turn:
            records = self._read()
        texts = [
            _Text(r["id"], r["content"], r["metadata"], datetime.fromisoformat(r["created_at"]).timestamp())
            for r in records
        ]
        return _search_texts(texts, query, limit, self._strategy)

    def _read(self) -> list[dict[str, Any]]:
        if self._path is None or not self._path.exists():
            return list(self._held)
        try:
            records = json.loads(self._path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise self._corrupt_record_error(None, f"not JSON: {error}") from None
        if not isinstance(records, list):
            raise self._corrupt_record_error(None, f"must be a list of records, not {type(records).__name__}")
        return [self._check_record(number, record) for number, record in enumerate(records)]

    def _check_record(self, number: int, record: object) -> dict[str, Any]:
        """Check a record that a user may have edited.

        A missing id, time or metadata gets a default.
        """
        if not isinstance(record, dict) or not isinstance(record.get("content"), str):
            raise self._corrupt_record_error(number, "a record must be an object with a content that is text")
        if not isinstance(record.get("metadata"), dict | None):
            raise self._corrupt_record_error(
                number, f"metadata must be an object, not {type(record['metadata']).__name__}"
            )
        given = {
            "id": str(uuid.uuid5(uuid.NAMESPACE_OID, record["content"])),
            "metadata": None,
            "created_at": "1970-01-01T00:00:00+00:00",
            **record,
        }
        try:
            datetime.fromisoformat(given["created_at"])
        except (TypeError, ValueError):
            raise self._corrupt_record_error(number, "created_at must be a moment in ISO 8601") from None
        return given

    def _corrupt_record_error(self, number: int | None, problem: str) -> CorruptRecord:
        return CorruptRecord(
            str(self._path),
            number,
            problem,
            "; nothing was changed. Correct the file by hand, or move it away to start with no records",
        )

    def _write(self, records: list[dict[str, Any]]) -> None:
        if self._path is None:
            self._held = records
            return
        _replace(self._path, json.dumps(records, indent=2, ensure_ascii=False) + "\n")


@explain_arguments
class MarkdownStore:
    """Notes in a folder, one Markdown file for each distinct first line.

    Texts with the same first line go into the same file. `namespace` is a subfolder:
    stores with different namespaces do not see each other's notes.
    """

    def __init__(
        self, folder: Path | str, namespace: str = "notes", *, strategy: Strategy | None = None
    ) -> None:
        if not any(map(str.isalnum, validation.identifier("namespace", namespace))):
            raise InvalidInput("namespace", "must have a letter or a digit")
        self._folder = absolute_path(folder) / _folder_of(namespace)
        self._strategy = strategy
        self._turn = _turn_of(self._folder)

    def add(self, content: str, metadata: Mapping[str, Any] | None = None) -> str:
        """Add a text to a note, and return the name of the note's file.

        The first line of the text names the note. The other lines of the text are
        appended to the note's file, which is created if needed. Metadata is not stored,
        because the file holds only prose.
        """
        heading, _, rest = content_of(content).strip().partition("\n")
        with self._turn:
            path = self._folder / f"{_slug(heading) or self._fallback_name()}.md"
            before = path.read_text(encoding="utf-8") if path.exists() else f"{heading}\n"
            more = _lines_to_add(heading, rest.strip(), before)
            said = f"{before.rstrip()}\n{more}\n" if more else before
            if not path.exists() or said != before:
                self._folder.mkdir(parents=True, exist_ok=True)
                _replace(path, said)
                if self._strategy is not None:
                    self._strategy.index(path.name, said)
        return path.name

    def _fallback_name(self) -> str:
        """Return an unused file name for a first line that yields none."""
        at = time.time_ns() // 1_000_000
        while (self._folder / f"entry-{at}.md").exists():
            at += 1
        return f"entry-{at}"

    def search(self, query: str, *, limit: int = 10) -> list[StoreEntry]:
        """Return notes by the number of query words that they have, best first.

        Ties are ordered from the last written.
        """
        with self._turn:
            paths = sorted(self._folder.glob("*.md")) if self._folder.is_dir() else []
            texts = [
                _Text(p.name, p.read_text(encoding="utf-8").strip(), {"file": p.name}, p.stat().st_mtime)
                for p in paths
            ]
        return _search_texts(texts, query, limit, self._strategy)


def _turn_of(path: Path | None) -> Any:
    """Return the lock of a path, which all stores of this process on the path share."""
    if path is None:
        return threading.Lock()
    with _LOOKING:
        return _TURNS.setdefault(path, threading.Lock())


def _search_texts(
    texts: Sequence[_Text], query: str, limit: int, strategy: Strategy | None
) -> list[StoreEntry]:
    query, limit = validation.text("query", query), validation.whole_limit(limit, default=len(texts))
    if strategy is None:
        asked = _words(query)
        scored = [(float(len(asked & _words(text.content))), text) for text in texts]
        ranked = sorted([one for one in scored if one[0]], key=lambda one: (one[0], one[1].at), reverse=True)
    else:
        by_id = {text.id: text for text in texts}
        ranked = [(score, by_id[i]) for i, score in strategy.search(query, limit) if i in by_id]
    return [
        StoreEntry(text.content, metadata={**(text.metadata or {}), "score": score})
        for score, text in ranked[:limit]
    ]


def _words(text: str) -> set[str]:
    return set(_in_order(text))


def _in_order(text: str) -> list[str]:
    """Return the words of a text in order.

    A combining mark, such as a vowel sign of Devanagari, belongs to its letter.
    """
    kept = " "
    for c in unicodedata.normalize("NFC", text.casefold()):
        kept += (
            c if c == "_" or c.isalnum() or (kept[-1] != " " and unicodedata.category(c)[0] == "M") else " "
        )
    return kept.split()


def _folder_of(namespace: str) -> str:
    """Return a folder name that is unique to the namespace.

    If characters must be replaced, a digest of the whole namespace is appended.
    """
    fit = _UNFIT.sub("_", namespace).lstrip(".")
    return fit if fit == namespace else f"{fit}-{sha256(namespace.encode()).hexdigest()[:8]}"


def _slug(heading: str) -> str:
    """Return the file name for a first line; empty if the line has no word."""
    return _full_slug(heading)[:LONGEST_SLUG].strip("-")


def _full_slug(heading: str) -> str:
    return "-".join(_in_order(heading.lstrip("#")))


def _lines_to_add(heading: str, rest: str, note: str) -> str:
    """Return the lines that a text adds to the note that its first line names.

    The first line itself is among them if the file name truncates it and the note does
    not have it yet.
    """
    named = _full_slug(heading)
    is_there = len(named) <= LONGEST_SLUG or any(_full_slug(line) == named for line in note.splitlines())
    return rest if is_there else f"{heading}\n{rest}".strip()


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
