"""Keep what one caller has read apart from other callers of the same process."""

from memory.orchestrator.conversations.window.reads import without_earlier_reads

__all__ = ["without_earlier_reads"]
