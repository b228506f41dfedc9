"""What the engine stores: each collection, as adapters make tables and indexes of it."""

from __future__ import annotations

from memory.ports.collections import Collection, Field, FieldType, TextPart

SYSTEM_TENANT = "~memory"
"""Owner of the records that serve the engine itself; no caller's tenant may have this
name.
"""
SETTINGS_SCOPE = "settings"

DIGEST = "request_digest"
"""The field, and the entry of a tombstone's note, that tells a repeated keyed write
from another under the same key.
"""

MODEL = "model"
"""The field that tells whose the vector is: the digest of the embedder's fingerprint.
Without it, of the one that the stores noted first.
"""

SAID = "said"
"""The field that tells the version at which a record came to say its text, where that
is an earlier one.
"""

SEQUENCE = "sequence"
"""The field that orders entries of one moment: it grows with every entry that a process
writes. Older entries have none.
"""

SAID_BY = "said_by"
"""The field that names the users who wrote something through handles of their own, in a
session that has another user, or none.
"""

FORKED_FROM = "forked_from"
"""The field that names the sessions of whose messages a fork began with copies: see
`forks.py`.
"""

DERIVED_FROM = "derived_from"
"""The field that refers to what an entry was made of: see `sources.py`."""

_ENTRY_FIELDS = (
    Field("scope_kind", FieldType.TEXT),
    Field("type", FieldType.TEXT, indexed=True),
    Field("tags", FieldType.TAGS, indexed=True),
    Field("source", FieldType.TEXT),
    Field("confidence", FieldType.REAL),
    Field("artifact_id", FieldType.TEXT, indexed=True),
    Field("conversation_id", FieldType.TEXT),
    Field("number_in_conversation", FieldType.INTEGER),
    Field("speaker", FieldType.TEXT),
    Field("marks", FieldType.INTEGER),  # what its text shows at a glance: see `memory.policies.text_features`
    Field("valid_from", FieldType.TIME),
    Field("valid_to", FieldType.TIME),
    Field("promoted_from_id", FieldType.TEXT),
    Field(DIGEST, FieldType.TEXT),
    Field(MODEL, FieldType.TEXT),
    Field(SAID, FieldType.INTEGER),
    Field("agent", FieldType.TEXT, indexed=True),
    Field("run", FieldType.TEXT, indexed=True),
    Field("origins", FieldType.TAGS, indexed=True),  # what else went into it: see `memory.domain.provenance`
    Field(SEQUENCE, FieldType.INTEGER),
    Field(DERIVED_FROM, FieldType.TAGS, indexed=True),
)
_ENTRY_TEXTS = (
    TextPart("title", 10.0),
    TextPart("content", 4.0),
    TextPart("tags", 8.0),
    TextPart("source", 2.0),
)  # weights: D55

_BESIDE = (("conversation_id", "number_in_conversation"),)

ENTRIES = Collection(
    "entries",
    _ENTRY_FIELDS,
    _ENTRY_TEXTS,
    vector=True,
    indexes=(*_BESIDE, ("source", "run")),
    orders=("updated_at",),
)
"""What agents remember. By its index what a source wrote is found, and where that is
asked what it wrote in one run. A tenant's are browsed by their last change.
"""

ENTRY_VERSIONS = Collection(
    "entry_versions",
    (
        *_ENTRY_FIELDS,
        Field("entry_id", FieldType.TEXT, indexed=True),
        Field("stored_version", FieldType.INTEGER),
        Field("replaced_version", FieldType.INTEGER, indexed=True),
    ),
    _ENTRY_TEXTS,
    vector=True,
    indexes=_BESIDE,
)
"""What entries said before an edit; immutable (D34). Current from `stored_version`
until before `replaced_version`.
"""

ENTRY_PASSAGES = Collection(
    "entry_passages",
    (Field("part_of", FieldType.TEXT), Field("part", FieldType.INTEGER), Field(MODEL, FieldType.TEXT)),
    vector=True,
)
"""What long entries are found by besides, by meaning: a vector for each part of a text.
A version is the entry's when it came to say this.
"""

RELATIONS = Collection(
    "relations",
    (
        Field("source_id", FieldType.TEXT, indexed=True),
        Field("target_id", FieldType.TEXT, indexed=True),
        Field("relation", FieldType.TEXT),
    ),
)
"""Directed, labelled links between two entries of one tenant."""

NUMBERS = Collection(
    "numbers",
    (Field("number", FieldType.INTEGER, indexed=True), Field("entry_id", FieldType.TEXT, indexed=True)),
)
"""The running numbers of a tenant's entries, `#42`: a record for each that has one,
which it names. An artifact's is a field of its manifest.
"""

COUNTERS = Collection("counters", (Field("last", FieldType.INTEGER), Field("nonce", FieldType.TEXT)))
"""How far a tenant has counted. It outlives the tenant's erasure: no number is given
twice.
"""

SESSIONS = Collection(
    "sessions",
    (
        Field("session_id", FieldType.TEXT),
        Field("status", FieldType.TEXT, indexed=True),
        Field("subject", FieldType.TEXT, indexed=True),  # the user it is with
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT, indexed=True),
        Field("tags", FieldType.TAGS),
        Field("touched_at", FieldType.TIME, indexed=True, required=True),
        Field(FORKED_FROM, FieldType.TAGS, indexed=True),
        Field(
            "hidden_from", FieldType.TIME, indexed=True
        ),  # its expiry: not the record's own, of which a store may make an end by itself
    ),
)
"""The sessions of conversations, one record each."""

