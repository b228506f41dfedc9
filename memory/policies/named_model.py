"""The base class of rules and quotas: their name, and errors that name the field."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from memory.domain import validation
from memory.domain.corrections import unknown_arguments
from memory.domain.errors import InvalidInput
from memory.domain.model_errors import explain_error


class NamedModel(BaseModel):
    """A rule or a quota with a name.

    Raises:
        InvalidInput: a field is wrong. The error names it, as in `promotion.idle.when`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    setting: ClassVar[str]
    """The setting that lists objects of this class."""

    name: Annotated[str, AfterValidator(lambda name: validation.name("name", name))]

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as exc:
            raise self._to_invalid_input(exc, given.get("name")) from None

    # Within a configuration pydantic goes past this constructor, as past its own: there
    # `MemoryConfig` tells what is wrong, by number and line.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    @classmethod
    def _to_invalid_input(cls, exc: ValidationError, name: object) -> InvalidInput:
        errors = exc.errors(include_url=False, include_input=False)
        if unknown := [str(one["loc"][0]) for one in errors if one["type"] == "extra_forbidden"]:
            return unknown_arguments(cls.__name__, unknown, cls.model_fields)
        first = errors[0]
        inner = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
        refused = first.get("ctx", {}).get("error")
        if isinstance(refused, InvalidInput):
            return refused if "." in refused.field else InvalidInput(cls.path(name, inner), refused.problem)
        return InvalidInput(cls.path(name, inner), explain_error(first))

    @classmethod
    def path(cls, name: object, field: str) -> str:
        """Return the dotted name of a field, with the rule's name if that is valid."""
        try:
            return f"{cls.setting}.{validation.name('name', name)}.{field}"
        except InvalidInput:
            return f"{cls.setting}.{field}"

    def _field_error(self, field: str, problem: str) -> InvalidInput:
        return InvalidInput(self.path(self.name, field), problem)
