"""What users of Haystack do beyond its suite."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ByteStream, Document, SparseEmbedding
from haystack.document_stores.errors import DocumentStoreError, DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.errors import FilterError
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

from memory import BlockingMemory, Memory
from tests.fitness.haystack.adapter import MemoryDocumentStore
from tests.fitness.haystack.documents import only_embeddings


@pytest.fixture
def store(config: dict[str, Any]) -> Iterator[MemoryDocumentStore]:
    with MemoryDocumentStore(config, "workspace:docs", dimensions=3) as made:
        yield made


WHOLE = Document(
    id="whole",
    content="  a text\n",
    blob=ByteStream(b"\x00\xff" * 1_000, meta={"name": "file"}, mime_type="image/png"),
    meta={"deep": {"list": [1, None, {"x": 0.1}]}, "confidence": "high", "none": None},
    score=0.25,
    embedding=[0.1, 1e-300, -3.0],
    sparse_embedding=SparseEmbedding([0, 7], [0.5, 1.5]),
)


def test_documents_come_back_equal(config: dict[str, Any]) -> None:
    """Also from a store that is made from its dict, and after reopening."""
    documents = [WHOLE, Document(id="empty", content=""), Document(id="none"), Document(content="x")]
    first = MemoryDocumentStore(config, "workspace:docs", dimensions=3)
    with first:
        first.write_documents(documents)
    with MemoryDocumentStore.from_dict(first.to_dict()) as second:
        assert second.filter_documents() == documents
        assert [one.content for one in second.filter_documents()] == ["  a text\n", "", None, "x"]


def test_a_pipeline_is_saved_and_loaded(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL with a password stays out of the file."""
    monkeypatch.setenv("DOCS_URL", f"sqlite:///{tmp_path / 'secret.db'}")
    pipeline = Pipeline()
    store = MemoryDocumentStore(Secret.from_env_var("DOCS_URL"), "workspace:docs")
    pipeline.add_component("writer", DocumentWriter(store))
    text = pipeline.dumps()
    assert "secret.db" not in text
    loaded = Pipeline.loads(text, allowed_modules=["tests.*"])
    loaded.run({"writer": {"documents": [Document(id="1", content="hello")]}})
    with store:
        assert [one.id for one in store.filter_documents()] == ["1"]
    loaded.get_component("writer").document_store.close()


def test_policies(store: MemoryDocumentStore) -> None:
    old, new, other = (
        Document(id=name, content=text) for name, text in [("1", "old"), ("1", "new"), ("2", "2")]
    )
    assert store.write_documents([old, new, other], DuplicatePolicy.SKIP) == 2
    assert store.filter_documents() == [old, other]
    assert store.write_documents([other, new], DuplicatePolicy.OVERWRITE) == 2
    assert store.filter_documents() == [new, other]
    third, fourth = Document(id="3"), Document(id="4")
    with pytest.raises(DuplicateDocumentError, match="'1' already exists"):
        store.write_documents([third, old, fourth], DuplicatePolicy.FAIL)
    assert store.filter_documents() == [new, other, third]
    assert store.write_documents([old, new], DuplicatePolicy.OVERWRITE) == 1
    assert store.filter_documents() == [new, other, third]
    store.delete_documents(["1", "1", "3"])
    assert store.write_documents([old]) == 1
    assert store.write_documents([]) == 0
    assert {one.id for one in store.filter_documents()} == {"1", "2"}


def test_many_documents(store: MemoryDocumentStore) -> None:
    documents = [
        Document(id=str(number), content=f"text {number}", meta={"n": number}) for number in range(1_050)
    ]
    assert store.write_documents(documents) == 1_050
    assert store.count_documents() == 1_050
    found = store.filter_documents({"field": "meta.n", "operator": ">=", "value": 1_000})
    assert [one.id for one in found] == [str(number) for number in range(1_000, 1_050)]
    assert store.delete_by_filter({"field": "meta.n", "operator": "<", "value": 1_049}) == 1_049
    store.delete_all_documents()
    assert store.count_documents() == 0


def test_documents_that_do_not_fit_are_refused(store: MemoryDocumentStore) -> None:
    good = Document(id="good", content="x")
    for wrong in (
        Document(content="x" * 70_000),
        Document(content="x", embedding=[1.0, 2.0]),
        Document(id="k" * 513, content="x"),
        Document(content="x", blob=ByteStream(b"\x00" * 70_000)),
    ):
        with pytest.raises(DocumentStoreError):
            store.write_documents([good, wrong])
    assert store.count_documents() == 0


