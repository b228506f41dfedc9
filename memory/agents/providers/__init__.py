"""Ready-made message providers for agents, on the sessions of a memory.

They run on any store.
"""

from memory.agents.providers.buffer import BufferProvider
from memory.agents.providers.composite import CompositeProvider
from memory.agents.providers.provider import Provider, SessionProvider
from memory.agents.providers.semantic import SemanticProvider
from memory.agents.providers.sliding import SlidingWindowProvider
from memory.agents.providers.summarizing import SummarizingProvider, SummaryRequest
from memory.agents.providers.turn import Turn, turn_of
from memory.domain.agent_results import ProviderEntry

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
