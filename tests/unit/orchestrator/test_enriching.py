"""Enrichment behind the write, whatever fails on the way: advisors that fail, hang and
talk nonsense, processes that die, drawn histories of both.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from types import ModuleType
from typing import Any

import pytest

from memory.domain.blocked_source import BlockedSource
from memory.domain.enrichment import NOTES, Pass
from memory.domain.entry import Entry, EntryDraft
from memory.domain.errors import MemoryTiersError
from memory.domain.scope import Scope
from memory.domain.versions import stored_version
from memory.orchestrator.engine import Engine
from memory.orchestrator.enrichment import enrichment as enriching
from memory.orchestrator.enrichment import superseding
from memory.orchestrator.enrichment.enrichment import ENRICH, GIVES_UP_AFTER, MOST_ATTEMPTS
from memory.orchestrator.enrichment.superseding import SupersedeRequest
from memory.orchestrator.storage.collections import ENTRIES, RELATIONS
from memory.orchestrator.storage.outbox import OutboxRecord
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies import enrichment
from memory.policies.entry_query import where_of
from memory.ports.advisor import Prompt
from memory.ports.record import Key
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.enriched import unenriched
from tests.support.mutations import Mutation
from tests.unit.orchestrator.world import HOUR, SESSION, TENANT, USER, World

WEB = "web:evil.example"
BOTH: tuple[Pass, ...] = ("auto_tag", "auto_supersede")


class Scripted:
    """An advisor by a script."""

    model = "scripted-1"

    def __init__(self, answer: Callable[[Prompt], str]) -> None:
        self.answer = answer
        self.asked = 0

    async def advise(self, prompt: Prompt) -> str:
        self.asked += 1
        return self.answer(prompt)


def is_of_tags(prompt: Prompt) -> bool:
    return "tags" in prompt.system


def shown_in(prompt: Prompt) -> list[str]:
    return [json.loads(line) for line in prompt.user.splitlines()[3::2]]


def obliging(prompt: Prompt) -> str:
    """Gives a tag, and names all that it is shown."""
    return (
        "sea"
        if is_of_tags(prompt)
        else ", ".join(str(number) for number in range(1, len(shown_in(prompt)) + 1)) + "\nIt is over."
    )


@pytest.fixture
async def advised() -> AsyncIterator[World]:
    async with World(advisor=Scripted(obliging)) as opened:
        yield opened


async def written(engine: Engine, content: str, scope: Scope = USER, *wanted: Pass, **more: Any) -> Entry:
    draft = EntryDraft(scope=scope, content=content, **more)
    return await engine.entries.write(TENANT, draft, steps=engine.enricher.pending_steps(wanted or BOTH))


async def dies(engine: Engine) -> None:
    """As a process does: what it was at is not gone on with, and nothing is closed."""
    engine.enricher._taking = engine.deliveries._taking = False
    for task in (tasks := [*engine.enricher._tasks, *filter(None, [engine.deliveries._task])]):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    engine.deliveries._leave_queued()  # else closing waits for it, as long as a call may take


async def test_what_a_write_owes_is_part_of_its_one_write_and_its_replica_is_still_delivered_behind_it(
    advised: World,
) -> None:
    advised.engine.enricher.hear = lambda pending: None  # type: ignore[method-assign]
    advised.engine.deliveries.beside[ENRICH] = lambda pending: None
    entry = await written(advised.engine, "Ada lives in Porto")
    assert [store.steps for store in advised.stores][1][-1:] == ["write.home"]
    assert "replica.deliver" not in advised.long.steps
    assert [owed.step for owed in (await advised.record_of(entry)).owed][-1] == ENRICH
    await advised.flush()
    assert "replica.deliver" in advised.long.steps
    assert [owed.step for owed in (await advised.record_of(entry)).owed] == [ENRICH]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "fails", ["update.home", "relate.home", "owed.settle", "version.keep", "replica.deliver", "read.home"]
)
@pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
@pytest.mark.behaviour("D110", "D111")
async def test_what_a_failure_leaves_is_done_by_a_sweep_of_another_process(
    advised: World, scope: Scope, fails: str, when: str
) -> None:
    world = advised
    old = await world.write("Ada lives in Lisbon", scope)
    await world.flush()
    entry = await written(world.engine, "Ada lives in Porto", scope, tags=["home"], run="r1")
    for store in world.stores:
        (store.fails_before if when == "before" else store.fails_after).add(fails)
    await world.engine.enricher.drain()
    world.heal()
    await dies(world.engine)
    world.clock.advance()
    other = await world.another_process()
    for _ in range(3):
        await other.maintain()
    await other.deliveries.flush()
    assert await world.browse(scope) == ["Ada lives in Porto"]
    assert await unenriched(other) == []
    record, told = await other.enricher.load_enrichment(TENANT, entry.id)
    assert told.supersede is not None
    assert (record.fields["tags"], told.supersede.invalidated, told.pending) == (
        ("home", "sea"),
        (old.id,),
        False,
    )
    assert await other.maintenance.count_pending() == 0
    await other.close()


async def test_where_the_process_dies_while_the_advisor_is_asked_another_asks_again(advised: World) -> None:
    await advised.write("Ada lives in Lisbon", USER)
    asked = asyncio.Event()

    async def advise(prompt: Prompt) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    advised.advisor.advise = advise  # type: ignore[union-attr, method-assign]
    await written(advised.engine, "Ada lives in Porto", run="r1")
    await asked.wait()
    await dies(advised.engine)
    advised.advisor = Scripted(obliging)
    other = await advised.another_process()
    await other.maintain()
    assert await advised.browse(USER) == ["Ada lives in Porto"]
    assert await unenriched(other) == []
    await other.close()


async def test_an_advisor_that_fails_is_left_alone_longer_each_time_and_asked_so_often_at_most(
    advised: World,
) -> None:
    def failing(prompt: Prompt) -> str:
        raise RuntimeError("no model there")

    advised.advisor = advisor = Scripted(failing)
    engine = await advised.another_process()
    entry = await written(engine, "Ada lives in Porto", USER, "auto_tag")
    await engine.enricher.drain()
    waits = []
    for attempt in range(1, MOST_ATTEMPTS):
        assert advisor.asked == attempt
        minutes = 0
        while advisor.asked == attempt:
            advised.clock.advance(timedelta(minutes=1))
            minutes += 1
            await engine.maintain()
        waits.append(minutes)
    assert waits == [1, 2, 4, 8]
    _, told = await engine.enricher.load_enrichment(TENANT, entry.id)
    assert told.auto_tag is not None
    assert (told.pending, told.auto_tag.note) == (
        False,
        "(auto-tag advisor unavailable: no model there — caller tags only)",
    )
    await engine.deliveries.flush()
    assert await engine.maintenance.count_pending() == 0
    assert engine.enricher._asked == {}
    await engine.close()


async def test_where_nobody_with_an_advisor_comes_by_it_ends_after_a_day(advised: World) -> None:
    entry = await written(advised.engine, "Ada lives in Porto")
    await dies(advised.engine)
    advised.advisor = None
    other = await advised.another_process()
    await other.maintain()
    assert (await other.enricher.load_enrichment(TENANT, entry.id))[1].pending
    advised.clock.advance(GIVES_UP_AFTER)
    await other.maintain()
    _, told = await other.enricher.load_enrichment(TENANT, entry.id)
    assert told.auto_tag is not None
    assert (told.pending, told.auto_tag.model) == (False, None)
    assert "no process with an advisor was available" in str(told.auto_tag.note)
    await other.deliveries.flush()
    assert await other.maintenance.count_pending() == 0
    await other.close()


async def test_what_one_part_of_it_was_answered_is_not_asked_again_while_the_other_fails(
    advised: World,
) -> None:
    asked: list[bool] = []

    def half(prompt: Prompt) -> str:
        asked.append(is_of_tags(prompt))
        return "sea" if is_of_tags(prompt) else "ERR" if asked.count(False) == 1 else "1"

    advised.advisor = Scripted(half)
    engine = await advised.another_process()
    await advised.write("Ada lives in Lisbon", USER)
    entry = await written(engine, "Ada lives in Porto")
    await engine.enricher.drain()
    _, told = await engine.enricher.load_enrichment(TENANT, entry.id)
    assert told.auto_tag is not None
    assert told.supersede is not None
    assert told.auto_tag.note == "still pending"
    assert (
        told.supersede.note
        == "(auto-supersede advisor unavailable: it answered with an error — all of them stand) still pending"
    )
    advised.clock.advance()
    await engine.maintain()
    assert sorted(asked) == [False, False, True]
    assert await advised.browse(USER) == ["Ada lives in Porto"]
    await engine.close()


async def test_entries_of_another_type_that_answer_better_hide_none_of_its_own(advised: World) -> None:
    old = await advised.write(
        "Once upon a time Ada lived in a house somewhere near Lisbon", USER, type="user"
    )
    for n in range(30):
        await advised.write(f"Ada Porto {n}", USER)
    await written(advised.engine, "Ada Porto", USER, "auto_supersede", type="user", run="r1")
    await advised.engine.enricher.drain()
    assert (await advised.record_of(old)).fields["valid_to"] is not None
    assert len(await advised.browse(USER, limit=50)) == 31
    assert await unenriched(advised.engine) == []


async def test_tags_that_are_merged_make_a_version_of_which_the_past_knows(advised: World) -> None:
    entry = await written(advised.engine, "Ada lives in Porto", USER, "auto_tag", tags=["home"])
    before = advised.clock()
    await advised.engine.enricher.drain()
    known = await advised.get(entry, known_at=before)
    now = await advised.get(entry)
    assert known is not None
    assert now is not None
    assert (known.tags, now.tags, now.updated_at) == (["home"], ["home", "sea"], entry.updated_at)
    assert await advised.search("sea", USER) == ["Ada lives in Porto"]


async def test_one_that_was_linked_and_edited_before_it_was_retired_is_not_linked_any_more(
    advised: World,
) -> None:
    """By a process that died in between."""
    old = await advised.write("Ada lives in Lisbon")
    await advised.flush()
    advised.mid.after["relate.home"] = lambda: dies(advised.engine)
    for store in advised.stores:
        store.fails_before.add("update.home")
    await advised.engine.supersede_writer.write(
        TENANT,
        EntryDraft(scope=SESSION, content="Ada lives in Porto"),
        SupersedeRequest([old.id], where_of(TENANT, [SESSION]), {old.id: stored_version(old.version)}),
    )
    advised.heal()
    assert len(await advised.rows(advised.mid, RELATIONS)) == 1
    other = await advised.another_process()
    await other.entries.update(TENANT, old.id, {"content": "Ada lives in Lisbon in winter"})
    await other.maintenance.sweep()
    assert sorted(await advised.browse()) == ["Ada lives in Lisbon in winter", "Ada lives in Porto"]
    assert await advised.rows(advised.mid, RELATIONS) == []
    await other.close()


async def test_one_that_was_linked_and_then_gave_way_to_another_is_not_linked_any_more(
    advised: World,
) -> None:
    """By a process that died in between."""
    old = await advised.write("Ada lives in Lisbon")
    await advised.flush()
    for store in advised.stores:
        store.fails_before.add("update.home")
    asked = SupersedeRequest([old.id], where_of(TENANT, [SESSION]), {old.id: stored_version(old.version)})
    await advised.engine.supersede_writer.write(
        TENANT, EntryDraft(scope=SESSION, content="Ada lives in Porto"), asked
    )
    advised.heal()
    other = await advised.another_process()
    last, _ = await other.supersede_writer.write(
        TENANT, EntryDraft(scope=SESSION, content="Ada lives in Faro"), asked
    )
    await dies(advised.engine)
    await other.maintenance.sweep()
    assert sorted(await advised.browse()) == ["Ada lives in Faro", "Ada lives in Porto"]
    assert [row.fields["source_id"] for row in await advised.rows(advised.mid, RELATIONS)] == [last.id]
    await other.close()


@pytest.mark.parametrize("stands", [True, False], ids=["an edit", "its end by hand"])
async def test_one_that_changes_just_as_it_is_linked_is_not_linked_any_more(
    advised: World, stands: bool
) -> None:
    old = await advised.write("Ada lives in Lisbon")
    await advised.flush()
    advised.mid.fails_before.add("relate.home")
    asked = SupersedeRequest([old.id], where_of(TENANT, [SESSION]), {old.id: stored_version(old.version)})
    await advised.engine.supersede_writer.write(
        TENANT, EntryDraft(scope=SESSION, content="Ada lives in Porto"), asked
    )
    advised.heal()
    advised.clock.advance()
    other = await advised.another_process()

    async def change() -> None:
        if stands:
            await other.entries.update(TENANT, old.id, {"content": "Ada lives in Lisboa"})
        else:
            await other.entries.invalidate(TENANT, old.id, None)

    advised.mid.before["relate.home"] = change
    await advised.engine.maintenance.sweep()
    assert sorted(await advised.browse()) == [*["Ada lives in Lisboa"][:stands], "Ada lives in Porto"]
    assert await advised.rows(advised.mid, RELATIONS) == []
    await other.close()


async def test_of_two_that_carry_the_step_out_at_once_neither_takes_the_others_link_away(
    advised: World,
) -> None:
    old = await advised.write("Ada lives in Lisbon")
    await advised.flush()
    advised.mid.fails_before.add("relate.home")
    asked = SupersedeRequest([old.id], where_of(TENANT, [SESSION]), {old.id: stored_version(old.version)})
    new, _ = await advised.engine.supersede_writer.write(
        TENANT, EntryDraft(scope=SESSION, content="Ada lives in Porto"), asked
    )
    advised.heal()
    other = await advised.another_process()
    owing = OutboxRecord(ENTRIES, advised.short, await advised.record_of(new))
    advised.mid.before["relate.home"] = lambda: other.outbox.finish(owing)
    await advised.engine.maintenance.sweep()
    assert await advised.browse() == ["Ada lives in Porto"]
    assert [row.fields["target_id"] for row in await advised.rows(advised.mid, RELATIONS)] == [old.id]
    await other.close()


@pytest.mark.parametrize("entry_of", ["a blocked source", "another"])
async def test_an_entry_from_a_blocked_source_supersedes_nothing(advised: World, entry_of: str) -> None:
    old = await advised.write("Ada lives in Lisbon", USER)
    source = WEB if entry_of != "another" else "user"
    entry = await written(advised.engine, "Ada lives in Porto", USER, "auto_supersede", source=source)
    await dies(advised.engine)
    other = await advised.another_process()
    await other.trust.blocked_sources.block(
        TENANT, [BlockedSource(f"source:{WEB}", None, "kept_back", "a poisoned page", None, advised.clock())]
    )
    await other.maintain()
    _, told = await other.enricher.load_enrichment(TENANT, entry.id)
    assert told.supersede is not None
    assert (told.supersede.note == enrichment.FROM_BLOCKED_SOURCE, told.supersede.invalidated) == (
        (True, ()) if source == WEB else (False, (old.id,))
    )
    await other.close()


@pytest.mark.parametrize(
    ("verdict", "tags"),
    [(True, ["home", "sea"]), ("no", ["home"]), ({"tags": ["home", "ocean"]}, ["home", "ocean"])],
    ids=str,
)
async def test_the_write_gate_is_asked_of_tags(advised: World, verdict: Any, tags: list[str]) -> None:
    entry = await written(advised.engine, "Ada lives in Porto", USER, "auto_tag", tags=["home"])
    await dies(advised.engine)
    other = await advised.another_process()
    other.trust.gates.write = lambda draft, provenance: verdict
    await other.maintain()
    record, told = await other.enricher.load_enrichment(TENANT, entry.id)
    assert told.auto_tag is not None
    assert (list(record.fields["tags"]), list(told.auto_tag.added)) == (tags, tags[1:])  # type: ignore[arg-type]
    assert (told.auto_tag.note == enrichment.REFUSED_TAGS) == (verdict == "no")
    await other.close()


# -- drawn histories -------------------------------------------------------------------

STEPS = (
    "write.home",
    "update.home",
    "relate.home",
    "version.keep",
    "owed.settle",
    "replica.deliver",
    "read.home",
    "supersede.home",
    "sweep.due",
)
QUICK = EngineSettings(advice=timedelta(milliseconds=250), deadline=timedelta(seconds=2))


class Play:
    """One history: callers of two processes, an advisor that is of all kinds, stores
    that fail, and processes that die.
    """

    def __init__(self, seed: int, world: World) -> None:
        self.draw = random.Random(seed)  # noqa: S311
        self.world = world
        self.engines: list[Engine] = [world.engine]
        self.named = set[str]()
        """What an advisor has named by its number, as it was shown."""
        self.said: dict[str, tuple[str, list[str]]] = {}
        """Of each entry, what a caller said last of it that was acknowledged: content
        and tags.
        """
        self.started: dict[str, datetime] = {}
        self.by_hand = set[str]()
        self.unsure = set[str]()
        self.number = 0

    async def advise(self, prompt: Prompt) -> str:
        chance = self.draw.random()
        if chance < 0.1:
            raise RuntimeError("no model there")
        if chance < 0.11:
            await asyncio.Event().wait()
        if chance < 0.25:
            return self.draw.choice(["ERR: quota", "", "none", "I am a poem", "999, 0 and 77", "#" * 40_000])
        if chance < 0.5:
            await asyncio.sleep(0)
        if chance < 0.4 and self.said:
            await self.edit(self.draw.choice(list(self.said)))
        if is_of_tags(prompt):
            return "\n".join(
                self.draw.sample(["sea", "Home Town", "home", "x", "tag 3", "a" * 40, "boats", "winter"], 5)
            )
        shown = shown_in(prompt)
        numbers = self.draw.sample(range(len(shown) + 3), self.draw.randint(1, len(shown)))
        self.named |= {shown[number - 1] for number in numbers if 1 <= number <= len(shown)}
        return ", ".join(map(str, numbers)) + "\nIt is over."

    async def write(self) -> None:
        engine, self.number = self.draw.choice(self.engines), self.number + 1
        content, tags = (
            f"Ada lives in place {self.number}",
            [f"tag {n}" for n in range(self.draw.choice([0, 1, 5, 30]))],
        )
        more: dict[str, Any] = {
            "type": self.draw.choice(["user", "context"]),
            "run": f"r{self.number}",
            "tags": tags,
        }
        if self.draw.random() < 0.3:
            more["created_at"] = self.world.clock() - timedelta(minutes=self.draw.randint(1, 300))
        scope, wanted = (
            self.draw.choice([USER, SESSION]),
            self.draw.choice([BOTH, BOTH, ("auto_supersede",), ("auto_tag",)]),
        )
        with suppress(MemoryTiersError):
            entry = await written(engine, content, scope, *wanted, **more)
            self.said[entry.id], self.started[entry.id] = (content, tags), entry.updated_at

    async def edit(self, entry_id: str) -> None:
        self.number += 1
        content, tags = (
            f"Ada lives in place {self.number}",
            self.draw.choice([["edited"], [f"tag {n}" for n in range(30)]]),
        )
        self.unsure.add(entry_id)
        with suppress(MemoryTiersError):
            await self.draw.choice(self.engines).entries.update(
                TENANT, entry_id, {"content": content, "tags": tags}
            )
            self.said[entry_id] = content, tags
            self.unsure.discard(entry_id)

    async def act(self) -> None:
        chance, known = self.draw.random(), list(self.said)
        if chance < 0.45 or not known:
            await self.write()
        elif chance < 0.6:
            await self.edit(self.draw.choice(known))
        elif chance < 0.65:
            entry_id = self.draw.choice(known)
            self.by_hand.add(entry_id)
            with suppress(MemoryTiersError):
                await self.draw.choice(self.engines).entries.invalidate(TENANT, entry_id, None)
        elif chance < 0.7:
            entry_id = self.draw.choice(known)
            with suppress(MemoryTiersError):
                if await self.draw.choice(self.engines).deletion.delete(TENANT, entry_id):
                    del self.said[entry_id]
        elif chance < 0.75:
            with suppress(MemoryTiersError):
                await self.draw.choice(self.engines).tier_mover.move(
                    ENTRIES, Key(TENANT, self.draw.choice(known)), "long"
                )
        elif chance < 0.85:
            await self.draw.choice(self.engines).maintain()
        elif chance < 0.9:
            self.world.clock.advance(HOUR * self.draw.random())
        elif chance < 0.95:
            store, step = self.draw.choice(self.world.stores), self.draw.choice(STEPS)
            self.draw.choice([store.fails_before, store.fails_after]).add(step)
        else:
            self.world.heal()
        if self.draw.random() < 0.05:
            place = self.draw.randrange(len(self.engines))
            await dies(self.engines[place])
            self.engines[place] = await self.world.another_process()

    async def end(self) -> list[str]:
        self.world.heal()
        for engine in self.engines:
            await dies(engine)
        last = await self.world.another_process()
        for _ in range(MOST_ATTEMPTS + 3):
            await last.maintain()
            self.world.clock.advance(HOUR)
        await last.deliveries.flush()
        wrong = await unenriched(last, self.by_hand)
        if owed := await last.maintenance.count_pending():
            wrong.append(f"{owed} owe a step")
        for entry_id, (content, tags) in self.said.items():
            record = (await last.placement.locate(ENTRIES, Key(TENANT, entry_id))).record
            if record is not None and NOTES not in record.body:
                wrong.append(f"nothing says what became of the enrichment of {content}")
            if record is None or entry_id in self.unsure:
                continue
            stands: Any = record.fields["tags"]
            if record.texts["content"] != content or list(stands[: len(tags)]) != tags:
                wrong.append(
                    f"{content} {tags} was said of an entry that says {record.texts['content']} {stands}"
                )
            if len(stands) > len(tags) + 4 or len({tag.casefold() for tag in stands}) != len(stands):
                wrong.append(f"{content} has tags {stands} for {tags}")
            if (
                record.fields.get("valid_to") is not None
                and entry_id not in self.by_hand
                and record.texts["content"] not in self.named
            ):
                wrong.append(f"{content} was retired, and nobody has named it")
        await dies(last)
        return wrong


async def played(seed: int) -> list[str]:
    async with World(settings=QUICK) as world:
        play = Play(seed, world)
        world.advisor = play  # type: ignore[assignment]
        play.model = "drawn-1"  # type: ignore[attr-defined]
        await dies(world.engine)
        play.engines = [await world.another_process(), await world.another_process()]
        for _ in range(60):
            await play.act()
        return await play.end()


@pytest.mark.parametrize("seed", range(drawn(40, 6, 400)))
@pytest.mark.behaviour("D104", "D106", "D110")
@pytest.mark.thorough
async def test_whatever_happens_what_gave_way_is_linked_and_older_and_no_edit_is_lost(seed: int) -> None:
    assert await played(seed) == []


MUTATIONS: dict[str, tuple[ModuleType, str, str, str]] = {
    "candidates-may-be-newer": (
        enriching,
        "Enricher._may_be_superseded",
        "policy.is_older((one.created_at, one.key.id), (to.created_at, to.key.id))",
        "one.key != to.key",
    ),
    "retired-at-any-version": (
        enriching,
        "Enricher._apply_answer",
        '"versions": named, "said"',
        '"versions": {}, "said"',
    ),
    "numbers-that-were-not-shown-count": (
        enrichment,
        "parse_supersede_reply",
        'tuple(parse_places("\\n".join(numbers or lines), count))',
        (
            'tuple(dict.fromkeys(int(n) % count for n in re.findall(r"[0-9]{1,3}", "\\n".join(numbers or'
            " lines))))"
        ),
    ),
    "tags-over-an-edit": (
        enriching,
        "Enricher._enrich",
        "partial(self._apply_answer, asked)",
        "lambda there: self._apply_answer(asked, replace(record, version=there.version, owed=there.owed))",
    ),
    "too-many-tags": (
        enrichment,
        "merge_tags",
        "return both if len(both) <= MAX_TAGS else None",
        "return both",
    ),
    "retired-without-a-link": (
        superseding,
        "SupersedeWriter._supersede",
        "await self._relations.make(source",
        "_ = (source",
    ),
    "it-is-forgotten-by-whoever-dies": (
        enriching,
        "Enricher._found_owing",
        "self.hear(pending)\n    return False",
        "return True",
    ),
}


@pytest.mark.parametrize("name", noticed.cases("enriching/", MUTATIONS))
def test_histories_show_a_mutation(name: str) -> None:
    module, function, old, new = MUTATIONS[name]
    assert Mutation(module, function, old, new).seen_in(played, 60, f"enriching/{name}")
