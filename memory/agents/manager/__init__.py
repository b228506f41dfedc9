"""Manage named stores for an agent: search, add, tools, injection and extraction."""

from memory.agents.manager.extraction import Extraction, ModelExtractor
from memory.agents.manager.injection import Injection
from memory.agents.manager.manager import MemoryManager
from memory.agents.manager.plain_files import JsonStore, MarkdownStore
from memory.agents.manager.recording import Recording
from memory.agents.manager.stores import MemoryStore, NamedStore
from memory.agents.manager.tools import AddTool, SearchTool, Tool
from memory.domain.agent_results import StoreEntry
from memory.policies.extraction import EveryNTurns, EveryTurn, ExtractedFact, MessageFilter

__all__ = [
    "AddTool",
    "EveryNTurns",
    "EveryTurn",
    "ExtractedFact",
    "Extraction",
    "Injection",
    "JsonStore",
    "MarkdownStore",
    "MemoryManager",
    "MemoryStore",
    "MessageFilter",
    "ModelExtractor",
    "NamedStore",
    "Recording",
    "SearchTool",
    "StoreEntry",
    "Tool",
]
