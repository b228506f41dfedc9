"""A manager over named stores, as agents use it: search and add, tools for a model, memory shown to it."""

from memory.facade.manager.injection import Injection
from memory.facade.manager.manager import MemoryManager
from memory.facade.manager.plain_files import JsonStore, MarkdownStore
from memory.facade.manager.stores import MemoryStore, NamedStore, StoreEntry
from memory.facade.manager.tools import AddTool, SearchTool, Tool

__all__ = ["AddTool", "Injection", "JsonStore", "MarkdownStore", "MemoryManager", "MemoryStore", "NamedStore", "SearchTool", "StoreEntry", "Tool"]
