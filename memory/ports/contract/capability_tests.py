"""Maps tests to capabilities, and decides for which harnesses a test runs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from memory.ports import capabilities
from memory.ports.capabilities import Capabilities
from memory.ports.contract import clauses

if TYPE_CHECKING:
    from memory.ports.contract.harness import Harness

Test = TypeVar("Test", bound=Callable[..., Any])

MARK = "memory_contract"
_WORKS: dict[str, list[str]] = {}
_REFUSED: dict[str, list[str]] = {}


class UnknownCapability(Exception):
    """A contract test or harness names a capability that does not exist."""


def works(*names: str) -> Callable[[Test], Test]:
    """The test proves that these capabilities work, and limits bind, if claimed."""
    return _judge(_WORKS, names, needs(*names))


def refuses(*names: str) -> Callable[[Test], Test]:
    """The test proves the behaviour without these capabilities or limits."""
    return _judge(_REFUSED, names, without(*names))


def needs(*names: str) -> Callable[[Test], Test]:
    """The test runs for harnesses that claim all of these."""
    return _capability_mark("claimed", names)


def without(*names: str) -> Callable[[Test], Test]:
    """The test runs for harnesses that claim none of these."""
    return _capability_mark("unclaimed", names)


def needs_server(test: Test) -> Test:
    """The test runs for harnesses whose store uses a server over a network."""
    return _where(test, remote=True)


def needs_urls(test: Test) -> Test:
    """The test runs for harnesses that name the URLs of their store."""
    return _where(test, built=True)


def needs_limited_space(test: Test) -> Test:
    """The test runs for harnesses that can limit the space of their store."""
    return _where(test, cramped=True)


def needs_tiny(test: Test) -> Test:
    """The test runs for harnesses that can make their adapter's thresholds tiny."""
    return _where(test, tiny=True)


def needs_derived_damage(test: Test) -> Test:
    """The test runs for harnesses that can damage their store's derived data."""
    return _where(test, derived=True)


def needs_files(test: Test) -> Test:
    """The test runs for harnesses that name the files of their store."""
    return _where(test, files=True)


def needs_address(test: Test) -> Test:
    """The test runs for harnesses that give another process their store's address."""
    return _where(test, address=True)


def fits(mark: pytest.Mark, harness: type[Harness]) -> bool:
    """Return whether a test with this mark runs for this harness."""
    wanted, unwanted = mark.kwargs.get("claimed", ()), mark.kwargs.get("unclaimed", ())
    hooks = hooks_of(harness)  # type: ignore[arg-type]  # mypy takes no class for hashable
    if any(wants and not hooks.get(what, True) for what, wants in mark.kwargs.items()):
        return False
    return all(_is_claimed(harness.claims, name) for name in wanted) and not any(
        _is_claimed(harness.claims, name) for name in unwanted
    )


@cache
def hooks_of(harness: type[Harness]) -> Mapping[str, bool]:
    """Return which optional hooks a harness has, by the argument names of the mark."""
    return {
        "remote": harness.remote,
        "built": bool(harness.urls),
        "cramped": harness.can_be_cramped(),
        "derived": harness.can_damage_derived(),
        "tiny": harness.can_be_tiny(),
        "files": harness.has_files(),
        "address": harness.has_address(),
    }


def untested_capabilities() -> list[str]:
    """Return the flags and limits without a test for one of both sides.

    Each needs a test for claimed and a test for not claimed.
    """
    for module in ("test_flags", "test_limits"):
        importlib.import_module(f"memory.ports.contract.{module}")
    names = (*capabilities.FLAGS, *capabilities.LIMITS)
    missing = [f"'{name}' has no test that it works where claimed" for name in names if name not in _WORKS]
    return missing + [
        f"'{name}' has no test of what happens where it is not claimed"
        for name in names
        if name not in _REFUSED
    ]


def uncited_clauses() -> list[str]:
    """Return the clauses that no test of the contract cites."""
    suite = importlib.import_module("memory.ports.contract.suite")
    tests = [value for name, value in vars(suite).items() if name.startswith("test_")]
    cited = {
        i
        for test in tests
        for mark in getattr(test, "pytestmark", ())
        if mark.name == clauses.MARK
        for i in mark.args
    }
    return [i for i in clauses.CLAUSES if i not in cited]


def _judge(
    registry: dict[str, list[str]], names: tuple[str, ...], mark: Callable[[Test], Test]
) -> Callable[[Test], Test]:
    def register(test: Test) -> Test:
        for name in names:
            registry.setdefault(name, []).append(test.__name__)
        return mark(test)

    return register


def _where(test: Test, **hook: bool) -> Test:
    mark: Callable[[Test], Test] = getattr(pytest.mark, MARK)(**hook)
    return mark(test)


def _capability_mark(side: str, names: tuple[str, ...]) -> Callable[[Test], Test]:
    known = (*capabilities.FLAGS, *capabilities.LIMITS, "loss_window")
    if unknown := [name for name in names if name not in known]:
        raise UnknownCapability(
            f"no capability is called {', '.join(map(repr, unknown))}; there are: {', '.join(known)}"
        )
    mark: Callable[[Test], Test] = getattr(pytest.mark, MARK)(**{side: names})
    return mark


def _is_claimed(claims: Capabilities, name: str) -> bool:
    value = getattr(claims, name)
    return value if isinstance(value, bool) else value is not None
