"""Search: candidates from each store, merged, ranked, loaded and answered.

For entries (`pool`, then `search`) and for messages (`message_candidates`, then
`message_search`). `advisors` wraps the search. Ranking itself is
`memory.policies.ranking`.
It imports `conversations` and the packages below it.
"""

__all__ = [
    "long_texts",
    "search",
]
