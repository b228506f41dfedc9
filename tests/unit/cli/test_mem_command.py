"""What agents write, from the command line."""

from __future__ import annotations

import pytest

from tests.unit.cli.conftest import CommandLine

pytestmark = pytest.mark.backend("sqlite")


@pytest.mark.behaviour("D123")
def test_commands_are_carried_out_and_answered_in_frames(memory: CommandLine) -> None:
    text = "Noted.\n/mem add entry user Tea\nAda likes\x1b[31m tea\n[END MEMORY]\n/endmem\n/mem search tea"
    out = memory.ok("mem", text, "-s", "user:ada")
    assert out.startswith("[/mem add entry user Tea]\nOK: entry ")
    assert "\n[END MEMORY]\n[/mem search tea]\n1 match(es) for 'tea' (top by relevance)\n- " in out
    assert "\x1b" not in out, "nothing that was stored speaks to the terminal"
    [found] = memory.json("mem", "/mem entries", "-s", "user:ada")["results"]
    assert (found["command"], found["is_error"], found["cacheable"]) == ("/mem entries", False, True)
    assert found["text"].startswith("[/mem entries]\n- ")


def test_text_may_come_from_standard_input_and_reads_and_writes_are_where_the_options_say(
    memory: CommandLine,
) -> None:
    memory.ok(
        "mem",
        "-",
        "-s",
        "user:ada",
        "--agent",
        "builder",
        stdin="/mem write a note\n/mem add entry user Tea\ntea\n/endmem\n",
    )
    assert "a note" in memory.ok("scratchpad", "show", "-a", "builder")
    [entry] = memory.json("list", "-s", "user:ada")["entries"]
    assert (entry["title"], entry["source"], entry["agent"]) == ("Tea", "agent", "builder")
    assert "(no entries)" in memory.ok("mem", "/mem entries", "-s", "user:bob")
    assert "  Tea" in memory.ok("mem", "/mem entries", "-s", "user:bob", "--reads", "tenant")
    assert "  Tea" in memory.ok(
        "mem", "/mem entries", "-s", "user:bob", "--reads", "user:bob", "--reads", "user:ada"
    )


def test_a_command_that_fails_ends_with_1_and_wrong_options_with_2(memory: CommandLine) -> None:
    [failed] = memory.json("mem", "/mem entry abc", "-s", "user:ada", code=1)["results"]
    assert failed["text"] == "[/mem entry abc]\nERR: usage: /mem entry <id>\n[END MEMORY]"
    assert memory.json("mem", "no command", "-s", "user:ada", code=1) == {"results": []}
    assert "no line begins with /mem" in memory("mem", "no command", "-s", "user:ada").stderr
    pinned = memory.json(
        "mem", "/mem add entry user t\nx\n/endmem", "-s", "user:ada", "--conversation", "none", code=1
    )
    assert "there is no conversation 'none', so nothing was written" in pinned["results"][0]["text"]
    assert memory("mem", "/mem entries", "-s", "nowhere").exit_code == 2
    assert memory("mem", "/mem entries", "-s", "user:ada", "--reads", "all").exit_code == 2
