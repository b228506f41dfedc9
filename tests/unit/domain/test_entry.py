"""An entry as it is made of what a store holds is one like any other."""

from __future__ import annotations

import copy
import pickle
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from memory import Entry, EntryType, Scope
from memory.domain.conflicts import ConflictReport
from memory.domain.entry import EntryDraft
from memory.orchestrator.storage.entry_records import entry_of, record_of
from memory.ports.record import Key

AT = datetime(2026, 11, 25, tzinfo=UTC)
VALUES: dict[str, Any] = {
    **dict.fromkeys(Entry.model_fields),
    "id": "01a214fc-efb8-8b51-9fa2-33db16d04d6f",
    "tenant": "acme",
    "scope": Scope.user("ada"),
    "type": EntryType.CONTEXT,
    "content": "tea",
    "tags": ["drink"],
    "metadata": {"n": 1},
    "searchable": True,
    **dict.fromkeys(("created_at", "updated_at", "valid_from"), AT),
    "version": "0000000000005",
    "tier": "mid",
}


def test_an_entry_as_stored_is_the_one_that_is_constructed_or_checked() -> None:
    made = Entry.as_stored({**VALUES})
    for other in (Entry.model_construct(**VALUES), Entry(**VALUES)):
        assert made == other
        assert repr(made) == repr(other)
        assert made.to_dict() == other.to_dict()
        assert made.model_fields_set == other.model_fields_set == set(Entry.model_fields)


def test_an_entry_as_stored_is_copied_pickled_and_changed_as_any() -> None:
    made = Entry.as_stored({**VALUES})
    for other in (
        made.model_copy(),
        copy.deepcopy(made),
        pickle.loads(pickle.dumps(made)),  # noqa: S301
        Entry.model_validate(made.model_dump()),
    ):
        assert other == made
        other.content = "coffee"
        assert (made.content, other.content) == ("tea", "coffee")
    with pytest.raises((ValueError, ValidationError)):
        made.colour = "red"  # type: ignore[attr-defined]
    told = made.with_conflict_report(ConflictReport(note="near"))
    assert (told.conflict_report, made.conflict_report) == (ConflictReport(note="near"), None)


def test_what_is_made_of_a_record_says_every_field() -> None:
    record = record_of(
        EntryDraft(scope=Scope.user("ada"), content="tea"),
        key=Key("acme", VALUES["id"]),
        version=5,
        now=AT,
        tier="mid",
        sequence=1,
    )
    assert vars(entry_of(record)).keys() == Entry.model_fields.keys()
