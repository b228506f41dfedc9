"""The names of tables, readable without SQLAlchemy: all of a store on a server begin
with its prefix.

Databases that were made before there was a prefix (form 4) have the adapter's own
tables under the default prefix, and those of collections under the collections' bare
names. They are used as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, TypeAlias

from pydantic import Field

DEFAULT_PREFIX = "memory_"
BARE_FORM, FORM = 4, 5
"""The forms of tables on a server. A file has the first, see
`memory.adapters.sql.migrate`.
"""
LONGEST_COLLECTION = 40
"""Bytes of a collection's name."""
_LONGEST_NAME = 63
"""Of a table or an index; PostgreSQL cuts longer ones silently, MySQL takes one more."""
LONGEST_PREFIX = _LONGEST_NAME + 1 - len("words_") - LONGEST_COLLECTION
"""With the longest name behind it, that of a table of words on MySQL."""
_RESERVED = frozenset({"partitions", "quarantine", "schema_version", "collections", "record_numbers"})
"""The adapter's own tables, behind the prefix."""

_PREFIX = f"1 to {LONGEST_PREFIX} lower-case ASCII letters, digits and underscores that begin with a letter"
TablePrefix: TypeAlias = Annotated[
    str, Field(pattern=rf"^[a-z][a-z0-9_]{{0,{LONGEST_PREFIX - 1}}}$", description=_PREFIX)
]


_FORMAT = "format "
"""Before the note of the format (`memory.ports.formats`), which is a row beside that of
the form.
"""


def form_and_format(versions: Iterable[str]) -> tuple[str | None, str | None]:
    """The form of the tables and the note of the format, of the rows of the table of
    versions.
    """
    rows = list(versions)
    form = next((row for row in rows if not row.startswith(_FORMAT)), None)
    return form, next((row.removeprefix(_FORMAT) for row in rows if row.startswith(_FORMAT)), None)


def format_row(note: str) -> str:
    return _FORMAT + note


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names of the tables of one store."""

    prefix: str = DEFAULT_PREFIX
    form: int = FORM

    @property
    def bare(self) -> bool:
        """Whether the tables of collections have no prefix."""
        return self.form == BARE_FORM

    @property
    def partitions(self) -> str:
        return f"{self.prefix}partitions"

    @property
    def quarantine(self) -> str:
        return f"{self.prefix}quarantine"

    @property
    def version(self) -> str:
        return f"{self.prefix}schema_version"

    @property
    def registry(self) -> str:
        return f"{self.prefix}collections"

    @property
    def numbers(self) -> str:
        """Of MySQL only."""
        return f"{self.prefix}numbers" if self.bare else f"{self.prefix}record_numbers"

    def table(self, collection: str) -> str:
        return collection if self.bare else f"{self.prefix}{collection}"

    def words(self, collection: str) -> str:
        """Of MySQL only."""
        return f"{self.prefix}words_{collection}"

    def index(self, kind: str, collection: str, label: str = "") -> str:
        """An index or a key of a collection, where these share a namespace with tables."""
        name = "_".join([kind, collection, label] if label else [kind, collection])
        if self.bare:
            return name
        full = f"{self.prefix}{name}"
        if len(full.encode()) <= _LONGEST_NAME:
            return full
        return f"{self.prefix}{kind}_{blake2b(name.encode(), digest_size=16).hexdigest()}"

    def is_taken(self, collection: str) -> bool:
        """Whether the adapter's own tables have the name that this collection's would
        have.
        """
        return collection.startswith(DEFAULT_PREFIX) or (
            not self.bare and (collection in _RESERVED or collection.startswith("words_"))
        )

    def all_of(self, collections: list[str]) -> list[str]:
        """Every table of a store with these collections, on any server."""
        own = [self.partitions, self.quarantine, self.version, self.registry, self.numbers]
        return own + [
            name for collection in collections for name in (self.table(collection), self.words(collection))
        ]


IN_A_FILE = TableNames(form=BARE_FORM)
"""A file of SQLite's is a store's own."""
