"""Manage named stores for an agent: search, add, tools, injection and extraction."""

from memory.facade.manager.extraction import Extraction, ModelExtractor
from memory.facade.manager.injection import Injection
from memory.facade.manager.manager import MemoryManager
from memory.facade.manager.plain_files import JsonStore, MarkdownStore
from memory.facade.manager.recording import Recording
from memory.facade.manager.stores import MemoryStore, NamedStore, StoreEntry
from memory.facade.manager.tools import AddTool, SearchTool, Tool
from memory.policies.extracting import EveryNTurns, EveryTurn, ExtractedFact, MessageFilter

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
