"""The collections that the engine stores. Adapters make tables and indexes of them."""

from __future__ import annotations

from memory.ports.collections import Collection, Field, FieldType, TextPart

SETTINGS_SCOPE = "settings"

DIGEST = "request_digest"
"""Digest of a keyed write. It is a field of the entry, and is kept in a tombstone's
note. It distinguishes a repeated write from another write under the same key.
"""

MODEL = "model"
"""Digest of the fingerprint of the embedder that made the vector. A record without it
has a vector of the embedder that the stores noted first.
"""

SAID = "said"
"""Version at which the record got its current text, if that is an earlier version."""

SEQUENCE = "sequence"
"""Orders entries that were written at the same moment. It grows with every entry that a
process writes. Older entries have none.
"""

SAID_BY = "said_by"
"""The users who wrote something through their own handles in a session that has another
user, or none.
"""

FORKED_FROM = "forked_from"
"""The sessions whose messages a fork copied when it began. See `forks.py`."""

DERIVED_FROM = "derived_from"
"""References to the sources from which an entry was made. See `sources.py`."""

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
    Field("origins", FieldType.TAGS, indexed=True),  # its further origins: see `memory.domain.provenance`
    Field(SEQUENCE, FieldType.INTEGER),
    Field(DERIVED_FROM, FieldType.TAGS, indexed=True),
)
_ENTRY_TEXTS = (
    TextPart("title", 10.0),
    TextPart("content", 4.0),
    TextPart("tags", 8.0),
    TextPart("source", 2.0),
)  # a match in the title weighs most, then tags, content and source

_BESIDE = (("conversation_id", "number_in_conversation"),)

ENTRIES = Collection(
    "entries",
    _ENTRY_FIELDS,
    _ENTRY_TEXTS,
    vector=True,
    indexes=(*_BESIDE, ("source", "run")),
    orders=("updated_at",),
)
"""The entries that agents write. The index finds the entries of a source, optionally of
one of its runs. A tenant's entries are browsed by their last change.
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
"""The earlier versions of edited entries. They are immutable. A version was current
from `stored_version` until before `replaced_version`.
"""

ENTRY_PASSAGES = Collection(
    "entry_passages",
    (Field("part_of", FieldType.TEXT), Field("part", FieldType.INTEGER), Field(MODEL, FieldType.TEXT)),
    vector=True,
)
"""Vectors of the parts of long entries, for search by meaning. The version of a passage
is the entry's version when it got this text.
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
"""The short ids of a tenant's entries, such as `#42`. Each record names the entry that
has the number. The number of an artifact is a field of its manifest.
"""

COUNTERS = Collection("counters", (Field("last", FieldType.INTEGER), Field("nonce", FieldType.TEXT)))
"""The highest short id of each tenant. It outlives the tenant's erasure, so that no
number is given twice.
"""

SESSIONS = Collection(
    "sessions",
    (
        Field("session_id", FieldType.TEXT),
        Field("status", FieldType.TEXT, indexed=True),
        Field("subject", FieldType.TEXT, indexed=True),  # the user of the session
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT, indexed=True),
        Field("tags", FieldType.TAGS),
        Field("touched_at", FieldType.TIME, indexed=True, required=True),
        Field(FORKED_FROM, FieldType.TAGS, indexed=True),
        Field(
            "hidden_from", FieldType.TIME, indexed=True
        ),  # the session's expiry; not the record's own, because a store may delete expired records by itself
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
        Field("marks", FieldType.INTEGER),  # as in entries
        Field("tokens", FieldType.INTEGER),
        Field(
            "subject", FieldType.TEXT, indexed=True
        ),  # of its session, like agent and namespace: messages are found by them
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field("uploads", FieldType.TAGS),  # the uploads of its large texts, which are in `artifacts`
        Field(SAID_BY, FieldType.TAGS),
        Field("at", FieldType.TIME),  # the message's own time, if it has one
    ),
    (TextPart("content", 1.0),),
    indexes=(
        ("conversation_id", "message_id"),
        ("conversation_id", "event"),
        ("conversation_id", "number_in_conversation"),
    ),
)
"""The logs of conversations: one record for each event. Most events are messages."""

ARTIFACTS = Collection(
    "artifacts",
    (
        Field("conversation_id", FieldType.TEXT),
        Field("upload", FieldType.TEXT),
        Field("digest", FieldType.TEXT),
        Field("data", FieldType.BYTES),
    ),
)
"""Data that is too large for one row: chunks of messages' texts and of artifacts. Each
upload of a text that is under way has a record as well. A store of the short tier that
has no sessions holds copies of their windows here (see `window_copies.py`).
"""

