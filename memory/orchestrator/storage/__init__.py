"""The engine's records in the stores: where they lie and how they are written.

Everything that all other packages need and that knows no entry's life: stores by tier
(`topology`, `split`, `placement`), declared collections and what becomes of their
records (`collections`, `kinds`), pending steps and deliveries (`outbox`, `deliveries`),
versions, generations, locks within the process, the lease of maintenance, and how
records look (`entry_records`, `sources`).

It imports no other package of the engine.
"""

__all__ = [
    "budgets",
    "cache",
    "callbacks",
    "collections",
    "concurrency",
    "deliveries",
    "entry_records",
    "generations",
    "id_reuse",
    "key_locks",
    "kinds",
    "lease",
    "outbox",
    "partial_answers",
    "past_versions",
    "placement",
    "places",
    "rollback_detection",
    "rounds",
    "session_keys",
    "settings",
    "sources",
    "split",
    "standings",
    "steps",
    "topology",
    "versions",
    "word_indexes",
]
