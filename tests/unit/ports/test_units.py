"""Unit vectors: after any history of adding, replacing and dropping they are those that
stand, at the places where they stand.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

from memory.ports.record import pack_vector
from memory.ports.unit_vectors import UnitVectors
from memory.ports.vector_scan import exact_cosines


def _drawn(chance: random.Random) -> bytes:
    return pack_vector([chance.uniform(-1, 1) for _ in range(4)])


@pytest.mark.parametrize("block", [4, 12, 8192])
def test_each_place_has_the_vector_that_stands_there(block: int) -> None:
    chance, units, stand = random.Random(7), UnitVectors(4, block), list[bytes]()  # noqa: S311 - repeatable, not secret
    for _ in range(600):
        what = chance.choice(("add", "add", "put", "drop"))
        if what == "add":
            new = [_drawn(chance) for _ in range(chance.randrange(4))]
            units.add(new)
            stand += new
        elif stand and what == "put":
            place = chance.randrange(len(stand))
            stand[place] = _drawn(chance)
            units.put(place, stand[place])
        elif stand:
            place = chance.randrange(len(stand))
            stand[place] = stand[-1]
            stand.pop()
            units.drop(place)
        assert len(units) == len(stand)
        if chance.random() < 0.2:
            near = _drawn(chance)
            assert units.cosines(near).tolist() == pytest.approx(
                exact_cosines(near, stand) if stand else [], abs=1e-6
            )
    assert len(stand) > 50
    again = UnitVectors(4)
    again.add(stand)
    assert np.array_equal(units.rows, again.rows)
    assert units.size >= 16 * len(stand)


def test_a_great_many_come_at_once() -> None:
    chance, units = random.Random(3), UnitVectors(4)  # noqa: S311
    many = [_drawn(chance) for _ in range(5_000)]
    units.add(many)
    assert units.cosines(many[-1])[-1] == pytest.approx(1.0, abs=1e-6)
    assert units.cosines(many[0])[0] == pytest.approx(1.0, abs=1e-6)
