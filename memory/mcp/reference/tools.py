"""The nine tools of the reference server, with its schemas and answers.

Their answers are JSON of the whole result, as that server gives it. Unlike it, they
refuse unknown arguments.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as ToolListing
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from memory.domain.scope import Scope
from memory.mcp.arguments import Arguments
from memory.mcp.callers import Caller
from memory.mcp.reference.graph import EntityNotFound, KnowledgeGraph
from memory.mcp.reference.records import Entity, Relation, forbid_others
from memory.mcp.rendering import Answer
from memory.mcp.tools import Call, ToolDefinition

_ENTITY = {"name": "Ada", "entityType": "person", "observations": ["likes tea"]}
GRAPH_URI = "memory://knowledge-graph"
"""The resource with all of the graph."""
_RELATION = {"from": "Ada", "to": "Porto", "relationType": "lives_in"}


@forbid_others
class Addition(TypedDict):
    """Observations to add to an entity."""

    entityName: Annotated[str, Field(description="The name of the entity to add the observations to")]
    contents: Annotated[list[str], Field(description="An array of observation contents to add")]


@forbid_others
class Deletion(TypedDict):
    """Observations to delete from an entity."""

    entityName: Annotated[str, Field(description="The name of the entity containing the observations")]
    observations: Annotated[list[str], Field(description="An array of observations to delete")]


@forbid_others
class Added(TypedDict):
    """The observations that an entity got."""

    entityName: str
    addedObservations: list[str]


class Entities(Arguments):
    entities: list[Entity]


class Relations(Arguments):
    relations: list[Relation]


class RelationsToDelete(Arguments):
    relations: list[Relation] = Field(description="An array of relations to delete")


class Additions(Arguments):
    observations: list[Addition]


class Deletions(Arguments):
    deletions: list[Deletion]


class NamesToDelete(Arguments):
    entityNames: list[str] = Field(description="An array of entity names to delete")  # noqa: N815 - the protocol's


class Names(Arguments):
    names: list[str] = Field(description="An array of entity names to retrieve")


class Query(Arguments):
    query: str = Field(
        description="The search query to match against entity names, types, and observation content"
    )


class Nothing(Arguments):
    pass


class GraphAnswer(Arguments):
    entities: list[Entity]
    relations: list[Relation]


class Results(Arguments):
    results: list[Added]


class Success(Arguments):
    success: bool
    message: str


@dataclass(frozen=True)
class ReferenceTool(ToolDefinition):
    """A tool whose schemas and texts are those of the reference server."""

    def listing(self) -> ToolListing:
        """Return the tool as the reference server lists it."""
        listed = super().listing()
        given, answered = _inline(listed.input_schema), _inline(listed.output_schema or {})
        del given["examples"]
        annotations = listed.annotations and listed.annotations.model_copy(update={"title": None})
        changes = {"input_schema": given, "output_schema": answered, "annotations": annotations}
        return listed.model_copy(update=changes)

    def text_of(self, answer: Answer) -> str:
        """Return the text of an answer: it has no frame, but is JSON."""
        return "\n".join(answer.lines)

    def result_of(self, error: Exception) -> CallToolResult:
        """Return an error. For an unknown entity it is the text of that server."""
        result = super().result_of(error)
        if isinstance(error, EntityNotFound):
            result.content = [TextContent(type="text", text=str(error))]
        return result


def _inline(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without references and descriptions of classes."""
    shapes = schema.get("$defs", {})

    def inline(part: Any) -> Any:
        if isinstance(part, list):
            return [inline(one) for one in part]
        if not isinstance(part, dict):
            return part
        if (name := part.get("$ref")) is not None:
            shape = shapes[name.rpartition("/")[2]]
            return inline({key: value for key, value in shape.items() if key != "description"})
        return {key: inline(value) for key, value in part.items() if key != "$defs"}

    return {key: inline(value) for key, value in schema.items() if key not in ("$defs", "description")}


def graph_of(caller: Caller) -> KnowledgeGraph:
    """Return the graph of a caller: it is in the scope of its new entries.

    A caller that only reads has the graph of its first exact scope.

    Raises:
        Forbidden: All scopes of the caller are subtrees.
    """
    exact = caller.exact_scopes
    return KnowledgeGraph(caller.memory, exact[0] if exact else Scope.parse(caller.write_scope))


