"""From columns of integers and text to what they say, for the dialects whose columns hold these: moments as microseconds, JSON and tags as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from operator import itemgetter

from memory.adapters.sql.columns import field_column, text_column
from memory.adapters.sql.values import DECODERS, MARK, TOMBSTONE, Row, cached_moment, decode_owed, from_json, maybe_moment
from memory.ports.collections import Collection
from memory.ports.record import Key, Mark, Record, Role, Standing, Tombstone

_ROLES = {role.value: role for role in Role}
_SYSTEM = (
    "tenant", "id", "record_kind", "scope", "version", "generation", "role", "tier", "created_at", "updated_at", "expires_at", "accesses",
    "accessed_at", "previous", "moved_to", "cached_at", "epoch", "discard_at", "owed", "note", "body",
)  # fmt: skip


class Decoder:
    """What sound rows of one collection say; `at` says where each column is in a row."""

    def __init__(self, collection: Collection, at: Mapping[str, int]) -> None:
        self._system = itemgetter(*[at[name] for name in _SYSTEM])
        self._fields = [(f.name, at[field_column(f.name)], DECODERS.get(f.type)) for f in collection.fields]
        self._texts = [(p.name, at[text_column(p.name)]) for p in collection.texts]
        self._vector = at.get("vector")

    def standing(self, row: Row) -> Standing:
        """Raises `TypeError`, `ValueError`, `KeyError` or `OverflowError` where a value is none."""
        (
            tenant, record_id, kind, scope, version, generation, role, tier, created_at, updated_at, expires_at, accesses, accessed_at, previous,
            moved_to, cached_at, epoch, discard_at, owed, note, body,
        ) = self._system(row)  # fmt: skip
        key = Key(tenant, record_id)
        if kind == MARK:
            return Mark(key, scope, version, moved_to, decode_owed(owed), maybe_moment(discard_at))
        if kind == TOMBSTONE:
            return Tombstone(key, version, decode_owed(owed), json.loads(note) if note else {}, maybe_moment(discard_at))
        return Record(
            key,
            scope,
            version,
            cached_moment(created_at),
            cached_moment(updated_at),
            maybe_moment(expires_at),
            {name: value if decode is None else decode(value) for name, i, decode in self._fields if (value := row[i]) is not None},
            from_json(body),
            {name: row[i] for name, i in self._texts if row[i] is not None},
            None if self._vector is None else row[self._vector],
            generation,
            _ROLES[role],
            tier,
            decode_owed(owed),
            previous,
            accesses,
            maybe_moment(accessed_at),
            maybe_moment(cached_at),
            epoch,
        )
