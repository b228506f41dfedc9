"""The wheel as its users get it: what is in it, and that it works with no checkout
near.
"""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.support.depth import beyond
from tests.support.readme import GUIDE, OPERATIONS, README, blocks
from tools import wheel as wheels

ROOT = Path(__file__).resolve().parents[2]
PAGES = {page.relative_to(ROOT).as_posix(): page for page in (README, *GUIDE, OPERATIONS)}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is no checkout, and a home of its own."""
    for name in [n for n in os.environ if n.startswith("MEMORY")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def run(programs: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(programs / command[0]), *command[1:]],
        cwd=folder,
        env=wheels.environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_the_wheel_holds_every_file_of_the_library_and_nothing_else(wheel: Path) -> None:
    held = {n for n in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in n}
    written = {
        p.relative_to(ROOT).as_posix()
        for package in ("memory", "memory_tiers")
        for p in (ROOT / package).rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    assert held == written
    assert "memory/py.typed" in held
    for part in ("memory/cli/demo/", "memory/ports/contract/test_"):
        assert any(n.startswith(part) for n in held), part


def test_the_wheel_carries_the_licence_and_the_entry_points(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (points,) = [n for n in archive.namelist() if n.endswith("/entry_points.txt")]
    text = archive.read(points).decode()
    assert "[memory.adapters]" in text
    assert "memory = memory_tiers:main" in text
    assert any(n.endswith("/licenses/LICENSE") for n in archive.namelist())


@pytest.mark.thorough
def test_the_installed_library_is_not_the_checkout(programs: Path, elsewhere: Path) -> None:
    where = run(
        programs,
        elsewhere,
        "python",
        "-c",
        "import memory, memory_tiers; print(memory.__file__); print(memory_tiers.LIBRARY)",
    )
    first, second = where.stdout.split()
    assert first == second
    assert Path(first).is_relative_to(programs.parent)


IN_ONE_PROCESS = """
import gc, os, runpy, sys
import memory.agents.manager, memory.agents.providers, memory.adapters.embedders.wordllama, numpy, tokenizers
with memory.BlockingMemory("sqlite:///warm.db") as warm:
    warm.write("warm", scope="user:warm")
    assert warm.search("warm", scope="user:warm")
gc.collect()
gc.freeze()
for folder in sys.argv[1:]:
    if (child := os.fork()) == 0:
        os.chdir(folder)
        for name, stream in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT, 0o600), stream)
        for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
            os.environ[name] = folder + "/home"
        sys.path[0], sys.argv[:] = folder, ["snippet.py"]
        runpy.run_path("snippet.py", run_name="__main__")
        sys.exit()
    with open(folder + "/ended", "w") as file:
        file.write(str(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))