MANIFESTS = Collection(
    "manifests",
    (
        Field("artifact_id", FieldType.TEXT, indexed=True),
        Field("incarnation", FieldType.TEXT),  # of the session that has it
        Field("upload", FieldType.TEXT),  # the upload whose chunks are its bytes
        Field("size", FieldType.INTEGER),
        Field("number", FieldType.INTEGER, indexed=True),  # set when first shown by it: see `short_ids.py`
    ),
)
"""The artifacts of sessions, one record for each path. A record is put once the chunks
of its bytes are stored; it names their upload.
"""

RESERVATIONS = Collection(
    "reservations",
    (
        Field("session_id", FieldType.TEXT, indexed=True),
        Field("session_generation", FieldType.INTEGER),
        Field("upload", FieldType.TEXT),
        Field("manifest", FieldType.TEXT),  # the id of the manifest that will name the upload
        Field("artifact_id", FieldType.TEXT),
        Field("bytes", FieldType.INTEGER),
    ),
)
"""The storage that each upload of an artifact uses of its tenant's quota. Each upload
has a record, and each tenant a balance of their total.
"""

PASSAGES = Collection(
    "passages",
    (
        Field("message", FieldType.TEXT),  # the id of the message of which this is a part
        Field("part", FieldType.INTEGER),
        Field("subject", FieldType.TEXT),  # of its session, as in the message
        Field("agent", FieldType.TEXT),
        Field("namespace", FieldType.TEXT),
        Field(MODEL, FieldType.TEXT),
        Field("at", FieldType.TIME),
    ),
    vector=True,
)
"""Vectors of the parts of messages' texts, for search by meaning. They hold no text.
The version of a passage is the message's version when it got this text.
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
"""The tasks of sessions, each in the partition of its session."""

CLAIMS = Collection(
    "claims",
    (
        Field("session_id", FieldType.TEXT, indexed=True),
        Field("session_generation", FieldType.INTEGER),
        Field("task_key", FieldType.TEXT),
    ),
)
"""Which session has the task with an id, so that no other session may have it. The
record holds no text. Its key is derived from the task's id.
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
"""The runs that sessions delegated to others, each in the delegating session's
partition.
"""

SCRATCHPADS = Collection(
    "scratchpads",
    (
        Field("place", FieldType.INTEGER),
        Field("cleared", FieldType.INTEGER),  # up to this place all is cleared;
        Field("bytes", FieldType.INTEGER),  # of the data appended here;
        Field("size", FieldType.INTEGER),  # of the whole scratchpad after this record;
        Field("parts", FieldType.INTEGER),  # how many, if the data is too long for one record
        Field("nonce", FieldType.TEXT),
        Field("data", FieldType.BYTES),
    ),
)
"""The notes of agents: one record for each append or clearing, in the order of their
places. Parts of long appends have no place.
"""

DOCUMENTS = Collection(
    "documents",
    (
        Field("key", FieldType.TEXT, required=True),
        Field("form", FieldType.TEXT),  # of the value: "json" or "bytes"
        Field("size", FieldType.INTEGER),  # of the value in bytes
        Field("data", FieldType.BYTES),  # bytes that are stored in the record itself
        Field("upload", FieldType.TEXT),  # the chunks of a large value
        Field("chunks", FieldType.INTEGER),
        Field("lifetime", FieldType.INTEGER),  # microseconds for which each read keeps it
        Field("has_nul", FieldType.BOOLEAN),  # true if a text in the value has one
    ),
    orders=("key",),
)
"""JSON or bytes under a key of a scope. The id of a record derives from the key."""

DOCUMENT_CHUNKS = Collection(
    "document_chunks",
    (
        Field("document_id", FieldType.TEXT, indexed=True),
        Field("upload", FieldType.TEXT, indexed=True),
        Field("place", FieldType.INTEGER),
        Field("data", FieldType.BYTES),
    ),
)
"""The parts of documents that are too large for one record."""

OPERATIONS = Collection("operations", (Field("kind", FieldType.TEXT),), upkeep=True)
"""Operations of several steps that are under way. Their pending steps say what remains.
"""

REQUESTS = Collection(
    "requests", (Field("status", FieldType.TEXT), Field("about", FieldType.TAGS, indexed=True))
)
"""The calls that were made under request ids. The records hold digests, ids and
versions; see `requests.py`.
"""

HOLDS = Collection("holds", (Field("held_scope", FieldType.TEXT, indexed=True),))
"""Legal holds, one record for each held thing. A hold on an entry names its scope too.
"""

LEASES = Collection("leases", (Field("holder", FieldType.TEXT), Field("until", FieldType.TIME)), upkeep=True)
"""The lease of the process that runs maintenance now."""

SETTINGS = Collection("settings")
"""Facts that a store keeps about itself, such as the embedder that made its vectors."""
