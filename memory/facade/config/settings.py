"""`MemoryConfig`: the stores of the tiers, the rules that move entries, and lifetimes.

It is frozen, and its text shows no secrets. `memory.facade.config.sources` explains
where the values come from and which source wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PlainSerializer,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from memory.domain.corrections import did_you_mean, setting_hint
from memory.domain.errors import ConfigError, InvalidInput
from memory.domain.filter_parsing import parse_path
from memory.domain.filters import JSON
from memory.domain.model_errors import explain_error
from memory.domain.scope import ScopeKind
from memory.domain.time import show_duration
from memory.facade.config.mcp import McpSection
from memory.facade.config.server import ServerSettings
from memory.facade.config.sources import DATABASE_SUFFIXES, Layer, check_variables, gather_settings
from memory.facade.config.values import (
    HIDDEN,
    Duration,
    Interval,
    SettingsTable,
    StoreOptions,
    StoreUrl,
    installed_schemes,
    is_broken_url,
    mask_options,
    mask_url,
    scheme_of,
    short_scheme,
    tenant_name,
)
from memory.orchestrator.storage.deliveries import Consistency
from memory.orchestrator.storage.kinds import KINDS
from memory.orchestrator.storage.settings import EngineSettings
from memory.policies.promotion import DEFAULT_RULES, PromotionRule
from memory.policies.quotas import Quota
from memory.policies.retention import RetentionRule
from memory.policies.routing import TIERS, document_prefixes
from memory.policies.tokens import DefaultCounter

MAIN = "main"
"""The name of the store that serves every tier without a setting."""


class BadSetting(ConfigError):
    """A setting that cannot be used; `path` is its dotted name."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path


def default_url() -> str:
    """The URL of the SQLite file in the user's data folder."""
    import platformdirs

    return "sqlite:///" + str(Path(platformdirs.user_data_dir("memory-tiers", appauthor=False)) / "memory.db")


_VARIABLE = re.compile(r"\$\{\w+\}|^\$\w+$")
"""A variable as shells and compose files write it. A URL has %7B for a brace."""


def _url(value: str) -> str:
    if _VARIABLE.search(value):
        raise ValueError(
            "holds a variable, and no variable is replaced here. Set the whole URL by a variable of its own,"
            " such as MEMORY__STORES__POSTGRES__URL"
        )
    if scheme_of(value) is None:
        raise ValueError("is not a URL with a scheme, such as sqlite:///memory.db")
    if mask_url(value) == value and HIDDEN in value:
        raise ValueError(f"is a masked URL: {HIDDEN} replaces its password. Write the password instead")
    return StoreUrl(value.strip())


def _url_or_name(value: str) -> str:
    if not value.strip():
        raise ValueError("must name a store or give a URL")
    if _VARIABLE.search(value):
        return _url(value)
    if is_broken_url(value):
        raise ValueError("is not a URL: '://' must follow the scheme, as in sqlite:///memory.db")
    if scheme_of(value):
        return _url(value)
    if (named := short_scheme(value)) is not None:
        raise ValueError(
            f"'{named[:40]}:' is not a scheme of an installed store. Installed:"
            f" {', '.join(sorted(installed_schemes()))}"
        )
    return value


def _quote_name(value: str) -> str:
    """Quote a name for a message; empty for anything else, which may hold a secret."""
    return f" '{value[:40]}'" if value.replace("-", "_").isidentifier() else ""


_Shown = PlainSerializer(mask_url)
"""A type whose dump hides secrets."""


MOST_INDEXES = 16
"""The most indexes on metadata and data. Every write of an entry updates them all."""


def _one_value(name: str) -> Callable[[object], object]:
    """Return a validator for a table given as one of its values, as in `retry = 3`."""

    def read(value: object) -> object:
        return value if value is None or isinstance(value, Mapping | BaseModel) else {name: value}

    return read


