"""Where a query looks, as a condition: partitions by their keyword, a tenant, or everything."""

from __future__ import annotations

from collections.abc import Sequence

from memory.adapters.qdrant.engine import Condition, Conditions
from memory.adapters.qdrant.keys import partition_word
from memory.adapters.qdrant.payloads import RECORD
from memory.ports.collections import Collection
from memory.ports.query import Partitions, RowType, Tenant, Where
from memory.ports.record import Role

EVERY_ROLE = frozenset(Role)
ONLY_RECORDS = frozenset({RowType.RECORD})


def place(
    make: Conditions, collection: Collection, where: Where, roles: frozenset[Role], types: frozenset[RowType] = ONLY_RECORDS
) -> list[Condition]:
    """Conditions that all hold for what stands there. Only live records carry the keyword of their partition."""
    if isinstance(where, Partitions):
        words = list(dict.fromkeys(partition_word(collection.name, p) for p in where.partitions))
        return [_one_of(make, "partition", words), *_in_roles(make, roles)]
    conditions = [make.equals("collection", collection.name)]
    if isinstance(where, Tenant):
        where.tenant.encode()
        conditions.append(make.equals("tenant", where.tenant))
    live = [make.equals("kind", RECORD), *_in_roles(make, roles)]
    others = [kind.value for kind in sorted(types) if kind is not RowType.RECORD]
    if not others:
        return conditions + live
    gone = _one_of(make, "kind", others)
    return [*conditions, make.some([make.every(live), gone]) if RowType.RECORD in types else gone]


def _in_roles(make: Conditions, roles: frozenset[Role]) -> list[Condition]:
    return [] if roles >= EVERY_ROLE else [_one_of(make, "role", sorted(role.value for role in roles))]


def _one_of(make: Conditions, path: str, values: Sequence[str]) -> Condition:
    return make.equals(path, values[0]) if len(values) == 1 else make.among(path, values)
