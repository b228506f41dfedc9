"""Mutations that the other tests of the engine let pass once: each with a story of several
processes that shows it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.domain.entry import EntryDraft
from memory.domain.errors import QuotaExceeded, StoreUnavailable
from memory.facade.runtime.access import engine_of
from memory.orchestrator.conversations import artifact_references, sessions
from memory.orchestrator.conversations.log import log as logs
from memory.orchestrator.conversations.log.seen import REMEMBERED_FOR
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.enrichment import superseding
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.entries import entries
from memory.orchestrator.entries.upserts import UpsertCall
from memory.orchestrator.maintenance import reverting
from memory.orchestrator.storage import cache
from memory.orchestrator.storage.collections import ENTRY_VERSIONS
from memory.orchestrator.tiering import moves, quotas
from memory.orchestrator.transfer import records
from memory.policies.quotas import Quota
from memory.ports.query import Everywhere, Query
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.talking import begun, user
from tests.unit.orchestrator.world import SESSION, TENANT, USER, VOLATILE, World

WEB = "source:web"
Story = Callable[[Path], Awaitable[None]]


async def roll_back(world: World, *, erase: bool = False) -> None:
    await world.engine.source_reverter.run(TENANT, [WEB], since=None, erase=erase, derived=False)


async def superseded(world: World) -> None:
    """What a source superseded is true again once the source is reverted."""
    async with world:
        old = await world.write("good", SESSION)
        await world.engine.supersede_writer.write(
            TENANT, EntryDraft(scope=USER, content="evil", source="web"), SupersedeRequest([old.id])
        )
        assert await world.browse(SESSION) == []
        await roll_back(world)
        assert await world.browse(SESSION) == ["good"]


async def remembered_session(_: Path) -> None:
    async with World() as world:
        await begun(world.engine)
        world.mid.down = True
        world.clock.advance(REMEMBERED_FOR)
        with pytest.raises(StoreUnavailable):
            await world.engine.conversations.open(TENANT, SessionDraft("s1"), create=False)


async def remembered_message(_: Path) -> None:
    """Nobody was told of an edit, since its writer died: a process that remembers the
    message shows the edit a minute later.
    """
    async with World() as world:
        session = await begun(world.engine)
        await session.append([user("first", "m1"), user("second", "m2")])
        other = await (await world.another_process()).conversations.open(
            TENANT, SessionDraft("s1"), create=False
        )
        world.mid.fails_before.add("log.append")
        with pytest.raises(StoreUnavailable):
            await other.update("m1", {"content": "changed"})
        world.heal()
        world.clock.advance(REMEMBERED_FOR)
        assert "changed" in [message.text for message in (await session.context()).messages]


async def remembered_room(_: Path) -> None:
    """A process takes room that it counted a minute ago only, while others fill it."""
    async with World(quotas=[Quota(name="all", entries=64)]) as world:
        await world.write("counted", USER)
        other = await world.another_process()
        await other.entries.write_many(TENANT, [EntryDraft(scope=USER, content=f"{n}") for n in range(63)])
        world.clock.advance(REMEMBERED_FOR)
        with pytest.raises(QuotaExceeded):
            await world.write("too many", USER)


async def remembered_copy(_: Path) -> None:
    """A copy in a cache that was not invalidated misleads other processes for a bounded
    time.
    """
    async with World(short=VOLATILE) as world:
        entry, other = await world.write(), await world.another_process()
        await world.get(entry)
        world.short.fails_before.add("cache.invalidate")
        await world.update(entry, content="edited")
        world.heal()
        world.clock.advance(2 * world.engine.settings.cache_max_age)
        assert (await other.entries.get(TENANT, entry.id) or entry).content == "edited"


async def resumed_revert(_: Path) -> None:
    """A sweep that resumes a revert leaves what the source wrote since, which is
    trusted again.
    """
    async with World() as world:
        await world.write("evil", USER, source="web")
        world.mid.fails_before.add("take_back.find")
        with pytest.raises(StoreUnavailable):
            await roll_back(world)
        world.heal()
        await world.write("good again", USER, source="web")
        await (await world.another_process()).maintenance.sweep()
        assert await world.browse(USER) == ["good again"]


async def edited_beside_revert(*, erase: bool, before: str) -> None:
    """A writer who is trusted states an entry anew while its source is reverted: that
    stays.
    """
    async with World() as world:
        await world.write("evil", USER, source="web", key="k")
        other = await world.another_process()
        mine = EntryDraft(scope=USER, content="mine", source="user", key="k")
        world.mid.before[before] = lambda: other.upserts.upsert(TENANT, UpsertCall(mine))
        await roll_back(world, erase=erase)
        assert await world.browse(USER) == ["mine"]


async def restored_versions(folder: Path) -> None:
    """An entry is deleted while its kept versions are imported: none of them stays."""
    async with (
        Memory(f"sqlite:///{folder}/here.db", embedder="none") as here,
        Memory(f"sqlite:///{folder}/there.db", embedder="none") as there,
    ):
        entry = await here.write("one", scope="user:ada")
        for content in ("two", "three", "four"):
            await here.update(entry.id, content=content)
        placement = engine_of(there).placement
        write = placement.write

        async def deleted_before(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "version.keep":
                await there.delete(entry.id)
            return await write(name, *args, **kwargs)

        placement.write = deleted_before  # type: ignore[method-assign]
        await there.admin.import_(here.admin.export(), same_ids=True)
        left = await engine_of(there).topology.archive.query(Query(ENTRY_VERSIONS, Everywhere()))
        assert not left.records


async def references(folder: Path) -> None:
    """An entry is edited while it lets go of an artifact that is deleted: it points to
    none afterwards.
    """
    url = f"sqlite:///{folder}/m.db"
    async with Memory(url, embedder="none") as memory, Memory(url, embedder="none") as other:
        await memory.sessions.create("s1")
        artifact = await memory.artifacts.put("s1", "a.txt", b"text")
        entry = await memory.write("text", scope="user:ada", artifact_id=artifact.id)
        placement = engine_of(memory).placement
        write, edits = placement.write, ["edited"]

        async def edited_before(name: str, *args: Any, **kwargs: Any) -> Any:
            if name == "referrers.clear" and edits:
                await other.update(entry.id, content=edits.pop())
            return await write(name, *args, **kwargs)

        placement.write = edited_before  # type: ignore[method-assign]
        assert await memory.artifacts.delete(artifact.id)
        there = await memory.get(entry.id)
        assert there is not None
        assert (there.content, there.artifact_id) == ("edited", None)


async def read_between(world: World, change: Callable[[Any], Awaitable[object]], **written: Any) -> Any:
    """The entry as it is read after a change; somebody reads it, and the cache keeps
    that, once the change has invalidated the cache first.
    """
    async with world:
        entry = await world.write(**written)

        async def stamped() -> None:  # the first call of that step reads what is cached, the second stamps it
            world.short.after["cache.invalidate"] = lambda: world.get(entry)

        world.short.after["cache.invalidate"] = stamped
        await change(entry)
        return await world.get(entry)


async def cached_while_edited(_: Path) -> None:
    world = World(short=VOLATILE)
    assert (
        await read_between(world, lambda entry: world.update(entry, content="edited"))
    ).content == "edited"


async def cached_while_superseded(_: Path) -> None:
    world = World(short=VOLATILE)
    draft = EntryDraft(scope=USER, content="new")
    assert (
        await read_between(
            world,
            lambda entry: world.engine.supersede_writer.write(TENANT, draft, SupersedeRequest([entry.id])),
        )
        is None
    )


async def cached_while_unpinned(_: Path) -> None:
    world = World(short=VOLATILE)

    async def deleted(_: object) -> None:
        await world.engine.conversations.create(TENANT, SessionDraft("s2"))
        await world.engine.conversations.sessions.delete(TENANT, "s2")

    assert (await read_between(world, deleted, conversation_id="s2")).conversation_id is None


async def cached_while_moved(_: Path) -> None:
    world = World(short=VOLATILE)
    assert (await read_between(world, lambda entry: world.move(entry, "mid"))).tier == "mid"


async def cached_while_deleted(_: Path) -> None:
    world = World(short=VOLATILE)
    assert await read_between(world, world.delete) is None


_AGAIN = "await self._cache.invalidate(ENTRIES, {})\n"
MUTATIONS: dict[str, tuple[Story, Mutation]] = {
    "who-superseded-is-forgotten-where-stores-differ": (
        lambda _: superseded(World()),
        Mutation(superseding, "SupersedeWriter._supersede", ", origins=origins)", ")"),
    ),
    "who-superseded-is-forgotten-at-once": (
        lambda _: superseded(World().in_one_store("mid", "short")),
        Mutation(
            superseding,
            "SupersedeWriter._write_at_once",
            "retired_at(old, write.at, origins, now=now)",
            "retired_at(old, write.at, now=now)",
        ),
    ),
    "who-superseded-is-not-noted": (
        lambda _: superseded(World()),
        Mutation(entries, "retired_at", "list(origins)", "[]"),
    ),
    "a-remembered-session-never-expires": (
        remembered_session,
        Mutation(
            sessions,
            "SessionRecords.cached_record",
            "not timedelta(0) <= self._placement.now() - told[1] < REMEMBERED_FOR",
            "False",
        ),
    ),
    "a-remembered-message-never-expires": (
        remembered_message,
        Mutation(logs, "Log._refresh", "not timedelta(0) <= now - seen.read_since < REMEMBERED_FOR", "False"),
    ),
    "remembered-room-never-expires": (
        remembered_room,
        Mutation(quotas, "Quotas._fits", " or self._placement.now() >= room.until", ""),
    ),
    "a-cached-copy-never-expires": (
        remembered_copy,
        Mutation(cache, "Cache._is_fresh", " and abs(age) <= self._placement.settings.cache_max_age", ""),
    ),
    "a-resumed-revert-takes-what-came-later": (
        resumed_revert,
        Mutation(
            reverting, "SourceReverter._take_back_noted", 'data["until"]', "self._placement.next_version()"
        ),
    ),
    "a-revert-erases-what-was-edited-meanwhile": (
        lambda _: edited_beside_revert(erase=True, before="read.home"),
        Mutation(reverting, "SourceReverter._take_back", ", at=judged.record.version)", ")"),
    ),
    "a-revert-retires-what-was-edited-meanwhile": (
        lambda _: edited_beside_revert(erase=False, before="update.home"),
        Mutation(
            reverting,
            "SourceReverter._take_back",
            "(record, wanted)\n        said",
            "(judged.record, wanted)\n        said",
        ),
    ),
    "restored-versions-outlive-their-entry": (
        restored_versions,
        Mutation(records, "Transfer._left_behind", "for place in gone:", "for place in ():"),
    ),
    "references-are-cleared-once": (
        references,
        Mutation(artifact_references, "ArtifactReferences._let_go", "if not found:", "if True:"),
    ),
    "an-edit-stamps-the-cache-first-only": (
        cached_while_edited,
        Mutation(
            entries,
            "Entries._replace",
            "await self._cache.invalidate(ENTRIES, old.key)\n    await self._deliveries",
            "await self._deliveries",
        ),
    ),
    "a-supersession-stamps-the-cache-first-only": (
        cached_while_superseded,
        Mutation(
            superseding,
            "SupersedeWriter._write_at_once",
            _AGAIN.format("*[old.key for old in olds]") + "        born",
            "born",
        ),
    ),
    "a-cleared-reference-stamps-the-cache-first-only": (
        cached_while_unpinned,
        Mutation(
            artifact_references,
            "ArtifactReferences._clear_in",
            _AGAIN.format("*[row.key for row in rows]") + "    return",
            "return",
        ),
    ),
    "a-move-stamps-the-cache-first-only": (
        cached_while_moved,
        Mutation(
            moves,
            "TierMover._relabel",
            "await self._cache.invalidate(collection, *[m.key for m in there])",
            "pass",
        ),
    ),
}


@pytest.mark.parametrize("name", MUTATIONS)
async def test_a_story_is_told_as_promised_and_shows_its_mutation(name: str, tmp_path: Path) -> None:
    story, mutation = MUTATIONS[name]
    for each in ("sound", "slipping"):
        (tmp_path / each).mkdir()
    await story(tmp_path / "sound")
    with mutation.applied(), pytest.raises((AssertionError, pytest.fail.Exception)):
        await story(tmp_path / "slipping")


async def test_an_entry_that_is_read_while_it_is_deleted_is_not_served_from_the_cache(tmp_path: Path) -> None:
    await cached_while_deleted(tmp_path)
