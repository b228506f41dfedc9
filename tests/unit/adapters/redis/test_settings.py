"""What a server's settings mean for what it acknowledged."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.adapters.redis.settings import Durability, safety_of, weakest
from memory.ports.contract.cells import cells

SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "save": "",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
}
EVERY_SECOND = {**SAFE, "appendfsync": "everysec"}
TWO_SECONDS = timedelta(seconds=2)

# settings -> (durable, loss window, what the advice names)
MEANINGS: dict[str, tuple[dict[str, str], bool, timedelta | None, str]] = {
    "every write on disk": (SAFE, True, None, ""),
    "a policy without a limit evicts nothing": ({**SAFE, "maxmemory-policy": "allkeys-lru"}, True, None, ""),
    "a limit that refuses": ({**SAFE, "maxmemory": "1000"}, True, None, ""),
    "a limit that evicts": (
        {**SAFE, "maxmemory": "1000", "maxmemory-policy": "allkeys-lru"},
        False,
        None,
        "noeviction",
    ),
    "also of what expires": (
        {**SAFE, "maxmemory": "1000", "maxmemory-policy": "volatile-ttl"},
        False,
        None,
        "noeviction",
    ),
    "every second": (EVERY_SECOND, False, TWO_SECONDS, "appendfsync always"),
    "every second and evicting": (
        {**EVERY_SECOND, "maxmemory": "1", "maxmemory-policy": "allkeys-lru"},
        False,
        None,
        "noeviction",
    ),
    "when the system likes": ({**SAFE, "appendfsync": "no"}, False, None, "appendfsync always"),
    "snapshots alone": ({**SAFE, "appendonly": "no", "save": "3600 1"}, False, None, "appendonly yes"),
    "nothing known": ({}, False, None, "CONFIG is refused"),
}


@cells("why", MEANINGS, shared=True)
def test_settings_decide_what_survives(why: str) -> None:
    settings, durable, window, advice = MEANINGS[why]
    safety = safety_of(settings, fails_over=False)
    assert (safety.durable, safety.loss_window) == (durable, window)
    assert advice in " ".join(safety.advice)
    assert bool(safety.advice) is not durable


@pytest.mark.parametrize("settings", [SAFE, EVERY_SECOND])
def test_a_replica_that_may_take_over_lacks_the_last_writes(settings: dict[str, str]) -> None:
    safety = safety_of(settings, fails_over=True)
    assert (safety.durable, safety.loss_window) == (False, None)


def test_a_cluster_is_as_safe_as_its_least_safe_node() -> None:
    safe, second, none = (safety_of(s, fails_over=False) for s in (SAFE, EVERY_SECOND, {}))
    assert weakest([safe, safe]).durable
    assert (weakest([safe, second]).durable, weakest([safe, second]).loss_window) == (False, TWO_SECONDS)
    assert weakest([second, none]) == Durability(False, None, (*second.advice, *none.advice), second.facts)
