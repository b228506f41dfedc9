"""Vectors of one dimension, normalised to length 1, for comparing all at once.

A process keeps them to search by meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from memory.ports.candidates import Floats

BLOCK = 8192
"""The most numbers that are multiplied at once.

OpenBLAS considers threads from 9,216 numbers on. On a busy machine these threads wait
for each other.
"""
_TOGETHER = 4096
"""The vectors that are normalised at once.

That is done in double precision, which takes three times their memory.
"""


class UnitVectors:
    """Vectors at places from 0.

    Dropping one moves the last vector to its place. Adding one is cheap.
    """

    def __init__(self, dimensions: int, block: int = BLOCK) -> None:
        self._block = max(1, block // dimensions)
        self._rows: Floats = np.zeros((0, dimensions), np.float32)
        self._count = 0
        self._new: list[bytes] = []

    def __len__(self) -> int:
        return self._count + len(self._new)

    @property
    def size(self) -> int:
        """The bytes of memory that the vectors take."""
        return self._rows.nbytes + sum(map(len, self._new))

    @property
    def rows(self) -> Floats:
        """The vectors by place."""
        self._take_in()
        return self._rows[: self._count]

    def add(self, packed: Sequence[bytes]) -> None:
        """Add vectors behind the last place."""
        self._new += packed

    def put(self, place: int, packed: bytes) -> None:
        """Replace the vector at this place."""
        self.rows[place] = _of_norm_1([packed])

    def drop(self, place: int) -> None:
        rows = self.rows
        rows[place] = rows[-1]
        self._count -= 1

    def cosines(self, near: bytes) -> Floats:
        """Return the cosine of each vector to this one, in single precision."""
        self._take_in()
        (unit,) = _of_norm_1([near])
        blocks = -(-self._count // self._block)
        # OpenBLAS may report lanes that it does not use (numpy/numpy#24067).
        with np.errstate(invalid="ignore"):
            products: Floats = np.matmul(
                self._rows[: blocks * self._block].reshape(blocks, self._block, len(unit)), unit
            ).reshape(-1)
        return products[: self._count]

    def _take_in(self) -> None:
        """Normalise the vectors that were added since the last question."""
        if not self._new:
            return
        count = len(self)
        if count > len(self._rows):
            room = -(-max(count, len(self._rows) * 3 // 2) // self._block) * self._block
            grown = np.zeros((room, self._rows.shape[1]), np.float32)
            grown[: self._count] = self._rows[: self._count]
            self._rows = grown
        for start in range(0, len(self._new), _TOGETHER):
            units = _of_norm_1(self._new[start : start + _TOGETHER])
            self._rows[self._count : self._count + len(units)] = units
            self._count += len(units)
        self._new = []


def _of_norm_1(packed: Sequence[bytes]) -> Floats:
    vectors = np.frombuffer(b"".join(packed), "<f4").reshape(len(packed), -1)
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
    units: Floats = (vectors / lengths[:, None]).astype(np.float32)
    return units
