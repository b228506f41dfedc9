"""Rename functions, methods and attributes by full path, wherever mypy knows that they are
meant: `python -m tools.codemods.members TABLE.tsv [--dry] [--only PACKAGE]`.

A line of the table is `module:Class.member`, `module:function` or `module:<in>.function`
(a function inside another), a tab, and the new name. Members of subclasses follow. Files
are those of mypy's configuration. Text is not renamed, except in the second argument of
`getattr` and its like. What mypy types as `Any` and patterns such as `case A(member=…)`
are not found: run mypy and search for the old name afterwards. Classes are renamed by
`python -m tools.codemods`.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from mypy import build, nodes, patterns
from mypy.main import process_options
from mypy.types import (
    FunctionLike,
    Instance,
    LiteralType,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarType,
    UnionType,
    get_proper_type,
)

_NESTED = "<in>."
_NOT_SYNTAX = {"node", "info", "type", "analyzed", "var", "original_def", "unanalyzed_type", "typ"}
"""Fields of mypy's nodes that lead to what a name means, and not to what is written."""
_WALKED = (nodes.Statement, nodes.Expression, nodes.Argument, patterns.Pattern, nodes.FuncItem)
_BY_NAME = {"getattr", "setattr", "hasattr", "delattr"}


class Table:
    """The new names, by full path; `met` are the paths that the sources have."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.names: dict[str, str] = {}
        self.met: set[str] = set()
        for line in lines:
            if line.strip() and not line.startswith("#"):
                old, new = line.split("\t")[:2]
                self.names[old.replace(":", ".", 1)] = new.strip()

    def new(self, full: str) -> str | None:
        if full in self.names:
            self.met.add(full)
        return self.names.get(full)

    def of_nested(self, module: str, name: str) -> str | None:
        return self.new(f"{module}.{_NESTED}{name}")

    def of_member(self, info: nodes.TypeInfo, name: str) -> str | None:
        """The new name of a member of this class, which a base may have declared."""
        return next((new for base in info.mro if (new := self.new(f"{base.fullname}.{name}"))), None)

    def of_type(self, given: Type | None, name: str) -> str | None:
        """The new name of a member of a value of this type."""
        found = None if given is None else get_proper_type(given)
        several: list[Type] = []
        match found:
            case Instance():
                return self.of_member(found.type, name)
            case FunctionLike() if found.is_type_obj():
                return self.of_member(found.type_object(), name)
            case UnionType():
                several = list(found.items)
            case TupleType():
                several = [found.partial_fallback]
            case TypedDictType() | LiteralType():
                several = [found.fallback]
            case TypeVarType():
                several = [found.upper_bound, *found.values]
            case TypeType():
                several = [found.item]
            case _:
                pass
        return next((new for one in several if (new := self.of_type(one, name))), None)


class Place(NamedTuple):
    """A name to replace, where `pattern` matches from this line to that one."""

    first: int
    last: int
    byte: int
    pattern: str
    old: str
    new: str
    takes: Literal["here", "first", "every"] = "first"
    """Which match: the one at `byte` exactly, the first after it, or all of them."""


class _Finder:
    """Walks one file and notes where a name of the table is written."""

    def __init__(
        self,
        table: Table,
        tree: nodes.MypyFile,
        types: Mapping[nodes.Expression, Type],
        modules: Mapping[str, nodes.MypyFile],
    ) -> None:
        self._table, self._tree, self._types, self._modules = table, tree, types, modules
        self._seen: set[int] = set()
        self._classes: list[nodes.TypeInfo] = []
        self._depth = 0
        self.places: set[Place] = set()

    def walk(self, node: object) -> None:
        if isinstance(node, list | tuple):
            for one in node:
                self.walk(one)
            return
        if not isinstance(node, _WALKED) or id(node) in self._seen:
            return
        self._seen.add(id(node))
        self._look(node)
        if isinstance(node, nodes.ClassDef):
            self._classes.append(node.info)
        self._depth += isinstance(node, nodes.FuncItem)
        for field in _fields(type(node)):
            self.walk(_value(node, field))
        self._depth -= isinstance(node, nodes.FuncItem)
        if isinstance(node, nodes.ClassDef):
            self._classes.pop()

    def _look(self, node: object) -> None:
        match node:
            case nodes.FuncDef():
                self._defined(node, self._of_function(node))
            case nodes.NameExpr():
                self._note(node.line, node.column, node.name, self._of_name(node))
            case nodes.MemberExpr():
                self._at_end(node, node.name, self._of_member(node))
            case nodes.SuperExpr() if node.info:
                self._at_end(node, node.name, self._table.of_member(node.info, node.name))
            case nodes.CallExpr():
                self._called(node)
            case nodes.ImportFrom():
                self._imported(node)
            case _:
                pass

    def _defined(self, node: nodes.FuncDef, new: str | None) -> None:
        """A definition, which may have decorators before it."""
        if new is not None:
            pattern = rf"\bdef\s+({node.name})\b"
            self.places.add(Place(node.line, node.line + 30, 0, pattern, node.name, new))

    def _note(self, line: int, column: int, old: str, new: str | None) -> None:
        if new is not None:
            self.places.add(Place(line, line, column, rf"({old})\b", old, new, "here"))

    def _at_end(self, node: nodes.Expression, old: str, new: str | None) -> None:
        if node.end_line is not None and node.end_column is not None:
            self._note(node.end_line, node.end_column - len(old.encode()), old, new)

    def _own_class(self, info: nodes.TypeInfo | None) -> bool:
        return bool(info and self._classes and info is self._classes[-1])

    def _of_function(self, node: nodes.FuncDef) -> str | None:
        if node.info:
            return self._table.of_member(node.info, node.name) if self._own_class(node.info) else None
        if self._depth:
            return self._table.of_nested(self._tree.fullname, node.name)
        return self._table.new(node.fullname)

    def _of_name(self, node: nodes.NameExpr) -> str | None:
        meant = node.node.func if isinstance(node.node, nodes.Decorator) else node.node
        if node.fullname in self._table.names:
            is_alias = node.fullname.rpartition(".")[2] != node.name
            return None if is_alias else self._table.new(node.fullname)
        if isinstance(meant, nodes.FuncDef) and node.kind == nodes.LDEF and not meant.info:
            return self._table.of_nested(self._tree.fullname, node.name)
        is_member = isinstance(meant, nodes.Var | nodes.FuncDef) and self._own_class(meant.info)
        if self._classes and (is_member or node.kind == nodes.MDEF):
            return self._table.of_member(self._classes[-1], node.name)
        return None

    def _of_member(self, node: nodes.MemberExpr) -> str | None:
        return self._table.new(node.fullname) or self._of(node.expr, node.name)

    def _of(self, owner: nodes.Expression, name: str) -> str | None:
        meant = owner.node if isinstance(owner, nodes.RefExpr) else None
        if isinstance(meant, nodes.TypeInfo):
            return self._table.of_member(meant, name)
        if isinstance(meant, nodes.MypyFile):
            return self._table.new(f"{meant.fullname}.{name}")
        return self._table.of_type(self._types.get(owner), name)

    def _called(self, node: nodes.CallExpr) -> None:
        if not (isinstance(node.callee, nodes.NameExpr) and node.callee.name in _BY_NAME):
            return
        owner, text = node.args[:2]
        if isinstance(text, nodes.StrExpr) and (new := self._of(owner, text.value)) is not None:
            pattern = rf"['\"]({text.value})['\"]"
            self.places.add(Place(text.line, text.line, text.column, pattern, text.value, new))

    def _imported(self, node: nodes.ImportFrom) -> None:
        last = node.end_line or node.line
        for name, as_name in node.names:
            new = self._of_import(self._module_of(node), name)
            if new is None:
                continue
            pattern = rf"(?:\bimport\b|[,(]|^\s+)\s*({name})\b"
            self.places.add(Place(node.line, last, 0, pattern, name, new, takes="every"))
            if as_name == name:
                self.places.add(Place(node.line, last, 0, rf"\bas\s+({name})\b", name, new, takes="every"))

    def _module_of(self, node: nodes.ImportFrom) -> str:
        if not node.relative:
            return node.id
        above = self._tree.fullname.split(".")
        up = node.relative - self._tree.path.endswith("__init__.py")
        return ".".join([*above[: len(above) - up], *([node.id] if node.id else [])])

    def _of_import(self, module: str, name: str) -> str | None:
        """The new name of what is imported, which the module may itself have imported."""
        symbol = self._modules[module].names.get(name) if module in self._modules else None
        meant = symbol.node if symbol is not None else None
        if meant is None or isinstance(meant, nodes.MypyFile):
            return self._table.new(f"{module}.{name}")
        return self._table.new(meant.fullname) if meant.fullname.rpartition(".")[2] == name else None


_FIELDS: dict[type, list[str]] = {}


def _fields(kind: type) -> list[str]:
    """The fields of a compiled node."""
    if kind not in _FIELDS:
        _FIELDS[kind] = [
            name
            for base in kind.__mro__
            for name, field in vars(base).items()
            if type(field).__name__ in ("getset_descriptor", "member_descriptor")
            and name not in _NOT_SYNTAX
            and not name.startswith("__")
        ]
    return _FIELDS[kind]


def _value(node: object, field: str) -> object:
    try:
        return getattr(node, field)
    except (AttributeError, AssertionError):  # the node has none
        return None


def replaced(source: str, places: Iterable[Place]) -> tuple[str, list[str]]:
    """The source with the new names, and what was not found in it."""
    lines = source.split("\n")
    hits, missing = set[tuple[int, int, str, str]](), list[str]()
    for place in places:
        found = [(*hit, place.old, place.new) for hit in _hits(lines, place)]
        hits.update(found if place.takes == "every" else found[:1])
        if not found:
            missing.append(f"{place.first}: {place.old} was not found")
    for line, column, old, new in sorted(hits, reverse=True):
        lines[line] = lines[line][:column] + new + lines[line][column + len(old) :]
    return "\n".join(lines), missing


def _hits(lines: list[str], place: Place) -> Iterator[tuple[int, int]]:
    pattern = re.compile(place.pattern)
    for line in range(place.first - 1, min(place.last, len(lines))):
        start = len(lines[line].encode()[: place.byte].decode(errors="ignore"))
        matches = (match.start(1) for match in pattern.finditer(lines[line], start))
        yield from ((line, column) for column in matches if place.takes != "here" or column == start)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.codemods.members")
    parser.add_argument("table", type=Path, help="tab-separated old paths and new names")
    parser.add_argument("--dry", action="store_true", help="only count the places")
    parser.add_argument("--only", help="one package, instead of mypy's configured files")
    given = parser.parse_args(arguments)
    table = Table(given.table.read_text().splitlines())
    sources, options = process_options(["-p", given.only] if given.only else [])
    options.export_types = options.preserve_asts = options.check_untyped_defs = True
    options.incremental = options.warn_unused_ignores = False
    result = build.build(sources, options)
    print(len(result.errors), "errors of mypy before", *result.errors[:5], sep="\n")
    modules = {name: state.tree for name, state in result.graph.items() if state.tree is not None}
    here = {source.path for source in sources}
    changed = 0
    for tree in (tree for tree in modules.values() if tree.path in here):
        finder = _Finder(table, tree, result.types, modules)
        finder.walk(tree.defs)
        if not finder.places:
            continue
        path = Path(tree.path)
        after, missing = replaced(path.read_text(), finder.places)
        print(*(f"{path}:{one}" for one in missing), sep="\n", end="\n" if missing else "")
        changed += len(finder.places) - len(missing)
        if not given.dry:
            path.write_text(after)
    print(changed, "places")
    for full in sorted(set(table.names) - table.met):
        print("never met:", full)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