class RetrySettings(SettingsTable):
    """Retries of calls that find the store unavailable; see `Retry`.

    `attempts` counts all calls. `backoff` is the longest wait before the second one.
    """

    attempts: int = Field(default=3, ge=1, le=20)
    backoff: Duration = timedelta(milliseconds=100)


class BreakerSettings(SettingsTable):
    """When calls to a failing store are suspended; see `CircuitBreaker`.

    It opens after `failures` failed calls in a row, for `cool_down`.
    """

    failures: int = Field(default=5, ge=1)
    cool_down: Duration = timedelta(seconds=10)


class Guards(SettingsTable):
    """The wrappers of a store. All of them are off unless set."""

    timeout: Duration | None = None
    retry: Annotated[RetrySettings | None, BeforeValidator(_one_value("attempts"))] = None
    breaker: Annotated[BreakerSettings | None, BeforeValidator(_one_value("failures"))] = None

    def settings_by_name(self) -> dict[str, str | int]:
        """Return the settings that are set, by dotted name."""
        values: dict[str, str | int] = {"timeout": show_duration(self.timeout)} if self.timeout else {}
        if self.retry:
            values |= {
                "retry.attempts": self.retry.attempts,
                "retry.backoff": show_duration(self.retry.backoff),
            }
        if self.breaker:
            values |= {
                "breaker.failures": self.breaker.failures,
                "breaker.cool_down": show_duration(self.breaker.cool_down),
            }
        return values


class StoreConfig(Guards):
    """A named store: its URL, its options and its guards.

    The scheme of the URL names the adapter, which defines the options.
    """

    url: Annotated[str, AfterValidator(_url), _Shown]
    options: Annotated[dict[str, Any], AfterValidator(StoreOptions), PlainSerializer(mask_options)] = Field(
        default_factory=dict
    )

    def __repr_args__(self) -> Any:
        return [
            ("url", mask_url(self.url)),
            ("options", mask_options(self.options)),
            *self.settings_by_name().items(),
        ]


class Tiers(SettingsTable):
    """The store of each tier: the name of a store under `stores`, or a URL."""

    short: Annotated[str, AfterValidator(_url_or_name), _Shown] = MAIN
    mid: Annotated[str, AfterValidator(_url_or_name), _Shown] = MAIN
    long: Annotated[str, AfterValidator(_url_or_name), _Shown] = MAIN