def test_searches(store: MemoryDocumentStore) -> None:
    angles = {name: math.radians(angle) for name, angle in [("a", 0), ("b", 30), ("c", 100), ("d", 180)]}
    store.write_documents(
        [
            *(
                Document(
                    id=name, content=f"{name} " + "word " * n * 30, embedding=[math.cos(at), math.sin(at), 0]
                )
                for n, (name, at) in enumerate(angles.items())
            ),
            Document(id="plain", content="the sloop leaks", meta={"old": True}),
        ]
    )
    found = store.search_by_embedding([2.0, 0.0, 0.0])
    assert [one.id for one in found] == ["a", "b", "c", "d"]
    assert [one.score for one in found] == pytest.approx(
        [1, math.cos(angles["b"]), math.cos(angles["c"]), -1], abs=1e-5
    )
    only = {"field": "content", "operator": "!=", "value": found[0].content}
    assert [one.id for one in store.search_by_embedding([2.0, 0.0, 0.0], filters=only, top_k=1)] == ["b"]
    (sloop,) = store.search_by_words("sloops")
    assert sloop.id == "plain"
    assert sloop.score is not None
    assert 0 < sloop.score <= 1
    assert (
        store.search_by_words("sloop", filters={"field": "meta.old", "operator": "==", "value": False}) == []
    )
    assert store.search_by_words(" ") == []


def test_stores_of_one_memory_never_mix(config: dict[str, Any]) -> None:
    """Scopes and tenants; also where a store allows one opener only."""
    memory = Memory(config, loop="own", embedder=only_embeddings(3))
    with BlockingMemory(memory):
        store = MemoryDocumentStore(memory, "workspace:docs")
        store.write_documents([Document(id="1", content="mine", embedding=[1.0, 0.0, 0.0])])
        for scope, tenant in (("workspace:other", None), ("workspace:docs", "globex")):
            with MemoryDocumentStore(memory, scope, tenant=tenant) as other:
                assert other.filter_documents() == []
                other.delete_documents(["1"])
                other.delete_all_documents()
        assert store.count_documents() == 1
        with pytest.raises(ValueError, match="cannot be saved"):
            store.to_dict()
        with pytest.raises(ValueError, match="dimensions"):
            MemoryDocumentStore(memory, "workspace:docs", dimensions=3)


def test_writers_store_each_document_once(config: dict[str, Any]) -> None:
    """Threads of two processes, or of one where a store allows one opener only."""
    first = MemoryDocumentStore(config, "workspace:docs", dimensions=3)
    second = first if "edge" in str(config) else MemoryDocumentStore(config, "workspace:docs", dimensions=3)

    def write(caller: int) -> int:
        mine = [Document(id=str(number), content=f"by {caller}") for number in range(10)]
        return (first, second)[caller % 2].write_documents(mine, DuplicatePolicy.SKIP)

    with first, second, ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(write, range(6))) == 10
        assert first.count_documents() == 10


VALUES: list[Any] = [0, 1, -2, 2.5, "a", "B", "", None, "2024-01-01", "2024-01-01T12:00:00", [1], {"x": 1}]
FIELDS = ["meta.n", "meta.deep.n", "meta.missing", "n"]
DRAWN = 150


def draw(chance: random.Random, depth: int = 0) -> dict[str, Any]:
    if depth < 3 and chance.random() < 0.35:
        parts = [draw(chance, depth + 1) for _ in range(chance.randint(1, 3))]
        return {"operator": chance.choice(["AND", "OR", "NOT"]), "conditions": parts}
    operator = chance.choice(["==", "!=", ">", ">=", "<", "<=", "in", "not in"])
    value = chance.choice(VALUES) if "in" not in operator else chance.sample(VALUES, chance.randint(1, 4))
    return {"field": chance.choice(FIELDS), "operator": operator, "value": value}


def test_drawn_filters_agree_with_haystack(store: MemoryDocumentStore) -> None:
    """Where Haystack's own evaluation has an answer for every document, it is ours."""
    chance = random.Random(17)  # noqa: S311
    documents = [
        Document(id=str(at), meta={"n": value, "deep": {"n": chance.choice(VALUES)}})
        for at, value in enumerate(VALUES)
    ]
    documents.append(Document(id="without", meta={}))
    store.write_documents(documents)
    compared = 0
    for _ in range(DRAWN):
        given = draw(chance)
        try:
            expected = [one.id for one in documents if document_matches_filter(given, one)]
        except (FilterError, TypeError):
            continue  # a comparison that has no meaning for one of the documents
        try:
            found = [one.id for one in store.filter_documents(given)]
        except FilterError:
            continue  # it is refused before any document is looked at
        compared += 1
        assert found == expected, given
    assert compared > DRAWN / 4
