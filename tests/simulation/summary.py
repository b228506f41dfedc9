"""Store calls and answers in one line, for traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from memory.domain.time import micros
from memory.ports.query import Everywhere, Head, Hit, Page, Partitions, Query, Search
from memory.ports.record import Key, Mark, Record, Tombstone
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Outcome,
    Purge,
    Put,
    RaiseGeneration,
    Release,
)
from tests.simulation.loop import START

_BEGIN = micros(START)


def summary(value: object) -> str:
    """What a reader of a trace needs of this, and no more."""
    if value is None or isinstance(value, str | int):
        return "-" if value is None else str(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(summary(v) for v in value) + "]"
    maker = _MAKERS.get(type(value))
    return maker(value) if maker is not None else type(value).__name__


def _key(key: Key) -> str:
    return f"{key.tenant}/{key.id[-6:] if len(key.id) > 20 else key.id}"


def _version(version: int | None) -> str:
    """Versions are moments: shown as seconds since the run began."""
    return "-" if version is None else f"v{(version - _BEGIN) / 1e6:.6f}"


def _record(r: Record) -> str:
    owed = f" owes {[o.step for o in r.owed]}" if r.owed else ""
    text = next(iter(r.texts.values()), "") if "content" not in r.texts else r.texts["content"]
    return f"{_key(r.key)} {_version(r.version)} {r.role}@{r.tier or '?'} g{r.generation} '{text[:24]}'{owed}"


def _when(when: object) -> str:
    if isinstance(when, AtVersion):
        return f"at {_version(when.version)}{f' as {when.role}' if when.role else ''}"
    return {Absent: "absent", Newer: "newer", Always: "always"}.get(type(when), "?")


def _annotate(w: Annotate) -> str:
    parts = [
        f"role={w.role}" if w.role else "",
        f"settle={list(w.settle)}" if w.settle else "",
        "discard" if w.discard_at else "",
        "accessed" if w.accessed_at else "",
    ]
    return f"Annotate({_key(w.key)} at {_version(w.at)} {' '.join(p for p in parts if p)})"


def _outcome(o: Outcome) -> str:
    stands = f" there: {summary(o.stored)}" if o.stored is not None else ""
    return f"{o.status}{f' #{o.number}' if o.number is not None else ''}{f' ({o.reason})' if o.reason else ''}{stands}"


def _where(where: object) -> str:
    if isinstance(where, Partitions):
        return ",".join(f"{p.tenant}/{p.scope}" for p in where.partitions)
    return "everywhere" if isinstance(where, Everywhere) else str(where)


_MAKERS: dict[type, Callable[[Any], str]] = {
    Key: _key,
    Record: _record,
    Mark: lambda m: f"Mark({_key(m.key)} {_version(m.version)} to {m.to}{' owes' if m.owed else ''})",
    Tombstone: lambda t: (
        f"Tombstone({_key(t.key)}"
        f" {_version(t.version)}{f' owes {[o.step for o in t.owed]}' if t.owed else ''})"
    ),
    Put: lambda w: f"Put({w.collection.name} {_record(w.record)} when {_when(w.when)})",
    Delete: lambda w: (
        f"Delete({w.collection.name} {_key(w.key)} to {_version(w.version)} when"
        f" {_when(w.when)}{' owes' if w.owed else ''})"
    ),
    Release: lambda w: f"Release({_key(w.key)} at {_version(w.at)} to {w.to})",
    Annotate: _annotate,
    Purge: lambda w: f"Purge({_key(w.key)} at {_version(w.at)})",
    RaiseGeneration: lambda w: f"RaiseGeneration({w.partition.tenant}/{w.partition.scope} to {w.to})",
    Outcome: _outcome,
    Page: lambda p: f"{summary(p.records or p.heads)}{' ...' if p.cursor else ''}",
    Head: lambda h: f"Head({_key(h.key)} {_version(h.version)} {h.role} {h.tier})",
    Hit: lambda h: f"{h.score:.2f} {summary(h.head)}",
    Query: lambda q: (
        f"{q.collection.name} in {_where(q.where)}"
        f" {sorted(q.roles)}{sorted(q.types) if len(q.types) > 1 else ''}"
    ),
    Search: lambda q: f"{q.collection.name} in {_where(q.where)} {type(q.by).__name__} {sorted(q.roles)}",
}
