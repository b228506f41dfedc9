"""Tests speak through public names, or names that are public in their package."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.ports.contract.cells import cells

REPOSITORY = Path(__file__).resolve().parents[2]
NAMED_TUPLES = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""Public names of Python's named tuples."""
LIMIT = 190
"""How often tests may use a private name of the library. Lower it whenever you can."""
MAY_USE = re.compile(r"(?<!self)(?<!cls)\._\w")
"""What a source has that uses one; to parse all the others takes seconds."""


def given_names(tree: ast.AST) -> set[str]:
    """The private names that a source gives to functions, classes and attributes."""
    names = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
    return {name for name in names - NAMED_TUPLES if name.startswith("_") and not name.startswith("__")}


def uses(tree: ast.AST, library: set[str]) -> Iterator[str]:
    """Each use of a private name of the library on an object of another class."""
    own = given_names(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                pass
            case ast.Attribute(attr=name) if name in library and name not in own:
                yield name


@pytest.mark.thorough
def test_tests_use_no_more_private_names_than_before() -> None:
    library = set[str]()
    for path in (REPOSITORY / "memory").rglob("*.py"):
        library |= given_names(ast.parse(path.read_text()))
    sources = {path: path.read_text() for path in sorted((REPOSITORY / "tests").rglob("*.py"))}
    found = {
        str(path.relative_to(REPOSITORY)): len(list(uses(ast.parse(source), library)))
        for path, source in sources.items()
        if MAY_USE.search(source)
    }
    most = sorted(found.items(), key=lambda item: -item[1])[:10]
    assert sum(found.values()) <= LIMIT, f"use engine_of and access_of, or make the name public: {most}"


@cells(
    "source, expected",
    [
        ("memory._engine.open()", ["_engine"]),
        ("store._other", []),
        ("self._engine", []),
        ("super()._engine", []),
        ("class A:\n    def f(self): self._engine = 1\nA()._engine", []),
    ],
    shared=True,
)
def test_the_test_finds_them(source: str, expected: list[str]) -> None:
    assert list(uses(ast.parse(source), {"_engine"})) == expected
