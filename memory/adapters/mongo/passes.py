"""Passes: announced ahead, so that one put after the other in a partition needs one round trip each.

A pass is a text that at most one document of the collection may have: a unique index sees to that. Its write puts the pass into the document, and a
fence for it is a document that has it too. So a fence needs not know which key is going to be written, and a block of passes can be announced at
once: bigger ones the more of them are used.
"""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict

from memory.adapters.mongo.thresholds import Thresholds
from memory.ports.record import Partition

PASS = "pass"  # noqa: S105 - a field of documents
GOOD_FOR = 60.0
"""Seconds in which a pass may be used: far less than a fence stands."""

Place = tuple[Partition, str]
"""A partition, and the name of a collection in the database."""


class Block:
    """Passes announced together, by a token."""

    def __init__(self, place: Place, size: int) -> None:
        self.place, self.size = place, size
        self.token = secrets.token_hex(8)
        self.generation = 0
        """As the announcement tells it."""
        self.begun = _now()
        self.given = 0
        self.open = 0
        self.retired = False

    @property
    def over(self) -> bool:
        """Whether everything that was given has come back, and nothing more is given."""
        return self.open == 0 and (self.retired or self.given == self.size)

    @property
    def good(self) -> bool:
        return not self.retired and self.given < self.size and all(now - then <= GOOD_FOR for now, then in zip(_now(), self.begun, strict=True))

    def take(self) -> Pass:
        self.given += 1
        self.open += 1
        return Pass(self, pass_of(self.token, self.given - 1))


class Pass:
    """Lets one document in, under the generation its partition had when it was announced."""

    __slots__ = ("block", "text")

    def __init__(self, block: Block, text: str) -> None:
        self.block, self.text = block, text

    @property
    def generation(self) -> int:
        return self.block.generation


class Passes:
    """The newest block of each place. What this process no longer uses waits in `finished` to be taken back."""

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._blocks: OrderedDict[Place, Block] = OrderedDict()

    def take(self, place: Place) -> Pass | None:
        block = self._blocks.get(place)
        return block.take() if block is not None and block.good else None

    def block(self, place: Place) -> Block:
        """A new one, to be announced: twice as large as the last one where that was used up."""
        last = self._blocks.get(place)
        return Block(place, min(2 * last.size, self._thresholds.passes) if last is not None and last.given == last.size else 1)

    def announced(self, block: Block) -> list[Block]:
        """Use it from now on; the blocks that are over by that."""
        gone = [last] if (last := self._blocks.pop(block.place, None)) is not None else []
        self._blocks[block.place] = block
        if len(self._blocks) > self._thresholds.blocks:
            gone.append(self._blocks.popitem(last=False)[1])
        return _retired(gone)

    def forget(self, partition: Partition) -> list[Block]:
        """Its generation was raised: what was announced there before is of no use. Those of it that are over, in which nothing is under way."""
        return _retired([self._blocks.pop(place) for place in list(self._blocks) if place[0] == partition])


def pass_of(token: str, number: int) -> str:
    return f"{token}.{number}"


def _retired(blocks: list[Block]) -> list[Block]:
    """Those of them that were not over before, and are now."""
    before = [block for block in blocks if not block.over]
    for block in blocks:
        block.retired = True
    return [block for block in before if block.over]


def _now() -> tuple[float, float]:
    """By two clocks: one that nobody sets, and one that goes on while the machine sleeps."""
    return time.monotonic(), time.time()
