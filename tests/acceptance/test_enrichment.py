"""Enrichment behind the write: tags by an advisor, and older entries that give way to
what it was shown (D100-D110).
"""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from memory import Entry, InvalidInput, Memory, MemoryTiersError, NotFound, Scope, WriteReport
from memory.domain.enrichment import AdviceCost, AutoSupersede, AutoTag, Enrichment
from memory.facade.runtime.access import engine_of
from memory.ports.advisor import Advice, Prompt
from tests.acceptance.support import OTHER_USER, SCOPES, USER, Clock, watching


class Scripted:
    """An advisor by a script: what it answers about tags, and about what gives way; and
    what it was asked.
    """

    model = "scripted-1"

    def __init__(self, tags: str = "", supersedes: str | Callable[[list[str]], str] = "none") -> None:
        self.tags, self.supersedes = tags, supersedes
        self.asked_for_tags: list[Prompt] = []
        self.asked_what_gives_way: list[list[str]] = []

    async def advise(self, prompt: Prompt) -> str:
        if "tags" in prompt.system:
            self.asked_for_tags.append(prompt)
            return self.tags
        shown = candidates(prompt)
        self.asked_what_gives_way.append(shown)
        return self.supersedes if isinstance(self.supersedes, str) else self.supersedes(shown)


