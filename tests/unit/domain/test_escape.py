"""The escape: no line of what is escaped begins like a frame or a command, and the text
comes back to the letter.
"""

from __future__ import annotations

import random

from memory.commands.parse import commands_in
from memory.domain.escape import escape_text, excerpt_line, one_line, unescape_text
from memory.ports.contract.cells import cells

FRAMES = (
    "/mem",
    "/mem entries",
    "/endmem",
    "[/mem entries]",
    "[END MEMORY]",
    "[ end  memory ]",
    "/MEM search",
    "[/mem]",
    "[\u200b/mem entries]",
    "[\u200bEND\u2060 \ufe0fMEMORY]",
    "[E\u200bND MEM\u2060\xadORY]",
    "[/me\ufe0fm entries]",
    "/m\u200bem entries",
    "/end\xadmem",
    "\\/endmem",
    "\\\\[END MEMORY]",
)
BEFORE = (
    "",
    " ",
    "\t ",
    "\u00a0",
    "\u200b",
    "\ufeff",
    "\x07",
    "\u202e ",
    "\xad",
    "\u2800",
    "\u3164",
    "\ufe0f",
    "\U000e0020",
)
BREAKS = ("\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


@cells("before", BEFORE, shared=True)
@cells("looks", FRAMES, shared=True)
def test_what_looks_like_a_frame_or_a_command_gets_a_backslash_wherever_its_line_begins(
    looks: str, before: str
) -> None:
    for cut in ("", *(f"text{one}" for one in BREAKS)):
        text = f"{cut}{before}{looks}"
        assert escape_text(text) == f"{cut}{before}\\{looks}"
        assert unescape_text(escape_text(text)) == text
        assert escape_text(escape_text(text)) == f"{cut}{before}\\\\{looks}", (
            "what was escaped before is text like any other"
        )


@cells(
    "text",
    [
        "",
        "\n",
        "a /mem entries",
        "/memory/file",
        "/members",
        "/endmemo",
        "[END OF MEMORY]",
        "/ mem",
        "[E ND MEMORY]",
        "mem",
        "\\",
        "\\n",
        "[mem]",
    ],
    shared=True,
)
def test_other_text_stays_as_it_is(text: str) -> None:
    assert escape_text(text) == text == unescape_text(text)


def test_drawn_texts_come_back_and_hold_no_command() -> None:
    draw = random.Random(7)  # noqa: S311
    pieces = [*FRAMES, *BEFORE, *BREAKS, "\\", "a", "\x00", "\ud800", "é"]
    for _ in range(20_000):
        text = "".join(draw.choices(pieces, k=draw.randrange(8)))
        assert unescape_text(escape_text(text)) == text
        assert commands_in(escape_text(text)) == []
        assert not any(
            line.lstrip().casefold().startswith(("[/mem", "[end memory]", "/endmem\n"))
            for line in escape_text(text).splitlines()
        )


def test_a_line_is_one_line_and_its_beginning_has_so_many_bytes_at_most() -> None:
    assert one_line(" a\n\tb\u2028c \x1b[0m\x00\ud800 ") == "a b c \ufffd[0m\ufffd\ufffd"
    assert excerpt_line("żółć", 100) == "żółć"
    assert excerpt_line("żółć" * 10, 20) == "żółćżółć…"
    assert excerpt_line("ab cd ef", 5) == "ab…"
    for most in range(3, 40):
        cut = excerpt_line("aż€\U0001f41f" * 9 + " " * 400, most)
        assert len(cut.encode()) <= most
        assert cut.endswith("…")
