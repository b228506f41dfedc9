"""Whatever was acknowledged is read by whoever begins to read after that, in whatever
order the calls of several processes reach the store: on the engine itself, in many
drawn orders. A mutation in what this rests on is found the same way.
"""

from __future__ import annotations

import pytest

from memory.orchestrator.conversations.log import log
from tests.support import noticed
from tests.support.depth import drawn
from tests.support.mutations import Mutation
from tests.unit.orchestrator.conversations.interleaved import Scene

ORDERS = 500

MUTATIONS = {
    "an edit is not told": Mutation(log, "Log._put_over", "await self.tell_edit(new)", "pass"),
    "an edit is told and nobody forgets what was said before": Mutation(
        log, "LogSnapshot.take", "self._forget(event)", "pass"
    ),
    "what came since is not asked for": Mutation(log, "Log._refresh", "rows[ahead[0]] is not None", "False"),
    "an event is put over another's": Mutation(
        log, "Log._put", "Absent()", '__import__("memory.ports.writes", fromlist=["Newer"]).Newer()'
    ),
    "another's event is taken for one's own": Mutation(
        log, "Log._is_ours", "there is not None and there.draft.nonce == event.draft.nonce", "True"
    ),
}


async def test_what_was_acknowledged_is_seen_by_whoever_reads_after_that() -> None:
    for seed in range(drawn(ORDERS, 20, proof=3_000)):
        assert await Scene(str(seed)).played() == [], f"in order {seed}"


@pytest.mark.parametrize("name", noticed.cases("acknowledged/", MUTATIONS))
def test_a_mutation_shows(name: str) -> None:
    assert MUTATIONS[name].seen_in(lambda seed: Scene(str(seed)).played(), ORDERS, f"acknowledged/{name}"), (
        noticed.RENEW
    )
