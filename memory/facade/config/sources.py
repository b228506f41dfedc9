"""Where settings come from, and which source wins.

The sources, from strongest to weakest:

1. Arguments: values from code or from a command-line option. A URL, a database file or
   a mapping that is given as the config also counts.
2. The environment. The name of a variable is the setting's path, with two underscores
   between its parts: `MEMORY__TIERS__LONG`, `MEMORY__STORES__MAIN__URL`,
   `MEMORY__TENANT`. Lists and objects are JSON.
3. A file: the `.toml` that is given as the config, else the one that `MEMORY_CONFIG`
   names, else `memory.toml` in the working directory.
4. The usual variables of document databases (see `document_database`).
5. The defaults.

Tables are merged setting by setting. The list of promotion rules is taken whole from
the strongest source that has one. A config that is given as URL, database file or
mapping replaces the file. Relative paths in a file are relative to its folder.

Only this module reads the environment.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

from memory.domain.errors import ConfigError
from memory.facade.config import document_database
from memory.facade.config.values import installed_schemes, is_broken_url, scheme_of, short_scheme
from memory.policies.routing import TIERS
from memory.ports.local_paths import LOCAL_SCHEMES, local_path, local_url

FILE_NAME = "memory.toml"
DATABASE_SUFFIXES = (".db", ".sqlite", ".sqlite3")
"""The suffixes of SQLite files that may be given without a scheme.