MESSAGES = Collection(
    "messages",
    (
        Field("conversation_id", FieldType.TEXT),
        Field("place", FieldType.INTEGER),
        Field("number_in_conversation", FieldType.INTEGER),
        Field("event", FieldType.TEXT),
        Field("message_id", FieldType.TEXT),
        Field("message_role", FieldType.TEXT),
        Field("speaker", FieldType.TEXT),
        Field("marks", FieldType.INTEGER),  # as entries have them
        Field("tokens", FieldType.INTEGER),
        Field(
            "subject", FieldType.TEXT, indexed=True
        ),  # of its session, as agent and namespace: messages are found by them
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field("uploads", FieldType.TAGS),  # of which it has large texts, those in `artifacts`
        Field(SAID_BY, FieldType.TAGS),
    ),
    (TextPart("content", 1.0),),
    indexes=(
        ("conversation_id", "message_id"),
        ("conversation_id", "event"),
        ("conversation_id", "number_in_conversation"),
    ),
)
"""The logs of conversations: a record for each event, most of which are messages."""

ARTIFACTS = Collection(
    "artifacts",
    (
        Field("conversation_id", FieldType.TEXT),
        Field("upload", FieldType.TEXT),
        Field("digest", FieldType.TEXT),
        Field("data", FieldType.BYTES),
    ),
)
"""What is too large for one row: chunks of messages' texts, with a record for each
upload of such that is under way, and chunks of artifacts.
"""

MANIFESTS = Collection(
    "manifests",
    (
        Field("artifact_id", FieldType.TEXT, indexed=True),
        Field("incarnation", FieldType.TEXT),  # of the session that has it
        Field("upload", FieldType.TEXT),  # whose chunks are its bytes
        Field("size", FieldType.INTEGER),
        Field("number", FieldType.INTEGER, indexed=True),  # once it was shown by one: see `short_ids.py`
    ),
)
"""The artifacts of sessions, a record for each path: put once the chunks of its bytes
are there, which it names by their upload.
"""

RESERVATIONS = Collection(
    "reservations",
    (
        Field("session_id", FieldType.TEXT, indexed=True),
        Field("session_generation", FieldType.INTEGER),
        Field("upload", FieldType.TEXT),
        Field("manifest", FieldType.TEXT),  # the id of the record that is to name the upload
        Field("artifact_id", FieldType.TEXT),
        Field("bytes", FieldType.INTEGER),
    ),
)
"""How much room each upload of an artifact takes of its tenant's, a record for each,
and a balance for each tenant of what they come to.
"""

PASSAGES = Collection(
    "passages",
    (
        Field("message", FieldType.TEXT),  # the id of the record of which this is a part
        Field("part", FieldType.INTEGER),
        Field("subject", FieldType.TEXT),  # of its session, as the message's own
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field(MODEL, FieldType.TEXT),
    ),
    vector=True,
)
"""What messages are found by, by meaning: a vector for each part of a text, and none of
the text. A version is the message's when it said this.
"""

TASKS = Collection(
    "tasks",
    (
        Field("task_id", FieldType.TEXT),
        Field("parent_id", FieldType.TEXT),
        Field("status", FieldType.TEXT),
        Field(SAID_BY, FieldType.TAGS),
    ),
)
"""What sessions have to do, each in its session's partition."""

CLAIMS = Collection(
    "claims",
    (
        Field("session_id", FieldType.TEXT, indexed=True),
        Field("session_generation", FieldType.INTEGER),
        Field("task_key", FieldType.TEXT),
    ),
)
"""Which session has a task of an id, so that no other may: no text, under a key that
both derive from the task's id.
"""

RUNS = Collection(
    "runs",
    (
        Field("run_id", FieldType.TEXT, indexed=True),
        Field("child_id", FieldType.TEXT, indexed=True),
        Field("status", FieldType.TEXT),
        Field("mode", FieldType.TEXT),
        Field("message_count", FieldType.INTEGER),
        Field(SAID_BY, FieldType.TAGS),
    ),
)
"""What sessions gave to others to do, each in the partition of the session that gave
it.
"""

SCRATCHPADS = Collection(
    "scratchpads",
    (
        Field("place", FieldType.INTEGER),
        Field("cleared", FieldType.INTEGER),  # up to which place what stood was cleared
        Field("bytes", FieldType.INTEGER),  # of what was appended here
        Field("size", FieldType.INTEGER),  # of all that stands once this does
        Field("parts", FieldType.INTEGER),  # in how many it is put, where it is too long for one record
        Field("nonce", FieldType.TEXT),
        Field("data", FieldType.BYTES),
    ),
)
"""What agents note for themselves: a record for each append or clearing, in the order
of their places; parts of long ones have none.
"""

OPERATIONS = Collection("operations", (Field("kind", FieldType.TEXT),), upkeep=True)
"""Operations of several steps that are under way; what remains is in what they owe."""

HOLDS = Collection("holds", (Field("held_scope", FieldType.TEXT, indexed=True),))
"""Legal holds, a record for each thing that is held; of an entry, with the scope that
it is of.
"""

LEASES = Collection("leases", (Field("holder", FieldType.TEXT), Field("until", FieldType.TIME)), upkeep=True)
"""Who does maintenance just now."""

SETTINGS = Collection("settings")
"""What a store remembers about itself, such as the embedder its vectors were made with."""
