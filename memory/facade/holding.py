"""Placing legal holds: what a caller says is held, checked."""

from __future__ import annotations

from memory.domain import door
from memory.domain.errors import InvalidInput
from memory.domain.hold import LegalHold, Over
from memory.domain.scope import Scope
from memory.facade.access import Access
from memory.facade.arguments import id_of, scope_of, user_of

MOST_OF_A_REASON = 2_000


async def place(
    access: Access,
    name: str,
    *,
    reason: str,
    scope: Scope | str | None,
    user: str | Scope | None,
    entry_id: str | None,
    tenant: bool,
    placed_by: str | None,
) -> LegalHold:
    """Place a hold over the one thing that is named. An entry has to be there, expired
    and retired ones too.
    """
    door.identifier("name", name)
    if not door.text("reason", reason, max_chars=MOST_OF_A_REASON, min_chars=1).strip():
        raise InvalidInput("reason", "must not be blank: who finds the hold in years reads it")
    given: dict[Over, str] = {}
    if scope is not None:
        given["scope"] = scope_of(scope).text
    if user is not None:
        given["user"] = user_of(user)
    if entry_id is not None:
        given["entry"] = id_of(entry_id)
    if tenant:
        given["tenant"] = access.tenant
    if len(given) != 1:
        raise InvalidInput(
            "hold",
            "is over one of scope, user, entry_id, or tenant=True; call it again for what else is held",
        )
    [(over, of)] = given.items()
    hold = LegalHold(
        name,
        over,
        of,
        reason,
        None if placed_by is None else door.identifier("placed_by", placed_by),
        access.engine.placement.now(),
    )
    entry_scope = await access.engine.scope_of_entry(access.tenant, of) if over == "entry" else None
    return await access.engine.erasure.holds.place(access.tenant, hold, entry_scope)
