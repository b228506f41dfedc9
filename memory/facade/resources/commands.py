"""`memory.commands`: the `/mem` language, for agents and chats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from memory.commands.run import Result, answer
from memory.commands.schema import DESCRIPTION, NAME, PARAMETERS
from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import PASSES
from memory.domain.errors import InvalidInput
from memory.domain.scope import Scope
from memory.domain.shapes.tools import ToolFormat, export_tool
from memory.facade.arguments import check_names, flag, scope_of
from memory.facade.resources.command_context import MemoryCommandContext
from memory.facade.runtime.access import Access, Scopes, scopes_of
from memory.facade.runtime.build import as_advisor
from memory.facade.search_options import preferences
from memory.facade.write_options import WriteOptions
from memory.ports.advisor import Advisor, Prompt

TENANT = "tenant"


class Profile(TypedDict, total=False):
    """What a memory does for an agent unless told otherwise (D100)."""

    intent_routing: bool
    """Prefer what the question itself seems to want; on."""
    search_expand: bool
    """Have an advisor put the question in other words, and search for these too; off."""
    age_decay: bool
    """What is older counts less; on."""
    age_half_life_days: float
    """90."""
    age_floor: float
    """What the oldest counts at least: 0.5."""
    auto_tag: bool
    """Have the memory's advisor give what is added tags; as configured."""
    auto_supersede: bool
    """Have it say which older entries give way to what is added; as configured."""


@explain_guesses
class Commands:
    """What an agent or a chat writes to read its memory and to add to it: lines that
    begin with `/mem`.

        [found] = await memory.commands.run("/mem search tea", scope="user:ada")
        print(found.text)

    `/mem entries`, `entry`, `search`, `expand`, `density`, `add entry … /endmem`, `add
    link`, `invalidate`, `read`, `write`, `scratchpad` and `clear`; `/mem` alone says
    how each is used. There is none that deletes (D122).
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def run(
        self,
        text: str,
        *,
        scope: Scope | str,
        reads: Scopes | None = None,
        conversation: str | None = None,
        agent: str | None = None,
        profile: Profile | None = None,
        advisor: Advisor | Callable[[Prompt], Any] | None = None,
    ) -> list[Result]:
        """Carry out the commands of a text, in order: one result each; prose is
        ignored.

        A result's `text` stands in a frame, from `[/mem …]` to `[END MEMORY]`, of which
        no line that was stored before looks like the end. What goes wrong, a store or a
        closed memory too, is a result that says `ERR: …` and has `is_error`; nothing of
        it is to be cached (D123, D124).

        What is added goes to `scope`, comes from the source `agent` and from the
        `agent` that is named, and is pinned to `conversation`, a session that must be
        there. What is read, linked to, superseded or counted is of `reads`: of that
        scope unless told, of scopes that are named, or with `reads="tenant"` of all.
        `agent` is also whose scratchpad it is; without, it is the one that all share.
        `profile` says what a search does by itself; `advisor` is asked by it in place
        of the memory's own, which is the one that enriches what is added; of a `scope`
        that may not be read none is asked to have older entries give way.
        """
        self._access.check_process()
        if not isinstance(text, str):
            raise InvalidInput("text", f"must be text, not {type(text).__name__}")
        into, wanted = scope_of(scope), _profile(profile)
        reach = MemoryCommandContext(
            self._access,
            into,
            _reads(reads, into),
            None if conversation is None else validation.identifier("conversation", conversation),
            None if agent is None else validation.identifier("agent", agent),
            preferences(
                {"conversation_id": conversation},
                intent=flag("profile.intent_routing", wanted.get("intent_routing", True)),
                age_decay=flag("profile.age_decay", wanted.get("age_decay", True)),
                half_life=wanted.get("age_half_life_days") if wanted.get("age_decay", True) else None,
                decay_floor=wanted.get("age_floor") if wanted.get("age_decay", True) else None,
            ),
            flag("profile.search_expand", wanted.get("search_expand", False)),
            _enrichment_options(wanted),
            None if advisor is None else as_advisor(advisor),
        )
        return await answer(reach, text)

    def schema(self, format: ToolFormat = "openai") -> dict[str, Any]:
        """The language as one tool for a model, in the format that OpenAI's API takes,
        or Anthropic's; its `text` is what `run` takes.
        """
        return export_tool(NAME, DESCRIPTION, PARAMETERS, format)


def _reads(given: Scopes | Literal["tenant"] | None, scope: Scope) -> tuple[Scope, ...] | None:
    if given == TENANT:
        return None
    return (scope,) if given is None else tuple(dict.fromkeys(scopes_of(given)))


def _enrichment_options(profile: Profile) -> WriteOptions:
    wanted: WriteOptions = {}
    for of in PASSES:
        if of in profile:
            wanted[of] = flag(f"profile.{of}", profile[of])
    return wanted


def _profile(given: Profile | None) -> Profile:
    if given is None:
        return {}
    check_names("profile", given, Profile.__annotations__, "{'search_expand': True}")
    return given
