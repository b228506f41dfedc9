"""The usual environment variables of document databases, as the weakest source.

`MONGODB_URI` is the server of a store whose URL is just `mongodb://`. `MONGODB_DB` and
`MONGODB_COLLECTION_PREFIX` name the database and the prefix. An option or the query of
the URL wins over them. They win over the database in the path of a URL, and that wins
over the adapter's defaults.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote_plus

from memory.facade.config.values import scheme_of

URI, DATABASE, PREFIX = "MONGODB_URI", "MONGODB_DB", "MONGODB_COLLECTION_PREFIX"
SCHEMES = ("mongodb", "mongodb+srv")
BARE = "mongodb://"


def complete(tree: dict[str, Any], environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Complete the URLs of document databases in a tree of settings.

    Yield the dotted name of each changed URL, and the variable that changed it.
    """
    if isinstance(tree.get("routes"), list):
        tree["routes"] = [
            dict(route) if isinstance(route, Mapping) else route for route in tree["routes"]
        ]  # the caller's values stay unchanged
    for path, holder, key, options in list(_urls(tree)):
        url = holder[key]
        if url == BARE and environ.get(URI):
            url = environ[URI]
            yield path, URI
        for option, variable in (("database", DATABASE), ("prefix", PREFIX)):
            if (
                environ.get(variable)
                and url != BARE
                and option not in options
                and option not in _option_names(url)
            ):
                url += f"{'&' if '?' in url else '?'}{option}={quote_plus(environ[variable])}"
                yield path, variable
        holder[key] = url


def _urls(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any, Mapping[str, Any]]]:
    """Yield the URLs of document databases in a tree of settings.

    Each has its dotted name, its container, its key there, and the options beside it.
    """
    tiers, stores, routes = tree.get("tiers"), tree.get("stores"), tree.get("routes")
    places: list[tuple[str, Any, Any]] = []
    if isinstance(tiers, dict):
        places += [(f"tiers.{tier}", tiers, tier) for tier in tiers]
    if isinstance(stores, dict):
        places += [
            (f"stores.{name}.url", store, "url") for name, store in stores.items() if isinstance(store, dict)
        ]
    if isinstance(routes, list):
        places += [
            (f"routes.{number}", route, "store")
            for number, route in enumerate(routes, start=1)
            if isinstance(route, dict)
        ]
    for path, holder, key in places:
        url = holder.get(key)
        if isinstance(url, str) and scheme_of(url) in SCHEMES:
            options = holder.get("options")
            yield path, holder, key, options if isinstance(options, Mapping) else {}


def _option_names(url: str) -> set[str]:
    """Return the names of the options in a URL's query."""
    return {name for name, _ in parse_qsl(url.partition("?")[2], keep_blank_values=True)}
