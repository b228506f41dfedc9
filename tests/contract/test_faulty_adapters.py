"""The contract is worth what it catches: every lying store must fail, on the test made
for its lie; the honest one must pass.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from memory.ports.contract.cells import cells
from memory.ports.contract.harness import Harness
from tests.contract.faulty.every import FAULTY_ADAPTERS, HONEST
from tools import wheel as wheels

ROOT = Path(__file__).resolve().parents[2]
REPORTED = re.compile(r"^(FAILED|ERROR) \S*?::(?P<test>test_\w+)\[(?P<param>[^\n]*)", re.MULTILINE)
CELLS = re.compile(r"cells failed: (?P<cells>.*)$")

HANGS = 300
"""Seconds after which one test over one faulty adapter is taken to hang: it fails, and the others
go on.
"""

pytestmark = pytest.mark.thorough

Caught = dict[str, set[str]]


def contract(
    folder: Path, *harnesses: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Run the contract in a process of its own, which keeps its files in the folder."""
    named = [part for harness in harnesses for part in ("--memory-harness", harness)]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--pyargs",
        "memory.ports.contract",
        *named,
        "-q",
        "-rfE",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        f"--timeout={HANGS}",
        "--contract-depth",
        "quick",
        f"--basetemp={folder / 'tests'}",
        *options,
    ]
    own = {
        "MEMORY_HISTORY": "",
        "MEMORY_HISTORY_SEED": "",
        "COLUMNS": "10000",
    }  # as wide as the longest table's failed cells
    environment = {**wheels.environment(), **own}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=1_200)


def _place(harness: type[Harness]) -> str:
    return f"{harness.__module__}:{harness.__name__}"


@pytest.fixture(scope="module")
def caught(tmp_path_factory: pytest.TempPathFactory) -> Caught:
    """The failed tests of each store: the tests made for the lies, in one run over all
    faulty adapters, and over the honest store too.
    """
    only = ("-p", "tests.contract.only_the_lies", "--assert=plain")
    folder = tmp_path_factory.mktemp("contract")
    result = contract(
        folder,
        *map(_place, HONEST),
        *(_place(harness) for harness, _ in FAULTY_ADAPTERS.values()),
        options=only,
    )
    assert result.returncode == 1, result.stdout[-3000:] + result.stderr
    failed: Caught = defaultdict(set)
    names = {*(harness.name for harness in HONEST), *FAULTY_ADAPTERS}
    for match in REPORTED.finditer(result.stdout):
        name = next(n for n in sorted(names, key=len, reverse=True) if re.match(rf"{n}\b", match["param"]))
        failed[name] |= {match["test"], f"{match['test']}[{match['param'].split(']')[0]}]"}
        if cells := CELLS.search(match["param"]):
            failed[name] |= {f"{match['test']}[{name}-{cell}]" for cell in cells["cells"].split("; ")}
    return failed


def test_there_are_many_ways_to_lie() -> None:
    assert len(FAULTY_ADAPTERS) >= 12


@cells("name", FAULTY_ADAPTERS, shared=True)
def test_the_contract_catches_the_faulty_adapter_by_its_test(caught: Caught, name: str) -> None:
    _, expected = FAULTY_ADAPTERS[name]
    assert expected in caught[name], (
        f"{expected} passes a store that is faulty on purpose: register the test that catches it in"
        " @faulty_adapter(…)"
    )


@cells("honest", HONEST, ids=lambda harness: str(harness.name), shared=True)
def test_the_contract_fails_no_one_for_anothers_lies(caught: Caught, honest: type[Harness]) -> None:
    assert not caught[honest.name]


def test_neither_a_skip_nor_a_missing_server_is_a_pass(tmp_path: Path) -> None:
    """A skip fails, and a server that is missing is an error."""
    harnesses = ("SkipsItself", "HasNoServer")
    named = [f"tests.contract.faulty.registry:{harness}" for harness in harnesses]
    result = contract(tmp_path, *named, options=("-k", "flags or limits"))
    assert result.returncode == 1
    reported = {(match["param"].partition("]")[0], match[1]) for match in REPORTED.finditer(result.stdout)}
    assert reported >= {("SkipsItself", "FAILED"), ("HasNoServer", "ERROR")}
    assert not re.search(r"\d+ (passed|skipped)", result.stdout)
