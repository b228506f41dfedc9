"""Hostile names of tenants and scopes, beside names that they are mistaken for."""

from __future__ import annotations

from typing import Any

from memory.ports.contract.support import T0, id_of
from memory.ports.record import Key, Partition, Record

NAMES = (
    "acme", "ACME", "Acme", "acmé", "acme\u0301", "ácme", "acm\u00e9 ", "acme ", " acme", "acme\t", "acme\n", "acme\x7f", "acme\u200b", "acme\ufeff",
    "acm", "acme:", "acme:user", "acme/user", "acme.user", "acme|acme", "(acme)", "{acme}", "{acme", "acme}", "-acme", "a{b}c", "a{b}d",
    "a*", "*", "?", "a?", "[a-z]*", "[a]", "%", "_", "acm_", "a%", "..", ".", "../acme", "/", "//", "%2e%2e", "%2F", "a\\", "\\",
    "\\x00", "\x01", "\x1f",
    "'", "''", '"', "' OR '1'='1", "; DROP TABLE samples; --", "--", "/*", "$ne", "$where", '{"$ne": 1}', '{"$gt": ""}', "${acme}", "#{acme}",
    "0", "00", "0.0", "None", "null", "true", "nan", "東京", "东京", "ß", "ss", "ı", "i", "I", "İ", "\u212b", "\u00c5", "A\u030a", "\U0001f600",
    "\uffff",
    "x" * 200, "x" * 199, "x" * 512, "x" * 511, "東" * 170, "東" * 169,
)  # fmt: skip
"""Names that every store holds as they are.

The library's validation accepts them: not empty, no NUL, no half of a surrogate pair,
at most 512 bytes.
"""

STRANGE = (
    "",
    "acme\x00",
    "\x00acme",
    "\x00",
    "\ud800",
    "acme\udfff",
    "y" * 3_000,
    "y" * 2_999,
    "東" * 40_000,
)
"""Names that a store may reject, each write on its own.

If it accepts one, it holds it as it is.
"""

assert len(set(NAMES + STRANGE)) == len(NAMES + STRANGE)

SINGLE = ("tenants", "scopes")
"""Families in which one name differs."""
FAMILIES = (*SINGLE, "joined", "digests")
"""Families of joined names.

No two names are equal. Two names become equal when tenant and scope are written one
behind the other, with something or nothing between. In the last family names differ,
and the digests that ids carry are equal.
"""

JOINTS = (
    "", ":", "::", "/", "//", "|", ".", "-", "_", ",", ";", " ", "\t", "\n", "#", "@", "+", "~", "\\", "'", '"', "\x01", "\x1f", "{", "}", "%", "%2F",
)  # fmt: skip
"""Separators that stores write between a tenant and a scope to make one name."""

TWINS = (
    *[Partition("acme", scope) for scope in ("user:41484", "user:83338", "user:50484", "user:108565")],
    *[Partition(tenant, "user:ann") for tenant in ("t13218", "t39749", "t69286", "t79333")],
)
"""Pairs with one digest (see `memory.domain.ids.partition_digest`)."""


def partitions(family: str, names: tuple[str, ...] = NAMES) -> list[Partition]:
    """Return a partition for each name.

    In joined families, tenant and scope are two ways to split one text.
    """
    match family:
        case "joined":
            return [
                Partition(first, second)
                for joint in JOINTS
                for first, second in (("a", f"b{joint}c"), (f"a{joint}b", "c"))
            ]
        case "digests":
            return list(TWINS)
        case "tenants":
            return [Partition(name, "user:ann") for name in names]
        case _:
            return [Partition("acme", name) for name in names]


def keys_and_scopes(family: str, names: tuple[str, ...] = NAMES) -> list[tuple[Key, str]]:
    """Return a key and a scope for each partition of the family."""
    return [(Key(at.tenant, _id(n, at)), at.scope) for n, at in enumerate(partitions(family, names))]


def _id(n: int, at: Partition) -> str:
    try:
        return id_of(n, at)
    except UnicodeEncodeError:  # half of a surrogate pair: no id can belong to this partition
        return id_of(n)


def partition_of(key: Key, scope: str) -> Partition:
    return Partition(key.tenant, scope)


def owner(key: Key, scope: str) -> list[str]:
    """Return the owner that the record under this key names.

    Names that may be hostile are plain text there.
    """
    return [ascii(key.tenant), ascii(scope), key.id]


def owned_record(key: Key, scope: str, version: int = 1, **parts: Any) -> Record:
    """Return a record that names its owner."""
    return Record(key, scope, version, T0, T0, **{"body": {"of": owner(key, scope)}, **parts})
