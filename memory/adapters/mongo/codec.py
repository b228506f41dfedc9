"""Records, marks and tombstones as documents and back, with a checksum over everything they say.

The `_id` is the tenant and the record's id: unique by MongoDB's own index, also on a sharded cluster as long as its shard key begins with the tenant.
A record of one tenant never shares it with another's, and both are compared byte by byte.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import bson
from bson.errors import BSONError

from memory.adapters.mongo.values import (
    Document,
    cached_moment,
    decode_owed,
    decode_value,
    decoder_of,
    encode_json,
    encode_owed,
    encode_value,
    from_json,
    maybe_moment,
    text_of,
)
from memory.adapters.mongo.words import Parts
from memory.domain.time import micros
from memory.ports import lexical
from memory.ports.collections import Collection
from memory.ports.comparing import SYSTEM_TYPES
from memory.ports.heads import BESIDE
from memory.ports.query import VECTOR, WORDS, Head, Order, RowType
from memory.ports.record import Corrupt, FieldValue, Key, Mark, Record, Role, Standing, Tombstone
from memory.ports.storable import HALF_A_CHARACTER, Unstorable

RECORD, MARK, TOMBSTONE = RowType.RECORD.value, RowType.MARK.value, RowType.TOMBSTONE.value
CORRUPT = "corrupt"
ASIDE = "aside"
"""Beside a document's checksum: a copy of what stood here damaged is set aside. Every replacement keeps it, so that a deletion finds the copy."""

LARGEST = 16 * 2**20 - 2**16
"""A document ends at 16 MiB; what an update around it adds is left free."""

SEALED = (
    *("_id", "tenant", "id", "kind", "scope", "version", "created_at", "updated_at", "expires_at", "fields", "body", "texts", "vector", "generation"),
    *("role", "tier", "owed", "owing", "previous", "accesses", "accessed_at", "cached_at", "epoch", "to", "note", "discard_at", "stamp"),
)
"""What the checksum covers, in its order. Beside it there are the words (`words`, `counts`, `length`) and `aside`."""
WITHOUT_WORDS: Mapping[str, Any] = {"words": 0, "counts": 0, "length": 0}
"""A projection: nobody reads a record's words back."""
EVERYWHERE: Mapping[str, str] = {"id": "_id.id", "tenant": "_id.tenant"}
"""How questions about everything spell what a page over it is sorted by last."""
_OF_HEADS = ("tenant", "id", "scope", "version", "kind", "generation", "role", "tier")

_stamps = random.Random()  # noqa: S311 - they need not be secret, only not the same twice
os.register_at_fork(after_in_child=_stamps.seed)


def address(key: Key) -> Document:
    """The `_id` of what stands under the key."""
    return {"tenant": text_of(key.tenant), "id": text_of(key.id)}


def key_in(document: Mapping[str, Any]) -> Key:
    return Key(document["_id"]["tenant"], document["_id"]["id"])


def checksum(document: Mapping[str, Any]) -> int:
    """Over the document's bytes as BSON, in an order of our own: what rewrites documents may order them otherwise."""
    return _digest(_sealed_part(document))


def _sealed_part(document: Mapping[str, Any]) -> bytes:
    return bson.encode({name: document[name] for name in SEALED if name in document})


def _digest(encoded: bytes) -> int:
    return int.from_bytes(blake2b(encoded, digest_size=8).digest(), "big", signed=True)


def sealed(document: Document) -> Document:
    """The document with a stamp of this one write and its checksum. Raises `Unstorable` for what MongoDB cannot hold."""
    document["stamp"] = _stamps.getrandbits(63)
    try:
        encoded = _sealed_part(document)
        size = len(bson.encode(document)) if len(encoded) > 2**20 else 0  # the words have room enough beside less than that
    except UnicodeEncodeError:
        raise Unstorable(HALF_A_CHARACTER) from None
    except (BSONError, OverflowError) as exc:
        raise Unstorable(f"record: {_limit(exc)}") from exc
    if size > LARGEST:
        raise Unstorable(f"record: as a document it takes {size} bytes, and MongoDB holds at most {LARGEST}")
    document["checksum"] = _digest(encoded)
    return document


def _limit(error: Exception) -> str:
    return "an integer has at most 64 bits" if isinstance(error, OverflowError) else f"MongoDB cannot hold it ({type(error).__name__})"


