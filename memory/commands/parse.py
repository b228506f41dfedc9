"""Parse the commands of a text. Pure; it never fails.

A wrong command is parsed too, as `InvalidCommand`, which says how the command is used.

A command is a line that begins with `/mem`. All other lines are prose and are ignored.
`add entry` has a body: the lines up to a line `/endmem`, or up to the end of the text.
`write` has a body if its line has no text. Commands inside a body are not read. The
lines between an unknown command and an `/endmem` are not read either, because their
author meant them as a body.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memory.domain.escape import one_line, unescape_text

BEGINS, ENDS = "/mem", "/endmem"
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_ID = re.compile(rf"#? ?(?:0*([0-9]{{1,18}})|({_UUID}))", re.IGNORECASE)
_DEPTH = re.compile(r"depth=(-?)([0-9]+)")
MOST_STEPS = 2
SHARED, RERANK, ARTIFACT, SUPERSEDES = "--shared", "--rerank", "--artifact", "--supersedes"
_FLAG = re.compile(r"--[a-z]", re.IGNORECASE)
"""How an option begins, known or not.

A title that mentions an option puts it in quotes. A query may contain anything.
"""

USAGE: Mapping[str, str] = {
    "entries": "/mem entries [type,type] [tag=x]",
    "entry": "/mem entry <id>",
    "search": "/mem search <query> [--rerank]",
    "expand": "/mem expand <id> [depth=1|2]",
    "density": "/mem density <id>",
    "add entry": (
        "/mem add entry <type> <title> [--artifact #id] [--supersedes #id,#id], then the text, then a line"
        " /endmem"
    ),
    "add link": "/mem add link <id> <relation> <id>",
    "invalidate": "/mem invalidate <id>",
    "read": "/mem read <artifact id>",
    "write": "/mem write [--shared] <text>; a text of several lines ends with a line /endmem",
    "scratchpad": "/mem scratchpad [--shared]",
    "clear": "/mem clear [--shared]",
}
"""The commands, and how each is used."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command; `said` is its line as written, with whitespace collapsed."""

    said: str


@dataclass(frozen=True, slots=True)
class InvalidCommand(Command):
    """A wrong command, with its usage, or the usage of every command."""

    usage: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListCommands(Command):
    """The bare word: list the commands."""


@dataclass(frozen=True, slots=True)
class ListEntries(Command):
    types: tuple[str, ...] = ()
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class ShowEntry(Command):
    id: str
    """Digits or a UUID, like every id of a command."""


@dataclass(frozen=True, slots=True)
class Search(Command):
    query: str
    rerank: bool = False


@dataclass(frozen=True, slots=True)
class Expand(Command):
    id: str
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Density(Command):
    id: str


@dataclass(frozen=True, slots=True)
class AddEntry(Command):
    """Add an entry; `body` is None if the text lacks the line that ends it."""

    type: str
    title: str
    body: str | None
    artifact: str | None = None
    supersedes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AddLink(Command):
    source: str
    relation: str
    target: str


@dataclass(frozen=True, slots=True)
class Invalidate(Command):
    id: str


@dataclass(frozen=True, slots=True)
class ReadArtifact(Command):
    id: str


@dataclass(frozen=True, slots=True)
class Write(Command):
    """Append to a scratchpad; `text` is None if the line that ends it is missing."""

    text: str | None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Scratchpad(Command):
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Clear(Command):
    shared: bool = False


@dataclass(frozen=True, slots=True)
class _Line:
    """The parts of a command's line, and the body that follows it."""

    said: str
    words: Sequence[str]
    """The words after the name of the command."""
    body: str | None = None

    @property
    def rest(self) -> str:
        return " ".join(self.words)


class _UsageError(Exception):
    """A command does not follow its usage."""


def commands_in(text: str) -> list[Command]:
    """Return the commands of a text, in order."""
    lines = text.splitlines(keepends=True)
    words = {number: line.split() for number, line in enumerate(lines) if _is_command(line)}
    ends = [number for number, line in enumerate(lines) if line.strip() == ENDS]
    opening = [number for number, said in words.items() if _opens(said)]
    found: list[Command] = []
    behind = 0
    for number, said in words.items():
        if number < behind:
            continue
        end = _from(ends, number, len(lines))
        has_body = _opens(said) or (_may_open(said) and end < _from(opening, number + 1, len(lines)))
        body = None
        if has_body:
            behind = end + 1
            body = _body(lines[number + 1 : end]) if end < len(lines) else None
        found.append(_command(one_line(lines[number]), said[1:], body, has_body))
    return found


def _is_command(line: str) -> bool:
    begins = line.lstrip()
    return begins.startswith(BEGINS) and not begins[len(BEGINS) : len(BEGINS) + 1].strip()


def _opens(said: Sequence[str]) -> bool:
    """Return whether a body follows, closed or not."""
    return list(said[1:3]) == ["add", "entry"] or (list(said[1:2]) == ["write"] and set(said[2:]) <= {SHARED})


def _may_open(said: Sequence[str]) -> bool:
    """Return whether the command has a body if an `/endmem` closes one.

    That holds for `write` and for unknown commands.
    """
    return list(said[1:2]) == ["write"] or _name(said[1:]) is None


