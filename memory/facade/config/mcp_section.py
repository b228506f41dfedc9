"""Read the section `[mcp]` alone, without the settings of stores and rules.

A client waits for the first answer of `memory mcp`. Loading the whole configuration
would double that time.
"""

from __future__ import annotations

import os

from pydantic import ValidationError

from memory.domain.errors import InvalidInput
from memory.facade.config.mcp import McpSection
from memory.facade.config.sources import gather_settings
from memory.facade.config.values import tenant_name


def read_mcp_section(source: str | os.PathLike[str] | None, *, tenant: str | None = None) -> McpSection:
    """Return the section of a configuration, and check the tenant.

    Args:
        source: A URL, or the path of a file; by default that of the environment.
        tenant: The tenant; by default that of the configuration.

    Raises:
        ConfigError: A setting is wrong. The error names it and its source.
    """
    tree, _ = gather_settings(source, {} if tenant is None else {"tenant": tenant})
    try:
        if "tenant" in tree:
            tenant_name(tree["tenant"])
        return McpSection(**tree.get("mcp", {}))
    except (ValidationError, TypeError, InvalidInput):
        from memory.facade.config.settings import MemoryConfig

        return MemoryConfig.load(source, tenant=tenant).mcp  # it explains what is wrong