class Layout:
    """The documents of one collection."""

    def __init__(self, collection: Collection) -> None:
        self.collection = collection
        self.types = {f.name: f.type for f in collection.fields}
        self._decoders = {f.name: decoder_of(f.type) for f in collection.fields}
        self.parts = Parts(collection.texts)

    # -- writing ------------------------------------------------------------------------------------------------------

    def document(self, standing: Standing, generation: int = 0) -> Document:
        """As MongoDB holds it, a record without a generation under this one. Raises `Unstorable`."""
        if isinstance(standing, Record):
            return self._record(standing, generation)
        document = _begun(standing.key, MARK if isinstance(standing, Mark) else TOMBSTONE, standing.version)
        if isinstance(standing, Mark):
            document |= {"scope": text_of(standing.scope), "to": text_of(standing.to)}
        elif standing.note:
            document["note"] = encode_json("note", dict(standing.note))
        _owe(document, standing)
        if standing.discard_at is not None:
            document["discard_at"] = micros(standing.discard_at)
        return sealed(document)

    def _record(self, record: Record, generation: int) -> Document:
        document = _begun(record.key, RECORD, record.version)
        document |= {
            "scope": text_of(record.scope),
            "created_at": micros(record.created_at),
            "updated_at": micros(record.updated_at),
            "fields": {name: encode_value(self.types.get(name), name, value) for name, value in record.fields.items() if value is not None},
            "body": encode_json("body", dict(record.body)),
            "texts": {part: text_of(text) for part, text in record.texts.items()},
            "generation": generation if record.generation is None else record.generation,
            "role": record.role.value,
            "tier": text_of(record.tier),
            "accesses": record.accesses,
        }
        if record.expires_at is not None:
            document["expires_at"] = micros(record.expires_at)
        if record.vector is not None:
            document["vector"] = bytes(record.vector)
        if record.previous is not None:
            document["previous"] = record.previous
        if record.accessed_at is not None:
            document["accessed_at"] = micros(record.accessed_at)
        if record.cached_at is not None:
            document["cached_at"] = micros(record.cached_at)
        if record.epoch is not None:
            document["epoch"] = text_of(record.epoch)
        _owe(document, record)
        if self.collection.texts:
            document["length"], counts = self.parts.index(record.texts)
            if counts:
                document["words"], document["counts"] = list(counts), counts
        return sealed(document)

    def corrupt(self, found: Mapping[str, Any], problem: str) -> Document:
        """What stands in the place of a damaged document: its key, where it was found, and its version if that can be one."""
        version = found.get("version")
        document = _begun(key_in(found), CORRUPT, version if isinstance(version, int) and version > 0 else None)
        if isinstance(found.get("scope"), str):
            document["scope"] = found["scope"]
        document["note"] = problem
        return sealed(document)

    # -- reading ------------------------------------------------------------------------------------------------------

    def read(self, document: Mapping[str, Any] | None) -> Standing | Corrupt | None:
        """What stands there, nothing where there is no document."""
        if document is None:
            return None
        key = key_in(document)
        try:
            if document.get("checksum") != checksum(document):
                return Corrupt(key, "its checksum does not fit")
            return Corrupt(key, document["note"]) if document["kind"] == CORRUPT else self._standing(key, document)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError, BSONError) as exc:
            return Corrupt(key, f"it cannot be read ({type(exc).__name__})")

    def projection(self, select: frozenset[str], order: Sequence[Order] = ()) -> Mapping[str, Any]:
        """What of documents their heads take, and the values that a page is sorted by."""
        named = {*select - BESIDE, *[by.field for by in order]}
        paths = [name if name in SYSTEM_TYPES else f"fields.{name}" for name in sorted(named)]
        return dict.fromkeys([*_OF_HEADS, *paths, *(["texts"] if WORDS in select else []), *(["vector"] if VECTOR in select else [])], 1)

    def head(self, document: Mapping[str, Any], select: frozenset[str]) -> Head | None:
        """The head of a document read by the projection; None where one of its values is none."""
        try:
            fields = {name: value for name in select - BESIDE if (value := self._named(document, name)) is not None}
            return Head(
                key_in(document),
                document["scope"],
                int(document["version"]),
                Role(document["role"]),
                document["tier"],
                int(document["generation"]),
                fields,
                lexical.index(self.collection, document.get("texts", {})) if WORDS in select else None,
                document.get("vector") if VECTOR in select else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return None

    def _named(self, document: Mapping[str, Any], name: str) -> FieldValue:
        """The value of a declared or system field."""
        if name == "owing":
            return bool(document.get("owing"))
        if name == "role":
            return Role(document["role"])
        value = document.get(name) if name in SYSTEM_TYPES else document.get("fields", {}).get(name)
        return None if value is None else decode_value(SYSTEM_TYPES.get(name) or self.types[name], value)

    def _standing(self, key: Key, document: Mapping[str, Any]) -> Standing:
        if document["kind"] == RECORD:
            return self._record_in(key, document)
        version, owed = int(document["version"]), decode_owed(document.get("owed"))
        discard_at = maybe_moment(document.get("discard_at"))
        if document["kind"] == MARK:
            return Mark(key, document["scope"], version, document["to"], owed, discard_at)
        if document["kind"] == TOMBSTONE:
            return Tombstone(key, version, owed, from_json(document["note"]) if "note" in document else {}, discard_at)
        raise ValueError(document["kind"])

    def _record_in(self, key: Key, document: Mapping[str, Any]) -> Record:
        fields: dict[str, FieldValue] = {
            name: value if (decoder := self._decoders.get(name)) is None else decoder(value) for name, value in document["fields"].items()
        }
        previous = document.get("previous")
        return Record(
            key=key,
            scope=document["scope"],
            version=int(document["version"]),
            created_at=cached_moment(document["created_at"]),
            updated_at=cached_moment(document["updated_at"]),
            expires_at=maybe_moment(document.get("expires_at")),
            fields=fields,
            body=from_json(document["body"]),
            texts=document["texts"],
            vector=document.get("vector"),
            generation=int(document["generation"]),
            role=Role(document["role"]),
            tier=document["tier"],
            owed=decode_owed(document.get("owed")),
            previous=None if previous is None else int(previous),
            accesses=int(document["accesses"]),
            accessed_at=maybe_moment(document.get("accessed_at")),
            cached_at=maybe_moment(document.get("cached_at")),
            epoch=document.get("epoch"),
        )


def _begun(key: Key, kind: str, version: int | None) -> Document:
    stands = address(key)
    document: Document = {"_id": stands, **stands, "kind": kind}
    if version is not None:
        document["version"] = int(version)
    return document


def _owe(document: Document, standing: Standing) -> None:
    if standing.owed:
        document |= {"owed": encode_owed(standing.owed), "owing": True}
