"""Compaction: one entry of several, made by a callback, with the provenance of them
all.
"""

from __future__ import annotations

import pytest

from memory import CompactionError, Conflict, Entry, InvalidInput, NotFound, Scope, TokenThreshold
from memory.facade.memory import Memory
from memory.facade.runtime.access import engine_of
from memory.ports.contract.cells import cells
from memory.ports.record import Record
from memory.ports.store import Store
from memory.ports.writes import Outcome, Put, Write
from tests.acceptance.support import DAY, EVERY_KIND, HOUR, SESSION, USER, Clock, contents, everything_stored


def joined(entries: list[Entry]) -> str:
    return " + ".join(contents(entries))


async def _sources(memory: Memory, scope: Scope = USER, count: int = 2) -> list[Entry]:
    return [await memory.write(f"part {n}", scope=scope) for n in range(1, count + 1)]


@pytest.mark.behaviour("A73", "A18")
async def test_at_least_one_source_must_be_given(memory: Memory) -> None:
    with pytest.raises(CompactionError, match=r"sourceEntryIds must be non-empty\.") as caught:
        await memory.compact([], joined)
    assert caught.value.source_entry_ids == ()


@pytest.mark.behaviour("A74")
async def test_an_unknown_source_is_not_found(memory: Memory, clock: Clock) -> None:
    known = await memory.write("known", scope=USER)
    expired = await memory.write("expired", scope=USER, expires_at=clock.moment - HOUR)
    for gone in ("nothing", expired.id):
        with pytest.raises(NotFound, match=gone):
            await memory.compact([known.id, gone], joined)


@pytest.mark.behaviour("A75", "A18")
async def test_sources_must_share_one_scope(memory: Memory) -> None:
    one = await memory.write("one", scope=USER)
    two = await memory.write("two", scope=SESSION)
    message = (
        rf"^Compaction failed for entries \[{one.id}, {two.id}\]: All source entries must share the same"
        r" scope\.$"
    )
    with pytest.raises(CompactionError, match=message) as caught:
        await memory.compact([one.id, two.id], joined)
    assert caught.value.source_entry_ids == (one.id, two.id)


@pytest.mark.behaviour("A76")
async def test_a_target_scope_must_be_that_of_the_sources(memory: Memory) -> None:
    sources = await _sources(memory)
    with pytest.raises(CompactionError, match=r"Compaction targetScope must match the shared source scope\."):
        await memory.compact([s.id for s in sources], joined, target_scope=SESSION)
    assert (await memory.compact([s.id for s in sources], joined, target_scope=USER)).scope == USER


@pytest.mark.behaviour("A77", "A79")
@pytest.mark.parametrize("scope", EVERY_KIND, ids=str)
async def test_the_callback_gets_the_sources_in_the_order_given_and_may_be_async(
    memory: Memory, scope: Scope
) -> None:
    one, two, three = await _sources(memory, scope, 3)
    seen: list[Entry] = []

    async def callback(entries: list[Entry]) -> str:
        seen.extend(entries)
        return joined(entries)

    compacted = await memory.compact([three.id, one.id, two.id], callback)
    assert seen == [three, one, two]
    assert compacted.content == "part 3 + part 1 + part 2"
    assert compacted.compacted_from_ids == [three.id, one.id, two.id]
    assert compacted.scope == scope
    assert await memory.get(compacted.id) == compacted
    assert [h.entry.id for h in await memory.search("part", scope=scope, limit=10)].count(compacted.id) == 1


@pytest.mark.behaviour("A78", "A18", "AC-A39")
@pytest.mark.parametrize("is_async", [False, True])
async def test_a_failing_callback_changes_nothing_and_its_error_is_kept(
    memory: Memory, is_async: bool
) -> None:
    sources = await _sources(memory)
    before = await everything_stored(memory)
    cause = RuntimeError("LLM failed")

    def fails(entries: list[Entry]) -> str:
        raise cause

    async def fails_later(entries: list[Entry]) -> str:
        raise cause

    with pytest.raises(CompactionError, match=r"LLM failed$") as caught:
        await memory.compact([s.id for s in sources], fails_later if is_async else fails, delete_sources=True)
    assert caught.value.__cause__ is cause
    assert await everything_stored(memory) == before


@pytest.mark.behaviour("A78")
@cells(
    "made",
    [None, 5, b"bytes", ["text"], "", "  ", "\x00", "\ud800", "x" * 65_537],
    ids=lambda made: repr(made)[:12],
    shared=True,
)
async def test_what_is_no_text_worth_keeping_is_refused(memory: Memory, made: str) -> None:
    sources = await _sources(memory)
    before = await everything_stored(memory)
    with pytest.raises(CompactionError):
        await memory.compact([s.id for s in sources], lambda entries: made, delete_sources=True)
    assert await everything_stored(memory) == before


