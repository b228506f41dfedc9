"""Which test of the contract is asked of which harness: on every run, in CI and in
`make nightly`. No pair falls out without a word.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import memory.ports.contract as contract
import tests.contract
from memory.ports.contract.capability_tests import MARK, fits
from memory.ports.contract.clauses import MARK as CLAUSE
from memory.ports.contract.harness import Harness
from tests.contract.every_harness import DEFAULT, EVERY, HARNESSES, primary_of
from tests.contract.harnesses import EMBEDDED
from tests.contract.less_harnesses import WITHOUT
from tests.support.backends import BACKENDS
from tests.support.depth import LEFT_TO_NIGHTLY, THOROUGH

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_IMAGE = {"mysql", "qdrant_server"}
"""Backends whose images CI cannot have: see docs/known-limits.md."""
ONLY_NIGHTLY = {"image"}
"""What is built and run by `make nightly` alone."""
BY_NAME = {
    (case[2], case[1])
    for line in LEFT_TO_NIGHTLY
    if (case := re.match(r".*test_built_ins\.py::(\w+)\[(\w+)", line))
}
"""The pairs of harness and test of which `tests/nightly.txt` leaves a case to `make
nightly`.
"""


OF_ONE_SERVER = {"remote.in-time", "remote.kept", "shared.processes"}
"""Clauses about servers that fail and about other processes. They take longest, and CI
asks them of one server.
"""


@cache
def _functions() -> dict[str, Callable[..., Any]]:
    """Every test of the contract, from the modules that it is written in."""
    modules = [m.name for m in pkgutil.iter_modules(contract.__path__) if m.name.startswith("test_")]
    found = [vars(importlib.import_module(f"{contract.__name__}.{name}")) for name in modules]
    return {
        name: test
        for one in found
        for name, test in one.items()
        if name.startswith("test_") and callable(test)
    }


def _clauses(test: Callable[..., Any]) -> set[str]:
    return {i for mark in getattr(test, "pytestmark", ()) if mark.name == CLAUSE for i in mark.args}


def _concerns(test: Callable[..., Any], harness: type[Harness] | None) -> bool:
    return harness is not None and all(
        fits(mark, harness) for mark in getattr(test, "pytestmark", ()) if mark.name == MARK
    )


def _left_out(
    asked: set[tuple[str, str]],
    harnesses: Iterable[type[Harness]],
    *,
    repeats: bool = True,
    shared: bool = True,
) -> list[tuple[str, str]]:
    """The pairs of harness and test that belong together and are not asked. `repeats`:
    also where a variant's primary is asked the same. `shared`: also where the default
    store is asked the same.
    """
    concerned = {
        (harness.name, name)
        for name, test in _functions().items()
        for harness in harnesses
        if _concerns(test, harness)
        and (repeats or not _concerns(test, primary_of(harness)))
        and (shared or harness is DEFAULT or not _concerns(test, DEFAULT))
    }
    return sorted(concerned - asked)


def _is_whole(config: pytest.Config) -> bool:
    """Whether nobody chose some of the tests, by their names, marks or places."""
    options = config.option
    return (
        config.args_source is pytest.Config.ArgsSource.TESTPATHS
        and not options.keyword
        and not options.markexpr
    )


def _unasked_without(asked: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of capability and test where no store that lacks the one is asked the
    other, though it concerns such a store.
    """
    single = {harness.lacks[0]: harness for harness in WITHOUT if len(harness.lacks) == 1}
    return [
        (flag, name)
        for flag, harness in single.items()
        for name, test in _functions().items()
        if _concerns(test, harness)
        and not any((one.name, name) in asked for one in HARNESSES if not getattr(one.claims, flag))
    ]


