"""A memory on one file; at night, on each ordinary mixture of stores too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from tests.support import depth
from tests.support.backends import marks_of, run_here
from tests.support.placings import PLACINGS, forget

PLACES = [
    pytest.param(lambda folder: f"sqlite:///{folder / 'one.db'}", id="one-file"),
    *(
        pytest.param(
            placing.config, id=placing.name, marks=[*marks_of(*placing.backends), pytest.mark.nightly]
        )
        for placing in PLACINGS
        if depth.NIGHTLY and run_here(*placing.backends)
    ),
]


@pytest.fixture(params=PLACES)
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memory]:
    place: Any = request.param(tmp_path)
    async with Memory(place, embedder="none") as opened:
        yield opened
    forget(tmp_path)
