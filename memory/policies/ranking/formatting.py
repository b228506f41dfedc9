"""How relevance looks to people."""

from __future__ import annotations


def percentage(relevance: float) -> str:
    """Return a relevance as people read it, with a decimal where it is small."""
    share = 100 * relevance
    return f"{share:.0f} %" if share >= 9.95 else f"{share:.1f} %"
