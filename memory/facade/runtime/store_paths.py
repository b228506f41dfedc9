"""The paths of a configuration's files, and whether they exist yet."""

from __future__ import annotations

from pathlib import Path

from memory.domain.errors import ConfigError
from memory.facade.config.settings import MemoryConfig, ServingStore, default_url
from memory.facade.runtime.build import build_store
from memory.policies.routing import TIERS


def path_of(store: ServingStore) -> Path | None:
    """Return the absolute path of a store's file or folder; None for other stores."""
    path = getattr(build_store(store), "path", None)
    return path if isinstance(path, Path) else None


def not_there_yet(config: MemoryConfig) -> dict[str, str]:
    """Return the stores whose file or folder does not exist yet, with a message."""
    paths = {store.name: path_of(store) for store in config.stores_in_use()}
    return {
        name: f"{path}: does not exist yet; the first write creates it"
        for name, path in paths.items()
        if path is not None and not path.exists()
    }


def check_stores_used(config: MemoryConfig) -> None:
    """Refuse a configuration whose stores no tier names, while a tier has no store.

    Such a tier would use the default file, and its data would not be where the
    configuration seems to put it.

    Raises:
        ConfigError: The error says which settings to add.
    """
    idle = sorted(config.stores.keys() - {store.name for store in config.stores_in_use()})
    left = [
        tier
        for tier, store in config.serving_stores().items()
        if store.url == default_url() and tier not in config.tiers.model_fields_set
    ]
    if idle and left:
        settings = ", ".join(f'{tier} = "{idle[0]}"' for tier in left)
        raise ConfigError(
            f"tiers: no tier and no route names {', '.join(map(repr, idle))}, and"
            f" {', '.join(left)} would be on the default file. Add under [tiers]: {settings}"
        )


def on_the_default_file(config: MemoryConfig) -> str:
    """Return a sentence about the tiers that use the default file; empty if none does.

    They use it because the configuration names no store for them.
    """
    store = next((store for store in config.stores_in_use() if store.url == default_url()), None)
    if store is None:
        return ""
    tiers = config.tiers_on(store.name)
    listed = (
        "all tiers are"
        if len(tiers) == len(TIERS)
        else f"tier{'s' * (len(tiers) > 1)} {', '.join(tiers)} {'are' if len(tiers) > 1 else 'is'}"
    )
    idle = sorted(config.stores.keys() - {store.name for store in config.stores_in_use()})
    why = (
        f"no tier and no route names {', '.join(map(repr, idle))}"
        if idle
        else "the configuration names no other store"
    )
    return f"{listed} on the default file, {default_url().removeprefix('sqlite:///')}: {why}"


def default_file(config: MemoryConfig) -> Path | None:
    """Return the default file if it is in use and does not exist yet."""
    used = any(store.url == default_url() for store in config.stores_in_use())
    path = Path(default_url().removeprefix("sqlite:///"))
    return path if used and not path.exists() else None
