"""Settings of the server, from the configuration and from options of the command."""

from __future__ import annotations

from typing import Any

from memory.facade.config.server import ServerSettings
from memory.facade.config.settings import MemoryConfig

__all__ = ("ServerSettings", "with_options")


def with_options(settings: ServerSettings, **options: Any) -> ServerSettings:
    """Return the settings with the options that were given, checked."""
    given = {name: value for name, value in options.items() if value is not None}
    return MemoryConfig(server={**settings.model_dump(exclude_unset=True), **given}).server
