"""Every deletion of several steps is cut off at every store call that writes, and then
made again by another process: it leaves what a whole one leaves, in every store.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from memory import Memory, MemoryTiersError, OlderThan, RetentionRule
from memory.adapters.in_memory import InMemoryStore, Snapshot, State
from memory.orchestrator.storage.collections import ENTRIES, MESSAGES
from memory.orchestrator.storage.kinds import KINDS
from memory.ports.query import MAX_LIMIT, Everywhere, Query
from memory.ports.record import Key, Record, Role
from tests.acceptance.support import DAY, HOUR, Clock, stores_of
from tests.support.backends import marks_of
from tests.support.cut_off import cut_off_at
from tests.support.depth import FIRST_SEED, beyond
from tests.support.placings import STORIES, forget

WRITES = ("apply", "delete_matching", "forget_partitions")
CALLS = (*WRITES, "get", "query", "count", "search", "candidates", "due", "partitions", "idle_partitions")
MOST_CALLS = 2_000
NAMES = ("short", "mid", "long")
IN_MEMORY = {
    "stores": {name: {"url": "memory://"} for name in NAMES},
    "tiers": {name: name for name in NAMES},
}
SERVERS = STORIES[0]
SECRET, KEPT = "heron", "plover"
LARGE = 66_000
"""Characters of a text that is stored apart from its record."""
OWN = frozenset({"operations", "leases", "settings", "requests", "counters"})
"""Collections of the engine's own records, which hold no text of a caller."""
Given = Mapping[str, str]
Call = Callable[[Memory, Given], Awaitable[Any]]
Stored = Counter[tuple[str, str, str]]


def embed(texts: Sequence[str]) -> list[list[float]]:
    return [[1.0, float(text.count(SECRET))] for text in texts]


OPTIONS: dict[str, Any] = {
    "embedder": embed,
    "retention": [
        RetentionRule(name="old", then="delete", when=OlderThan(40 * DAY), types=("learning",)),
        RetentionRule(name="few", what="versions", keep_versions=1, types=("learning",)),
    ],
}


# -- what is stored --------------------------------------------------------------------


