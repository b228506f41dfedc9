"""How a store learns from messages: the triggers, the filter and the extractor.

A model extracts facts, or the store takes the messages as they are.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from memory.domain import validation
from memory.domain.corrections import explain_arguments
from memory.domain.errors import InvalidInput
from memory.domain.message import Message
from memory.orchestrator.storage.callbacks import invoke
from memory.policies.extraction import (
    SYSTEM,
    EveryNTurns,
    EveryTurn,
    ExtractedFact,
    MessageFilter,
    fact_of,
    prompt_of,
    read_facts,
)
from memory.ports.advisor import Prompt

Model: TypeAlias = Callable[[Prompt], "str | Awaitable[str]"]
"""Takes a prompt and returns the model's answer. A blocking one runs in a thread."""
Extractor: TypeAlias = Callable[
    [Sequence[Message], Mapping[str, Any]], "Sequence[Any] | Awaitable[Sequence[Any]]"
]
"""Takes messages and a context and returns facts.

A fact is a text, a mapping with a `content`, or an `ExtractedFact`. The context has
`run_id`, `session_id` and the agent's `model`.
"""
Trigger: TypeAlias = EveryTurn | EveryNTurns
EVERY_FIFTH = EveryNTurns(5)
"""The default trigger: save after every fifth turn."""
WITHOUT_TOOLS = MessageFilter()


@explain_arguments
@dataclass(frozen=True, slots=True)
class Extraction:
    """Settings of when and how a store receives messages.

    Args:
        triggers: One or several; a save runs if any of them fires. The default is every
            fifth turn.
        filter: Leaves out messages. The default leaves out tool calls and their
            results.
        extractor: A function that turns messages into facts, for stores that only have
            `add`. The default is a `ModelExtractor`. A store with `add_messages` takes
            messages as they are, and no model is called.
    """

    triggers: Trigger | Sequence[Trigger] = EVERY_FIFTH
    filter: MessageFilter | Callable[[Message], Message | None] = WITHOUT_TOOLS
    extractor: Extractor | None = None

    def __post_init__(self) -> None:
        triggers = (
            (self.triggers,)
            if isinstance(self.triggers, EveryTurn | EveryNTurns)
            else tuple(validation.sequence("triggers", self.triggers))
        )
        for trigger in triggers:
            if not isinstance(trigger, EveryTurn | EveryNTurns):
                raise InvalidInput(
                    "triggers", f"must be EveryTurn or EveryNTurns, not {type(trigger).__name__}"
                )
        object.__setattr__(self, "triggers", triggers)
        if not callable(self.filter):
            raise InvalidInput("filter", "must be a MessageFilter, or a function of a message")
        if self.extractor is not None and not callable(self.extractor):
            raise InvalidInput("extractor", "must be a function of messages and a context")


@explain_arguments
@dataclass(frozen=True, slots=True)
class ModelExtractor:
    """Extract facts from messages with a model.

    It uses its own `model`, else the manager's, else the agent's. An error of the model
    is raised, so that the same messages are tried again. An answer that is not JSON
    yields no facts.
    """

    model: Model | None = None
    system: str = SYSTEM

    async def __call__(self, messages: Sequence[Message], context: Mapping[str, Any]) -> list[ExtractedFact]:
        if not messages:
            return []
        model = self.model or context.get("model")
        if model is None:
            raise InvalidInput(
                "model",
                "no model configured. Pass ModelExtractor(model=…), MemoryManager(model=…), or the agent's"
                " model to `record`",
            )
        return read_facts(await invoke(model, prompt_of(messages, self.system)))


def resolve_extraction(
    given: bool | Extraction, name: str, *, writable: bool, adds: bool, takes_messages: bool
) -> Extraction | None:
    """Resolve the `extraction` setting of a store; None means off.

    A store that only takes single texts gets an extractor.
    """
    if given is False:
        return None
    settings = Extraction() if given is True else given
    if not isinstance(settings, Extraction):
        raise InvalidInput(
            "extraction", f"must be True, False or an Extraction, not {type(settings).__name__}"
        )
    if not writable:
        raise InvalidInput(
            "extraction", f"store '{name}' is not writable, so nothing can be extracted into it"
        )
    if not settings.triggers:
        raise InvalidInput(
            "extraction", f"store '{name}' has no triggers: nothing would ever be extracted into it"
        )
    if settings.extractor is not None and not adds:
        raise InvalidInput("extraction", f"store '{name}' has an extractor but no add method")
    if settings.extractor is not None or takes_messages:
        return settings
    return replace(settings, extractor=ModelExtractor())


async def facts_of(
    extractor: Extractor, messages: Sequence[Message], context: Mapping[str, Any]
) -> list[ExtractedFact]:
    """Return the facts that an extractor finds, and leave out invalid ones."""
    made = await invoke(extractor, messages, context)
    return [one for item in made or () if (one := fact_of(item)) is not None]