def candidates(prompt: Prompt) -> list[str]:
    """The texts of the older entries that are shown, in the order of their numbers."""
    lines = prompt.user.splitlines()[2:]
    assert [head.partition("]")[0] for head in lines[::2]] == [
        f"[id={number}" for number in range(1, len(lines) // 2 + 1)
    ]
    return [json.loads(text) for text in lines[1::2]]


def all_shown(shown: list[str]) -> str:
    return ", ".join(str(number) for number in range(1, len(shown) + 1))


async def contents(memory: Memory, scope: Scope) -> set[str]:
    return {entry.content for entry in await memory.retrieve(scope)}


async def owed(memory: Memory) -> int:
    """How many records owe a step, once what is delivered behind writes has been."""
    await memory.admin.flush()
    return await engine_of(memory).maintenance.count_pending()


# -- tags ------------------------------------------------------------------------------


@pytest.mark.behaviour("D102", "D109", "AC-D39")
@SCOPES
async def test_an_advisors_tags_come_behind_the_callers(
    config: dict[str, Any], clock: Clock, scope: Scope
) -> None:
    advisor = Scripted('Machine Learning\n- "Tokyo Trip!"\nai\nx\nsushi')
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        written = await memory.write_with_report(
            "Eating there " + "é" * 1_000, scope=scope, title="A trip", tags=["Sushi"], auto_tag=True
        )
        assert isinstance(written, WriteReport)
        assert written.auto_tag == AutoTag("scripted-1", True, ("machine-learning", "tokyo-trip", "ai"))
        assert written.entry.tags == ["Sushi", "machine-learning", "tokyo-trip", "ai"]
        assert (written.supersede, written.supersedes_manual) == (None, None)
        assert set(written.to_dict()["auto_tag"]) == {"model", "applied", "added", "note"}
        stored = await memory.get(written.entry.id)
        assert stored == written.entry
        assert stored.updated_at == stored.created_at, "nobody has edited it"
        assert [entry.id for entry in await memory.retrieve(scope, tags=["tokyo-trip"])] == [stored.id]
        assert [one.tags for one in await memory.entries.history(stored.id)] == [["Sushi"], stored.tags]
        assert await memory.enrichment(stored.id) == Enrichment(
            written.auto_tag, costs=(AdviceCost("auto_tag", "scripted-1"),)
        )
        (prompt,) = advisor.asked_for_tags
        title, text = map(json.loads, prompt.user.splitlines())
        assert (title, len(text.encode()) <= 1_500, text[:12]) == ("A trip", True, "Eating there")
        assert len(text.encode()) > 1_490


@pytest.mark.behaviour("D103", "AC-D39")
async def test_tags_that_would_be_too_many_are_left_out_whole(config: dict[str, Any], clock: Clock) -> None:
    given = [f"tag {n}" for n in range(31)]
    async with Memory(config, clock=clock, advisor=Scripted("one\ntwo\nthree\nfour")) as memory:
        written = await memory.write_with_report("a note", scope=USER, tags=given, auto_tag=True)
        assert written.entry.tags == given
        assert written.auto_tag is not None
        assert (written.auto_tag.applied, written.auto_tag.added) == (False, ())
        assert "caller tags only" in str(written.auto_tag.note)
        one_more = await memory.write_with_report("another note", scope=USER, tags=given[:28], auto_tag=True)
        assert one_more.entry.tags == [*given[:28], "one", "two", "three", "four"]


@pytest.mark.behaviour("D103", "D110")
@pytest.mark.parametrize("reply", ["ERR", "ERR: quota", 7, RuntimeError("no model there")], ids=str)
async def test_an_advisor_that_fails_leaves_the_entry_as_it_is_and_is_asked_again(
    config: dict[str, Any], clock: Clock, reply: Any
) -> None:
    replies = [reply] * 2

    def advise(prompt: Prompt) -> str:
        answer = replies.pop() if replies else "none" if "older entry" in prompt.system else "sea"
        if isinstance(answer, Exception):
            raise answer
        return answer

    async with Memory(config, clock=clock, advisor=advise) as memory:
        old = await memory.write("Ada lives in Lisbon", scope=USER)
        written = await memory.write_with_report(
            "Ada lives in Porto", scope=USER, tags=["home"], auto_tag=True, auto_supersede=True
        )
        assert written.entry.tags == ["home"]
        assert written.auto_tag is not None
        assert written.supersede is not None
        assert (written.auto_tag.applied, written.supersede.applied) == (False, False)
        assert "unavailable" in str(written.auto_tag.note)
        assert "caller tags only" in str(written.auto_tag.note)
        assert (await memory.enrichment(written.entry.id)).pending
        await memory.maintain()
        assert (await memory.enrichment(written.entry.id)).pending, "it is left alone for a while"
        clock.advance()
        await memory.maintain()
        told = await memory.enrichment(written.entry.id)
        assert told.auto_tag is not None
        assert told.supersede is not None
        assert (told.pending, told.auto_tag.added, told.supersede.note) == (
            False,
            ("sea",),
            "(auto-supersede advisor named none — all of them stand)",
        )
        assert await contents(memory, USER) == {"Ada lives in Lisbon", "Ada lives in Porto"}
        assert await memory.get(old.id) == old


async def test_in_the_end_the_notes_say_why_not(config: dict[str, Any], clock: Clock) -> None:
    def advise(prompt: Prompt) -> str:
        raise RuntimeError("no model there")

    async with Memory(config, clock=clock, advisor=advise) as memory:
        written = await memory.write_with_report("Ada lives in Porto", scope=USER, auto_tag=True)
        for _ in range(4):
            assert (await memory.enrichment(written.entry.id)).pending
            clock.advance()
            await memory.maintain()
        assert await memory.enrichment(written.entry.id) == Enrichment(
            AutoTag(
                "tests.acceptance.test_enrichment.test_in_the_end_the_notes_say_why_not.<locals>.advise",
                note=NO_MODEL,
            )
        )
        assert await owed(memory) == 0


NO_MODEL = "(auto-tag advisor unavailable: no model there — caller tags only)"


@pytest.mark.behaviour("D100", "D101")
async def test_nothing_is_asked_unless_wanted_and_nothing_is_owed_without_an_advisor(
    config: dict[str, Any], clock: Clock
) -> None:
    advisor = Scripted("sea", all_shown)
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        await memory.write_with_report("Ada lives in Lisbon", scope=USER)
        written = await memory.write_with_report("Ada lives in Porto", scope=USER)
        assert written == WriteReport(written.entry)
        assert (advisor.asked_for_tags, advisor.asked_what_gives_way) == ([], [])
    async with Memory(config, clock=clock, enrichment={"auto_tag": True, "auto_supersede": True}) as memory:
        written = await memory.write_with_report("Ada lives in Faro", scope=USER, auto_tag=True)
        assert written == WriteReport(written.entry)
        assert await owed(memory) == 0
        assert await memory.enrichment(written.entry.id) == Enrichment()
    async with Memory(
        config, clock=clock, advisor=advisor, enrichment={"auto_tag": True, "auto_supersede": True}
    ) as memory:
        plain = await memory.write_with_report(
            "Ada lives in Beja", scope=USER, auto_tag=False, auto_supersede=False
        )
        assert plain == WriteReport(plain.entry)
        written = await memory.write_with_report("Ada lives in Evora", scope=USER)
        assert written.auto_tag is not None
        assert written.supersede is not None
        assert written.supersede.applied
        assert await contents(memory, USER) == {"Ada lives in Evora"}
        assert memory.config.leaves()["enrichment.auto_tag"] is True


@pytest.mark.behaviour("D110")
async def test_a_write_waits_for_no_advisor(config: dict[str, Any], clock: Clock) -> None:
    hangs = asyncio.Event()

    async def advise(prompt: Prompt) -> str:
        await hangs.wait()
        return "sea"

    async with Memory(config, clock=clock, advisor=advise) as memory:
        await memory.admin.flush()
        with watching(memory) as plain:
            await memory.write("Ada lives in Lisbon", scope=USER)
        await memory.admin.flush()
        with watching(memory) as calls:
            entry = await memory.write("Ada lives in Porto", scope=USER, auto_tag=True)
        assert [call for call in calls if call.endswith("apply")] == [
            call for call in plain if call.endswith("apply")
        ], "no trip more"
        await memory.write("Ada lives in Evora", scope=USER, auto_tag=True, consistency="replicated")
        written = await memory.write_with_report("Ada lives in Faro", scope=USER, auto_tag=True, wait=0.01)
        assert written.auto_tag is not None
        assert written.auto_tag.note == "still pending"
        hangs.set()
        await engine_of(memory).enricher.drain()
        for one in (entry, written.entry):
            told = (await memory.enrichment(one.id)).auto_tag
            assert told is not None
            assert told.added == ("sea",)


@pytest.mark.behaviour("D110")
async def test_an_advisor_that_hangs_has_a_deadline(config: dict[str, Any], clock: Clock) -> None:
    async def advise(prompt: Prompt) -> str:
        await asyncio.Event().wait()
        return ""

    async with Memory(config, clock=clock, advisor=advise, durations={"advice": "20ms"}) as memory:
        written = await memory.write_with_report("Ada lives in Lisbon", scope=USER, auto_tag=True)
        assert written.auto_tag is not None
        assert "it was late" in str(written.auto_tag.note)


async def test_what_an_answer_cost_is_told_where_the_advisor_says_so(
    config: dict[str, Any], clock: Clock
) -> None:
    def advise(prompt: Prompt) -> str:
        return Advice("sea", input_tokens=120, output_tokens=3)

    async with Memory(config, clock=clock, advisor=advise) as memory:
        written = await memory.write_with_report("Ada sails", scope=USER, auto_tag=True)
        (cost,) = written.costs
        assert (cost.of, cost.input_tokens, cost.output_tokens) == ("auto_tag", 120, 3)
        assert (await memory.enrichment(written.entry.id)).costs == written.costs


# -- what gives way --------------------------------------------------------------------


@pytest.mark.behaviour("D104", "D105", "D106", "D109")
@SCOPES
async def test_of_what_was_shown_what_the_advisor_names_gives_way_and_is_linked(
    config: dict[str, Any], clock: Clock, scope: Scope
) -> None:
    advisor = Scripted(
        supersedes=lambda shown: f"{shown.index('Ada lives in Lisbon') + 1}, 9\nShe has moved."
    )
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        old, other = (
            await memory.write("Ada lives in Lisbon", scope=scope),
            await memory.write("Ada lives by the sea", scope=scope),
        )
        await memory.write("Ada lives in Lisbon, she says", scope=scope, type="user")
        await memory.write("Ada lives in Lisbon, too", scope=OTHER_USER)
        written = await memory.write_with_report("Ada lives in Porto", scope=scope, auto_supersede=True)
        assert sorted(advisor.asked_what_gives_way[0]) == sorted([old.content, other.content])
        told = written.supersede
        assert isinstance(told, AutoSupersede)
        assert (told.model, told.applied, told.invalidated, told.note) == (
            "scripted-1",
            True,
            (old.id,),
            "She has moved.",
        )
        assert set(told.candidates) == {old.id, other.id}
        assert set(told.to_dict()) == {"model", "applied", "candidates", "invalidated", "note"}
        assert await memory.get(old.id) is None
        assert await memory.get(other.id) == other
        (link,) = await memory.relations.find(source_id=written.entry.id)
        assert (link.label, link.target_id, link.made_by, link.note) == (
            "supersedes",
            old.id,
            "scripted-1",
            "She has moved.",
        )
        (link_of_a_caller,) = [await memory.relations.relate(other.id, "supports", written.entry.id)]
        assert (link_of_a_caller.made_by, link_of_a_caller.note) == (None, None)
        assert (await memory.enrichment(written.entry.id)).supersede == told


@pytest.mark.behaviour("D104")
@pytest.mark.parametrize("reply", ["none", "None of these.", "", "nothing to say", "0", "6", "99"])
async def test_where_none_that_was_shown_is_named_all_stand(
    config: dict[str, Any], clock: Clock, reply: str
) -> None:
    async with Memory(config, clock=clock, advisor=Scripted(supersedes=reply)) as memory:
        for n in range(7):
            await memory.write(f"Ada lives in place {n}", scope=USER)
        written = await memory.write_with_report("Ada lives in Porto", scope=USER, auto_supersede=True)
        assert written.supersede is not None
        assert (
            written.supersede.applied,
            written.supersede.invalidated,
            len(written.supersede.candidates),
        ) == (False, (), 5)
        assert written.supersede.note is not None
        assert len(await memory.retrieve(USER)) == 8


@pytest.mark.behaviour("D104")
async def test_it_is_searched_for_by_the_title_and_the_entry_itself_is_not_shown(
    config: dict[str, Any], clock: Clock
) -> None:
    advisor = Scripted(supersedes=all_shown)
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        old = await memory.write("in Lisbon", title="Home of Ada", scope=USER)
        other = await memory.write("In Porto are bridges", scope=USER)
        written = await memory.write_with_report(
            "In Porto", title="Home of Ada", scope=USER, auto_supersede=True
        )
        assert advisor.asked_what_gives_way == [["in Lisbon"]]
        assert written.supersede is not None
        assert written.supersede.invalidated == (old.id,)
        alone = await memory.write_with_report("Boats leave on Sunday", scope=USER, auto_supersede=True)
        assert alone.supersede == AutoSupersede(
            "scripted-1", note="(no older entry of its scope and type is near it)"
        )
        assert len(advisor.asked_what_gives_way) == 1, "where nothing is to be shown nobody is asked"
        assert await memory.get(other.id) == other


@pytest.mark.behaviour("D104")
async def test_only_what_is_older_is_shown(config: dict[str, Any], clock: Clock) -> None:
    advisor = Scripted(supersedes=all_shown)
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        before = clock()
        clock.advance()
        newer = await memory.write("Ada lives in Lisbon", scope=USER)
        written = await memory.write_with_report(
            "Ada lives in Porto", scope=USER, created_at=before, auto_supersede=True
        )
        assert advisor.asked_what_gives_way == []
        assert written.supersede is not None
        assert not written.supersede.applied
        assert await memory.get(newer.id) == newer


async def test_of_two_that_are_written_at_once_one_stands(config: dict[str, Any], clock: Clock) -> None:
    async with Memory(config, clock=clock, advisor=Scripted(supersedes=all_shown)) as memory:
        calls = [
            memory.write_with_report(f"Ada lives in place {n}", scope=USER, auto_supersede=True)
            for n in range(6)
        ]
        written = await asyncio.gather(*calls)
        await _until_nothing_is_owed(memory, clock)
        stands = await memory.retrieve(USER)
        newest = max(written, key=lambda one: (one.entry.created_at, one.entry.id)).entry
        assert newest.id in {one.id for one in stands}


async def _until_nothing_is_owed(memory: Memory, clock: Clock) -> None:
    """On a busy machine a call waits in vain for its enrichment, and a try that meets
    another may come too late: sweeps try again.
    """
    for _ in range(20):
        await engine_of(memory).enricher.drain()
        if await owed(memory) == 0:
            return
        clock.advance()
        await memory.maintain()
    assert await owed(memory) == 0


async def test_what_was_changed_since_it_was_shown_stands(config: dict[str, Any], clock: Clock) -> None:
    memories: list[Memory] = []

    async def advise(prompt: Prompt) -> str:
        await memories[0].update(old.id, content="Ada lives in Lisbon in winter")
        return "1"

    async with Memory(config, clock=clock, advisor=advise) as memory:
        memories.append(memory)
        old = await memory.write("Ada lives in Lisbon", scope=USER)
        written = await memory.write_with_report("Ada lives in Porto", scope=USER, auto_supersede=True)
        assert written.supersede is not None
        assert (written.supersede.applied, written.supersede.invalidated) == (False, ())
        assert f"changed since it was shown, so it stays active: {old.id}" in str(written.supersede.note)
        assert await contents(memory, USER) == {"Ada lives in Lisbon in winter", "Ada lives in Porto"}
        assert await memory.relations.find(source_id=written.entry.id) == []


@pytest.mark.parametrize("becomes", ["edited", "retired", "deleted"])
async def test_an_entry_that_has_changed_since_supersedes_nothing(
    config: dict[str, Any], clock: Clock, becomes: str
) -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def advise(prompt: Prompt) -> str:
        asked.set()
        await goes_on.wait()
        return "1" if "older entry" in prompt.system else "Sea\nhome"

    async with Memory(config, clock=clock, advisor=advise) as memory:
        old = await memory.write("Ada lives in Lisbon", scope=USER)
        entry = await memory.write(
            "Ada lives in Porto", scope=USER, tags=["Home"], auto_tag=True, auto_supersede=True
        )
        await asked.wait()
        if becomes == "edited":
            await memory.update(entry.id, content="Ada lives in Faro", tags=["south"])
        elif becomes == "retired":
            await memory.entries.invalidate(entry.id)
        else:
            await memory.delete(entry.id)
        edited = await memory.get(entry.id)
        goes_on.set()
        await engine_of(memory).enricher.drain()
        assert await memory.get(old.id) == old
        assert await memory.relations.find(source_id=entry.id) == []
        assert await owed(memory) == 0
        if becomes == "deleted":
            with pytest.raises(NotFound):
                await memory.enrichment(entry.id)
            return
        told = await memory.enrichment(entry.id)
        assert told.auto_tag is not None
        assert told.supersede is not None
        assert f"was {becomes} since" in str(told.supersede.note)
        if edited is None:
            assert f"was {becomes} since" in str(told.auto_tag.note)
        else:
            now = await memory.get(entry.id)
            assert now is not None
            assert (now.content, now.tags, now.updated_at) == (
                "Ada lives in Faro",
                ["south"],
                edited.updated_at,
            )  # tags of a text that is gone
            assert "was edited while" in str(told.auto_tag.note)


# -- what the caller names -------------------------------------------------------------


@pytest.mark.behaviour("D107", "D108", "AC-D41")
@SCOPES
async def test_with_ids_given_they_give_way_and_the_advisor_is_not_asked(
    config: dict[str, Any], clock: Clock, scope: Scope
) -> None:
    advisor = Scripted("sea", all_shown)
    async with Memory(config, clock=clock, advisor=advisor, enrichment={"auto_supersede": True}) as memory:
        old = [
            await memory.write(f"Ada lives in {place}", scope=scope, auto_supersede=False)
            for place in ("Lisbon", "Porto", "Faro")
        ]
        ids = [old[0].id, old[1].id]
        written = await memory.write_with_report(
            "Ada lives in Beja", scope=scope, supersedes=ids, auto_tag=True
        )
        assert advisor.asked_what_gives_way == []
        assert written.supersede is None
        assert written.supersedes_manual is not None
        assert written.supersedes_manual.to_dict() == {"requested": ids, "invalidated": ids}
        assert written.auto_tag is not None
        assert written.auto_tag.added == ("sea",)
        assert [await memory.get(one) for one in ids] == [None, None]
        links = await memory.relations.find(source_id=written.entry.id)
        assert {(link.label, link.target_id, link.made_by) for link in links} == {
            ("supersedes", one, None) for one in ids
        }
        before = len([entry async for entry in memory.entries.iterate(include_retired=True)])
        with pytest.raises(InvalidInput, match="nothing was written"):
            await memory.write_with_report(
                "Ada lives in Evora",
                scope=scope,
                supersedes=[old[2].id, "00000000-0000-8000-8000-000000000000"],
            )
        assert len([entry async for entry in memory.entries.iterate(include_retired=True)]) == before
        assert await memory.get(old[2].id) == old[2]


async def test_under_a_key_it_is_done_once_and_told_again(config: dict[str, Any], clock: Clock) -> None:
    advisor = Scripted("sea", all_shown)
    async with Memory(config, clock=clock, advisor=advisor) as memory:
        old = await memory.write("Ada lives in Lisbon", scope=USER)
        asked: dict[str, Any] = {"scope": USER, "key": "home", "auto_tag": True, "auto_supersede": True}
        written = await memory.write_with_report("Ada lives in Porto", **asked)
        again = await memory.write_with_report("Ada lives in Porto", **asked)
        assert again == replace(written, replayed=True)
        assert len(advisor.asked_for_tags) == len(advisor.asked_what_gives_way) == 1
        assert written.supersede is not None
        assert written.supersede.invalidated == (old.id,)
        await memory.delete(written.entry.id)
        again = await memory.write_with_report("Ada lives in Beja", **asked, revive=True)
        assert again.auto_tag == written.auto_tag


async def test_an_export_carries_the_tags_the_notes_and_who_made_the_link(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(
        config, clock=clock, advisor=Scripted("sea", lambda shown: "1\nShe has moved.")
    ) as memory:
        await memory.write("Ada lives in Lisbon", scope=USER)
        written = await memory.write_with_report(
            "Ada lives in Porto", scope=USER, auto_tag=True, auto_supersede=True
        )
        lines = [line async for line in memory.admin.export()]
        clock.advance()
        file = io.BytesIO("\n".join(map(json.dumps, lines)).encode())
        async with Memory("memory://", embedder="none", clock=clock, tenant=memory.tenant) as other:
            await other.admin.import_(file, same_ids=True)
            assert await other.enrichment(written.entry.id) == await memory.enrichment(written.entry.id)
            assert await other.relations.find(label="supersedes") == await memory.relations.find(
                label="supersedes"
            )
        lines[-1]["note"] = 7
        async with Memory("memory://", embedder="none", clock=clock) as other:
            with pytest.raises(MemoryTiersError, match="note: must be text"):
                await other.admin.import_(io.BytesIO("\n".join(map(json.dumps, lines)).encode()))


@pytest.mark.behaviour("D27")
async def test_a_wrong_supersession_is_undone_by_deleting_and_writing_again(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(config, clock=clock, advisor=Scripted(supersedes=all_shown)) as memory:
        old = await memory.write("Ada sails in Lisbon", scope=USER, tags=["sea"])
        written = await memory.write_with_report("Ada lives in Lisbon", scope=USER, auto_supersede=True)
        assert written.supersede is not None
        (wrong,) = written.supersede.invalidated
        said: Entry = (await memory.entries.history(wrong))[-1]
        await memory.delete(wrong)
        again = await memory.write(
            said.content,
            scope=said.scope,
            type=said.type,
            title=said.title,
            tags=said.tags,
            created_at=said.created_at,
        )
        assert (again.content, again.tags, again.created_at) == (old.content, old.tags, old.created_at)
        assert await memory.get(again.id) == again
        assert await memory.relations.find(source_id=written.entry.id) == []


async def test_what_does_not_go_together_is_refused_by_name(plain: Memory) -> None:
    for named, given in {
        "auto_tag: must be True or False": {"auto_tag": "yes"},
        "auto_supersede: must be True or False": {"auto_supersede": 1},
        "auto_tag: cannot be combined with if_exists": {
            "auto_tag": True,
            "key": "home",
            "if_exists": "replace",
        },
        "wait": {"wait": 0},
        "notes": {"notes": "x"},
    }.items():
        with pytest.raises(InvalidInput, match=named):
            await plain.write_with_report("Ada lives in Porto", scope=USER, **given)  # type: ignore[arg-type]
    assert await plain.retrieve(USER) == []
    with pytest.raises(NotFound):
        await plain.enrichment("00000000-0000-8000-8000-000000000000")
