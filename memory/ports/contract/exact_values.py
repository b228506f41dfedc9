"""Values that databases are known to change, of every type that a field can have.

Hard values are written by hand. The others are random, and the same for the same seed.
"""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from memory.ports.collections import Collection, Field, FieldType, TextPart
from memory.ports.contract.support import record
from memory.ports.record import FieldValue, Record

COUNT = 120
"""The records of one seed, and so the values of each type."""
INDEXED = tuple(t for t in FieldType if t is not FieldType.BYTES)
EVERY_TYPE = Collection(
    "every_type",
    (
        *[Field(f"{t}_indexed", t, indexed=True) for t in INDEXED],
        *[Field(f"{t}_plain", t) for t in FieldType],
    ),
    (TextPart("said", 1.0),),
)
"""A collection with fields of every type, with an index and without."""

REALS = (
    0.0, -0.0, 0.1 + 0.2, 0.3, math.nextafter(0.3, 0), 1 / 3, 4.35, 1.0, 1e-7, 2.5e-5, 0.000001, 123456789012345.67, 1e16, 1.1e16, 1e21, 1e22, 1e23,
    8.41e21, 9.5367431640625e-07, 7.2057594037927933e16, 2.0**53, 2.0**53 + 2, 2.0**63, 2.0**64, -(2.0**63), 1e308, -1e308, 1.7976931348623157e308,
    -1.7976931348623157e308, 2.2250738585072014e-308, 2.225073858507201e-308, 5e-324, -5e-324, 5e-320, 0.9786634085115272, 1789765374.0315347,
    9.007199254740991e15, 3.1644214839811270e225, 0.21659939713061338, 2.0**-1022, 6.62607015e-34, 9.109383701528e-31,
)  # fmt: skip
INTEGERS = (
    0, 1, -1, 2**31 - 1, 2**31, -(2**31), 2**32, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, -(2**53) - 1, -(2**53), 2**62 + 1, 2**63 - 1, 2**63 - 2,
    2**63 - 512, -(2**63), -(2**63) + 1, 10**18 + 1, -(10**18) - 1,
)  # fmt: skip
MOMENTS = (
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(1, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    datetime(1582, 10, 10, 12, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2000, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2038, 1, 19, 3, 14, 8, tzinfo=UTC),
    datetime(2255, 6, 5, 23, 47, 34, 740_993, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
)
TEXTS = (
    "", " ", "a", "A", "a ", " a", "á", "a\u0301", "é", "e\u0301", "É", "ß", "ss", "ẞ", "İ", "i\u0307", "ﬁ", "fi", "Ω", "\u2126",
    "\u00a0", "\ufeff", "\u200b", "\u200f", "\u202eright to left\u202c", "שלום עולם", "مرحبا", "\U0001f600", "\uffff", "\ufffd", "👩\u200d👧",
    "𝒳", "東京", "\x00", "a\x00", "a\x00b", "a\x00c", "\x01", "\x1f\x7f\x85", "line\nbreak", "line\r\nbreak", "\t", "\u2028", "\\", "\\u0000",
    "\\x00", "%", "_", "'", '"', "null", "true", "1", "1.0", "NaN", "[]", "{}",
    "x" * 50_000, "x" * 49_999 + "y", "é" * 2_000 + "\U0001f600",
)  # fmt: skip
BYTES = (
    b"",
    b"\x00",
    b"\x00\x00",
    b"a",
    b"a\x00",
    b"\xff",
    b"\xc3\x28",
    b"\xed\xa0\x80",
    bytes(range(256)),
    b"\x00" * 5_000,
    b"\\x00",
    b"null",
)

_ALPHABETS = (
    "abcABC xyz",
    "áàâéèêßſİı",
    "שלוםابت",
    "東京都한국어",
    "\U0001f600\U00010000\U0010ffff",
    "\u0300\u0301\u0327\u200d",
    "\x00\x01\n\r\t\x7f",
    "'\"\\%_*?[]{}:,",
)


class ExactValues:
    """Draws values of every type, records that hold them, and JSON."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)  # noqa: S311
        draw: dict[FieldType, tuple[tuple[FieldValue, ...], Callable[[], FieldValue]]] = {
            FieldType.TEXT: (TEXTS, self.text),
            FieldType.INTEGER: (INTEGERS, self.integer),
            FieldType.REAL: (REALS, self.real),
            FieldType.BOOLEAN: ((True, False), lambda: self._chance.random() < 0.5),
            FieldType.TIME: (MOMENTS, self.moment),
            FieldType.TAGS: (((), ("",), ("b", "a", "b"), TEXTS[:20], TEXTS[20:-3]), self.tags),
            FieldType.BYTES: (BYTES, self.bytes),
        }
        self.values: dict[FieldType, list[FieldValue]] = {
            kind: [*hard, *[one() for _ in range(COUNT - len(hard))]] for kind, (hard, one) in draw.items()
        }
        """`COUNT` values of each type: the hard ones first."""
        self.hard = {kind: len(hard) for kind, (hard, _) in draw.items()}
        """The number of hard values of each type; the others are drawn."""

    def records(self) -> list[Record]:
        """Return records; the n-th has the n-th value of each type in both fields."""
        names = [(field.name, self.values[field.type]) for field in EVERY_TYPE.fields]
        return [
            record(
                n,
                fields={name: values[n] for name, values in names},
                texts={"said": str(self.values[FieldType.TEXT][n])},
                generation=0,
            )
            for n in range(COUNT)
        ]

    def real(self) -> float:
        """Return a double with any bits, of usual size, or next to a hard one."""
        chance = self._chance
        any_bits: float = struct.unpack("<d", chance.randbytes(8))[0]
        drawn = (
            any_bits if math.isfinite(any_bits) else 1.5,
            math.ldexp(chance.random(), -chance.randrange(1000, 1075)),  # many of them subnormal
            chance.random(),
            0.8 + chance.random() / 5,
            chance.gauss(0, 1e9),
            math.nextafter(chance.choice(REALS[:-20]), chance.choice((-1e300, 1e300))),
        )
        return chance.choice(drawn)

    def integer(self) -> int:
        chance = self._chance
        near = chance.choice(INTEGERS) + chance.randrange(-3, 4)
        return chance.choice(
            (
                chance.randrange(-(2**63), 2**63),
                chance.randrange(-100, 100),
                max(-(2**63), min(near, 2**63 - 1)),
            )
        )

    def moment(self) -> datetime:
        chance = self._chance
        drawn = MOMENTS[0] + timedelta(
            days=chance.randrange(3_652_058), microseconds=chance.randrange(86_400_000_000)
        )
        return chance.choice((drawn, datetime(2024, 5, 6, 7, 8, 9, chance.randrange(1_000_000), tzinfo=UTC)))

    def text(self) -> str:
        chance = self._chance
        return "".join(chance.choices("".join(chance.sample(_ALPHABETS, 2)), k=chance.randrange(1, 40)))

    def tags(self) -> tuple[str, ...]:
        return tuple(
            self._chance.choice((self.text(), self._chance.choice(TEXTS[:-3])))
            for _ in range(self._chance.randrange(5))
        )

    def bytes(self) -> bytes:
        return self._chance.randbytes(self._chance.randrange(1, 100))

    def json(self, depth: int = 0) -> Any:
        """Return any JSON value, some levels deep."""
        chance = self._chance
        if depth < 5 and chance.random() < 0.5:
            inner = [self.json(depth + 1) for _ in range(chance.randrange(4))]
            return inner if chance.random() < 0.5 else {self.text(): one for one in inner}
        return chance.choice(
            (
                None,
                True,
                False,
                0,
                1,
                0.0,
                1.0,
                -0.0,
                self.real(),
                self.integer(),
                self.text(),
                chance.choice(REALS),
                chance.choice(TEXTS[:-3]),
            )
        )

    def document(self) -> dict[str, Any]:
        return {
            "alike": [True, 1, 1.0, "1", False, 0, 0.0, -0.0, None, "", [], {}],
            **{self.text(): self.json() for _ in range(4)},
        }
