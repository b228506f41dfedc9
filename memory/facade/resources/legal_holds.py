"""`memory.admin.legal_holds`: holds that protect data from deletion."""

from __future__ import annotations

import builtins
from typing import Any

from memory.domain import validation
from memory.domain.corrections import explain_guesses
from memory.domain.errors import InvalidInput
from memory.domain.legal_hold import LegalHold, Over
from memory.domain.scope import Scope, Subtree
from memory.domain.time import micros, moment
from memory.facade.arguments import flag, id_of, scope_or_subtree, user_of
from memory.facade.runtime.access import Access
from memory.facade.runtime.request_ids import request_of
from memory.facade.runtime.view_guard import guard_calls
from memory.orchestrator.storage.requests import RequestMark

MOST_OF_A_REASON = 2_000


@guard_calls
@explain_guesses
class LegalHolds:
    """The legal holds of a tenant. They protect data from deletion.

        await memory.admin.legal_holds.add("case-17", user="ada", reason="a lawsuit")
        await memory.admin.legal_holds.remove("case-17")

    A hold applies until it is removed.
    """

    def __init__(self, access: Access) -> None:
        self._access = access

    async def add(
        self,
        name: str,
        *,
        reason: str,
        scope: Scope | Subtree | str | None = None,
        user: str | Scope | None = None,
        entry_id: str | None = None,
        tenant: bool = False,
        placed_by: str | None = None,
        request_id: str | None = None,
    ) -> LegalHold:
        """Place a legal hold over a scope, a user, an entry or the whole tenant.

        The hold applies to every process until `remove`. Data under a hold cannot be
        deleted: deletions and erasures raise `LegalHoldActive`, and sweeps skip and
        count it. Entries can still be edited, because they keep their versions, and
        they still move between tiers.

        Data without kept versions cannot be overwritten. These edits raise
        `LegalHoldActive`:

        - of a message
        - of a session's title, metadata or system message
        - of a task's title, result or metadata
        - of a run's metadata
        - replacing a file

        New messages, tasks and runs, a message that is being streamed, and the status
        of tasks and runs are written as usual.

        A deletion that had begun before the hold was placed may still finish.

        Args:
            name: The name of the hold, such as that of a case. Several things can be
                held under one name. Placing a hold again changes nothing.
            reason: Why; it must not be blank.
            scope: Hold a scope. A path is held with its whole subtree, and its subtree
                is the same hold.
            user: Hold a user: their scope, and the sessions with them.
            entry_id: Hold an entry; expired and retired entries too.
            tenant: Hold the whole tenant. Give exactly one of these four.
            placed_by: Who places it; in a view with an origin, that origin by default.
            request_id: As in `Memory.write`. A repeat of a complete call places no hold
                again that was removed since.
        """
        validation.identifier("name", name)
        if not validation.text("reason", reason, max_chars=MOST_OF_A_REASON, min_chars=1).strip():
            raise InvalidInput(
                "reason", "must not be blank. Say why the hold exists, for readers in later years"
            )
        given: dict[Over, str] = {}
        if scope is not None:
            held = scope_or_subtree(scope)  # a hold on a path holds its subtree
            given["scope"] = (held.root if isinstance(held, Subtree) else held).text
        if user is not None:
            given["user"] = user_of(user)
        if entry_id is not None:
            given["entry"] = id_of(entry_id)
        if flag("tenant", tenant):
            given["tenant"] = self._access.tenant
        if len(given) != 1:
            raise InvalidInput(
                "hold",
                "needs exactly one of scope, user, entry_id, or tenant=True. Call it once for each target",
            )
        [(over, of)] = given.items()
        engine, of_tenant = self._access.engine, self._access.tenant
        by = self._access.writer if placed_by is None else validation.identifier("placed_by", placed_by)
        asked = {"name": name, "over": over, "of": of, "reason": reason, "by": by}
        request = request_of("admin.legal_holds.add", request_id, asked)

        async def place(mark: RequestMark | None) -> LegalHold:
            now = engine.placement.now() if mark is None else mark.begun_at
            hold = LegalHold(name, over, of, reason, by, now)
            entry_scope = await engine.entry_scopes.of_entry(of_tenant, of) if over == "entry" else None
            return await engine.erasure.holds.place(of_tenant, hold, entry_scope)

        async def read(noted: Any) -> LegalHold:
            return LegalHold(name, over, of, reason, by, moment(noted["at"]))

        return await self._access.once(request, place, lambda placed: {"at": micros(placed.placed_at)}, read)

    async def remove(self, name: str, *, request_id: str | None = None) -> builtins.list[LegalHold]:
        """Remove all holds under a name, and return them.

        The next sweep deletes entries that have expired meanwhile.

        Args:
            name: The name of the holds.
            request_id: As in `Memory.write`. A repeat spares a hold that was placed
                after the request began. It returns the holds that it removes itself.
        """
        named, engine, tenant = validation.identifier("name", name), self._access.engine, self._access.tenant
        request = request_of("admin.legal_holds.remove", request_id, {"name": named})

        async def release(mark: RequestMark | None) -> builtins.list[LegalHold]:
            until = mark.begun_at if mark is not None and mark.repeats else None
            return await engine.erasure.holds.release(tenant, named, until)

        return await self._access.once_marked(request, release, [])

    async def list(self) -> builtins.list[LegalHold]:
        """List the legal holds of the tenant, oldest first."""
        return await self._access.engine.erasure.holds.all(self._access.tenant)
