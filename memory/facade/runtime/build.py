"""Build an engine from a configuration.

The scheme of a store's URL names its adapter; embedders are found by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from importlib import metadata
from types import ModuleType
from typing import Any, Literal, TypeVar

from memory.adapters.wrappers.breaker import CircuitBreaker
from memory.adapters.wrappers.latecomer import DeferredOpen
from memory.adapters.wrappers.retry import Retry
from memory.adapters.wrappers.timeout import Timeout
from memory.domain.errors import ConfigError, InvalidInput
from memory.facade.config.settings import EmbedderSettings, Guards, MemoryConfig, ServingStore
from memory.facade.config.values import ADAPTERS, scheme_of
from memory.orchestrator.engine import Engine
from memory.orchestrator.storage.collections import ENTRIES
from memory.orchestrator.storage.settings import EngineSettings
from memory.orchestrator.storage.split import Share, SplitStore
from memory.orchestrator.storage.topology import Topology
from memory.orchestrator.trust.gates import RecallGate, WriteGate
from memory.policies.promotion import CustomRule, Policy
from memory.policies.tokens import DefaultCounter, FunctionCounter
from memory.policies.window_exit import WindowExitFunction
from memory.ports.adapter import Adapter
from memory.ports.advisor import Advisor, Reranker
from memory.ports.base import BaseStore
from memory.ports.clock import Clock, system_clock
from memory.ports.embedder import Embedder
from memory.ports.store import Store
from memory.ports.tokens import TokenCounter

COUNTERS = "memory.token_counters"
POLICIES = "memory.policies"
"""The entry-point groups of other distributions.

