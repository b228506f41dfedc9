"""Hostile names of tenants, scopes and ids. A name stands beside those it is easily taken for."""

from __future__ import annotations

from typing import Any

from memory.ports.contract.support import T0
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
"""Names that every store holds as they are: what the library's door lets through (not empty, no NUL, no half characters, at most 512 bytes)."""

STRANGE = ("", "acme\x00", "\x00acme", "\x00", "\ud800", "acme\udfff", "y" * 3_000, "y" * 2_999, "東" * 40_000)
"""Names that a store may refuse to hold, each write on its own. One that it takes it holds as it is."""

assert len(set(NAMES + STRANGE)) == len(NAMES + STRANGE)

_ID = "01f2c5a0-0000-8000-8000-000000000001"
SINGLE = ("tenants", "scopes", "ids")
"""Families in which one name differs."""
FAMILIES = (*SINGLE, "joined")
"""In the last one no name is alike: two that are written one behind the other, with something in between or nothing, are."""

JOINTS = (
    "", ":", "::", "/", "//", "|", ".", "-", "_", ",", ";", " ", "\t", "\n", "#", "@", "+", "~", "\\", "'", '"', "\x01", "\x1f", "{", "}", "%", "%2F",
)  # fmt: skip
"""What stores write between a tenant and a scope, or an id to make one name of them."""


def named(family: str, names: tuple[str, ...] = NAMES) -> list[tuple[Key, str]]:
    """A key and a scope for each name: tenants hold one id and one scope each, scopes and ids are of one tenant, ids of one scope.

    Of joined ones tenant and scope, and tenant and id, are two ways to cut one text.
    """
    if family == "joined":
        return [(Key(first, second), second) for joint in JOINTS for first, second in (("a", f"b{joint}c"), (f"a{joint}b", "c"))]
    if family == "tenants":
        return [(Key(name, _ID), "user:ann") for name in names]
    if family == "scopes":
        return [(Key("acme", f"{_ID[:-3]}{n:03}"), name) for n, name in enumerate(names)]
    return [(Key("acme", name), "user:ann") for name in names]


def partition_of(key: Key, scope: str) -> Partition:
    return Partition(key.tenant, scope)


def owner(key: Key, scope: str) -> list[str]:
    """What the record under this key says of whose it is: what may be a hostile name stands there as plain text."""
    return [ascii(key.tenant), ascii(scope), ascii(key.id)]


def made(key: Key, scope: str, version: int = 1, **parts: Any) -> Record:
    """A record that says whose it is."""
    return Record(key, scope, version, T0, T0, **{"body": {"of": owner(key, scope)}, **parts})
