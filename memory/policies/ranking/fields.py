"""The fields of candidates and their neighbours that ranking reads."""

from __future__ import annotations

from memory.ports.candidates import Neighbourhood

SELECT = frozenset(
    ("conversation_id", "number_in_conversation", "speaker", "marks", "type", "tags", "valid_from")
)
"""The fields of candidates that ranking reads."""
BESIDE = Neighbourhood("conversation_id", "number_in_conversation", 2)
"""The neighbours whose words and meaning count for a candidate.

They may also be answers themselves (retrieval.md).
"""
