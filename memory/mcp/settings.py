"""The settings of an MCP server: what its callers may read, write and delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.scope import Scope, Subtree, is_subtree_text
from memory.facade.config.mcp import (
    DEFAULT_MCP_SCOPE,
    LEAST_TOKEN_BUDGET,
    STDIO_ORIGIN,
    McpSection,
    check_origin,
)

DEFAULT_TOKEN_BUDGET = 5_000


@dataclass(frozen=True)
class McpSettings:
    """The settings of an MCP server. No argument of a tool changes them.

    Args:
        scopes: The scopes that callers see, such as `"user:ada"`. Subtrees, such as
            `"path:teams/red/**"`, cannot be the scope of new entries. Callers may
            change and retire entries of all scopes, unless `read_only` is set.
        write_scope: The scope of new entries; the first exact scope by default.
        read_only: Leave out the tools that change something.
        tools: The names of the only tools to offer; all by default.
        allow_delete: Offer `forget_memory`, which deletes entries for good.
        token_budget: The most tokens of an answer, by an estimate of three bytes each.
        profile: Which tools the server has; see `memory.mcp.server.PROFILES`.
        provenance: The origin that is stored with everything that callers write.

    Raises:
        ConfigError: A setting is wrong. The error names it.
    """

    scopes: tuple[str, ...] = (DEFAULT_MCP_SCOPE,)
    write_scope: str | None = None
    read_only: bool = False
    tools: frozenset[str] | None = None
    allow_delete: bool = False
    token_budget: int = DEFAULT_TOKEN_BUDGET
    profile: str = "memory"
    provenance: str = STDIO_ORIGIN

    def __post_init__(self) -> None:
        if not self.scopes:
            raise ConfigError("scope: is missing. Pass --scope, such as --scope user:ada")
        parsed = [_parse_scope("scope", one) for one in self.scopes]
        exact = [one for one in parsed if isinstance(one, Scope)]
        if self.write_scope is not None:
            target = _parse_scope("write_scope", self.write_scope)
            if not isinstance(target, Scope):
                raise ConfigError(
                    f"write_scope: got {self.write_scope!r}, a subtree. Pass one scope, such as user:ada"
                )
            subtrees = [one for one in parsed if isinstance(one, Subtree)]
            if target not in exact and not any(one.contains(target) for one in subtrees):
                raise ConfigError(
                    f"write_scope: got {self.write_scope!r}, which is not among the scopes"
                    f" {', '.join(self.scopes)}. Pass it as --scope too"
                )
        elif not exact and not self.read_only:
            raise ConfigError(
                "write_scope: is missing, and the scopes are subtrees. Pass --write-scope, or --read-only"
            )
        if self.token_budget < LEAST_TOKEN_BUDGET:
            raise ConfigError(
                f"token_budget: got {self.token_budget}. Pass {LEAST_TOKEN_BUDGET} or more tokens"
            )
        if self.read_only and self.allow_delete:
            raise ConfigError("allow_delete: cannot be combined with read_only. Omit one of them")

    @property
    def target(self) -> str | None:
        """The scope of new entries; None if the server only reads."""
        if self.write_scope is not None:
            return self.write_scope
        return next((one for one in self.scopes if isinstance(_parse_scope("scope", one), Scope)), None)

    def check_tools(self, known: Iterable[str]) -> None:
        """Raise `ConfigError` if the allow-list names a tool that does not exist."""
        names = list(known)
        if unknown := sorted(self.tools - set(names)) if self.tools is not None else []:
            raise ConfigError(f"tools: {', '.join(unknown)} unknown. Pass names of {', '.join(names)}")


def _parse_scope(setting: str, text: str) -> Scope | Subtree:
    try:
        return Subtree.parse(text) if is_subtree_text(text) else Scope.parse(text)
    except InvalidInput as error:
        raise ConfigError(f"{setting}: {error.problem}") from None


def settings_of(section: McpSection, **options: Any) -> McpSettings:
    """Return the settings of a section of a configuration, and of options that win.

    Args:
        section: The section `[mcp]`.
        **options: Settings of the section that were given as options.

    Raises:
        ConfigError: A setting is wrong, or settings do not go together.
    """
    given = {**section.settings_by_name(), **options}
    names = {"scope": "scopes", "origin": "provenance"}
    settings = {names.get(name, name): value for name, value in given.items()}
    if "tools" in settings:
        settings["tools"] = frozenset(settings["tools"])
    if "scopes" in settings:
        settings["scopes"] = tuple(settings["scopes"])
    try:
        check_origin(settings.get("provenance", STDIO_ORIGIN))
    except InvalidInput as error:
        raise ConfigError(str(error)) from None
    return McpSettings(**settings)
