"""Trust: where entries come from, what gates let in and out, which sources are blocked, and
what is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from memory import (
    BlockingMemory,
    BlockingMemoryManager,
    ConfigError,
    Conflict,
    Entry,
    EntryDraft,
    InvalidInput,
    Memory,
    MemoryManager,
    NamedStore,
    NotFound,
    Provenance,
    RejectedByGate,
    Resolution,
    StoreAddFailure,
    StoreEntry,
)
from memory.domain.errors import StoreTimeout
from memory.facade.transfer.lines import BadLine
from tests.acceptance.support import HOUR, Clock, elsewhere, left_in

WEB = "web:example.com"
SCOPES = ("session:s1", "user:ada", "org:acme")


async def found(memory: Memory, moments: tuple[Any, ...] = ()) -> set[str]:
    """All that is found in any way: by searching, browsing, by id, as recalled into a
    window and as a manager shows it.
    """
    ids, said = {entry.id async for entry in memory.entries.iterate(include_retired=True)}, set[str]()
    for at in (None, *moments):
        for scope in SCOPES:
            said |= {entry.content for entry in await memory.retrieve(scope, limit=1_000, known_at=at)}
            said |= {
                hit.entry.content for hit in await memory.search("tea", scope=scope, limit=1_000, known_at=at)
            }
            said |= {hit.entry.content for hit in await memory.search("", scope=scope, limit=1_000)}
        said |= {
            entry.content
            for entry_id in ids
            if (entry := await memory.get(entry_id, known_at=at)) is not None
        }
    manager = MemoryManager(
        [NamedStore(scope.replace(":", "-"), memory.scoped(scope), limit=1_000) for scope in SCOPES]
    )
    said |= {hit.content for hit in await manager.search("tea")}
    shown = await manager.inject([{"role": "user", "content": "tea?"}])
    context = await memory.session("s1", user="ada").context(recall="tea")
    return said | {
        text for text in POISON if text in str(shown) or text in str([m.text for m in context.messages])
    }


POISON = ("poisoned tea", "poisoned tea, edited", "poisoned tea for all", "tea and poisoned tea in one")


async def test_what_is_written_says_where_it_comes_from_and_takes_that_along(memory: Memory) -> None:
    entry = await memory.write(
        "tea", scope="session:s1", source=WEB, agent="helper", run="r1", origins=["run:r0"]
    )
    assert (entry.source, entry.agent, entry.run, entry.origins) == (WEB, "helper", "r1", ["run:r0"])
    assert await memory.get(entry.id) == entry
    promoted = await memory.promote(entry.id, "user:ada")
    assert (promoted.source, promoted.agent, promoted.run, promoted.origins) == (
        WEB,
        "helper",
        "r1",
        ["run:r0"],
    )
    other = await memory.write("coffee", scope="user:ada", source="user")
    both = await memory.compact([promoted.id, other.id], lambda entries: "tea and coffee")
    assert both.origins == [f"source:{WEB}", "agent:helper", "run:r1", "run:r0", "source:user"]
    edited = await memory.update(other.id, content="no coffee", agent="helper", origins=[f"source:{WEB}"])
    assert (edited.source, edited.agent, edited.origins) == ("user", "helper", [f"source:{WEB}"])
    cleared = await memory.update(other.id, source=None, agent="other")
    assert (cleared.source, cleared.agent, cleared.origins) == (
        None,
        "other",
        ["source:user", "agent:helper", f"source:{WEB}"],
    )
    await memory.admin.move([promoted.id], "long")
    assert (await memory.get(promoted.id)).origins == ["run:r0"]  # type: ignore[union-attr]


@pytest.mark.parametrize("same_ids", [False, True])
async def test_exports_and_imports_carry_where_entries_come_from(
    memory: Memory, clock: Clock, same_ids: bool
) -> None:
    entry = await memory.write("tea", scope="user:ada", source="user")
    await memory.update(entry.id, content="poisoned tea", source=WEB, run="r1")
    lines = [line async for line in memory.admin.export()]
    async with Memory(
        {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}, clock=clock
    ) as other:
        await other.admin.block_source(source=WEB, reason="poisoned")
        assert (await other.admin.import_(lines, same_ids=same_ids)).imported == 1
        [there] = [one async for one in other.entries.iterate()]
        assert (there.source, there.run, there.origins) == (WEB, "r1", ["source:user"])
        assert await other.retrieve("user:ada") == []
        report = await other.admin.revert_source(source=WEB)
        await other.admin.unblock_source(source=WEB)
        assert [one.content for one in await other.retrieve("user:ada")] == (["tea"] if same_ids else [])
        assert report.counts == {"retired": not same_ids, "erased": 0, "restored": same_ids, "left": 0}


async def test_a_change_shows_no_entry_of_a_blocked_source(memory: Memory) -> None:
    made = await memory.write("secret tea", scope="user:ada", key="drink", source=WEB)
    plain = await memory.write("tea", scope="user:ada", source=WEB)
    await memory.admin.block_source(source=WEB, reason="wrong")
    changes: list[dict[str, Any]] = [
        {"entry_id": made.id, "title": "Drink"},
        {"entry_id": plain.id, "expected_version": plain.version},
        {"entry_id": plain.id, "content": "coffee"},
    ]
    for change in changes:
        with pytest.raises(NotFound):
            await memory.update(**change)
    modes: list[Any] = ["update", "keep"]
    for mode in modes:
        with pytest.raises(Conflict, match="hidden by a blocked source") as caught:
            await memory.write("tea", scope="user:ada", key="drink", if_exists=mode)
        assert "secret" not in str(caught.value)
    assert {len(await memory.entries.history(one.id)) for one in (made, plain)} == {1}
    await memory.admin.unblock_source(source=WEB)
    assert (await memory.update(plain.id, content="coffee")).content == "coffee"


async def test_a_keyed_write_is_repeated_whoever_asks_and_in_whichever_run(memory: Memory) -> None:
    first = await memory.write("tea", scope="user:ada", key="drink", run="r1")
    assert await memory.write("tea", scope="user:ada", key="drink", run="r2", agent="other") == first


@pytest.mark.parametrize("wrong", [["web:example.com"], ["source:"], ["tea"], "source:web", [1]])
async def test_origins_that_are_none_are_refused(plain: Memory, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^origins"):
        await plain.write("tea", scope="user:ada", origins=wrong)


async def test_a_blocked_source_is_hidden_and_is_found_again(
    memory: Memory, config: dict[str, Any], clock: Clock
) -> None:
    async with elsewhere(memory, config, clock) as other:
        at_first = clock()
        good = await memory.write("good tea", scope="user:ada", source="user")
        one = await memory.write("poisoned tea", scope="session:s1", source=WEB, agent="helper", run="r1")
        promoted = await memory.promote(one.id, "org:acme", content="poisoned tea for all")
        before = await memory.write("tea", scope="user:ada")
        await memory.update(before.id, content="poisoned tea, edited", source=WEB)
        await memory.compact([good.id, before.id], lambda entries: "tea and poisoned tea in one")
        moments = (at_first, clock())
        assert set(POISON) < await found(other, moments)
        [placed] = await memory.admin.block_source(source=WEB, reason="poisoned", blocked_by="ops")
        assert (placed.origin, placed.since, placed.later_writes, placed.reason) == (
            f"source:{WEB}",
            None,
            "refused",
            "poisoned",
        )
        assert await found(memory) == {"good tea"}
        clock.advance(timedelta(seconds=3))
        assert not set(POISON) & await found(other, moments)
        assert await other.get(promoted.id) is None
        assert await other.admin.blocked_sources() == [placed]
        assert len([entry async for entry in memory.entries.iterate()]) == 5, "nothing was deleted"
        assert await memory.admin.unblock_source(source=WEB) == [placed]
        assert await memory.admin.unblock_source(source=WEB) == await memory.admin.blocked_sources() == []
        clock.advance(timedelta(seconds=3))
        assert set(POISON) < await found(other, moments)


@pytest.mark.parametrize(
    "by", [{"source": WEB}, {"agent": "helper"}, {"run": "r1"}], ids=lambda by: next(iter(by))
)
async def test_a_source_an_agent_and_a_run_are_blocked_alike(memory: Memory, by: dict[str, Any]) -> None:
    await memory.write("tea", scope="user:ada", source=WEB, agent="helper", run="r1")
    await memory.write("green tea", scope="user:ada", source="user", agent="other", run="r2")
    await memory.admin.block_source(**by, reason="r")
    assert [hit.entry.content for hit in await memory.search("tea", scope="user:ada")] == ["green tea"]
    with pytest.raises(RejectedByGate, match="is a blocked source"):
        await memory.write("more tea", scope="user:ada", **by)
    other = await memory.for_tenant("other").write("tea", scope="user:ada", **by)
    assert await memory.for_tenant("other").get(other.id) == other


async def test_since_a_moment_what_was_written_before_is_found(memory: Memory, clock: Clock) -> None:
    await memory.write("tea", scope="user:ada", agent="helper")
    since = clock.advance(HOUR)
    await memory.write("poisoned tea", scope="user:ada", agent="helper")
    await memory.admin.block_source(agent="helper", since=since, reason="r")
    assert [hit.entry.content for hit in await memory.search("tea", scope="user:ada")] == ["tea"]
    report = await memory.admin.revert_source(agent="helper", since=since)
    assert report.counts == {"retired": 1, "erased": 0, "restored": 0, "left": 0}
    await memory.admin.unblock_source(agent="helper")
    assert [entry.content for entry in await memory.retrieve("user:ada")] == ["tea"]


async def test_later_writes_are_refused_or_kept_back(memory: Memory) -> None:
    entry = await memory.write("tea", scope="user:ada", source="user")
    await memory.admin.block_source(source=WEB, reason="r", later_writes="kept_back")
    kept = await memory.write("green tea", scope="user:ada", source=WEB)
    assert await memory.get(kept.id) is None
    calls: list[Callable[[], Any]] = [
        lambda: memory.update(entry.id, content="black tea", source=WEB),
        lambda: memory.write("black tea", scope="user:ada", source=WEB, supersedes=[entry.id]),
        lambda: memory.write("black tea", scope="user:ada", source=WEB, key="k", if_exists="replace"),
        lambda: memory.write(
            "tea too",
            scope="user:ada",
            source=WEB,
            detect_conflicts=True,
            resolve=lambda draft, near: "supersede",
        ),
    ]
    for hidden_with_it in calls:
        with pytest.raises(RejectedByGate, match="blocked source"):
            await hidden_with_it()
    assert [one.content for one in await memory.retrieve("user:ada")] == ["tea"]
    await memory.admin.block_source(source=WEB, reason="r")
    with pytest.raises(RejectedByGate):
        await memory.update(entry.id, content="black tea", source=WEB)
    with pytest.raises(RejectedByGate) as refusal:
        await memory.write_many(
            [
                {"content": "a", "scope": "user:ada"},
                {"content": "b", "scope": "user:ada", "origins": [f"source:{WEB}"]},
            ]
        )
    assert refusal.value.position == 1
    assert [one.content for one in await memory.retrieve("user:ada")] == ["tea"], (
        "nothing of the call was written"
    )
    await memory.admin.unblock_source(source=WEB)
    assert {one.content for one in await memory.retrieve("user:ada")} == {"tea", "green tea"}


async def _history(memory: Memory, clock: Clock, *, poisoned: bool) -> None:
    """Everyday use by a user, and, where it is poisoned, by a page: what both write to
    the same entries does not meet in one field.
    """

    async def evil(call: Any) -> Any:
        return await call if poisoned else call.close()

    for number in range(30):
        entry = await memory.write(
            f"tea {number}",
            scope=SCOPES[number % 3],
            key=f"k{number}",
            tags=["a"],
            metadata={"n": number},
            source="user",
        )
        clock.advance(HOUR)
        await evil(
            memory.write(
                f"poisoned tea {number}", scope=SCOPES[(number + 1) % 3], source=WEB, run=f"r{number}"
            )
        )
        if number % 3 == 0:
            await evil(
                memory.update(
                    entry.id, content=f"poisoned {number}", metadata={"evil": True, "n": -1}, source=WEB
                )
            )
            await memory.update(entry.id, tags=["a", "b"])
        if number % 3 == 1:
            await evil(memory.update(entry.id, title="poison", agent="helper", origins=[f"source:{WEB}"]))
            await memory.update(entry.id, content=f"green tea {number}", metadata={"m": number})
        if number % 6 == 5:
            said = memory.write(
                f"poisoned again {number}",
                scope=SCOPES[number % 3],
                key=f"k{number}",
                if_exists="replace",
                source=WEB,
            )
            await evil(said)
        if number % 5 == 0:
            await evil(
                memory.write(f"poison over {number}", scope="user:ada", source=WEB, supersedes=[entry.id])
            )
        if number % 7 == 0:
            await memory.entries.invalidate(
                (await memory.write(f"gone {number}", scope="user:ada", key=f"g{number}")).id
            )
        if number % 10 == 4:
            await memory.admin.move([entry.id], "long")
            await memory.admin.sweep()


async def _said(memory: Memory) -> list[tuple[Any, ...]]:
    """What is found, without ids and moments."""
    entries = [entry for scope in SCOPES for entry in await memory.retrieve(scope, limit=1_000)]
    return sorted(
        (
            e.scope.text,
            e.content,
            str(e.title),
            e.tags,
            str(e.metadata),
            str(e.source),
            str(e.agent),
            str(e.origins),
        )
        for e in entries
    )


async def test_what_a_clock_ahead_of_ours_wrote_is_reverted_too(memory: Memory, clock: Clock) -> None:
    kept = await memory.write("Ada drinks tea", scope="user:ada", source="mail")
    there, clock.moment = clock.moment, clock.moment + HOUR
    bad = await memory.write("Ada drinks bleach", scope="user:ada", source=WEB)
    await memory.update(kept.id, content="Ada drinks ink", source=WEB)
    clock.moment = there
    planned = await memory.admin.revert_source(source=WEB, dry_run=True)
    report = await memory.admin.revert_source(source=WEB)
    assert report.of("retired") == planned.of("retired") == [bad.id]
    assert report.of("restored") == planned.of("restored") == [kept.id]
    assert [entry.content for entry in await memory.retrieve("user:ada")] == ["Ada drinks tea"]
    assert (await memory.admin.revert_source(source=WEB)).entries == []


@pytest.mark.parametrize("erase", [False, True], ids=["retired", "erased"])
async def test_after_a_roll_back_the_rest_is_as_if_it_had_never_written(
    memory: Memory, clock: Clock, erase: bool
) -> None:
    await _history(memory, clock, poisoned=True)
    other = memory.for_tenant("clean")
    await _history(other, clock, poisoned=False)
    assert await _said(memory) != await _said(other)
    planned = await memory.admin.revert_source(source=WEB, erase=erase, dry_run=True)
    assert await _said(memory) != await _said(other), "a dry run does nothing"
    report = await memory.admin.revert_source(source=WEB, erase=erase)
    assert report.entries == planned.entries
    assert (planned.dry_run, report.dry_run) == (True, False)
    assert report.counts == {
        "retired": 0 if erase else 36,
        "erased": 36 if erase else 0,
        "restored": 26,
        "left": 0,
    }
    assert await _said(memory) == await _said(other)
    assert (await memory.admin.revert_source(source=WEB, erase=erase)).entries == []
    await memory.admin.sweep()
    assert await _said(memory) == await _said(other)
    assert not erase or "poison over" not in str(
        [entry.content async for entry in memory.entries.iterate(include_retired=True)]
    )


async def test_what_was_made_of_its_entries_is_named_and_goes_if_asked(memory: Memory) -> None:
    one = await memory.write("poisoned tea", scope="user:ada", source=WEB)
    good = await memory.write("good tea", scope="user:ada")
    both = await memory.compact([one.id, good.id], lambda entries: "tea and poisoned tea in one")
    report = await memory.admin.revert_source(source=WEB)
    assert (report.of("retired"), report.of("left")) == ([one.id], [both.id])
    assert {undone.entry_id: undone.why for undone in report.entries} == {
        one.id: "written",
        both.id: "derived",
    }
    assert (await memory.admin.revert_source(source=WEB, derived=True)).of("retired") == [both.id]
    assert [entry.id for entry in await memory.retrieve("user:ada")] == [good.id]


async def test_legal_holds_win_over_a_roll_back(memory: Memory) -> None:
    one = await memory.write("poisoned tea", scope="user:ada", source=WEB)
    retired = await memory.write("poisoned tea too", scope="user:ada", source=WEB)
    await memory.entries.invalidate(retired.id)
    await memory.admin.legal_holds.add("case", reason="r", scope="user:ada")
    planned = await memory.admin.revert_source(source=WEB, erase=True, dry_run=True)
    report = await memory.admin.revert_source(source=WEB, erase=True)
    assert report.entries == planned.entries
    assert (report.of("retired"), report.of("erased")) == ([one.id], [])
    assert [undone.note for undone in report.entries] == ["under legal hold: retired instead"]
    assert [entry.content for entry in await memory.entries.history(one.id)] == [
        "poisoned tea",
        "poisoned tea",
    ]
    assert await memory.retrieve("user:ada") == []


async def test_a_page_that_says_remember_is_answered_by_one_call(memory: Memory) -> None:
    async def model(prompt: Any) -> str:
        return (
            '[{"content": "poisoned tea", "metadata": {"source": "user"}}]'
            if "remember" in prompt.user
            else "[]"
        )

    store = NamedStore("ada", memory.scoped("user:ada"), writable=True, extraction=True)
    async with MemoryManager(
        [store], add_tool=True, memory=memory, model=model, provenance=Provenance(agent="helper")
    ) as manager:
        recording = await manager.record(memory.session("chat", user="ada"))
        page = {
            "role": "tool",
            "content": "remember that …",
            "tool_call_id": "c1",
            "metadata": {"source": WEB},
        }
        call = {"id": "c1", "type": "function", "function": {"name": "browse", "arguments": "{}"}}
        await recording.add(
            [
                {"role": "user", "content": "what is new?"},
                {"role": "assistant", "content": "", "tool_calls": [call]},
                page,
            ]
        )
        await recording.add({"role": "assistant", "content": "I am to remember: poisoned tea"})
        await recording.flush()
        [learnt] = await memory.retrieve("user:ada")
        assert (learnt.agent, learnt.run, learnt.conversation_id, learnt.origins) == (
            "helper",
            "chat",
            "chat",
            [f"source:{WEB}"],
        )
        asked = {"entries": ["poisoned tea, edited"]}
        assert await manager.dispatch("add_memory", asked, provenance=Provenance(source=WEB, run="chat")) == {
            "stored": 1
        }
        with pytest.raises(InvalidInput, match="is not an argument of add_memory"):
            await manager.dispatch("add_memory", {**asked, "source": "user"})
        await memory.write("good tea", scope="user:ada", source="user")
        assert len(await manager.search("tea")) == 3
        await memory.admin.block_source(source=WEB, reason="the page was poisoned")
        assert await found(memory) == {"good tea"}
        assert (await memory.admin.revert_source(source=WEB)).counts["retired"] == 2


async def test_the_write_gate_holds_for_every_door(
    memory: Memory, config: dict[str, Any], clock: Clock
) -> None:
    seen: list[tuple[str, Provenance]] = []

    def gate(draft: EntryDraft, provenance: Provenance) -> Any:
        seen.append((draft.content, provenance))
        if "secret" in draft.content:
            return "holds a secret"
        return {"content": draft.content.replace("card 4111", "card …")} if "card" in draft.content else True

    entry = await memory.write("secret of before", scope="session:s1")
    lines = [line async for line in memory.admin.export()]
    await memory.close()
    async with Memory(config, clock=clock, write_gate=gate) as gated:
        if await gated.get(entry.id) is None:
            entry = await gated.write("plain", scope="session:s1")
        changed = await gated.write("card 4111", scope="user:ada", source=WEB, run="r1", key="k")
        assert (changed.content, seen[-1][1]) == ("card …", Provenance(WEB, run="r1"))
        assert await gated.write("card 4111", scope="user:ada", source=WEB, run="r1", key="k") == changed
        for refusal in (
            lambda: gated.write("secret", scope="user:ada"),
            lambda: gated.write_many(
                [{"content": "a", "scope": "user:ada"}, {"content": "secret", "scope": "user:ada"}]
            ),
            lambda: gated.update(changed.id, content="secret"),
            lambda: gated.promote(entry.id, "user:ada", content="secret"),
            lambda: gated.compact([changed.id], lambda entries: "secret"),
            lambda: gated.write("secret", scope="user:ada", supersedes=[changed.id]),
            lambda: gated.write("secret", scope="user:ada", key="k", if_exists="replace"),
            lambda: gated.write("secret", scope="user:ada", detect_conflicts=True),
            lambda: gated.write(
                "card …",
                scope="user:ada",
                detect_conflicts=True,
                resolve=lambda draft, near: Resolution("merge", content="secret"),
            ),
        ):
            with pytest.raises(RejectedByGate, match=r"^refused, and nothing was written: holds a secret$"):
                await refusal()
        checked = await gated.write("my card 4111", scope="user:ada", detect_conflicts=True, key="checked")
        assert checked.content == "my card …"
        assert (
            await gated.write("my card 4111", scope="user:ada", detect_conflicts=True, key="checked")
        ).id == checked.id
        await gated.delete(checked.id)
        upserted = await gated.write(
            "card 4111", scope="user:ada", source=WEB, run="r1", key="k", if_exists="replace"
        )
        assert upserted == changed, "it says so already"
        assert (await gated.update(changed.id, title="card 4111")).title == "card 4111"
        for same_ids in (False, True):
            report = await gated.admin.import_(lines, same_ids=same_ids)
            assert (report.imported, report.problems) == (0, ["import line 1: holds a secret"])
        assert [one.content for one in await gated.retrieve("user:ada")] == ["card …"]


async def test_an_import_names_the_bad_line_behind_one_that_is_refused(
    config: dict[str, Any], clock: Clock
) -> None:
    lines = [
        {"role": "user", "content": "secret"},
        {"role": "user", "content": "of tomorrow", "time": "2999-01-01T00:00:00Z"},
    ]
    async with Memory(
        config, clock=clock, write_gate=lambda draft, _: "secret" not in draft.content
    ) as gated:
        with pytest.raises(BadLine, match="line 2: created_at"):
            await gated.admin.import_(lines, messages_to="session:s1")


async def test_the_recall_gate_holds_for_every_door(config: dict[str, Any], clock: Clock) -> None:
    def gate(entry: Entry) -> bool:
        return bool(entry.metadata["level"] < 2)

    async with Memory(config, clock=clock, recall_gate=gate) as gated:
        written = [
            await gated.write(f"tea {level}", scope="user:ada", metadata={"level": level})
            for level in range(4)
        ]
        at = clock()
        await gated.update(written[3].id, content="tea at last")
        assert await found(gated, (at,)) == {"tea 0", "tea 1"}
        hits = await gated.search("tea", scope="user:ada", explain=True, limit=1)
        assert len(hits) == 1
        hits = await gated.search("tea", scope="user:ada", explain=True)
        assert (hits.withheld, hits.left_out["withheld"]) == (2, sorted(entry.id for entry in written[2:]))
        listed = await gated.retrieve("user:ada", limit=2, order="oldest")
        assert [entry.content for entry in listed] == ["tea 0", "tea 1"]
        assert (await gated.retrieve("user:ada")).withheld == 2


@pytest.mark.parametrize(
    "gate",
    [
        "raises",
        "hangs",
        "hangs in its thread",
        "says nothing",
        "asks for what cannot be",
        "lies about where it comes from",
    ],
)
async def test_a_gate_that_does_not_answer_lets_nothing_in_and_nothing_out(clock: Clock, gate: str) -> None:
    import threading

    never = threading.Event()

    async def hangs(*_: Any) -> Any:
        await asyncio.Event().wait()

    def raises(*_: Any) -> Any:
        raise ValueError("text of the entry")

    gates: dict[str, Any] = {
        "raises": raises,
        "hangs": hangs,
        "hangs in its thread": lambda *_: never.wait(5),
        "says nothing": lambda *_: None,
        "asks for what cannot be": lambda *_: {"content": 7} if len(_) == 2 else False,
        "lies about where it comes from": lambda *_: {"source": "user"} if len(_) == 2 else False,
    }
    config = {
        "tiers": dict.fromkeys(("short", "mid", "long"), "memory://"),
        "embedder": "none",
        "durations": {"deadline": 0.1},
    }
    async with Memory(config, clock=clock, recall_gate=gates[gate]) as memory:
        entry = await memory.write("tea", scope="user:ada")
        assert list(await memory.search("tea", scope="user:ada")) == []
        try:
            assert list(await memory.retrieve("user:ada")) == []
        except StoreTimeout:
            assert gate.startswith("hangs"), "no store answered in time"
        assert await memory.get(entry.id) is None
    async with Memory(config, clock=clock, write_gate=gates[gate]) as memory:
        with pytest.raises(RejectedByGate, match="the write gate") as refusal:
            await memory.write("tea", scope="user:ada")
        assert "text of the entry" not in str(refusal.value)
        assert await left_in(memory) == []
    never.set()


def test_the_blocking_twins_do_the_same(clock: Clock) -> None:
    config = {"tiers": dict.fromkeys(("short", "mid", "long"), "memory://"), "embedder": "none"}
    with BlockingMemory(
        config, clock=clock, recall_gate=lambda entry: entry.content != "secret tea"
    ) as memory:
        manager = BlockingMemoryManager(
            [NamedStore("ada", memory.scoped("user:ada"), writable=True)], add_tool=True
        )
        assert manager.dispatch("add_memory", {"entries": ["tea"]}, provenance=Provenance(source=WEB)) == {
            "stored": 1
        }
        memory.write("secret tea", scope="user:ada")
        assert [(entry.content, entry.source) for entry in memory.retrieve("user:ada")] == [("tea", WEB)]
        assert [one.origin for one in memory.admin.block_source(source=WEB, reason="r")] == [f"source:{WEB}"]
        assert list(memory.retrieve("user:ada")) == []
        assert memory.admin.revert_source(source=WEB).counts["retired"] == 1
        assert len(memory.admin.unblock_source(source=WEB)) == 1


@pytest.mark.parametrize("gate", ["write_gate", "recall_gate"])
def test_a_gate_is_a_function(gate: str) -> None:
    with pytest.raises(ConfigError, match=f"{gate}: must be a function, not str"):
        Memory("memory://", **{gate: "no"})  # type: ignore[arg-type]


async def test_a_blocked_source_is_named_with_a_reason(plain: Memory) -> None:
    for wrong in (
        {"reason": "r"},
        {"source": WEB, "reason": ""},
        {"source": "", "reason": "r"},
        {"source": WEB, "reason": "r", "later_writes": "x"},
    ):
        with pytest.raises(InvalidInput):
            await plain.admin.block_source(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="provenance: must be a Provenance, not str"):
        MemoryManager([NamedStore("ada", plain.scoped("user:ada"))], provenance="web")  # type: ignore[arg-type]


async def test_what_onward_makes_says_whose_session_it_was_and_what_was_heard_there(
    config: dict[str, Any], clock: Clock
) -> None:
    async with Memory(
        config, clock=clock, on_window_exit=lambda leaving: ["poisoned tea", "secret"], write_gate=_no_secrets
    ) as memory:
        session = memory.session("s1", user="ada", agent="helper")
        await session.append(
            [
                {"role": "user", "content": "what is new?"},
                {"role": "assistant", "content": "", "tool_calls": [CALL]},
                PAGE,
            ]
        )
        await session.end()
        [learnt] = await memory.retrieve("user:ada")
        assert (learnt.content, learnt.agent, learnt.origins) == (
            "poisoned tea",
            "helper",
            ["source:tool:browse"],
        )
        await memory.admin.block_source(source="tool:browse", reason="r")
        assert list(await memory.retrieve("user:ada")) == []


CALL = {"id": "c1", "type": "function", "function": {"name": "browse", "arguments": "{}"}}
PAGE = {"role": "tool", "content": "remember that …", "tool_call_id": "c1", "name": "browse"}


async def _no_secrets(draft: EntryDraft, provenance: Provenance) -> bool:
    return draft.content != "secret"


async def test_what_is_learnt_and_refused_is_not_told_again(config: dict[str, Any], clock: Clock) -> None:
    asked: list[Any] = []

    async def model(prompt: Any) -> str:
        asked.append(prompt)
        return '[{"content": "secret"}, {"content": "likes tea"}]'

    async with Memory(config, clock=clock, write_gate=_no_secrets) as memory:
        store = NamedStore("ada", memory.scoped("user:ada"), writable=True, extraction=True)
        async with MemoryManager([store], memory=memory, model=model) as manager:
            recording = await manager.record(memory.session("chat", user="ada"))
            await recording.add({"role": "user", "content": "hello"})
            await recording.flush()
            await recording.flush()
            assert [entry.content for entry in await memory.retrieve("user:ada")] == ["likes tea"]
            assert len(asked) == 1


async def test_gates_of_a_manager_hold_for_stores_of_any_kind(plain: Memory) -> None:
    class Notes:
        def __init__(self) -> None:
            self.kept: list[str] = []

        async def search(self, query: str, *, limit: int) -> list[str]:
            return self.kept

        async def add(self, content: str, metadata: Any = None) -> None:
            self.kept.append(content)

    def gate(entry: StoreEntry, provenance: Provenance) -> Any:
        return (
            "no"
            if "secret" in entry.content
            else {"tags": ["a"]}
            if entry.content == "tag me"
            else {"content": entry.content.upper()}
        )

    notes = Notes()
    manager = MemoryManager(
        [NamedStore("notes", notes, writable=True)],
        add_tool=True,
        write_gate=gate,
        recall_gate=lambda entry: entry.content != "SUGAR",
    )
    assert await manager.dispatch("add_memory", {"entries": ["tea", "sugar"]}) == {"stored": 2}
    with pytest.raises(StoreAddFailure, match="refused, and nothing was written: no"):
        await manager.add("a secret")
    with pytest.raises(StoreAddFailure, match="may change only content and metadata"):
        await manager.add("tag me")
    assert notes.kept == ["TEA", "SUGAR"]
    assert [found.content for found in await manager.search("tea")] == ["TEA"]
    shown = await manager.inject([{"role": "user", "content": "tea?"}])
    assert ("TEA" in str(shown), "SUGAR" in str(shown)) == (True, False)
    with pytest.raises(InvalidInput, match="recall_gate: must be a function, not str"):
        MemoryManager([NamedStore("notes", notes)], recall_gate="no")  # type: ignore[arg-type]
