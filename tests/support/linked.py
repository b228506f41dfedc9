"""What the graph must answer, in plain Python, of entries and links that are known."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime

DENSE = 4


@dataclass(frozen=True, slots=True)
class Stood:
    """What an entry was from one moment to another; `until` of None: to this day."""

    since: datetime
    until: datetime | None
    begins: datetime
    ends: datetime | None
    expires: datetime | None = None

    def expired(self, at: datetime) -> bool:
        return self.expires is not None and self.expires < at

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

    def dangling(self) -> list[Link]:
        return [link for link in self.links if not link.ends <= self.entries.keys()]

    def lasting(self) -> set[str]:
        """The entries that have not expired."""
        return {entry_id for entry_id, stood in self.entries.items() if not stood[-1].expired(self.now)}

    def visible(
        self, *, as_of: datetime | None = None, known_at: datetime | None = None, scopes: Collection[str] = ()
    ) -> set[str]:
        """The entries that a plain read shows, now or at a moment."""
        found = set()
        for entry_id in self.lasting():
            stood = self.entries[entry_id]
            then = [one for one in stood if one.until is None]
            if known_at is not None:
                then = [
                    one
                    for one in stood
                    if one.since <= known_at and (one.until is None or known_at < one.until)
                ]
            if then and known_at is not None and then[0].expired(known_at):
                continue
            if (
                then
                and then[0].active(as_of or known_at or self.now)
                and (not scopes or self.scopes[entry_id] in scopes)
            ):
                found.add(entry_id)
        return found

    def related(
        self, *, active: bool = False, as_of: datetime | None = None, known_at: datetime | None = None
    ) -> set[str]:
        if not active and as_of is None and known_at is None:
            return {link.id for link in self.links if link.ends <= self.entries.keys()}
        seen = self.visible(as_of=as_of, known_at=known_at)
        made = [
            link
            for link in self.links
            if link.ends <= self.entries.keys() and (known_at is None or link.made <= known_at)
        ]
        return {
            one.id
            for one in made
            if one.ends <= seen or (not active and one.label == "supersedes" and one.ends & seen)
        }

    def expand(
        self, begin: str, depth: int, *, superseded: bool = False, scopes: Collection[str] = ()
    ) -> tuple[dict[str, int], set[str]]:
        """How far each is that is reached, and the links gone along."""
        seen, lasting = self.visible(), self.lasting()
        shown = [
            one
            for one in self.links
            if one.ends <= seen or (superseded and one.label == "supersedes" and one.ends & seen)
        ]
        far, along = {begin: 0}, set[str]()
        for step in range(1, depth + 1):
            for link in shown:
                for here, there in ((link.source, link.target), (link.target, link.source)):
                    if (
                        far.get(here) == step - 1
                        and there in lasting
                        and (not scopes or self.scopes[there] in scopes or there == begin)
                    ):
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
        seen, all_seen = (
            self.visible(as_of=as_of, known_at=known_at, scopes=scopes),
            self.visible(as_of=as_of, known_at=known_at),
        )
        made = [one for one in self.links if known_at is None or one.made <= known_at]
        at, dimmed, lasting = as_of or known_at or self.now, set[str](), self.lasting()
        for link in (one for one in made if one.label == "supersedes" and one.ends & seen):
            hidden = (link.ends & lasting) - all_seen
            dimmed |= {
                one
                for one in hidden
                if not self.entries[one][-1].active(at) and (not scopes or self.scopes[one] in scopes)
            }
        ends = seen | dimmed
        between = {
            one.id
            for one in made
            if one.ends <= ends and (not one.ends & dimmed or (one.label == "supersedes" and one.ends & seen))
        }
        return ends, dimmed, between
