"""Candidates and their measures for ranking, compared with the records themselves."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from memory.domain.errors import InvalidInput
from memory.ports.candidates import CandidateColumns, Candidates, Neighbourhood, Statistics, none_of
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.cells import cells
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import PLAIN, SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    FOREIGN,
    HERE,
    apply_all,
    delete,
    id_of,
    key_of,
    put,
    record,
)
from memory.ports.query import (
    VECTOR,
    WORDS,
    Eq,
    Everywhere,
    In,
    Near,
    Search,
    Tenant,
    Words,
    covers,
    within,
)
from memory.ports.query_evaluation import lets_through, value_of
from memory.ports.record import Partition, Record, Role, pack_vector
from memory.ports.store import Store
from memory.ports.text import count_words, query_words, words
from memory.ports.vector_scan import by_nearness
from memory.ports.writes import AtVersion, Newer, Release

WORDS_SAID = "lantern harbour walrus penguin deploy the connection fly river".split()
MANY_WORDS = tuple(f"w{n}" for n in range(60))
BESIDE = Neighbourhood("conversation_id", "number", 2)
EVERYONE = 40
PARTITIONS = (HERE, ELSEWHERE, FOREIGN)
SELECT = frozenset({"type", "number", "conversation_id", "created_at", "tier", "version"})


def random_record(chance: random.Random, n: int, at: Partition) -> Record:
    """Return a record of a dense neighbourhood.

    There are two conversations and few words. Some records lack a vector, a text or a
    place.
    """
    fields = {"type": chance.choice("ab"), "number": n // 2, "conversation_id": f"c{n % 2}"}
    texts = {
        part: " ".join(chance.choices(WORDS_SAID, k=chance.randrange(1, 9)))
        for part in chance.sample(["title", "content", "source"], 2)
    }
    return record(
        n,
        at,
        texts=texts if chance.random() < 0.9 else {},
        fields={name: value for name, value in fields.items() if chance.random() < 0.85},
        vector=pack_vector([chance.gauss(0, 1) for _ in range(4)]) if chance.random() < 0.8 else None,
        role=chance.choice([Role.HOME, Role.HOME, Role.HOME, Role.REPLICA]),
        tier=chance.choice(["mid", "long"]),
    )


async def _fill(store: Store, chance: random.Random) -> list[Record]:
    """Write records of three partitions, replace and delete some; return the rest."""
    records = {(at, n): random_record(chance, n, at) for at in PARTITIONS for n in range(EVERYONE)}
    await apply_all(store, *[put(r) for r in records.values()])
    for at, n in chance.sample(sorted(records), 12):
        if n % 3:
            records[at, n] = replace(random_record(chance, n, at), version=2)
            await apply_all(store, put(records[at, n], Newer()))
        else:
            del records[at, n]
            await apply_all(store, delete(n, at=at))
    return list(records.values())


def _beside(ids: Iterable[str], passing: Sequence[Record]) -> set[str]:
    """Return the records within reach of these, in their partition and conversation."""
    by_id = {r.key.id: r for r in passing}
    centres = [
        (c.scope, c.fields["conversation_id"], c.fields["number"]) for i in ids if _has_place(c := by_id[i])
    ]
    return {
        r.key.id
        for r in passing
        if _has_place(r)
        for scope, group, number in centres
        if r.scope == scope
        and r.fields["conversation_id"] == group
        and abs(r.fields["number"] - number) <= BESIDE.reach  # type: ignore[operator]
    }


def _has_place(one: Record) -> bool:
    return "conversation_id" in one.fields and "number" in one.fields


async def _expected_ids(store: Store, asked: Candidates, passing: Sequence[Record]) -> set[str]:
    """Return the ids that must be among the candidates.

    They are the results of the store's own searches, or of a scan where it has none.
    """
    found = set(asked.among) & {r.key.id for r in passing}
    search = Search(asked.collection, asked.where, Words(asked.text), asked.limit, asked.filter, asked.roles)
    if store.capabilities.lexical:
        found |= {hit.head.key.id for hit in await store.search(search)}
    elif asked.limit >= len(passing):
        sought = set(query_words(asked.text))
        found |= {r.key.id for r in passing if any(sought & set(words(text)) for text in r.texts.values())}
    if asked.near is None:
        return found
    if store.capabilities.semantic:
        return found | {hit.head.key.id for hit in await store.search(replace(search, by=Near(asked.near)))}
    near = sorted(by_nearness(asked.near, list(passing)), key=lambda one: (-one[1], one[0].key.id))
    return found | {r.key.id for r, _ in near[: asked.limit]}


def _measures(asked: Candidates, answer: CandidateColumns, records: Sequence[Record]) -> None:
    """Check that every column matches the records."""
    assert (
        len(
            {
                len(column)
                for column in (
                    answer.ids,
                    answer.scopes,
                    answer.versions,
                    answer.roles,
                    answer.tiers,
                    answer.lengths,
                )
            }
        )
        == 1
    )
    by_id = {r.key.id: r for r in records}
    assert answer.counts.shape == (len(answer), len(asked.counted))
    assert answer.vectors.shape == (len(answer), asked.width)
    assert set(answer.fields) == asked.select
    for row, record_id in enumerate(answer.ids):
        one = by_id[record_id]
        head = (answer.scopes[row], answer.versions[row], answer.roles[row], answer.tiers[row])
        assert head == (one.scope, one.version, one.role, one.tier)
        parts = [(text, asked.collection.weights[part]) for part, text in one.texts.items()]
        found, length = count_words(parts, frozenset(asked.counted))
        assert answer.lengths[row] == length
        assert answer.counts[row].tolist() == pytest.approx([found.get(stem, 0.0) for stem in asked.counted])
        assert {name: answer.fields[name][row] for name in asked.select} == {
            name: value_of(one, name) for name in asked.select
        }
        same = one.vector is not None and len(one.vector) == 4 * asked.width
        assert answer.vectors[row].tobytes() == (one.vector if same else bytes(4 * asked.width))


def _statistics(asked: Candidates, records: Sequence[Record]) -> Statistics:
    counted = [
        count_words([(text, 1.0) for text in r.texts.values()], frozenset(asked.counted)) for r in records
    ]
    containing = {stem: sum(stem in found for found, _ in counted) for stem in asked.counted}
    return Statistics(len(records), sum(length for _, length in counted), containing)


async def check_candidates(store: Store, asked: Candidates, everything: Sequence[Record]) -> CandidateColumns:
    records = [r for r in everything if covers(asked.where, r.partition) and r.role in asked.roles]
    passing = [r for r in records if lets_through(asked.filter, r)]
    answer = await store.candidates(asked)
    ids = list(answer.ids)
    assert len(ids) == len(set(ids)), "a record comes once"
    assert set(ids) <= {r.key.id for r in passing}, "only what was asked for"
    sought = await _expected_ids(store, asked, passing)
    assert sought <= set(ids), "what is found is among the candidates"
    if asked.around is not None:
        assert _beside(sought, passing) <= set(ids), "and what stands beside it"
    _measures(asked, answer, passing)
    assert answer.statistics == (_statistics(asked, records) if asked.statistics else none_of(asked))
    return answer


_ASKED = Candidates(
    SAMPLES,
    within(HERE),
    "lantern of the deploying",
    pack_vector([1, 0, 0, 1]),
    5,
    counted=("lantern", "deploi", "the", "x"),
)
_BOTH = frozenset({Role.HOME, Role.REPLICA})
QUESTIONS = {
    "both ways": _ASKED,
    "with neighbours": replace(_ASKED, around=BESIDE, select=SELECT),
    "by words alone": replace(_ASKED, near=None, around=BESIDE),
    "by meaning alone": replace(_ASKED, text=" ", around=BESIDE, select=SELECT),
    "named ones": replace(_ASKED, text="", near=None, among=(id_of(3), id_of(7), id_of(11), id_of(99)), around=BESIDE, select=SELECT),
    "one named of another scope": replace(_ASKED, text="", near=None, among=(id_of(3), id_of(3, ELSEWHERE), id_of(3, FOREIGN)), around=BESIDE),
    "vectors without a question of meaning": replace(_ASKED, near=None, dimensions=4, around=BESIDE),
    "nothing": replace(_ASKED, text="", near=None),
    "no word of theirs": replace(_ASKED, text="zebra ?!", near=None, counted=("zebra",)),
    "nothing counted": replace(_ASKED, counted=(), select=SELECT),
    "filtered": replace(_ASKED, filter=Eq("type", "a"), around=BESIDE, among=(id_of(1), id_of(2), id_of(5))),
    "other dimensions": replace(_ASKED, near=pack_vector([1, 0, 0]), around=BESIDE),
    "replicas too": replace(_ASKED, roles=_BOTH, around=BESIDE),
    "no roles": replace(_ASKED, roles=frozenset()),
    "two scopes": replace(_ASKED, where=within(HERE, ELSEWHERE), around=BESIDE, select=SELECT, limit=9),
    "everything there is": replace(_ASKED, where=within(HERE, ELSEWHERE), limit=1_000, around=BESIDE),
    "a scope that nobody has": replace(_ASKED, where=within(Partition("acme", "user:nobody")), around=BESIDE),
    "without statistics": replace(_ASKED, around=BESIDE, statistics=False),
    "a long text": replace(_ASKED, text="harbour " * 300 + " ".join(MANY_WORDS), counted=(*WORDS_SAID, *MANY_WORDS)),
}  # fmt: skip


@clause(
    "candidates.found",
    "candidates.measured",
    "candidates.around",
    "candidates.among",
    "candidates.statistics",
)
@needs("filter", "conditional")
@pytest.mark.asyncio
@cells("seed", range(3))
async def test_candidates_are_what_was_asked_for_measured_by_what_they_say(
    store: Store, harness: Harness, seed: int
) -> None:
    if seed >= harness.depth.seeds:
        return
    everything = await _fill(store, random.Random(seed))  # noqa: S311  the same each time
    for name, question in QUESTIONS.items():
        try:
            await check_candidates(store, question, everything)
        except AssertionError as wrong:
            raise AssertionError(f"asked for {name}: {wrong}") from wrong


@clause("candidates.found", "candidates.around")
@needs("filter", "tenant_wide", "conditional")
@pytest.mark.asyncio
async def test_a_whole_tenant_is_asked_as_its_scopes_are(store: Store) -> None:
    everything = await _fill(store, random.Random(5))  # noqa: S311
    await check_candidates(
        store, replace(_ASKED, where=Tenant("acme"), around=BESIDE, select=SELECT), everything
    )


@clause("candidates.measured", "candidates.statistics")
@needs("filter", "conditional")
@pytest.mark.asyncio
async def test_candidates_follow_every_write_at_once(store: Store) -> None:
    times = {1: 1, 2: 2, 3: 300}  # more than a byte counts
    said = [
        record(
            n,
            texts={"content": "lantern " * times[n]},
            vector=pack_vector([n, 1]),
            fields={"conversation_id": "c", "number": n},
        )
        for n in (1, 2, 3)
    ]
    asked = Candidates(
        SAMPLES,
        within(HERE),
        "lantern",
        pack_vector([1, 0]),
        1,
        around=BESIDE,
        counted=("lantern", "harbour"),
        select=SELECT,
    )
    await apply_all(store, *map(put, said))
    assert set((await check_candidates(store, asked, said)).ids) == {id_of(1), id_of(2), id_of(3)}
    said[2] = replace(
        said[2],
        version=2,
        texts={"content": "harbour"},
        vector=pack_vector([0, 5]),
        fields={"conversation_id": "c", "number": 9},
    )
    await apply_all(store, put(said[2], Newer()))
    assert id_of(3) not in (await check_candidates(store, asked, said)).ids
    await apply_all(
        store, put(record(4, texts={"content": "lantern"}, fields={"conversation_id": "c", "number": 3}))
    )
    assert id_of(4) in (await store.candidates(asked)).ids
    await apply_all(store, delete(2), Release(SAMPLES, key_of(4), 1, "long"))
    await check_candidates(store, asked, [said[0], said[2]])


@clause("candidates.found", "candidates.measured")
@needs("filter", "conditional")
@pytest.mark.asyncio
async def test_candidates_are_measured_by_the_vector_that_a_version_has_by_now(store: Store) -> None:
    """The vector may change in the same version, change dimensions, or be removed."""
    said = [
        record(n, texts={"content": "lantern"}, vector=pack_vector([n, 1]), fields={"conversation_id": "c"})
        for n in range(5)
    ]
    asked = replace(_ASKED, near=pack_vector([1, 0]), limit=2, counted=("lantern",), select=SELECT)
    await apply_all(store, *map(put, said))
    await check_candidates(store, asked, said)
    for number, vector in ((4, [-1.0, 0.0]), (3, [1.0, 0.0, 0.0]), (0, [1.0, 0.0]), (2, None)):
        said[number] = replace(
            said[number], vector=None if vector is None else pack_vector(vector), fields={"type": "anew"}
        )
        await apply_all(store, put(said[number], AtVersion(1, Role.HOME)))
        await check_candidates(store, asked, said)
        await check_candidates(
            store, replace(asked, near=pack_vector([1, 0, 0]), filter=Eq("type", "anew")), said
        )


@clause("candidates.found")
@needs("filter")
@pytest.mark.asyncio
async def test_candidates_bring_no_more_than_the_question_lets_through_however_many_match(
    store: Store, harness: Harness
) -> None:
    many = min(400, harness.depth.many)
    said = [
        record(
            n,
            texts={"content": "lantern"},
            fields={"type": "a" if n % 50 == 0 else "b"},
            vector=pack_vector([1, n / many]),
        )
        for n in range(many)
    ]
    await apply_all(store, *map(put, said))
    asked = replace(
        _ASKED, near=pack_vector([1, 0]), filter=Eq("type", "a"), limit=many, counted=("lantern",)
    )
    assert set((await check_candidates(store, asked, said)).ids) == {id_of(n) for n in range(0, many, 50)}


@clause("candidates.found", "candidates.around", "candidates.among", "candidates.statistics", since=2)
@pytest.mark.asyncio
async def test_named_ones_and_what_stands_beside_them_come_without_a_filter(store: Store) -> None:
    """A store without filters answers too: the question names ids and places."""
    said = [
        record(n, texts={"content": "lantern"}, fields={"conversation_id": f"c{n % 2}", "number": n // 2})
        for n in range(20)
    ]
    await apply_all(store, *map(put, said), put(record(7, ELSEWHERE, texts={"content": "lantern"})))
    asked = replace(
        _ASKED,
        text="",
        near=None,
        among=(id_of(4), id_of(5), id_of(99), id_of(7, ELSEWHERE)),
        counted=("lantern",),
    )
    assert set((await check_candidates(store, asked, said)).ids) == {id_of(4), id_of(5)}
    beside = await check_candidates(store, replace(asked, around=BESIDE, select=SELECT), said)
    assert set(beside.ids) == {id_of(n) for n in range(10)}
    assert beside.statistics.documents == 20


@clause("candidates.around")
@needs("filter")
@pytest.mark.asyncio
async def test_what_stands_at_either_end_has_neighbours_on_one_side_and_what_has_no_number_none(
    store: Store,
) -> None:
    ends = {1: -(2**63), 2: -(2**63) + 2, 3: 2**63 - 1, 4: 2**63 - 3, 5: 0}
    said = [record(n, fields={"conversation_id": "c", "number": number}) for n, number in ends.items()]
    await apply_all(
        store,
        *map(put, said),
        put(record(6, fields={"conversation_id": "c"})),
        put(record(7, fields={"number": 0})),
    )
    for named, beside in ((1, {1, 2}), (2, {1, 2}), (3, {3, 4}), (4, {3, 4}), (5, {5}), (6, {6}), (7, {7})):
        answer = await store.candidates(
            replace(_ASKED, text="", near=None, among=(id_of(named),), around=BESIDE)
        )
        assert set(answer.ids) == {id_of(n) for n in beside}


@clause("candidates.around")
@needs("filter")
@pytest.mark.asyncio
async def test_neighbours_of_many_in_many_groups_all_come(store: Store) -> None:
    said = [record(n, fields={"conversation_id": f"c{n // 2}", "number": 16 * (n % 2)}) for n in range(400)]
    await apply_all(store, *map(put, said))
    asked = replace(_ASKED, text="", near=None, among=tuple(id_of(n) for n in range(0, 400, 2)))
    assert len(await store.candidates(replace(asked, around=replace(BESIDE, reach=15)))) == 200
    assert len(await store.candidates(replace(asked, around=replace(BESIDE, reach=16)))) == 400


@clause("candidates.found", "candidates.among", "candidates.statistics")
@needs("filter")
@pytest.mark.asyncio
async def test_what_has_neither_texts_nor_vectors_is_named(store: Store) -> None:
    said = [record(n, fields={}, texts={}) for n in (1, 2, 3)]
    await apply_all(store, *[put(one, collection=PLAIN) for one in said])
    asked = Candidates(
        PLAIN,
        within(HERE),
        "lantern",
        pack_vector([1, 0]),
        5,
        among=(id_of(1), id_of(2)),
        counted=("lantern",),
    )
    answer = await store.candidates(asked)
    assert sorted(answer.ids) == [id_of(1), id_of(2)]
    assert (answer.lengths.tolist(), answer.counts.tolist()) == ([0, 0], [[0.0], [0.0]])
    assert answer.statistics == Statistics(3, 0, {"lantern": 0})


REFUSED = {
    "everywhere": replace(_ASKED, where=Everywhere()),
    "a limit of nought": replace(_ASKED, limit=0),
    "a field that is not declared": replace(_ASKED, select=frozenset({"colour"})),
    "words as a field": replace(_ASKED, select=frozenset({WORDS})),
    "the vector as a field": replace(_ASKED, select=frozenset({VECTOR})),
    "half a number for a vector": replace(_ASKED, near=b"123"),
    "an id that is none": replace(_ASKED, among=("no id",)),
    "less than no dimensions": replace(_ASKED, near=None, dimensions=-1),
    "a stem twice": replace(_ASKED, counted=("lantern", "lantern")),
    "a group that is no text": replace(_ASKED, around=Neighbourhood("number", "number", 1)),
    "a number that is none": replace(_ASKED, around=Neighbourhood("conversation_id", "type", 1)),
    "no reach": replace(_ASKED, around=Neighbourhood("conversation_id", "number", 0)),
    "too long a reach": replace(_ASKED, around=Neighbourhood("conversation_id", "number", 100)),
    "a value that its field cannot have": replace(_ASKED, filter=In("number", ("x",))),
}


@clause("candidates.found")
@needs("filter", "tenant_wide")
@pytest.mark.asyncio
@cells("question", list(REFUSED.values()), ids=list(REFUSED), shared=True)
async def test_a_question_that_cannot_be_asked_is_refused(store: Store, question: Candidates) -> None:
    with pytest.raises(InvalidInput):
        await store.candidates(question)
