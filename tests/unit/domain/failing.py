"""What a process of a pool calls: apart, so that it imports the errors and no more."""

from __future__ import annotations

from memory.domain.errors import CompactionError, InvalidInput, NotFound, StoreFull


def fail(number: int) -> None:
    raise (
        InvalidInput("tags", "bad"),
        NotFound("e1"),
        CompactionError(["e1"], "no"),
        StoreFull("main", "no room"),
    )[number]
