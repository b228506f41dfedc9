"""Drawn histories: entries are written, edited, retired, deleted, moved and erased,
many at one moment, while pages are turned. What each page shows is what a list in plain
Python says.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from memory import Entry, Memory, Scope
from memory.orchestrator.entries import browsing
from memory.policies import visibility
from tests.acceptance.support import HOUR, MICROSECOND, OTHER_USER, SESSION, START, USER, WORKSPACE, Clock
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.mutations import Mutation

SCOPES = (SESSION, USER, WORKSPACE, OTHER_USER)
TYPES, TAGS, CONVERSATIONS = ("project", "reference", "user"), ("a", "A", "a_b", "axb"), ("c1", "c2", None)
ELSEWHERE = "other"


@dataclass
class Asked:
    """A question, where it has come to, and what was not touched since it was asked
    first.
    """

    scopes: list[Scope] | None
    conversation: str | None
    types: list[str]
    tags: list[str]
    since: datetime | None
    updated_before: datetime | None
    cursor: str | None = None
    behind: tuple[datetime, int] | None = None
    untouched: set[str] = field(default_factory=set)
    shown: list[str] = field(default_factory=list)

    def lets_through(self, entry: Entry) -> bool:
        return (
            (self.scopes is None or entry.scope in self.scopes)
            and (self.conversation is None or entry.conversation_id in (None, self.conversation))
            and (not self.types or entry.type in self.types)
            and set(self.tags) <= set(entry.tags)
            and (self.since is None or entry.created_at >= self.since)
            and (self.updated_before is None or entry.updated_at < self.updated_before)
        )

    @property
    def options(self) -> dict[str, Any]:
        said = {
            name: getattr(self, name)
            for name in ("conversation", "types", "tags", "since", "updated_before", "cursor")
        }
        return {name: value for name, value in said.items() if value not in (None, [])}


class History:
    """What a seed draws."""

    def __init__(self, memory: Memory, clock: Clock, seed: int) -> None:
        self.draw = random.Random(f"browse {seed}")  # noqa: S311
        self.memory, self.clock = memory, clock
        self.order: dict[str, int] = {}
        """How many entries were written before each."""
        self.active: dict[str, Entry] = {}
        """What the tenant has that is active, as it was told last."""
        self.asking: list[Asked] = []

    async def played(self) -> list[str]:
        """What was wrong."""
        problems: list[str] = []
        self.clock.advance(10 * HOUR)
        for _ in range(self.draw.randrange(20, 50)):
            if self.draw.random() < 0.2:
                self.clock.advance(MICROSECOND * self.draw.choice([0, 1, 1_000]))
            self.clock.tick = MICROSECOND * self.draw.choice([0, 0, 1])  # many changes at one moment
            await self.draw.choice(self.acts)()
            problems += await self.turned()
        for asked in self.asking:
            while asked.cursor is not None:
                problems += await self.page(asked)
            problems += self.over(asked)
        return problems

    # -- pages -------------------------------------------------------------------------

    async def turned(self) -> list[str]:
        """Ask a new question, or go on with one."""
        if len(self.asking) < 3 or self.draw.random() < 0.2:
            asked = self.question()
            asked.untouched = {i for i, entry in self.active.items() if asked.lets_through(entry)}
            self.asking.append(asked)
            return await self.page(asked)
        asked = self.draw.choice(self.asking)
        return await self.page(asked) if asked.cursor is not None else []

    def question(self) -> Asked:
        draw, moments = self.draw, sorted({entry.updated_at for entry in self.active.values()}) or [START]
        return Asked(
            draw.choice([None, None, draw.sample(SCOPES, draw.randrange(1, 4))]),
            draw.choice(CONVERSATIONS),
            draw.sample(TYPES, draw.choice([0, 0, 1, 2])),
            draw.sample(TAGS, draw.choice([0, 0, 0, 1])),
            draw.choice([None, None, START + draw.randrange(3) * HOUR]),
            draw.choice([None, None, draw.choice(moments)]),
        )

    async def page(self, asked: Asked) -> list[str]:
        limit = self.draw.choice([1, 2, 3, 5, 50])
        found = await self.memory.browse(asked.scopes, **asked.options, limit=limit)
        behind = [
            e
            for e in self.active.values()
            if asked.lets_through(e) and (asked.behind is None or self._place(e) < asked.behind)
        ]
        meant = sorted(behind, key=self._place, reverse=True)
        problems = (
            []
            if [_told(e) for e in found] == [_told(e) for e in meant[:limit]]
            else [f"{asked} shows {found}, not {meant[:limit]}"]
        )
        if (found.cursor is None) != (len(meant) <= limit):
            problems.append(f"{asked} ends too early or too late")
        asked.cursor, asked.behind = found.cursor, self._place(found[-1]) if found else None
        asked.shown += [entry.id for entry in found]
        return problems

    def _place(self, entry: Entry) -> tuple[datetime, int]:
        return entry.updated_at, self.order[entry.id]

    def over(self, asked: Asked) -> list[str]:
        """What the pages of a question showed in all: nothing twice, and what nobody
        touched.
        """
        missed = asked.untouched - set(asked.shown)
        return (
            [f"{asked} showed some twice or not at all"]
            if missed or len(set(asked.shown)) < len(asked.shown)
            else []
        )

    # -- acts --------------------------------------------------------------------------

    @property
    def acts(self) -> list[Callable[[], Any]]:
        edits = [self.edit, self.retire, self.delete, self.move] if self.active else []
        return [
            self.write,
            self.write,
            self.write,
            *edits,
            *edits,
            self.erase,
            partial(self.write, ELSEWHERE),
            self.sweep,
        ]

    async def write(self, tenant: str | None = None) -> None:
        draw = self.draw
        memory = self.memory if tenant is None else self.memory.for_tenant(tenant)
        at = draw.choice([None, START, START + HOUR, START + 2 * HOUR])
        drafts = [
            {
                "content": f"said {draw.random()}",
                "scope": draw.choice(SCOPES),
                "type": draw.choice(TYPES),
                "tags": draw.sample(TAGS, draw.randrange(3)),
                "conversation_id": draw.choice(CONVERSATIONS),
                "speaker": "Ada",  # so that it need be no session
                "created_at": at,
            }
            for _ in range(draw.choice([1, 3, 8]))
        ]
        for draft in drafts:
            draft |= {"key": f"{draw.random()}"} if draw.random() < 0.5 else {}
        written = await memory.write_many(drafts)
        for entry in written:
            self.order[entry.id] = len(self.order)
        if tenant is None:
            self.active |= {entry.id: entry for entry in written}

    async def edit(self) -> None:
        chosen = self.one()
        self.active[chosen] = await self.memory.update(
            chosen, tags=self.draw.sample(TAGS, 2), content=f"edited {self.draw.random()}"
        )
        self.touched([chosen])

    async def retire(self) -> None:
        chosen = self.one()
        assert await self.memory.entries.invalidate(chosen)
        self.gone([chosen])

    async def delete(self) -> None:
        chosen = self.one()
        assert await self.memory.delete(chosen)
        self.gone([chosen])

    async def move(self) -> None:
        await self.memory.admin.move(
            self.draw.sample(list(self.active), min(3, len(self.active))), self.draw.choice(["mid", "long"])
        )

    async def erase(self) -> None:
        if self.draw.random() < 0.2:
            scope = self.draw.choice(SCOPES)
            await self.memory.admin.erase(scope)
            self.gone([i for i, entry in self.active.items() if entry.scope == scope])

    async def sweep(self) -> None:
        await self.memory.admin.sweep()

    def one(self) -> str:
        return self.draw.choice(list(self.active))

    def gone(self, ids: list[str]) -> None:
        for entry_id in ids:
            del self.active[entry_id]
        self.touched(ids)

    def touched(self, ids: list[str]) -> None:
        for asked in self.asking:
            asked.untouched -= set(ids)


def _told(entry: Entry) -> dict[str, Any]:
    return entry.model_dump(exclude={"tier"})


TIERS = ("short", "mid", "long")
APART: dict[str, Any] = {
    "stores": {tier: {"url": "memory://"} for tier in TIERS},
    "tiers": {tier: tier for tier in TIERS},
    "embedder": "none",
}
"""A store for each tier."""


async def _history(seed: int) -> list[str]:
    clock = Clock()
    async with Memory(APART, clock=clock, accept_loss=True) as memory:
        return await History(memory, clock, seed).played()


@pytest.mark.behaviour("D13", "D47", "D50", "D51", "D52", "D53")
@pytest.mark.thorough
async def test_every_page_is_what_a_list_says() -> None:
    for seed in range(drawn(200, 20, proof=2_000)):
        assert await _history(seed) == [], f"in history {seed}"


@pytest.mark.behaviour("D47", "D52")
async def test_every_page_is_what_a_list_says_over_these_stores(memory: Memory, clock: Clock) -> None:
    assert await History(memory, clock, 10_000).played() == []


MUTATIONS = {
    "ordered by creation": Mutation(
        browsing,
        "_place",
        'record.updated_at if asked.along == "updated_at" else record.created_at',
        "record.created_at",
    ),
    "stores are asked by creation": Mutation(
        browsing, "EntryBrowser._query", "asked, asked.along, None", 'asked, "created_at", None'
    ),
    "a page is cut among ties as they came": Mutation(
        browsing, "EntryBrowser._gather", "moments) >= asked.limit", "moments) >= 0"
    ),
    "a page begins among ties as they came": Mutation(
        browsing, "EntryBrowser._gather", "asked.after is not None", "False"
    ),
    "ties are passed over": Mutation(browsing, "_is_behind", "place < other", "place[0] < other[0]"),
    "there is always more": Mutation(browsing, "EntryBrowser.browse", "len(ordered) > len(shown)", "shown"),
    "only the first store is asked": Mutation(
        browsing,
        "EntryBrowser.sources",
        "topology.since(topology.home(born))",
        "topology.since(topology.home(born))[:1]",
    ),
    "what is pinned to none is left out": Mutation(visibility, "filter_of", ' IsNull("conversation_id")', ""),
    "before a moment is up to it": Mutation(visibility, "filter_of", 'Lt("updated_at"', 'Le("updated_at"'),
    "retired ones are shown": Mutation(
        visibility, "filter_of", 'Or((IsNull("valid_to"), Gt("valid_to", at or now)))', "None"
    ),
}


@pytest.mark.parametrize("name", noticed.cases("browse/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(_history, 60, f"browse/{name}")
