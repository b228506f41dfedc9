"""What the graph must answer, in plain Python, from the rows that stand in the stores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from memory.orchestrator.collections import ENTRIES, ENTRY_VERSIONS, RELATIONS
from memory.ports.record import Record, Role
from tests.simulation.faults import Server

BEGAN = datetime(1970, 1, 1, tzinfo=UTC)
DENSE = 4


@dataclass(frozen=True, slots=True)
class Stood:
    """What an entry was from one moment to another; `until` of None: to this day."""

    since: datetime
    until: datetime | None
    begins: datetime
    ends: datetime | None

    def active(self, at: datetime) -> bool:
        return self.begins <= at and (self.ends is None or at < self.ends)


@dataclass(frozen=True, slots=True)
class Link:
    id: str
    source: str
    target: str
    label: str
    made: datetime

    @property
    def ends(self) -> set[str]:
        return {self.source, self.target}


@dataclass(slots=True)
class Model:
    """The entries and links of a tenant, when nothing is under way."""

    now: datetime
    entries: dict[str, list[Stood]] = field(default_factory=dict)
    """What each was, as it is last."""
    scopes: dict[str, str] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)

    @classmethod
    def of(cls, servers: Sequence[Server], now: datetime) -> Model:
        model = cls(now)
        rows = [(kind, row) for kind in (ENTRIES, ENTRY_VERSIONS, RELATIONS) for row in _standing(servers, kind.name)]
        for kind, row in rows:
            if kind is ENTRIES and row.role is Role.HOME:
                model.scopes[row.key.id] = row.scope
                model.entries.setdefault(row.key.id, []).append(_stood(row, row.version, None))
        for kind, row in rows:
            if kind is ENTRY_VERSIONS and str(row.fields["entry_id"]) in model.entries:
                model.entries[str(row.fields["entry_id"])].insert(0, _stood(row, row.fields["stored_version"], row.fields["replaced_version"]))
            if kind is RELATIONS and row.role is Role.HOME:
                model.links.append(
                    Link(row.key.id, str(row.fields["source_id"]), str(row.fields["target_id"]), str(row.fields["relation"]), row.created_at)
                )
        return model

    def dangling(self) -> list[Link]:
        return [link for link in self.links if not link.ends <= self.entries.keys()]

    def visible(self, *, as_of: datetime | None = None, known_at: datetime | None = None, scopes: Collection[str] = ()) -> set[str]:
        """The entries that a plain read shows, now or at a moment."""
        found = set()
        for entry_id, stood in self.entries.items():
            then = [one for one in stood if one.until is None]
            if known_at is not None:
                then = [one for one in stood if one.since <= known_at and (one.until is None or known_at < one.until)]
            if then and then[0].active(as_of or known_at or self.now) and (not scopes or self.scopes[entry_id] in scopes):
                found.add(entry_id)
        return found

    def related(self, *, active: bool = False, as_of: datetime | None = None, known_at: datetime | None = None) -> set[str]:
        if not active and as_of is None and known_at is None:
            return {link.id for link in self.links if link.ends <= self.entries.keys()}
        seen = self.visible(as_of=as_of, known_at=known_at)
        made = [link for link in self.links if link.ends <= self.entries.keys() and (known_at is None or link.made <= known_at)]
        return {one.id for one in made if one.ends <= seen or (not active and one.label == "supersedes" and one.ends & seen)}

    def expand(self, begin: str, depth: int, *, superseded: bool = False, scopes: Collection[str] = ()) -> tuple[dict[str, int], set[str]]:
        """How far each is that is reached, and the links gone along."""
        seen = self.visible()
        shown = [one for one in self.links if one.ends <= seen or (superseded and one.label == "supersedes" and one.ends & seen)]
        far, along = {begin: 0}, set[str]()
        for step in range(1, depth + 1):
            for link in shown:
                for here, there in ((link.source, link.target), (link.target, link.source)):
                    if far.get(here) == step - 1 and there in self.entries and (not scopes or self.scopes[there] in scopes or there == begin):
                        far.setdefault(there, step)
                        along.add(link.id)
        return far, along

    def density(self, begin: str) -> tuple[int, int, int, int, str]:
        far, _ = self.expand(begin, 2)
        own = [link for link in self.links if link.id in self.expand(begin, 1)[1]]
        near, beyond = list(far.values()).count(1), list(far.values()).count(2)
        verdict = "isolated" if not near else "sparse" if near + beyond < DENSE else "dense"
        outgoing = sum(link.source == begin for link in own)
        return outgoing, len(own) - outgoing, near, beyond, verdict

    def graph(
        self, *, scopes: Collection[str] = (), as_of: datetime | None = None, known_at: datetime | None = None
    ) -> tuple[set[str], set[str], set[str]]:
        """The entries, those of them that are dimmed, and the links."""
        seen, all_seen = self.visible(as_of=as_of, known_at=known_at, scopes=scopes), self.visible(as_of=as_of, known_at=known_at)
        made = [one for one in self.links if known_at is None or one.made <= known_at]
        at, dimmed = as_of or known_at or self.now, set[str]()
        for link in (one for one in made if one.label == "supersedes" and one.ends & seen):
            hidden = (link.ends & self.entries.keys()) - all_seen
            dimmed |= {one for one in hidden if not self.entries[one][-1].active(at) and (not scopes or self.scopes[one] in scopes)}
        ends = seen | dimmed
        between = {one.id for one in made if one.ends <= ends and (not one.ends & dimmed or (one.label == "supersedes" and one.ends & seen))}
        return ends, dimmed, between


def _standing(servers: Sequence[Server], name: str) -> list[Record]:
    found = {row.key: row for server in servers for row in server.store.state.everything(name) if isinstance(row, Record) and row.role is Role.HOME}
    return list(found.values())


def _stood(row: Record, since: Any, until: Any) -> Stood:
    begins: Any = row.fields["valid_from"]
    ends: Any = row.fields.get("valid_to")
    return Stood(_moment(since), None if until is None else _moment(until), begins, ends)


def _moment(version: Any) -> datetime:
    return BEGAN + timedelta(microseconds=int(version))
