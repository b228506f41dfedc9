"""The settings of `memory mcp`: options, the section `[mcp]`, and which of them wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.domain.errors import ConfigError
from memory.facade.config.mcp_section import read_mcp_section
from memory.facade.config.settings import MemoryConfig
from memory.mcp.settings import McpSettings, settings_of

TOML = """
[mcp]
scope = ["user:ada", "path:teams/**"]
allow_delete = true
token_budget = 3000
tools = "search_memory"
origin = "mcp:desktop"
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "memory.toml"
    file.write_text(TOML)
    return str(file)


def test_the_section_has_the_settings_of_the_options_and_the_options_win(config: str) -> None:
    told = McpSettings(
        scopes=("user:ada", "path:teams/**"),
        allow_delete=True,
        token_budget=3000,
        tools=frozenset({"search_memory"}),
        provenance="mcp:desktop",
    )
    assert settings_of(read_mcp_section(config)) == told
    assert settings_of(MemoryConfig.load(config).mcp) == told
    given = settings_of(
        read_mcp_section(config),
        scope=["user:bob"],
        allow_delete=False,
        read_only=True,
        tools=["list_memories", "get_memory"],
        profile="memory",
    )
    assert given == McpSettings(
        scopes=("user:bob",),
        read_only=True,
        token_budget=3000,
        tools=frozenset({"list_memories", "get_memory"}),
        provenance="mcp:desktop",
    )


def test_without_a_section_the_defaults_hold(tmp_path: Path) -> None:
    file = tmp_path / "memory.toml"
    file.write_text('tenant = "acme"\n')
    for source in (str(file), "memory://", str(tmp_path / "memory.db")):
        assert settings_of(read_mcp_section(source)) == McpSettings()


def test_the_environment_has_the_section_too(config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMORY__MCP__SCOPE", "user:eve")
    monkeypatch.setenv("MEMORY__MCP__TOKEN_BUDGET", "4000")
    found = settings_of(read_mcp_section(config))
    assert (found.scopes, found.token_budget) == (("user:eve",), 4000)


def test_a_wrong_option_is_named(config: str) -> None:
    for name, value in (("scope", ["ada"]), ("origin", "key:x"), ("token_budget", 1)):
        with pytest.raises(ConfigError, match=f"^{name}: "):
            settings_of(read_mcp_section(config), **{name: value})


WRONG = {
    'profil = "reference"': r"memory\.toml:3: mcp\.profil: .*did you mean 'profile'",
    'scopes = ["user:ada"]': r"mcp\.scopes: .*did you mean 'scope'",
    'scope = ["nobody"]': r"memory\.toml:3: .*nobody",
    'write_scope = "x"': r"memory\.toml:3: ",
    'origin = "key:x"': r"mcp\.origin: .*mcp:desktop",
    'origin = "mcp: "': r"mcp\.origin: .*mcp:desktop",
    'profile = "graph"': r"memory\.toml:3: mcp\.profile: .*reference",
    "token_budget = 10": r"memory\.toml:3: mcp\.token_budget: must be at least 2000",
    "read_only = true\nallow_delete = true": "allow_delete: cannot be combined with read_only",
    'write_scope = "user:bob"': "not among the scopes",
}


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_setting_is_named_with_its_place(tmp_path: Path, line: str) -> None:
    file = tmp_path / "memory.toml"
    file.write_text(f"\n[mcp]\n{line}\n")
    with pytest.raises(ConfigError, match=WRONG[line]):
        settings_of(read_mcp_section(str(file)))
