"""`memory.commands`: the `/mem` language, for agents and chats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypedDict

from memory.commands.run import answer
from memory.commands.schema import DESCRIPTION, NAME, PARAMETERS
from memory.domain import validation
from memory.domain.agent_results import Result
from memory.domain.corrections import explain_guesses
from memory.domain.enrichment import PASSES
from memory.domain.errors import InvalidInput, MemoryTiersError, RequestIdReused
from memory.domain.scope import Scope
from memory.domain.shapes.tools import ToolFormat, export_tool
from memory.facade.arguments import check_names, flag, scope_of
from memory.facade.resources.command_context import MemoryCommandContext
from memory.facade.runtime.access import Access, Scopes
from memory.facade.runtime.build import as_advisor
from memory.facade.runtime.request_ids import check_request_id, request_of
from memory.facade.runtime.view_guard import guard_calls
from memory.facade.search_options import preferences
from memory.facade.write_options import WriteOptions
from memory.orchestrator.storage.requests import Request
from memory.policies.ranking.preferences import Preferences
from memory.ports.advisor import Advisor, Prompt

TENANT = "tenant"
_IN_PROFILE = {"half_life": "age_half_life_days", "decay_floor": "age_floor"}
MOST_BYTES_OF_ID = 200


class Profile(TypedDict, total=False):
    """The defaults of an agent's memory."""

    intent_routing: bool
    """Raise the types that the question itself seems to ask for. True by default."""
    search_expand: bool
    """Search other wordings of an advisor too. False by default."""
    age_decay: bool
    """Let older entries count less. True by default."""
    age_half_life_days: float
    """The age in days in steps of which older entries count less. 90 by default."""
    age_floor: float
    """The least factor that age applies. 0.5 by default."""
    auto_tag: bool
    """Let the memory's advisor tag added entries. As configured by default."""
    auto_supersede: bool
    """Let the advisor say which older entries are replaced. As configured by default.
    """


@guard_calls
@explain_guesses
class Commands:
    """The `/mem` command language, in which agents and chats use their memory.

        [found] = await memory.commands.run("/mem search tea", scope="user:ada")
        print(found.text)

    The commands are `/mem entries`, `entry`, `search`, `expand`, `density`,
    `add entry … /endmem`, `add link`, `invalidate`, `read`, `write`, `scratchpad` and
    `clear`. `/mem` alone explains each. No command deletes an entry.
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
        request_id: str | None = None,
    ) -> list[Result]:
        """Run the commands of a text in order, and return one result for each.

        Commands are lines that begin with `/mem`; other text is ignored. A result's
        `text` is framed by `[/mem …]` and `[END MEMORY]`, and no stored line in it
        looks like the end of the frame. A failure, such as that of a store or of a
        closed memory, does not raise. Its result says `ERR: …` and has `is_error`; do
        not cache it (`cacheable`).

        Args:
            text: The text of an agent or a chat.
            scope: The scope of added entries.
            reads: The scopes from which commands read, link, supersede and count:
                `scope` by default, other scopes, or `"tenant"` for all.
            conversation: The id of an existing session. Added entries store it as
                their `conversation_id`.
            agent: The agent of added entries, whose source is always "agent". It also
                selects the scratchpad; by default this is the shared one.
            profile: The defaults of searches and additions.
            advisor: Used by searches in place of the memory's own advisor, which
                enriches added entries. If `scope` is not among `reads`, no advisor is
                asked which older entries an added one replaces.
            request_id: Your id for this text, 1 to 200 bytes. A repeat with the same id
                within 24 hours changes nothing twice. Its answers say what is stored
                now, so a command may be told that its change was made already.

        Raises:
            Conflict: `request_id` was used for another text.
        """
        self._access.check_process()
        if not isinstance(text, str):
            raise InvalidInput("text", f"must be text, not {type(text).__name__}")
        into, wanted, request = scope_of(scope), _profile(profile), _request_id(request_id)
        readable = self._access.readable_scopes(_reads(reads, into))
        reach = MemoryCommandContext(
            self._access,
            into,
            None if readable is None else tuple(dict.fromkeys(readable)),
            None if conversation is None else validation.identifier("conversation", conversation),
            None if agent is None else validation.identifier("agent", agent),
            _preferences(wanted, conversation),
            flag("profile.search_expand", wanted.get("search_expand", False)),
            _enrichment_options(wanted),
            None if advisor is None else as_advisor(advisor),
            request,
        )
        await self._refuse_other_text(request_of("commands.run", request, {"text": text, "scope": into.text}))
        return await answer(reach, text)

    async def _refuse_other_text(self, request: Request | None) -> None:
        """Raise if the id was used for another text; commands tell other failures."""
        if request is None:
            return

        async def note(_: object) -> None:
            return None

        try:
            await self._access.once(request, note, lambda _: {}, note)
        except RequestIdReused:
            raise
        except MemoryTiersError:
            pass

    def schema(self, format: ToolFormat = "openai") -> dict[str, Any]:
        """Return the command language as one tool for a model.

        Its argument `text` is the one that `run` takes.

        Args:
            format: The API that the tool is for: `"openai"` or `"anthropic"`.
        """
        return export_tool(NAME, DESCRIPTION, PARAMETERS, format)


def _reads(given: Scopes | Literal["tenant"] | None, scope: Scope) -> Scopes | None:
    """Return the scopes that commands read; None for all."""
    if given == TENANT:
        return None
    return scope if given is None else given


def _enrichment_options(profile: Profile) -> WriteOptions:
    wanted: WriteOptions = {}
    for of in PASSES:
        if of in profile:
            wanted[of] = flag(f"profile.{of}", profile[of])
    return wanted


def _request_id(given: object) -> str | None:
    """Check a request id, which the numbers of commands are added to."""
    checked = check_request_id(given)
    if checked is not None and len(checked.encode()) > MOST_BYTES_OF_ID:
        raise InvalidInput(
            "request_id", f"exceeds {MOST_BYTES_OF_ID} bytes. Pass a shorter id, such as str(uuid.uuid4())"
        )
    return checked


def _preferences(profile: Profile, conversation: str | None) -> Preferences:
    """Return the boosts and the ageing of searches with this profile."""
    ages = flag("profile.age_decay", profile.get("age_decay", True))
    try:
        return preferences(
            {"conversation_id": conversation},
            intent=flag("profile.intent_routing", profile.get("intent_routing", True)),
            age_decay=ages,
            half_life=profile.get("age_half_life_days") if ages else None,
            decay_floor=profile.get("age_floor") if ages else None,
        )
    except InvalidInput as error:
        if (name := _IN_PROFILE.get(error.field)) is None:
            raise
        raise InvalidInput(f"profile.{name}", error.problem) from None


def _profile(given: Profile | None) -> Profile:
    if given is None:
        return {}
    check_names("profile", given, Profile.__annotations__, "{'search_expand': True}")
    return given
