"""Entries that advisors are asked about."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from memory.domain.entry import Entry
from memory.domain.scope import Scope

THEN, NOW = datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 6, 1, tzinfo=UTC)


def entry(content: str = "", **fields: Any) -> Entry:
    whole = {
        "id": "i",
        "tenant": "t",
        "scope": Scope.user("ada"),
        "created_at": THEN,
        "updated_at": THEN,
        "valid_from": THEN,
        "version": "0000000000001",
    }
    return Entry(**(whole | {"tier": "mid", "content": content} | fields))
