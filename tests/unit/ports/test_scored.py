"""Scored forms: whatever was put and dropped, they say what forms made anew say, and
answer what the specification answers.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from memory.adapters.in_memory import InMemoryStore
from memory.ports import lexical
from memory.ports.base import BaseStore
from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.contract.collections import DECLARED, PLAIN, SAMPLES
from memory.ports.contract.support import ELSEWHERE, HERE, T0, apply_all, delete, id_of, put, record
from memory.ports.contract.test_candidates import QUESTIONS, random_record
from memory.ports.partition_candidates import candidates_of
from memory.ports.partition_index import PartitionIndex
from memory.ports.query import Eq, within
from memory.ports.record import Partition, PendingStep, Record, pack_vector
from memory.ports.writes import Newer
from tests.support import depth
from tests.support.gathering import Gathering, rows

PLACES = (HERE, ELSEWHERE)


def stand(form: PartitionIndex, *records: Record) -> PartitionIndex:
    for one in records:
        form.put(one, lexical.index(form.collection, one.texts) if form.collection.texts else None)
    return form


def made(records: Sequence[Record]) -> PartitionIndex:
    return stand(PartitionIndex(SAMPLES), *records)


async def answered_alike(
    asked: Candidates, forms: Mapping[Partition, PartitionIndex], *stores: BaseStore
) -> None:
    asked_for = [forms[p] for p in asked.where.partitions if p in forms]  # type: ignore[union-attr]
    ours = candidates_of(asked, asked_for or [PartitionIndex(SAMPLES)])
    for theirs in [await store.candidates(asked) for store in stores]:
        assert rows(ours) == rows(theirs)
        assert ours.statistics == theirs.statistics


async def specification(records: Sequence[Record] = ()) -> InMemoryStore:
    store = InMemoryStore()
    await store.open(DECLARED)
    await apply_all(store, *map(put, records))
    return store


@pytest.mark.asyncio
@pytest.mark.parametrize("seed", range(depth.drawn(8, 2)))
async def test_after_every_history_a_form_answers_as_the_specification_and_says_what_one_made_anew_says(
    seed: int,
) -> None:
    chance = random.Random(seed)  # noqa: S311  the same each time
    store = await specification()
    bare = replace(InMemoryStore.claims, lexical=False, semantic=False)
    gathering, looking = Gathering(state=store.state), Gathering(state=store.state, capabilities=bare)
    for other in (gathering, looking):
        await other.open(DECLARED)
    forms = {place: PartitionIndex(SAMPLES) for place in PLACES}
    stand_: dict[Partition, dict[int, Record]] = {place: {} for place in PLACES}
    for version in range(1, 13):
        for place in PLACES:
            for n in chance.sample(range(60), 20):
                if chance.random() < 0.3:
                    await apply_all(store, delete(n, version, place))
                    forms[place].drop(id_of(n, place))
                    stand_[place].pop(n, None)
                else:
                    one = replace(random_record(chance, n, place), version=version)
                    await apply_all(store, put(one, Newer()))
                    stand(forms[place], one)
                    stand_[place][n] = one
            assert forms[place].content() == made(list(stand_[place].values())).content()
        for name in chance.sample(sorted(QUESTIONS), 6):
            if QUESTIONS[name].roles:
                question = replace(QUESTIONS[name], limit=chance.choice((1, 5, 20, 500)))
                others = (
                    (gathering, looking) if question.filter is None else (gathering,)
                )  # it weighs by what the filter lets through
                await answered_alike(
                    chance.choice((question, replace(question, where=within(*PLACES)))), forms, store, *others
                )


@pytest.mark.asyncio
@pytest.mark.parametrize("limit", [1, 7, 199, 200, 500])
async def test_of_many_that_are_equal_the_first_by_id_that_the_filter_lets_through_are_the_best(
    limit: int,
) -> None:
    records = [
        record(
            n,
            texts={"content": "lantern"},
            vector=pack_vector([1, 2]),
            fields={"type": "ab"[n % 3 == 0], "number": n, "conversation_id": "c"},
        )
        for n in random.Random(3).sample(range(600), 600)  # noqa: S311
    ]
    store = await specification(records)
    asked = Candidates(
        SAMPLES,
        within(HERE),
        "lantern",
        None,
        limit,
        counted=("lantern",),
        filter=Eq("type", "b"),
        select=frozenset({"number"}),
    )
    for question in (
        asked,
        replace(asked, text="", near=pack_vector([2, 1])),
        replace(asked, around=Neighbourhood("conversation_id", "number", 3)),
    ):
        await answered_alike(question, {HERE: made(records)}, store)


@pytest.mark.asyncio
async def test_vectors_too_short_or_too_long_for_single_precision_are_as_near_as_they_are() -> None:
    sizes = (1e-44, 1e-30, 1.0, 1e30, 3e38)
    records = [
        record(n, vector=pack_vector([size, size * turn]))
        for n, (size, turn) in enumerate((s, t) for s in sizes for t in (-1, 0, 0.5, 1))
    ]
    store = await specification(records)
    for near in ([1, 1], [1e-44, 0], [3e38, -3e38]):
        for limit in (1, 5, 12):
            await answered_alike(
                Candidates(SAMPLES, within(HERE), near=pack_vector(near), limit=limit),
                {HERE: made(records)},
                store,
            )


@pytest.mark.asyncio
async def test_what_is_too_near_to_tell_apart_in_single_precision_is_told_apart() -> None:
    chance = random.Random(2)  # noqa: S311
    towards = [chance.gauss(0, 1) for _ in range(64)]
    records = [
        record(n, vector=pack_vector([x + chance.gauss(0, 1e-3) for x in towards]), fields={"number": n % 3})
        for n in range(300)
    ]
    store = await specification(records)
    for part in (None, Eq("number", 1)):
        for limit in (1, 10, 40):
            await answered_alike(
                Candidates(SAMPLES, within(HERE), near=pack_vector(towards), limit=limit, filter=part),
                {HERE: made(records)},
                store,
            )


@pytest.mark.asyncio
async def test_a_collection_of_nothing_but_records_is_asked_by_names() -> None:
    records = [record(n) for n in range(3)]
    form = stand(PartitionIndex(PLAIN), *records)
    found = candidates_of(
        Candidates(PLAIN, within(HERE), "lantern", among=(id_of(1), id_of(9)), counted=("lantern",)), [form]
    )
    assert (list(found.ids), found.statistics.documents, found.statistics.words) == ([id_of(1)], 3, 0)


def test_a_form_keeps_no_text_no_body_and_nothing_of_what_is_owed() -> None:
    form = made(
        [
            record(
                1,
                texts={"content": "lantern"},
                body={"k": "harbour"},
                owed=(PendingStep("1", "deliver", {"all": "of it"}),),
            )
        ]
    )
    (kept,) = form.records
    assert kept is not None
    assert (dict(kept.texts), dict(kept.body), [dict(o.data) for o in kept.owed]) == ({}, {}, [{}])
    found = candidates_of(Candidates(SAMPLES, within(HERE), "lantern", select=frozenset({"owing"})), [form])
    assert found.fields == {"owing": [True]}


def test_a_form_that_more_has_left_than_stands_in_it_is_worn() -> None:
    form = made([record(n) for n in range(100)])
    assert not form.is_worn
    for n in range(90):
        form.drop(id_of(n))
    assert form.is_worn
    assert not made([record(1)] * 60).is_worn, "a few are not worth the trouble"


def test_a_form_tells_about_how_much_memory_it_takes() -> None:
    chance = random.Random(1)  # noqa: S311
    words = [f"word{n}" for n in range(2_000)]

    def said(n: int) -> Record:
        fields = {
            "type": "fact",
            "number": n,
            "conversation_id": f"conversation {n}",
            "valid_from": T0.replace(microsecond=n),
        }
        return record(
            n,
            texts={"content": " ".join(chance.choices(words, k=25))},
            vector=pack_vector([chance.random()] * 64),
            fields=fields,
        )

    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        form = PartitionIndex(SAMPLES)
        for n in range(1_500):
            one = said(n)
            form.put(one, lexical.index(SAMPLES, one.texts))
        candidates_of(Candidates(SAMPLES, within(HERE), near=pack_vector([1.0] * 64)), [form])
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken / 2 < form.bytes < taken * 2