async def prepared(memory: Memory, clock: Clock) -> Given:
    """Store, for two users, everything that a deletion reaches."""
    given: dict[str, str] = {}
    for user, word in (("ada", SECRET), ("bob", KEPT)):
        scope, talk, large = f"user:{user}", f"talk-{user}", f"{word} " * (LARGE // len(word))
        kind: dict[str, Any] = {"expires_at": 20 * DAY, "type": "learning"} if user == "ada" else {}
        entry = await memory.write(f"{word} one", scope=scope, source=f"web-{user}", **kind)
        for number in range(3):
            await memory.update(entry.id, content=f"{word} again {number}")
        other = await memory.write(large[:4_000], scope=scope, metadata={"of": user}, **kind)
        await memory.relations.relate(entry.id, "supports", other.id)
        await memory.promote(entry.id, f"org:{user}")
        session = await memory.sessions.create(
            talk, user=user, title=word, expires_at=20 * DAY if user == "ada" else None
        )
        await memory.write(f"{word} said", scope=f"session:{talk}", **kind)
        await session.append(
            [
                {"role": "user", "content": f"{word} hello", "id": "m1"},
                {"role": "user", "content": large, "id": "m2"},
                {"role": "assistant", "content": "ok", "id": "m3"},
            ]
        )
        await session.tasks.save(f"task-{user}", title=word)
        await session.runs.save("run", child_id=f"child-{user}")
        artifact = await memory.artifacts.put(talk, "report.md", word.encode() * 1000)
        await memory.write(f"{word} see", scope=scope, artifact_id=artifact.id, **kind)
        await memory.documents.put(scope, "large", f"{word} " * 60_000)
        await memory.documents.put(scope, "small", {"word": word})
        await memory.scratchpads.append(f"{word} " * 60_000, user)
        given |= {f"entry-{user}": entry.id, f"other-{user}": other.id, f"artifact-{user}": artifact.id}
    await settle(memory, clock)
    return given


async def settle(memory: Memory, clock: Clock) -> None:
    """Sweeps, some time later, until nothing is pending."""
    for _ in range(3):
        clock.advance(2 * HOUR)
        await memory.admin.sweep()
    assert (await memory.admin.stats()).pending_steps == 0


async def stored_in(memory: Memory) -> Stored:
    """Count the records of callers in every store, by kind and by whose they are."""
    found: Stored = Counter()
    for store in stores_of(memory):
        for kind in KINDS:
            if kind.collection.name in OWN:
                continue
            page = await store.query(
                Query(kind.collection, Everywhere(), roles=frozenset(Role), limit=MAX_LIMIT)
            )
            for row in page.records:
                assert isinstance(row, Record)
                whose = SECRET if SECRET in repr(row) else "ada's" if "ada" in row.scope else "another's"
                found[store.name, kind.collection.name, whose] += 1
    return found


# -- the deletions ---------------------------------------------------------------------


@dataclass(frozen=True)
class Deletion:
    """A deletion, how much later it is made, and what happens to the stores before."""

    call: Call
    later: Any = HOUR
    before: Callable[[Mapping[str, State], Given], None] | None = None


def damage_an_entry(states: Mapping[str, State], given: Given) -> None:
    key = Key("default", given["entry-ada"])
    for state in states.values():
        if isinstance(state.fetch_stored(ENTRIES.name, key), Record):
            state.damage(ENTRIES.name, key)


DELETIONS: dict[str, Deletion] = {
    "an entry": Deletion(lambda m, a: m.delete(a["entry-ada"])),
    "a long entry": Deletion(lambda m, a: m.delete(a["other-ada"])),
    "entries by a filter": Deletion(lambda m, a: m.entries.delete_many({"metadata.of": "ada"})),
    "a damaged entry": Deletion(lambda m, a: m.delete(a["entry-ada"]), before=damage_an_entry),
    "a scope": Deletion(lambda m, a: m.admin.erase("user:ada")),
    "a session": Deletion(lambda m, a: m.sessions.delete("talk-ada")),
    "a message": Deletion(lambda m, a: m.session("talk-ada").erase("m1")),
    "a large message": Deletion(lambda m, a: m.session("talk-ada").erase("m2")),
    "a large text": Deletion(lambda m, a: m.session("talk-ada").update("m2", content="small")),
    "a task": Deletion(lambda m, a: m.session("talk-ada").tasks.delete("task-ada")),
    "a run": Deletion(lambda m, a: m.session("talk-ada").runs.delete("run")),
    "an artifact": Deletion(lambda m, a: m.artifacts.delete(a["artifact-ada"])),
    "a large document": Deletion(lambda m, a: m.documents.delete("user:ada", "large")),
    "a large value": Deletion(lambda m, a: m.documents.put("user:ada", "large", "small")),
    "documents by a prefix": Deletion(lambda m, a: m.documents.delete_many("user:ada", prefix="")),
    "a scratchpad": Deletion(lambda m, a: m.scratchpads.clear("ada")),
    "a user": Deletion(lambda m, a: m.admin.erase_user("ada")),
    "a tenant": Deletion(lambda m, a: m.admin.erase_tenant()),
    "what a source wrote": Deletion(
        lambda m, a: m.admin.revert_source(source="web-ada", erase=True, derived=True)
    ),
    "what has expired": Deletion(lambda m, a: m.admin.sweep(), 22 * DAY),
    "what is old": Deletion(lambda m, a: m.admin.sweep(), 41 * DAY),
}


IN_CI = {"a large message", "an artifact", "a large document"}


# -- cut off ---------------------------------------------------------------------------


@dataclass
class Places:
    """Three stores in memory, which outlive the processes that use them."""

    states: dict[str, State]
    clock: Clock

    def memory(self) -> Memory:
        """Return a memory of another process over these stores."""
        return Memory({**IN_MEMORY, "durations": {"sweep_every": "0s"}}, clock=self.clock, **OPTIONS)

    def snapshot(self) -> tuple[dict[str, Snapshot], Any]:
        return {name: state.snapshot() for name, state in self.states.items()}, self.clock.moment

    def restore(self, base: tuple[dict[str, Snapshot], Any]) -> None:
        for name, snapshot in base[0].items():
            self.states[name].restore(snapshot)
        self.clock.moment = base[1]


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> Places:
    states, made = {name: State() for name in NAMES}, InMemoryStore.__init__

    def over_states(self: InMemoryStore, name: str, **options: Any) -> None:
        made(self, name, state=states[name], **options)

    monkeypatch.setattr(InMemoryStore, "__init__", over_states)
    monkeypatch.setattr(InMemoryStore, "claims", replace(InMemoryStore.claims, durable=True, shared=True))
    return Places(states, Clock())


async def check_cuts(
    deletion: Deletion, given: Given, before: Stored, places: Places, patch: pytest.MonkeyPatch
) -> None:
    """Cut the deletion off after each write. Every other time a sweep comes before the
    repeat.
    """
    base = places.snapshot()
    async with places.memory() as memory:
        with cut_off_at(MOST_CALLS, CALLS, patch) as made:
            await deletion.call(memory, given)
        await settle(memory, places.clock)
        expected = await stored_in(memory)
    assert before - expected, "it deletes something"
    wrong: list[str] = []
    for number in [number for number, call in enumerate(made, 1) if call in WRITES]:
        places.restore(base)
        killed = places.memory()
        await killed.open()
        await cut_off(killed, deletion, given, number, patch)
        async with places.memory() as memory:
            problem = await repeat(
                memory, deletion, given, places.clock, expected, sweeps_first=number % 2 > 0
            )
        wrong += [f"{number} ({made[number - 1]}): {problem}"] if problem else []
    assert not wrong, "\n".join(wrong)


async def cut_off(
    killed: Memory, deletion: Deletion, given: Given, number: int, patch: pytest.MonkeyPatch
) -> None:
    """Begin the deletion, and let the process die at the store call of this number."""
    with cut_off_at(number, CALLS, patch):
        with suppress(MemoryTiersError):
            await deletion.call(killed, given)
        await killed.close()


async def repeat(
    memory: Memory, deletion: Deletion, given: Given, clock: Clock, expected: Stored, *, sweeps_first: bool
) -> str:
    """Make the deletion again, and return what is not as after a whole one."""
    if sweeps_first:
        await memory.admin.sweep()
    with suppress(MemoryTiersError):  # there may be nothing left to delete
        await deletion.call(memory, given)
    await settle(memory, clock)
    stored, compared = await stored_in(memory), await memory.admin.compare()
    left = stored - expected
    lost = [kind for kind in expected - stored if kind[2] == "another's"]
    return f"left {left}, lost {lost}, differs {compared.differs}" if left or lost or not compared.ok else ""


@pytest.mark.parametrize("name", [pytest.param(name, marks=beyond(name, (), IN_CI)) for name in DELETIONS])
async def test_a_deletion_cut_off_anywhere_leaves_nothing_that_its_repeat_does_not_find(
    name: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    deletion = DELETIONS[name]
    async with places.memory() as memory:
        given = await prepared(memory, places.clock)
        before = await stored_in(memory)
    if deletion.before is not None:
        deletion.before(places.states, given)
    places.clock.advance(deletion.later)
    await check_cuts(deletion, given, before, places, monkeypatch)


@pytest.mark.parametrize("tier", [pytest.param(name, marks=beyond(name, (), {"mid"})) for name in NAMES])
async def test_a_repair_cut_off_anywhere_is_completed_by_its_repeat(
    tier: str, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store is restored to a moment before deletions. One message in it is of a clock
    that was ahead: that it is older than the deletion shows only by its session.
    """
    async with places.memory() as memory:
        given = await prepared(memory, places.clock)
        put_ahead(places.states["mid"])
        backup = places.states[tier].snapshot()
        for name in ("a session", "a scope", "an entry"):
            await DELETIONS[name].call(memory, given)
        await settle(memory, places.clock)
        places.states[tier].restore(backup)
        before = await stored_in(memory)
    repair = Deletion(lambda m, a: m.admin.compare(repair=True))
    await check_cuts(repair, given, before, places, monkeypatch)


def put_ahead(state: State) -> None:
    """Move the newest message of a session to a version of tomorrow."""
    rows = [row for row in state.everything(MESSAGES.name) if isinstance(row, Record) and SECRET in repr(row)]
    last = max(rows, key=lambda row: row.version)
    later = replace(last, version=last.version + round(DAY.total_seconds() * 1e6))
    state.place(MESSAGES.name, last.key, later)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=marks_of(*SERVERS.backends))
        for name, deletion in DELETIONS.items()
        if deletion.before is None
    ],
)
async def test_on_servers_a_repeat_finds_what_a_deletion_that_was_cut_off_has_left(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At one of the calls a night: what is stored has to be stored again for each."""
    deletion, clock = DELETIONS[name], Clock()

    async def ready(folder: Path) -> tuple[dict[str, Any], Given]:
        await asyncio.to_thread(folder.mkdir)
        config = {**SERVERS.config(folder), "durations": {"sweep_every": "0s"}}
        async with Memory(config, clock=clock, **OPTIONS) as memory:
            given = await prepared(memory, clock)
        clock.advance(deletion.later)
        return config, given

    config, given = await ready(tmp_path / "whole")
    async with Memory(config, clock=clock, **OPTIONS) as memory:
        with cut_off_at(MOST_CALLS, CALLS, monkeypatch) as made:
            await deletion.call(memory, given)
        await settle(memory, clock)
        expected = await stored_in(memory)
    forget(tmp_path / "whole")
    writes = [number for number, call in enumerate(made, 1) if call in WRITES]
    number = random.Random(FIRST_SEED).choice(writes)  # noqa: S311 - to repeat it
    config, given = await ready(tmp_path / "cut")
    killed = Memory(config, clock=clock, **OPTIONS)
    await killed.open()
    await cut_off(killed, deletion, given, number, monkeypatch)
    async with Memory(config, clock=clock, **OPTIONS) as memory:
        problem = await repeat(memory, deletion, given, clock, expected, sweeps_first=number % 2 > 0)
    forget(tmp_path / "cut")
    assert not problem, f"{number}: {problem}"
