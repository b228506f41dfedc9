"""The store that has the sessions is taken back to an earlier moment, as from a backup,
and new processes go on.

What was acknowledged since that moment may be gone, and what was erased since may be
back. What stands there then is a beginning like any other: to processes that remember
nothing of what came since, everything is promised of it, and of what follows. To one
that remembers more, not all is: nobody can tell a log that was set back from one that
never went on (docs/known-limits.md). What holds then, and what cannot, says
`test_setback.py`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from memory.domain.errors import NotFound
from memory.orchestrator.conversations.redaction import USER_ERASURE
from memory.orchestrator.conversations.sessions import SessionDraft
from memory.orchestrator.storage.collections import OPERATIONS
from tests.simulation.loop import OWNER, seeded
from tests.simulation.sessions.acts import SESSION, SYSTEM, TENANT, Worker, everything
from tests.simulation.sessions.told import Call, Told

if TYPE_CHECKING:
    from tests.simulation.sessions.run import Run


async def set_back(world: Run) -> None:
    """To one of the moments that were kept, or to before the first; half of the time it
    is healed then, as by `memory doctor --repair`.

    Of what was told before, nothing is promised any more.
    """
    state = world.servers[-1].store.state
    if world.backups:
        state.restore(seeded(world.seed, 7).choice(world.backups))
    else:
        state.wipe()
    world.trace.append("--- the sessions' store is set back ---")
    reader = Worker(world, world.process("reader"))
    OWNER.set(None)
    await reader.engine.open()
    if seeded(world.seed, 8).random() < 0.5:
        healed = await reader.engine.repair.compare(repair=True)
        world.trace.append(f"--- {healed} ---")
        if healed.error or healed.left:
            world.told.broken.append(f"the store that was set back does not heal: {healed}")
    told = world.told = Told(world.loop.time, answers=world.told.answers, broken=world.told.broken)
    if any(row.fields["kind"] == USER_ERASURE for row in world.standing(OPERATIONS)):
        told.users.append(Call(told.now()))  # it was under way then, and is owed
    with suppress(NotFound):
        session = await reader.engine.conversations.open(TENANT, SessionDraft(SESSION, SYSTEM), create=False)
        told.given[session.log.life.incarnation] = (await session.log.load()).state.place
        items = [
            item
            for item in await everything(session)
            if not (item.is_summary or item.is_redacted or item.message.id == "system")
        ]
        told.stands(session.log.life.incarnation, [item.message for item in items])
