"""What is promised of relations: an acknowledged one is listed until it is cut or an
end of it is deleted, and then it is not.

A link is known by its tenant, its ends and its label. What is told of links is judged
against when they were made and cut, and against what became of the entries at their
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf

Link = tuple[str, str, str, str]
"""Tenant, the id of the source, label, the id of the target."""
Span = tuple[float, float]
Removals = Callable[[str], Iterator[Span]]
Gone = Callable[[str, float, float], bool]


@dataclass(frozen=True, slots=True)
class LinkAct:
    """A link made or cut at one moment between `start` and `end`. `maybe`: the client
    never learned whether; it may at any time after, or never.
    """

    link: Link
    start: float
    end: float
    by: str
    maybe: bool = False
    clock: float = inf
    """The earliest moment that its maker's clock showed, by which it was decided
    whether its ends are hidden.
    """


@dataclass(frozen=True, slots=True)
class LinkSight:
    """An answer about links: those that were shown, and whether all that fit what was
    asked are among them.
    """

    tenant: str
    shown: frozenset[Link]
    start: float
    end: float
    by: str
    whole: bool = True
    source_id: str | None = None
    target_id: str | None = None
    label: str | None = None

    def asks_for(self, link: Link) -> bool:
        tenant, source_id, label, target_id = link
        return (
            tenant == self.tenant
            and self.source_id in (None, source_id)
            and self.target_id in (None, target_id)
            and self.label in (None, label)
        )


@dataclass(slots=True)
class Links:
    """Everything that was done to links and told of them in one run."""

    made: list[LinkAct] = field(default_factory=list)
    cut: list[LinkAct] = field(default_factory=list)
    sights: list[LinkSight] = field(default_factory=list)
    refused: list[LinkAct] = field(default_factory=list)
    """Links that were refused because an end was said not to be there."""
    ids: dict[str, Link] = field(default_factory=dict)
    """The links that ids stand for, as far as anybody was told."""

    def check(
        self, removals: Removals, active: Callable[[str, float, float], bool], gone: Gone
    ) -> Iterator[tuple[str, Link, str]]:
        """What is wrong: the kind, the link and why.

        `removals` gives, for an entry's id, when it was certainly deleted, as spans,
        and when it may have been, as spans that never end; `active` whether an entry
        was certainly there for all of a span; `gone` whether it was certainly gone, or
        hidden by that clock, before.
        """
        for sight in self.sights:
            yield from self._check_sight(sight, removals, gone)
        for act in (m for m in self.made if not m.maybe):
            if self._must_be_there(act.link, act.start, act.end, removals):
                yield "doubled", act.link, f"{act.by} made it though it was there"
            if gone(act.link[1], act.start, act.clock) or gone(act.link[3], act.start, act.clock):
                yield (
                    "order",
                    act.link,
                    f"{act.by} [{act.start:.3f} {act.end:.3f}] made it though an end of it was gone",
                )
        for act in (c for c in self.cut if not c.maybe):
            if (why := self._cannot_be_there(act.link, act.start, act.end, removals)) is not None:
                yield "order", act.link, f"{act.by} [{act.start:.3f} {act.end:.3f}] cut it though {why}"
        for act in self.refused:
            if active(act.link[1], act.start, act.end) and active(act.link[3], act.start, act.end):
                yield "lost", act.link, f"{act.by} was told that an end of it is not there"

    def _check_sight(
        self, sight: LinkSight, removals: Removals, gone: Gone
    ) -> Iterator[tuple[str, Link, str]]:
        """What was shown can have been there, and what must have been there was shown."""
        when = f"{sight.by} [{sight.start:.3f} {sight.end:.3f}]"
        for link in sight.shown:
            if not sight.asks_for(link):
                yield "foreign", link, f"{sight.by} did not ask for it"
            elif (why := self._cannot_be_there(link, sight.start, sight.end, removals)) is not None:
                yield "resurrected", link, f"{when} saw it though {why}"
            elif sight.whole and (gone(link[1], sight.start, -inf) or gone(link[3], sight.start, -inf)):
                yield "resurrected", link, f"{when} saw it though an end of it is gone"
        for link in {m.link: None for m in self.made if m.link not in sight.shown} if sight.whole else ():
            if sight.asks_for(link) and self._must_be_there(link, sight.start, sight.end, removals):
                yield "lost", link, f"{when} was not shown it"

    def _must_be_there(self, link: Link, start: float, end: float, removals: Removals) -> bool:
        """Whether it was acknowledged before and nothing can have taken it away since."""
        for made in self.made:
            if (
                made.link == link
                and not made.maybe
                and made.end < start
                and not any(self._removed(link, made.start, end, removals))
            ):
                return True
        return False

    def _removed(self, link: Link, since: float, until: float, removals: Removals) -> Iterator[Span]:
        for cut in self.cut:
            if cut.link == link and cut.start < until and cut.end > since:
                yield cut.start, cut.end
        for entry_id in (link[1], link[3]):
            for start, end in removals(entry_id):
                if start < until and end > since:
                    yield start, end

    def _cannot_be_there(self, link: Link, start: float, end: float, removals: Removals) -> str | None:
        """Why it cannot be: nobody made it, or nobody made it again after it was taken
        away.
        """
        made = [m for m in self.made if m.link == link and m.start < end]
        if not made:
            return "nobody made it"
        for gone in self._removed(link, -inf, start, removals):
            if gone[1] < start and not any(m.maybe or m.end > gone[0] for m in made):
                return f"it or an end of it was deleted in [{gone[0]:.3f} {gone[1]:.3f}]"
        return None
