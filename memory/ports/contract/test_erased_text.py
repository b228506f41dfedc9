"""Erased text: not read or found after an erasing put, and in no file of the store."""

from __future__ import annotations

from mmap import ACCESS_READ, mmap
from pathlib import Path

import pytest

from memory.ports.contract.capability_tests import needs, needs_files
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import SAMPLES
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import (
    ELSEWHERE,
    HERE,
    apply_all,
    delete,
    hit_ids,
    id_of,
    key_of,
    put,
    record,
)
from memory.ports.query import Query, within
from memory.ports.record import Partition, PendingStep, Record
from memory.ports.store import Store
from memory.ports.writes import AtVersion, Newer, Put

WORD = "qzarbon"
"""A word that is its own stem, so that an index of words has the same."""
SAID = f"the {WORD} nests at dawn"


def _record_with_text(n: int, at: Partition = HERE) -> Record:
    """Return a record with the text in every place that can hold it."""
    fields = {"source": SAID, "tags": (SAID,), "seal": SAID.encode()}
    return record(
        n,
        at,
        fields=fields,
        body={"s": [SAID]},
        texts={"content": SAID, "title": SAID},
        owed=(PendingStep(SAID, SAID, {"said": SAID}),),
    )


@clause("put.erases", "lexical.follows")
@needs("conditional")
@pytest.mark.asyncio
async def test_nothing_of_what_an_erasing_put_replaced_is_read_or_found(store: Store) -> None:
    await apply_all(store, *[put(_record_with_text(n)) for n in (1, 2)])
    wrote = [
        record(1, version=2, texts={"content": "harbour"}, generation=0),
        record(2, version=2, generation=0),
    ]
    await apply_all(
        store,
        *[
            Put(SAMPLES, r, when, frozenset({SAID}), erases=True)
            for r, when in ((wrote[0], AtVersion(1)), (wrote[1], Newer()))
        ],
    )
    assert await store.get(SAMPLES, [key_of(1), key_of(2)]) == wrote
    if store.capabilities.lexical:
        assert (await hit_ids(store, WORD), await hit_ids(store, "harbour")) == (set(), {id_of(1)})


@clause("erase.files", "put.erases", "delete.nothing-said")
@needs_files
@needs("conditional")
@pytest.mark.asyncio
async def test_erased_text_is_in_no_file_after_a_vacuum(harness: Harness, store: Store) -> None:
    """The text was deleted, erased with its scope, or replaced by an erasing put."""
    await apply_all(
        store, *[put(_record_with_text(n)) for n in range(40)], put(_record_with_text(1, ELSEWHERE))
    )
    assert _files_with(WORD, harness, store), "the text must be in a file before, or this test proves nothing"
    await apply_all(
        store,
        *[Put(SAMPLES, record(n, version=2), Newer(), frozenset({SAID}), erases=True) for n in range(20)],
    )
    await apply_all(store, *[delete(n, settles=frozenset({SAID})) for n in range(20, 40)])
    assert await store.delete_matching(Query(SAMPLES, within(ELSEWHERE)), 100) == 1
    await store.vacuum()
    assert _files_with(WORD, harness, store) == []
    await store.close()
    assert _files_with(WORD, harness, store) == []


def _files_with(text: str, harness: Harness, store: Store) -> list[str]:
    """Return the names of the files that contain the text."""
    every = [
        file for place in harness.files(store) for file in (place.rglob("*") if place.is_dir() else [place])
    ]
    return [
        file.name for file in every if file.is_file() and file.stat().st_size and _holds(file, text.encode())
    ]


def _holds(file: Path, text: bytes) -> bool:
    """Search a file without reading it whole: some are mostly holes."""
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(text) >= 0
