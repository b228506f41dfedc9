"""Search: candidates from each store, merged, ranked, loaded and answered.

Entries pass through `pool` and `search`, messages through `message_candidates` and
`message_search`. `advisors` wraps the search. Ranking itself is in
`memory.policies.ranking`. The package imports `conversations` and the packages below
it.
"""

__all__ = [
    "long_texts",
    "search",
]