def _from(numbers: Sequence[int], number: int, otherwise: int) -> int:
    at = bisect_left(numbers, number)
    return numbers[at] if at < len(numbers) else otherwise


def _body(lines: Sequence[str]) -> str:
    """Return the text of a body, without the end of its last line."""
    text = unescape_text("".join(lines))
    last = text.splitlines(keepends=True)[-1:]
    return text[: len(text) - len(last[0]) + len(last[0].splitlines()[0])] if last else text


def _name(words: Sequence[str]) -> str | None:
    """Return the name of the command, of one word or two."""
    return next((name for name in (" ".join(words[:2]), *words[:1]) if name in USAGE), None)


def _command(said: str, words: Sequence[str], body: str | None, has_body: bool) -> Command:
    if not words:
        return ListCommands(said)
    name = _name(words)
    if name is None:
        return InvalidCommand(said, tuple(USAGE.values()))
    line = _Line(said, words[len(name.split()) :], body)
    try:
        return _write(line, has_body) if name == "write" else _MADE[name](line)
    except _UsageError:
        return InvalidCommand(said, (USAGE[name],))


# -- each command ----------------------------------------------------------------------


def _entries(line: _Line) -> Command:
    named, tagged, tag = f" {line.rest}".partition(" tag=")
    named = named.strip().removesuffix("|").strip()
    types = tuple(one.strip() for one in named.split(",")) if named else ()
    if any(not one or " " in one or "=" in one for one in types):
        raise _UsageError
    return ListEntries(line.said, tuple(dict.fromkeys(types)), _some(tag.strip()) if tagged else None)


def _search(line: _Line) -> Command:
    asked = [word for word in line.words if word != RERANK]
    return Search(line.said, _some(" ".join(asked)), len(asked) < len(line.words))


def _expand(line: _Line) -> Command:
    deep = _DEPTH.fullmatch(line.words[-1]) if line.words else None
    if deep is None:
        return Expand(line.said, _id(line.rest))
    steps = 1 if deep[1] else min(max(int(deep[2].lstrip("0")[:9] or "0"), 1), MOST_STEPS)
    return Expand(line.said, _id(" ".join(line.words[:-1])), steps)


def _add_entry(line: _Line) -> Command:
    flags = [at for at, word in enumerate(line.words) if _FLAG.match(word)]
    of_title = line.words[1 : flags[0]] if flags else line.words[1:]
    if not of_title:
        raise _UsageError
    given: dict[str, list[str]] = {}
    for at, end in pairwise([*flags, len(line.words)]):
        if line.words[at] not in (
            ARTIFACT,
            SUPERSEDES,
        ):  # nobody would notice an option that became part of the title
            raise _UsageError
        named = [_id(one.strip()) for one in " ".join(line.words[at + 1 : end]).split(",")]
        given[line.words[at]] = given.get(line.words[at], []) + named
    artifacts = given.get(ARTIFACT, [])
    if len(artifacts) > 1:
        raise _UsageError
    superseded = tuple(dict.fromkeys(given.get(SUPERSEDES, ())))
    return AddEntry(
        line.said,
        line.words[0],
        " ".join(of_title),
        line.body,
        artifacts[0] if artifacts else None,
        superseded,
    )


def _add_link(line: _Line) -> Command:
    words = list(line.words)
    for at in (len(words) - 2, 0):  # as in `# 1 supports # 2`
        if 0 <= at < len(words) - 1 and words[at] == "#":
            words[at : at + 2] = [f"#{words[at + 1]}"]
    if len(words) != 3:
        raise _UsageError
    return AddLink(line.said, _id(words[0]), words[1], _id(words[2]))


def _write(line: _Line, has_body: bool) -> Command:
    shared = line.words[:1] == [SHARED]
    if (
        not shared and line.words and _FLAG.match(line.words[0])
    ):  # a misspelt --shared would write to the agent's own scratchpad
        raise _UsageError
    begins = " ".join(line.words[1:] if shared else line.words)
    if not has_body:
        return Write(line.said, begins, shared)
    whole = None if line.body is None else "\n".join(filter(None, (begins, line.body)))
    return Write(line.said, whole, shared)


def _is_shared(line: _Line) -> bool:
    if line.words and list(line.words) != [SHARED]:
        raise _UsageError
    return bool(line.words)


def _id(text: str) -> str:
    """Return digits without leading zeros, or a UUID."""
    found = _ID.fullmatch(text)
    if found is None:
        raise _UsageError
    return found[1] or found[2].lower()


def _some(text: str) -> str:
    if not text:
        raise _UsageError
    return text


_MADE: Mapping[str, Callable[[_Line], Command]] = {
    "entries": _entries,
    "entry": lambda line: ShowEntry(line.said, _id(line.rest)),
    "search": _search,
    "expand": _expand,
    "density": lambda line: Density(line.said, _id(line.rest)),
    "add entry": _add_entry,
    "add link": _add_link,
    "invalidate": lambda line: Invalidate(line.said, _id(line.rest)),
    "read": lambda line: ReadArtifact(line.said, _id(line.rest)),
    "scratchpad": lambda line: Scratchpad(line.said, _is_shared(line)),
    "clear": lambda line: Clear(line.said, _is_shared(line)),
}
