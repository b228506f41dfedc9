"""Read the section `[mcp]` alone, without the settings of stores and rules.

A client waits for the first answer of `memory mcp`. Loading the whole configuration
would double that time.
"""

from __future__ import annotations

import os

from pydantic import ValidationError

from memory.facade.config.mcp import McpSection
from memory.facade.config.sources import gather_settings


def read_mcp_section(source: str | os.PathLike[str] | None) -> McpSection:
    """Return the section of a configuration.

    Args:
        source: A URL, or the path of a file; by default that of the environment.

    Raises:
        ConfigError: A setting is wrong. The error names it and its source.
    """
    tree, _ = gather_settings(source, {})
    try:
        return McpSection(**tree.get("mcp", {}))
    except (ValidationError, TypeError):
        from memory.facade.config.settings import MemoryConfig

        return MemoryConfig.load(source).mcp  # it explains what is wrong
