"""The documents of every tenant, in plain Python: which are there, and what they say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from memory.domain.document import Document as Answer
from memory.ports.record import Record
from tests.model.said import Said, Wrong, same
from tests.model.words import owned

Place = tuple[str, str, str]
"""Tenant, scope and key."""
WORDS_KEPT = 5_000
"""Words of documents that are looked for when they are gone; a long run is not to grow."""


@dataclass(slots=True)
class Document:
    value: Any
    metadata: dict[str, Any]
    version: str
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None = None
    lifetime: timedelta | None = None
    """How long each read keeps it."""
    before: str = ""
    """What it said before the last change. A store may keep that for a while, to
    restore.
    """

    def expired(self, at: datetime) -> bool:
        return self.expires_at is not None and self.expires_at < at

    def shown(self, place: Place) -> dict[str, Any]:
        """What a reader is told of it, beside its size."""
        return {
            "scope": place[1],
            "key": place[2],
            "version": self.version,
            "form": "bytes" if isinstance(self.value, bytes) else "json",
            "created_at": self.created_at,
            "updated_at": self.updated_at,
            "expires_at": self.expires_at,
            "lifetime": self.lifetime,
            "value": self.value,
            "metadata": self.metadata,
        }

    def fields(self, key: str) -> dict[str, Any]:
        """What a filter compares."""
        return {"key": key, "value": self.value, "metadata": self.metadata}


class Shelf:
    """All documents, those that have expired too, until a sweep has deleted them."""

    def __init__(self) -> None:
        self.all: dict[Place, Document] = {}
        self._versions: set[str] = set()
        self._words: dict[str, None] = {}

    def get(self, place: Place, now: datetime) -> Document | None:
        found = self.all.get(place)
        return None if found is None or found.expired(now) else found

    def of(self, tenant: str, now: datetime) -> Iterator[tuple[Place, Document]]:
        """Those of a tenant that have not expired."""
        return ((at, one) for at, one in self.all.items() if at[0] == tenant and not one.expired(now))

    def scopes(self, tenant: str) -> set[str]:
        """The scopes with documents, expired ones too."""
        return {place[1] for place in self.all if place[0] == tenant}

    def counts(self, tenant: str, now: datetime) -> Counter[str]:
        return Counter(place[1] for place, _ in self.of(tenant, now))

    # -- changes -----------------------------------------------------------------------

    def put(
        self,
        said: Said,
        place: Place,
        told: Any,
        value: Any,
        metadata: dict[str, Any],
        expires_in: timedelta | None,
        *,
        refreshes: bool,
    ) -> None:
        """What the memory may choose is taken over where it can be true."""
        before = self.get(place, said.begun)
        there = self.all.get(place)
        latest = (
            said.ended if there is None else max(said.ended, there.updated_at + timedelta(microseconds=1))
        )
        created_at = told.created_at if before is None else before.created_at
        if not said.begun <= told.updated_at <= latest or not said.begun <= max(created_at, told.updated_at):
            said.wrong("is put at another time", f"{told!r}, not from {said.begun} to {said.ended}")
        if told.version in self._versions:
            said.wrong("gives a version again", told.version)
        expires_at = None if expires_in is None else told.updated_at + expires_in
        made = Document(
            value,
            metadata,
            told.version,
            told.updated_at if before is None else created_at,
            told.updated_at,
            expires_at,
            expires_in if refreshes else None,
            "" if there is None else f"{there.value} {there.metadata}",
        )
        is_same(said, told, made.shown(place))
        self.all[place] = made
        self._versions.add(made.version)
        self._words |= dict.fromkeys(owned(f"{value} {metadata}"))
        for word in list(self._words)[:-WORDS_KEPT]:
            del self._words[word]

    def read(self, place: Place, now: datetime) -> Document | None:
        """What is there now. A read begins its time anew, if that moves its end by a
        hundredth of it.
        """
        found = self.get(place, now)
        if found is not None and found.lifetime is not None and found.expires_at is not None:
            ends = now + found.lifetime
            found.expires_at = ends if ends - found.expires_at > found.lifetime / 100 else found.expires_at
        return found

    def remove(self, places: Iterable[Place]) -> int:
        return sum(self.all.pop(place, None) is not None for place in list(places))

    def in_scope(self, tenant: str, scope: str) -> list[Place]:
        return [place for place in self.all if place[:2] == (tenant, scope)]

    def stored(self, rows: Iterable[Record]) -> None:
        """The documents that are stored, expired ones too, are these."""
        found = sorted((row.key.tenant, row.scope, str(row.fields["key"])) for row in rows)
        if found != sorted(self.all):
            raise Wrong("stored documents are others", f"{found}, wanted {sorted(self.all)}")

    # -- words -------------------------------------------------------------------------

    def living_words(self) -> set[str]:
        return {word for one in self.all.values() for word in owned(f"{one.value} {one.metadata}")}

    def replaced_words(self) -> set[str]:
        return {word for one in self.all.values() for word in owned(one.before)}

    def gone_words(self) -> set[str]:
        return self._words.keys() - self.living_words()


def is_same(said: Said, told: Any, wanted: dict[str, Any]) -> None:
    """The answer says what is wanted of it: a document, or what is known of one."""
    if not isinstance(told, Answer):
        wanted = {name: value for name, value in wanted.items() if name not in ("value", "metadata")}
    differs = [
        f"{name} is {getattr(told, name)!r}, wanted {value!r}"[:500]
        for name, value in wanted.items()
        if not same(getattr(told, name), value)
    ]
    if differs:
        said.wrong("shows another document", "; ".join(differs))
