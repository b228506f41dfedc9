"""Settings of `memory mcp`: the section `[mcp]` of a configuration."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field, field_validator

from memory.domain import validation
from memory.domain.errors import InvalidInput
from memory.domain.provenance import MCP_SOURCE
from memory.domain.scope import Scope, Subtree, is_subtree_text
from memory.facade.config.values import SettingsTable

DEFAULT_MCP_SCOPE: Final = "user:default"
"""The scope of callers over MCP if nothing names one."""
STDIO_ORIGIN: Final = f"{MCP_SOURCE}stdio"
"""The origin of what a client of `memory mcp` writes."""
LEAST_TOKEN_BUDGET: Final = 2_000
"""The smallest budget of an answer, in tokens."""


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_list)]
"""One text, or several."""


class McpSection(SettingsTable):
    """Settings of `memory mcp`, named as its options. The options win over them.

    None stands for the default of `memory.mcp.settings.McpSettings`.
    """

    scope: Texts = (DEFAULT_MCP_SCOPE,)
    """The scopes and subtrees that callers see."""
    write_scope: str | None = None
    """The scope of new entries."""
    read_only: bool | None = None
    """Leave out the tools that change something."""
    tools: Texts | None = None
    """The only tools to offer."""
    allow_delete: bool | None = None
    """Offer `forget_memory`, which deletes entries for good."""
    token_budget: Annotated[int, Field(ge=LEAST_TOKEN_BUDGET)] | None = None
    """The most tokens of an answer."""
    profile: Literal["memory", "reference"] | None = None
    """The set of tools."""
    origin: str = STDIO_ORIGIN
    """The origin of what callers write; it begins with `mcp:`."""

    @field_validator("scope", "write_scope", mode="after")
    @classmethod
    def _are_scopes(cls, value: tuple[str, ...] | str | None) -> tuple[str, ...] | str | None:
        for one in (value,) if isinstance(value, str) else value or ():
            _ = Subtree.parse(one) if is_subtree_text(one) else Scope.parse(one)
        return value

    @field_validator("origin", mode="after")
    @classmethod
    def _is_of_mcp(cls, value: str) -> str:
        return check_origin(value)

    @property
    def default_scope(self) -> str:
        """The scope of new entries: `write_scope`, or the first that is no subtree."""
        exact = [one for one in self.scope if not is_subtree_text(one)]
        return self.write_scope or next(iter((*exact, *self.scope)), DEFAULT_MCP_SCOPE)

    def settings_by_name(self) -> dict[str, Any]:
        """Return the values that are set or have a default, for display."""
        return {name: value for name, value in self if value is not None}


def check_origin(origin: str) -> str:
    """Validate the origin of what the clients of `memory mcp` write.

    Raises:
        InvalidInput: It is no source of a server of MCP.
    """
    named = validation.text("origin", origin, max_chars=validation.MAX_SOURCE_CHARS)
    if not named.startswith(MCP_SOURCE) or not named.removeprefix(MCP_SOURCE).strip():
        raise InvalidInput("origin", f"must begin with {MCP_SOURCE}, such as mcp:desktop")
    return named