@pytest.mark.behaviour("A80", "A81", "A82", "AC-A41")
async def test_tags_are_united_and_metadata_merged_and_every_agent_is_known(memory: Memory) -> None:
    one = await memory.write(
        "1", scope=USER, tags=["x", "y"], metadata={"agentId": 1, "k": 1, "confidence": 0.5}, source="chat"
    )
    two = await memory.write(
        "2", scope=USER, tags=["y", "z"], metadata={"agentId": 2, "m": 2, "source": "mail"}
    )
    compacted = await memory.compact([one.id, two.id], joined)
    assert compacted.tags == ["x", "y", "z"]
    assert compacted.metadata == {"agentId": 1, "k": 1, "confidence": 0.5, "m": 2, "source": "mail"}
    read = await memory.get(compacted.id)
    assert read is not None
    assert read.contributors is not None
    assert [(c.entry_id, c.agent_id, c.source, c.confidence) for c in read.contributors] == [
        (one.id, 1, "chat", 0.5),
        (two.id, 2, "mail", None),
    ]


@pytest.mark.behaviour("A80", "A81")
async def test_tags_given_replace_and_metadata_given_lies_on_top(memory: Memory) -> None:
    one = await memory.write("1", scope=USER, tags=["x"], metadata={"a": 1, "b": 1})
    two = await memory.write("2", scope=USER, tags=["y"], metadata={"a": 2, "c": 2})
    compacted = await memory.compact([one.id, two.id], joined, tags=["n", "n"], metadata={"b": 3, "d": 3})
    assert compacted.tags == ["n"]
    assert compacted.metadata == {"a": 1, "b": 3, "c": 2, "d": 3}
    assert (await memory.compact([one.id, two.id], joined, tags=[])).tags == []


@pytest.mark.behaviour("A80", "A81", "D5")
async def test_tags_and_metadata_beyond_an_entry_are_refused_before_the_callback_and_can_be_given_instead(
    memory: Memory,
) -> None:
    called: list[list[str]] = []

    def callback(entries: list[Entry]) -> str:
        called.append(contents(entries))
        return joined(entries)

    tagged = [await memory.write(f"{n}", scope=USER, tags=[f"{n}-{t}" for t in range(20)]) for n in range(2)]
    described = [
        await memory.write(f"{n}", scope=USER, metadata={f"{n}": "x" * 40_000, "same": n}) for n in range(2)
    ]
    for sources, limit in (
        (tagged, r"40 different tags.*at most 32: give tags="),
        (described, r"beyond the limits.*give metadata="),
    ):
        before = await everything_stored(memory)
        with pytest.raises(CompactionError, match=f"{limit}.*The callback was not called"):
            await memory.compact([s.id for s in sources], callback, delete_sources=True)
        assert await everything_stored(memory) == before
    assert called == []
    assert (await memory.compact([s.id for s in tagged], callback, tags=["both"])).tags == ["both"]
    assert (
        await memory.compact([s.id for s in described], callback, metadata={"same": "both"})
    ).metadata == {"same": "both"}
    assert called == [["0", "1"]] * 2


@pytest.mark.behaviour("A82", "A86")
async def test_compacting_a_compacted_entry_keeps_every_agent_but_only_direct_parents(memory: Memory) -> None:
    leaves = [await memory.write(f"{n}", scope=USER, metadata={"agent_id": f"agent-{n}"}) for n in range(3)]
    inner = await memory.compact([leaves[0].id, leaves[1].id], joined)
    outer = await memory.compact([inner.id, leaves[2].id], joined)
    assert outer.compacted_from_ids == [inner.id, leaves[2].id]
    assert outer.contributors is not None
    assert [c.agent_id for c in outer.contributors] == ["agent-0", "agent-1", "agent-2"]
    assert [c.entry_id for c in outer.contributors] == [leaf.id for leaf in leaves]


@pytest.mark.behaviour("A83")
@pytest.mark.parametrize(
    ("days", "expected"), [((1, 3, 2), 3), ((1, None, 2), None), ((None, None), None), ((2,), 2)]
)
async def test_it_expires_with_the_latest_of_its_sources_and_never_if_one_never_does(
    memory: Memory, clock: Clock, days: tuple[int | None, ...], expected: int | None
) -> None:
    now = clock.moment
    sources = [
        await memory.write(f"{n}", scope=USER, expires_at=None if d is None else now + d * DAY)
        for n, d in enumerate(days)
    ]
    compacted = await memory.compact([s.id for s in sources], joined)
    assert compacted.expires_at == (None if expected is None else now + expected * DAY)


@pytest.mark.behaviour("A84")
@pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
async def test_sources_stay_unless_their_deletion_is_asked(memory: Memory, scope: Scope) -> None:
    sources = await _sources(memory, scope)
    ids = [s.id for s in sources]
    await memory.compact(ids, joined)
    assert [await memory.get(i) for i in ids] == sources
    compacted = await memory.compact(ids, lambda entries: "whole", delete_sources=True)
    assert [await memory.get(i) for i in ids] == [None, None]
    assert await memory.get(compacted.id) == compacted


