"""Ready-made providers of messages for agents, each over a memory's sessions, so that
each runs on any stores.
"""

from memory.agents.providers.buffer import BufferProvider
from memory.agents.providers.composite import CompositeProvider
from memory.agents.providers.provider import Provider, ProviderEntry, SessionProvider
from memory.agents.providers.semantic import SemanticProvider
from memory.agents.providers.sliding import SlidingWindowProvider
from memory.agents.providers.summarizing import SummarizingProvider, SummaryRequest
from memory.agents.providers.turn import Turn, turn_of

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
