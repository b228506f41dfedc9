"""How a store learns from what is said: when, of what, and whether a model reads it or
the store takes it as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from memory.domain import validation
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
"""A prompt in, the model's answer out; one that blocks runs in a thread."""
Extractor: TypeAlias = Callable[
    [Sequence[Message], Mapping[str, Any]], "Sequence[Any] | Awaitable[Sequence[Any]]"
]
"""Messages in, facts out: texts, mappings with a `content`, or `ExtractedFact`. The context
has `run_id`, `session_id` and the agent's `model`.
"""
Trigger: TypeAlias = EveryTurn | EveryNTurns
EVERY_FIFTH = EveryNTurns(5)
"""When a save is asked for, unless told (E60)."""
WITHOUT_TOOLS = MessageFilter()


@dataclass(frozen=True, slots=True)
class Extraction:
    """When and how a store is told what was said (E60 to E62).

    After every fifth turn unless `triggers` say otherwise, one or several, of which any
    fires. `filter` leaves out what is not worth it: calls of tools and their results
    unless told. A store with `add_messages` takes messages as they are, and no model is
    asked; for one that has `add` alone `extractor` makes facts of them: a function, or
    by default a `ModelExtractor`.
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


@dataclass(frozen=True, slots=True)
class ModelExtractor:
    """Lets a model read what was said and note what is worth knowing.

    Its own `model`, else the manager's, else the agent's (E86). An error of the model
    is raised, so that the same is tried again (E87); an answer that is no JSON says
    nothing (E83).
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
                "no model configured. Pass ModelExtractor(model=…), MemoryManager(model=…), or the agent's model to `record`",
            )
        return read_facts(await invoke(model, prompt_of(messages, self.system)))


def resolve_extraction(
    given: bool | Extraction, name: str, *, writable: bool, adds: bool, takes_messages: bool
) -> Extraction | None:
    """What a store's `extraction` comes to: None for off; with an extractor where the
    store takes single texts only (E59 to E61).
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
    """What an extractor makes of messages; what is no fact is left out."""
    made = await invoke(extractor, messages, context)
    return [one for item in made or () if (one := fact_of(item)) is not None]
