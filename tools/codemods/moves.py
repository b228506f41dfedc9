"""Where modules moved: the old path of each module and the new one, and what each new
package is for.

`python -m tools.codemods.move` moves the files and rewrites what names them.
"""

from __future__ import annotations

ROOT = "memory.orchestrator"

_STORAGE = {
    "at_once": "concurrency",
    "allowance": "budgets",
    "cache": "cache",
    "calling": "callbacks",
    "collections": "collections",
    "conversations.places": "places",
    "deliveries": "deliveries",
    "entry_records": "entry_records",
    "generations": "generations",
    "kinds": "kinds",
    "lease": "lease",
    "lives": "id_reuse",
    "outbox": "outbox",
    "partial_answers": "partial_answers",
    "past": "past_versions",
    "placement": "placement",
    "rounds": "rounds",
    "session_keys": "session_keys",
    "setbacks": "rollback_detection",
    "settings": "settings",
    "sources": "sources",
    "split": "split",
    "standings": "standings",
    "steps": "steps",
    "store_notes": "store_notes",
    "topology": "topology",
    "turns": "key_locks",
    "versions": "versions",
    "word_indexes": "word_indexes",
}
_ERASURE = {"erasure": "erasure", "holds": "legal_holds"}
_TRUST = {"distrusts": "blocked_sources", "gates": "gates", "trust": "trust"}
_EMBEDDINGS = {"meaning": "embeddings", "passages": "passages", "retrieval.forms": "partition_indexes"}
_ENTRIES = {
    "accesses": "accesses",
    "admission": "admission",
    "births": "writing",
    "browsing": "browsing",
    "dangling": "orphans",
    "derivation": "derivation",
    "derivatives": "derivatives",
    "entries": "entries",
    "graph": "graph",
    "numbers": "short_ids",
    "relations": "relations",
    "scratchpads": "scratchpads",
}
_CONVERSATIONS = {
    "conversations.artifacts": "blobs.large_texts",
    "conversations.balances": "blobs.balances",
    "conversations.manifests": "blobs.manifests",
    "conversations.reservations": "blobs.reservations",
    "conversations.uploads": "blobs.uploads",
    "conversations.beside": "tasks.named_records",
    "conversations.runs": "tasks.runs",
    "conversations.tasks": "tasks.tasks",
    "conversations.events": "log.events",
    "conversations.folding": "log.folding",
    "conversations.forks": "log.forks",
    "conversations.life": "log.incarnation",
    "conversations.log": "log.log",
    "conversations.passages": "log.passages",
    "conversations.previews": "log.previews",
    "conversations.seen": "log.seen",
    "conversations.compacting": "window.compaction",
    "conversations.handle": "window.handle",
    "conversations.history": "window.history",
    "conversations.reading": "window.reading",
    "conversations.reads": "window.reads",
    "conversations.replacing": "window.replacing",
    "conversations.streaming": "window.streaming",
    "conversations.conversation": "conversation",
    "conversations.conversations": "conversations",
    "conversations.onward": "window_exits",
    "conversations.redaction": "redaction",
    "conversations.sessions": "sessions",
    "conversations.taught": "derived_entries",
    "referrers": "artifact_references",
}
_RETRIEVAL = {
    "conversations.candidates": "message_candidates",
    "conversations.finding": "message_search",
    "long_texts": "long_texts",
    "retrieval.advised": "advisors",
    "retrieval.choosing": "choosing",
    "retrieval.own": "embedder_change",
    "retrieval.past": "past_candidates",
    "retrieval.pool": "pool",
    "retrieval.searching": "search",
}
_ENRICHMENT = {"checking": "conflicts", "enriching": "enrichment", "superseding": "superseding"}
_TIERING = {
    "after_writes": "after_writes",
    "endings": "session_ends",
    "foreseen": "dry_run",
    "foreseen_moves": "dry_run_moves",
    "foreseen_quotas": "dry_run_quotas",
    "judging": "rules",
    "planned": "plan",
    "planned_due": "dry_run_due",
    "promotion": "promotion",
    "quotas": "quotas",
    "ranks": "ranks",
    "retention": "retention",
    "tiering": "moves",
}
_MAINTENANCE = {
    "healing": "repair",
    "maintenance": "sweeps",
    "reindexing": "reindexing",
    "remaking": "vector_rebuild",
    "rolling_back": "reverting",
    "tenants": "tenant_erasure",
}
_TRANSFER = {
    "conversations.carried_artifacts": "artifact_import",
    "conversations.carrying": "session_import",
    "transfer": "records",
}
_PLACES = {
    "storage": _STORAGE,
    "erasure": _ERASURE,
    "trust": _TRUST,
    "embeddings": _EMBEDDINGS,
    "entries": _ENTRIES,
    "conversations": _CONVERSATIONS,
    "retrieval": _RETRIEVAL,
    "enrichment": _ENRICHMENT,
    "tiering": _TIERING,
    "maintenance": _MAINTENANCE,
    "transfer": _TRANSFER,
}

