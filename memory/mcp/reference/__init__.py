"""The tools of the reference server for MCP, over entries of this memory."""

from memory.mcp.reference.graph import EntityNotFound, KnowledgeGraph
from memory.mcp.reference.records import Entity, Graph, Relation

__all__ = ["Entity", "EntityNotFound", "Graph", "KnowledgeGraph", "Relation"]
