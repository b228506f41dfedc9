"""The base of request bodies: unknown fields are refused, and the right one named."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from memory.domain.corrections import did_you_mean


class RequestBody(BaseModel):
    """A JSON body. Its fields are named as the arguments of the library.

    `given` has the fields that the client sent, to pass on. The library checks the
    values; the types here describe them to clients.
    """

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            raise PydanticCustomError("no_object", "must be a JSON object", {"field": "body"})
        for name in values:
            if name not in cls.model_fields:
                raise PydanticCustomError(
                    "unknown_field", "{message}", unknown_name("field", name, cls.model_fields)
                )
        return values

    def given(self, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return the fields that the client sent."""
        return {name: getattr(self, name) for name in self.model_fields_set if name not in without}


def unknown_name(kind: str, name: str, known: Any) -> dict[str, Any]:
    """Return the field and the message of a field or parameter that does not exist."""
    shown = name[:80]
    return {
        "field": shown,
        "message": f"there is no such {kind}{did_you_mean(shown, known)} (known: {', '.join(sorted(known))})",
    }
