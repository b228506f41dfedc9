"""The engine's records in the stores: their location, their layout, and their writes.

This package holds all that the other packages share and that does not depend on the
lifecycle of an entry:

- stores by tier: `topology`, `split`, `placement`, `document_homes`;
- declared collections and the handling of their records: `collections`, `kinds`;
- pending steps and deliveries: `outbox`, `deliveries`;
- versions, generations, locks within the process, and the maintenance lease;
- the layout of records: `entry_records`, `sources`.

It imports no other package of the engine.
"""

__all__ = [
    "budgets",
    "cache",
    "callbacks",
    "collections",
    "deliveries",
    "document_homes",
    "entry_records",
    "generations",
    "id_reuse",
    "key_locks",
    "kinds",
    "lease",
    "operations",
    "outbox",
    "partial_answers",
    "past_versions",
    "placement",
    "places",
    "requests",
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
