"""Random writes and questions of all kinds that a store claims, by seed.

The same seed gives the same writes and questions.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from memory.ports.candidates import Candidates, Neighbourhood
from memory.ports.capabilities import Capabilities
from memory.ports.contract.collections import MORE_SAMPLES, SAMPLES
from memory.ports.contract.support import ELSEWHERE, FOREIGN, HERE, T0, id_of, record, step_ids
from memory.ports.query import (
    MAX_LIMIT,
    And,
    Condition,
    Eq,
    Everywhere,
    Ge,
    Gt,
    Has,
    In,
    IsNull,
    Le,
    Lt,
    Near,
    Not,
    Or,
    Order,
    Query,
    RowType,
    Search,
    StartsWith,
    Tenant,
    Under,
    Where,
    Words,
    within,
)
from memory.ports.record import FieldValue, Key, Partition, PendingStep, Record, Role, pack_vector
from memory.ports.text import words
from memory.ports.writes import (
    Absent,
    Always,
    Annotate,
    AtVersion,
    Delete,
    Newer,
    Purge,
    Put,
    RaiseGeneration,
    Release,
    When,
    Write,
)

PLACES = (HERE, ELSEWHERE, Partition("acme", "path:org/"), FOREIGN)
IDS_OF = {place: [id_of(n, place) for n in range(8)] for place in PLACES}
IDS = [id_ for ids in IDS_OF.values() for id_ in ids]
WORDS = (
    "deploy deploys deployment café cafe naïve 東京 東 server O'Brien NEAR AND * ( x1 über straße connection"
    " connected".split()
)
TEXTS = ("", "a", "A", "ab", "é", "\uffff", "\U0001f600", "a b", '"', "\\", "\n")
REALS = (0.0, -0.0, 0.1 + 0.2, 0.3, 0.5, 1.0, 2.0**53, 2.5, -1e308)
VERSIONS = (1, 1, 2, 2, 3, 3, 4, 5, 2**53, 2**53 + 1, 2**62)
MOMENTS = (
    T0,
    T0 + timedelta(microseconds=1),
    T0 + timedelta(seconds=2),
    T0 - timedelta(days=400),
    T0.replace(year=9999),
    T0.replace(year=1),
)
STEPS = (
    PendingStep("1", "deliver", {"to": "long", "n": 1}),
    PendingStep("2", "erase", {"deep": [1, {"x": None}]}),
    PendingStep("3", "deliver"),
)
SETTLED = (frozenset({"deliver", "erase"}), frozenset({"deliver"}), frozenset[str]())
NUMBERS = (-(2**63), -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 1)
SEALS = (b"", b"\x00", b"\x00\x00", b"a", bytes(range(256)), b"\xff")
ORDERED = (
    "type",
    "confidence",
    "valid_from",
    "number",
    "pinned",
    "version",
    "created_at",
    "expires_at",
    "id",
    "owing",
    "tier",
    "conversation_id",
    "role",
    "scope",
)
VALUES: dict[str, Sequence[FieldValue]] = {
    "type": TEXTS,
    "confidence": REALS,
    "version": VERSIONS,
    "valid_from": MOMENTS,
    "number": NUMBERS,
    "created_at": MOMENTS,
    "expires_at": MOMENTS,
    "tier": ("", "short", "mid"),
}
EQUAL: dict[str, Sequence[FieldValue]] = {"pinned": (True, False), "seal": SEALS}
"""Fields that are compared by equality alone, as ids are."""
DIMENSIONS = 8


@dataclass
class RandomWork:
    """Draws writes and questions that a store of these claims takes."""

    seed: int
    claims: Capabilities
    chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311

    # -- writes ------------------------------------------------------------------------

    def record(self) -> Record:
        chance = self.chance
        at = chance.choice(PLACES)
        fields: dict[str, FieldValue] = {}
        for name, values in (
            *[(name, VALUES[name]) for name in ("type", "confidence", "valid_from", "number")],
            *EQUAL.items(),
        ):
            if chance.random() < 0.7:
                fields[name] = chance.choice(values)
        if chance.random() < 0.7:
            fields["tags"] = tuple(chance.sample(TEXTS, chance.randrange(4)))
        made = record(
            1,
            at,
            version=chance.choice(VERSIONS),
            fields=fields,
            body={"n": chance.randrange(100)},
            texts={
                part: self._words(12)
                for part in chance.sample(("title", "content", "tags", "source"), chance.randrange(4))
            },
            vector=self.vector() if chance.random() < 0.7 else None,
            created_at=chance.choice(MOMENTS),
            updated_at=chance.choice(MOMENTS),
            expires_at=chance.choice((None, None, T0, T0 + timedelta(seconds=chance.randrange(3)))),
            generation=chance.choice((None, None, None, None, 0, 1, 2)),
            role=chance.choice([Role.HOME] * 6 + [Role.REPLICA, Role.CACHED, Role.ARRIVING]),
            tier=chance.choice(("", "short", "mid")),
            owed=tuple(chance.sample(STEPS, chance.randrange(3))) if chance.random() < 0.4 else (),
        )
        return replace(made, key=Key(at.tenant, chance.choice(IDS_OF[at])))

    def vector(self) -> bytes:
        return pack_vector([self.chance.gauss(0, 1) for _ in range(DIMENSIONS)])

    def _words(self, most: int) -> str:
        return " ".join(self.chance.choices(WORDS, k=self.chance.randrange(1, most)))

    def write(self) -> Write:
        chance, made, version = self.chance, self.record(), self.chance.choice(VERSIONS)
        if chance.random() < 0.05:
            return RaiseGeneration(made.partition, chance.choice((None, 0, 0, 1, 2)))
        if not self.claims.conditional:
            return Put(SAMPLES, made, Always())
        changes: dict[str, Any] = chance.choice(
            (
                {"tier": "x"},
                {"role": Role.HOME},
                {"accessed_at": T0},
                {"discard_at": T0},
                {"settle": step_ids(STEPS[:1])},
                {"role_is": made.role, "tier": "y"},
            )
        )
        settles = chance.choice(SETTLED)
        writes: list[Write] = [
            Put(SAMPLES, made, self._when(version), settles),
            Put(SAMPLES, made, Newer(), settles, erases=len(settles) == 1),
            Put(MORE_SAMPLES, made, Absent()),
            Delete(
                SAMPLES,
                made.key,
                version,
                chance.choice((Newer(), AtVersion(version))),
                made.owed,
                {"k": [version]},
                T0,
                settles,
            ),
            Release(SAMPLES, made.key, version, chance.choice(("mid", "long")), made.owed, T0, settles),
            Annotate(SAMPLES, made.key, version, **changes),
            Purge(SAMPLES, made.key, version, chance.choice((None, Role.ARRIVING)), settles),
        ]
        return chance.choices(writes, weights=[5, 5, 1, 2, 1, 2, 1])[0]

    def _when(self, version: int) -> When:
        at = AtVersion(version, self.chance.choice((None, Role.HOME)), self.chance.choice((None, "mid")))
        return self.chance.choice((Absent(), Newer(), Always(), at))

    # -- questions ---------------------------------------------------------------------

    def where(self) -> Where:
        wide: list[Where] = (
            [Tenant("acme"), Under("acme", ("path:org/",), (HERE.scope,)), Tenant("nobody"), Everywhere()]
            if self.claims.tenant_wide
            else []
        )
        narrow: list[Where] = [
            within(HERE),
            within(*PLACES[:3]),
            within(Partition("acme", "nobody")),
            within(FOREIGN),
        ]
        return self.chance.choice(narrow + wide)

    def roles(self) -> frozenset[Role]:
        return frozenset(self.chance.sample(list(Role), self.chance.randrange(4))) | {Role.HOME}

    def filter(self, depth: int = 0) -> Condition:
        chance = self.chance
        if depth < 3 and chance.random() < 0.4:
            parts = tuple(self.filter(depth + 1) for _ in range(chance.randrange(3)))
            nested: list[Condition] = [And(parts), Or(parts), Not(self.filter(depth + 1))]
            return chance.choice(nested)
        name = chance.choice(list(VALUES))
        values = VALUES[name]
        plain: list[Condition] = [
            *[kind(name, chance.choice(values)) for kind in (Eq, Lt, Le, Gt, Ge)],
            In(name, tuple(chance.choices(values, k=2))),
            IsNull(chance.choice([name, "tags"])),
            Has("tags", chance.choice(TEXTS)),
            *[Eq(field, chance.choice(options)) for field, options in (*EQUAL.items(), ("id", IDS))],
            In("id", tuple(chance.choices(IDS, k=6))),
            StartsWith("type", chance.choice(TEXTS)[: chance.randrange(3)]),
            Eq("owing", chance.random() < 0.5),
        ]
        return chance.choice(plain)

    def maybe_filter(self) -> Condition | None:
        return self.filter() if self.claims.filter and self.chance.random() < 0.6 else None

    def query(self) -> Query:
        chance = self.chance
        order = (
            [Order(name, chance.random() < 0.5) for name in chance.sample(ORDERED, chance.randrange(4))]
            if self.claims.order
            else []
        )
        limit = chance.choice((MAX_LIMIT, 3, 10, 30))
        return Query(SAMPLES, self.where(), self.maybe_filter(), tuple(order), limit, roles=self.roles())

    def tombstones(self) -> list[Query]:
        """Return queries for marks and tombstones, and for all types together."""
        parts: list[Condition | None] = [None]
        if self.claims.filter:
            parts += [
                And((Lt("discard_at", T0 + timedelta(days=1)), Not(Eq("owing", True)))),
                Eq("owing", True),
            ]
        kinds = (frozenset({RowType.MARK}), frozenset({RowType.TOMBSTONE}), frozenset(RowType))
        return [Query(SAMPLES, Everywhere(), part, limit=5, types=kind) for kind in kinds for part in parts]

    def by_words(self, limit: int) -> Search:
        return Search(SAMPLES, self.where(), Words(self._words(4)), limit, self.maybe_filter(), self.roles())

    def candidates(self) -> Candidates:
        """Return a question by words, by meaning, both or neither.

        It names some records and asks for neighbours. It asks for all candidates, so
        the result is determined.
        """
        chance, where = self.chance, self.where()
        while isinstance(where, Everywhere):
            where = self.where()
        return Candidates(
            SAMPLES,
            where,
            self._words(4) if chance.random() < 0.7 else "",
            self.vector() if chance.random() < 0.7 else None,
            MAX_LIMIT,
            among=tuple(chance.sample(IDS, chance.randrange(4))),
            around=Neighbourhood("type", "number", chance.choice((1, 2))) if chance.random() < 0.5 else None,
            counted=tuple(dict.fromkeys(words(self._words(5)))),
            filter=self.maybe_filter(),
            roles=self.roles(),
            select=frozenset(chance.sample(ORDERED, 3)),
            dimensions=DIMENSIONS,
        )

    def by_meaning(self) -> Search:
        return Search(
            SAMPLES,
            self.where(),
            Near(self.vector()),
            self.chance.choice((1, 5, 200)),
            self.maybe_filter(),
            self.roles(),
        )
