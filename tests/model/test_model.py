"""The model test on every topology: everything that is asked is answered as
promised, and the whole is as it must be.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.model import mutants_of_rules as _of_rules  # noqa: F401 - declares those of rules, holds and quotas
from tests.model.__main__ import main, report
from tests.model.generate import Generator
from tests.model.learning import mutants as _of_learning  # noqa: F401 - declares those of what stores learn
from tests.model.long import Failed, run_model
from tests.model.mutants import MUTANTS, applied
from tests.model.operations import Operation, perform
from tests.model.rules import OVER
from tests.model.run import Run
from tests.model.said import Wrong
from tests.model.sessions import mutants as _of_sessions  # noqa: F401 - declares those of sessions
from tests.model.shrink import failure_of, shrink
from tests.model.topologies import TOPOLOGIES, Topology, scratch
from tests.support import noticed
from tests.support.backends import marks_of
from tests.support.depth import FIRST_SEED, NIGHTLY, beyond
from tests.support.placings import forget

EVERYONES, IN_CI = {"default"}, {"in-memory", "redis-postgres-edge"}
"""Where everyone's run plays one, and CI; `make nightly` does on every topology."""
OPERATIONS = int(os.environ.get("MEMORY_MODEL_OPERATIONS") or (200 if NIGHTLY else 60))
SEED = int(os.environ.get("MEMORY_MODEL_SEED") or (FIRST_SEED if NIGHTLY else 17))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(
    params=[
        pytest.param(t, id=t.name, marks=[*marks_of(*t.placing.backends), *beyond(t.name, EVERYONES, IN_CI)])
        for t in TOPOLOGIES.values()
    ]
)
def topology(request: pytest.FixtureRequest) -> Topology:
    chosen: Topology = request.param
    return chosen


@pytest.mark.drawn
def test_everything_is_as_the_model_says(topology: Topology, tmp_path: Path) -> None:
    with scratch() as folder:
        failed = run_model(topology, folder, SEED, OPERATIONS)
    assert failed is None, report(topology, failed, tmp_path, seconds=60)


# -- the judge sees --------------------------------------------------------------------

WITHIN, SEEDS, FEW = 500, range(1, 13), 12
"""While notes are renewed: so many operations of each seed are played, until so few
show the fault.
"""


NOTED = {name for name in MUTANTS if noticed.by(f"model/{name}")}
"""Faults with a note, which CI plays; `make nightly` searches for the others."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=beyond(name, (), NOTED)) for name in sorted(MUTANTS)]
)
def test_a_fault_of_the_facade_is_seen(name: str, tmp_path: Path) -> None:
    noted = noticed.by(f"model/{name}")
    if not noted or (noticed.RENEWING and not _shows(name, noted)):
        noted = _searched(name, tmp_path)
        noticed.note(f"model/{name}", noted)
    assert noted, f"no operations were found that show {name!r}"
    assert _shows(name, noted), f"the operations noted for {name!r} show nothing. {noticed.RENEW}"
    sound, _ = failure_of(TOPOLOGIES["in-memory"], [Operation(**op) for op in noted])
    assert sound is None, sound


def _shows(name: str, noted: list[dict[str, Any]]) -> bool:
    with applied(name):
        error, _ = failure_of(TOPOLOGIES["in-memory"], [Operation(**op) for op in noted])
    assert error is None or isinstance(error, Wrong), repr(error)
    return error is not None


def _searched(name: str, tmp_path: Path) -> list[dict[str, Any]]:
    """The fewest operations that were found to show the fault; the first that are few
    enough to be read.
    """
    topology, found = TOPOLOGIES["in-memory"], list[list[Operation]]()
    with applied(name):
        for seed in SEEDS:
            failed = run_model(topology, _fresh(tmp_path, seed), seed, WITHIN)
            if failed is not None and isinstance(failed.error, Wrong):
                found.append(shrink(topology, failed.operations, failed.error.label, seconds=300))
                if len(found[-1]) <= FEW:
                    break
    return [asdict(op) for op in min(found, key=len, default=[])]


def _fresh(folder: Path, seed: int) -> Path:
    made = folder / str(seed)
    made.mkdir()
    return made


SOON = 2
"""A seed whose operations show the fault after some twenty of them, not after 200."""


@pytest.mark.thorough
def test_a_failure_is_made_small_and_fails_again_by_its_written_operations(tmp_path: Path) -> None:
    topology = TOPOLOGIES["in-memory"]
    with applied("a history leaves out the first version"):
        failed = run_model(topology, tmp_path, SOON, 50)
        assert failed is not None
        assert isinstance(failed.error, Wrong)
        small = shrink(topology, failed.operations, failed.error.label)
        assert len(small) <= 4
        error, run = failure_of(topology, [Operation.of_json(op.as_json()) for op in small])
    assert isinstance(error, Wrong)
    assert error.label == failed.error.label
    script = run.script.text(str(error), run.config)
    compile(script, "failure.py", "exec")
    assert "'entries.history'" in script
    sound, _ = failure_of(topology, small)
    assert sound is None, sound


ALONE = 20
"""A seed that has nothing done at once in the beginning: in what order that is done,
another run may do otherwise.
"""


@pytest.mark.nightly
def test_a_run_that_was_interrupted_is_taken_up_where_it_was_put_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stores as well: what they were asked to do since is done again."""
    topology, done = TOPOLOGIES["default"], list[int]()
    monkeypatch.setattr("tests.model.long.PART", 30)
    monkeypatch.setattr("tests.model.long.WHOLE_EVERY", 30)
    assert run_model(topology, _fresh(tmp_path, 1), ALONE, 60) is None
    broken = _fresh(tmp_path, 2)

    async def until(run: Run, op: Operation) -> None:
        await perform(run, op)
        if op.number == 50:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("tests.model.long.perform", until)
        with pytest.raises(KeyboardInterrupt):
            run_model(topology, broken, ALONE, 60)
    assert run_model(topology, broken, ALONE, 60, lambda number, seconds: done.append(number)) is None
    assert done == [60]
    assert (broken / "operations.jsonl").read_text() == (tmp_path / "1" / "operations.jsonl").read_text()


