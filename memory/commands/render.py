"""Render the answers of commands, as an agent reads them. Pure.

Every answer has a frame. Everything between `[/mem …]` and `[END MEMORY]` is escaped
once, only here: no line of it begins like a frame or a command. Values inside a line
are put on one line without two adjacent blanks; two blanks appear only where this
module puts them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from memory.commands.command_context import (
    MOST_BODY_BYTES,
    EntryLinks,
    EntryList,
    Link,
    LinkDensity,
    LinkedEntries,
    ScratchpadContent,
    SearchHits,
)
from memory.commands.parse import Command
from memory.domain.artifact import Artifact
from memory.domain.entry import Entry
from memory.domain.escape import escape_text, excerpt_line, one_line

END = "[END MEMORY]"
SAID_BYTES = 500
"""The largest part of a command, in bytes, that its frame repeats."""
EXCERPT_BYTES = 480
EXCERPTS = 3
"""The number of hits that are shown with the beginning of their text."""
UNTITLED_BYTES = 80
"""The largest part, in bytes, of the text that stands in for a missing title."""
UNAVAILABLE = "(unavailable)"

Numbers = Mapping[str, int]


def frame_answer(command: Command, text: str) -> str:
    return f"[{excerpt_line(command.said, SAID_BYTES)}]\n{escape_text(text)}\n{END}"


def error(problem: str) -> str:
    return f"ERR: {one_line(problem)}"


def usage(ways: Sequence[str]) -> str:
    """Return the usage of one command, or of several, each on its own line."""
    return _lines(["ERR: usage:", *_items(ways)]) if len(ways) > 1 else f"ERR: usage: {ways[0]}"


def command_list(ways: Iterable[str]) -> str:
    """Return the usage of every command, each on its own line."""
    return _lines(["commands:", *_items(ways)])


def _items(ways: Iterable[str]) -> list[str]:
    return [f"- {way}" for way in ways]


def name(thing_id: str, numbers: Numbers) -> str:
    """Return the short id such as `#42`, or the id if there is none."""
    return f"#{numbers[thing_id]}" if thing_id in numbers else thing_id


def line(entry: Entry, numbers: Numbers, now: datetime, *, mark: str = "") -> str:
    """Return an entry's line: id, type, date, title, tags and source.

    For example `- #42  [user] (2026-03-01 · superseded 2026-04-01)  title [tags]
    (source: x)`, on one line.
    """
    ended = entry.valid_to is not None and entry.valid_to <= now
    days = [f"{entry.valid_from:%Y-%m-%d}", *([f"superseded {entry.valid_to:%Y-%m-%d}"] if ended else [])]
    tags = f" [{one_line(', '.join(entry.tags))}]" if entry.tags else ""
    source = f"  (source: {one_line(entry.source)})" if entry.source else ""
    return (
        f"- {name(entry.id, numbers)}  [{entry.type.value}] ({' · '.join(days)}) "
        f" {_title(entry)}{tags}{source}{mark}"
    )


def entry_list(found: EntryList, tag: str | None, numbers: Numbers, now: datetime) -> str:
    if not found.entries:
        nothing = "(no entries)" if tag is None else f"(no entries tagged '{one_line(tag)}')"
        return _lines([nothing, *_notes(found.notes)])
    more = [f"the newest {len(found.entries)}; others are older"] if found.more else []
    return _lines([*(line(entry, numbers, now) for entry in found.entries), *_notes([*more, *found.notes])])


def entry(shown: Entry, around: EntryLinks, numbers: Numbers, now: datetime) -> str:
    """Return an entry with its text, its artifact and its links."""
    sides = [
        (
            "outgoing:",
            [f"- {link.label} → {_other(link.target_id, around, numbers)}" for link in around.outgoing],
        ),
        (
            "incoming:",
            [f"- {_other(link.source_id, around, numbers)} → {link.label}" for link in around.incoming],
        ),
    ]
    parts = [line(shown, numbers, now), shown.content] + (
        [artifact_line(around.artifact, numbers)] if around.artifact is not None else []
    )
    parts += ["\n".join([head, *links]) for head, links in sides if links]
    parts += _notes(["there are more links; the newest are shown"]) if around.more else []
    return "\n\n".join(part for part in parts if part)


def hits(query: str, found: SearchHits, numbers: Numbers, now: datetime, conversation: str | None) -> str:
    """Return the hits of a search."""
    asked = one_line(query)
    also = [f"(also searched: {' | '.join(repr_of(one) for one in found.also)})"] if found.also else []
    if not found.entries:
        return _lines([*also, f"(no entries match '{asked}')", *_notes(found.notes)])
    lines = [*also, f"{len(found.entries)} match(es) for '{asked}' (top by relevance)"]
    for rank, one in enumerate(found.entries):
        pinned = conversation is not None and one.conversation_id == conversation
        lines.append(line(one, numbers, now, mark="  [conversation]" if pinned else ""))
        excerpt = excerpt_line(one.content, EXCERPT_BYTES) if rank < EXCERPTS else ""
        lines += [f"  {excerpt}"] if excerpt else []
    return _lines([*lines, *_notes(found.notes)])


def linked_entries(found: LinkedEntries, depth: int, numbers: Numbers, now: datetime) -> str:
    """Return the entries and relations around an entry."""
    first, *others = found.entries
    head = (
        f"{name(first.id, numbers)} in {depth} step{'s' * (depth > 1)}: {len(others)} linked entries,"
        f" {len(found.links)} relations"
    )
    links = [f"- {_link(link, numbers)}" for link in found.links]
    return _lines(
        [
            head,
            *(line(one, numbers, now) for one in found.entries),
            *(["relations:", *links] if links else []),
            *_numbered_notes(found.notes, numbers),
        ]
    )


def density(entry_id: str, found: LinkDensity, numbers: Numbers) -> str:
    """Return how closely an entry is linked."""
    labels = f" ({', '.join(found.labels)})" if found.labels else ""
    return _lines(
        [
            f"density of {name(entry_id, numbers)}: {found.verdict}",
            f"out edges: {found.outgoing}",
            f"in edges: {found.incoming}",
            f"distinct relations: {len(found.labels)}{labels}",
            f"1-hop nodes: {found.one_step}",
            f"2-hop nodes: {found.two_steps}",
            *_numbered_notes(found.notes, numbers),
        ]
    )


def artifact_line(found: Artifact, numbers: Numbers) -> str:
    """Return the description of an artifact in one line."""
    return (
        f"artifact: {name(found.id, numbers)}  {one_line(found.path)}  ({one_line(found.media_type)},"
        f" {found.size:,} bytes)"
    )


def artifact(found: Artifact, data: bytes, numbers: Numbers) -> str:
    """Return an artifact with its text or the beginning of it.

    For a binary artifact only the description is returned.
    """
    text = data.decode(errors="ignore") if is_text(data, whole=len(data) >= found.size) else None
    if text is None:
        return _lines([artifact_line(found, numbers), "(it is not text)"])
    cut = [f"(the first {len(data):,} bytes)"] if len(data) < found.size else []
    return _lines([artifact_line(found, numbers), *cut, "", text.removesuffix("\n")])


def is_text(data: bytes, *, whole: bool) -> bool:
    """Return whether the bytes are UTF-8.

    If they are not the whole artifact, a character may be cut off at the end.
    """
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return not whole and error.reason == "unexpected end of data"
    return True


def scratchpad(found: ScratchpadContent) -> str:
    """Return a scratchpad, or the end of a long one."""
    if not found.content:
        return "(empty)" if found.exists else "(empty: nothing was ever written)"
    data = found.content.encode()
    if len(data) <= MOST_BODY_BYTES:
        return found.content.removesuffix("\n")
    return (
        f"(the last {MOST_BODY_BYTES:,} bytes of"
        f" {len(data):,})\n{data[-MOST_BODY_BYTES:].decode(errors='ignore')}".removesuffix("\n")
    )


def repr_of(text: str) -> str:
    return f"'{one_line(text)}'"


def _title(one: Entry) -> str:
    return one_line(one.title or "") or excerpt_line(one.content, UNTITLED_BYTES)


def _other(entry_id: str, around: EntryLinks, numbers: Numbers) -> str:
    one = around.others[entry_id]
    return f"{name(entry_id, numbers)}  {UNAVAILABLE if one is None else _title(one)}"


def _link(link: Link, numbers: Numbers) -> str:
    return f"{name(link.source_id, numbers)} {link.label} {name(link.target_id, numbers)}"


def _notes(notes: Iterable[str]) -> list[str]:
    """Return each note in brackets; some have brackets already."""
    flat = [one_line(note) for note in notes]
    return [note if note.startswith("(") and note.endswith(")") else f"({note})" for note in flat]


def _numbered_notes(notes: Iterable[str], numbers: Numbers) -> list[str]:
    """Return notes with short ids in place of ids."""
    said = list(notes)
    for entry_id in numbers:
        said = [note.replace(entry_id, name(entry_id, numbers)) for note in said]
    return _notes(said)


def _lines(lines: Sequence[str]) -> str:
    return "\n".join(lines)
