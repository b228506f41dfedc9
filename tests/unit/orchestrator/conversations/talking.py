"""What the tests of conversations share: sessions over the small world, and what
everybody must see of them.
"""

from __future__ import annotations

from typing import Any, Literal

from memory.domain.message import Message, Role
from memory.domain.scope import Scope
from memory.domain.session import FoundMessages
from memory.orchestrator.conversations.conversation import Conversation
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.conversations.window.history import HistoryQuery
from memory.orchestrator.engine import Engine
from memory.orchestrator.retrieval.message_search import MessageSearch
from memory.orchestrator.storage.topology import Topology
from memory.policies.window_exit import WindowExitFunction
from tests.unit.orchestrator.world import TENANT, USER, World

SYSTEM = Message(role=Role.SYSTEM, content="You are kind.")


def user(text: str, message_id: str | None = None, **more: Any) -> Message:
    return Message(id=message_id, role=Role.USER, content=text, **more)


def assistant(text: str, message_id: str | None = None, **more: Any) -> Message:
    return Message(id=message_id, role=Role.ASSISTANT, content=text, **more)


def calling(*calls: str, message_id: str | None = None) -> Message:
    return Message(
        id=message_id, role=Role.ASSISTANT, tool_calls=[{"id": call, "name": "look"} for call in calls]
    )


def answer(call: str, text: str = "found", message_id: str | None = None) -> Message:
    return Message(id=message_id, role=Role.TOOL, content=text, tool_call_id=call)


async def begun(engine: Engine, session_id: str = "s1", system: Message | None = SYSTEM) -> Conversation:
    return await engine.conversations.create(TENANT, SessionDraft(session_id, system))


async def opened(engine: Engine, session_id: str = "s1") -> Conversation:
    """As another process has it."""
    return await engine.conversations.open(TENANT, SessionDraft(session_id), create=False)


async def process_of(
    world: World, on_window_exit: WindowExitFunction | Literal["elsewhere"] | None
) -> Engine:
    """A process of its own over the world's stores."""
    engine = Engine(
        Topology(short=world.short, mid=world.mid, long=world.long),
        clock=world.clock,
        on_window_exit=on_window_exit,
    )
    await engine.open()
    return engine


async def hits_of(
    conversation: Conversation, text: str, limit: int = 10, mode: Any = "hybrid"
) -> FoundMessages:
    """The messages of the session that answer, as its own process finds them."""
    finding = MessageSearch(conversation._placement, conversation._sessions)
    return await finding.find_in(conversation, text, limit, mode)


async def window(conversation: Conversation) -> list[str]:
    return [str(message.id) for message in (await conversation.context()).messages]


async def told(conversation: Conversation, **asked: Any) -> list[str]:
    return [str(item.message.id) for item in (await conversation.history(HistoryQuery(**asked))).items]


async def list_derived(world: World, scope: Scope = USER) -> list[str]:
    """The entries that were made of what left windows."""
    return sorted(await world.browse(scope))


async def marks(conversation: Conversation) -> dict[str, str | None]:
    """Why each message is not in the window."""
    page = await conversation.history(HistoryQuery())
    return {str(item.message.id): item.excluded or (item.archived_by and "archived") for item in page.items}
