"""What is a command, what it says, and what its body is."""

from __future__ import annotations

import pytest

from memory.commands.parse import (
    AddEntry,
    AddLink,
    Clear,
    Command,
    Density,
    Expand,
    Invalidate,
    InvalidCommand,
    ListCommands,
    ListEntries,
    ReadArtifact,
    Scratchpad,
    Search,
    ShowEntry,
    Write,
    commands_in,
)
from memory.ports.contract.cells import cells

UUID = "01a214ea-37b1-8cec-b913-7ce72ef97732"


def one(text: str) -> Command:
    [command] = commands_in(text)
    return command


@pytest.mark.behaviour("D114", "AC-D43")
@cells("named", ["42", "#42", "# 42", "#  42", "0042", "#042 "], shared=True)
def test_an_id_is_digits_with_or_without_a_sign(named: str) -> None:
    said = " ".join(f"/mem entry {named}".split())
    assert one(f"/mem entry {named}") == ShowEntry(said, "42")
    assert one(f"/mem invalidate {named}") == Invalidate(f"/mem invalidate {' '.join(named.split())}", "42")


@pytest.mark.behaviour("D114", "AC-D43")
@cells(
    "named",
    [
        "",
        "abc",
        "#",
        "##42",
        "4 2",
        "-1",
        "42,43",
        "4.2",
        "٤٢",
        "１２",
        "9" * 19,
        "0x1f",
        UUID[:-1],
        "42 depth",
        "42\x00",
        "\ud800",
    ],
    shared=True,
)
def test_what_is_no_id_is_a_usage_error(named: str) -> None:
    for verb in ("entry", "density", "invalidate", "read", "expand"):
        command = one(f"/mem {verb} {named}")
        assert isinstance(command, InvalidCommand)
        assert command.usage[0].startswith(f"/mem {verb}")
    assert isinstance(one(f"/mem add link {named} supports 2"), InvalidCommand)
    assert isinstance(
        one(f"/mem add entry user title --supersedes {named if named != '42,43' else '42,,43'}\nx\n/endmem"),
        InvalidCommand,
    )


def test_a_uuid_is_an_id_in_any_case() -> None:
    assert one(f"/mem read #{UUID.upper()}") == ReadArtifact(f"/mem read #{UUID.upper()}", UUID)
    assert one(f"/mem density {UUID}") == Density(f"/mem density {UUID}", UUID)


@cells(
    "text, meant",
    [
        ("/mem entries", ListEntries("/mem entries")),
        ("/mem entries user,project", ListEntries("/mem entries user,project", ("user", "project"))),
        ("/mem entries user ,  project", ListEntries("/mem entries user , project", ("user", "project"))),
        ("/mem entries tag=a b", ListEntries("/mem entries tag=a b", (), "a b")),
        (
            "/mem entries user, project tag=a b",
            ListEntries("/mem entries user, project tag=a b", ("user", "project"), "a b"),
        ),
        ("/mem entries user | tag=x", ListEntries("/mem entries user | tag=x", ("user",), "x")),
        ("/mem entries | tag=x", ListEntries("/mem entries | tag=x", (), "x")),
        ("/mem entries tag=a tag=b", ListEntries("/mem entries tag=a tag=b", (), "a tag=b")),
        ("/mem search  what   now", Search("/mem search what now", "what now")),
        ("/mem search --rerank q", Search("/mem search --rerank q", "q", True)),
        ("/mem search a --rerank b", Search("/mem search a --rerank b", "a b", True)),
        ("/mem search a --rerank --rerank", Search("/mem search a --rerank --rerank", "a", True)),
        ("/mem search --reranked", Search("/mem search --reranked", "--reranked")),
        ("/mem write it says --force", Write("/mem write it says --force", "it says --force")),
        ("/mem write -- a note", Write("/mem write -- a note", "-- a note")),
        ("/mem expand 4", Expand("/mem expand 4", "4", 1)),
        ("/mem expand # 4 depth=2", Expand("/mem expand # 4 depth=2", "4", 2)),
        ("/mem expand 4 depth=0", Expand("/mem expand 4 depth=0", "4", 1)),
        ("/mem expand 4 depth=-7", Expand("/mem expand 4 depth=-7", "4", 1)),
        (f"/mem expand 4 depth={'0' * 5000}2", Expand(f"/mem expand 4 depth={'0' * 5000}2", "4", 2)),
        (f"/mem expand 4 depth={'9' * 5000}", Expand(f"/mem expand 4 depth={'9' * 5000}", "4", 2)),
        ("/mem add link # 1 supports #2", AddLink("/mem add link # 1 supports #2", "1", "supports", "2")),
        ("/mem add link 1 supports # 2", AddLink("/mem add link 1 supports # 2", "1", "supports", "2")),
        ("/mem add link # 1 supports # 2", AddLink("/mem add link # 1 supports # 2", "1", "supports", "2")),
        ("/mem write a note", Write("/mem write a note", "a note")),
        ("/mem write --shared a note", Write("/mem write --shared a note", "a note", True)),
        ("/mem scratchpad", Scratchpad("/mem scratchpad")),
        ("/mem scratchpad --shared", Scratchpad("/mem scratchpad --shared", True)),
        ("/mem clear", Clear("/mem clear")),
        ("/mem clear --shared", Clear("/mem clear --shared", True)),
    ],
    shared=True,
)
def test_a_line_says_what_is_meant(text: str, meant: Command) -> None:
    assert one(text) == meant
    assert one(f"  \t{text} \r\n") == meant