class RouteConfig(SettingsTable):
    """Another store for a part of what a tier keeps; see `SplitStore`.

    All conditions of a route must hold, and the first matching route wins.
    """

    tiers: tuple[Literal["short", "mid", "long"], ...] = Field(min_length=1)
    store: Annotated[str, AfterValidator(_url_or_name), _Shown]
    tenants: tuple[str, ...] = ()
    scope_kinds: tuple[ScopeKind, ...] = ()
    collections: tuple[str, ...] = ()

    @field_validator("collections", mode="after")
    @classmethod
    def _known_collections(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        known = [c.name for c in KINDS.collections]
        for name in value:
            if name not in known:
                raise ValueError(
                    f"there is no collection {name[:40]!r}{did_you_mean(name, known)} (known:"
                    f" {', '.join(known)})"
                )
        return value

    @model_validator(mode="after")
    def _says_for_what(self) -> RouteConfig:
        if not (self.tenants or self.scope_kinds or self.collections):
            raise ValueError(
                "a route needs tenants, scope_kinds or collections. To route a whole tier, set [tiers]"
            )
        return self

    def describe(self) -> str:
        asked = [
            f"{name} {', '.join(values)}"
            for name in ("tenants", "scope_kinds", "collections")
            if (values := getattr(self, name))
        ]
        return f"{', '.join(self.tiers)}: {' and '.join(asked)} -> {mask_url(self.store)}"


class Durations(SettingsTable):
    """How long things last; see `EngineSettings`."""

    mark_life: Duration = EngineSettings().mark_life
    tombstone_life: Duration = EngineSettings().tombstone_life
    cache_max_age: Duration = EngineSettings().cache_max_age
    expired_grace: Interval = EngineSettings().expired_grace
    lease: Duration = EngineSettings().lease
    sweep_every: Interval = EngineSettings().sweep_every
    deadline: Duration = EngineSettings().deadline
    advice: Duration = EngineSettings().advice
    embedding: Interval = EngineSettings().embedding


class EmbedderSettings(SettingsTable):
    """The model that turns texts into vectors.

    `use` is "wordllama", "folder" for a sentence encoder in the folder `path`, or
    "none", which disables semantic search.
    """

    use: Literal["wordllama", "none", "folder"] = "wordllama"
    path: str | None = None

    @model_validator(mode="after")
    def _has_a_folder(self) -> EmbedderSettings:
        if self.use == "folder" and not self.path:
            raise BadSetting("embedder.path", "is missing. Set it to the folder of the encoder")
        if self.use != "folder" and self.path is not None:
            raise BadSetting(
                "embedder.path", f"applies only to use = \"folder\", not to '{self.use}'. Omit it"
            )
        return self

    def settings_by_name(self) -> dict[str, str]:
        """Return the settings that are set, by dotted name."""
        return (
            {"embedder": self.use}
            if self.path is None
            else {"embedder.use": self.use, "embedder.path": self.path}
        )


class ConversationSettings(SettingsTable):
    """Settings for messages of sessions.

    `meaning` says where the vectors for the semantic search of messages are kept:

    - "home": in the messages' own store (tier mid), if that has a vector index;
    - "long": in the store of tier long;
    - "off": nowhere, so messages are found by words only.

    The vectors do not contain the text.
    """

    meaning: Literal["home", "long", "off"] = "home"


class SearchSettings(SettingsTable):
    """Settings of searches.

    `cache_bytes` limits the vectors that are kept in memory for stores without a vector
    index; 0 keeps none.
    """

    cache_bytes: Annotated[int, Field(ge=0)] = EngineSettings().search_cache_bytes


class ArtifactSettings(SettingsTable):
    """Settings of artifacts.

    `max_bytes` is the largest size of an artifact. The quota `artifact_bytes` limits
    the total of a tenant, including large texts of its messages.
    """

    max_bytes: Annotated[int, Field(ge=1)] = EngineSettings().artifact_bytes


class DocumentSettings(SettingsTable):
    """Settings of documents.

    `short` names the scopes whose documents have their home in tier `short`: paths such
    as `path:cache/`, with all below them, and kinds such as `session`. All other
    documents are in tier `mid`.
    """

    short: tuple[str, ...] = ()

    @field_validator("short", mode="after")
    @classmethod
    def _scopes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        document_prefixes(value)
        return value

    @property
    def prefixes(self) -> tuple[str, ...]:
        """The texts with which the scopes of `short` begin."""
        return document_prefixes(self.short)


class EnrichmentSettings(SettingsTable):
    """The default enrichment of `write` and `write_with_report`.

    With `auto_tag` the advisor adds tags to new entries. With `auto_supersede` older
    entries that they supersede are retired. Both need an advisor; without one, nothing
    is done.
    """

    auto_tag: bool = False
    auto_supersede: bool = False


@dataclass(frozen=True)
class ServingStore:
    """A store that serves one or several tiers."""

    name: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)
    guards: Guards = field(default_factory=Guards)

    @property
    def is_plain(self) -> bool:
        """Whether the store has no settings besides its URL."""
        return not self.options and not self.guards.settings_by_name()

    def __repr__(self) -> str:
        said = f"name={self.name!r}, url={mask_url(self.url)!r}, options={mask_options(self.options)!r}"
        return f"ServingStore({said}, guards={self.guards.settings_by_name()!r})"


