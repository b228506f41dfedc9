"""Messages in a line, for tests of what is done with lists of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from memory.domain.message import Message, Role, ToolCall
from memory.policies.tokens import DefaultCounter, message_tokens

COUNTER = DefaultCounter()
_ROLES = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT, "t": Role.TOOL}


def said(role: str, content: str | list[dict[str, Any]] = "", **more: Any) -> Message:
    """`said("u", "hello")`: a message of the role that begins with the letter."""
    return Message(role=_ROLES[role], content=content, **more)


def asks(*ids: str, content: str = "", name: str = "t") -> Message:
    """An assistant's calls of these ids."""
    return said("a", content, tool_calls=[ToolCall(id=one, name=name) for one in ids])


def answer(call: str, content: str = "r") -> Message:
    return said("t", content, tool_call_id=call)


def costs(messages: list[Message]) -> list[int]:
    return [message_tokens(message, COUNTER) for message in messages]


def contents(messages: Sequence[Message], positions: Sequence[int]) -> list[str]:
    return [messages[at].text for at in positions]


@st.composite
def talks(draw: st.DrawFn) -> list[Message]:
    """Anything that several writers may have left behind: calls, answers by id and by
    name in any order and number, summaries anywhere.
    """
    ids = st.sampled_from(["c1", "c2", "c3"])
    one = st.one_of(
        st.builds(said, st.sampled_from("suuaa"), st.text("ab ", max_size=12)),
        st.builds(lambda given: asks(*given), st.lists(ids, min_size=1, max_size=3)),
        st.builds(answer, ids),
        st.builds(lambda name: said("t", "by name", name=name), st.sampled_from(["t", None])),
        st.builds(lambda: said("s", "earlier", is_summary=True)),
    )
    return draw(st.lists(one, max_size=14))