@pytest.mark.behaviour("A84")
async def test_a_source_edited_while_the_callback_worked_is_not_deleted_and_its_old_text_is_not_stored(
    memory: Memory,
) -> None:
    one, two = await _sources(memory)

    async def edits(entries: list[Entry]) -> str:
        await memory.update(two.id, content="edited meanwhile")
        return joined(entries)

    with pytest.raises(CompactionError, match="deleted or edited while"):
        await memory.compact([one.id, two.id], edits, delete_sources=True)
    assert sorted(contents([e async for e in memory.entries.iterate()])) == ["edited meanwhile", "part 1"]
    assert await memory.get(one.id) == one


@pytest.mark.behaviour("A84")
async def test_sources_whose_summary_is_hidden_are_not_deleted(memory: Memory) -> None:
    sources = await _sources(memory)
    ids = [s.id for s in sources]
    compacted = await memory.compact(ids, joined)
    await memory.entries.invalidate(compacted.id)
    with pytest.raises(Conflict, match="expired or retired") as caught:
        await memory.compact(ids, joined, delete_sources=True)
    assert caught.value.existing_id == compacted.id
    assert [await memory.get(i) for i in ids] == sources


@pytest.mark.behaviour("A84")
@pytest.mark.parametrize("scope", [USER, SESSION], ids=str)
async def test_a_scope_erased_while_the_callback_worked_stays_erased(memory: Memory, scope: Scope) -> None:
    sources = await _sources(memory, scope)

    async def erases(entries: list[Entry]) -> str:
        await memory.admin.erase(scope)
        return joined(entries)

    with pytest.raises(NotFound):
        await memory.compact([s.id for s in sources], erases)
    assert await memory.retrieve(scope) == []
    assert await memory.search("part", scope=scope) == []


@pytest.mark.behaviour("A87")
async def test_repeated_source_ids_are_taken_once_in_first_seen_order(memory: Memory) -> None:
    one, two = await _sources(memory)
    compacted = await memory.compact([two.id, one.id, two.id, one.id], joined)
    assert compacted.content == "part 2 + part 1"
    assert compacted.compacted_from_ids == [two.id, one.id]
    assert compacted.contributors is not None
    assert len(compacted.contributors) == 2


@pytest.mark.behaviour("B86")
async def test_the_same_compaction_again_makes_no_second_entry(memory: Memory) -> None:
    ids = [s.id for s in await _sources(memory)]
    first = await memory.compact(ids, joined)
    assert await memory.compact(ids, joined) == first
    assert len(await memory.retrieve(USER)) == 3


@pytest.mark.behaviour("A73", "A74")
@pytest.mark.parametrize("ids", ["0123", 5, None, [5], ["\x00"]], ids=repr)
async def test_source_ids_that_cannot_be_are_refused(memory: Memory, ids: list[str]) -> None:
    with pytest.raises(InvalidInput, match="id"):
        await memory.compact(ids, joined)


@pytest.mark.behaviour("A85")
async def test_compaction_calls_nothing_but_the_callback(memory: Memory) -> None:
    calls = []
    ids = [s.id for s in await _sources(memory)]
    await memory.compact(ids, lambda entries: calls.append(len(entries)) or "whole")  # type: ignore[func-returns-value]
    assert calls == [2]


@pytest.mark.behaviour("A77", "A78")
@pytest.mark.parametrize("callback", [None, "a summary"])
async def test_what_is_no_function_is_refused_by_name(memory: Memory, callback: object) -> None:
    sources = await _sources(memory)
    with pytest.raises(InvalidInput, match="callback: must be a function"):
        await memory.compact([s.id for s in sources], callback)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="callback: must be a function"):
        await memory.compact(["nothing"], callback)  # type: ignore[arg-type]
    session = memory.session("s1")
    await session.append([{"role": "user", "content": "tea"}, {"role": "assistant", "content": "Noted."}])
    with pytest.raises(InvalidInput, match="summarise: must be a function"):
        await session.compact(callback, keep_last=1)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="summarise: must be a function"):
        await session.compact_if_needed(TokenThreshold(100), callback)  # type: ignore[arg-type]


async def test_a_late_check_of_the_sources_spares_a_result_that_replaced_them(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = [(await memory.write(text, scope=USER)).id for text in ("one", "two")]
    engine, put = engine_of(memory), engine_of(memory).placement.write_one
    unconfirmed: list[tuple[Store, Record]] = []

    async def write_one(name: str, store: Store, write: Write) -> Outcome:
        if name == "derive.home" and isinstance(write, Put):
            unconfirmed.append((store, write.record))
        return await put(name, store, write)

    monkeypatch.setattr(engine.placement, "write_one", write_one)
    made = await memory.compact(sources, lambda entries: "both", delete_sources=True)
    [(store, record)] = unconfirmed
    await engine.derivatives.confirm(store, record)  # as a concurrent repeat of the call that read it before
    assert await memory.get(made.id) == made