LAYERS = tuple(f"{ROOT}.{package}" for package in _PLACES)
"""The packages of the engine, lowest first: none imports one after it."""

ENGINE = {
    f"{ROOT}.{old}": f"{ROOT}.{package}.{new}"
    for package, modules in _PLACES.items()
    for old, new in modules.items()
}
"""Each module of the engine that moved. `engine.py` stays."""

RENAMES = {
    "memory.commands.reach": "memory.commands.command_context",
    "memory.domain.door": "memory.domain.validation",
    "memory.facade.reach": "memory.facade.command_context",
    "memory.facade.said": "memory.facade.chat_files",
    "memory.facade.twin": "memory.facade.sync_wrapper",
}
"""Modules that stay in their package under another name."""

MOVES = {**ENGINE, **RENAMES}

PACKAGES = {
    f"{ROOT}.storage": """The engine's records in the stores: where they lie and how they are written.

Everything that all other packages need and that knows no entry's life: stores by tier
(`topology`, `split`, `placement`), declared collections and what becomes of their
records (`collections`, `kinds`), pending steps and deliveries (`outbox`, `deliveries`),
versions, generations, locks within the process, the lease of maintenance, and how
records look (`entry_records`, `sources`).

It imports no other package of the engine.""",
    f"{ROOT}.erasure": """Deletion of records and of whole scopes, and the legal holds that forbid it.

What deletes one record, a scope's records in every store, or an expired record.
It imports `storage`.""",
    f"{ROOT}.trust": """What may be written and what may be shown: gates and blocked sources.

It imports `storage` and the packages below it.""",
    f"{ROOT}.embeddings": """Vectors: the embedder, passages, and indexes of partitions in the process.

What makes vectors and keeps them. What compares them with a question is `retrieval`.
It imports `storage` and the packages below it.""",
    f"{ROOT}.entries": """Entries: written, read, browsed, linked and derived from each other.

Also what belongs to entries: relations and their graph, short ids, access counts,
scratchpads. Writers ask for room by `admission`; quotas answer from `tiering`.
It imports `embeddings` and the packages below it.""",
    f"{ROOT}.conversations": """Conversations: a session's history is a log of events in one store.

Every change (a message, an exclusion, a roll-back, a compaction, the end) is one
record, put `Absent` under a key computed from its place in the log. That conditional
put is the append, the lock, the agreed order and the commit: a second writer reads what
the first one stored and tries the next place. Window, counts and status are a fold of
the log. Each event carries the totals after it, so the newest event is the head. A
window never contains half of a tool call: it is cut between complete steps
(`memory.policies.window`).

`log` holds events and their fold, `window` what a model reads, `blobs` large texts and
artifacts, `tasks` what a session has to do. The modules beside them put these together.
It imports `entries` and the packages below it.""",
    f"{ROOT}.conversations.log": """The log of a session: its events, their fold, and what a process has seen.""",
    f"{ROOT}.conversations.window": """What a model reads of a session: its window, its history and its compaction.""",
    f"{ROOT}.conversations.blobs": """Bytes beside the log: large texts of messages, and artifacts with a path.

Uploads in chunks, the manifests that name them, and the room that they take.""",
    f"{ROOT}.conversations.tasks": """What a session has to do: its tasks and its runs, by names of the caller's.""",
    f"{ROOT}.retrieval": """Search: candidates from each store, merged, ranked, loaded and answered.

For entries (`pool`, then `search`) and for messages (`message_candidates`, then
`message_search`). `advisors` wraps the search. Ranking itself is
`memory.policies.ranking`.
It imports `conversations` and the packages below it.""",
    f"{ROOT}.enrichment": """What is found out about an entry: tags, conflicts, and the entries it replaces.

An advisor's answers behind a write, conflicts before it, and entries that supersede
others.
It imports `retrieval` and the packages below it.""",
    f"{ROOT}.tiering": """What rules do: moves between tiers, promotion, retention, quotas, session ends.

Also the dry run, which plans the same without writing.
It imports `enrichment` and the packages below it.""",
    f"{ROOT}.maintenance": """Work that nobody waits for: sweeps, repair, reindexing, erasure of tenants.

It imports `tiering` and the packages below it.""",
    f"{ROOT}.transfer": """Export and import of records as they are stored.

Lines and files are the facade's affair.
It imports `maintenance` and the packages below it.""",
}
"""The docstring of each package."""
