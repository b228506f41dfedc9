"""Wrong arguments are refused before any store is touched."""

from __future__ import annotations

from pathlib import Path

from memory.ports.contract.cells import cells
from tests.unit.cli.conftest import CommandLine

KEY_TEXT = "mt_0000000000_00000000000000000000000000000000000000nntbl"
"""The whole text of a key, with a right checksum."""
REFUSED = [
    ["write", "x", "--scope", "bad"],
    ["write", "x", "--scope", "user:ada", "--expires", "soon"],
    ["write", "x", "--scope", "user:ada", "--supersedes", "#bad"],
    ["search", "x", "--scope", "bad"],
    ["list", "--scope", "user:ada", "--limit", "0"],
    ["browse", "--since", "yesterday"],
    ["show", ""],
    ["show", "xyz", "--as-of", "yesterday"],
    ["promote", "abc", "--to", "bad"],
    ["update", "abc", "--expires", "soon"],
    ["invalidate", "#bad"],
    ["history", "#bad"],
    ["relate", "abc", "bad", "xyz"],
    ["relate", "abc", "supports", ""],
    ["unrelate", "user:ada"],
    ["related", "abc", "--scope", "bad"],
    ["graph", "abc", "--scope", "bad"],
    ["mem", "/mem search x", "--scope", "bad"],
    ["mem", "/mem search x", "--scope", "user:ada", "--reads", "bad"],
    ["why", "#bad"],
    ["scopes", "--prefix", "bad"],
    ["scopes", "--limit", "0"],
    ["route", "bad"],
    ["export", "--scope", "bad"],
    ["forget", "--scope", "bad", "--yes"],
    ["forget", "#bad"],
    ["forget", "abc", ""],
    ["session", "list", "--limit", "0"],
    ["session", "list", "--status", "bad"],
    ["session", "list", "--tag", ""],
    ["session", "list", "--cursor", "a\x00b"],
    ["session", "show", ""],
    ["session", "context", "s", "--budget", "-1"],
    ["session", "end", ""],
    ["session", "delete", "", "--yes"],
    ["session", "fork", "", "--at", "m"],
    ["scratchpad", "show", "--agent", ""],
    ["scratchpad", "append", "x", "--agent", ""],
    ["artifact", "list", "s", "--limit", "0"],
    ["legal-holds", "remove", ""],
    ["sources", "unblock", "--source", ""],
    ["sources", "revert", "--source", "web:x", "--since", "soon"],
    ["keys", "create", "--role", "bogus"],
    ["keys", "create", "--role", "admin", "--scope", "user:ada"],
    ["keys", "create", "--role", "reader", "--scope", "bad"],
    ["keys", "create", "--role", "reader", "--expires", "soon"],
    ["keys", "create", "--role", "reader", "--expires", "0s"],
    ["keys", "create", "--role", "reader", "--name", ""],
    ["keys", "create", "--role", "reader", "--tenant", "~server"],
    ["keys", "rotate", "abc", "--overlap", "soon"],
    ["keys", "rotate", "abc", "--overlap", "50000d"],
    ["keys", "rotate", KEY_TEXT],
    ["keys", "revoke", KEY_TEXT],
    ["audit", "list", "--since", "soon"],
    ["audit", "list", "--cursor", "bad"],
    ["audit", "list", "--key", KEY_TEXT],
    ["mcp", "--tenant", ""],
    ["mcp", "--tenant", " "],
    ["mcp", "--tenant", "~memory"],
    ["doctor", "--forget-store", ""],
    ["why", "user:ada"],
    ["mcp", "--scope", "bad"],
]


@cells("words", REFUSED, ids=" ".join, shared=True)
def test_a_wrong_argument_is_refused_without_any_store(words: list[str], memory: CommandLine) -> None:
    """The store is a server that nobody runs: touching it would end with exit code 3."""
    nowhere = ["--config", "redis://127.0.0.1:1/0"]
    refused = memory(*words, *nowhere)
    assert refused.exit_code in (2, 4), (refused.exit_code, refused.stderr)
    assert refused.stderr.startswith("error: ")
    assert KEY_TEXT not in refused.stderr


def test_a_wrong_argument_makes_no_file(memory: CommandLine, tmp_path: Path) -> None:
    refused = memory("write", "x", "--scope", "bad")
    assert (refused.exit_code, list(tmp_path.iterdir())) == (2, [])
    assert memory("write", "x", "--scope", "user:ada").exit_code == 0
    assert (tmp_path / "memory.db").exists()


def test_a_key_that_is_pasted_whole_is_named_by_its_id(memory: CommandLine) -> None:
    shown = memory.json("keys", "create", "--role", "reader")
    refused = memory("keys", "revoke", shown["key"])
    assert refused.exit_code == 2
    assert shown["id"] in refused.stderr
    assert shown["key"] not in refused.stderr
    assert memory("keys", "revoke", shown["id"]).exit_code == 0