Another name may be a typing error, and would create an empty database.
"""
_OTHER_CONFIGS = (".yaml", ".yml", ".json", ".ini", ".cfg", ".conf", ".env", ".tml")
_PATHS = (
    ("embedder", "path"),
    ("server", "tls_cert"),
    ("server", "tls_key"),
    ("server", "jwt", "jwks"),
)
"""Settings with the path of a file or a folder. `jwks` may also be an address."""
POINTER = "MEMORY_CONFIG"
PREFIX = "MEMORY__"

Tree: TypeAlias = dict[str, Any]
Origin: TypeAlias = Callable[[str], str]


class Layer(NamedTuple):
    """The settings of one source, and the origin of each by its dotted name."""

    tree: Tree
    origin: Origin


class Origins(dict[str, str]):
    """The origins of settings by their dotted names."""

    def of(self, path: str) -> str:
        """Return the origin of a setting, or of the part of the tree above it."""
        while path:
            if path in self:
                return self[path]
            path = path.rpartition(".")[0]
        return "default"

    def near(self, path: str) -> str:
        """Return the nearest known origin of an invalid setting.

        For a missing setting it is that of another one in the same table.
        """
        if (exact := self.of(path)) != "default":
            return exact
        while path:
            if below := [origin for known, origin in self.items() if _covers(path, known)]:
                return below[-1]
            path = path.rpartition(".")[0]
        return "configuration"


def gather_settings(
    source: str | os.PathLike[str] | Mapping[str, Any] | Layer | None,
    settings: Mapping[str, Any],
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> tuple[Tree, Origins]:
    """Merge the settings of all sources, and return their origins too.

    A layer as the source replaces the file and the environment.
    """
    environ = os.environ if environ is None else environ
    layers = [source] if isinstance(source, Layer) else _layers(source, environ, folder or Path.cwd())
    layers.append(Layer(dict(settings), _constant_origin("argument")))
    tree, origins = Tree(), Origins()
    for layer in layers:
        for path in _merge(tree, layer.tree):
            for covered in [known for known in origins if _covers(path, known)]:
                del origins[covered]
            origins[path] = layer.origin(path)
    origins.update(document_database.complete(tree, environ))
    return tree, origins


def _layers(
    source: str | os.PathLike[str] | Mapping[str, Any] | None, environ: Mapping[str, str], folder: Path
) -> list[Layer]:
    """Return every source except the keyword settings, weakest first."""
    if isinstance(source, Mapping):
        return [_environment(environ), Layer(dict(source), _constant_origin("argument"))]
    if source is not None:
        if not isinstance(source, str | os.PathLike):
            raise ConfigError(
                f"the config must be a URL, a path, a mapping or a MemoryConfig, not {type(source).__name__}"
            )
        url = _url_of(os.fspath(source), folder)
        if url is None:
            return [_file(folder / os.fspath(source)), _environment(environ)]
        return [_environment(environ), Layer(_one_store(url), _constant_origin("argument"))]
    pointed = environ.get(POINTER)
    if pointed is not None:
        if not pointed.strip():
            raise ConfigError(
                f"{POINTER}: is blank, as after a variable that is not set; unset it for the default, or give"
                " it a value"
            )
        url = _url_of(pointed, folder)
        return [
            _file(folder / pointed) if url is None else Layer(_one_store(url), _constant_origin(POINTER)),
            _environment(environ),
        ]
    found = folder / FILE_NAME
    return [_file(found), _environment(environ)] if found.is_file() else [_environment(environ)]


def _url_of(text: str, folder: Path) -> str | None:
    """Return the URL that a config in one string means; None for a TOML file.

    A database file becomes its SQLite URL.
    """
    text = text.strip()
    if not text:
        raise ConfigError("the config is empty: give a URL, a database file or a .toml file")
    if scheme_of(text):
        return text
    if is_broken_url(text):
        raise ConfigError(
            "the config is not a URL: a scheme and '://' must come first, as in sqlite:///memory.db. For a"
            " file of such a name, write ./ before it"
        )
    if text.endswith(".toml"):
        return None
    if "?" in text:
        raise ConfigError(
            "the config is a file name with '?', which cannot be a database; a URL begins with a scheme, as"
            " in sqlite:///memory.db"
        )
    if (folder / text).is_dir():
        raise ConfigError(f"{text} is a folder: give the path of the database file in it, or a .toml file")
    if (problem := _no_database(text)) is not None:
        raise ConfigError(problem)
    return f"sqlite:///{text}"


def _no_database(text: str) -> str | None:
    """Return why a text without a scheme names no database; None if it names one."""
    named = short_scheme(text)
    if named is not None:
        shown = f"'{named}:'" if len(named) <= 40 else "its beginning"
        return (
            f"the config is not a URL of an installed store: {shown} is not an installed scheme. Installed:"
            f" {', '.join(sorted(installed_schemes()))}. For a database file of such a name, write ./"
            " before it"
        )
    if text.lower().endswith(DATABASE_SUFFIXES):
        return None
    if text.lower() in installed_schemes():
        return (
            f"the config is '{text}', which is only a scheme. Write a whole URL, such as"
            " redis://localhost:6379/0 or sqlite:///memory.db"
        )
    shown = f"'{Path(text).name[:60]}'"
    if text.lower().endswith(_OTHER_CONFIGS):
        return f"the config {shown} is not a TOML file. `memory init` writes a memory.toml to start from"
    return (
        f"the config {shown} is neither a URL nor a .toml file, and the path of a database ends in"
        f" {', '.join(DATABASE_SUFFIXES)}. If it is a SQLite database, write it as a URL:"
        f" sqlite:///{Path(text).name[:60]}"
    )


def _one_store(url: str) -> Tree:
    return {"tiers": dict.fromkeys(TIERS, url)}


def _constant_origin(origin: str) -> Origin:
    return lambda _path: origin


def _environment(environ: Mapping[str, str]) -> Layer:
    tree: Tree = {}
    names: dict[str, str] = {}
    for variable in sorted(name for name in environ if name.upper().startswith(PREFIX)):
        parts = variable[len(PREFIX) :].lower().split("__")
        if not all(parts):
            raise ConfigError(
                f"{variable}: an empty name between the underscores; write for example {PREFIX}TIERS__LONG"
            )
        names[".".join(parts)] = variable
        branch = tree
        for part in parts[:-1]:
            branch = branch.setdefault(part, {})
            if not isinstance(branch, dict):
                raise ConfigError(f"{variable}: '{part}' is already set by another variable")
        branch[parts[-1]] = _read_variable(variable, environ[variable])
    return Layer(
        tree,
        lambda path: next(
            (name for known, name in names.items() if _covers(known, path) or _covers(path, known)),
            "environment",
        ),
    )


def check_variables(names: Collection[str], environ: Mapping[str, str] | None = None) -> None:
    """Refuse variables such as `MEMORY_TENANT`, which would set nothing.

    Args:
        names: The names of all settings at the top.
        environ: The environment; that of the process by default.

    Raises:
        ConfigError: The error has the right name.
    """
    start = PREFIX.removesuffix("_")
    for variable in sorted(os.environ if environ is None else environ):
        name = variable.upper()
        rest = variable[len(start) :]
        if (
            name.startswith(start)
            and not name.startswith(PREFIX)
            and rest.lower().partition("__")[0] in names
        ):
            raise ConfigError(
                f"{variable}: sets nothing, because one underscore is missing. Write {PREFIX}{rest}, or unset"
                " it"
            )


def _read_variable(variable: str, value: str) -> Any:
    if not value.strip():
        raise ConfigError(f"{variable}: is blank; unset it for the default, or give it a value")
    if not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as exc:
        raise ConfigError(f"{variable}: not valid JSON at character {exc.pos + 1}") from None


def _covers(known: str, path: str) -> bool:
    return path == known or path.startswith(known + ".")


def _file(path: Path) -> Layer:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        tree = tomllib.loads(text)
    except FileNotFoundError:
        raise ConfigError(f"there is no config file {path}; `memory init` writes one") from None
    except OSError as exc:
        raise ConfigError(f"cannot read the config file {path}: {exc.strerror}") from None
    except UnicodeDecodeError as exc:
        raise ConfigError(f"{path}: not UTF-8 at byte {exc.start + 1}") from None
    except tomllib.TOMLDecodeError as exc:
        raise ConfigError(f"{path}: {exc}") from None
    _make_absolute(tree, path.resolve().parent)
    lines = dict(_lines(text))
    return Layer(tree, lambda setting: f"{path}:{lines[setting]}" if setting in lines else str(path))


def _make_absolute(tree: Tree, folder: Path) -> None:
    """Make relative paths of a config file absolute, relative to its folder."""
    stores, routes = tree.get("stores"), tree.get("routes")
    for *tables, name in _PATHS:
        table: Any = tree
        for part in tables:
            table = table.get(part) if isinstance(table, dict) else None
        if isinstance(table, dict) and isinstance(path := table.get(name), str) and "://" not in path:
            table[name] = str(folder / Path(path).expanduser()) if path.strip() else path
    holders = [
        tree.get("tiers"),
        *(stores.values() if isinstance(stores, dict) else ()),
        *(routes if isinstance(routes, list) else ()),
    ]
    for holder in holders:
        for name, value in holder.items() if isinstance(holder, dict) else ():
            if isinstance(value, str):
                holder[name] = _absolute(value, folder)


def _absolute(url: str, folder: Path) -> str:
    scheme, path = scheme_of(url), local_path(url)
    if (
        scheme not in LOCAL_SCHEMES
        or path is None
        or path.startswith(("~", ":memory:"))
        or Path(path).is_absolute()
    ):
        return url
    beside = folder if scheme == "sqlite" else Path(quote(str(folder)))
    _, question, query = url.partition("?")
    return local_url(scheme, str(beside / path)) + question + query


_TABLE = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Return the settings of a TOML text with their line numbers, last first.

    In this order a dict of them keeps the first line of each.
    """
    found: list[tuple[str, int]] = []
    table, counts = "", dict[str, int]()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _TABLE.match(line):
            table = _dotted_key(header[2])
            if header[1] == "[[":
                counts[table] = counts.get(table, 0) + 1
                table = f"{table}.{counts[table]}"
            found.append((table, number))
        elif key := _KEY.match(line):
            found.append((f"{table}.{_dotted_key(key[1])}" if table else _dotted_key(key[1]), number))
    return reversed(found)


def _dotted_key(name: str) -> str:
    return ".".join(part.strip().strip("\"'") for part in name.split("."))


def _merge(into: Tree, layer: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Merge a source over weaker ones, and yield the dotted names that it sets."""
    for name, value in layer.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            below = into.get(name)
            into[name] = dict(below) if isinstance(below, Mapping) else {}
            yield from _merge(into[name], value, f"{path}.")
        else:
            into[name] = value
            yield path
            if isinstance(value, list | tuple):
                yield from (f"{path}.{number}" for number in range(1, len(value) + 1))
