"""A page of 100 scopes with counts, of 10,000 under a path."""

from __future__ import annotations

from pathlib import Path

from bench.measure import Figure, side_by_side
from bench.placed import on_each, opened
from bench.texts import sentences
from memory import Scope
from tests.support.placings import ORDINARY, Placing

NAMES = ("default", "postgres-only", "redis-postgres-edge", "mongo-only")
HELD, AT_ONCE, LISTED, CALLS = 10_000, 500, 100, 20
USERS = Scope.path("app", "users")


async def scopes(folder: Path, rounds: int) -> list[Figure]:
    named = (p for name in NAMES for p in ORDINARY if p.name == name)
    return await on_each(named, folder, "scopes", lambda placing, place: _on(placing, place))


async def _on(placing: Placing, folder: Path) -> list[Figure]:
    contents = sentences(HELD, seed=22)
    async with opened(placing.config(folder), "none") as memory:
        paths = [Scope.path("app", "users", f"{number:05}") for number in range(HELD)]
        drafts = [{"content": text, "scope": path} for text, path in zip(contents, paths, strict=True)]
        for start in range(0, HELD, AT_ONCE):
            await memory.write_many(drafts[start : start + AT_ONCE])
        await memory.admin.flush()
        cursors: list[str | None] = [None]

        async def page(number: int) -> None:
            found = await memory.scopes.list(USERS, limit=LISTED, cursor=cursors[-1])
            if len(found.scopes) != LISTED:
                raise ValueError(f"a page of {len(found.scopes)} scopes")
            cursors.append(found.cursor)

        await side_by_side(3, page)
        (took,) = await side_by_side(CALLS, page)
    return [Figure(f"{placing.name}: list {LISTED} of {HELD:,} scopes", took * 1000, "ms", target=10.0)]
