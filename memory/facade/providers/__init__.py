"""Ready-made providers of messages for agents, each over a memory's sessions, so that
each runs on any stores.
"""

from memory.facade.providers.buffer import BufferProvider
from memory.facade.providers.composite import CompositeProvider
from memory.facade.providers.provider import Provider, ProviderEntry, SessionProvider
from memory.facade.providers.semantic import SemanticProvider
from memory.facade.providers.sliding import SlidingWindowProvider
from memory.facade.providers.summarizing import SummarizingProvider, SummaryRequest
from memory.facade.providers.turn import Turn, turn_of

__all__ = [
    "BufferProvider",
    "CompositeProvider",
    "Provider",
    "ProviderEntry",
    "SemanticProvider",
    "SessionProvider",
    "SlidingWindowProvider",
    "SummarizingProvider",
    "SummaryRequest",
    "Turn",
    "turn_of",
]
