"""What the README and the changelog say is so: names, commands and the version. Its
snippets are run in test_wheel.py.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import memory
from memory.cli.main import app
from memory.facade.config.settings import MemoryConfig
from memory.ports.contract.cells import cells
from tests.support.readme import FIGURES, GUIDE, OPERATIONS, README, blocks, commands

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "docs" / "behaviours.md"})
"""Every page that people wrote."""
LIMITS = ROOT / "docs" / "known-limits.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"


def prose(page: Path) -> str:
    """The page without its code."""
    return re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", page.read_text(encoding="utf-8"))


def chapters(page: Path) -> set[str]:
    """The anchors of the page's headings, as GitHub makes them."""
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-")
        for title in re.findall(r"(?m)^#+ (.+)$", text)
    }


def targets() -> set[str]:
    return set(re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text()))


def test_the_version_is_one_everywhere_and_the_changelog_has_it() -> None:
    assert memory.__version__ == PROJECT["version"]
    sections = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    (entry,) = [s for s in sections if re.match(rf"{re.escape(memory.__version__)}\b", s)]
    assert "\n- " in entry


def test_the_changelog_has_the_form_of_keepachangelog() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert [line for line in lines if len(line) > 120] == []
    assert {line for line in lines if line.startswith("### ")} <= {
        f"### {name}" for name in ("Added", "Changed", "Fixed", "Removed")
    }


def test_each_known_limit_is_one_line() -> None:
    lines = [line for line in LIMITS.read_text().splitlines() if line]
    limits = [line for line in lines if line.startswith("- ")]
    assert len(limits) > 50
    assert [line for line in limits if len(line) > 120] == []
    assert [line for line in lines[2:] if not line.startswith(("- ", "## "))] == []


def test_the_readme_has_the_two_commands_and_snippets_to_run() -> None:
    assert {"make demo", "make test"} <= set(commands())
    assert len(blocks("python")) >= 2
    assert len(README.read_text().splitlines()) < 200


def test_the_agent_of_the_readme_is_short_and_remembers_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = blocks("python")[0]
    assert len(agent.splitlines()) <= 25
    exec(compile(agent, "agent", "exec"), {"__name__": "__main__"})  # noqa: S102 (ours)
    assert capsys.readouterr().out == blocks("text")[0]


def test_every_file_that_the_walkthroughs_name_exists() -> None:
    """But for what a reader is to make."""
    named = set(re.findall(r"`((?:memory|tests|tools|docs|examples)/[\w/.]+)`", CONTRIBUTING.read_text()))
    assert len(named) > 25
    made = {"memory/orchestrator/entries/bookmarks.py"}
    assert sorted(name for name in named - made if not (ROOT / name).exists()) == []


def test_hooks_before_a_commit_run_tools_of_this_environment_alone() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [one["repo"] for one in repositories] == ["local"]
    commands = [hook["entry"] for one in repositories for hook in one["hooks"]]
    lint = (ROOT / "Makefile").read_text()
    assert all(command.startswith(".venv/bin/") for command in commands)
    assert all(f"$(BIN)/{Path(command.split()[0]).name}" in lint for command in commands)


def test_there_is_a_figure_for_every_target_of_the_benchmark() -> None:
    figures = FIGURES.read_text()
    for target in ("≥ 1,500", "≤ 2.5 × raw", "≤ 8 ms", "≤ 3 ms", "≤ 150 ms", "≤ 400 ms"):
        (row, *_) = [line for line in figures.splitlines() if f"| {target} |" in line]
        assert row.rstrip(" |").rpartition("|")[2].strip().startswith(("yes", "**no**", "not measured"))


@cells(
    "command",
    [c for page in (README, CONTRIBUTING, OPERATIONS) for c in commands(page) if c.startswith("make ")],
    shared=True,
)
def test_every_make_command_of_a_page_has_a_target(command: str) -> None:
    assert set(command.split()[1:2]) <= targets()


def test_every_line_of_the_makefile_s_help_names_a_target() -> None:
    described = re.findall(r"(?m)^#   make ([a-z]+) ", (ROOT / "Makefile").read_text())
    assert len(described) >= 8
    assert set(described) <= targets()


