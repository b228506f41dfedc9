"""What CI asks: each test of the contract on each harness it concerns; and what everyone's run does: each on each primary, and on a variant what its
primary is not asked. Nothing falls out of these sets without a word."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import memory.ports.contract as contract
import tests.contract
from memory.ports.contract.harness import Harness
from memory.ports.contract.judges import MARK, fits
from tests.contract.every_harness import DEFAULT, EVERY, HARNESSES, primary_of
from tests.contract.harnesses import EMBEDDED
from tests.contract.less_harnesses import WITHOUT
from tests.support.backends import BACKENDS
from tests.support.depth import THOROUGH, TURN, has_its_turn, is_whole, turn_of

ROOT = Path(__file__).resolve().parents[2]
WITHOUT_IMAGE = {"mysql", "qdrant_server"}
"""Backends whose images CI cannot have: see docs/plan.md."""


def _functions() -> dict[str, Callable[..., Any]]:
    """Every test of the contract, from the modules that it is written in."""
    modules = [m.name for m in pkgutil.iter_modules(contract.__path__) if m.name.startswith("test_")]
    found = [vars(importlib.import_module(f"{contract.__name__}.{name}")) for name in modules]
    return {name: test for one in found for name, test in one.items() if name.startswith("test_") and callable(test)}


def _concerns(test: Callable[..., Any], harness: type[Harness] | None) -> bool:
    return harness is not None and all(fits(mark, harness) for mark in getattr(test, "pytestmark", ()) if mark.name == MARK)


def _left_out(asked: set[tuple[str, str]], harnesses: Iterable[type[Harness]], *, repeats: bool = True, turns: bool = False) -> list[tuple[str, str]]:
    """The pairs of harness and test that belong together and are not asked; with `repeats`, also what a variant and its primary both have; with
    `turns`, not what the default store has too."""
    concerned = {
        (harness.name, name)
        for name, test in _functions().items()
        for harness in harnesses
        if _concerns(test, harness) and (repeats or not _concerns(test, primary_of(harness))) and not (turns and _in_turns(test, harness))
    }
    return sorted(concerned - asked)


def _unasked_without(asked: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of capability and test where no store that lacks the one is asked the other, though it concerns such a store."""
    single = {harness.lacks[0]: harness for harness in WITHOUT if len(harness.lacks) == 1}
    return [
        (flag, name)
        for flag, harness in single.items()
        for name, test in _functions().items()
        if _concerns(test, harness) and not any((one.name, name) in asked for one in HARNESSES if not getattr(one.claims, flag))
    ]


def _in_turns(test: Callable[..., Any], harness: type[Harness]) -> bool:
    return harness is not DEFAULT and _concerns(test, DEFAULT)


def test_each_test_of_the_contract_is_asked_of_each_harness_that_it_concerns(request: pytest.FixtureRequest) -> None:
    """Of what this run collected and left in; in everyone's run, and where turns are taken, a variant is asked what its primary is not. In everyone's
    run the default store is asked all, each other primary what that is not, and some of the rest."""
    if not is_whole(request.config) or request.config.option.markexpr not in ("", "not processor"):
        pytest.skip("some tests were chosen")
    asked = set()
    for item in request.session.items:
        harness = getattr(getattr(item, "callspec", None), "params", {}).get("contract_harness")
        if isinstance(item, pytest.Function) and isinstance(harness, type) and issubclass(harness, Harness):
            asked.add((harness.name, item.originalname))
    turns = not THOROUGH and bool(turn_of(request.config))
    alike = [harness for harness in HARNESSES if harness not in WITHOUT]
    assert _left_out(asked, alike, repeats=THOROUGH and not TURN, turns=turns) == []
    if THOROUGH and not TURN:
        assert _unasked_without(asked) == []
    for harness in (one for one in HARNESSES if turns and primary_of(one) is None):
        shared = {(harness.name, name) for name, test in _functions().items() if _in_turns(test, harness) and _concerns(test, harness)}
        assert not shared or len(shared & asked) >= len(shared) / 8, f"{harness.name} had no turn"


def test_a_pair_that_fell_out_is_named() -> None:
    every = set(_left_out(set(), EMBEDDED))
    assert len(every) > 1_000
    gone = ("sqlite", "test_an_opened_store_claims_what_its_harness_says")
    assert _left_out(every - {gone}, EMBEDDED) == [gone]
    assert _left_out(every - {gone}, EMBEDDED, repeats=False) == [gone], "of a primary in everyone's run too"
    alone = ("in_memory_server", "test_what_was_acknowledged_survives_the_death_of_a_durable_store")
    assert _left_out(every - {alone}, EMBEDDED, repeats=False) == [alone], "and of a variant where its primary is not asked"
    shared = ("qdrant_edge", "test_an_opened_store_claims_what_its_harness_says")
    edge = [one for one in EVERY if one.name == "qdrant_edge"]
    whole = set(_left_out(set(), edge))
    assert _left_out(whole - {shared}, edge) == [shared], "where no turns are taken"
    assert _left_out(whole - {shared}, edge, turns=True) == []
    own = _left_out(set(), edge, turns=True)
    assert own
    assert _left_out(whole - {own[0]}, edge, turns=True) == [own[0]], "what the default store cannot be asked takes no turns"


def test_four_days_run_all_that_takes_turns() -> None:
    names = [f"{name}@{harness.name}" for name in _functions() for harness in EMBEDDED]
    days = [{name for name in names if has_its_turn(name, f"{day}/4")} for day in range(5)]
    assert set().union(*days[:4]) == set(names)
    assert sum(map(len, days[:4])) == len(names), "none twice"
    assert all(len(day) > len(names) / 5 for day in days)
    assert days[4] == days[0]
    assert all(has_its_turn(name, "") for name in names)


def test_every_harness_there_is_belongs_to_the_set() -> None:
    modules = [m.name for m in pkgutil.iter_modules(tests.contract.__path__) if m.name.endswith("harnesses")]
    found = [one for name in modules for one in vars(importlib.import_module(f"tests.contract.{name}")).values() if isinstance(one, type)]
    named = {one for one in found if issubclass(one, Harness) and isinstance(vars(one).get("name"), str)}
    assert named == set(EVERY)


def test_a_variant_names_a_primary_that_draws_in_full() -> None:
    """And an adapter that CI runs has one."""
    by_name = {harness.name: harness for harness in EVERY}
    for harness in EVERY:
        assert not harness.primary or by_name[harness.primary].primary == "", harness.name
    full = {harness.name for harness in EVERY if not harness.primary}
    assert full >= {"in_memory", "sqlite", "file", "redis", "postgresql", "mariadb", "mongo_replica_set", "qdrant_edge", "qdrant_local"}


def test_ci_requires_every_backend_it_can_have_and_leaves_no_test_of_it_out() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    (required,) = re.findall(r"MEMORY_REQUIRE=\$\{MEMORY_REQUIRE:-([\w,]+)\}", script)
    assert set(required.split(",")) == set(BACKENDS) - WITHOUT_IMAGE
    (tests_of_it,) = re.findall(r"(?ms)^tests\(\) \{.*?^\}", script)
    assert re.findall(r" -[mk] '?[\w ]+'?|--deselect|--ignore|contract-depth", tests_of_it) == [" -m 'not processor'"]
    assert not any(mark.name in ("processor", "thorough") for test in _functions().values() for mark in getattr(test, "pytestmark", ()))
