"""How safe a server keeps what it acknowledged, read from its settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from memory.ports.record import JsonValue

READ = ("appendonly", "appendfsync", "save", "maxmemory", "maxmemory-policy", "min-replicas-to-write")
"""The settings that decide."""

EVERY_SECOND = timedelta(seconds=2)
"""What `appendfsync everysec` may lose: the server syncs once a second and lets a slow
disk delay that by another.
"""


@dataclass(frozen=True, slots=True)
class Durability:
    """What the settings mean. `advice` says what to change where acknowledged writes
    may be lost.
    """

    durable: bool
    loss_window: timedelta | None
    advice: tuple[str, ...]
    facts: dict[str, JsonValue]


def safety_of(settings: dict[str, str], *, fails_over: bool) -> Durability:
    """What one server's settings mean. None of them known: the server does not let them
    be read.
    """
    facts: dict[str, JsonValue] = {name: settings[name] for name in READ if name in settings}
    if not facts:
        return Durability(
            False,
            None,
            (
                "its settings cannot be read (CONFIG is refused), so nothing is known of how it keeps what it acknowledged",
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
            f"maxmemory-policy {policy} drops acknowledged records when memory is short: set maxmemory-policy noeviction"
        )
    if not journal:
        advice.append(
            "what was written since the last snapshot is lost with the process: set appendonly yes and appendfsync always"
        )
    elif sync == "everysec":
        advice.append("up to two seconds of writes are lost with the process: set appendfsync always")
    elif sync != "always":
        advice.append(
            f"appendfsync {sync} leaves it to the operating system when writes reach the disk: set appendfsync always"
        )
    if fails_over:
        advice.append(
            "a replica that takes over may lack the last acknowledged writes: replication does not wait for it"
        )
        if settings.get("min-replicas-to-write", "0") == "0":
            advice.append(
                "a master that is cut off from its replicas goes on taking writes, which are lost when it comes back: "
                "set min-replicas-to-write 1 and min-replicas-max-lag 10"
            )
    window = EVERY_SECOND if journal and sync == "everysec" and not evicts and not fails_over else None
    return Durability(not advice, window, tuple(advice), facts)


def weakest(judgements: Sequence[Durability]) -> Durability:
    """A cluster is as safe as its least safe node."""
    if all(j.durable for j in judgements):
        return judgements[0]
    unsafe = [j for j in judgements if not j.durable]
    windows = [j.loss_window for j in unsafe]
    window = None if None in windows else max(w for w in windows if w is not None)
    advice = tuple(dict.fromkeys(line for j in unsafe for line in j.advice))
    return Durability(False, window, advice, unsafe[0].facts)