Each entry point is an object, or a class that is called without arguments.
"""
DEFAULTS = EngineSettings()


def build_engine(
    config: MemoryConfig,
    *,
    embedder: Embedder | None,
    clock: Clock,
    counter: TokenCounter | None = None,
    on_window_exit: WindowExitFunction | Literal["elsewhere"] | None = None,
    advisor: Advisor | None = None,
    reranker: Advisor | Reranker | None = None,
    policies: Sequence[CustomRule] = (),
    write_gate: WriteGate | None = None,
    recall_gate: RecallGate | None = None,
    prepared: bool = True,
) -> Engine:
    """Build the engine of this configuration. It is not opened or connected.

    Without `prepared` nothing is created on disk either.
    """
    if prepared:
        config.prepare()
    decides = (*map(policy_named, config.policies), *policies)
    names = [rule.name for rule in config.promotion] + [rule.name for rule in decides]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(
            f"policies: two rules are named '{twice}'. Rename one: reports and plans identify rules by name"
        )
    made: dict[str, Store] = {}
    for store in config.stores_in_use():
        tiers, mark_life = config.tiers_on(store.name), config.engine.mark_life
        bare = build_store(store)
        if config.indexes and isinstance(bare, BaseStore):
            bare.json_paths = {ENTRIES.name: config.indexed_paths}
        whole = with_guards(bare, store.guards, config.telemetry, tiers, mark_life=mark_life, clock=clock)
        made[store.name] = (
            whole if config.require_all or len(config.stores_in_use()) == 1 else DeferredOpen(whole)
        )
    forgetful = all(scheme_of(store.url) == "memory" for store in config.stores_in_use())
    topology = Topology(
        **_tiers(config, made),
        accept_loss=forgetful or config.accept_loss,
        documents_in_short=config.documents.prefixes,
    )
    engine = Engine(
        topology,
        embedder=embedder or embedder_of(config.embedder),
        counter=counter or counter_named(config.token_counter),
        clock=clock,
        settings=config.engine,
        rules=config.promotion,
        policies=decides,
        retention=config.retention,
        quotas=config.quotas,
        on_window_exit=on_window_exit,
        passages=config.conversations.meaning,
        advisor=advisor,
        reranker=reranker,
        write_gate=write_gate,
        recall_gate=recall_gate,
    )
    if config.telemetry:
        engine.deliveries.watcher = _telemetry().DeliveryMetrics()
        engine.maintenance.watcher = _telemetry().MaintenanceMetrics()
        engine.enricher.watcher = _telemetry().EnrichmentMetrics()
    return engine


def _tiers(config: MemoryConfig, made: Mapping[str, Store]) -> dict[str, Store]:
    """Return the store of each tier. Tiers with the same split share one object."""
    alike: dict[Any, Store] = {}
    tiers: dict[str, Store] = {}
    for tier, store in config.serving_stores().items():
        shares = tuple(
            Share(
                made[to.name],
                frozenset(route.tenants),
                frozenset(route.scope_kinds),
                frozenset(route.collections),
            )
            for route, to in config.routes_of(tier)
        )
        name = "+".join(dict.fromkeys([*(share.store.name for share in shares), store.name]))
        whole = SplitStore(name, shares, made[store.name]) if shares else made[store.name]
        tiers[tier] = alike.setdefault((shares, store.name), whole)
    return tiers


def build_store(store: ServingStore) -> Store:
    """Build one store. It is not opened."""
    scheme = scheme_of(store.url) or ""
    adapter = adapter_for(scheme, store.name)
    if adapter.planned:
        raise ConfigError(
            f"store '{store.name}': the adapter for '{scheme}' is planned, and not implemented yet; put the"
            " tier on another store"
        )
    try:
        return adapter.build(store.name, store.url, store.options)
    except ImportError as error:
        raise _missing_driver_error(error, store.name, scheme, adapter.extra) from error
    except ConfigError:
        if "@" not in store.url.partition("?")[2]:
            raise
        told = (
            "cannot be parsed, because an '@' follows a '?'. In a password write '?' as %3F, '@' as %40, '/'"
            " as %2F and '#' as %23"
        )
        raise ConfigError(
            f"store '{store.name}': its URL {told}"
        ) from None  # the adapter's error would repeat parts of a password that it took for options


def with_guards(
    store: Store,
    guards: Guards,
    telemetry: bool = False,
    tiers: Sequence[str] = (),
    *,
    mark_life: timedelta = DEFAULTS.mark_life,
    clock: Clock = system_clock,
) -> Store:
    """Wrap the store in its guards.

    From the inside: each attempt has a timeout, the breaker counts whole calls, and
    telemetry sees everything.
    """
    if guards.timeout:
        store = Timeout(store, guards.timeout.total_seconds())
    if guards.retry:
        store = Retry(
            store,
            guards.retry.attempts,
            guards.retry.backoff.total_seconds(),
            give_up_after=mark_life / 2,
            clock=clock,
        )
    if guards.breaker:
        store = CircuitBreaker(store, guards.breaker.failures, guards.breaker.cool_down.total_seconds())
    return _telemetry().Telemetry(store, tiers) if telemetry else store


def _telemetry() -> ModuleType:
    try:
        from memory.adapters.wrappers import telemetry
    except ImportError as error:
        raise ConfigError(
            f"telemetry: needs '{error.name}'; run pip install 'memory-tiers[telemetry]', or set telemetry ="
            " false"
        ) from error
    return telemetry


def embedder_of(settings: EmbedderSettings) -> Embedder | None:
    """Return the configured embedder; None disables semantic search."""
    if settings.use == "none":
        return None
    if settings.path is not None:
        from memory.adapters.embedders.folder import FolderEmbedder

        return FolderEmbedder(settings.path)
    from memory.adapters.embedders.wordllama import WordLlamaEmbedder

    return WordLlamaEmbedder()


def _require_function(setting: str, given: object, accepted: str) -> None:
    if not callable(given):
        raise ConfigError(f"{setting}: must be {accepted}, not {type(given).__name__}")


def as_embedder(given: Embedder | Callable[..., Any]) -> Embedder:
    """Return an embedder; a plain function is wrapped as one."""
    if isinstance(given, Embedder):
        return given
    _require_function("embedder", given, "an Embedder, a function from texts to vectors, or a name")
    from memory.adapters.embedders.function import FunctionEmbedder

    return FunctionEmbedder(given)


def as_advisor(given: Advisor | Callable[..., Any]) -> Advisor:
    """Return an advisor; a plain function is wrapped as one."""
    if isinstance(given, Advisor):
        return given
    _require_function("advisor", given, "an Advisor, or a function from a prompt to text")
    from memory.adapters.advisors.function import FunctionAdvisor

    return FunctionAdvisor(given)


def as_reranker(given: Advisor | Reranker | Callable[..., Any]) -> Advisor | Reranker:
    """Return a reranker, or an advisor that reranks; a plain function is wrapped."""
    if isinstance(given, Advisor | Reranker):
        return given
    _require_function(
        "reranker", given, "a Reranker, an Advisor, or a function from a question and texts to scores"
    )
    from memory.adapters.advisors.function import FunctionReranker

    return FunctionReranker(given)


T = TypeVar("T")


def as_gate(name: str, given: T) -> T:
    """Validate a gate."""
    if given is not None:
        _require_function(name, given, "a function")
    return given


def counter_named(name: str) -> TokenCounter:
    """Return the token counter with a configured name.

    It is the included one, or one registered under `memory.token_counters`.
    """
    if name == DefaultCounter().name:
        return DefaultCounter()
    return as_counter(
        _load_entry_point(
            "token_counter",
            COUNTERS,
            name,
            "any function from a text to its tokens",
            ours=[DefaultCounter().name],
        )
    )


def as_counter(given: TokenCounter | Callable[[str], int]) -> TokenCounter:
    """Return a token counter; a plain function is wrapped as one."""
    if isinstance(given, TokenCounter):
        return given
    _require_function(
        "token_counter", given, "a TokenCounter, a function from a text to its tokens, or a name"
    )
    return FunctionCounter(given)


def policy_named(name: str) -> CustomRule:
    """Return the policy registered under `memory.policies` with this name."""
    return as_policy(_load_entry_point("policies", POLICIES, name, "any object with a name and `decide`"))


def as_policy(given: Policy) -> CustomRule:
    """Validate a policy."""
    try:
        return CustomRule.of(given)
    except InvalidInput as error:
        raise ConfigError(str(error)) from None


def _load_entry_point(setting: str, group: str, name: str, instead: str, ours: Sequence[str] = ()) -> Any:
    """Load an entry point of a distribution; a class is instantiated.

    Raises:
        ConfigError: If the name is not registered, or its module cannot be imported.
    """
    points = {point.name: point for point in metadata.entry_points(group=group)}
    if name not in points:
        known = ", ".join([*ours, *sorted(points)])
        there_are = f"there are: {known}" if known else "none is installed"
        raise ConfigError(f"{setting}: there is no '{name[:40]}'; {there_are}. In Python, pass {instead}")
    try:
        found = points[name].load()
    except ImportError as error:
        raise ConfigError(f"{setting}: '{name}' needs '{error.name or error}'; install it") from error
    return found() if isinstance(found, type) else found


def check_adapters(config: MemoryConfig) -> None:
    """Raise `ConfigError` for a store of an unknown kind. No adapter is imported."""
    for store in config.stores_in_use():
        _point_of(scheme_of(store.url) or "", store.name)


def adapter_for(scheme: str, store: str) -> Adapter:
    """Return the adapter registered for a URL scheme.

    Third parties register adapters under the entry-point group `memory.adapters`.
    """
    try:
        adapter: Adapter = _point_of(scheme, store).load()
    except ImportError as error:
        raise _missing_driver_error(error, store, scheme, "") from error
    return adapter


def _point_of(scheme: str, store: str) -> metadata.EntryPoint:
    for point in _adapter_entry_points():
        if point.name == scheme:
            return point
    known = (
        ", ".join(sorted({point.name for point in _adapter_entry_points()}))
        or "none: is memory-tiers installed?"
    )
    raise ConfigError(
        f"Unsupported memory store type: {scheme}, asked for by store '{store}'; there are adapters for:"
        f" {known}"
    )


def _missing_driver_error(error: ImportError, store: str, scheme: str, extra: str) -> ConfigError:
    """Return the error that says how to install an adapter's missing driver."""
    advice = (
        f"run pip install 'memory-tiers[{extra}]'"
        if extra
        else "reinstall it, or the distribution that provides the adapter"
    )
    package = (error.name or str(error)).partition(".")[0]
    return ConfigError(f"store '{store}': the adapter for '{scheme}' needs '{package}'; {advice}")


@lru_cache(maxsize=1)
def _adapter_entry_points() -> Sequence[metadata.EntryPoint]:
    return tuple(metadata.entry_points(group=ADAPTERS))
