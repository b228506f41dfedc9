"""In which order a search shows what it finds: D55 to D85, whatever it is that answers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from memory import EntryDraft, Memory
from tests.acceptance.support import USER, Clock

FILLER = [f"nothing of that kind stands in number {n}" for n in range(5)]


async def _write(memory: Memory, *texts: str, **fields: Any) -> None:
    for text in texts:
        await memory.write(text, scope=USER, **fields)


async def _found(memory: Memory, query: str, **asked: Any) -> list[str]:
    return [hit.entry.content for hit in await memory.search(query, scope=USER, **asked)]


# -- words -----------------------------------------------------------------------------


@pytest.mark.behaviour("D63", "AC-D19")
@pytest.mark.parametrize("title_first", [True, False])
async def test_a_word_in_the_title_outranks_one_in_the_content(memory: Memory, *, title_first: bool) -> None:
    writes: list[dict[str, Any]] = [
        {"content": "how we roll out", "title": "Kubernetes deployment runbook"},
        {"content": "among other things we mention kubernetes once", "title": "Generic notes"},
    ]
    for fields in writes if title_first else reversed(writes):
        await memory.write(scope=USER, **fields)
    assert await _found(memory, "kubernetes") == [
        "how we roll out",
        "among other things we mention kubernetes once",
    ]


@pytest.mark.behaviour("D55")
async def test_a_word_weighs_most_in_the_title_then_in_tags_content_and_source(memory: Memory) -> None:
    same = "quiet text of three"
    await memory.write(f"{same} source", scope=USER, source="walrus")
    await memory.write(f"{same} walrus", scope=USER, source="content")
    await memory.write(f"{same} tags", scope=USER, tags=["walrus"])
    await memory.write(f"{same} title", scope=USER, title="walrus")
    assert [text.split()[-1] for text in await _found(memory, "walrus")] == [
        "title",
        "tags",
        "walrus",
        "source",
    ]


APART = " ".join(f"w{n}" for n in range(11))
CLOSE = ["alpha beta", "alpha one two three beta", f"alpha {APART} beta", "alpha"]


@pytest.mark.behaviour("D59", "D60", "D61", "AC-D21")
@pytest.mark.parametrize("query", ["alpha beta", "what about the alpha beta"])
async def test_a_phrase_comes_before_near_words_before_far_ones_before_one_alone(
    memory: Memory, query: str
) -> None:
    await _write(memory, *reversed(CLOSE), *FILLER)
    assert await _found(memory, query, mode="lexical") == CLOSE


@pytest.mark.behaviour("D59", "D60")
async def test_between_texts_of_one_length_closeness_decides(memory: Memory) -> None:
    texts = [
        "x alpha beta x x x x x x x x x x x",
        "x alpha x x x beta x x x x x x x x",
        "alpha x x x x x x x x x x x x beta",
    ]
    await _write(memory, texts[1], texts[2], texts[0])
    assert await _found(memory, "alpha beta", mode="lexical") == texts


@pytest.mark.behaviour("D56", "D58", "D67", "AC-D23")
async def test_accents_and_case_fold_and_words_are_whole(memory: Memory) -> None:
    await _write(memory, "Café notes / naïve résumé", "this is what the plan was", "deploying it")
    for query in ("cafe", "CAFÉ", "resume", "naive"):
        assert await _found(memory, query, mode="lexical") == ["Café notes / naïve résumé"], query
    assert await _found(memory, "caf", mode="lexical") == []
    assert await _found(memory, "the", mode="lexical") == ["this is what the plan was"]
    assert await _found(memory, "what is the", mode="lexical") == ["this is what the plan was"]


@pytest.mark.behaviour("D57")
@pytest.mark.parametrize(
    ("said", "finds", "not_found"),
    [
        ("deploy", ("deploys", "deployed", "deploying"), ("deployment", "deployments")),
        ("connect", ("connection",), ("collection",)),
        ("prefer", ("preference",), ("pretence",)),
        ("fly", (), ("flies",)),
    ],
)
async def test_stems(memory: Memory, said: str, finds: tuple[str, ...], not_found: tuple[str, ...]) -> None:
    await _write(memory, f"we {said} here")
    for query in finds:
        assert await _found(memory, query, mode="lexical") == [f"we {said} here"], query
    for query in not_found:
        assert await _found(memory, query, mode="lexical") == [], query


@pytest.mark.behaviour("D62")
async def test_a_query_is_never_syntax(memory: Memory) -> None:
    await _write(memory, 'walrus AND "penguin" -lantern')
    for query in (
        '"walrus',
        "walrus AND",
        "walrus*",
        "NEAR(walrus, 3)",
        "content:walrus",
        "-walrus",
        "walrus)(",
        "'; walrus --",
        "walrus\\",
    ):
        assert await _found(memory, query, mode="lexical") == ['walrus AND "penguin" -lantern'], query
    for query in ('"', "*", "NEAR(", "-", "( )", "\\", "%", "_"):
        assert await _found(memory, query, mode="lexical") == [], query


@pytest.mark.behaviour("D65")
async def test_another_tenant_changes_no_ranking(memory: Memory) -> None:
    await _write(memory, "walrus walrus lantern", "lantern penguin", "walrus penguin penguin")
    before = [
        (hit.entry.content, hit.score) for hit in await memory.search("walrus lantern penguin", scope=USER)
    ]
    other = memory.for_tenant("globex")
    for n in range(20):
        await other.write(f"lantern lantern lantern {n}", scope=USER)
    assert [
        (hit.entry.content, hit.score) for hit in await memory.search("walrus lantern penguin", scope=USER)
    ] == before


async def test_a_typo_finds_what_was_meant_counts_less_and_is_told(memory: Memory) -> None:
    await _write(memory, "the tournament in the harbour", "the harbour at night", *FILLER)
    hit, *_ = await memory.search("torunament harbour", scope=USER, explain=True)
    assert hit.entry.content == "the tournament in the harbour"
    assert hit.explanation["corrected"] == {"torunament": "tournament"}
    right, *_ = await memory.search("tournament harbour", scope=USER, explain=True)
    assert "corrected" not in right.explanation
    assert hit.relevance is not None
    assert right.relevance is not None
    assert 0.1 < hit.relevance < right.relevance


# -- multipliers -----------------------------------------------------------------------


@pytest.mark.behaviour("D68", "D69")
async def test_types_and_tags_come_first_among_equals_and_multiply(memory: Memory) -> None:
    for kind, tag in (("context", "a"), ("context", "b"), ("user", "a"), ("user", "b")):
        await memory.write(f"lantern {kind} {tag}", scope=USER, type=kind, tags=[f"of-{tag}"])
    found = await memory.search(
        "lantern", scope=USER, boost={"types": ["user"], "tags": ["of-b"]}, explain=True
    )
    assert [hit.entry.content for hit in found] == [
        "lantern user b",
        "lantern user a",
        "lantern context b",
        "lantern context a",
    ]
    assert [hit.explanation["multipliers"] for hit in found] == [
        {"type": 1.3, "tag": 1.2},
        {"type": 1.3},
        {"tag": 1.2},
        {},
    ]


@pytest.mark.behaviour("D70", "D71", "D72", "D73", "D74", "AC-D33")
async def test_what_a_question_seems_to_want_comes_first_unless_the_caller_says(memory: Memory) -> None:
    kinds = ("context", "reference", "user", "learning", "project")
    for kind in kinds:
        await memory.write(f"colour {kind}", scope=USER, type=kind)

    async def boosted(query: str, **asked: Any) -> set[str]:
        hits = await memory.search(query, scope=USER, explain=True, **asked)
        assert len(hits) == len(kinds)
        wanted = {hit.entry.type.value for hit in hits if hit.explanation["multipliers"].get("type", 1.0) > 1}
        assert [hit.entry.type.value in wanted for hit in hits] == sorted(
            (hit.entry.type.value in wanted for hit in hits), reverse=True
        )
        return wanted

    assert await boosted("which colour do I prefer?") == {"user"}
    assert await boosted("what is my favorite colour") == {"user", "reference"}
    assert await boosted("how do I colour") == {"learning"}
    assert await boosted("when did the colour change") == {"project"}
    assert await boosted("colour") == set()
    assert await boosted("which colour do I prefer?", boost={"types": ["learning"]}) == {"learning"}
    assert await boosted("which colour do I prefer?", intent=False) == set()


@pytest.mark.behaviour("D75", "D76", "D77", "D78")
async def test_what_is_older_counts_less_and_never_nothing(memory: Memory, clock: Clock) -> None:
    start = clock.moment
    ages = (400, 200, 100, 60, 35, 0)
    for n, age in enumerate(ages):
        await memory.write(f"lantern {n}", scope=USER, created_at=start - timedelta(days=age))
    found = await memory.search("lantern", scope=USER, explain=True)
    told = [hit.entry.content[-1] for hit in found]
    assert (told[0], set(told[1:3]), told[3:]) == ("5", {"4", "3"}, ["2", "1", "0"])
    assert [hit.explanation["multipliers"].get("age", 1.0) for hit in found] == [
        1.0,
        0.9,
        0.9,
        0.75,
        0.6,
        0.5,
    ]
    ageless = await memory.search("lantern", scope=USER, explain=True, age_decay=False)
    assert {hit.explanation["multipliers"].get("age", 1.0) for hit in ageless} == {1.0}
    half = await memory.search(
        "lantern", scope=USER, explain=True, half_life=timedelta(days=10), decay_floor=0.2
    )
    assert [hit.explanation["multipliers"].get("age", 1.0) for hit in half] == [1.0, 0.6, 0.2, 0.2, 0.2, 0.2]
    floored = await memory.search("lantern", scope=USER, explain=True, decay_floor=0.8)
    assert [hit.explanation["multipliers"].get("age", 1.0) for hit in floored] == [
        1.0,
        0.9,
        0.9,
        0.8,
        0.8,
        0.8,
    ]  # nothing is below it


@pytest.mark.behaviour("D77")
async def test_age_is_told_from_the_moment_that_is_asked_about(memory: Memory, clock: Clock) -> None:
    written = clock.moment
    await _write(memory, "lantern")
    clock.advance(timedelta(days=300))
    for asked in ({"as_of": written + timedelta(days=1)}, {"known_at": written + timedelta(days=1)}):
        (hit,) = await memory.search("lantern", scope=USER, explain=True, **asked)  # type: ignore[call-overload]
        assert "age" not in hit.explanation["multipliers"]
    (hit,) = await memory.search("lantern", scope=USER, explain=True)
    assert hit.explanation["multipliers"]["age"] == 0.6


@pytest.mark.behaviour("D75")
async def test_a_named_day_is_found_among_many_days_like_it(memory: Memory, clock: Clock) -> None:
    session, moments = memory.session("s1", user="ada"), []
    for n in range(70):
        moments.append(clock.advance(timedelta(days=1)))
        await session.append({"role": "user", "content": f"noodles for lunch x{n}"})
    await memory.write_many(
        [
            {"content": f"noodles for lunch x{n}", "scope": USER, "created_at": moment}
            for n, moment in enumerate(moments)
        ]
    )
    now = clock.advance(timedelta(hours=1))
    for n in (12, 50):
        for written in (f"{moments[n]:%d %B %Y}", f"{moments[n]:%Y-%m-%d}", f"{moments[n]:%d.%m.%Y}"):
            question = f"noodles for lunch on {written}"
            told = [
                (await memory.search(question, scope=USER))[0].content,
                (await memory.search(question, scope=USER, known_at=now))[0].content,
                (await memory.search(question, scope="session:s1", messages=True))[0].content,
                (await memory.search_messages(question, user="ada"))[0].content,
            ]
            assert told == [f"noodles for lunch x{n}"] * 4


@pytest.mark.behaviour("D75")
async def test_an_entry_of_the_named_day_comes_before_those_of_the_next_days(
    plain: Memory, clock: Clock
) -> None:
    day = clock.moment - timedelta(days=50)
    texts = ("soup for lunch, then a walk, then a walk, then a walk, then a walk", "soup for lunch")
    for n, text in enumerate(texts):
        await plain.write(text, scope=USER, created_at=day + timedelta(days=n))
    hits = await plain.search(f"soup for lunch on {day:%d %B %Y}", scope=USER, mode="lexical")
    assert [hit.content for hit in hits] == list(texts)


@pytest.mark.behaviour("D9", "D75")
async def test_messages_with_times_of_their_own_are_found_by_them(memory: Memory, clock: Clock) -> None:
    first = clock.moment - timedelta(days=400)
    said = [
        {"role": "user", "content": f"noodles for lunch x{n}", "created_at": first + timedelta(days=n)}
        for n in range(70)
    ]
    await memory.session("s1", user="ada").append(said)
    question, days = f"noodles for lunch on {said[12]['created_at']:%d %B %Y}", timedelta(days=1)
    assert (await memory.search_messages(question, user="ada"))[0].content == "noodles for lunch x12"
    (hit,) = await memory.search_messages("noodles", user="ada", since=first + 69 * days)
    assert hit.content == "noodles for lunch x69"
    (hit,) = await memory.search_messages("noodles", user="ada", until=first)
    assert hit.content == "noodles for lunch x0"
    between = {"since": first + 5 * days, "before": first + 6 * days}
    found = await memory.search("noodles", scope="session:s1", messages=True, filter=between)
    assert [hit.content for hit in found] == ["noodles for lunch x5"]


# -- conversations ---------------------------------------------------------------------


@pytest.mark.behaviour("D79", "D80", "D81", "D84", "AC-D27", "AC-D31")
async def test_of_equals_those_of_the_callers_conversation_come_first(memory: Memory) -> None:
    await memory.sessions.create("here")
    for n, of in enumerate(("here", None, "here", None)):
        await memory.write(f"raptor {n}", scope=USER, conversation_id=of)
    assert {text[-1] for text in (await _found(memory, "raptor", boost={"conversation_id": "here"}))[:2]} == {
        "0",
        "2",
    }
    found = await _found(memory, "raptor", boost={"conversation_id": "here"})
    assert len(set(found)) == len(found) == 4
    assert await _found(memory, "raptor", boost={"conversation_id": "elsewhere"}) == await _found(
        memory, "raptor"
    )


@pytest.mark.behaviour("D85", "AC-D29")
@pytest.mark.parametrize("weak", [10, 31, 120])
async def test_weak_entries_of_the_callers_conversation_do_not_crowd_out_a_strong_one_from_elsewhere(
    memory: Memory, weak: int
) -> None:
    drafts = [
        f"a long and rambling text about many things that mentions the raptor number {n} in passing"
        for n in range(weak)
    ]
    for session in ("here", "there"):
        await memory.sessions.create(session)
    for text in drafts:
        await memory.write(text, scope=USER, conversation_id="here")
    await memory.write(
        "raptor: why the raptor engine raptor test failed",
        scope=USER,
        title="raptor engine test",
        conversation_id="there",
    )
    assert "raptor: why the raptor engine raptor test failed" in await _found(
        memory, "raptor engine test", boost={"conversation_id": "here"}, limit=10
    )


@pytest.mark.behaviour("D49", "D82", "D83")
async def test_limits_are_honoured_exactly(memory: Memory) -> None:
    await memory.write_many([EntryDraft(scope=USER, content=f"lantern {n}") for n in range(230)])
    for limit in (1, 66, 67, 200, 229):
        assert len(await memory.search("lantern", scope=USER, limit=limit)) == limit
    assert len(await memory.search("lantern", scope=USER, limit=1_000)) == 230


# -- scores ----------------------------------------------------------------------------


async def test_what_is_beyond_the_limit_is_told_by_number(memory: Memory) -> None:
    await _write(memory, "walrus one", "walrus two", "walrus three")
    found = await memory.search("walrus", scope=USER, mode="lexical", limit=1, explain=True)
    assert found.left_out == {"beyond_limit": 2}
    assert (await memory.search("walrus", scope=USER, mode="lexical", limit=3, explain=True)).left_out == {}


async def test_the_past_is_scored_as_the_present_is(memory: Memory, clock: Clock) -> None:
    await _write(memory, "walrus walrus lantern", "lantern penguin", "a walrus", "a walrus again", *FILLER)
    clock.advance()
    now = [(hit.entry.content, hit.score) for hit in await memory.search("walrus penguin", scope=USER)]
    assert [
        (hit.entry.content, hit.score)
        for hit in await memory.search("walrus penguin", scope=USER, known_at=clock.moment)
    ] == now


async def test_relevance_compares_across_questions_and_may_be_asked_for(memory: Memory) -> None:
    await _write(memory, "the walrus keeps a lantern in the harbour", "a penguin slides on ice", *FILLER)
    best, *_ = await memory.search("walrus lantern harbour", scope=USER, mode="lexical")
    half, *_ = await memory.search("walrus in a cupboard of mahogany", scope=USER, mode="lexical")
    assert best.relevance is not None
    assert half.relevance is not None
    assert 0 < half.relevance < 0.5 < best.relevance < 1
    assert await _found(memory, "walrus in a cupboard of mahogany", mode="lexical", min_relevance=0.7) == []
    found = await memory.search(
        "walrus in a cupboard of mahogany", scope=USER, mode="lexical", min_relevance=0.7, explain=True
    )
    assert found.left_out == {"below_min_relevance": 1}
    assert await _found(memory, "walrus lantern harbour", mode="lexical", min_relevance=0.7) == [
        "the walrus keeps a lantern in the harbour"
    ]


@pytest.mark.behaviour("D54")
async def test_the_score_is_the_sort_key_and_does_not_increase(memory: Memory, clock: Clock) -> None:
    for number in range(12):
        await memory.write(
            f"walrus {'lantern ' * (number % 3)}{number}",
            scope=USER,
            type=("user", "context")[number % 2],
            tags=["a"] * (number % 4 == 0),
        )
        clock.advance(timedelta(days=20))
    for options in (
        {},
        {"boost": {"types": ["user"], "tags": ["a"]}},
        {"age_decay": False},
        {"mode": "lexical"},
        {"limit": 3},
    ):
        hits = await memory.search("the walrus with a lantern", scope=USER, explain=True, **options)
        scores = [hit.score for hit in hits if hit.score is not None]
        assert len(scores) == len(hits) > 0
        assert scores == sorted(scores, reverse=True)
        assert [round(score, 4) for score in scores] == [hit.explanation["order"] for hit in hits]
        assert all(hit.content == hit.entry.content and hit.id == hit.entry.id for hit in hits)
    browsed = await memory.search(" ", scope=USER)
    assert len(browsed) == 10
    assert {(hit.score, hit.relevance) for hit in browsed} == {(None, None)}


async def test_what_stands_beside_in_a_conversation_is_found_with_it(memory: Memory) -> None:
    said = [
        "Did you finally see the walrus?",
        "Yes, yesterday in the harbour!",
        "How lovely for you.",
        "Let us talk of other things.",
        "My boots are wet.",
    ]
    for n, text in enumerate(said, start=1):
        await memory.write(
            text, scope=USER, conversation_id="c", number_in_conversation=n, speaker="Ada" if n % 2 else "Bob"
        )
    await _write(memory, *FILLER)
    found = await _found(memory, "when did they see the walrus", limit=3)
    assert found[0] == "Did you finally see the walrus?" or found[1] == "Did you finally see the walrus?"
    assert "Yes, yesterday in the harbour!" in found[:2]


async def test_who_spoke_is_preferred_where_the_question_names_one(memory: Memory) -> None:
    for n, (speaker, text) in enumerate(
        [("Ada", "I painted a lighthouse last week"), ("Bob", "I painted a lighthouse last week")], start=1
    ):
        await memory.write(
            text, scope=USER, conversation_id="c", number_in_conversation=10 * n, speaker=speaker
        )
    for name in ("Ada", "Bob"):
        first, _ = await memory.search(f"What did {name} paint?", scope=USER)
        assert first.entry.speaker == name
