"""Check our own messages, or the results of their `model_dump`.

A message that was changed since it was read loses its original.
"""

from __future__ import annotations

from pydantic import ValidationError

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.message import Message, Role
from memory.domain.model_errors import explain_errors
from memory.domain.shapes.fields import Fields, parts
from memory.domain.shapes.originals import forget_changed


def is_dump(fields: Fields) -> bool:
    return "shape" in fields and "extra" in fields and fields.keys() <= Message.model_fields.keys()


def said_in(dump: Fields) -> Fields:
    """Return the values of a dumped message that differ from the defaults.

    The shape and the extra fields are left out.
    """
    default = {
        name: field.get_default(call_default_factory=True)
        for name, field in Message.model_fields.items()
        if name != "content"
    }
    return {
        name: value
        for name, value in dump.items()
        if name not in ("shape", "extra") and value != default.get(name, ...)
    }


def from_fields(fields: Fields) -> list[Message]:
    validation.one_of("role", fields.get("role"), [role.value for role in Role])
    if fields.get("id") is not None:
        validation.identifier("id", fields["id"])
    if fields.get("at") is not None:
        fields["at"] = validation.time("at", fields["at"])
    if isinstance(fields.get("content"), list):
        parts(fields["content"])
    try:
        return [forget_changed(Message.model_validate(fields))]
    except ValidationError as exc:
        first = explain_errors(exc.errors(include_url=False), fields)[0]
        raise InvalidInput(first.field, first.message) from None