"""
"""What snippets import is imported once, and what a first memory prepares is prepared
once; each then runs in a process and a folder of its own. At its end Python looks for
garbage in what is not frozen: that took four fifths of its time.
"""


@pytest.fixture(scope="module")
def ran(
    request: pytest.FixtureRequest, programs: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, int], Path]:
    """The folders of the snippets that this run asks for, after each has run in its
    own, in which it finds no checkout.
    """
    ours = (
        item
        for item in request.session.items
        if isinstance(item, pytest.Function) and item.originalname == "test_a_snippet_of_a_page_runs"
    )
    asked = [item.callspec.params for item in ours]
    folders = {
        (str(params["page"]), int(str(params["number"]))): tmp_path_factory.mktemp("elsewhere")
        for params in asked
    }
    for (page, number), folder in folders.items():
        (folder / "snippet.py").write_text(blocks("python", PAGES[page])[number])
    clean = {name: value for name, value in wheels.environment().items() if not name.startswith("MEMORY")}
    clean["TOKENIZERS_PARALLELISM"] = "false"  # it starts threads, and a process with threads forks badly
    subprocess.run(
        [str(programs / "python"), "-W", "error", "-c", IN_ONE_PROCESS, *map(str, folders.values())],
        cwd=tmp_path_factory.mktemp("none"),
        env=clean,
        timeout=600,
    )
    return folders


@pytest.mark.parametrize(
    ("page", "number"),
    [
        pytest.param(name, n, marks=beyond(n, [0]))
        for name, page in PAGES.items()
        for n in range(len(blocks("python", page)))
    ],
)
@pytest.mark.thorough
def test_a_snippet_of_a_page_runs(ran: dict[tuple[str, int], Path], page: str, number: int) -> None:
    folder = ran[page, number]
    assert (folder / "ended").read_text() == "0", (folder / "stderr").read_text()
    assert (folder / "stdout").read_text().strip(), "it printed nothing: did it find what it wrote?"


@pytest.mark.parametrize("command", [("memory", "--help"), ("python", "-m", "memory_tiers", "--help")])
def test_the_command_helps(programs: Path, elsewhere: Path, command: tuple[str, ...]) -> None:
    result = run(programs, elsewhere, *command)
    assert result.returncode == 0, result.stderr
    assert "search" in result.stdout


@pytest.mark.parametrize("shadow", ["memory.py", "memory/__init__.py"])
def test_a_memory_of_the_user_s_own_is_named_kindly(programs: Path, elsewhere: Path, shadow: str) -> None:
    file = elsewhere / shadow
    file.parent.mkdir(exist_ok=True)
    file.write_text("print('this must not be imported')\n")
    result = run(programs, elsewhere, "python", "-m", "memory_tiers", "stats")
    assert result.returncode == 2
    assert result.stdout == ""
    assert str(file) in result.stderr
    assert "Rename" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_memory_command_is_not_led_astray_by_the_folder_it_is_run_in(
    programs: Path, elsewhere: Path
) -> None:
    (elsewhere / "memory.py").write_text("raise SystemExit('this must not be imported')\n")
    (elsewhere / "typer.py").write_text("raise SystemExit('this must not be imported')\n")
    assert run(programs, elsewhere, "memory", "--help").returncode == 0


@pytest.mark.thorough
def test_tests_of_a_project_with_its_own_memory_see_their_own(programs: Path, elsewhere: Path) -> None:
    (elsewhere / "memory.py").write_text("MINE = True\n")
    (elsewhere / "test_mine.py").write_text("import memory\ndef test_mine(): assert memory.MINE\n")
    for how in (("-m", "pytest"), ("-c", "import sys, pytest; sys.path.pop(0); sys.exit(pytest.main())")):
        result = run(programs, elsewhere, "python", *how)
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_contract_runs_from_the_installed_wheel(programs: Path, elsewhere: Path) -> None:
    harness = "memory.ports.contract.harness:Harness"
    result = run(
        programs,
        elsewhere,
        "python",
        "-m",
        "pytest",
        "-q",
        "--pyargs",
        "memory.ports.contract",
        "--memory-harness",
        harness,
    )
    assert "must set `name` and `claims`" in result.stdout + result.stderr
    result = run(programs, elsewhere, "python", "-m", "pytest", "-q", "--pyargs", "memory.ports.contract")
    assert "no harness: name one with --memory-harness" in result.stdout + result.stderr


DRIVERS = {
    "asyncmy",
    "asyncpg",
    "grpcio",
    "onnxruntime",
    "pymongo",
    "qdrant-client",
    "qdrant-edge-py",
    "redis",
}
DOWNLOADS = {"hf-xet", "httpx2", "huggingface-hub", "requests", "safetensors", "toml", "urllib3"}
"""What brings models from elsewhere: WordLlama and its tokenizer ask pip for it, and
nothing here uses it (docs/decisions/027).
"""

FOUND = """
import sys
from memory import BlockingMemory, Scope
with BlockingMemory(*sys.argv[1:]) as memory:
    for text in ("Ada prefers tea to coffee", "The ferry runs on Sundays"):
        memory.write(text, scope=Scope.user("ada"))
    print(memory.search("a hot beverage", scope=Scope.user("ada"))[0].entry.content)
    print(*sys.modules)
"""


def test_an_install_brings_the_drivers_of_the_extras_that_were_asked_for_and_no_other(wheel: Path) -> None:
    alone = wheels.brought(wheel)
    assert not alone & DRIVERS
    assert wheels.brought(wheel, ["qdrant-edge"]) - alone == {"qdrant-edge-py"}
    assert wheels.brought(wheel, ["qdrant"]) & DRIVERS == {"grpcio", "qdrant-client"}
    assert wheels.brought(wheel, ["all"]) >= DRIVERS


def test_the_default_finds_by_meaning_where_nothing_can_download(
    wheel: Path, elsewhere: Path, tmp_path: Path
) -> None:
    left = wheels.brought(wheel, leaves={"tokenizers", "wordllama"})
    assert not left & DOWNLOADS
    done = run(wheels.install(wheel, tmp_path / "env", left), elsewhere, "python", "-W", "error", "-c", FOUND)
    assert done.returncode == 0, done.stderr
    found, modules = done.stdout.splitlines()
    assert found == "Ada prefers tea to coffee"
    assert not {"wordllama", *(name.replace("-", "_") for name in DOWNLOADS)} & set(modules.split())


@pytest.mark.backend("qdrant_edge")
@pytest.mark.thorough
def test_edge_works_with_its_own_extra_alone_and_a_server_is_told_to_need_another(
    wheel: Path, elsewhere: Path, tmp_path: Path
) -> None:
    programs = wheels.install(wheel, tmp_path / "env", wheels.brought(wheel, ["qdrant-edge"]))
    done = run(programs, elsewhere, "python", "-W", "error", "-c", FOUND, "qdrant+edge:folder")
    assert done.returncode == 0, done.stderr
    found, modules = done.stdout.splitlines()
    assert found == "Ada prefers tea to coffee"
    assert "qdrant_edge" in modules.split()
    refused = run(programs, elsewhere, "memory", "--config", "qdrant://127.0.0.1:1", "stats")
    assert "needs 'qdrant_client'; run pip install 'memory-tiers[qdrant]'" in refused.stdout + refused.stderr
