"""The note of the format: kept exactly, swapped in one step, and refused if newer.

The note is the lock of an upgrade. A store that loses it is upgraded twice, or opened
by a release that cannot read its data.
"""

from __future__ import annotations

import asyncio

import pytest

from memory.domain.errors import FormatMismatch
from memory.ports import formats
from memory.ports.base import BaseStore
from memory.ports.contract.capability_tests import needs
from memory.ports.contract.clauses import clause
from memory.ports.contract.collections import DECLARED
from memory.ports.contract.harness import Harness
from memory.ports.contract.support import apply_all, fetch_record, put, record
from memory.ports.formats import current_note
from memory.ports.store import Store

NOTES = ("1 to 2 5f0c2a1b 0", "1 to 2 5f0c2a1b 1", "1 to 2 0b1c2d3e 123456789", "1 to 2", "2")
"""The notes of an upgrade: it runs, is renewed, is taken over, is interrupted, ends."""
NEWER = "7"


def _store_with_note(store: Store) -> BaseStore | None:
    """Return the store if it keeps a note."""
    return store if isinstance(store, BaseStore) and store.notes_format else None


@clause("format.note")
@pytest.mark.asyncio
async def test_a_note_is_swapped_only_for_the_one_that_is_there(store: Store) -> None:
    if (noted := _store_with_note(store)) is None:
        return
    stands = current_note()
    assert await noted.read_format() == stands, "a new store has the note of its format"
    for note in (*NOTES, stands):
        for other in (None, "", f"{stands} ", f"0{stands}", note):
            assert not await noted.swap_format(other, "1 to 2 ffffffff 0"), other
        assert await noted.read_format() == stands
        assert await noted.swap_format(stands, note)
        assert await noted.read_format() == note
        stands = note


@clause("format.note")
@needs("shared")
@pytest.mark.asyncio
async def test_of_many_that_swap_a_note_at_once_one_does(harness: Harness, store: Store) -> None:
    if (noted := _store_with_note(store)) is None:
        return
    other = await harness.client(store)
    try:
        await other.open(DECLARED)
        clients = [one for one in (noted, _store_with_note(other)) if one is not None]
        for turn in range(5):
            stands = await noted.read_format()
            notes = [f"1 to 2 {n:08x} {turn}" for n in range(6)]
            swapped = await asyncio.gather(
                *[clients[n % len(clients)].swap_format(stands, note) for n, note in enumerate(notes)]
            )
            won = [note for note, did in zip(notes, swapped, strict=True) if did]
            assert len(won) == 1, won
            assert [await one.read_format() for one in clients] == won * len(clients)
        assert await noted.swap_format(won[0], current_note())
    finally:
        await other.close()


@clause("format.note")
@needs("durable")
@pytest.mark.asyncio
async def test_a_store_of_a_newer_format_is_refused_until_it_can_be_read(
    harness: Harness, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes in it, and the refused open can be repeated."""
    if (noted := _store_with_note(store)) is None:
        return
    await apply_all(store, put(record(1, body={"n": 1})))
    assert await noted.swap_format(current_note(), NEWER)
    again = await harness.reopen(store)
    try:
        for _ in range(2):
            with pytest.raises(FormatMismatch, match=f"format {NEWER}"):
                await again.open(DECLARED)
        monkeypatch.setattr(formats, "FORMAT", int(NEWER))
        await again.open(DECLARED)
        assert (noted := _store_with_note(again)) is not None
        assert await noted.read_format() == NEWER
        assert dict((await fetch_record(again, 1)).body) == {"n": 1}
        monkeypatch.undo()
        assert await noted.swap_format(NEWER, current_note())
    finally:
        await again.close()
