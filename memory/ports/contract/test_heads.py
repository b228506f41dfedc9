"""Heads: they carry exactly the values of `select`, in any layout of the store."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from memory.domain.errors import InvalidInput
from memory.ports import lexical
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import MORE_SAMPLES, PLAIN, SAMPLES
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    T0,
    apply_all,
    everything_of,
    fetch_record,
    put,
    record,
    selections,
    ways,
)
from memory.ports.full_scan import scan
from memory.ports.heads import head_of
from memory.ports.query import (
    VECTOR,
    WORDS,
    Eq,
    Everywhere,
    Order,
    Query,
    RowType,
    Search,
    Tenant,
    Where,
    within,
)
from memory.ports.record import PendingStep, Record, Role, pack_vector
from memory.ports.store import Store


def _sample_records(*, vectors: bool) -> list[Record]:
    """Return records with every field of every kind, with a value and without."""
    at = T0 + timedelta(microseconds=7)
    full = {
        "type": "fact \x00 é \U0001f600",
        "tags": ("a", "b\x00"),
        "source": "",
        "confidence": 0.1 + 0.2,
        "conversation_id": "c1",
        "valid_from": at,
        "valid_to": T0,
    }
    texts = {
        "title": "Lantern lanterns",
        "content": "a lantern \x00 été 東京 " + "x" * 300,
        "tags": "red",
        "source": "y" * 129,
    }
    vector = pack_vector([1.0, 0.5]) if vectors else None
    return [
        record(
            1,
            fields=full,
            texts=texts,
            vector=vector,
            tier="mid",
            expires_at=at,
            accesses=3,
            accessed_at=at,
            owed=(PendingStep("x", "x"),),
            version=2**53 + 1,
        ),
        record(2, fields={"tags": (), "confidence": 1}, generation=0, body={"k": [1]}),
        record(3, fields={"type": "fact"}, texts={"content": "lantern"}, vector=vector, previous=1),
        record(4, ELSEWHERE, fields={"type": "b"}, texts={"title": ""}),
    ]


@clause("heads.exact", "heads.pages")
@pytest.mark.asyncio
async def test_heads_of_a_query_carry_exactly_what_is_named(store: Store) -> None:
    made = _sample_records(vectors=store.capabilities.semantic)
    await apply_all(store, *[put(r) for r in made])
    stored = [await fetch_record(store, n) for n in (1, 2, 3)]
    for select in selections(SAMPLES):
        page = await store.query(Query(SAMPLES, within(HERE), select=select))
        assert (page.records, page.cursor, page.corrupt) == ((), None, ())
        assert list(page.heads) == [head_of(SAMPLES, r, select) for r in stored], sorted(select)
    assert (await store.query(Query(SAMPLES, within(HERE)))).heads == ()


@clause("heads.exact")
@pytest.mark.asyncio
async def test_the_words_of_a_head_are_those_of_its_texts(store: Store) -> None:
    """They are counted as in `memory.ports.lexical`, also without texts."""
    made = _sample_records(vectors=False)
    await apply_all(store, *[put(r) for r in made], put(record(1), collection=PLAIN))
    page = await store.query(Query(SAMPLES, within(HERE), select=frozenset({WORDS})))
    assert [h.words for h in page.heads] == [lexical.index(SAMPLES, r.texts) for r in made[:3]]
    long = lexical.counts(
        SAMPLES, page.heads[0].words or b"", ["lantern", "x" * 300, "y" * 129, "missing", "東"]
    )
    assert long == {"lantern": 2 * 10.0 + 4.0, "x" * 300: 4.0, "y" * 129: 2.0, "東": 4.0}
    assert [lexical.length(h.words or b"") for h in page.heads] == [11, 0, 1]
    links = await store.query(Query(PLAIN, within(HERE), select=frozenset({WORDS, VECTOR})))
    assert [(h.words, h.vector) for h in links.heads] == [(lexical.index(PLAIN, {}), None)]


@clause("heads.pages")
@pytest.mark.asyncio
async def test_pages_of_heads_are_the_pages_of_the_records(store: Store) -> None:
    """That holds even if heads do not carry the fields of the order."""
    tiers = ("", "short", "mid")
    rows = [
        record(n, fields={"type": "ab"[n % 2]} if n % 3 else {}, tier=tiers[n % 3], role=list(Role)[n % 2])
        for n in range(17)
    ]
    await apply_all(store, *[put(r) for r in rows])
    orders: list[tuple[Order, ...]] = [()]
    if store.capabilities.order:
        orders += [
            (Order("created_at", True),),
            (Order("type"), Order("tier", True)),
            (Order("type", True),),
            (Order("version"),),
        ]
    wheres: list[Where] = [within(HERE)]
    wheres += [Tenant(HERE.tenant), Everywhere()] if store.capabilities.tenant_wide else []
    for where in wheres:
        for order in orders:
            for select in (frozenset[str](), frozenset({"type"}), everything_of(SAMPLES)):
                query = Query(SAMPLES, where, order=order)
                whole = [page async for page in scan(store, query, 5)]
                pages = [page async for page in scan(store, replace(query, select=select), 5)]
                expected = [
                    [head_of(SAMPLES, r, select) for r in page.records if isinstance(r, Record)]
                    for page in whole
                ]
                assert [list(page.heads) for page in pages] == expected, (where, order)
                assert [page.cursor for page in pages] == [page.cursor for page in whole]
    if store.capabilities.filter:
        page = await store.query(Query(SAMPLES, within(HERE), Eq("type", "b"), select=frozenset({"tier"})))
        assert [(h.key, dict(h.fields)) for h in page.heads] == [
            (r.key, {"tier": r.tier}) for r in rows if r.fields.get("type") == "b" and r.role is Role.HOME
        ]


@clause("heads.exact")
@needs("conditional")
@pytest.mark.asyncio
async def test_heads_of_every_collection_are_read(store: Store) -> None:
    await apply_all(
        store,
        put(
            record(1, fields={"entry_id": "e", "stored_version": 2**63 - 1, "type": "x"}),
            collection=MORE_SAMPLES,
        ),
    )
    select = everything_of(MORE_SAMPLES)
    page = await store.query(Query(MORE_SAMPLES, within(HERE), select=select))
    assert list(page.heads) == [
        head_of(MORE_SAMPLES, await fetch_record(store, 1, collection=MORE_SAMPLES), select)
    ]


@clause("refused.questions")
@pytest.mark.asyncio
async def test_unknown_names_are_not_selected(store: Store) -> None:
    for select, name in (
        ({"colour"}, "colour"),
        ({"type", "body"}, "body"),
        ({"#texts"}, "#texts"),
        ({"words"}, "words"),
        ({5}, "select"),
    ):
        with pytest.raises(InvalidInput, match=name):
            await store.query(Query(SAMPLES, within(HERE), select=frozenset(select)))  # type: ignore[arg-type]
        for by in ways(store, "lantern", 1.0):
            with pytest.raises(InvalidInput, match=name):
                await store.search(Search(SAMPLES, within(HERE), by, 5, select=frozenset(select)))  # type: ignore[arg-type]
    if store.capabilities.tenant_wide:
        with pytest.raises(InvalidInput, match="select"):
            await store.query(
                Query(SAMPLES, Everywhere(), types=frozenset({RowType.TOMBSTONE}), select=frozenset())
            )
