"""Checks prose by the rules of CONTRIBUTING.md: `python -m tools.prose`.

With paths it checks only these, without exceptions.

It reads docstrings, comments and the texts of errors in Python files, and the text of
Markdown files. It finds sentences over 25 words, listed phrases, docstrings whose first
paragraph is longer than one line, and row codes of the behaviour catalogue.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]
CHECKED = ("memory", "README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/guide", "docs/decisions")
EXCEPTIONS = {
    "memory/adapters/file/library.py": "A table of files: its rows are no sentences.",
    "docs/behaviours.md": "Generated from the catalogue of behaviours, which is quoted.",
}
"""Files that may break a rule, and why."""

MOST_WORDS = 25
"""How many words a sentence has at most."""

PHRASES = (
    "are owed",
    "are told",
    "came to",
    "goes onward",
    "how-manieth",
    "is owed",
    "is told",
    "let go of",
    "of before",
    "of those that",
    "that which",
    "whatever",
    "whoever",
)
_PHRASE = re.compile(rf"\b({'|'.join(PHRASES)})\b|(?:^|(?<=\. ))(?:What|Whom|Whose) [^?]*?[.:]", re.MULTILINE)
"""The phrases, and sentences that begin with an inverted order."""
_ROW = re.compile(r"(?<![\w.#-])\(?(?:rows? )?[A-H]\d{1,3}\b(?!\.)")
_WORD = re.compile(r"[\w'’-]+")
_CODE = re.compile(r"(?: {4}[^\n]*(?:\n|$))+$")
"""A paragraph that is an example: all of its lines are indented."""
_SECTION = re.compile(r"^(Args|Returns|Raises|Yields|Example|Examples|Attributes|Note):$")
_NO_PROSE = re.compile(r"(type:|.*noqa|pragma|fmt:|--|!/)")


class Finding(NamedTuple):
    """A place that breaks a rule."""

    path: Path
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


class _Text(NamedTuple):
    line: int
    text: str
    is_docstring: bool = False


def findings(path: Path) -> list[Finding]:
    """Return what breaks a rule in one file."""
    source = path.read_text()
    texts = _in_markdown(source) if path.suffix == ".md" else _in_python(source)
    return [
        Finding(path, one.line, problem)
        for one in sorted(texts)
        for problem in _problems(one, codes=path.suffix == ".py")
    ]


def _problems(one: _Text, *, codes: bool) -> Iterator[str]:
    for sentence in _sentences(one.text):
        words = len(_WORD.findall(sentence))
        if words > MOST_WORDS:
            yield f"a sentence of {words} words: {sentence[:80]}…"
    text = re.sub(r"`[^`]*`", "x", one.text)
    yield from (f"phrase {found[0][:40]!r}" for found in _PHRASE.finditer(text))
    if codes:
        yield from (f"row code {found[0].strip()!r}: say the rule in words" for found in _ROW.finditer(text))
    if one.is_docstring and "\n" in one.text.split("\n\n")[0]:
        yield "the first paragraph of a docstring must be one line"


def _sentences(text: str) -> Iterator[str]:
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    prose = (one for one in re.split(r"\n\s*\n", text) if not _CODE.match(one))
    lines = [_prose_line(line) for paragraph in prose for line in (*paragraph.split("\n"), "")]
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        flat = re.sub(r"`[^`]*`", "x", " ".join(paragraph.split()))
        flat = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", flat)
        yield from re.split(r"(?<=[.?!:;])[\s*_\"”)]+", re.sub(r"\b(e\.g|i\.e)\.", "eg", flat))


def _prose_line(line: str) -> str:
    """Return a line without markup; a list item and a row of a table begin a paragraph."""
    line = line.strip()
    if line.startswith((">>>", "...", "|", "#", "<")) or _SECTION.match(line):
        return ""
    item = re.match(r"^(?:[-*]|\d+\.) |^\**\w+: ", line)
    return f"\n{line[item.end() :]}" if item else line


def _in_python(source: str) -> Iterator[_Text]:
    for node in _blocks(ast.parse(source)):
        for place, statement in enumerate(getattr(node, "body", ())):
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                text = statement.value.value
                if isinstance(text, str):
                    yield _Text(statement.lineno, inspect.cleandoc(text), place == 0)
        if isinstance(node, ast.Raise) and node.exc is not None:
            yield from (_Text(part.lineno, _said(part)) for part in _texts_of(node.exc))
    if "#" in source:
        yield from _comments(source)


def _blocks(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a module and every statement in it, but no expression, of which there are
    ten times more.
    """
    yield node
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, part, ()):
            yield from _blocks(child)


def _texts_of(node: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """Yield the texts within a node, a formatted one as a whole."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        yield node
    else:
        for child in ast.iter_child_nodes(node):
            yield from _texts_of(child)


def _said(text: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(text, ast.Constant):
        return str(text.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in text.values)


def _comments(source: str) -> Iterator[_Text]:
    """Yield each comment; lines that follow each other are one."""
    first, last, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = token.string.lstrip("#").strip()
        if _NO_PROSE.match(text):
            continue
        if lines and token.start[0] != last + 1:
            yield _Text(first, " ".join(lines))
            lines = []
        if not lines:
            first = token.start[0]
        last = token.start[0]
        lines.append(text)
    if lines:
        yield _Text(first, " ".join(lines))


def _in_markdown(source: str) -> Iterator[_Text]:
    source = re.sub(r"```.*?```", lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL)
    line = 1
    for paragraph in re.split(r"(\n\s*\n)", source):
        if paragraph.strip():
            yield _Text(line, paragraph)
        line += paragraph.count("\n")


def files(paths: Sequence[str]) -> Iterator[Path]:
    """Yield the files that the paths name, or that lie below them."""
    for path in map(Path, paths):
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in found if one.suffix in (".py", ".md"))


def pages() -> Iterator[Path]:
    """Yield the files that must follow the rules."""
    checked = (str(REPOSITORY / path) for path in CHECKED)
    for path in (*files([*checked]), *sorted((REPOSITORY / "docs").glob("*.md"))):
        if str(path.relative_to(REPOSITORY)) not in EXCEPTIONS:
            yield path


def main(paths: Sequence[str]) -> int:
    """Print what breaks a rule; 1 if anything does."""
    found = [finding for path in (files(paths) if paths else pages()) for finding in findings(path)]
    for finding in found:
        print(finding)
    print(f"{len(found)} findings")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
