"""Packages of the engine say what they are for, and which of their modules others may
import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from memory.ports.contract.cells import cells

REPOSITORY = Path(__file__).resolve().parents[2]
PAGE = REPOSITORY / "docs" / "architecture.md"
ROOT = "memory.orchestrator"
RESULT = re.compile(r"ResultMixin|Answer\[")
PACKAGES = sorted(
    ".".join(file.parent.relative_to(REPOSITORY).parts)
    for file in (REPOSITORY / Path(*ROOT.split("."))).rglob("*/__init__.py")
)


def imported(source: str) -> set[str]:
    """The full names of everything that a source imports."""
    names = set[str]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def package_file(package: str) -> Path:
    return REPOSITORY / Path(*package.split(".")) / "__init__.py"


def exported(package: str) -> list[str]:
    """The modules that the package lists in `__all__`."""
    for node in ast.parse(package_file(package).read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            return [str(name) for name in ast.literal_eval(node.value)]
    return []


def imports() -> Iterator[tuple[str, str]]:
    """Each module that imports from the packages, and each name that it imports."""
    for path in sorted((REPOSITORY / "memory").rglob("*.py")):
        importer = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        source = path.read_text()
        if importer != f"{ROOT}.engine" and ROOT in source:  # the engine builds them all
            yield from ((importer, name) for name in imported(source))


def test_only_what_a_package_lists_is_imported_from_outside_of_it() -> None:
    listed = {package: exported(package) for package in PACKAGES}
    wrong, used = [], set[tuple[str, str]]()
    for importer, name in imports():
        for package, modules in listed.items():
            if not name.startswith(f"{package}.") or importer.startswith(f"{package}."):
                continue
            module = name.removeprefix(f"{package}.").split(".")[0]
            used.add((package, module))
            if module not in modules:
                wrong.append(f"{importer} imports {name}: {package}.{module} is private")
    assert wrong == []
    unused = {(package, module) for package, modules in listed.items() for module in modules} - used
    assert unused == set(), "listed, and imported by nobody outside"


@cells("package", PACKAGES, shared=True)
def test_every_package_says_what_it_is_for(package: str) -> None:
    said = ast.get_docstring(ast.parse(package_file(package).read_text())) or ""
    assert said.count(".") >= 1
    assert len(said.splitlines()[0]) < 88


def test_every_file_that_the_architecture_names_exists() -> None:
    text = PAGE.read_text()
    named = set(re.findall(r"`((?:[\w-]+/)*[\w-]+\.(?:py|md|toml)|(?:[\w-]+/)+)`", text))
    bases = [REPOSITORY, REPOSITORY / "memory", REPOSITORY / "memory" / "orchestrator"]
    assert sorted(name for name in named if not any((base / name).exists() for base in bases)) == []
    assert len(named) >= 40
    assert len(text.splitlines()) < 200


def test_results_of_calls_are_in_the_domain() -> None:
    """So that servers describe them without the engine behind them."""
    elsewhere = [
        f"{path.relative_to(REPOSITORY)}: {node.name}"
        for path in sorted((REPOSITORY / "memory").rglob("*.py"))
        if "domain" not in path.parts and RESULT.search(source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef) and RESULT.search("".join(map(ast.unparse, node.bases)))
    ]
    assert not elsewhere
