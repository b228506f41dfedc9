"""What is asked of many records at once, as the stores are asked it and as a record read by its id is judged by it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from memory.domain.scope import Scope
from memory.orchestrator.windows import has_passed, is_active, is_current, is_expired, was_stored, were_stored
from memory.ports.collections import Collection
from memory.ports.query import Filter, Ge, Gt, Has, In, IsNull, Or, all_of
from memory.ports.record import Partition, Record


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted: scopes of one tenant and filters, all of which apply before the limit (A33)."""

    tenant: str
    scopes: tuple[Scope, ...]
    tags: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    since: datetime | None = None
    as_of: datetime | None = None
    known_at: datetime | None = None
    order: Literal["newest", "oldest"] = "newest"
    limit: int = 20

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return tuple(Partition(self.tenant, s.text) for s in self.scopes)


def filter_of(asked: Asked, collection: Collection, now: datetime) -> Filter | None:
    """What a store is asked for: what is visible of it, by the moment asked about."""
    at = asked.as_of or asked.known_at
    return all_of(
        Or((IsNull("expires_at"), Ge("expires_at", asked.known_at or now))),
        has_passed("valid_from", at, now) if at is not None else None,
        Or((IsNull("valid_to"), Gt("valid_to", at or now))),
        Ge("created_at", asked.since) if asked.since else None,
        In("type", asked.types) if asked.types else None,
        *(Has("tags", tag) for tag in asked.tags),
        were_stored(collection, asked.known_at, now) if asked.known_at is not None else None,
    )


def accepts(record: Record, asked: Asked, now: datetime) -> bool:
    """The filter again, on a record read by id."""
    tags, at = record.fields.get("tags") or (), asked.as_of or asked.known_at
    return (
        record.partition in asked.partitions
        and not is_expired(record, asked.known_at or now)
        and (is_current(record, now) if at is None else is_active(record, at, now))
        and (asked.known_at is None or was_stored(record, asked.known_at, now))
        and (asked.since is None or record.created_at >= asked.since)
        and (not asked.types or record.fields.get("type") in asked.types)
        and all(tag in tags for tag in asked.tags)  # type: ignore[operator]
    )
