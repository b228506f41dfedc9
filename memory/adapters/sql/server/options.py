"""Options of a store as a URL or a config file gives them. What is wrong is named; a URL itself is never repeated, it may hold a password."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from memory.domain.errors import ConfigError
from memory.ports.record import JsonValue


class Options:
    """The parts of one store's URL, and the options of its query part with those given apart; each is taken out once."""

    def __init__(self, store: str, product: str, schemes: tuple[str, ...], url: str, options: Mapping[str, JsonValue]) -> None:
        self._store = store
        self._product = product
        self._example = f"{schemes[0]}://user:password@host/database"
        try:
            parts = urlsplit(url)
            self.port = parts.port
        except ValueError:
            raise self._wrong(f"the URL cannot be read; write {self._example}, special characters as %23 for #") from None
        if parts.scheme not in schemes or not url.startswith(f"{parts.scheme}://"):
            raise self._wrong(f"the URL of a {product} store begins with '{schemes[0]}://', not '{parts.scheme}'")
        if parts.fragment:
            raise self._wrong("the URL has a '#' in it; write it as %23")
        self._parts: SplitResult = parts
        self._given: dict[str, Any] = {**dict(parse_qsl(parts.query, keep_blank_values=True)), **options}

    @property
    def host(self) -> str:
        return str(self.take("host", None) or self._parts.hostname or "localhost")

    @property
    def user(self) -> str | None:
        return unquote(self._parts.username) if self._parts.username else None

    @property
    def password(self) -> str | None:
        apart = self.take("password", None)
        if apart is not None:
            return str(apart)
        return None if self._parts.password is None else unquote(self._parts.password)

    @property
    def database(self) -> str:
        name = unquote(self._parts.path[1:])
        if not name or "/" in name:
            raise self._wrong(f"name the database in the URL: {self._example}")
        return name

    def take(self, option: str, default: Any) -> Any:
        return self._given.pop(option, default)

    def text(self, option: str) -> str | None:
        value = self.take(option, None)
        return None if value is None else str(value)

    def one_of(self, option: str, default: str, allowed: tuple[str, ...], otherwise: str = "") -> str:
        """One of the allowed words, under the option's name or under another."""
        value = self.take(option, self.take(otherwise, default) if otherwise else default)
        if value not in allowed:
            raise self._wrong(f"{option} is one of {', '.join(allowed)}, not {value!r}")
        return str(value)

    def whole(self, option: str, default: int, least: int, most: int) -> int:
        value = self.take(option, default)
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if not least <= number <= most or isinstance(value, float | bool):
            raise self._wrong(f"{option} is a whole number from {least} to {most}, not {value!r}")
        return number

    def seconds(self, option: str, default: float) -> float:
        value = self.take(option, default)
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = 0.0
        if not 0 < seconds <= 86_400:
            raise self._wrong(f"{option} is a number of seconds above 0, at most a day, not {value!r}")
        return seconds

    def pooling(self, statements: int, least_statements: int) -> dict[str, Any]:
        """What every server's config has: the pool, the patience with each step, and the statements kept ready on a connection."""
        return {
            "pool_size": self.whole("pool_size", 8, 1, 1_000),
            "pool_timeout": self.seconds("pool_timeout", 10.0),
            "connect_timeout": self.seconds("connect_timeout", 10.0),
            "command_timeout": self.seconds("command_timeout", 30.0),
            "statement_cache_size": self.whole("statement_cache_size", statements, least_statements, 10_000),
        }

    def refuse_the_rest(self) -> None:
        """What is left is no option of this store."""
        if self._given:
            raise self._wrong(f"a {self._product} store has no option {', '.join(map(repr, sorted(self._given)))}")

    def _wrong(self, problem: str) -> ConfigError:
        return ConfigError(f"store '{self._store}': {problem}")
