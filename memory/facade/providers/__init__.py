"""Ready-made message providers for agents, on the sessions of a memory.

They run on any store.
"""

from memory.facade.providers.buffer import BufferProvider
from memory.facade.providers.composite import CompositeProvider
from memory.facade.providers.provider import Provider, ProviderEntry, SessionProvider
from memory.facade.providers.semantic import SemanticProvider
from memory.facade.providers.sliding import SlidingWindowProvider
from memory.facade.providers.summarizing import SummarizingProvider, SummaryAsked
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
    "SummaryAsked",
    "Turn",
    "turn_of",
]