class MemoryConfig(SettingsTable):
    """All settings of a memory. Its dump and its text contain no secrets.

    Raises:
        ConfigError: For an invalid setting, with its name.
    """

    tenant: str = "default"
    embedder: Annotated[EmbedderSettings, BeforeValidator(_one_value("use"))] = EmbedderSettings()
    token_counter: str = DefaultCounter().name
    """The name of the counter of message tokens.

    It is the included counter, or one that an installed distribution registers under
    `memory.token_counters`.
    """
    accept_loss: bool | tuple[str, ...] = False
    """The stores whose loss of acknowledged data is accepted; True for all stores.

    Such a store may be a home of records without being durable.
    """
    require_all: bool = False
    """True: opening fails unless every store answers.

    Otherwise at least one store must answer. The others are opened when they are back.
    """
    inclusion_rules: bool = True
    consistency: Consistency = EngineSettings().consistency
    """When a write returns, unless the call says so itself; see `Memory.write`."""
    indexes: tuple[str, ...] = ()
    """Up to 16 paths that filters use often, such as `data.price` or `metadata.kind`.

    SQLite, PostgreSQL and MongoDB make an index for each. Other stores ignore it.
    """
    telemetry: bool = False
    """True: trace and time every store's calls with OpenTelemetry; see `Telemetry`."""
    tiers: Tiers = Tiers()
    routes: tuple[RouteConfig, ...] = ()
    stores: dict[str, StoreConfig] = Field(default_factory=dict)
    promotion: tuple[PromotionRule, ...] = DEFAULT_RULES
    policies: tuple[str, ...] = ()
    """Rules in Python, by name; asked in order, after `promotion`.

    Installed distributions register them under `memory.policies`.
    """
    retention: tuple[RetentionRule, ...] = ()
    """Rules that delete, end or keep records; the first match wins. Default: none."""
    quotas: tuple[Quota, ...] = ()
    """Limits on how much scopes and tenants may hold."""
    durations: Durations = Durations()
    conversations: ConversationSettings = ConversationSettings()
    search: SearchSettings = SearchSettings()
    artifacts: ArtifactSettings = ArtifactSettings()
    documents: DocumentSettings = DocumentSettings()
    enrichment: EnrichmentSettings = EnrichmentSettings()
    server: ServerSettings = ServerSettings()
    mcp: McpSection = McpSection()

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)
    _is_part: bool = PrivateAttr(default=False)

    def __init__(self, **settings: Any) -> None:
        try:
            super().__init__(**settings)
        except ValidationError as exc:
            raise _to_bad_setting(exc) from None  # pydantic's own error has the values, secrets too

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | None = None, **settings: Any
    ) -> MemoryConfig:
        """Load the configuration from all its sources.

        Arguments win over the environment, the environment over the file, and the file
        over defaults.

        Args:
            source: A file, a mapping of settings, or another configuration.
            **settings: Settings by name; they win over `source`.

        Raises:
            ConfigError: For an invalid setting, with its name and source.
        """
        return load(source, settings)

    @property
    def is_part(self) -> bool:
        """Whether it leaves stores of the memory out; see `only_tier`."""
        return self._is_part

    def only_tier(self, tier: Literal["short", "mid", "long"]) -> MemoryConfig:
        """Return a configuration with the stores of one tier, to use its documents.

        A memory of it does no maintenance, which needs the other stores. It does not
        change or check what its stores note about the others.
        """
        part = load(
            self,
            {
                "tiers": dict.fromkeys(TIERS, getattr(self.tiers, tier)),
                "routes": [
                    route.model_copy(update={"tiers": TIERS}) for route in self.routes if tier in route.tiers
                ],
                "durations": {"sweep_every": "0s"},
                "embedder": "none",
                "promotion": [],
                "retention": [],
                "policies": [],
            },
        )
        part._is_part = True
        return part

    @field_validator("tenant", mode="after")
    @classmethod
    def _tenant(cls, value: str) -> str:
        return tenant_name(value)

    @field_validator("stores", mode="after")
    @classmethod
    def _store_names(cls, value: dict[str, StoreConfig]) -> dict[str, StoreConfig]:
        for name in value:
            if not name.replace("-", "_").isidentifier() or name != name.lower() or "__" in name:
                raise ValueError(
                    f"{name[:40]!r} is not a valid store name. Use lower-case letters, digits, - and single _"
                )
        return value

    @field_validator("promotion", "retention", "quotas", mode="before")
    @classmethod
    def _lists_of_rules(cls, value: object, info: ValidationInfo) -> object:
        if not isinstance(value, list | tuple):
            listed = (
                f"should be a list of {'quotas' if info.field_name == 'quotas' else 'rules'}"
                f" ([[{info.field_name}]] in TOML"
            )
            raise ValueError(
                listed + (', JSON in the environment: [{"name": ...}])' if isinstance(value, str) else ")")
            )
        return value

    @field_validator("indexes", mode="after")
    @classmethod
    def _paths(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for path in value:
            if path.partition(".")[0] not in JSON or len(parse_path(path)) < 2 or len(value) > MOST_INDEXES:
                raise ValueError(
                    f"should be at most {MOST_INDEXES} paths such as 'metadata.price', 'data.kind'"
                )
        return value

    @property
    def indexed_paths(self) -> frozenset[tuple[str, ...]]:
        """The paths of `indexes`, as tuples of keys."""
        return frozenset(map(parse_path, self.indexes))

    @field_validator("policies", mode="before")
    @classmethod
    def _list_of_names(cls, value: object) -> object:
        if not isinstance(value, list | tuple):
            raise ValueError('should be a list of names, such as ["decided"]')
        return value

    @field_validator("promotion", "retention", "quotas", mode="after")
    @classmethod
    def _distinct_rules(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        names = [rule.name for rule in value]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two rules are named '{name}'. Rename one")
        return value

    @model_validator(mode="after")
    def _stores_are_known(self) -> MemoryConfig:
        known = [*self.stores, MAIN]
        said = {f"tiers.{tier}": getattr(self.tiers, tier) for tier in TIERS}
        said |= {f"routes.{number}.store": route.store for number, route in enumerate(self.routes, start=1)}
        for path, name in said.items():
            if scheme_of(name) is None and name not in known:
                hint = did_you_mean(name, known)
                if name.lower().endswith(DATABASE_SUFFIXES):
                    hint = ". Write the path of a SQLite file as a URL, such as sqlite:///memory.db"
                raise BadSetting(path, f"names no store{_quote_name(name)} (and is no URL){hint}")
        in_use = [store.name for store in self.stores_in_use()]
        for name in self.accept_loss if not isinstance(self.accept_loss, bool) else ():
            if name not in in_use:
                raise BadSetting(
                    "accept_loss",
                    f"names no store in use{_quote_name(name)}{did_you_mean(name, in_use)} (in use:"
                    f" {', '.join(in_use)})",
                )
        return self

    @property
    def origins(self) -> Mapping[str, str]:
        """The source of each value of `leaves()`.

        It is 'default', 'argument', an environment variable, or a file and line.
        """
        return MappingProxyType({path: self._origins.get(path, "default") for path in self.leaves()})

    @property
    def engine(self) -> EngineSettings:
        """The settings of the engine."""
        lengths = {name: getattr(self.durations, name) for name in Durations.model_fields}
        return EngineSettings(
            **lengths,
            consistency=self.consistency,
            search_cache_bytes=self.search.cache_bytes,
            artifact_bytes=self.artifacts.max_bytes,
        )

    def serving_stores(self) -> dict[str, ServingStore]:
        """Return the store of each tier, without routes.

        Tiers with the same store or the same URL share one object.
        """
        found = self._stores_by_name
        return {tier: found[getattr(self.tiers, tier)] for tier in TIERS}

    def routes_of(self, tier: str) -> list[tuple[RouteConfig, ServingStore]]:
        """Return the routes from a tier, in order, each with its store."""
        found = self._stores_by_name
        return [(route, found[route.store]) for route in self.routes if tier in route.tiers]

    def stores_in_use(self) -> list[ServingStore]:
        """Return every distinct store that a tier or a route names."""
        return list({store.name: store for store in self._stores_by_name.values()}.values())

    def tiers_on(self, name: str) -> list[str]:
        """Return the tiers that a store serves, fully or in part."""
        return [
            tier
            for tier, store in self.serving_stores().items()
            if name in (store.name, *(to.name for _, to in self.routes_of(tier)))
        ]

    @cached_property
    def _stores_by_name(self) -> dict[str, ServingStore]:
        """The store for each name or URL that a tier or a route gives."""
        named = {
            name: ServingStore(name, store.url, store.options, store) for name, store in self.stores.items()
        }
        if MAIN not in named:
            named[MAIN] = ServingStore(MAIN, StoreUrl(default_url()))
        by_url = {store.url: store for store in reversed(named.values()) if store.is_plain}
        found: dict[str, ServingStore] = {}
        for said in (*(getattr(self.tiers, tier) for tier in TIERS), *(route.store for route in self.routes)):
            store = named.get(said) or by_url.get(said)
            if store is None:
                store = ServingStore(_free_name(scheme_of(said) or "store", named), said)
                named[store.name] = by_url[said] = store
            found[said] = store
        return found

    def prepare(self) -> None:
        """Create the default data folder, readable by its owner only.

        It is created only if the default file is in use.
        """
        if any(store.url == default_url() for store in self.stores_in_use()):
            folder = Path(default_url().removeprefix("sqlite:///")).parent
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as exc:
                raise ConfigError(
                    f"cannot create the data folder {folder}: {exc.strerror}; run `memory init` or set tiers"
                    " to another store"
                ) from exc

    def leaves(self) -> dict[str, Any]:
        """Return every value by its dotted name, for display.

        Secrets are hidden, durations are text, and the stores in use are included.
        """
        plain = (
            "tenant",
            "token_counter",
            "accept_loss",
            "require_all",
            "inclusion_rules",
            "consistency",
            "indexes",
            "telemetry",
        )
        shown: dict[str, Any] = {
            name: getattr(self, name) for name in plain
        } | self.embedder.settings_by_name()
        shown |= {f"tiers.{tier}": mask_url(getattr(self.tiers, tier)) for tier in TIERS}
        stores: dict[str, StoreConfig | ServingStore] = {
            **self.stores,
            **{s.name: s for s in self.stores_in_use() if s.name == MAIN},
        }
        for name, store in stores.items():
            shown[f"stores.{name}.url"] = mask_url(store.url)
            shown |= {
                f"stores.{name}.options.{key}": value for key, value in mask_options(store.options).items()
            }
            guards = store.guards if isinstance(store, ServingStore) else store
            shown |= {f"stores.{name}.{key}": value for key, value in guards.settings_by_name().items()}
        shown |= {f"routes.{number}": route.describe() for number, route in enumerate(self.routes, start=1)}
        shown |= {
            f"promotion.{number}": rule.name + ": " + rule.describe()
            for number, rule in enumerate(self.promotion, start=1)
        }
        shown |= {
            f"retention.{number}": rule.name + ": " + rule.describe()
            for number, rule in enumerate(self.retention, start=1)
        }
        shown |= {
            f"quotas.{number}": quota.name + ": " + quota.describe()
            for number, quota in enumerate(self.quotas, start=1)
        }
        shown |= {"policies": ", ".join(self.policies)} if self.policies else {}
        shown |= {
            "conversations.meaning": self.conversations.meaning,
            "search.cache_bytes": self.search.cache_bytes,
        }
        shown["artifacts.max_bytes"] = self.artifacts.max_bytes
        shown["documents.short"] = self.documents.short
        shown |= {
            f"enrichment.{name}": getattr(self.enrichment, name) for name in EnrichmentSettings.model_fields
        }
        for section, settings in (("server", self.server), ("mcp", self.mcp)):
            shown |= {f"{section}.{name}": value for name, value in settings.settings_by_name().items()}
        return shown | {
            f"durations.{name}": show_duration(getattr(self.durations, name))
            for name in Durations.model_fields
        }


def load(
    source: str | os.PathLike[str] | Mapping[str, Any] | MemoryConfig | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> MemoryConfig:
    """Load the configuration from all its sources.

    Tests pass `environ` and `folder` to replace those of the process.
    """
    if not isinstance(source, MemoryConfig):
        check_variables(MemoryConfig.model_fields, environ)
    first = _as_layer(source) if isinstance(source, MemoryConfig) else source
    given = {  # None means omitted, but not where the name is wrong
        name: value
        for name, value in (settings or {}).items()
        if value is not None or name not in MemoryConfig.model_fields
    }
    tree, origins = gather_settings(first, given, environ=environ, folder=folder)
    try:
        config = MemoryConfig(**tree)
    except BadSetting as exc:
        raise ConfigError(f"{origins.near(exc.path)}: {exc}") from None
    config._origins.update({leaf: origins.of(leaf) for leaf in config.leaves()})
    config._is_part = isinstance(source, MemoryConfig) and source.is_part
    return config


def _as_layer(config: MemoryConfig) -> Layer:
    known = dict(config.origins)
    return Layer(_plain(config), lambda path: known.get(path, "argument"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(inner) for name, inner in value.items()}
    if isinstance(value, BaseModel):  # its own dump would hide secrets
        return {name: _plain(getattr(value, name)) for name in value.model_fields_set}
    return type(value)(map(_plain, value)) if isinstance(value, list | tuple) else value


def _free_name(wanted: str, taken: Mapping[str, object]) -> str:
    candidates = (wanted if number == 1 else f"{wanted}-{number}" for number in range(1, len(taken) + 2))
    return next(name for name in candidates if name not in taken)


def _to_bad_setting(exc: ValidationError) -> BadSetting:
    """Convert the first pydantic error to a `BadSetting`, without the given value."""
    errors = exc.errors(include_url=False, include_input=False)
    unknown = (one for one in errors if one["type"] == "extra_forbidden")
    first = next(unknown, errors[0])  # a misspelt setting is often missing too
    path = ".".join(str(part + 1) if isinstance(part, int) else part for part in first["loc"])
    parent, _, name = path.rpartition(".")
    refused = first.get("ctx", {}).get("error")
    if isinstance(refused, InvalidInput):
        return BadSetting(refused.field if "." in refused.field else path, refused.problem)
    if first["type"] == "extra_forbidden":
        known = _settings_under(first["loc"][:-1])
        where = f"in [{parent}]" if parent else "at the top"
        return BadSetting(
            path,
            f"there is no setting '{name}' {where}{setting_hint(name, known, parent)} (known:"
            f" {', '.join(known)})",
        )
    if first["type"] == "model_type":
        return BadSetting(path, f"must be a table of settings: {', '.join(_settings_under(first['loc']))}")
    return BadSetting(path, explain_error(first, an_object="a table"))


def _settings_under(location: tuple[int | str, ...]) -> list[str]:
    """Return the names of the settings in a table of the configuration."""
    table: type[BaseModel] = MemoryConfig
    is_name = False  # of a store, which may be called as a setting
    for part in location:
        field = None if is_name else table.model_fields.get(str(part))
        is_name = field is not None and get_origin(field.annotation) is dict
        table = (field and _model_in(field.annotation)) or table
    return list(table.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a type names, such as the one of a list's items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