@cells(
    "text",
    [
        "/mem help",
        "/mem add",
        "/mem add thing",
        "/mem delete 42",
        "/mem entries user project",
        "/mem entries tag=",
        "/mem entries ,",
        "/mem entries user tag=",
        "/mem entries user, tag=x",
        "/mem search",
        "/mem search --rerank",
        "/mem expand 4 depth=two",
        "/mem expand 4 depth=",
        "/mem expand 4 5",
        "/mem add link 1 2",
        "/mem add link 1 supports 2 3",
        "/mem add entry",
        "/mem add entry user",
        "/mem add entry user --supersedes 1",
        "/mem add entry user title --artifact",
        "/mem add entry user title --artifact 1 --artifact 2",
        "/mem add entry user title --supersedes=1",
        "/mem add entry user title --supersedes 1 more",
        "/mem add entry user title --supersede 1",
        "/mem add entry user --Artefact 1 title",
        "/mem add entry user title --supersedes 1 --pinned",
        "/mem write --share a note",
        "/mem scratchpad all",
        "/mem clear everything",
    ],
    shared=True,
)
@pytest.mark.behaviour("D122")
def test_what_is_not_used_as_it_is_to_be_is_wrong(text: str) -> None:
    assert isinstance(one(text), InvalidCommand)
    assert commands_in(f"{text}\n/mem entries")[1:] in (
        [ListEntries("/mem entries")],
        [],
    ), "add entry has a body"


@cells(
    "prose",
    [
        "",
        "mem entries",
        "see /mem entries",
        "/memo",
        "/memory entries",
        "> /mem entries",
        "/endmem",
        "[/mem entries]",
        "[END MEMORY]",
        "/MEM entries",
    ],
    shared=True,
)
def test_prose_is_no_command(prose: str) -> None:
    assert commands_in(prose) == []
    assert commands_in(f"{prose}\n/mem entries\r\n{prose}") == [ListEntries("/mem entries")]


@pytest.mark.behaviour("D119")
def test_a_body_is_what_stands_between_to_the_letter() -> None:
    text = (
        "/mem add entry learning How  to deploy --supersedes #3,#4, # 5,3 --artifact # 7\r\n first\r\n\n "
        " last \n/endmem  \n/mem entries"
    )
    added, listed = commands_in(text)
    said = "/mem add entry learning How to deploy --supersedes #3,#4, # 5,3 --artifact # 7"
    assert added == AddEntry(said, "learning", "How to deploy", " first\r\n\n  last ", "7", ("3", "4", "5"))
    assert listed == ListEntries("/mem entries")
    titled = "/mem add entry user git -- what `--force` does"
    assert one(f"{titled}\nx\n/endmem") == AddEntry(titled, "user", "git -- what `--force` does", "x"), (
        "in quotes it is no option"
    )
    for body, meant in {
        "": "",
        "\n": "",
        "\n\n": "\n",
        "\\/endmem\n": "/endmem",
        "\\\\/endmem\n": "\\/endmem",
        "x /endmem\n": "x /endmem",
    }.items():
        assert one(f"/mem add entry user t\n{body}/endmem") == AddEntry(
            "/mem add entry user t", "user", "t", meant
        )


@pytest.mark.behaviour("D119")
def test_what_is_not_closed_runs_to_the_end_and_nothing_in_it_is_a_command() -> None:
    inside = "/mem invalidate 1\n\\/endmem\n/endmemo\n/mem add entry user u\n"
    assert one(f"/mem add entry user t\n{inside}") == AddEntry("/mem add entry user t", "user", "t", None)
    assert one(f"/mem write\n{inside}") == Write("/mem write", None)
    assert one(f"/mem write --shared\n{inside}") == Write("/mem write --shared", None, True)
    assert isinstance(one(f"/mem add entry\n{inside}"), InvalidCommand)
    assert one(f"/mem add entry user t\n{inside}/endmem").body.startswith("/mem invalidate 1\n")  # type: ignore[attr-defined]


def test_a_body_behind_what_nobody_knows_is_one_all_the_same() -> None:
    for misspelt in ("/mem add entyr user t", "/mem new", "/mem"):
        wrong, listed = commands_in(f"{misspelt}\n/mem invalidate 1\n/endmem\n/mem entries")
        assert isinstance(wrong, InvalidCommand | ListCommands)
        assert listed == ListEntries("/mem entries")
        wrong, added = commands_in(f"{misspelt}\n/mem add entry user t\nx\n/endmem")
        assert isinstance(wrong, InvalidCommand | ListCommands)
        assert isinstance(added, AddEntry), "the end is that of the entry"
        assert len(commands_in(f"{misspelt}\n/mem entries\n/mem entries")) == 3, "nothing ends it"
    assert one("/mem write one\n/mem entries\n/endmem") == Write("/mem write one", "one\n/mem entries")
    assert [type(c) for c in commands_in("/mem write one\n/mem write\ntwo\n/endmem")] == [Write, Write]
    assert commands_in("/mem entries\n/mem clear\n/endmem") == [
        ListEntries("/mem entries"),
        Clear("/mem clear"),
    ]


def test_a_text_of_very_many_commands_is_read_in_one_pass() -> None:
    assert len(commands_in("/mem x\n" * 50_000)) == 50_000
    assert len(commands_in("/mem write x\n" * 50_000 + "/endmem")) == 1


def test_a_long_line_takes_no_longer_than_its_length() -> None:
    """A pattern that tries each beginning of a run would be at it for an hour."""
    for said in (
        f"expand 4 depth={'0' * 500_000}x",
        f"expand {'0' * 500_000}x",
        f"entry {'# ' * 250_000}",
        f"search {'--rerank ' * 50_000}",
    ):
        assert isinstance(one(f"/mem {said}"), InvalidCommand)
