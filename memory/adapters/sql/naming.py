"""The names of tables, readable without SQLAlchemy.

On a server, all table names of a store begin with its prefix. Databases from before
there was a prefix (form 4) have the adapter's own tables under the default prefix. The
tables of their collections have the collections' bare names. They are used unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, TypeAlias

from pydantic import Field

DEFAULT_PREFIX = "memory_"
BARE_FORM, FORM = 4, 5
"""The forms of tables on a server.

A file has the first, see `memory.adapters.sql.migrate`.
"""
LONGEST_COLLECTION = 40
"""The maximum length of a collection's name, in bytes."""
_LONGEST_NAME = 63
"""The maximum length of a table's or an index's name.

PostgreSQL cuts longer ones silently; MySQL allows one more.
"""
LONGEST_PREFIX = _LONGEST_NAME + 1 - len("words_") - LONGEST_COLLECTION
"""The maximum length of a prefix.

It leaves room for the longest name, that of a table of words on MySQL.
"""
_RESERVED = frozenset({"partitions", "quarantine", "schema_version", "collections", "record_numbers"})
"""The names of the adapter's own tables, without the prefix."""

_PREFIX = f"1 to {LONGEST_PREFIX} lower-case ASCII letters, digits and underscores that begin with a letter"
TablePrefix: TypeAlias = Annotated[
    str, Field(pattern=rf"^[a-z][a-z0-9_]{{0,{LONGEST_PREFIX - 1}}}$", description=_PREFIX)
]


_FORMAT = "format "
"""The prefix of the format's note (`memory.ports.formats`).

The note is a row beside the row of the form.
"""


def form_and_format(versions: Iterable[str]) -> tuple[str | None, str | None]:
    """Return the tables' form and the format's note from the version table."""
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
        """The table of numbers, on MySQL only."""
        return f"{self.prefix}numbers" if self.bare else f"{self.prefix}record_numbers"

    def table(self, collection: str) -> str:
        return collection if self.bare else f"{self.prefix}{collection}"

    def words(self, collection: str) -> str:
        """Return the table of words, on MySQL only."""
        return f"{self.prefix}words_{collection}"

    def index(self, kind: str, collection: str, label: str = "") -> str:
        """Return the name of a collection's index or key.

        Index names share a namespace with table names on some dialects.
        """
        name = "_".join([kind, collection, label] if label else [kind, collection])
        if self.bare:
            return name
        full = f"{self.prefix}{name}"
        if len(full.encode()) <= _LONGEST_NAME:
            return full
        return f"{self.prefix}{kind}_{blake2b(name.encode(), digest_size=16).hexdigest()}"

    def is_taken(self, collection: str) -> bool:
        """Whether an adapter table has the name that this collection's would have."""
        return collection.startswith(DEFAULT_PREFIX) or (
            not self.bare and (collection in _RESERVED or collection.startswith("words_"))
        )

    def all_of(self, collections: list[str]) -> list[str]:
        """Return every table of a store with these collections, on any server."""
        own = [self.partitions, self.quarantine, self.version, self.registry, self.numbers]
        return own + [
            name for collection in collections for name in (self.table(collection), self.words(collection))
        ]


IN_A_FILE = TableNames(form=BARE_FORM)
"""The names in a file of SQLite's, which belongs to one store."""
