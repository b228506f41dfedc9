"""Derives from a server's settings how safely it stores acknowledged writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from memory.ports.record import JsonValue

READ = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "min-replicas-to-write")
"""Settings that decide durability."""

EVERY_SECOND = timedelta(seconds=2)
"""Possible loss with `appendfsync everysec`.

The server syncs once a second, and a slow disk may delay that by another second.
"""


@dataclass(frozen=True, slots=True)
class Durability:
    """Durability of a server.

    `advice` says which settings to change if acknowledged writes may be lost.
    """

    durable: bool
    loss_window: timedelta | None
    advice: tuple[str, ...]
    facts: dict[str, JsonValue]


def safety_of(settings: dict[str, str], *, fails_over: bool) -> Durability:
    """Evaluate the settings of one server; they are empty if it refuses them."""
    facts: dict[str, JsonValue] = {name: settings[name] for name in READ if name in settings}
    if not facts:
        return Durability(
            False,
            None,
            (
                (
                    "its settings cannot be read (CONFIG is refused), so it is unknown whether acknowledged"
                    " writes are durable"
                ),
            ),
            {},
        )
    advice = []
    journal = settings.get("appendonly") == "yes"
    sync = settings.get("appendfsync", "")
    evicts = settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy", "") != "noeviction"
    if evicts:
        policy = settings.get("maxmemory-policy", "")
        advice.append(
            f"maxmemory-policy {policy} drops acknowledged records when memory is short: set maxmemory-policy"
            " noeviction"
        )
    if not journal:
        advice.append(
            "a crash loses all writes since the last snapshot: set appendonly yes and appendfsync always"
        )
    elif sync == "everysec":
        advice.append("a crash loses up to two seconds of writes: set appendfsync always")
    elif sync != "always":
        advice.append(
            f"appendfsync {sync} lets the operating system decide when writes reach the disk: set appendfsync"
            " always"
        )
    if fails_over:
        advice.append(
            "a replica that takes over may lack the last acknowledged writes: the master does not wait for it"
        )
        if settings.get("min-replicas-to-write", "0") == "0":
            advice.append(
                "a master that is cut off from its replicas accepts writes that are lost when it returns: "
                "set min-replicas-to-write 1 and min-replicas-max-lag 10"
            )
    window = EVERY_SECOND if journal and sync == "everysec" and not evicts and not fails_over else None
    return Durability(not advice, window, tuple(advice), facts)


def weakest(judgements: Sequence[Durability]) -> Durability:
    """Return the durability of a cluster: that of its least safe node."""
    if all(j.durable for j in judgements):
        return judgements[0]
    unsafe = [j for j in judgements if not j.durable]
    windows = [j.loss_window for j in unsafe]
    window = None if None in windows else max(w for w in windows if w is not None)
    advice = tuple(dict.fromkeys(line for j in unsafe for line in j.advice))
    return Durability(False, window, advice, unsafe[0].facts)