async def _call(
    method: Callable[..., Awaitable[Any]], field: str | None, call: Call, given: BaseModel
) -> Answer:
    """Call a method of the graph, and answer with its result.

    The text is the result itself. The data have it under a field, if one is named.
    """
    result = await method(graph_of(call.caller), *(getattr(given, name) for name in type(given).model_fields))
    return Answer({field: result} if field else result, [json.dumps(result, indent=2, ensure_ascii=False)])


async def _delete(method: Callable[..., Awaitable[None]], what: str, call: Call, given: BaseModel) -> Answer:
    """Call a method of the graph that deletes something, and say so."""
    await method(graph_of(call.caller), *(getattr(given, name) for name in type(given).model_fields))
    message = f"{what} deleted successfully"
    return Answer({"success": True, "message": message}, [message])


async def read_graph(call: Call) -> Answer:
    """Answer with all of the graph."""
    return await _call(KnowledgeGraph.read_graph, None, call, Nothing())


def _tool(
    name: str,
    description: str,
    arguments: type[BaseModel],
    answer: type[BaseModel],
    run: Callable[[Call, Any], Awaitable[Answer]],
    example: Mapping[str, Any],
    *,
    writes: bool = False,
) -> ReferenceTool:
    deletes = name.startswith("delete")
    return ReferenceTool(
        name,
        name.replace("_", " ").title(),
        description,
        arguments,
        answer,
        run,
        example,
        writes=writes or deletes,
        is_destructive=deletes,
        is_idempotent=deletes or not writes,
    )


REFERENCE_TOOLS: Sequence[ReferenceTool] = (
    _tool(
        "create_entities",
        "Create multiple new entities in the knowledge graph",
        Entities,
        Entities,
        partial(_call, KnowledgeGraph.create_entities, "entities"),
        {"entities": [_ENTITY]},
        writes=True,
    ),
    _tool(
        "create_relations",
        "Create multiple new relations between entities in the knowledge graph. Relations should be in active"
        " voice",
        Relations,
        Relations,
        partial(_call, KnowledgeGraph.create_relations, "relations"),
        {"relations": [_RELATION]},
        writes=True,
    ),
    _tool(
        "add_observations",
        "Add new observations to existing entities in the knowledge graph",
        Additions,
        Results,
        partial(_call, KnowledgeGraph.add_observations, "results"),
        {"observations": [{"entityName": "Ada", "contents": ["likes tea"]}]},
        writes=True,
    ),
    _tool(
        "delete_entities",
        "Delete multiple entities and their associated relations from the knowledge graph",
        NamesToDelete,
        Success,
        partial(_delete, KnowledgeGraph.delete_entities, "Entities"),
        {"entityNames": ["Ada"]},
    ),
    _tool(
        "delete_observations",
        "Delete specific observations from entities in the knowledge graph",
        Deletions,
        Success,
        partial(_delete, KnowledgeGraph.delete_observations, "Observations"),
        {"deletions": [{"entityName": "Ada", "observations": ["likes tea"]}]},
    ),
    _tool(
        "delete_relations",
        "Delete multiple relations from the knowledge graph",
        RelationsToDelete,
        Success,
        partial(_delete, KnowledgeGraph.delete_relations, "Relations"),
        {"relations": [_RELATION]},
    ),
    _tool(
        "read_graph",
        "Read the entire knowledge graph",
        Nothing,
        GraphAnswer,
        partial(_call, KnowledgeGraph.read_graph, None),
        {},
    ),
    _tool(
        "search_nodes",
        "Search for nodes in the knowledge graph based on a query",
        Query,
        GraphAnswer,
        partial(_call, KnowledgeGraph.search_nodes, None),
        {"query": "tea"},
    ),
    _tool(
        "open_nodes",
        "Open specific nodes in the knowledge graph by their names",
        Names,
        GraphAnswer,
        partial(_call, KnowledgeGraph.open_nodes, None),
        {"names": ["Ada"]},
    ),
)
