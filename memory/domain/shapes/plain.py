"""`{role, content}`, with our own fields beside it."""

from __future__ import annotations

from memory.domain import validation
from memory.domain.message import Message, Role
from memory.domain.shapes.content_parts import content_as
from memory.domain.shapes.fields import Fields, MessageFields, content_back, given_back, own, speaker_back
from memory.domain.shapes.tool_calls import call_back, call_of, is_made_up, kept_of, told_apart, worth_keeping

_ROLES = {role.value: role for role in Role}


def from_fields(fields: Fields) -> list[Message]:
    given = MessageFields(fields)
    role, content, seen = given.role(_ROLES), given.content(), given.id_and_time()
    pairs = told_apart(
        [call_of(f"tool_calls[{n}]", call) for n, call in enumerate(given.objects("tool_calls"))]
    )
    message = Message(
        role=role,
        content=content,
        reasoning=given.text("reasoning"),
        tool_calls=[call for call, _ in pairs],
        tool_call_id=given.answered_call(role),
        is_error=given.true("is_error"),
        is_summary=given.true("is_summary"),
        tokens=given.count("tokens"),
        name=given.speaker(role),
        usage=given.object("usage"),
        finish_reason=given.text("finish_reason"),
        metadata=given.object("metadata") or {},
        **seen,
    )
    message.extra = {**given.extra_fields(), **worth_keeping([kept for _, kept in pairs], "text")}
    return [message]


def to_fields(message: Message, *, foreign_reasoning: bool = True) -> Fields:
    kept = own(message, "plain")
    fields = given_back(
        kept,
        message,
        reasoning=message.reasoning if foreign_reasoning or message.shape == "plain" else None,
        tool_calls=[
            call_back(call, known, "text")
            for call, known in zip(message.tool_calls, kept_of(message, "plain"), strict=True)
        ],
        tool_call_id=None
        if "no_call_id" in kept and is_made_up(message.tool_call_id, message.name)
        else message.tool_call_id,
        is_error=message.is_error,
        is_summary=message.is_summary,
        name=speaker_back(kept, message),
        usage=message.usage,
        finish_reason=message.finish_reason,
        metadata=message.metadata,
    )
    if message.tokens is not None:
        fields["tokens"] = message.tokens
    if message.id is not None:
        fields["id"] = message.id
    if message.at is not None and validation.named_moment(fields) is None:
        fields["at"] = message.at.isoformat()
    return {"role": message.role.value, **fields, **content_back(kept, content_as(message, "plain"))}