@cells(
    "command",
    [c for page in (README, OPERATIONS) for c in commands(page) if c.startswith("pip ")],
    shared=True,
)
def test_every_install_command_of_a_page_names_an_extra_that_exists(command: str) -> None:
    named = re.findall(r"\[([\w,-]+)\]", command)
    assert {extra for names in named for extra in names.split(",")} <= set(PROJECT["optional-dependencies"])


@cells("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)), shared=True)
def test_every_file_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)", prose(page))
    assert [link for link in links if not (page.parent / link).exists()] == []


@cells("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)), shared=True)
def test_every_chapter_that_a_page_links_to_exists(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", prose(page))
    missing = [
        (link, chapter)
        for link, chapter in links
        if chapter not in chapters(page.parent / link if link else page)
    ]
    assert missing == []


TASKS = [page for page in GUIDE if page.name != "README.md"]
"""The pages of the guide, without their index."""


def test_the_index_of_the_guide_lists_every_page() -> None:
    (index,) = set(GUIDE) - set(TASKS)
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index.read_text())) == {page.name for page in TASKS}


@cells("page", TASKS, ids=lambda page: page.stem, shared=True)
def test_a_page_of_the_guide_begins_with_code_is_short_and_says_why(page: Path) -> None:
    lines = page.read_text().rstrip().splitlines()
    assert len(lines) < 150
    assert any(line.startswith("```") for line in lines[:15])
    assert re.match(r"Why: \[decision \d{3}\]", lines[-1])


@pytest.mark.parametrize(
    "page", [page for page in (*GUIDE, OPERATIONS) if commands(page)], ids=lambda page: page.stem
)
def test_a_command_on_a_page_of_the_guide_has_the_options_it_names(page: Path) -> None:
    for program, *words in map(shlex.split, commands(page)):
        if page == OPERATIONS and program != "memory":
            continue
        assert program == "memory"
        result = CliRunner().invoke(app, [*words, "--help"])
        assert result.exit_code == 0, (words, result.output)


@pytest.mark.thorough
def test_the_memory_commands_of_the_readme_work_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: that the installed program starts is judged in test_wheel.py."""
    for name in [n for n in os.environ if n.startswith("MEMORY")]:
        monkeypatch.delenv(name)
    for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    told = [words for program, *words in map(shlex.split, commands()) if program == "memory"]
    assert len(told) >= 5
    for words in told:
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, (words, result.output)
        assert result.stdout.strip(), words


@pytest.mark.parametrize("page", [page for page in GUIDE if blocks("toml", page)], ids=lambda page: page.stem)
def test_the_configuration_on_a_page_of_the_guide_loads(page: Path, tmp_path: Path) -> None:
    for block in blocks("toml", page):
        (tmp_path / "memory.toml").write_text(block)
        MemoryConfig.load(tmp_path / "memory.toml")


def test_make_needs_no_tool_a_newcomer_lacks() -> None:
    command = ["make", "--no-print-directory", "-n", "-B", "demo", "test", "check"]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "PYTHON"))
    }
    planned = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    ).stdout
    programs = {line.split()[0] for line in planned.splitlines() if line.strip()}
    assert all(p == "python3" or p.startswith(".venv/bin/") for p in programs), programs


@pytest.mark.parametrize("lock", ["run.lock", "dev.lock"])
def test_every_pinned_package_is_held_to_hashes(lock: str) -> None:
    text = (ROOT / "requirements" / lock).read_text()
    pins = re.findall(r"(?m)^[a-z0-9][^\n]*==[^\n]*\\\n    --hash=sha256:", text)
    assert len(pins) == len(re.findall(r"(?m)^\w", text)) > 20


@pytest.mark.parametrize("lock", ["run.lock", "dev.lock"])
def test_every_direct_dependency_is_pinned_in_the_lock(lock: str) -> None:
    pinned = {
        n.lower().replace("_", "-")
        for n in re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements" / lock).read_text())
    }
    wanted = list(PROJECT["dependencies"]) + (
        PROJECT["optional-dependencies"]["dev"] if lock == "dev.lock" else []
    )
    names = {re.split(r"[\[>=<~! ]", w)[0].lower() for w in wanted} - {PROJECT["name"]}
    assert names <= pinned
