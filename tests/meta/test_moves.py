"""The script that moves modules: what it rewrites, what it leaves, and that its table
fits the tree.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.codemods.imports import with_modules_followed
from tools.codemods.move import add_contract, moved_dotted, moved_paths, rewritten
from tools.codemods.moves import ENGINE, LAYERS, MOVES, PACKAGES, ROOT

REPOSITORY = Path(__file__).resolve().parents[2]
OLD = "memory.orchestrator"


def there(module: str) -> bool:
    return (REPOSITORY / Path(*module.split(".")).with_suffix(".py")).is_file()


def test_the_table_names_every_module_of_the_engine_once() -> None:
    engine = REPOSITORY / Path(*ROOT.split("."))
    modules = {
        ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        for path in engine.rglob("*.py")
        if path.name != "__init__.py"
    }
    old = {m for m in ENGINE if there(m)}
    assert len(set(MOVES.values())) == len(MOVES)
    assert modules - {f"{ROOT}.engine"} == (old if old == set(ENGINE) else set(ENGINE.values()))


def test_every_package_of_the_table_is_described() -> None:
    packages = {new.rpartition(".")[0] for new in ENGINE.values()} | set(LAYERS)
    assert packages == set(PACKAGES)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (f"from {OLD}.births import A", f"from {OLD}.entries.writing import A"),
        (f"from {OLD}.entries import Entries", f"from {OLD}.entries.entries import Entries"),
        (f"import {OLD}.collections", f"import {OLD}.storage.collections"),
        (f'"{OLD}.retrieval.searching.Searching.search"', f'"{OLD}.retrieval.search.Searching.search"'),
        ("import memory.domain.door", "import memory.domain.validation"),
        (f"{OLD}.engine and {OLD}", f"{OLD}.engine and {OLD}"),
        (f"my{OLD}.births", f"my{OLD}.births"),
    ],
)
def test_dotted_names_are_followed_and_once(old: str, new: str) -> None:
    assert moved_dotted(old) == new
    assert moved_dotted(new) == new


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("`orchestrator/births.py`", "`orchestrator/entries/writing.py`"),
        ("(../memory/orchestrator/engine.py)", "(../memory/orchestrator/engine.py)"),
        ("(../memory/orchestrator/past.py)", "(../memory/orchestrator/storage/past_versions.py)"),
        ("`conversations/forks.py`", "`conversations/log/forks.py`"),
        ("`orchestrator/judging`", "`orchestrator/tiering/rules`"),
        ("see `orchestrator.passages`", "see `orchestrator.embeddings.passages`"),
        ("`domain/door`, `memory/facade/said.py`", "`domain/validation`, `memory/facade/chat_files.py`"),
        ("`healing.py`, `lives.py`", "`repair.py`, `lives.py`"),
        ("tests/unit/orchestrator/past.py", "tests/unit/orchestrator/past.py"),
    ],
)
def test_paths_are_followed_and_once(old: str, new: str) -> None:
    taken = frozenset({"lives"})
    assert moved_paths(old, taken) == new
    assert moved_paths(new, taken) == new


MODULES = f"""from {OLD} import births, cache
from {OLD}.conversations import log as logs


def f(given):
    # as it is
    patch(births, "x", births.EntryWriter.y)
    return given.births, births
"""


def test_a_module_is_followed_with_its_uses() -> None:
    assert (
        with_modules_followed(MODULES, MOVES)
        == f"""from {OLD}.entries import writing
from {OLD}.storage import cache
from {OLD}.conversations.log import log as logs


def f(given):
    # as it is
    patch(writing, "x", writing.EntryWriter.y)
    return given.births, writing
"""
    )


def test_a_package_of_the_contract_is_no_module() -> None:
    text = "".join(f'"{layer}"\n' for layer in LAYERS)
    assert rewritten(text, Path("pyproject.toml")) == text


@pytest.mark.parametrize(
    "line", [f"from {OLD}.retrieval import choosing, pool\n", f"from {OLD} import engine\n"]
)
def test_modules_that_stay_are_left(line: str) -> None:
    assert rewritten(line, Path("mine.py")) == line


def test_a_module_keeps_its_name_where_the_new_one_is_taken() -> None:
    source = f"from {OLD} import births\n\nwriting = births.X\n"
    wanted = f"from {OLD}.entries import writing as births\n\nwriting = births.X\n"
    assert rewritten(source, Path("mine.py")) == wanted
    assert rewritten(wanted, Path("mine.py")) == wanted


def test_the_contract_is_added_once() -> None:
    text = (REPOSITORY / "pyproject.toml").read_text()
    once = add_contract(text)
    assert once.count('id = "engine-layers"') == 1
    assert add_contract(once) == once
