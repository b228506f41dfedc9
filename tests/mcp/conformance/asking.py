"""Fixtures of the conformance suite that ask their client for something.

No tool of this library asks. The fixtures show that the server passes such requests on
for tools and prompts that are registered with the SDK.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    TextContent,
)

from memory.mcp.server import MemoryServer

_OPTIONS = ["option1", "option2", "option3"]
_VALUES = [
    {"const": f"value{n}", "title": f"{nth} Option"} for n, nth in enumerate(("First", "Second", "Third"), 1)
]
FORMS: dict[str, dict[str, Any]] = {
    "test_elicitation": {"username": {"type": "string"}, "email": {"type": "string"}},
    "test_elicitation_sep1034_defaults": {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    },
    "test_elicitation_sep1330_enums": {
        "untitledSingle": {"type": "string", "enum": _OPTIONS},
        "titledSingle": {"type": "string", "oneOf": _VALUES},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": _OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": _VALUES}},
    },
}
"""The forms of the handshake's revision, by their tool."""


def _form(message: str, **properties: Any) -> InputRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sampling(text: str) -> InputRequest:
    said = SamplingMessage(role="user", content=TextContent(type="text", text=text))
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=[said], max_tokens=100))


_TEXT = {"type": "string"}
_NAME = _form("What is your name?", name=_TEXT)
_CONFIRM = _form("Please confirm", ok={"type": "boolean"})
_PREFIX = "test_input_required_result_"
Round = Mapping[str, InputRequest]
ROUNDS: dict[str, tuple[Sequence[Round], bool]] = {
    "elicitation": ([{"user_name": _NAME}], False),
    "sampling": ([{"capital_question": _sampling("What is the capital of France?")}], False),
    "list_roots": ([{"client_roots": ListRootsRequest()}], False),
    "request_state": ([{"confirm": _CONFIRM}], True),
    "tampered_state": ([{"confirm": _CONFIRM}], True),
    "multiple_inputs": (
        [
            {
                "user_name": _NAME,
                "greeting": _sampling("Generate a greeting"),
                "client_roots": ListRootsRequest(),
            }
        ],
        True,
    ),
    "multi_round": (
        [
            {"step1": _form("Step 1: What is your name?", name=_TEXT)},
            {"step2": _form("Step 2: What is your favorite color?", color=_TEXT)},
        ],
        True,
    ),
    "capabilities": ([{"user_name": _NAME, "greeting": _sampling("Generate a greeting")}], False),
}
"""What each tool asks for in its rounds, and whether it keeps a state."""


def ask(context: Context[Any, Any], rounds: Sequence[Round], keeps_state: bool) -> InputRequiredResult | str:
    """Ask for what a round lacks, or return what the client answered."""
    done = int(context.request_state or 0)
    given = context.input_responses or {}
    if rounds[done].keys() <= given.keys():
        done += 1
    if done == len(rounds):
        return f"state-ok: {json.dumps({name: one.model_dump(mode='json') for name, one in given.items()})}"
    able = context.client_capabilities
    kinds = {"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots"}
    wanted = {
        name: one
        for name, one in rounds[done].items()
        if len(rounds[done]) == 1 or getattr(able, kinds[one.method], None) is not None
    }
    return InputRequiredResult(input_requests=wanted, request_state=str(done) if keeps_state else None)


def add_asking_fixtures(server: MemoryServer) -> None:
    """Add the tools and the prompt that ask."""
    for name, (rounds, keeps_state) in ROUNDS.items():
        _add_rounds(server, f"{_PREFIX}{name}", rounds, keeps_state)
    for name, properties in FORMS.items():
        _add_form(server, name, properties)

    @server.tool(description="A fixture.", structured_output=False)
    async def test_sampling(prompt: str, context: Context[Any, Any]) -> str:
        said = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        answer = await context.session.create_message(
            [said], max_tokens=100, related_request_id=context.request_id
        )
        return f"LLM response: {answer.content}"

    @server.tool(description="A fixture.", structured_output=False)
    def test_missing_capability(context: Context[Any, Any]) -> str:
        if getattr(context.client_capabilities, "sampling", None) is None:
            lacks: dict[str, Any] = {"requiredCapabilities": {"sampling": {}}}
            raise MCPError(MISSING_REQUIRED_CLIENT_CAPABILITY, "this tool needs sampling", lacks)
        return "done"

    @server.prompt(f"{_PREFIX}prompt", description="A fixture.")
    def prompt(context: Context[Any, Any]) -> InputRequiredResult | str:
        asked = _form("What context should the prompt use?", context=_TEXT)
        return ask(context, [{"user_context": asked}], keeps_state=False)


def _add_rounds(server: MemoryServer, name: str, rounds: Sequence[Round], keeps_state: bool) -> None:
    @server.tool(name, description="A fixture.", structured_output=False)
    def asking(context: Context[Any, Any]) -> CallToolResult | InputRequiredResult:
        answer = ask(context, rounds, keeps_state)
        if isinstance(answer, str):
            return CallToolResult(content=[TextContent(type="text", text=answer)])
        return answer


def _add_form(server: MemoryServer, name: str, properties: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": properties}

    @server.tool(name, description="A fixture.", structured_output=False)
    async def form(context: Context[Any, Any], message: str = "Please fill in") -> str:
        answer = await context.session.elicit_form(message, schema, context.request_id)
        return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"
