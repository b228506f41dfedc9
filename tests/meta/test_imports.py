"""What importing the library costs and where imports may point."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import memory

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = ("numpy", "pydantic", "redis", "rich", "sqlalchemy", "sqlite3", "tokenizers", "typer", "wordllama")

VIOLATIONS = {
    "inward": ("memory/ports/contract/wrong.py", "import memory.orchestrator.storage.collections"),
    "commands-apart": ("memory/commands/wrong.py", "import memory.facade.runtime.access"),
    "servers-thin": ("memory/server/wrong.py", "import memory.orchestrator.storage.collections"),
    "facade-no-circle": ("memory/facade/config/values.py", "def late():\n    import memory.facade.memory"),
    "records-only": ("memory/adapters/wrong_entries.py", "import memory.orchestrator.storage.collections"),
    "adapters-apart": ("memory/adapters/in_memory/wrong.py", "import memory.adapters.sql"),
    "no-adapter-inside": ("memory/orchestrator/wrong.py", "import memory.adapters.in_memory"),
    "by-url": ("memory/facade/wrong.py", "import memory.adapters.in_memory"),
    "drivers": ("memory/policies/wrong.py", "import sqlalchemy"),
    "sql-core": ("memory/adapters/sql/several.py", "import asyncio"),
    "embedding-model": ("memory/ports/wrong.py", "import wordllama"),
    "numbers": ("memory/policies/wrong_numbers.py", "import numpy"),
    "terminal": ("memory/ports/wrong_terminal.py", "import rich"),
    "product-needs-no-tests": ("memory/policies/wrong_tests.py", "import hypothesis"),
    "engine-layers": ("memory/orchestrator/trust/wrong.py", "import memory.orchestrator.engine"),
}
"""For each import contract, a file that breaks it."""


def run_python(code: str) -> str:
    return subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)


def test_importing_memory_loads_no_driver() -> None:
    drivers = f"[m for m in {DRIVERS!r} if m in set(sys.modules) - before]"
    code = f"import json, sys; before = set(sys.modules); import memory; print(json.dumps({drivers}))"
    assert json.loads(run_python(code)) == []


def test_every_public_name_can_be_had() -> None:
    for name in vars(memory)["__all__"]:
        assert getattr(memory, name) is not None


def test_every_public_name_is_typed_as_it_is_loaded() -> None:
    homes = memory._HOME_OF
    source = (ROOT / "memory" / "__init__.py").read_text()
    for name, home in homes.items():
        assert f"    from {home} import {name} as {name}\n" in source, (
            f"{name} is not among the TYPE_CHECKING imports"
        )


def test_every_error_is_public() -> None:
    errors = import_module("memory.domain.errors")
    raised = {
        n
        for n, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, errors.MemoryTiersError)
    }
    assert raised <= set(vars(memory)["__all__"])


def test_an_unknown_name_is_an_attribute_error_that_names_it() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = memory.no_such_name  # type: ignore[attr-defined]


def lint_imports(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
        "--no-cache",
        "--no-logo",
    ]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def broken_tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the import check says of a copy of the sources in which every direction is
    broken.
    """
    folder = tmp_path_factory.mktemp("broken")
    for package in ("memory", "memory_tiers"):
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    for path, line in VIOLATIONS.values():
        (folder / path).write_text(line + "\n")
    result = lint_imports(folder)
    assert result.returncode != 0
    return result.stdout


def contracts() -> dict[str, str]:
    """The id and name of each contract."""
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {c["id"]: c["name"] for c in config["tool"]["importlinter"]["contracts"]}


def test_every_import_contract_has_a_violation_to_prove_it() -> None:
    assert set(contracts()) == set(VIOLATIONS)


def test_the_facade_may_import_no_store_that_is_registered() -> None:
    import tomllib

    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    places = config["project"]["entry-points"]["memory.adapters"].values()
    packages = {".".join(place.split(".")[:3]).partition(":")[0] for place in places}
    (contract,) = [c for c in config["tool"]["importlinter"]["contracts"] if c["id"] == "by-url"]
    assert packages <= set(contract["forbidden_modules"])


@pytest.mark.behaviour("B1")
@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_wrong_import_breaks_its_contract(broken_tree: str, contract: str) -> None:
    assert f"{contracts()[contract]} BROKEN" in broken_tree


@pytest.mark.thorough
def test_using_the_library_leaves_the_loggers_of_the_program_alone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    code = (
        "import logging, json; before = logging.getLogger().level\n"
        "from memory import BlockingMemory, Scope\n"
        f"with BlockingMemory({url!r}) as memory: memory.write('Ada prefers tea', scope=Scope.user('ada'))\n"
        "print(json.dumps([len(logging.getLogger().handlers), logging.getLogger().level == before]))"
    )
    assert json.loads(run_python(code)) == [0, True]
