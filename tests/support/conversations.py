"""Drawn conversations in the shape of each framework, as its programs store them.

A conversation is drawn once in neutral words, and written down as each framework has
it. Nothing here uses the library's own converters.
"""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

Fields = dict[str, Any]
PICTURE = base64.b64encode(bytes(range(256)) * 3).decode()
WORDS = (
    "river amber stone quiet lantern maple harbor velvet copper meadow signal orbit ancient ladder".split()
)
TOOLS = ("weather", "search_files", "run_shell", "read_page")


@dataclass
class Call:
    id: str
    name: str
    arguments: Fields
    result: Any
    """A text or an object; empty text if the tool said nothing."""
    failed: bool = False


@dataclass
class Turn:
    """A text of the user, then steps of the assistant: thoughts, text and calls."""

    user: str
    picture: bool
    steps: list[tuple[str, str, list[Call]]]
    number: int
    answers: str = ""


@dataclass
class Drawn:
    items: list[Fields]
    """The conversation as the framework has it."""
    texts: list[str] = field(default_factory=list)
    """The texts of user and assistant."""
    results: list[str] = field(default_factory=list)
    """Texts that tools answer."""


class Drawing:
    """Draws one conversation."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"conversation {seed}")  # noqa: S311 - not for secrets
        self.seed = seed
        self.said = 0
        self.at = datetime(2026, 3, 1, 9, tzinfo=UTC) + timedelta(hours=seed)
        self.repeats = self.random.random() < 0.3
        """Whether ids repeat, as they do after a fork or a retry of a framework."""

    def words(self, most: int = 12) -> str:
        """Return a text that occurs once in all conversations."""
        self.said += 1
        some = self.random.choices(WORDS, k=self.random.randint(1, most))
        accents = self.random.choice(["", " naïve", " 東京", " 🙂", "\nnext line", ' "quoted"'])
        return f"{' '.join(some)}{accents} u{self.seed}x{self.said}"

    def id(self, kind: str) -> str:
        number = 1 if self.repeats else self.random.getrandbits(60)
        return f"{kind}_{number:x}"

    def moment(self) -> str:
        self.at += timedelta(seconds=self.random.randint(1, 90))
        return self.at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def turns(self) -> list[Turn]:
        found = []
        for number in range(self.random.randint(1, 4)):
            steps: list[tuple[str, str, list[Call]]] = []
            for _ in range(self.random.choice([0, 0, 1, 1, 2])):
                thought = self.words() if self.random.random() < 0.5 else ""
                text = self.words() if self.random.random() < 0.6 else ""
                steps.append((thought, text, self.calls(number * 100 + len(steps) * 10)))
            thought = self.words() if self.random.random() < 0.4 else ""
            found.append(
                Turn(self.words(30), self.random.random() < 0.25, steps, number, answers=self.words(40))
            )
            found[-1].steps.append((thought, found[-1].answers, []))
        return found

    def calls(self, number: int) -> list[Call]:
        made = []
        for at in range(self.random.randint(1, 3)):
            result: Any = self.random.choice(
                [self.words(20), {"temperature": 21.5, "note": self.words(3)}, "", self.words(3)]
            )
            arguments: Fields = {"query": self.words(5), "limit": self.random.randint(1, 9)}
            if self.random.random() < 0.3:
                arguments = {
                    "path": f"/srv/{at}.txt",
                    "content": self.words(8) * 9,
                    "deep": {"a": [1, None, True]},
                }
            name = self.random.choice(TOOLS)
            made.append(
                Call(f"call_{self.seed}_{number}_{at}", name, arguments, result, self.random.random() < 0.15)
            )
        return made

    def maybe(self, share: float = 0.5) -> bool:
        return self.random.random() < share


def text_of(result: Any) -> str:
    return result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)


def drawn(format: str, seed: int) -> Drawn:
    """Return conversation number `seed` as the framework of this format has it."""
    it = Drawing(seed)
    turns = it.turns()
    items = _WRITERS[format](it, copy.deepcopy(turns))
    found = Drawn(items)
    for turn in turns:
        found.texts.append(turn.user)
        for _, text, calls in turn.steps:
            found.texts += [text] if text else []
            found.results += [one.result for one in calls if isinstance(one.result, str) and one.result]
    return found


def _openai(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    if it.maybe():
        items.append({"role": it.random.choice(["system", "developer"]), "content": it.words()})
    for turn in turns:
        content: Any = turn.user
        if turn.picture:
            content = [
                {"type": "text", "text": turn.user},
                {
                    "type": "image_url",
                    "image_url": {"url": f"data:image/png;base64,{PICTURE}", "detail": "low"},
                },
            ]
        items.append({"role": "user", "content": content} | ({"name": "ada"} if it.maybe(0.2) else {}))
        for thought, text, calls in turn.steps:
            said: Fields = {"role": "assistant", "content": text or None}
            if thought:
                said["reasoning_content"] = thought
            if it.maybe(0.3):
                said |= {"refusal": None, "annotations": [], "audio": None}
            if calls:
                said["tool_calls"] = [
                    {
                        "id": one.id,
                        "type": "function",
                        "function": {"name": one.name, "arguments": json.dumps(one.arguments, indent=1)},
                    }
                    for one in calls
                ]
            items.append(said)
            items += [
                {"role": "tool", "tool_call_id": one.id, "content": text_of(one.result)} for one in calls
            ]
    return items


def _openai_responses(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    for turn in turns:
        if turn.picture:
            items.append(
                {
                    "type": "message",
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": turn.user},
                        {
                            "type": "input_image",
                            "image_url": f"data:image/png;base64,{PICTURE}",
                            "detail": "auto",
                        },
                        {"type": "input_file", "file_id": "file-1", "filename": "a.pdf"},
                    ],
                }
            )
        else:
            items.append({"role": "user", "content": turn.user, "type": "message"})
        for thought, text, calls in turn.steps:
            if thought:
                items.append(
                    {
                        "id": it.id("rs"),
                        "type": "reasoning",
                        "summary": [{"type": "summary_text", "text": thought}] if it.maybe() else [],
                        "encrypted_content": "gAAAA" + PICTURE[:200],
                        "status": None,
                    }
                )
            if it.maybe(0.2):
                items.append(
                    {
                        "id": it.id("ws"),
                        "type": "web_search_call",
                        "status": "completed",
                        "action": {"type": "search", "query": "rain", "sources": None},
                    }
                )
            if text:
                items.append(
                    {
                        "id": it.id("msg"),
                        "type": "message",
                        "role": "assistant",
                        "status": "completed",
                        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
                    }
                )
            for one in calls:
                if it.maybe(0.1):
                    items.append(
                        {
                            "id": it.id("ctc"),
                            "type": "custom_tool_call",
                            "call_id": one.id,
                            "name": one.name,
                            "input": "print(1)",
                        }
                    )
                    one.name = "custom"
                else:
                    items.append(
                        {
                            "id": it.id("fc"),
                            "type": "function_call",
                            "call_id": one.id,
                            "name": one.name,
                            "arguments": json.dumps(one.arguments),
                            "status": "completed",
                        }
                    )
            items += [
                {
                    "type": "custom_tool_call_output" if one.name == "custom" else "function_call_output",
                    "call_id": one.id,
                    "output": text_of(one.result),
                }
                for one in calls
            ]
    if it.maybe(0.2):
        items.insert(0, {"id": it.id("cmp"), "type": "compaction", "encrypted_content": PICTURE})
    return items


def _anthropic(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    for turn in turns:
        content: Any = turn.user
        if turn.picture:
            source = {"type": "base64", "media_type": "image/png", "data": PICTURE}
            content = [
                {"type": "image", "source": source},
                {"type": "text", "text": turn.user, "cache_control": {"type": "ephemeral"}},
            ]
        items.append({"role": "user", "content": content})
        for thought, text, calls in turn.steps:
            blocks: list[Fields] = []
            if thought:
                blocks.append({"type": "thinking", "thinking": thought, "signature": PICTURE[:80]})
            if it.maybe(0.1):
                blocks.append({"type": "redacted_thinking", "data": PICTURE[:60]})
            if text:
                blocks.append({"type": "text", "text": text})
            blocks += [
                {"type": "tool_use", "id": one.id, "name": one.name, "input": one.arguments} for one in calls
            ]
            said: Fields = {"role": "assistant", "content": blocks}
            if it.maybe(0.3):
                said |= {
                    "id": it.id("msg"),
                    "type": "message",
                    "model": "claude",
                    "stop_reason": "tool_use" if calls else "end_turn",
                    "stop_sequence": None,
                    "usage": {"input_tokens": 12, "output_tokens": 34},
                }
            items.append(said)
            if calls:
                items.append({"role": "user", "content": [_anthropic_result(it, one) for one in calls]})
    return items


def _anthropic_result(it: Drawing, call: Call) -> Fields:
    content: Any = text_of(call.result)
    if it.maybe(0.3) and content:
        content = [{"type": "text", "text": content}]
    block = {"type": "tool_result", "tool_use_id": call.id, "content": content}
    return block | ({"is_error": True} if call.failed else {})


def _langchain(it: Drawing, turns: list[Turn]) -> list[Fields]:
    def message(kind: str, content: Any, **others: Any) -> Fields:
        data = {
            "content": content,
            "additional_kwargs": {},
            "response_metadata": {},
            "type": kind,
            "name": None,
        }
        return {"type": kind, "data": {**data, "id": it.id("run") if it.maybe() else None, **others}}

    items = [message("system", it.words())] if it.maybe() else []
    for turn in turns:
        content: Any = turn.user
        if turn.picture:
            content = [
                {"type": "text", "text": turn.user},
                {"type": "image_url", "image_url": {"url": "https://pictures.test/a.png"}},
            ]
        items.append(message("human", content))
        for thought, text, calls in turn.steps:
            items.append(
                message(
                    "ai",
                    text,
                    additional_kwargs={"reasoning_content": thought} if thought else {},
                    tool_calls=[
                        {"name": one.name, "args": one.arguments, "id": one.id, "type": "tool_call"}
                        for one in calls
                    ],
                    invalid_tool_calls=[],
                    usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
                )
            )
            items += [
                message(
                    "tool",
                    text_of(one.result),
                    tool_call_id=one.id,
                    artifact={"rows": [1, 2]} if it.maybe(0.3) else None,
                    status="error" if one.failed else "success",
                )
                for one in calls
            ]
    return items


def _bedrock(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    for turn in turns:
        blocks: list[Fields] = [{"text": turn.user}]
        if turn.picture:
            blocks.append({"image": {"format": "png", "source": {"bytes": base64.b64decode(PICTURE)}}})
            blocks.append(
                {"document": {"format": "pdf", "name": "paper", "source": {"bytes": b"%PDF-1.7\xff"}}}
            )
        if it.maybe(0.2):
            blocks.append({"cachePoint": {"type": "default"}})
        items.append({"role": "user", "content": blocks})
        for thought, text, calls in turn.steps:
            said: list[Fields] = []
            if thought:
                said.append({"reasoningContent": {"reasoningText": {"text": thought, "signature": "c2ln"}}})
            elif it.maybe(0.1):
                said.append({"reasoningContent": {"redactedContent": b"\x00\x01hidden"}})
            said += [{"text": text}] if text else []
            said += [
                {"toolUse": {"toolUseId": one.id, "name": one.name, "input": one.arguments}} for one in calls
            ]
            items.append({"role": "assistant", "content": said})
            if calls:
                items.append(
                    {
                        "role": "user",
                        "content": [
                            {
                                "toolResult": {
                                    "toolUseId": one.id,
                                    "content": [
                                        {"text": one.result}
                                        if isinstance(one.result, str)
                                        else {"json": one.result}
                                    ],
                                    "status": "error" if one.failed else "success",
                                }
                            }
                            for one in calls
                        ],
                    }
                )
    return items


def _gemini(it: Drawing, turns: list[Turn]) -> list[Fields]:
    camel = it.maybe()
    call_name, response_name, data_name = (
        ("functionCall", "functionResponse", "inlineData")
        if camel
        else ("function_call", "function_response", "inline_data")
    )
    mime, signature = ("mimeType", "thoughtSignature") if camel else ("mime_type", "thought_signature")
    has_ids = it.maybe()
    items: list[Fields] = []
    for turn in turns:
        parts: list[Fields] = [{"text": turn.user}]
        if turn.picture:
            parts.append(
                {data_name: {mime: "image/png", "data": PICTURE if camel else base64.b64decode(PICTURE)}}
            )
            parts.append({data_name: {mime: "audio/wav", "data": "UklGRg=="}})
        items.append({"role": "user", "parts": parts})
        for thought, text, calls in turn.steps:
            said: list[Fields] = [{"text": thought, "thought": True}] if thought else []
            said += [{"text": text}] if text else []
            if it.maybe(0.1):
                name = "executableCode" if camel else "executable_code"
                said.append({name: {"language": "PYTHON", "code": "print(1)"}})
            for one in calls:
                given: Fields = {"name": one.name, "args": one.arguments} | (
                    {"id": one.id} if has_ids else {}
                )
                said.append({call_name: given} | ({signature: "c2ln"} if it.maybe(0.3) else {}))
            items.append({"role": "model", "parts": said})
            if calls:
                answers = []
                for one in calls:
                    key = "error" if one.failed else "result"
                    response = one.result if isinstance(one.result, dict) else {key: one.result}
                    given = {"name": one.name, "response": response} | ({"id": one.id} if has_ids else {})
                    answers.append({response_name: given})
                items.append({"role": "user", "parts": answers})
    return items


def _adk(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    invocation = it.id("e")
    for content in _gemini(it, turns):
        answers = any("unction" in name and "esponse" in name for part in content["parts"] for name in part)
        items.append(
            {
                "content": content,
                "invocation_id": invocation,
                "author": "helper" if content["role"] == "model" or answers else "user",
                "actions": {
                    "state_delta": {"seen": it.seed},
                    "artifact_delta": {},
                    "requested_auth_configs": {},
                },
                "long_running_tool_ids": [],
                "id": it.id("event"),
                "timestamp": it.at.timestamp() + len(items),
                "partial": False,
            }
        )
    if it.maybe(0.3):
        items.append(
            {
                "author": "helper",
                "invocation_id": invocation,
                "actions": {"state_delta": {"done": True}},
                "id": "e",
            }
        )
    return items


def _vercel(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    for turn in turns:
        parts: list[Fields] = [{"type": "text", "text": turn.user}]
        if turn.picture:
            url = f"data:image/png;base64,{PICTURE}"
            parts.append({"type": "file", "mediaType": "image/png", "filename": "a.png", "url": url})
        items.append({"id": it.id("msg"), "role": "user", "parts": parts})
        said: list[Fields] = []
        for thought, text, calls in turn.steps:
            said.append({"type": "step-start"})
            if thought:
                said.append(
                    {"type": "reasoning", "text": thought, "state": "done", "providerMetadata": {"x": {}}}
                )
            if text:
                said.append({"type": "text", "text": text, "state": "done"})
            for one in calls:
                kind = {"type": f"tool-{one.name}"}
                if it.maybe(0.3):
                    kind = {"type": "dynamic-tool", "toolName": one.name}
                state: Fields = (
                    {"state": "output-error", "errorText": text_of(one.result) or "failed"}
                    if one.failed
                    else {"state": "output-available", "output": one.result}
                )
                said.append({**kind, "toolCallId": one.id, "input": one.arguments, **state})
        if it.maybe(0.3):
            said.append({"type": "source-url", "sourceId": "s", "url": "https://a.test", "title": "A"})
            said.append({"type": "data-progress", "id": "p", "data": {"done": 1}})
        items.append(
            {"id": it.id("msg"), "role": "assistant", "metadata": {"createdAt": it.moment()}, "parts": said}
        )
    return items


def _pydantic_ai(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []

    def request(parts: list[Fields]) -> Fields:
        return {
            "parts": parts,
            "timestamp": it.moment(),
            "instructions": None,
            "kind": "request",
            "run_id": "r",
        }

    for turn in turns:
        parts: list[Fields] = []
        if turn.number == 0 and it.maybe():
            parts.append({"content": it.words(), "dynamic_ref": None, "part_kind": "system-prompt"})
        content: Any = turn.user
        if turn.picture:
            content = [
                turn.user,
                {"data": PICTURE, "media_type": "image/png", "vendor_metadata": None, "kind": "binary"},
                {"url": "https://a.test/b.png", "force_download": False, "kind": "image-url"},
            ]
        parts.append({"content": content, "timestamp": it.moment(), "part_kind": "user-prompt"})
        items.append(request(parts))
        for thought, text, calls in turn.steps:
            said: list[Fields] = []
            if thought:
                said.append({"content": thought, "id": None, "signature": "c2ln", "part_kind": "thinking"})
            if text:
                said.append({"content": text, "id": None, "part_kind": "text"})
            said += [
                {
                    "tool_name": one.name,
                    "args": one.arguments if it.maybe() else json.dumps(one.arguments),
                    "tool_call_id": one.id,
                    "part_kind": "tool-call",
                }
                for one in calls
            ]
            items.append(
                {
                    "parts": said,
                    "usage": {"input_tokens": 5, "output_tokens": 6, "details": {}},
                    "model_name": "m",
                    "timestamp": it.moment(),
                    "kind": "response",
                    "finish_reason": "tool_call" if calls else "stop",
                }
            )
            if calls:
                items.append(
                    request(
                        [
                            {
                                "tool_name": one.name,
                                "content": one.result,
                                "tool_call_id": one.id,
                                "timestamp": it.moment(),
                                "part_kind": "retry-prompt" if one.failed else "tool-return",
                            }
                            for one in calls
                        ]
                    )
                )
    return items


def _llamaindex(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    if it.maybe():
        items.append(
            {
                "role": "system",
                "additional_kwargs": {},
                "blocks": [{"block_type": "text", "text": it.words()}],
            }
        )
    for turn in turns:
        blocks: list[Fields] = [{"block_type": "text", "text": turn.user}]
        if turn.picture:
            blocks.append(
                {
                    "block_type": "image",
                    "image": PICTURE,
                    "path": None,
                    "url": None,
                    "image_mimetype": "image/png",
                }
            )
            blocks.append(
                {"block_type": "document", "data": "UERG", "title": "paper", "document_mimetype": "x/pdf"}
            )
        items.append({"role": "user", "additional_kwargs": {}, "blocks": blocks})
        for thought, text, calls in turn.steps:
            said: list[Fields] = (
                [{"block_type": "thinking", "content": thought, "num_tokens": 3}] if thought else []
            )
            said += [{"block_type": "text", "text": text}] if text else []
            others: Fields = {}
            if calls and it.maybe():
                said += [
                    {
                        "block_type": "tool_call",
                        "tool_call_id": one.id,
                        "tool_name": one.name,
                        "tool_kwargs": one.arguments,
                    }
                    for one in calls
                ]
            elif calls:
                others["tool_calls"] = [
                    {
                        "id": one.id,
                        "type": "function",
                        "function": {"name": one.name, "arguments": json.dumps(one.arguments)},
                    }
                    for one in calls
                ]
            items.append({"role": "assistant", "additional_kwargs": others, "blocks": said})
            items += [
                {
                    "role": "tool",
                    "additional_kwargs": {"tool_call_id": one.id, "name": one.name},
                    "blocks": [{"block_type": "text", "text": text_of(one.result)}],
                }
                for one in calls
            ]
    return items


def _ollama(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = [{"role": "system", "content": it.words()}] if it.maybe() else []
    for turn in turns:
        items.append({"role": "user", "content": turn.user} | ({"images": [PICTURE]} if turn.picture else {}))
        for thought, text, calls in turn.steps:
            said: Fields = {"role": "assistant", "content": text}
            if thought:
                said["thinking"] = thought
            if calls:
                said["tool_calls"] = [
                    {"function": {"name": one.name, "arguments": one.arguments}} for one in calls
                ]
            items.append(said)
            items += [
                {"role": "tool", "content": text_of(one.result), "tool_name": one.name} for one in calls
            ]
    return items


def _claude(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    parent: str | None = None

    def line(kind: str, **others: Any) -> Fields:
        nonlocal parent
        uuid = it.id("uuid")
        made = {
            "parentUuid": parent,
            "isSidechain": False,
            "userType": "external",
            "cwd": "/srv/project",
            "sessionId": "9b2f",
            "version": "2.1.0",
            "gitBranch": "main",
            "type": kind,
            "uuid": uuid,
            "timestamp": it.moment(),
            **others,
        }
        parent = uuid
        return made

    if it.maybe(0.4):
        items.append({"type": "summary", "summary": "About rivers", "leafUuid": it.id("uuid")})
    for message in _anthropic(it, turns):
        extra: Fields = {}
        if message["role"] == "user" and isinstance(message["content"], list):
            extra = {"toolUseResult": {"stdout": "x", "interrupted": False}, "sourceToolAssistantUUID": "u"}
        items.append(line(message["role"], message=message, **extra))
        if it.maybe(0.1):
            items.append(line("system", subtype="informational", content="a notice", level="info"))
        if it.maybe(0.1):
            items.append(
                {"type": "file-history-snapshot", "messageId": it.id("m"), "snapshot": {"files": {}}}
            )
    return items


def _plain(it: Drawing, turns: list[Turn]) -> list[Fields]:
    items: list[Fields] = []
    for turn in turns:
        items.append(
            {"role": "user", "content": turn.user, "metadata": {"n": turn.number}, "at": it.moment()}
        )
        for thought, text, calls in turn.steps:
            said: Fields = {"role": "assistant", "content": text}
            said |= {"reasoning": thought} if thought else {}
            if calls:
                said["tool_calls"] = [
                    {"id": one.id, "name": one.name, "arguments": json.dumps(one.arguments)} for one in calls
                ]
            items.append(said)
            items += [
                {"role": "tool", "tool_call_id": one.id, "content": text_of(one.result)}
                | ({"is_error": True} if one.failed else {})
                for one in calls
            ]
    return items


_WRITERS: dict[str, Callable[[Drawing, list[Turn]], list[Fields]]] = {
    "openai": _openai,
    "openai_responses": _openai_responses,
    "anthropic": _anthropic,
    "langchain": _langchain,
    "bedrock": _bedrock,
    "gemini": _gemini,
    "adk": _adk,
    "vercel": _vercel,
    "pydantic_ai": _pydantic_ai,
    "llamaindex": _llamaindex,
    "ollama": _ollama,
    "claude": _claude,
    "plain": _plain,
}
