"""Which test proves which row of the behaviour catalogue: reads the `behaviour`
markers, writes docs/behaviours.md.

    python -m tools.behaviours            write it
    python -m tools.behaviours --check    exit 1 where what is written is stale

The markers are read from the source, without importing it. Their arguments must be
literal strings.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools import catalogue
from tools.amendments import AMENDED

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "behaviours.md"
SOURCES = ("tests", "memory/ports/contract")


class WrongMarker(Exception):
    """A marker that names no row or case, or cannot be read without running it."""


@dataclass(frozen=True, order=True)
class Proof:
    """A test, or where the name is empty a whole file, that claims a row or case."""

    file: str
    name: str

    def link(self) -> str:
        return f"[{self.name or self.file}](../{self.file})"


def claims(source: str, file: str) -> Iterator[tuple[str, Proof]]:
    """Each number a source file's markers name, with the test that carries the marker."""
    yield from _claims_in(ast.parse(source, file), file, ())


def _claims_in(node: ast.AST, file: str, inside: tuple[str, ...]) -> Iterator[tuple[str, Proof]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _claims_in(child, file, (*inside, child.name))
            continue
        if isinstance(child, ast.Call) and _is_marker(child.func):
            for number in _numbers(child, file):
                yield number, Proof(file, ".".join(inside))
        yield from _claims_in(child, file, inside)


def _is_marker(function: ast.expr) -> bool:
    """`pytest.mark.behaviour`, or the same under an alias."""
    return (isinstance(function, ast.Attribute) and function.attr == "behaviour") or (
        isinstance(function, ast.Name) and function.id == "behaviour"
    )


def _numbers(call: ast.Call, file: str) -> Iterator[str]:
    at = f"{file}:{call.lineno}"
    if not call.args or call.keywords:
        raise WrongMarker(f"{at}: behaviour() takes one or more rows or cases, and nothing else")
    for argument in call.args:
        if not isinstance(argument, ast.Constant):
            raise WrongMarker(
                f"{at}: behaviour() takes literal strings only, so that it can be read without running it"
            )
        if problem := catalogue.problem(argument.value):
            raise WrongMarker(f"{at}: {problem}")
        yield str(argument.value)


def collect(root: Path = ROOT) -> dict[str, list[Proof]]:
    """The proofs of every row and case that has one."""
    found: dict[str, set[Proof]] = {}
    for top in SOURCES:
        for path in sorted((root / top).rglob("*.py")):
            file = path.relative_to(root).as_posix()
            source = path.read_text(encoding="utf-8")
            for number, proof in claims(source, file) if "behaviour" in source else ():
                found.setdefault(number, set()).add(proof)
    return {number: sorted(proofs) for number, proofs in found.items()}


def document(proofs: dict[str, list[Proof]]) -> str:
    """The whole of docs/behaviours.md."""
    lines = [
        "# Behaviours and the tests that prove them",
        "",
        (
            "Written by `make docs` from the `behaviour` markers on the tests; CI fails when it is stale. A"
            " number is a row of the behaviour"
        ),
        (
            "catalogue (`A33`) or one of its acceptance cases (`AC-A15`). Context rows, which describe a"
            " vendor's product, are left out."
        ),
        "",
        "| section | rows with a test | cases with a test |",
        "|---|---|---|",
    ]
    for section in catalogue.ROWS:
        rows, cases = catalogue.rows(section), catalogue.cases(section)
        counts = [f"{sum(n in proofs for n in numbers)} of {len(numbers)}" for numbers in (rows, cases)]
        lines.append(f"| {section}: {catalogue.SECTIONS[section]} | {' | '.join(counts)} |")
    lines += [
        "",
        "## Changed rows",
        "",
        "These rows hold as said here, not as the catalogue has them.",
        "",
        "| row | what holds, and why |",
        "|---|---|",
    ]
    lines += [f"| {number} | {reason} |" for number, reason in AMENDED.items()]
    for section in catalogue.ROWS:
        lines += ["", f"## {section}: {catalogue.SECTIONS[section]}", ""]
        proved = [n for n in (*catalogue.rows(section), *catalogue.cases(section)) if n in proofs]
        if proved:
            lines += ["| row or case | tests |", "|---|---|"]
            lines += [f"| {number} | {'<br>'.join(p.link() for p in proofs[number])} |" for number in proved]
            lines.append("")
        for what, numbers in (("Rows", catalogue.rows(section)), ("Cases", catalogue.cases(section))):
            missing = [n for n in numbers if n not in proofs]
            if missing:
                lines.append(f"{what} without a test: {_runs(missing)}.")
    return "\n".join(lines) + "\n"


def _runs(numbers: list[str]) -> str:
    """Numbers in order, neighbours drawn together: A1–A4, A7."""
    head = numbers[0].rstrip("0123456789")
    values = [int(n[len(head) :]) for n in numbers]
    step = 2 if head.startswith("AC-") else 1
    runs: list[list[int]] = []
    for value in values:
        if runs and value - runs[-1][-1] == step:
            runs[-1].append(value)
        else:
            runs.append([value])
    width = 2 if step == 2 else 1
    return ", ".join(
        f"{head}{r[0]:0{width}}" + (f"–{head}{r[-1]:0{width}}" if len(r) > 1 else "") for r in runs
    )


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        fresh = document(collect())
    except (WrongMarker, SyntaxError) as error:
        print(f"behaviours: {error}", file=sys.stderr)
        return 1
    name = os.path.relpath(DOCUMENT, ROOT)
    if not arguments:
        DOCUMENT.parent.mkdir(exist_ok=True)
        DOCUMENT.write_text(fresh, encoding="utf-8")
        print(f"wrote {name}")
        return 0
    if not DOCUMENT.exists() or DOCUMENT.read_text(encoding="utf-8") != fresh:
        print(f"{name} is stale: run `make docs`", file=sys.stderr)
        return 1
    print(f"{name} is fresh")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