@pytest.mark.thorough
def test_a_run_that_has_come_to_its_end_is_not_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sys.argv",
        ["model", "--topology", "edge-only", "--operations", "40", "--folder", str(tmp_path), "--seed", "5"],
    )
    assert main() == 0
    monkeypatch.setattr("tests.model.long.perform", None)  # whoever calls it fails
    assert main() == 0
    monkeypatch.undo()
    assert run_model(TOPOLOGIES["edge-only"], tmp_path / "edge-only", SEED, 60) is None
    forget(tmp_path / "edge-only")


def test_a_seed_is_the_same_operations_again(tmp_path: Path) -> None:
    assert asyncio.run(_drawn(tmp_path)) == asyncio.run(_drawn(tmp_path))


async def _drawn(folder: Path) -> list[str]:
    topology = TOPOLOGIES["in-memory"]
    run, generator, drawn = Run(topology, topology.config(folder), folder), Generator(SEED), list[str]()
    async with run:
        for _ in range(100):
            op = generator.next(run)
            drawn.append(op.as_json())
            await perform(run, op)
    return drawn


def test_a_report_names_the_seed_and_how_to_see_it_again(tmp_path: Path) -> None:
    told = report(TOPOLOGIES["default"], Failed(7, Wrong("get differs", "x"), []), tmp_path, seconds=0)
    assert "python -m tests.model --topology default --seed 7" in told


def test_of_rounds_each_pass_may_find_what_a_later_one_noted() -> None:
    """Seed 32387: a session owes what a replacement dropped, and a rule ends it in the
    same rounds: all is noted when the judge begins to look.
    """
    said = {"role": "user", "content": "a railway zq1t0x7k remember", "id": "m1"}
    instead = {"role": "user", "content": "a volcano zq2t0x7k remember", "id": "m2"}
    draft: dict[str, Any] = {"user": "ada", "agent": None, "namespace": None, "tags": []}
    window: dict[str, Any] = {
        "session": "s2",
        "keep": [False],
        "messages": [instead],
        "edit": None,
        "meanwhile": None,
    }
    operations = [
        Operation(1, "say", "acme", 0, 1.0, {"session": "s2", "messages": [said], "draft": draft}),
        Operation(2, "replace_window", "acme", 0, 1.0, window),
        Operation(3, "in_rounds", "acme", 0, OVER.total_seconds(), {"dies": None}),
    ]
    error, _ = failure_of(TOPOLOGIES["in-memory"], operations)
    assert error is None, error
