"""Options of stores, from the query part of a URL or from the configuration.

There is one model for each kind of store. Errors name the store and the option, and say
which values it accepts. They never repeat a URL, which may hold a password.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import BeforeValidator, Field, ValidationError
from pydantic.fields import FieldInfo

from memory.domain.corrections import did_you_mean
from memory.domain.errors import ConfigError
from memory.domain.model_errors import explain_error
from memory.ports.record import JsonValue


def _number(value: object) -> object:
    """Reject booleans as numbers."""
    if isinstance(value, bool):
        raise ValueError
    return value


def _uppercase(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


# The description of each type is the accepted value in error messages.
_Text = Annotated[str, Field(min_length=1)]
_Count = Annotated[int, BeforeValidator(_number), Field(ge=1, lt=10_000)]
_A_TEXT, _A_COUNT = "a text that is not empty", "a whole number from 1 to 9999"

Seconds = Annotated[
    float,
    BeforeValidator(_number),
    Field(gt=0, le=86_400, description="a number of seconds above 0, at most a day"),
]
SecondsOrZero = Annotated[
    float,
    BeforeValidator(_number),
    Field(ge=0, le=86_400, description="a number of seconds of at least 0, at most a day"),
]
Whole = Annotated[
    int, BeforeValidator(_number), Field(ge=0, lt=2**62, description="a whole number of at least 0")
]
Count = Annotated[_Count, Field(description=_A_COUNT)]
MaybeCount = Annotated[_Count | None, Field(description=_A_COUNT)]
Text = Annotated[_Text, Field(description=_A_TEXT)]
MaybeText = Annotated[_Text | None, Field(description=_A_TEXT)]
Flag = Annotated[bool, Field(description="true or false")]
Shouted = BeforeValidator(_uppercase)


NOTHING: Mapping[str, str] = MappingProxyType({})


class StoreOptions:
    """The address and the options of a store: the base of a frozen pydantic dataclass.

    Its secrets are declared with `repr=False`. Fields named in `where` follow from the
    URL, or are for code alone, and are no options.
    """

    __slots__ = ()
    where: ClassVar[frozenset[str]] = frozenset()
    product: ClassVar[str]
    """The name of this kind of store in messages."""

    @classmethod
    def read(
        cls,
        store: str,
        query: str,
        options: Mapping[str, JsonValue],
        *,
        spelled: Mapping[str, str] = NOTHING,
        among: Collection[str] | None = None,
        **found: Any,
    ) -> Self:
        """Read the options from the URL's query part and from the configuration.

        Both override the values that were otherwise found in the URL. An option that
        both name must have the same value in both.

        Args:
            spelled: Other names of options.
            among: The options that are accepted here, if not all are.
        """
        in_url = {spelled.get(name, name): value for name, value in parse_qsl(query, keep_blank_values=True)}
        apart = {spelled.get(name, name): value for name, value in options.items()}
        for name in sorted(in_url.keys() & apart.keys()):
            if not _agree(in_url[name], apart[name]):
                raise wrong(
                    store,
                    f"the option {name} has one value in the URL and another in options; give it in one"
                    " place",
                )
        given = in_url | apart
        accepted = cls.names() if among is None else frozenset(among) - cls.where
        if unknown := sorted(given.keys() - accepted):
            raise unknown_options(store, cls.product, unknown, accepted)
        try:
            return cls(**{**found, **given})
        except ValidationError as error:
            raise wrong(store, cls._describe_error(error)) from None

    @classmethod
    def names(cls) -> frozenset[str]:
        """Return the names of the options."""
        return frozenset(cls._fields().keys() - cls.where)

    @classmethod
    def _fields(cls) -> dict[str, FieldInfo]:
        return cls.__pydantic_fields__  # type: ignore[attr-defined, no-any-return]

    @classmethod
    def _describe_error(cls, error: ValidationError) -> str:
        """Describe the first error, without the value of a secret."""
        first = error.errors(include_url=False, include_context=False)[0]
        name = str(first["loc"][0])
        field = cls._fields()[name]
        shown = f", not {first['input']!r}" if field.repr else ""
        problem = f"is {field.description}" if field.description else explain_error(first)
        return f"{name} {problem}{shown}"


def _agree(in_url: str, apart: JsonValue) -> bool:
    """Return whether an option in a URL, which is text, equals the configured one."""
    if isinstance(apart, bool):
        return in_url.lower() == str(apart).lower()
    try:
        return float(in_url) == float(apart)
    except (TypeError, ValueError):
        return in_url == str(apart)


def unknown_options(
    store: str, product: str, unknown: Sequence[str], known: Collection[str], more: str = ""
) -> ConfigError:
    """Return the error for options that a store does not have.

    Args:
        more: What the store accepts besides the known options.
    """
    named = ", ".join(map(repr, unknown))
    near = did_you_mean(unknown[0], sorted(known)) if len(unknown) == 1 else ""
    return wrong(
        store,
        f"{product} has no option {named}{near or '.'} Its options are {', '.join(sorted(known))}{more}",
    )


def wrong(store: str, problem: str) -> ConfigError:
    return ConfigError(f"store '{store}': {problem}")


class ServerUrl:
    """The parts of a server's URL.

    The form is `scheme://user:password@host:port/path?options`.
    """

    def __init__(self, store: str, product: str, schemes: tuple[str, ...], url: str) -> None:
        self._store = store
        self._example = f"{schemes[0]}://user:password@host/database"
        try:
            parts = urlsplit(url)
            self.port = parts.port
        except ValueError:  # whose text repeats what stands in the URL
            raise wrong(
                store, f"the URL cannot be read; write {self._example}, special characters as %23 for #"
            ) from None
        if parts.scheme not in schemes or not url.startswith(f"{parts.scheme}://"):
            raise wrong(
                store, f"the URL of a {product} store begins with '{schemes[0]}://', not '{parts.scheme}'"
            )
        if parts.fragment:
            raise wrong(store, "the URL has a '#' in it; write it as %23")
        self._parts: SplitResult = parts

    @property
    def query(self) -> str:
        return self._parts.query

    @property
    def query_options(self) -> dict[str, str]:
        """Return the options of the query part, as they are written."""
        return dict(parse_qsl(self.query, keep_blank_values=True))

    @property
    def host_and_credentials(self) -> dict[str, str]:
        """Return host, user and password, as far as the URL names them."""
        parts = self._parts
        named = {
            "host": parts.hostname,
            "user": unquote(parts.username or ""),
            "password": unquote(parts.password or ""),
        }
        return {name: value for name, value in named.items() if value}

    @property
    def database(self) -> str:
        name = unquote(self._parts.path[1:])
        if not name or "/" in name:
            raise wrong(self._store, f"name the database in the URL: {self._example}")
        return name
