"""An in-memory index of one partition that answers `Candidates`.

It holds postings of words, lengths, vectors, and the values that filters need.

A process keeps this index for a store that has none, and updates it record by record
(`put`, `drop`). A replaced or removed record leaves its place empty, because
postings and vectors only grow. Once the index `is_worn`, it is better to rebuild it.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from memory.ports import lexical
from memory.ports.candidate_scan import Place
from memory.ports.candidates import Neighbourhood
from memory.ports.collections import Collection
from memory.ports.query_evaluation import value_of
from memory.ports.record import PendingStep, Record, Role
from memory.ports.unit_vectors import UnitVectors

if TYPE_CHECKING:
    from memory.ports.candidates import Floats, Ints, Scores

Mask: TypeAlias = npt.NDArray[np.bool_]

_CODES = {role: code for code, role in enumerate(Role)}
_GONE = len(_CODES)
_OWES = (PendingStep("", ""),)
_FORM_BYTES, _RECORD_BYTES, _WORD_BYTES, _POSTING_BYTES = 2_000, 1_400, 200, 20
"""The approximate bytes of one record in memory."""


class PartitionIndex:
    """The records of one partition.

    No method awaits, so the index never changes in the middle of a question.
    """

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.records: list[Record | None] = []
        """The records by place, without bodies, texts, vectors and pending steps.

        A place of the index is a position in this list. None marks an empty place.
        """
        self.vectors: list[bytes | None] = []
        self.bytes = _FORM_BYTES
        """The approximate bytes of the whole index in memory."""
        self._places: dict[str, int] = {}
        self._roles, self._lengths = array("b"), array("q")
        self._words: dict[str, array[int]] = {}
        self._compared: dict[int, _Vectors] = {}
        self._beside: dict[tuple[str, str], dict[Place, list[int]]] = {}

    def __len__(self) -> int:
        """Return the number of places, including empty ones."""
        return len(self.records)

    @property
    def is_worn(self) -> bool:
        """Whether more records have left the index than it holds."""
        return len(self.records) > 2 * len(self._places) + 64

    # -- changing ----------------------------------------------------------------------

    def put(self, record: Record, words: bytes | None) -> None:
        """Add the record, in place of an earlier one with its id.

        `words` are its packed words; None for a collection without texts.
        """
        self.drop(record.key.id)
        place = len(self.records)
        kept = replace(record, body={}, texts={}, vector=None, owed=_OWES if record.owed else ())
        self._places[record.key.id] = place
        self.records.append(kept)
        self.vectors.append(record.vector)
        self._roles.append(_CODES[record.role])
        self._lengths.append(0 if words is None else lexical.length(words))
        self.bytes += _RECORD_BYTES + sum(
            [len(v) for v in record.fields.values() if isinstance(v, str | bytes | tuple)]
        )
        for token, numbers in lexical.packed_counts(words or lexical.NO_WORDS).items():
            postings = self._words.get(token)
            if postings is None:
                postings = self._words[token] = array("q")
                self.bytes += _WORD_BYTES
            postings.append(place)
            postings.append(numbers)
            self.bytes += _POSTING_BYTES
        if record.vector:
            dimensions = len(record.vector) // 4
            if (compared := self._compared.get(dimensions)) is None:
                compared = self._compared[dimensions] = _Vectors(array("q"), UnitVectors(dimensions))
            compared.places.append(place)
            compared.units.add([record.vector])
            self.bytes += 5 * len(record.vector) // 2
        for (group, number), places in self._beside.items():
            _list(places, kept, group, number, place)

    def drop(self, record_id: str) -> None:
        """Remove the record with this id, if there is one."""
        place = self._places.pop(record_id, None)
        if place is not None:
            self.records[place] = self.vectors[place] = None
            self._roles[place] = _GONE

    # -- asking ------------------------------------------------------------------------

    def place_of(self, record_id: str) -> int | None:
        return self._places.get(record_id)

    def role_mask(self, roles: frozenset[Role]) -> Mask:
        """Return for each place whether it holds a record of these roles."""
        wanted = np.zeros(_GONE + 1, np.bool_)
        wanted[[_CODES[role] for role in roles]] = True
        return wanted[np.array(self._roles, np.int8)]

    def lengths(self) -> Ints:
        """Return the number of words at each place, of its current or former record."""
        return np.array(self._lengths, np.int64)

    def postings(self, stem: str) -> tuple[Ints, Scores]:
        """Return the stem's places, and its counts summed under the parts' weights.

        Places whose record has left are included.
        """
        postings = self._words.get(lexical.token(stem))
        if postings is None:
            return np.empty(0, np.int64), np.empty(0)
        pairs = np.array(postings, np.int64).reshape(-1, 2)
        return pairs[:, 0], lexical.weighted_sum(self.collection, pairs[:, 1])

    def cosines(self, near: bytes) -> tuple[Ints, Floats]:
        """Return the places with a vector of these dimensions, and their cosines.

        The cosines are in single precision. Places whose record has left are included.
        """
        compared = self._compared.get(len(near) // 4)
        if compared is None:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return np.array(compared.places, np.int64), compared.units.cosines(near)

    def beside(self, around: Neighbourhood) -> Mapping[Place, list[int]]:
        """Return, for each place in a group, the positions of its records in `records`.

        A place in a group is a scope, a group and a number (`Place`). Positions whose
        record has left the index are included.
        """
        by = (around.group, around.number)
        if by not in self._beside:
            self._beside[by] = {}
            for place, record in enumerate(self.records):
                if record is not None:
                    _list(self._beside[by], record, *by, place)
        return self._beside[by]

    def content(self) -> dict[str, Any]:
        """Return everything that the index holds, by id.

        Two indexes of the same records return the same, independent of their history.
        """
        said: dict[str, Any] = {}
        for record_id, place in self._places.items():
            said[record_id] = [
                self.records[place],
                self.vectors[place],
                self._roles[place],
                self._lengths[place],
                {},
                [],
            ]
        for token, postings in self._words.items():
            for place, numbers in zip(postings[::2], postings[1::2], strict=True):
                if (record := self.records[place]) is not None:
                    said[record.key.id][4][token] = numbers
        for places, units in self._compared.values():
            for place, unit in zip(places, units.rows, strict=True):
                if (record := self.records[place]) is not None:
                    said[record.key.id][5].append(unit.tobytes())
        return said


class _Vectors(NamedTuple):
    """The vectors of one dimension, and the places of their records."""

    places: array[int]
    units: UnitVectors


def stands_at(record: Record, group: str, number: str) -> Place | None:
    """Return the record's scope, group and number, or None if it has no group."""
    of, at = value_of(record, group), value_of(record, number)
    return (record.scope, of, at) if isinstance(of, str) and isinstance(at, int) else None


def _list(places: dict[Place, list[int]], record: Record, group: str, number: str, place: int) -> None:
    stands = stands_at(record, group, number)
    if stands is not None:
        places.setdefault(stands, []).append(place)
