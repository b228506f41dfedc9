"""The promise of running numbers, and histories of parallel numbering, deletions and
erasures that they are kept after.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any

from memory.domain.entry import EntryDraft
from memory.domain.errors import MemoryTiersError
from memory.domain.scope import Scope
from memory.domain.short_id import NumberedItem, NumberedKind
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import COUNTERS, ENTRIES, MANIFESTS, NUMBERS, SESSIONS
from memory.ports.collections import Collection
from memory.ports.query import Everywhere, Query
from memory.ports.record import Key, Partition, Record

SCOPES = (Scope.user("ada"), Scope.session("s1"), Scope.org("o1"))
SESSIONS_OF = ("s1", "s2")
PATHS = ("a", "b")


async def misnumbered(engine: Engine) -> list[str]:
    """What is not as it is to be once all is swept, a sentence each: a number is of one
    thing, a thing has one, both are there, all are counted.
    """
    numbers, artifacts, wrong = await _all(engine, NUMBERS), await _numbered_artifacts(engine), list[str]()
    last = {row.key.tenant: int(str(row.fields["last"])) for row in await _all(engine, COUNTERS)}
    things = [Key(row.key.tenant, str(row.fields["entry_id"])) for row in numbers]
    wrong += [f"{key.id} has {many} numbers" for key, many in Counter(things).items() if many > 1]
    given = Counter((row.key.tenant, int(str(row.fields["number"]))) for row in (*numbers, *artifacts))
    wrong += [
        f"#{number} of {tenant} is given {many} times" for (tenant, number), many in given.items() if many > 1
    ]
    wrong += [
        f"#{number} of {tenant} is none that was counted"
        for tenant, number in given
        if not 1 <= number <= last.get(tenant, 0)
    ]
    for row, at in zip(
        numbers, await engine.placement.locate_many(ENTRIES, things) if things else (), strict=True
    ):
        if at.record is None:
            wrong.append(f"#{row.fields['number']!r} is of {at.key.id}, which is gone")
        elif at.record.scope != row.scope:
            wrong.append(f"#{row.fields['number']!r} lies in {row.scope}, its entry in {at.record.scope}")
    lives = await _lives(engine)
    of = Counter((row.key.tenant, str(row.fields["artifact_id"])) for row in artifacts)
    wrong += [f"{one} has {many} numbers" for (_, one), many in of.items() if many > 1]
    gone = [row for row in artifacts if lives.get(row.partition) != row.fields["incarnation"]]
    return wrong + [
        f"#{row.fields['number']!r} is of {row.fields['artifact_id']!r}, whose session is gone"
        for row in gone
    ]


async def _numbered_artifacts(engine: Engine) -> list[Record]:
    return [row for row in await _all(engine, MANIFESTS) if row.fields.get("number") is not None]


async def _lives(engine: Engine) -> dict[Partition, object]:
    return {row.partition: row.body["incarnation"] for row in await _all(engine, SESSIONS)}


async def _all(engine: Engine, collection: Collection) -> list[Record]:
    query = Query(collection, Everywhere(), limit=500)
    pages = engine.placement.pages("look", engine.topology.archive, query)
    return [row async for page in pages for row in page.records if isinstance(row, Record)]


class History:
    """Processes that write, put, number, delete, erase and move at once, for two
    tenants; what each was told is noted.
    """

    ROUNDS, AT_ONCE = 8, 5

    def __init__(
        self,
        seed: int,
        engines: Sequence[Engine],
        *,
        tenants: Sequence[str] = ("acme", "globex"),
        erases_tenants: bool = True,
    ) -> None:
        self.chance = random.Random(seed)  # noqa: S311 - no secret
        self.engines = engines
        self.tenants = tenants
        self.written: dict[str, list[str]] = {tenant: [] for tenant in tenants}
        self.put_there: dict[str, list[str]] = {tenant: [] for tenant in tenants}
        """The ids of artifacts."""
        self.told: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
        """By tenant and number, of what it was said to be the number."""
        self.lives_once: set[str] = set()
        """What nobody can write again once it is gone: its number never changes."""
        self._acts: list[Callable[[Engine, str], Coroutine[Any, Any, None]]] = [
            self.write,
            self.write_keyed,
            self.number,
            self.number,
            self.number,
        ]
        self._acts += [self.delete, self.erase_scope, self.move, self.sweep] + [
            self.erase_tenant
        ] * erases_tenants
        self._acts += [
            self.put,
            self.put,
            self.number_artifacts,
            self.number_artifacts,
            self.delete_artifact,
            self.delete_session,
        ]

    async def played(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Play it. `meanwhile` is called before each round."""
        for tenant in self.tenants:
            await self.write(self.engines[0], tenant)
            await self.put(self.engines[0], tenant)
        for _ in range(self.ROUNDS):
            meanwhile()
            acts = [self._drawn() for _ in range(self.AT_ONCE)]
            outcomes = await asyncio.gather(*acts, return_exceptions=True)
            for outcome in outcomes:
                if outcome is not None and not isinstance(outcome, MemoryTiersError):
                    raise outcome

    async def ended(self) -> list[str]:
        """What is wrong once it is swept, and all that is left is numbered."""
        engine, wrong = self.engines[0], list[str]()
        for _ in range(3):
            await engine.maintenance.sweep()
        wrong += await misnumbered(engine)
        for tenant in self.tenants:
            written, put = self.written[tenant], self.put_there[tenant]
            located = await engine.placement.locate_many(ENTRIES, [Key(tenant, one) for one in written])
            wrong += await self._ended(
                engine, tenant, "entry", written, {at.key.id for at in located if at.record is not None}
            )
            lives = await _lives(engine)
            rows = [
                row
                for row in await _all(engine, MANIFESTS)
                if lives.get(row.partition) == row.fields["incarnation"]
            ]
            there = {str(row.fields["artifact_id"]) for row in rows if row.key.tenant == tenant}
            wrong += await self._ended(engine, tenant, "artifact", put, there & set(put))
        wrong += [
            f"#{number} of {tenant} was said of {sorted(of)}"
            for (tenant, number), of in self.told.items()
            if len(of) > 1
        ]
        said = Counter(one for of in self.told.values() for one in of & self.lives_once)
        wrong += [f"of {one} {many} numbers were said" for one, many in said.items() if many > 1]
        return wrong + await misnumbered(engine)

    async def _ended(
        self, engine: Engine, tenant: str, kind: NumberedKind, known: Sequence[str], there: set[str]
    ) -> list[str]:
        await self.number(engine, tenant, known, kind)
        found = await engine.short_ids.of(tenant, known, kind)
        wrong = [f"{one} has no number" for one in there - found.keys()]
        wrong += [f"{one} has a number, and is gone" for one in found.keys() - there]
        for one in known:
            thing = NumberedItem(kind, one, found[one]) if one in found else None
            named = await engine.short_ids.resolve(tenant, [one, found.get(one, 0)])
            wrong += [] if named == [thing, thing] else [f"{one} and #{found.get(one, 0)} find {named}"]
        return wrong

    def _drawn(self) -> Coroutine[Any, Any, None]:
        return self.chance.choice(self._acts)(
            self.chance.choice(self.engines), self.chance.choice(self.tenants)
        )

    # -- acts --------------------------------------------------------------------------

    async def write(self, engine: Engine, tenant: str) -> None:
        for _ in range(3):
            entry = await engine.entries.write(
                tenant, EntryDraft(scope=self.chance.choice(SCOPES), content="text")
            )
            self.written[tenant].append(entry.id)
            self.lives_once.add(entry.id)

    async def write_keyed(self, engine: Engine, tenant: str) -> None:
        """Under one of two keys: it may begin another life."""
        draft = EntryDraft(scope=SCOPES[0], content="text", key=self.chance.choice("ab"))
        entry = await engine.entries.write(tenant, draft, revive=True)
        self.written[tenant] = [*dict.fromkeys([*self.written[tenant], entry.id])]

    async def put(self, engine: Engine, tenant: str) -> None:
        """A file of a session, which is created where it is not there: new, or in the
        place of another.
        """

        async def pieces() -> AsyncIterator[bytes]:
            yield b"text"

        session, path = self.chance.choice(SESSIONS_OF), self.chance.choice(PATHS)
        await engine.conversations.open(tenant, SessionDraft(session), create=True)
        artifact = await engine.conversations.manifests.put(tenant, session, path, "text/plain", pieces(), 4)
        self.put_there[tenant] = [*dict.fromkeys([*self.put_there[tenant], artifact.id])]
        self.lives_once.add(artifact.id)

    async def number(
        self, engine: Engine, tenant: str, of: Sequence[str] | None = None, kind: NumberedKind = "entry"
    ) -> None:
        known = self.written[tenant] if kind == "entry" else self.put_there[tenant]
        asked = self.chance.sample(known, k=min(4, len(known))) if of is None else of
        for one, number in (await engine.short_ids.of(tenant, asked, kind)).items():
            self.told[tenant, number].add(one)

    async def number_artifacts(self, engine: Engine, tenant: str) -> None:
        await self.number(engine, tenant, kind="artifact")

    async def delete(self, engine: Engine, tenant: str) -> None:
        if self.written[tenant]:
            await engine.deletion.delete(tenant, self.chance.choice(self.written[tenant]))

    async def delete_artifact(self, engine: Engine, tenant: str) -> None:
        if self.put_there[tenant]:
            await engine.conversations.manifests.delete(tenant, self.chance.choice(self.put_there[tenant]))

    async def delete_session(self, engine: Engine, tenant: str) -> None:
        await engine.conversations.sessions.delete(tenant, self.chance.choice(SESSIONS_OF))

    async def erase_scope(self, engine: Engine, tenant: str) -> None:
        await engine.erasure.erase(Partition(tenant, self.chance.choice(SCOPES).text))

    async def erase_tenant(self, engine: Engine, tenant: str) -> None:
        await engine.tenants.erase(tenant)

    async def move(self, engine: Engine, tenant: str) -> None:
        if self.written[tenant]:
            await engine.tier_mover.move(
                ENTRIES,
                Key(tenant, self.chance.choice(self.written[tenant])),
                self.chance.choice(("mid", "long")),
            )

    async def sweep(self, engine: Engine, tenant: str) -> None:
        await engine.maintenance.sweep()
