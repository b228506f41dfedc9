"""Creating tables and adding fields to them, on every dialect, under a lock of its own.

The database stores a number for the form of its tables; an unknown form is refused by
name. Where a dialect's DDL is part of a transaction, a change happens as a whole or not
at all. Otherwise each step can be repeated, and the mark of completion comes last: the
next opening completes a change that a crash interrupted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import ClassVar

import sqlalchemy as sa

from memory.adapters.sql.columns import checksum_column, field_column
from memory.adapters.sql.declared import Comparison, Growth, compare_declarations, declaration
from memory.adapters.sql.naming import TableNames, form_and_format, format_row
from memory.domain.errors import ConfigError
from memory.ports.collections import Collection
from memory.ports.formats import FormatNote, current_note


class Schema(ABC):
    """The tables of one dialect in one database, schema or file.

    `place` names their container, `elsewhere` another such container.
    """

    whole: ClassVar[bool] = True
    """Whether DDL is part of a transaction."""
    forms: ClassVar[Sequence[int]]
    """The supported forms of tables; new tables have the last one."""

    def __init__(self, store: str, place: str, elsewhere: str, names: TableNames) -> None:
        self.store, self.place, self.elsewhere = store, place, elsewhere
        self.names = names
        """The names of the form found last, or of the form to make."""
        self.noted: str | None = None
        """The note of the format that was found last, or made."""

    @abstractmethod
    def system(self) -> Sequence[sa.Table]:
        """Return the adapter's own tables, the version and registry among them."""

    @abstractmethod
    def of(self, collection: Collection) -> Sequence[sa.Table]:
        """Return the tables of a collection, the table of its records first.

        Raises:
            ConfigError: No table can have the collection's name.
        """

    def compare(
        self, form: str | None, noted: str | None, told: dict[str, str], collections: Sequence[Collection]
    ) -> Comparison:
        """Compare the stored declarations with the requested collections.

        Raises:
            ConfigError: The existing tables cannot become the requested ones.
        """
        FormatNote.parse(self.store, noted)  # checked before anything that a later release may have changed
        self.noted = current_note() if form is None else noted
        if form is not None and form not in map(str, self.forms):
            newer = form.isdigit() and int(form) > self.forms[-1]
            raise ConfigError(
                f"store '{self.store}': {self.place} is of version {form}, and this version of memory-tiers"
                f" knows {self.forms[-1]}; "
                + (
                    "upgrade memory-tiers"
                    if newer
                    else (
                        "export its records with the version that wrote them, and import them into another"
                        f" {self.elsewhere}"
                    )
                )
            )
        self.names = replace(self.names, form=self.forms[-1] if form is None else int(form))
        for collection in collections:
            self.of(collection)
        return compare_declarations(told, self.store, collections, self.elsewhere)

    # -- changes, on a connection that holds the lock ----------------------------------

    def change(self, connection: sa.Connection, collections: Sequence[Collection]) -> Comparison:
        """Create missing tables, and return the resulting comparison."""
        schema = self.system()[0].schema
        there = sa.inspect(connection).get_table_names(schema=schema)
        form, noted, told = _read(connection, self.names, schema, there)
        comparison = self.compare(form, noted, told, collections)
        system, names = self.system(), self.names
        version = sa.table(names.version, sa.column("version_num"), schema=schema)
        registry = sa.table(names.registry, sa.column("name"), sa.column("declaration"), schema=schema)
        self._refuse_foreign(
            connection,
            [*(system if form is None else ()), *(t for c in comparison.new for t in self.of(c))],
            there,
        )
        if form is None:
            for table in system:
                self._make(connection, table, there)
        growing = {growth.collection.name for growth in comparison.grown}
        unsure = (
            []
            if form is not None
            else [c for c in comparison.tables.values() if c.name not in growing and c not in comparison.new]
        )
        for table in [table for collection in (*comparison.new, *unsure) for table in self.of(collection)]:
            self._make(connection, table, there)
        if comparison.new:
            connection.execute(
                registry.insert(), [{"name": c.name, "declaration": declaration(c)} for c in comparison.new]
            )
        for growth in comparison.grown:
            self._grow(connection, growth)
            told_now = registry.update().where(registry.c.name == growth.collection.name)
            connection.execute(told_now.values(declaration=declaration(growth.collection)))
        if form is None:
            rows = [] if noted is not None else [format_row(current_note())]
            for row in [*rows, str(names.form)]:  # the form last: it marks the schema as complete
                connection.execute(version.insert().values(version_num=row))
        return comparison

    def _refuse_foreign(
        self, connection: sa.Connection, tables: Iterable[sa.Table], there: Sequence[str]
    ) -> None:
        """Refuse tables and views of another program, before creating any.

        A table that a crash left half made has all our columns, and belongs to no store
        with another prefix.

        Raises:
            ConfigError: There is one.
        """
        tables = list(tables)
        views = _views(connection, tables[0].schema) if tables else set()
        if taken := [table.name for table in tables if table.name in views]:
            raise ConfigError(
                f"store '{self.store}': {self.place} has a view '{taken[0]}' that is not of this program;"
                f" nothing was created: use another {self.elsewhere}"
            )
        found = [table for table in tables if table.name in there]
        others = self._tables_of_others(connection, found[0].schema, there) if found else {}
        for table in found:
            if table.name in others:
                raise ConfigError(
                    f"store '{self.store}': {self.place} has a table '{table.name}' of the store with the"
                    f" prefix '{others[table.name]}'; nothing was created: use another {self.elsewhere}"
                )
            columns = {
                column["name"]
                for column in sa.inspect(connection).get_columns(table.name, schema=table.schema)
            }
            if missing := [column.name for column in table.c if column.name not in columns]:
                raise ConfigError(
                    f"store '{self.store}': {self.place} has a table '{table.name}' that is not of this"
                    f" program (it has no column '{missing[0]}'); nothing was created: use another"
                    f" {self.elsewhere}"
                )

    def _tables_of_others(
        self, connection: sa.Connection, schema: str | None, there: Sequence[str]
    ) -> dict[str, str]:
        """Return the tables of stores with other prefixes, each with its store."""
        owned: dict[str, str] = {}
        for registry in there:
            prefix = registry.removesuffix(TableNames("").registry)
            other = TableNames(prefix)
            if (
                other.registry == registry
                and prefix != self.names.prefix
                and other.version in there
                and self._is_ours(connection, other, schema)
            ):
                form, _, told = _read(connection, other, schema, there)
                names = replace(other, form=int(form)) if form and form.isdigit() else other
                owned |= dict.fromkeys(names.all_of(list(told)), prefix)
        return owned

    def _is_ours(self, connection: sa.Connection, names: TableNames, schema: str | None) -> bool:
        """Whether the tables of these names look like those that identify a store."""
        wanted = {names.version: {"version_num"}, names.registry: {"name", "declaration"}}
        return all(
            columns <= {c["name"] for c in sa.inspect(connection).get_columns(name, schema=schema)}
            for name, columns in wanted.items()
        )

    def _make(self, connection: sa.Connection, table: sa.Table, there: Sequence[str]) -> None:
        """Create the table and its indexes where either is missing."""
        if table.name not in there:
            table.create(connection, checkfirst=False)
        elif not self.whole:
            self._index(connection, table.indexes)

    def _grow(self, connection: sa.Connection, growth: Growth) -> None:
        """Add columns to a table, NULL in every row, and then their indexes."""
        was, now = self.of(growth.was)[0], self.of(growth.collection)[0]
        columns = (
            {c.name for c in was.c}
            if self.whole
            else {c["name"] for c in sa.inspect(connection).get_columns(now.name)}
        )
        checksums = [checksum_column(collection) for collection in (growth.was, growth.collection)]
        added = [now.c[field_column(f.name)] for f in growth.fields]
        changes = [
            f"ADD COLUMN {sa.schema.CreateColumn(c).compile(dialect=connection.dialect)}"
            for c in added
            if c.name not in columns
        ]
        if checksums[1] not in columns:
            changes.append("RENAME COLUMN {} TO {}".format(*checksums))
        for change in (
            changes if self.whole or not changes else [", ".join(changes)]
        ):  # there one statement is all that is whole
            connection.exec_driver_sql(
                f"ALTER TABLE {connection.dialect.identifier_preparer.format_table(now)} {change}"
            )
        names = {index.name for index in was.indexes}
        self._index(connection, [index for index in now.indexes if index.name not in names])

    def _index(self, connection: sa.Connection, indexes: Iterable[sa.Index]) -> None:
        """Create each of these indexes, which belong to one table."""
        there: set[str | None] = set()
        for index in sorted(indexes, key=lambda index: str(index.name)):
            assert index.table is not None  # noqa: S101 - it is of a declared table
            there = there or (
                set()
                if self.whole
                else {i["name"] for i in sa.inspect(connection).get_indexes(index.table.name)}
            )
            if index.name not in there:
                connection.execute(
                    sa.schema.CreateIndex(index, if_not_exists=self.whole)
                )  # a later program may have left one


def _read(
    connection: sa.Connection, names: TableNames, schema: str | None, there: Sequence[str]
) -> tuple[str | None, str | None, dict[str, str]]:
    """Read the form of the tables, the note of the format, and the declarations.

    The form is None where not all tables with these names exist.
    """
    version = sa.table(names.version, sa.column("version_num"), schema=schema)
    registry = sa.table(names.registry, sa.column("name"), sa.column("declaration"), schema=schema)
    rows = connection.scalars(sa.select(version.c.version_num)).all() if version.name in there else []
    form, noted = form_and_format(map(_text, rows))
    told = (
        connection.execute(sa.select(registry.c.name, registry.c.declaration)).all()
        if registry.name in there
        else []
    )
    return form, noted, {_text(name): _text(said) for name, said in told}


def _views(connection: sa.Connection, schema: str | None) -> set[str]:
    there = sa.inspect(connection)
    kept = there.get_materialized_view_names(schema=schema) if connection.dialect.name == "postgresql" else []
    return {*there.get_view_names(schema=schema), *kept}


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