def _unasked_clauses(asked: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of store and clause where no test that cites the clause is asked, though
    one concerns the store. Variants are asked what their primaries cannot be asked.
    """
    return sorted(
        {
            (harness.name, clause)
            for harness in HARNESSES
            if primary_of(harness) is None
            for test in _functions().values()
            if _concerns(test, harness)
            for clause in _clauses(test)
        }
        - {(harness, clause) for harness, name in asked for clause in _clauses(_functions()[name])}
    )


def test_each_test_of_the_contract_is_asked_of_each_harness_that_it_concerns(
    request: pytest.FixtureRequest,
) -> None:
    """CI does not ask a variant what its primary is asked, and asks a primary each clause,
    but not each test. `make nightly` asks every store all, one half in one night. Everyone's
    run asks the default store all, and each other primary what that cannot be asked.
    """
    if not _is_whole(request.config):
        pytest.skip("some tests were chosen")
    asked = set()
    for item in request.session.items:
        harness = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        if isinstance(item, pytest.Function) and isinstance(harness, type) and issubclass(harness, Harness):
            asked.add((harness.name, item.originalname))
    alike = [harness for harness in HARNESSES if harness not in WITHOUT]
    left_out = _left_out(asked, alike, repeats=False, shared=THOROUGH)
    assert [pair for pair in left_out if pair not in BY_NAME] == []
    assert {test for _, test in left_out} <= {test for _, test in asked}, "each is asked of another harness"
    if THOROUGH:
        assert _unasked_without(asked) == []
        assert [pair for pair in _unasked_clauses(asked) if pair[1] not in OF_ONE_SERVER] == []


def test_a_pair_that_fell_out_is_named() -> None:
    every = set(_left_out(set(), EMBEDDED))
    assert len(every) > 1_000
    gone = ("sqlite", "test_an_opened_store_claims_what_its_harness_says")
    assert _left_out(every - {gone}, EMBEDDED) == [gone]
    assert _left_out(every - {gone}, EMBEDDED, repeats=False, shared=False) == [gone], (
        "of the default store on every run"
    )
    alone = ("in_memory_server", "test_what_was_acknowledged_survives_the_death_of_a_durable_store")
    assert _left_out(every - {alone}, EMBEDDED, repeats=False) == [alone], (
        "and of a variant where its primary is not asked"
    )
    shared = ("qdrant_edge", "test_an_opened_store_claims_what_its_harness_says")
    edge = [one for one in EVERY if one.name == "qdrant_edge"]
    whole = set(_left_out(set(), edge))
    assert _left_out(whole - {shared}, edge) == [shared], "in CI"
    assert _left_out(whole - {shared}, edge, shared=False) == []
    own = _left_out(set(), edge, shared=False)
    assert own
    assert _left_out(whole - {own[0]}, edge, shared=False) == [own[0]], (
        "what the default store cannot be asked, on every run"
    )


def test_every_harness_there_is_belongs_to_the_set() -> None:
    modules = [m.name for m in pkgutil.iter_modules(tests.contract.__path__) if m.name.endswith("harnesses")]
    found = [
        one
        for name in modules
        for one in vars(importlib.import_module(f"tests.contract.{name}")).values()
        if isinstance(one, type)
    ]
    named = {one for one in found if issubclass(one, Harness) and isinstance(vars(one).get("name"), str)}
    assert named == set(EVERY)


def test_a_variant_names_a_primary_that_draws_in_full() -> None:
    """And an adapter that CI runs has one."""
    by_name = {harness.name: harness for harness in EVERY}
    for harness in EVERY:
        assert not harness.primary or by_name[harness.primary].primary == "", harness.name
    full = {harness.name for harness in EVERY if not harness.primary}
    assert full >= {
        "in_memory",
        "sqlite",
        "file",
        "redis",
        "postgresql",
        "mariadb",
        "mongo_replica_set",
        "qdrant_edge",
        "qdrant_local",
    }


def test_ci_requires_every_backend_it_can_have_and_leaves_no_test_of_it_out() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (required,) = re.findall(r"MEMORY_REQUIRE=\$\{MEMORY_REQUIRE:-([\w,]+)\}", script)
    assert set(required.split(",")) == set(BACKENDS) - WITHOUT_IMAGE - ONLY_NIGHTLY
    assert not re.search(
        r"(?m)^[^#\n]*( -[mk] '|--deselect|--ignore|contract-depth|\bdate\b|MEMORY_NIGHTLY=)", script
    )
    assert not any(
        mark.name in ("processor", "thorough")
        for test in _functions().values()
        for mark in getattr(test, "pytestmark", ())
    )
